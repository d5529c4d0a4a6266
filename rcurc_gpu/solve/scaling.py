"""Results in the units and at the place of the samples they came from."""

from __future__ import annotations

import math
from dataclasses import replace

from ..backends.arrays import Array, array_namespace, bring, same_place
from ..core.history import IterationState
from ..result.matrix import CURMatrix
from ..result.result import Result
from ..samples.cross import CrossSamples


def unit_of(samples: CrossSamples) -> float:
    """A power of two near the size of the observations if that is extreme, else 1."""
    return power_of_two(samples.largest[0], samples.r_block.value)


def power_of_two(size: float, like: Array) -> float:
    """One near `size` if squares of that overflow or vanish in the dtype of `like`, else 1."""
    safe = 1e6 if array_namespace(like).finfo(like.dtype).bits == 32 else 1e50
    return 1.0 if size == 0 or 1 / safe < size < safe else 2.0 ** max(round(math.log2(size)), -1000)


def at_home(result: Result, samples: CrossSamples) -> Result:
    """The result with arrays of the kind of `samples`."""
    return replace(result, cur=_matrix_at_home(result.cur, samples), samples=samples)


def _matrix_at_home(cur: CURMatrix, samples: CrossSamples) -> CURMatrix:
    like = samples.r_block.value
    if same_place(cur.left, like):
        return cur
    return CURMatrix(bring(cur.left, like), bring(cur.right, like), cur.rows, cur.cols)


def state_at_home(state: IterationState, samples: CrossSamples, unit: float) -> IterationState:
    """An iteration on samples that were divided by `unit`, as the owner of `samples` wants to see it."""
    made = state.make
    make = None if made is None else lambda: _matrix_at_home(_scaled(made(), unit), samples)
    return replace(state, threshold=state.threshold * unit, make=make)


def _scaled(cur: CURMatrix, unit: float) -> CURMatrix:
    return CURMatrix(cur.left, cur.right * unit, cur.rows, cur.cols)


def in_units(result: Result, unit: float) -> Result:
    """The result of samples that were divided by `unit`, in their own units."""
    if unit == 1:
        return result
    return replace(
        numbers_in_units(result, unit),
        cur=_scaled(result.cur, unit),
        columns=result.columns.scaled(unit),
        rows=result.rows.scaled(unit),
    )


def numbers_in_units(result: Result, unit: float) -> Result:
    """The same for all but the factors and the diagnostics."""
    return replace(
        result,
        history=[replace(state, threshold=state.threshold * unit) for state in result.history],
        noise=result.noise * unit,
        threshold=result.threshold * unit,
        schedule=replace(result.schedule, zeta0=result.schedule.zeta0 * unit, floor=result.schedule.floor * unit),
    )
