"""The extension: every column (row) is a robust regression of its observations on the core's basis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..backends.arrays import (
    Array,
    array_namespace,
    asarray_on,
    bring,
    default_chunk_bytes,
    device_of,
    profiled,
    same_place,
    take_rows,
    to_numpy,
)
from ..backends.blocks import Block, ChunkPlan, pieces
from ..backends.kernels import Kernels
from ..backends.plain.passes import N_NUMBERS, Look, Names, again, names_on
from ..backends.plain.regression import Schedule
from ..backends.streaming import through
from ..solve.checkpoint import Checkpoint
from .diagnostics import DIAGNOSTIC_NAMES, TOO_FEW_INLIERS, UnitDiagnostics, diagnose
from .rivals import contestable, contested, rivals
from .typical import Usual, doubtful, in_doubt, mark, mark_unusual, tally, usual_of, with_gates

_RESTARTS = 6
_MOST_SUBSETS = 1000
_PART = 2_000_000  # observations after which a checkpoint may be written


@dataclass(frozen=True, eq=False)
class Extension:
    """Coefficients (n_units, r), their diagnostics, and how many entries were held out and how many of those agree."""

    coefficients: Array
    diagnostics: UnitDiagnostics
    n_held: int
    n_agreeing: int


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
    unit_names, index_names : int64 arrays
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
    unit_names: np.ndarray
    index_names: np.ndarray
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
    def names(self) -> Names:
        """Names of the entries, on the device; of those that are streamed, each chunk brings its own."""
        unit_names = self.unit_names if same_place(self.block.value, self.basis) else self.unit_names[:0]
        return names_on(self.basis, unit_names, self.index_names, self.transposed, self.seed, self.holdout)

    def resident(self, units: np.ndarray) -> tuple[Block, np.ndarray, Names]:
        """Some units as a block on the device, their numbers in it, and names."""
        if same_place(self.block.value, self.basis):
            return self.block, units, self.names
        names = replace(self.names, unit=asarray_on(self.unit_names[units], self.basis))
        return self.block.take_units(units).to(self.basis), np.arange(len(units)), names

    @property
    def look(self) -> Look:
        """The first look."""
        # half of a typical entry, where the noise is larger than that
        return Look(self.schedule, min(self.schedule.floor, 0.1 * self.schedule.zeta0))

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
    first = first_look(task, units, report)
    if once:
        return first
    rank, schedule = task.basis.shape[1], task.schedule
    usual = usual_of(tally(first.diagnostics, schedule.floor), schedule.floor)
    if typical_share is not None:
        usual = replace(usual, share=typical_share)
    return second_looks(task, units, first, with_gates(usual, in_doubt(first.diagnostics, usual, rank, schedule)))


def first_look(task: Task, units: np.ndarray, report: Callable[[int], None] | None = None) -> Extension:
    """Regress units once, from the task's start if it has one."""
    look = task.look if task.start is None else replace(task.look, begin="given", start=task.start)
    return _look(task, units, look, report)


def second_looks(task: Task, units: np.ndarray, first: Extension, usual: Usual) -> Extension:
    """Look again at the units that are not as `usual`, and mark those that remain doubtful."""
    rank, schedule = task.basis.shape[1], task.schedule
    extension = _marked(first, usual, rank)
    if usual.again:
        chosen = doubtful(extension.diagnostics, usual, rank, schedule)
        for look in [again(task.look, 0.8)] + [again(task.look, 0.7, "part", k) for k in range(_RESTARTS)]:
            better = _look_again(task, units, extension, usual, look, chosen)
            if better is not extension:
                extension, chosen = better, doubtful(better.diagnostics, usual, rank, schedule)
    n_subsets = _subsets_needed(usual.share, rank)
    if n_subsets and usual.subsets:
        failed = np.flatnonzero(extension.diagnostics.status == TOO_FEW_INLIERS)
        extension = _look_again(task, units, extension, usual, again(task.look, 0.7, "subsets", n_subsets), failed)
    extension = replace(extension, diagnostics=mark_unusual(extension.diagnostics, usual, rank, schedule))
    return _without_contested(task, units, extension, usual.share)


def _without_contested(task: Task, units: np.ndarray, extension: Extension, typical: float) -> Extension:
    """Mark units whose solution has a rival."""
    if task.agreeing is None:
        return extension
    chosen = contestable(extension.diagnostics, task.agreeing, task.holdout, typical)
    if chosen.size == 0:
        return extension
    a = take_rows(extension.coefficients, asarray_on(chosen, extension.coefficients))
    rest = (task.basis, task.usable, task.schedule, task.kernels, task.chunk_bytes, task.agreeing)
    counts = rivals(task.block, units[chosen], task.unit_names[units[chosen]], a, *rest)
    return replace(extension, diagnostics=contested(extension.diagnostics, chosen, *counts, task.agreeing))


