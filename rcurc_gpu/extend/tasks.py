"""The extension: every column (row) is a robust regression of its observations on the core's basis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
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
from ..backends.blocks import Block, ChunkPlan, pieces
from ..backends.kernels import Kernels
from ..backends.plain.passes import Column, EntryIds, FitPass, again, entry_ids_on
from ..backends.plain.regression import Schedule
from ..backends.streaming import through
from ..solve.checkpoint import Checkpoint
from .diagnostics import DIAGNOSTIC_NAMES, TOO_FEW_INLIERS, UnitDiagnostics, diagnose
from .rivals import contestable, contested, rivals
from .typical import Typical, doubtful, in_doubt, mark, mark_atypical, tally, typical_of, with_gates

_RESTARTS = 6
_MOST_SUBSETS = 1000
_PART = 2_000_000  # observations after which a checkpoint may be written


@dataclass(frozen=True, eq=False)
class Extension:
    """Coefficients (n_units, r), their diagnostics, and how many entries were held out and how many of those agree."""

    coefficients: Array
    diagnostics: UnitDiagnostics
    n_held: int
    n_consensus: int


@dataclass(frozen=True, eq=False)
class Task:
    """A block to regress on a basis.

    Attributes
    ----------
    block : Block
        Anywhere; results come back to where it is.
    basis : float array (length, r)
        Orthonormal up to what was left out; rows that are not to be used have `usable` 0.
    usable : float array (length,)
    unit_ids, index_ids : int64 arrays
        Numbers of units and positions in the whole matrix (for the held-out entries).
    transposed : bool
        Whether units are columns of the matrix.
    kernels : Kernels
        What does the work.
    start : float array (n_units, r), optional
        Where the first look begins.
    checkpoint : Checkpoint, optional
        Keeps what was done of a long look.
    agreeing : float, optional
        Share of the entries that agree on another solution than their unit has, as in the core; by default units are not
        asked whether theirs has a rival.
    """

    block: Block
    basis: Array
    usable: Array
    unit_ids: np.ndarray
    index_ids: np.ndarray
    transposed: bool
    holdout: float
    seed: int
    schedule: Schedule
    chunk_bytes: int | None
    kernels: Kernels
    start: Array | None = None
    checkpoint: Checkpoint | None = None
    agreeing: float | None = None

    @cached_property
    def whitener(self) -> Array:
        """The (r, r) matrix T that makes ``basis @ T.T`` orthonormal."""
        xp = array_namespace(self.basis)
        r = self.basis.shape[1]
        eigenvalues, vectors = xp.linalg.eigh(self.basis.T @ (self.basis * self.usable[:, None]))
        least = float(xp.finfo(self.basis.dtype).eps) * float(xp.max(xp.abs(eigenvalues))) + float(
            xp.finfo(self.basis.dtype).smallest_normal
        )
        safe = xp.maximum(eigenvalues, xp.full((r,), least, dtype=self.basis.dtype, device=device_of(self.basis)))
        return (vectors / xp.sqrt(safe)).T

    @cached_property
    def ids(self) -> EntryIds:
        """Names of the entries, on the device; of those that are streamed, each chunk brings its own."""
        unit_ids = self.unit_ids if same_place(self.block.value, self.basis) else self.unit_ids[:0]
        return entry_ids_on(self.basis, unit_ids, self.index_ids, self.transposed, self.seed, self.holdout)

    def resident(self, units: np.ndarray) -> tuple[Block, np.ndarray, EntryIds]:
        """Some units as a block on the device, their numbers in it, and names."""
        if same_place(self.block.value, self.basis):
            return self.block, units, self.ids
        ids = replace(self.ids, unit=asarray_on(self.unit_ids[units], self.basis))
        return self.block.take_units(units).to(self.basis), np.arange(len(units)), ids

    @property
    def fit_pass(self) -> FitPass:
        """The first look."""
        # half of a typical entry, where the noise is larger than that
        return FitPass(self.schedule, min(self.schedule.floor, 0.1 * self.schedule.zeta0))

    def plan(self, units: np.ndarray) -> ChunkPlan:
        """Chunks for `units`."""
        return self.kernels.plan(self.block, units, self.basis.shape[1], self.chunk_bytes or default_chunk_bytes(self.basis))


def extend(
    task: Task,
    units: np.ndarray | None = None,
    typical_share: float | None = None,
    report: Callable[[int], None] | None = None,
    once: bool = False,
) -> Extension:
    """Regress units; look again, harder, at those whose observations do not agree with the rest.

    Parameters
    ----------
    task : Task
    units : integer array, optional
        Ascending numbers of the units to regress, all by default; the result has them in this order.
    typical_share : float, optional
        Share of inliers that a unit usually has; by default the median of these.
    report : callable, optional
        Called with the number of units done.
    once : bool
        Do not look again, and do not judge: the start is known to be good.
    """
    units = np.arange(task.block.n_units) if units is None else units
    first = first_pass(task, units, report)
    if once:
        return first
    rank, schedule = task.basis.shape[1], task.schedule
    typical = typical_of(tally(first.diagnostics, schedule.floor), schedule.floor)
    if typical_share is not None:
        typical = replace(typical, share=typical_share)
    return later_passes(task, units, first, with_gates(typical, in_doubt(first.diagnostics, typical, rank, schedule)))


def first_pass(task: Task, units: np.ndarray, report: Callable[[int], None] | None = None) -> Extension:
    """Regress units once, from the task's start if it has one."""
    fit_pass = task.fit_pass if task.start is None else replace(task.fit_pass, begin="given", start=task.start)
    return _run_pass(task, units, fit_pass, report)


