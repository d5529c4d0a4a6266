"""The extension: every column (row) is a robust regression of its observations on the core's basis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from .backend import (
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
from .block import Block, ChunkPlan, pieces
from .checkpoint import Checkpoint
from .diagnostics import (
    DIAGNOSTIC_NAMES,
    OK,
    TOO_FEW_INLIERS,
    TOO_FEW_OBSERVATIONS,
    UnitDiagnostics,
    diagnose,
)
from .fused import Kernels
from .look import N_NUMBERS, Look, Names, again, names_on
from .regress import Schedule
from .stream import through

FLOOR_SIGMAS = 4.0  # threshold of a regression, in standard deviations of the noise
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
    look = task.look if task.start is None else replace(task.look, begin="given", start=task.start)
    first = _look(task, units, look, report)
    if once:
        return first
    typical = _typical_share(first.diagnostics) if typical_share is None else typical_share
    extension = _mark(first, typical, task)
    looks = [again(look, 0.8)] + [again(look, 0.7, "part", k) for k in range(_RESTARTS)]
    doubtful = _doubtful(extension.diagnostics, typical, task)
    for look in looks:
        better = _look_again(task, units, extension, typical, look, doubtful)
        if better is not extension:
            extension, doubtful = better, _doubtful(better.diagnostics, typical, task)
    n_subsets = _subsets_needed(typical, task.basis.shape[1])
    if n_subsets:
        failed = np.flatnonzero(extension.diagnostics.status == TOO_FEW_INLIERS)
        extension = _look_again(task, units, extension, typical, again(look, 0.7, "subsets", n_subsets), failed)
    return _mark_unusual(extension, typical, task)


def _look_again(
    task: Task, units: np.ndarray, extension: Extension, typical: float, look: Look, chosen: np.ndarray
) -> Extension:
    """Look at some of the `units` again; when many fail the basis is wrong, not the columns, and looking is in vain."""
    if chosen.size == 0 or chosen.size > max(0.3 * len(units), 16):
        return extension
    return _merge(extension, _mark(_look(task, units[chosen], look, None), typical, task), chosen)


def measure(task: Task, units: np.ndarray, coefficients: Array) -> Extension:
    """Diagnostics of coefficients that were found otherwise (len(units), r)."""
    start = _spread(coefficients, units, task.block.n_units)
    extension = _look(task, units, replace(task.look, begin="given", start=start, max_steps=0), None)
    return _mark(extension, _typical_share(extension.diagnostics), task)


def _spread(coefficients: Array, units: np.ndarray, total: int) -> Array:
    """`coefficients` of `units` as rows of all `total` units; the others get those of the first."""
    place = np.zeros(total, dtype=np.int64)
    place[units] = np.arange(len(units))
    return take_rows(coefficients, asarray_on(place, coefficients)) if len(units) else coefficients


def regress_all(block: Block, basis: Array, look: Look, kernels: Kernels, chunk_bytes: int | None) -> tuple[Array, Array]:
    """One look at all units of a block, on an orthonormal basis, with nothing held out; see `look.regress`."""
    xp = array_namespace(basis)
    r, units = basis.shape[1], np.arange(block.n_units)
    names = names_on(basis, units, np.arange(block.length), False, 0, 0.0)
    white = xp.eye(r, dtype=basis.dtype, device=device_of(basis))
    plan = kernels.plan(block, units, r, chunk_bytes or default_chunk_bytes(basis))
    parts = []
    for chosen in plan:
        start = None if look.start is None else take_rows(look.start, asarray_on(chosen, look.start))
        here = replace(look, start=start)
        parts.append(kernels.regress(block, chosen, basis, xp.ones_like(basis[:, 0]), white, names, here))
    a, table = (plan.join(list(column)) for column in zip(*parts, strict=True))
    return a, table


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


def _typical_share(d: UnitDiagnostics) -> float:
    """Median share of inliers among units that have enough observations."""
    enough = d.status != TOO_FEW_OBSERVATIONS
    return float(np.median(d.n_inliers[enough] / d.n_obs[enough])) if enough.any() else 1.0


def _doubtful(d: UnitDiagnostics, typical: float, task: Task) -> np.ndarray:
    """Units whose solution may be a wrong one: fewer inliers than chance leaves them at the usual share, or inliers that
    spread wider than the noise."""
    unusual = thin(d, typical, 2.5) | _wide(d, task, 4)
    return np.flatnonzero((d.status == TOO_FEW_INLIERS) | ((d.status == OK) & unusual))


def thin(d: UnitDiagnostics, typical: float, deviations: float) -> np.ndarray:
    """Whether a unit has fewer inliers than the usual share leaves by chance."""
    typical = min(typical, 0.95)  # without outliers the share has hardly any chance in it
    return d.n_inliers < typical * d.n_obs - deviations * np.sqrt(typical * (1 - typical) * d.n_obs)


def _wide(d: UnitDiagnostics, task: Task, deviations: float) -> np.ndarray:
    """Whether a unit's inliers spread wider than the noise, or the usual unit, does by chance."""
    dof = np.maximum(d.n_inliers - task.basis.shape[1], 1)
    usual = max(task.schedule.floor / FLOOR_SIGMAS, float(np.median(d.spread)) if d.spread.size else 0.0)
    return d.spread > usual * (1 + deviations / np.sqrt(2 * dof))


def _mark(extension: Extension, typical: float, task: Task) -> Extension:
    """Mark units whose inliers are too few: fewer than rank + 2, or half of the usual share."""
    d = extension.diagnostics
    least = np.maximum(task.basis.shape[1] + 2, 0.5 * typical * d.n_obs)
    status = np.where((d.status != TOO_FEW_OBSERVATIONS) & (d.n_inliers < least), TOO_FEW_INLIERS, d.status).astype(np.int8)
    return replace(extension, diagnostics=replace(d, status=status))


def _mark_unusual(extension: Extension, typical: float, task: Task) -> Extension:
    """After all looks: a unit with unusually few inliers is believed only if they prove something.

    With noise they have to outnumber the unknowns by far. Without noise a few exact agreements cannot be chance, unless
    they are zeros.
    """
    d, r = extension.diagnostics, task.basis.shape[1]
    rejected = d.n_obs - d.n_inliers
    doubt = thin(d, typical, 5.0) & (d.n_telling < np.maximum(3 * r, 0.25 * d.n_obs))
    doubt = doubt | (thin(d, typical, 2.5) & (d.n_telling < 0.8 * rejected))
    if task.schedule.floor > 1e-4 * task.schedule.zeta0:
        unusual = thin(d, typical, 4.5) | (thin(d, typical, 2.5) & _wide(d, task, 5))
        doubt = doubt | (unusual & (d.n_inliers < 10 * r))
    status = np.where((d.status == OK) & doubt, TOO_FEW_INLIERS, d.status).astype(np.int8)
    return replace(extension, diagnostics=replace(d, status=status))


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
