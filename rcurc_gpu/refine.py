"""Alternating sweeps over all observations.

The core's basis comes from the intersection only. With noise, all columns know more about it: regress the chosen rows on
the factors of all columns, the chosen columns on those of all rows, then everything else again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .backend import Array, array_namespace, asarray_on, bring
from .block import Block, others
from .checkpoint import Checkpoint
from .cur import join_units
from .diagnostics import OK, UnitDiagnostics
from .extend import Extension, Task, extend
from .fused import Kernels
from .regress import Schedule
from .samples import CrossSamples


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
        With zeta0 = floor: the solution is near, only the threshold's inliers are solved for again.
    like : array
        Where to compute.
    """
    rows, cols = samples.rows, samples.cols
    n1, n2 = samples.shape
    all_rows, all_cols = np.arange(n1), np.arange(n2)
    other_rows, other_cols = others(rows, n1), others(cols, n2)
    r_by_row, c_by_col = flipped
    fixed = replace(schedule, zeta0=schedule.floor)

    def run(
        block: Block,
        basis: Array,
        status: np.ndarray,
        units: np.ndarray | None,
        names: tuple[np.ndarray, np.ndarray],
        start: Array,
        transposed: bool,
    ) -> Extension:
        basis = bring(_without_nan(basis), like)
        task = Task(
            block,
            basis,
            asarray_on((status == OK).astype(np.float64), basis, basis.dtype),
            *names,
            transposed,
            holdout,
            seed,
            fixed,
            chunk_bytes,
            kernels,
            start=_without_nan(start),
            checkpoint=checkpoint,
        )
        return extend(task, units, once=True)

    def renew(extension: Extension, factor: Array, numbers: np.ndarray, status: np.ndarray) -> Array:
        """The new coefficients of `numbers`, but the old ones where either could not be determined."""
        good = (status[numbers] == OK) & (extension.diagnostics.status == OK)
        xp = array_namespace(factor)
        return xp.where(asarray_on(good[:, None], factor), extension.coefficients, _take(factor, numbers))

    left, right, row_status, col_status = factors.left, factors.right, factors.rows.status, factors.cols.status
    by_row = run(r_by_row, right, col_status, None, (rows, all_cols), _take(left, rows), False)
    core_left = renew(by_row, left, rows, row_status)
    left = join_units(core_left, _take(left, other_rows), rows, n1)
    by_col = run(c_by_col, left, row_status, None, (cols, all_rows), _take(right, cols), True)
    core_right = renew(by_col, right, cols, col_status)
    new_cols = run(samples.r_block, core_left, row_status[rows], other_cols, (all_cols, rows), right, True)
    new_rows = run(samples.c_block, core_right, col_status[cols], other_rows, (all_rows, cols), left, False)
    return replace(
        factors,
        left=join_units(core_left, renew(new_rows, left, other_rows, row_status), rows, n1),
        right=join_units(core_right, renew(new_cols, right, other_cols, col_status), cols, n2),
        extensions=(new_cols, new_rows),
        swept=True,
    )


def _take(factor: Array, numbers: np.ndarray) -> Array:
    xp = array_namespace(factor)
    return xp.take(factor, asarray_on(numbers, factor), axis=0)


def _without_nan(factor: Array) -> Array:
    xp = array_namespace(factor)
    return xp.where(xp.isfinite(factor), factor, xp.zeros_like(factor))
