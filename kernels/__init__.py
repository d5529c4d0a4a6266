"""CUDA C++ sources of the fused kernels, installed as ``rcurc_gpu.kernels``."""
