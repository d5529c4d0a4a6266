"""Where arrays live, and what computes on them: plain array code, Numba or CUDA. Knows nothing of matrices to recover."""
