"""The paper's operators on CuPy arrays, each in one pass; the signatures of `operators`."""

from __future__ import annotations

from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from .. import operators
from ..backend import Array
from .launch import dense, kernel, launch, pointer

_THREADS = 256
_MOST_BLOCKS = 1 << 16  # threads go on with the next entry


def _served(*arrays: Array) -> bool:
    return all(x.dtype == arrays[0].dtype for x in arrays) and arrays[0].dtype.name in ("float32", "float64")


def _launch(name: str, out: Array, arguments: tuple[Any, ...]) -> None:
    blocks = min(-(-out.size // _THREADS), _MOST_BLOCKS)
    launch(kernel("elementwise.cu", name, out.dtype.name), blocks, _THREADS, (np.int64(out.size), *arguments, out))


def hard_threshold(M: Array, zeta: Array | float) -> Array:
    """`operators.hard_threshold`."""
    is_array = isinstance(zeta, cupy.ndarray)
    if not _served(M, *([zeta] if is_array else [])):
        return operators.hard_threshold(M, zeta)
    with M.device:
        shape = cupy.broadcast_shapes(M.shape, zeta.shape) if is_array else M.shape
        each = dense(cupy.broadcast_to(zeta, shape)) if is_array else None
        out = cupy.empty(shape, M.dtype)
        number = M.dtype.type(0 if is_array else zeta)
        if out.size:
            _launch("threshold_each", out, (dense(cupy.broadcast_to(M, shape)), pointer(each), number))
    return out


def union_sum(
    R_inter: Array,
    C_inter: Array,
    seen_R: Array,
    seen_C: Array,
    step_rows: float,
    step_cols: float,
    X: Array | None = None,
) -> Array:
    """`operators.union_sum`."""
    given = [R_inter, C_inter] if X is None else [R_inter, C_inter, X]
    if not _served(*given) or any(x.shape != R_inter.shape for x in (*given, seen_R, seen_C)):
        return operators.union_sum(R_inter, C_inter, seen_R, seen_C, step_rows, step_cols, X)
    with R_inter.device:
        real = R_inter.dtype.type
        out = cupy.empty(R_inter.shape, R_inter.dtype)
        etas = (real(step_rows), real(step_cols), real(step_rows + step_cols))
        seen = (dense(seen_R, np.bool_), dense(seen_C, np.bool_))
        if out.size:
            _launch("union_each", out, (dense(R_inter), dense(C_inter), *seen, *etas, pointer(None if X is None else dense(X))))
    return out
