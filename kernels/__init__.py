"""CUDA C++ sources of the kernels, installed as ``rcurc_gpu.kernels``."""
