"""Results in the scale and at the place of the samples they came from."""

from __future__ import annotations

import math
from dataclasses import replace

from ..backends.arrays import Array, array_namespace, bring, same_place
from ..core.history import IterationState
from ..result.matrix import CURMatrix
from ..result.result import Result


def power_of_two(size: float, like: Array) -> float:
    """One near `size` if squares of that overflow or vanish in the dtype of `like`, else 1."""
    safe = 1e6 if array_namespace(like).finfo(like.dtype).bits == 32 else 1e50
    return 1.0 if size == 0 or 1 / safe < size < safe else 2.0 ** max(round(math.log2(size)), -1000)


def matrix_at(cur: CURMatrix, like: Array) -> CURMatrix:
    """A matrix with factors of the kind of `like`."""
    if same_place(cur.left, like):
        return cur
    return CURMatrix(bring(cur.left, like), bring(cur.right, like), cur.rows, cur.cols)


def state_at(state: IterationState, like: Array | None, scale: float) -> IterationState:
    """An iteration on samples that were divided by `scale`, as the owner of samples like `like` wants to see it."""
    made = state.make
    make = None if made is None else lambda: matrix_at(_scaled(made(), scale), like)
    return replace(state, threshold=state.threshold * scale, make=make)


def _scaled(cur: CURMatrix, scale: float) -> CURMatrix:
    return CURMatrix(cur.left, cur.right * scale, cur.rows, cur.cols)


def rescaled(result: Result, scale: float) -> Result:
    """The numbers of a result of samples that were divided by `scale`; its factors and diagnostics are in their scale."""
    if scale == 1:
        return result
    return replace(
        result,
        history=[replace(state, threshold=state.threshold * scale) for state in result.history],
        noise=result.noise * scale,
        threshold=result.threshold * scale,
        schedule=replace(result.schedule, zeta0=result.schedule.zeta0 * scale, floor=result.schedule.floor * scale),
    )
