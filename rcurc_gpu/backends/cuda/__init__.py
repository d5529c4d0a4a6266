"""The kernels on CUDA devices, through CuPy; their sources are in ``kernels/``."""

__all__ = ["calls", "elementwise", "launch", "sources"]
