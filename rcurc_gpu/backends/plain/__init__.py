"""The kernels in plain array-API code: the reference that compiled ones have to agree with."""
