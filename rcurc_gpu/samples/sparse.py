"""Sparse matrices of SciPy and CuPy: observations from them, and blocks as such."""

from __future__ import annotations

from typing import Any

from ..backends.arrays import sparse_module
from ..backends.blocks import Block


def to_coo(name: str, matrix: Any) -> Any:
    """A sparse matrix in coordinate form."""
    if not hasattr(matrix, "tocoo"):
        raise TypeError(f"{name} must be a sparse matrix (scipy.sparse or cupyx.scipy.sparse), got {type(matrix).__name__}")
    return matrix.tocoo()


def as_sparse(block: Block, units_last: bool) -> Any:
    """A block as a sparse matrix, sharing memory: (length, n_units) in CSC form if `units_last`, else (n_units, length) in
    CSR form."""
    sparse = sparse_module(block.value)
    form, shape = ("csc", (block.length, block.n_units)) if units_last else ("csr", (block.n_units, block.length))
    make = getattr(sparse, f"{form}_array", None) or getattr(sparse, f"{form}_matrix")
    return make((block.value, block.index, block.indptr), shape=shape)
