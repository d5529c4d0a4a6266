"""Results in the scale and at the place of the samples they came from."""

from __future__ import annotations

import math
from dataclasses import replace

from ..backends.arrays import Array, array_namespace, bring, hand_back
from ..core.history import IterationState
from ..result.matrix import CURMatrix
from ..result.result import Result


def power_of_two(size: float, like: Array) -> float:
    """A power of two near `size` if squares may overflow or vanish in the dtype of `like`, else 1.

    Dividing by a power of two is exact, so the scale of the data does not change the result.
    """
    # float32 ends at 3e38, float64 at 2e308: sums of the squares of very many entries stay far inside, and so do the odds
    # and the precisions of the noise model
    safe = 1e6 if array_namespace(like).finfo(like.dtype).bits == 32 else 1e15
    # not below 2^-1000, whose inverse is still finite
    return 1.0 if size == 0 or 1 / safe < size < safe else 2.0 ** max(round(math.log2(size)), -1000)


def matrix_at(cur: CURMatrix, like: Array, home: Array | None = None) -> CURMatrix:
    """A matrix with factors of the kind of `like`, and then of the library of `home`."""
    return cur.mapped(lambda x: hand_back(bring(x, like), home))


def state_at(state: IterationState, like: Array, scale: float, home: Array | None = None) -> IterationState:
    """An iteration on samples that were divided by `scale`, in the scale and of the kind of the user's samples."""
    made = state.make
    make = None if made is None else lambda: matrix_at(_scaled(made(), scale), like, home)
    return replace(state, threshold=state.threshold * scale, make=make)


def _scaled(cur: CURMatrix, scale: float) -> CURMatrix:
    return CURMatrix(cur.left, cur.right * scale, cur.rows, cur.cols)


def rescaled(result: Result, scale: float) -> Result:
    """A result of samples that were divided by `scale`, in the user's scale; factors and diagnostics already are."""
    if scale == 1:
        return result
    return replace(
        result,
        history=[replace(state, threshold=state.threshold * scale) for state in result.history],
        noise=result.noise * scale,
        threshold=result.threshold * scale,
        schedule=replace(result.schedule, zeta0=result.schedule.zeta0 * scale, floor=result.schedule.floor * scale),
    )