def later_passes(task: Task, units: np.ndarray, first: Extension, typical: Typical) -> Extension:
    """Look again at the units that are not as `typical`, and mark those that remain doubtful."""
    rank, schedule = task.basis.shape[1], task.schedule
    extension = _marked(first, typical, rank)
    if typical.again:
        chosen = doubtful(extension.diagnostics, typical, rank, schedule)
        for fit_pass in [again(task.fit_pass, 0.8)] + [again(task.fit_pass, 0.7, "part", k) for k in range(_RESTARTS)]:
            better = _pass_again(task, units, extension, typical, fit_pass, chosen)
            if better is not extension:
                extension, chosen = better, doubtful(better.diagnostics, typical, rank, schedule)
    n_subsets = _subsets_needed(typical.share, rank)
    if n_subsets and typical.subsets:
        failed = np.flatnonzero(extension.diagnostics.status == TOO_FEW_INLIERS)
        extension = _pass_again(task, units, extension, typical, again(task.fit_pass, 0.7, "subsets", n_subsets), failed)
    extension = replace(extension, diagnostics=mark_atypical(extension.diagnostics, typical, rank, schedule))
    return _without_contested(task, units, extension, typical.share)


def _without_contested(task: Task, units: np.ndarray, extension: Extension, typical: float) -> Extension:
    """Mark units whose solution has a rival."""
    if task.agreeing is None:
        return extension
    chosen = contestable(extension.diagnostics, task.agreeing, task.holdout, typical)
    if chosen.size == 0:
        return extension
    a = take_rows(extension.coefficients, asarray_on(chosen, extension.coefficients))
    rest = (task.basis, task.usable, task.schedule, task.kernels, task.chunk_bytes, task.agreeing)
    counts = rivals(task.block, units[chosen], task.unit_ids[units[chosen]], a, *rest)
    return replace(extension, diagnostics=contested(extension.diagnostics, chosen, *counts, task.agreeing))


def _pass_again(
    task: Task, units: np.ndarray, extension: Extension, typical: Typical, fit_pass: FitPass, chosen: np.ndarray
) -> Extension:
    """Look at some of the `units` again."""
    if chosen.size == 0:
        return extension
    new = _marked(_run_pass(task, units[chosen], fit_pass, None), typical, task.basis.shape[1])
    return _merge(extension, new, chosen)


def _marked(extension: Extension, typical: Typical, rank: int) -> Extension:
    return replace(extension, diagnostics=mark(extension.diagnostics, typical, rank))


def measure(task: Task, units: np.ndarray, coefficients: Array) -> Extension:
    """Diagnostics of coefficients that were found otherwise (len(units), r)."""
    extension, floor = pass_over_given(task, units, coefficients), task.schedule.floor
    typical = typical_of(tally(extension.diagnostics, floor), floor)
    return _without_contested(task, units, _marked(extension, typical, task.basis.shape[1]), typical.share)


def pass_over_given(task: Task, units: np.ndarray, coefficients: Array) -> Extension:
    """Coefficients that were found otherwise as they are, before units are compared with each other."""
    start = _spread(coefficients, units, task.block.n_units)
    return _run_pass(task, units, replace(task.fit_pass, begin="given", start=start, max_steps=0), None)


