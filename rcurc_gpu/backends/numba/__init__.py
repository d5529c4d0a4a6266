"""The kernels compiled for the CPU by Numba (the extra ``fast``)."""
