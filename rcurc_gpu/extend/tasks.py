"""Tasks of the extension: units of a block to be regressed on a basis, and fit passes over them.

In the paper's symbols, with U = W diag(s) V^T known: a column j of R outside of J is [X]_{I,j} = W a_j, a row i of C outside
of I is [X]_{i,J} = b_i V^T. Where Omega_R (Omega_C) observes it, a_j (b_i) is a robust regression with its own threshold
zeta, from zeta_0 by gamma down to the noise. The paper takes gradient steps eta_R, eta_C instead; least squares on the
inliers need about ten steps for machine precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..backends.arrays import (
    Array,
    array_namespace,
    asarray_on,
    bring,
    default_chunk_bytes,
    device_of,
    same_place,
    take_rows,
    to_numpy,
)
from ..backends.blocks import Block, ChunkPlan
from ..backends.kernels import RunContext
from ..backends.plain.passes import Column, EntryIds, FitPass, entry_ids_on
from ..backends.plain.regression import Schedule
from ..backends.streaming import through
from .diagnostics import ILL_CONDITIONED, OK, TOO_FEW_OBSERVATIONS, UnitDiagnostics

Report = Callable[[int], None]  # called with how many units are done


@dataclass(frozen=True, eq=False)
class Extension:
    """Coefficients a_j or b_i (n_units, r), their diagnostics, and how many entries were held out and agree."""

    coefficients: Array
    diagnostics: UnitDiagnostics
    n_held: int
    n_consensus: int

    def better_of(self, new: Extension, units: np.ndarray) -> Extension:
        """Take the `new` pass over some units where it found more inliers."""
        # more inliers, not a smaller spread: a wrong solution with few inliers may fit these exactly
        better = new.diagnostics.n_inliers > self.diagnostics.n_inliers[units]
        if not better.any():
            return self
        xp = array_namespace(self.coefficients)
        source = np.arange(len(self.diagnostics.status))
        source[units[better]] = len(source) + np.flatnonzero(better)
        both = xp.concat([self.coefficients, new.coefficients])
        coefficients = xp.take(both, asarray_on(source, self.coefficients), axis=0)
        diagnostics = self.diagnostics.put(units[better], new.diagnostics.take(better))
        return replace(self, coefficients=coefficients, diagnostics=diagnostics)


@dataclass(frozen=True, eq=False)
class Task:
    """A block to regress on a basis.

    Attributes
    ----------
    block : Block
        On any device or host; results come back to it.
    basis : float array (length, r)
        W for columns, V for rows; orthonormal but for rows that are left out, which have `usable` 0.
    usable : float array (length,)
    unit_ids, index_ids : int64 arrays
        Numbers of units and positions in the whole matrix (for the held-out entries).
    transposed : bool
        Whether units are columns of the matrix.
    schedule : Schedule
    run : RunContext
    start : float array (n_units, r), optional
        Where the first pass begins.
    consensus : float, optional
        Share of the entries that agree on another solution than their unit has, as in the core; by default rivals are
        not sought.
    """

    block: Block
    basis: Array
    usable: Array
    unit_ids: np.ndarray
    index_ids: np.ndarray
    transposed: bool
    schedule: Schedule
    run: RunContext
    start: Array | None = None
    consensus: float | None = None

    @property
    def rank(self) -> int:
        """Columns of the basis."""
        return int(self.basis.shape[1])

    @cached_property
    def whitener(self) -> Array:
        """The (r, r) matrix T that makes ``basis @ T.T`` orthonormal."""
        xp = array_namespace(self.basis)
        eigenvalues, vectors = xp.linalg.eigh(self.basis.T @ (self.basis * self.usable[:, None]))
        # keeps a basis with fewer independent columns than r from dividing by 0
        least = float(xp.finfo(self.basis.dtype).eps) * float(xp.max(xp.abs(eigenvalues))) + float(
            xp.finfo(self.basis.dtype).smallest_normal
        )
        safe = xp.maximum(eigenvalues, xp.full((self.rank,), least, dtype=self.basis.dtype, device=device_of(self.basis)))
        return (vectors / xp.sqrt(safe)).T

    @cached_property
    def ids(self) -> EntryIds:
        """Ids of the entries, on the device; chunks that are streamed bring their own unit ids."""
        unit_ids = self.unit_ids if same_place(self.block.value, self.basis) else self.unit_ids[:0]
        return entry_ids_on(self.basis, unit_ids, self.index_ids, self.transposed, self.run.seed, self.run.holdout)

    def resident(self, units: np.ndarray) -> tuple[Block, np.ndarray, EntryIds]:
        """Some units as a block on the device, their numbers in it, and their ids."""
        if same_place(self.block.value, self.basis):
            return self.block, units, self.ids
        ids = replace(self.ids, unit=asarray_on(self.unit_ids[units], self.basis))
        return self.block.take_units(units).to(self.basis), np.arange(len(units)), ids

    @property
    def first(self) -> FitPass:
        """The first pass, from the start if there is one."""
        return self.fit_pass if self.start is None else self.given(self.start)

    @property
    def fit_pass(self) -> FitPass:
        """A pass that begins at 0."""
        # Entries below the noise's threshold say nothing. If noise is large, below half of a typical entry: zeta_0 is five
        # medians.
        return FitPass(self.schedule, min(self.schedule.floor, 0.1 * self.schedule.zeta0))

    def plan(self, units: np.ndarray) -> ChunkPlan:
        """Chunks for `units`."""
        return self.run.kernels.plan(self.block, units, self.rank, self.run.chunk_bytes or default_chunk_bytes(self.basis))

    def given(self, start: Array, max_steps: int | None = None) -> FitPass:
        """A pass that begins at coefficients of all units (n_units, r)."""
        begun = replace(self.fit_pass, begin="given", start=start)
        return begun if max_steps is None else replace(begun, max_steps=max_steps)


def pass_over_given(task: Task, units: np.ndarray, coefficients: Array) -> Extension:
    """Measure coefficients (len(units), r) that come from elsewhere, before units are compared with each other."""
    # a pass wants a row for every unit of the block, but reads only those of `units`
    place = np.zeros(task.block.n_units, dtype=np.int64)
    place[units] = np.arange(len(units))
    start = take_rows(coefficients, asarray_on(place, coefficients)) if len(units) else coefficients
    return run_pass(task, units, task.given(start, max_steps=0))


def run_pass(task: Task, units: np.ndarray, fit_pass: FitPass, report: Report | None = None) -> Extension:
    """Make a pass over some units; its `start` has a row for every unit of the block.

    `report` is called with the number of units done.
    """
    if len(units) == 0:
        return _extension(task, bring(task.basis[:0, :], task.block.value), np.zeros((0, len(Column))))
    plan = task.plan(units)
    white, all_ids = task.whitener, task.ids  # made here: inside `work` it would run on the stream of the first chunk

    def arguments(chosen: np.ndarray, unit_ids: Array | None) -> tuple[Any, ...]:
        start = None
        if fit_pass.start is not None:
            start = bring(take_rows(fit_pass.start, asarray_on(chosen, fit_pass.start)), task.basis)
        ids = all_ids if unit_ids is None else replace(all_ids, unit=unit_ids)
        return task.basis, task.usable, white, ids, replace(fit_pass, start=start)

    coefficients, numbers = [], []
    regress = task.run.kernels.regress
    for chosen, (a, table) in through(task.block, list(plan), task.unit_ids, task.basis, regress, arguments):
        coefficients.append(a)
        numbers.append(table)
        if report is not None:
            report(len(chosen))
    return _extension(task, plan.join(coefficients), to_numpy(plan.join(numbers)).astype(np.float64, copy=False))


def _extension(task: Task, a: Array, table: np.ndarray) -> Extension:
    n_held, n_consensus = (int(table[:, column].sum()) for column in (Column.N_HELD, Column.N_CONSENSUS))
    return Extension(a, diagnose(table, task.rank), n_held, n_consensus)


def diagnose(table: np.ndarray, rank: int) -> UnitDiagnostics:
    """Diagnostics from the table of a fit pass (see `passes.regress`), before units are compared with each other."""
    n_obs, n_in, spread = table[:, Column.N_FIT], table[:, Column.N_INLIERS], table[:, Column.SPREAD]
    ill, error, informative = table[:, Column.ILL], table[:, Column.STANDARD_ERROR], table[:, Column.N_INFORMATIVE]
    # r unknowns fit r observations whatever they are, and r + 1 nearly; two more are the least that says anything
    status = np.where(n_obs < rank + 2, TOO_FEW_OBSERVATIONS, OK).astype(np.int8)
    status[(status == OK) & (n_in >= rank + 2) & (ill > 0)] = ILL_CONDITIONED
    return UnitDiagnostics(
        status, n_obs.astype(np.int64), n_in.astype(np.int64), spread.copy(), error.copy(), informative.astype(np.int64)
    )