def _look_again(
    task: Task, units: np.ndarray, extension: Extension, usual: Usual, look: Look, chosen: np.ndarray
) -> Extension:
    """Look at some of the `units` again."""
    if chosen.size == 0:
        return extension
    new = _marked(_look(task, units[chosen], look, None), usual, task.basis.shape[1])
    return _merge(extension, new, chosen)


def _marked(extension: Extension, usual: Usual, rank: int) -> Extension:
    return replace(extension, diagnostics=mark(extension.diagnostics, usual, rank))


def measure(task: Task, units: np.ndarray, coefficients: Array) -> Extension:
    """Diagnostics of coefficients that were found otherwise (len(units), r)."""
    extension, floor = look_at_given(task, units, coefficients), task.schedule.floor
    usual = usual_of(tally(extension.diagnostics, floor), floor)
    return _without_contested(task, units, _marked(extension, usual, task.basis.shape[1]), usual.share)


def look_at_given(task: Task, units: np.ndarray, coefficients: Array) -> Extension:
    """Coefficients that were found otherwise as they are, before units are compared with each other."""
    start = _spread(coefficients, units, task.block.n_units)
    return _look(task, units, replace(task.look, begin="given", start=start, max_steps=0), None)


def _spread(coefficients: Array, units: np.ndarray, total: int) -> Array:
    """`coefficients` of `units` as rows of all `total` units; the others get those of the first."""
    place = np.zeros(total, dtype=np.int64)
    place[units] = np.arange(len(units))
    return take_rows(coefficients, asarray_on(place, coefficients)) if len(units) else coefficients


def _subsets_needed(typical: float, rank: int) -> int:
    """How many random subsets of `rank` entries, to have one without outliers; 0 if that is hopeless."""
    share = (0.75 * typical) ** rank  # units that got here have more outliers than most
    return int(min(5 / share, _MOST_SUBSETS)) + 1 if share > 1 / _MOST_SUBSETS else 0


def _look(task: Task, units: np.ndarray, look: Look, report: Callable[[int], None] | None) -> Extension:
    """Look at some units; `look.start` has a row for every unit of the block."""
    if len(units) == 0:
        a, table = bring(task.basis[:0, :], task.block.value), np.zeros((0, N_NUMBERS))
    elif task.checkpoint is None or task.block.counts[units].sum() < 2 * _PART:
        a, table = _look_at(task, units, look, report)
    else:
        a, table = _look_in_parts(task, task.checkpoint, units, look, report)
    return Extension(a, diagnose(table, task.basis.shape[1]), int(table[:, 6].sum()), int(table[:, 7].sum()))


def _look_in_parts(
    task: Task, checkpoint: Checkpoint, units: np.ndarray, look: Look, report: Callable[[int], None] | None
) -> tuple[Array, np.ndarray]:
    """`_look_at`, part by part: those that an earlier run has done are taken from it."""
    coefficients, tables = [], []
    for start, stop in pairwise(pieces(task.block.counts[units], _PART)):
        step = checkpoint.step("columns" if task.transposed else "rows")
        if step.saved is not None:
            a, table = asarray_on(step.saved["a"], task.block.value), step.saved["table"]
            if report is not None:
                report(int(stop - start))
        else:
            a, table = _look_at(task, units[start:stop], look, report)
            step.save({"a": a, "table": table})
        coefficients.append(a)
        tables.append(table)
    return array_namespace(a).concat(coefficients), np.concatenate(tables)


def _look_at(task: Task, units: np.ndarray, look: Look, report: Callable[[int], None] | None) -> tuple[Array, np.ndarray]:
    """Coefficients of some units, and the table of `look.regress` on the host."""
    plan = task.plan(units)
    white, names_here = task.whitener, task.names  # made now, and not on the stream of the first chunk

    def work(block: Block, local: np.ndarray, chosen: np.ndarray, unit_names: Array | None) -> tuple[Array, Array]:
        start = None
        if look.start is not None:
            start = bring(take_rows(look.start, asarray_on(chosen, look.start)), task.basis)
        names = names_here if unit_names is None else replace(names_here, unit=unit_names)
        here = replace(look, start=start)
        with profiled(f"look at {len(local)} units", task.basis):
            return task.kernels.regress(block, local, task.basis, task.usable, white, names, here)

    coefficients, numbers = [], []
    for chosen, (a, table) in through(task.block, list(plan), task.unit_names, task.basis, work):
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