def _spread(coefficients: Array, units: np.ndarray, total: int) -> Array:
    """`coefficients` of `units` as rows of all `total` units; the others get those of the first."""
    place = np.zeros(total, dtype=np.int64)
    place[units] = np.arange(len(units))
    return take_rows(coefficients, asarray_on(place, coefficients)) if len(units) else coefficients


def _subsets_needed(typical: float, rank: int) -> int:
    """How many random subsets of `rank` entries, to have one without outliers; 0 if that is hopeless."""
    share = (0.75 * typical) ** rank  # units that got here have more outliers than most
    return int(min(5 / share, _MOST_SUBSETS)) + 1 if share > 1 / _MOST_SUBSETS else 0


def _run_pass(task: Task, units: np.ndarray, fit_pass: FitPass, report: Callable[[int], None] | None) -> Extension:
    """Look at some units; `fit_pass.start` has a row for every unit of the block."""
    if len(units) == 0:
        a, table = bring(task.basis[:0, :], task.block.value), np.zeros((0, len(Column)))
    elif task.checkpoint is None or task.block.counts[units].sum() < 2 * _PART:
        a, table = _pass_over(task, units, fit_pass, report)
    else:
        a, table = _pass_in_parts(task, task.checkpoint, units, fit_pass, report)
    n_held, n_consensus = (int(table[:, column].sum()) for column in (Column.N_HELD, Column.N_CONSENSUS))
    return Extension(a, diagnose(table, task.basis.shape[1]), n_held, n_consensus)


def _pass_in_parts(
    task: Task, checkpoint: Checkpoint, units: np.ndarray, fit_pass: FitPass, report: Callable[[int], None] | None
) -> tuple[Array, np.ndarray]:
    """`_pass_over`, part by part: those that an earlier run has done are taken from it."""
    coefficients, tables = [], []
    for start, stop in pairwise(pieces(task.block.counts[units], _PART)):
        step = checkpoint.step("columns" if task.transposed else "rows")
        if step.saved is not None:
            a, table = asarray_on(step.saved["a"], task.block.value), step.saved["table"]
            if report is not None:
                report(int(stop - start))
        else:
            a, table = _pass_over(task, units[start:stop], fit_pass, report)
            step.save({"a": a, "table": table})
        coefficients.append(a)
        tables.append(table)
    return array_namespace(a).concat(coefficients), np.concatenate(tables)


def _pass_over(
    task: Task, units: np.ndarray, fit_pass: FitPass, report: Callable[[int], None] | None
) -> tuple[Array, np.ndarray]:
    """Coefficients of some units, and the table of `passes.regress` on the host."""
    plan = task.plan(units)
    white, names_here = task.whitener, task.ids  # made now, and not on the stream of the first chunk

    def arguments(chosen: np.ndarray, unit_ids: Array | None) -> tuple[Any, ...]:
        start = None
        if fit_pass.start is not None:
            start = bring(take_rows(fit_pass.start, asarray_on(chosen, fit_pass.start)), task.basis)
        ids = names_here if unit_ids is None else replace(names_here, unit=unit_ids)
        return task.basis, task.usable, white, ids, replace(fit_pass, start=start)

    coefficients, numbers = [], []
    regress = task.kernels.regress
    for chosen, (a, table) in through(task.block, list(plan), task.unit_ids, task.basis, regress, arguments):
        coefficients.append(a)
        numbers.append(table)
        if report is not None:
            report(len(chosen))
    return plan.join(coefficients), to_numpy(plan.join(numbers)).astype(np.float64, copy=False)


def _merge(old: Extension, new: Extension, units: np.ndarray) -> Extension:
    """Take the new look at `units` where it found more inliers."""
    xp = array_namespace(old.coefficients)
    better = new.diagnostics.n_inliers > old.diagnostics.n_inliers[units]
    if not better.any():
        return old
    source = np.arange(len(old.diagnostics.status))
    source[units[better]] = len(source) + np.flatnonzero(better)

    def pick(name: str) -> np.ndarray:
        picked = getattr(old.diagnostics, name).copy()
        picked[units[better]] = getattr(new.diagnostics, name)[better]
        return picked

    coefficients = xp.take(xp.concat([old.coefficients, new.coefficients]), asarray_on(source, old.coefficients), axis=0)
    return replace(old, coefficients=coefficients, diagnostics=UnitDiagnostics(*(pick(name) for name in DIAGNOSTIC_NAMES)))
