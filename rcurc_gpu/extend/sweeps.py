"""Alternating sweeps over all observations.

The core's basis comes from the intersection only. With noise, all columns know more about it: regress the chosen rows on
the factors of all columns, the chosen columns on those of all rows, then everything else again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, bring
from ..backends.blocks import Block, join_units, others
from ..backends.kernels import Kernels
from ..backends.plain.regression import Schedule
from ..samples.cross import CrossSamples
from ..solve.checkpoint import Checkpoint
from .diagnostics import OK, UnitDiagnostics
from .normal import normal_equations, solve_normal_equations
from .tasks import Extension, Task, extend


@dataclass(frozen=True, eq=False)
class Factors:
    """``left`` (n1, r) and ``right`` (n2, r), the diagnostics of rows and columns, the last extensions, and whether the
    basis comes from all observations."""

    left: Array
    right: Array
    rows: UnitDiagnostics
    cols: UnitDiagnostics
    extensions: tuple[Extension, Extension]
    swept: bool = False


def sweep(
    samples: CrossSamples,
    factors: Factors,
    flipped: tuple[Block, Block],
    schedule: Schedule,
    holdout: float,
    seed: int,
    chunk_bytes: int | None,
    kernels: Kernels,
    like: Array,
    checkpoint: Checkpoint | None = None,
) -> Factors:
    """One alternating sweep at a fixed threshold.

    Parameters
    ----------
    flipped : (Block, Block)
        R by its rows and C by its columns.
    schedule : Schedule
        Its floor is the threshold.
    like : array
        Where to compute.
    """
    rows, cols = samples.rows, samples.cols
    n1, n2 = samples.shape
    all_rows, all_cols = np.arange(n1), np.arange(n2)
    other_rows, other_cols = others(rows, n1), others(cols, n2)

    def basis_of(factor: Array, status: np.ndarray) -> tuple[Array, Array]:
        basis = bring(without_nan(factor), like)
        return basis, asarray_on((status == OK).astype(np.float64), basis, basis.dtype)

    def again(
        block: Block, factor: Array, status: np.ndarray, ids: tuple[np.ndarray, np.ndarray], old: Array, transposed: bool
    ) -> tuple[Array, np.ndarray]:
        """Chosen rows (columns) of which the whole factor of the other side is known."""
        start = bring(without_nan(_take(old, ids[0])), like)
        basis, usable = basis_of(factor, status)
        normal = normal_equations(
            block, basis, usable, start, *ids, transposed, seed, holdout, schedule.floor, kernels, chunk_bytes
        )
        new, good = solve_normal_equations(normal, start)
        return bring(new, old), good

    left, right, row_status, col_status = factors.left, factors.right, factors.rows.status, factors.cols.status
    core_left = renewed(
        *again(flipped[0], right, col_status, (rows, all_cols), left, False), _take(left, rows), row_status[rows]
    )
    left = join_units(core_left, _take(left, other_rows), rows, n1)
    core_right = renewed(
        *again(flipped[1], left, row_status, (cols, all_rows), right, True), _take(right, cols), col_status[cols]
    )

    def regress(
        block: Block, basis: tuple[Array, Array], ids: tuple[np.ndarray, np.ndarray], start: Array, transposed: bool
    ) -> Extension:
        task = Task(
            block,
            *basis,
            *ids,
            transposed,
            holdout,
            seed,
            at_the_noise(schedule),
            chunk_bytes,
            kernels,
            start=without_nan(start),
            checkpoint=checkpoint,
        )
        return extend(task, other_cols if transposed else other_rows, once=True)

    new_cols = regress(samples.r_block, basis_of(core_left, row_status[rows]), (all_cols, rows), right, True)
    new_rows = regress(samples.c_block, basis_of(core_right, col_status[cols]), (all_rows, cols), left, False)
    good_cols, good_rows = (e.diagnostics.status == OK for e in (new_cols, new_rows))
    return replace(
        factors,
        left=join_units(
            core_left,
            renewed(new_rows.coefficients, good_rows, _take(left, other_rows), row_status[other_rows]),
            rows,
            n1,
        ),
        right=join_units(
            core_right,
            renewed(new_cols.coefficients, good_cols, _take(right, other_cols), col_status[other_cols]),
            cols,
            n2,
        ),
        extensions=(new_cols, new_rows),
        swept=True,
    )


def at_the_noise(schedule: Schedule) -> Schedule:
    """Only the threshold's inliers are solved for again: the solution is near."""
    return replace(schedule, zeta0=schedule.floor)


def renewed(new: Array, good: np.ndarray, old: Array, status: np.ndarray) -> Array:
    """New coefficients (k, r), but the `old` ones where either could not be determined."""
    xp = array_namespace(old)
    return xp.where(asarray_on(((status == OK) & good)[:, None], old), new, old)


def _take(factor: Array, numbers: np.ndarray) -> Array:
    xp = array_namespace(factor)
    return xp.take(factor, asarray_on(numbers, factor), axis=0)


def without_nan(factor: Array) -> Array:
    """`factor` with 0 for what is not finite."""
    xp = array_namespace(factor)
    return xp.where(xp.isfinite(factor), factor, xp.zeros_like(factor))
