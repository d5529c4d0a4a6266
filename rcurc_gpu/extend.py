"""The extension: every column (row) is a robust regression of its observations on the core's basis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from .backend import Array, array_namespace, asarray_on, default_chunk_bytes, device_of, gather, take_rows, to_numpy
from .block import Block, Chunk, ChunkPlan, load_chunk
from .core import is_held_out
from .hashing import uniform_at
from .regress import Schedule, fitted, gram, inlier_quantile, random_subset_start, robust_regression, solve_normal

OK, TOO_FEW_OBSERVATIONS, TOO_FEW_INLIERS, ILL_CONDITIONED = 0, 1, 2, 3
STATUS_WORDS = {
    OK: "determined",
    TOO_FEW_OBSERVATIONS: "fewer observations than rank + 2",
    TOO_FEW_INLIERS: "too few observations agree with the rest",
    ILL_CONDITIONED: "the observed entries do not determine it (ill-conditioned)",
}

FLOOR_SIGMAS = 4.0  # threshold of a regression, in standard deviations of the noise
_RESTARTS = 6
_MOST_SUBSETS = 1000
_START_STREAM = 21
_HELD_SAMPLE = 65536  # held-out residuals kept for the judgement


@dataclass(frozen=True, eq=False)
class UnitDiagnostics:
    """How well each column (row) could be determined; host arrays, one entry per unit.

    Attributes
    ----------
    status : int8 (n,)
        0 determined, 1 too few observations, 2 too few inliers, 3 ill-conditioned.
    n_obs, n_inliers : int64 (n,)
        Observations in the fit, and those within the threshold of the solution.
    spread : float64 (n,)
        Standard deviation of the inlying residuals.
    standard_error : float64 (n,)
        Expected error of the unit's part in the cross from noise alone, in the norm.
    n_telling : int64 (n,)
        Inliers that are not about 0; such an entry fits a solution of 0 whatever is true.
    """

    status: np.ndarray
    n_obs: np.ndarray
    n_inliers: np.ndarray
    spread: np.ndarray
    standard_error: np.ndarray
    n_telling: np.ndarray

    @property
    def undetermined(self) -> np.ndarray:
        """Numbers of the units that could not be determined."""
        return np.flatnonzero(self.status != OK)

    def scaled(self, factor: float) -> UnitDiagnostics:
        """The diagnostics of ``factor * Y``."""
        return replace(self, spread=self.spread * factor, standard_error=self.standard_error * factor)

    def reasons(self) -> dict[str, int]:
        """How many units for each reason."""
        return {STATUS_WORDS[k]: int((self.status == k).sum()) for k in (1, 2, 3) if (self.status == k).any()}


DIAGNOSTIC_NAMES = ("status", "n_obs", "n_inliers", "spread", "standard_error", "n_telling")


def join_diagnostics(core: UnitDiagnostics, rest: UnitDiagnostics, chosen: np.ndarray, total: int) -> UnitDiagnostics:
    """Diagnostics of `core` at the numbers `chosen` and of `rest` at the others, ascending."""
    others = np.setdiff1d(np.arange(total), chosen, assume_unique=True)

    def join(name: str) -> np.ndarray:
        out = np.empty(total, dtype=getattr(core, name).dtype)
        out[chosen] = getattr(core, name)
        out[others] = getattr(rest, name)
        return out

    return UnitDiagnostics(*(join(name) for name in DIAGNOSTIC_NAMES))


@dataclass(frozen=True, eq=False)
class Extension:
    """Coefficients (n_units, r), their diagnostics, and residuals of held-out entries (at most 65536)."""

    coefficients: Array
    diagnostics: UnitDiagnostics
    held: Array


@dataclass(frozen=True, eq=False)
class Task:
    """A block to regress on a basis.

    Attributes
    ----------
    block : Block
    basis : float array (length, r)
        Orthonormal up to what was left out; rows that are not to be used have `usable` 0.
    usable : float array (length,)
    unit_names, index_names : int64 arrays
        Numbers of units and positions in the whole matrix (for the held-out entries).
    transposed : bool
        Whether units are columns of the matrix.
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
    start: Array | None = None

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

    def held(self, chunk: Chunk) -> Array:
        """Entries of a chunk that are held out (bool). Units with little to spare give none."""
        xp = array_namespace(chunk.value)
        unit = gather(asarray_on(self.unit_names, chunk.value), chunk.units)[:, None]
        place = gather(asarray_on(self.index_names, chunk.value), chunk.index)
        pair = (place, unit) if self.transposed else (unit, place)
        rich = xp.sum(xp.astype(chunk.seen, xp.int64), axis=1) >= 8 * self.basis.shape[1]
        return is_held_out(*pair, self.seed, self.holdout) & chunk.seen & rich[:, None]

    def design(self, chunk: Chunk) -> tuple[Array, Array, Array]:
        """D (u, m, r), the fit mask as floats and the held-out mask of a chunk."""
        xp = array_namespace(chunk.value)
        held = self.held(chunk) if self.holdout > 0 else xp.zeros_like(chunk.seen)
        fit = xp.astype(chunk.seen & ~held, chunk.value.dtype) * gather(self.usable, chunk.index)
        return take_rows(self.basis, chunk.index), fit, held

    def plan(self, units: np.ndarray) -> ChunkPlan:
        """Chunks for `units`; D and its weighted copy are what takes the memory."""
        per_entry = (2 * self.basis.shape[1] + 10) * 8
        return ChunkPlan.of(self.block.counts, units, per_entry, self.chunk_bytes or default_chunk_bytes(self.block.value))


