"""The paper's operators on CuPy arrays, each in one pass; the signatures of `operators`, which asks here first."""

from __future__ import annotations

from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array
from .launch import dense, kernel, launch, pointer

_THREADS = 256  # as in elementwise.cu
_MOST_BLOCKS = 1 << 16  # more than any GPU runs at a time; their threads go on with the next entry


def _served(*arrays: Array) -> bool:
    return all(x.dtype == arrays[0].dtype for x in arrays) and arrays[0].dtype.name in ("float32", "float64")


def _launch(name: str, out: Array, arguments: tuple[Any, ...]) -> None:
    blocks = min(-(-out.size // _THREADS), _MOST_BLOCKS)
    launch(kernel("elementwise.cu", name, out.dtype.name), blocks, _THREADS, (np.int64(out.size), *arguments, out))


def hard_threshold(M: Array, zeta: Array | float) -> Array | None:
    """`operators.hard_threshold`, or None for dtypes that there is no kernel for."""
    numbers: Any = zeta if isinstance(zeta, cupy.ndarray) else None
    if not _served(*([M] if numbers is None else [M, numbers])) or (numbers is None and np.ndim(zeta) > 0):
        return None
    with M.device:
        if numbers is not None:
            shape = cupy.broadcast_shapes(M.shape, numbers.shape)
            M, numbers = dense(cupy.broadcast_to(M, shape)), dense(cupy.broadcast_to(numbers, shape))
        out = cupy.empty(M.shape, M.dtype)
        if out.size:
            number = M.dtype.type(zeta if numbers is None else 0)
            _launch("threshold_each", out, (dense(M), pointer(numbers), number))
    return out


def union_sum(
    R_inter: Array, C_inter: Array, seen_R: Array, seen_C: Array, step_rows: float, step_cols: float, X: Array | None = None
) -> Array | None:
    """`operators.union_sum`, or None for dtypes and shapes that there is no kernel for."""
    given = [R_inter, C_inter] if X is None else [R_inter, C_inter, X]
    if not _served(*given) or any(x.shape != R_inter.shape for x in (*given, seen_R, seen_C)):
        return None
    with R_inter.device:
        real = R_inter.dtype.type
        out = cupy.empty(R_inter.shape, R_inter.dtype)
        etas = (real(step_rows), real(step_cols), real(step_rows + step_cols))
        seen = (dense(seen_R, np.bool_), dense(seen_C, np.bool_))
        if out.size:
            base = pointer(None if X is None else dense(X))
            _launch("union_each", out, (dense(R_inter), dense(C_inter), *seen, *etas, base))
    return out