_Look = Callable[[Task, Chunk, Array, Array], Array]  # coefficients (u, r) of a chunk, from its D and fit


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
    first = _look(task, units, _plain(task.schedule, use_start=True), report)
    if once:
        return first
    typical = _typical_share(first.diagnostics) if typical_share is None else typical_share
    extension = _mark(first, typical, task)
    looks = [_plain(replace(task.schedule, gamma=0.8))] + [_restart(task.schedule, k) for k in range(_RESTARTS)]
    for look in looks:
        extension = _look_again(task, units, extension, typical, look, _doubtful(extension.diagnostics, typical, task))
    for n_subsets in _subsets_needed(typical, task.basis.shape[1]):
        failed = np.flatnonzero(extension.diagnostics.status == TOO_FEW_INLIERS)
        extension = _look_again(task, units, extension, typical, _minimal_subsets(task.schedule, n_subsets), failed)
    return _mark_unusual(extension, typical, task)


def _look_again(
    task: Task, units: np.ndarray, extension: Extension, typical: float, look: _Look, chosen: np.ndarray
) -> Extension:
    """Look at some of the `units` again; when many fail the basis is wrong, not the columns, and looking is in vain."""
    if chosen.size == 0 or chosen.size > max(0.3 * len(units), 16):
        return extension
    return _merge(extension, _mark(_look(task, units[chosen], look, None), typical, task), chosen)


def measure(task: Task, units: np.ndarray, coefficients: Array) -> Extension:
    """Diagnostics of coefficients that were found otherwise (len(units), r)."""
    place = np.zeros(task.block.n_units, dtype=np.int64)
    place[units] = np.arange(len(units))

    def look(task: Task, chunk: Chunk, D: Array, fit: Array) -> Array:
        return take_rows(coefficients, asarray_on(place[to_numpy(chunk.units)], coefficients))

    extension = _look(task, units, look, None)
    return _mark(extension, _typical_share(extension.diagnostics), task)


# --------------------------------------------------------------------- one look at some units


def _plain(schedule: Schedule, use_start: bool = False) -> _Look:
    def look(task: Task, chunk: Chunk, D: Array, fit: Array) -> Array:
        start = take_rows(task.start, chunk.units) if use_start and task.start is not None else None
        return robust_regression(D, chunk.value, fit, schedule, start)

    return look


def _restart(schedule: Schedule, number: int) -> _Look:
    """Start from a random part of the entries, with the threshold at what about half of them agree with."""

    def look(task: Task, chunk: Chunk, D: Array, fit: Array) -> Array:
        xp = array_namespace(D)
        lane = xp.arange(fit.shape[1], dtype=xp.int64, device=device_of(D))
        start = random_subset_start(
            D, chunk.value, fit, uniform_at(chunk.units[:, None], lane[None, :], task.seed, _START_STREAM + number), 0.6
        )
        middle = inlier_quantile(chunk.value - fitted(D, start), fit, 0.6)
        zeta0 = xp.maximum(middle, xp.full_like(middle, schedule.floor))
        return robust_regression(D, chunk.value, fit, replace(schedule, gamma=0.7), start, zeta0)

    return look


def _subsets_needed(typical: float, rank: int) -> list[int]:
    """How many random subsets of `rank` entries, to have one without outliers; nothing if that is hopeless."""
    share = (0.75 * typical) ** rank  # units that got here have more outliers than most
    return [int(min(5 / share, _MOST_SUBSETS)) + 1] if share > 1 / _MOST_SUBSETS else []


def _minimal_subsets(schedule: Schedule, n_subsets: int) -> _Look:
    """Solve many random subsets of as many entries as unknowns, and go on from the one that most entries agree with."""

    def look(task: Task, chunk: Chunk, D: Array, fit: Array) -> Array:
        xp = array_namespace(D)
        r = D.shape[2]
        y = chunk.value
        lane = xp.arange(fit.shape[1], dtype=xp.int64, device=device_of(D))
        first = xp.arange(fit.shape[0], dtype=xp.int64, device=device_of(D))[:, None] * fit.shape[1]
        flat_D, flat_y = xp.reshape(D, (-1, r)), xp.reshape(y, (-1,))
        best = xp.zeros((D.shape[0], r), dtype=D.dtype, device=device_of(D))
        most = xp.zeros((D.shape[0],), dtype=D.dtype, device=device_of(D))
        for k in range(n_subsets):
            stream = _START_STREAM + _RESTARTS + k
            lot = uniform_at(chunk.units[:, None], lane[None, :], task.seed, stream) + 2 * (1 - xp.astype(fit, xp.float64))
            place = first + xp.argsort(lot, axis=1)[:, :r]
            chosen = xp.ones(place.shape, dtype=D.dtype, device=device_of(D))
            a = solve_normal(take_rows(flat_D, place), gather(flat_y, place), chosen)
            agree = xp.sum(xp.astype(xp.abs(y - fitted(D, a)) < 3 * schedule.floor, D.dtype) * fit, axis=1)
            better = agree > most
            most = xp.where(better, agree, most)
            best = xp.where(better[:, None], a, best)
        return robust_regression(D, y, fit, replace(schedule, zeta0=10 * schedule.floor, gamma=0.7), best)

    return look


def _look(task: Task, units: np.ndarray, look: _Look, report: Callable[[int], None] | None) -> Extension:
    xp = array_namespace(task.block.value)
    plan = task.plan(units)
    r = task.basis.shape[1]
    if len(units) == 0:
        nothing = np.zeros(0)
        whole = nothing.astype(np.int64)
        diagnostics = UnitDiagnostics(nothing.astype(np.int8), whole, whole, nothing, nothing, whole)
        return Extension(task.basis[:0, :], diagnostics, task.block.value[:0])
    coefficients, numbers, held_parts, n_held = [], [], [], 0
    for chunk_units in plan:
        chunk = load_chunk(task.block, chunk_units)
        D, fit, held = task.design(chunk)
        a = look(task, chunk, D, fit)
        coefficients.append(a)
        residual = chunk.value - fitted(D, a)
        numbers.append(_measure(D, chunk.value, fit, residual, task))
        if task.holdout > 0 and n_held < _HELD_SAMPLE:
            held_parts.append(residual[held])
            n_held += held_parts[-1].shape[0]
        if report is not None:
            report(len(chunk_units))
    back = plan.restore()
    table = to_numpy(xp.concat(numbers)).astype(np.float64)[back]
    status = np.where(table[:, 0] < r + 2, TOO_FEW_OBSERVATIONS, OK).astype(np.int8)
    status[(status == OK) & (table[:, 1] >= r + 2) & (table[:, 3] > 0)] = ILL_CONDITIONED
    diagnostics = UnitDiagnostics(
        status,
        table[:, 0].astype(np.int64),
        table[:, 1].astype(np.int64),
        table[:, 2],
        table[:, 4],
        table[:, 5].astype(np.int64),
    )
    held = xp.concat(held_parts) if held_parts else task.block.value[:0]
    return Extension(xp.take(xp.concat(coefficients), asarray_on(back, task.block.value), axis=0), diagnostics, held)


def _measure(D: Array, y: Array, fit: Array, residual: Array, task: Task) -> Array:
    """Per unit: observations, inliers, spread, whether ill-conditioned, standard error, inliers that are not 0 (u, 6)."""
    xp = array_namespace(D)
    r = D.shape[2]
    keep = xp.astype(xp.abs(residual) < task.schedule.floor, D.dtype) * fit
    n_in = xp.sum(keep, axis=1)
    kept = residual * keep
    spread = xp.sqrt(xp.sum(kept * kept, axis=1) / xp.maximum(n_in - r, xp.ones_like(n_in)))
    # In coordinates in which the whole basis is orthonormal: 1 / eigenvalue is the error that noise makes in the unit.
    white = task.whitener
    eigenvalues = xp.linalg.eigvalsh(white @ gram(D, keep) @ white.T)
    limit = float(xp.finfo(D.dtype).eps) ** 0.5
    ill = eigenvalues[:, 0] <= limit * eigenvalues[:, -1]
    safe = xp.maximum(eigenvalues, xp.full_like(eigenvalues, float(xp.finfo(D.dtype).smallest_normal) ** 0.5))  # no units
    error = spread * xp.sqrt(xp.sum(1.0 / safe, axis=1))
    size = min(task.schedule.floor, 0.1 * task.schedule.zeta0)  # half of a typical entry, where the noise is larger
    telling = xp.astype(xp.abs(y) > size, D.dtype) * keep
    return xp.stack([xp.sum(fit, axis=1), n_in, spread, xp.astype(ill, D.dtype), error, xp.sum(telling, axis=1)], axis=1)


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
    source = np.arange(len(old.diagnostics.status))
    source[units[better]] = len(source) + np.flatnonzero(better)

    def pick(name: str) -> np.ndarray:
        return np.concatenate([getattr(old.diagnostics, name), getattr(new.diagnostics, name)])[source]

    coefficients = xp.take(xp.concat([old.coefficients, new.coefficients]), asarray_on(source, old.coefficients), axis=0)
    return Extension(coefficients, UnitDiagnostics(*(pick(name) for name in DIAGNOSTIC_NAMES)), old.held)
