"""Tasks of the extension: units of a block to be regressed on a basis, and fit passes over them.

In the paper's symbols, with U = W diag(s) V^T known: a column j of R outside of J is [X]_{I,j} = W a_j, a row i of C outside
of I is [X]_{i,J} = b_i V^T. Where Omega_R (Omega_C) observes it, a_j (b_i) is a robust regression with its own threshold
zeta, from zeta_0 by gamma down to the noise. The paper takes gradient steps eta_R, eta_C instead; least squares on the
inliers need about ten steps for machine precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import is_numpy_array

from ..backends.arrays import (
    Array,
    asarray_on,
    bring,
    default_chunk_bytes,
    same_place,
    take_rows,
    to_numpy,
)
from ..backends.blocks import Block, put_rows
from ..backends.chunks import ChunkPlan
from ..backends.linalg import small_svd
from ..backends.plain.evidence import BasisFacts
from ..backends.plain.passes import EntryIds, FitPass, entry_ids_on
from ..backends.plain.regression import Schedule
from ..backends.plain.verdicts import BINS
from ..backends.streaming import through
from .diagnostics import UnitDiagnostics
from .typical import Comparison, Tally, geometry

if TYPE_CHECKING:
    from ..backends.kernels import RunContext

Report = Callable[[int], None]  # called with how many units are done


@dataclass(frozen=True, eq=False)
class Extension:
    """Coefficients a_j or b_i (n_units, r), their diagnostics and tally, and entries held out.

    `held` (n_units, 2) has how many were, and how many of them agree. These are counted with every pass: held-out entries
    of a unit that is fitted again are compared with what it then is.
    """

    coefficients: Array
    diagnostics: UnitDiagnostics
    tally: Tally
    held: np.ndarray

    def take(self, units: np.ndarray) -> Extension:
        """Some units, with the numbers of all."""
        a = take_rows(self.coefficients, asarray_on(units, self.coefficients))
        return replace(self, coefficients=a, diagnostics=self.diagnostics.take(units), held=self.held[units])

    def put(self, units: np.ndarray, new: Extension) -> Extension:
        """The same with `new` coefficients and diagnostics of some units; its own arrays are overwritten."""
        self.diagnostics.write(units, new.diagnostics)
        self.held[units] = new.held
        return replace(self, coefficients=put_rows(self.coefficients, units, new.coefficients))

    def better_of(self, new: Extension, units: np.ndarray) -> Extension:
        """Take the `new` pass over some units where it found more inliers; its own arrays are overwritten."""
        # more inliers, not a smaller spread: a wrong solution with few inliers may fit these exactly
        better = new.diagnostics.n_inliers > self.diagnostics.n_inliers[units]
        if not better.any():
            return self
        new = replace(new, coefficients=bring(new.coefficients, self.coefficients))
        return self.put(units[better], new.take(np.flatnonzero(better)))


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
    told : BasisFacts, optional
        Of the basis, if they are known.
    seen : (int64 array (k,), int64 array (k,)), optional
        Some units, ascending, and how many observations they have, if the host knows that of these alone.
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
    told: BasisFacts | None = None
    seen: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def rank(self) -> int:
        """Columns of the basis."""
        return int(self.basis.shape[1])

    @cached_property
    def comparison(self) -> Comparison:
        """What units are compared with, but for what is typical."""
        return Comparison(self.rank, self.schedule, *geometry(self.facts), self.run.holdout, self.consensus)

    @cached_property
    def facts(self) -> BasisFacts:
        """What the basis is like."""
        return self.run.kernels.basis_facts(self.basis, self.usable) if self.told is None else self.told

    def counts_of(self, units: np.ndarray) -> np.ndarray:
        """Observations of some units, on the host; of those in `seen`, if it is there."""
        return self.block.counts_of(units) if self.seen is None else self.seen[1][np.searchsorted(self.seen[0], units)]

    @cached_property
    def whitener(self) -> Array:
        """The (r, r) matrix T that makes ``basis @ T.T`` orthonormal."""
        # of a symmetric matrix without negative eigenvalues the SVD is the eigendecomposition
        vectors, eigenvalues, _ = small_svd(self.facts.gram)
        # keeps a basis with fewer independent columns than r from dividing by 0
        info = np.finfo(eigenvalues.dtype)
        least = float(info.eps) * float(np.max(np.abs(eigenvalues))) + float(info.smallest_normal)
        white = (vectors / np.sqrt(np.maximum(eigenvalues, eigenvalues.dtype.type(least)))).T
        if is_numpy_array(self.basis):  # compiled code for this order of the matrix is there already
            return white
        return asarray_on(np.ascontiguousarray(white), self.basis)  # or each launch would copy it

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


def measuring(task: Task, units: np.ndarray, coefficients: Array) -> FitPass:
    """A pass that measures coefficients (len(units), r) from elsewhere, before units are compared with each other."""
    # a pass wants a row for every unit of the block, but reads only those of `units`
    place = np.zeros(task.block.n_units, dtype=np.int64)
    place[units] = np.arange(len(units))
    start = take_rows(coefficients, asarray_on(place, coefficients)) if len(units) else coefficients
    return task.given(start, max_steps=0)


def run_pass(task: Task, units: np.ndarray, fit_pass: FitPass, report: Report | None = None) -> Extension:
    """Make a pass over some units; its `start` has a row for every unit of the block.

    `report` is called with the number of units done.
    """
    found = _Found(task, len(units))
    if len(units) == 0:
        return found.extension(bring(task.basis[:0, :], task.block.value))
    plan = task.plan(units)
    kept = []
    for a, table in _chunks(task, plan, fit_pass, report):
        if plan.in_order and is_numpy_array(a):  # at once, while it is in the cache, and without a copy of everything
            found.add(a, table)
        else:
            kept.append((a, table))
    if kept:
        a, table = (plan.join(list(column)) for column in zip(*kept, strict=True))
        found.read(to_numpy(table))
        return found.extension(a)
    return found.extension()


def run_passes(task: Task, units: np.ndarray, passes: list[FitPass]) -> list[Extension]:
    """`run_pass` for several passes that have no start, in one launch; `Kernels.regress_together` has to be there.

    Their tally is one, of all of them.
    """
    plan, kernel, u = task.plan(units), task.run.kernels.regress_together, len(units)
    assert kernel is not None
    columns = zip(*_through(task, plan, kernel, lambda _: passes), strict=True)
    a, tables = (np.ascontiguousarray(to_numpy(plan.join(list(column))).swapaxes(0, 1)) for column in columns)
    found = _Found(task, len(passes) * u)
    found.read(tables.reshape(len(passes) * u, -1))
    whole, rows = found.extension(a), [slice(k * u, (k + 1) * u) for k in range(len(passes))]
    return [Extension(x, whole.diagnostics.take(k), whole.tally, whole.held[k]) for x, k in zip(a, rows, strict=True)]


def fits_of(
    task: Task, units: np.ndarray, fit_pass: FitPass, report: Report | None = None, into: Array | None = None
) -> tuple[Array, Array]:
    """Coefficients and table of such a pass over one or more units, where the observations are.

    Of observations that are streamed, the table stays on the device if there is room for it (u, 8): it is `into` then.
    """
    plan, regress = task.plan(units), task.run.kernels.regress
    if into is None:
        columns = zip(*_chunks(task, plan, fit_pass, report), strict=True)
        a, table = (plan.join(list(column)) for column in columns)
        return a, table
    started = _started(task, fit_pass)

    def kept(*given: Any) -> Array:
        *others, (this, begin) = given
        a, table = regress(*others, this)
        into[begin : begin + table.shape[0], :] = table
        return a

    found = _through(task, plan, kept, lambda chosen: (started(chosen), int(np.searchsorted(units, chosen[0]))), report)
    return plan.join([a for (a,) in found]), into


def _started(task: Task, fit_pass: FitPass) -> Callable[[np.ndarray], FitPass]:
    """From the units of a chunk to a pass that begins where they do."""

    def started(chosen: np.ndarray) -> FitPass:
        if fit_pass.start is None:
            return fit_pass
        return replace(fit_pass, start=bring(take_rows(fit_pass.start, asarray_on(chosen, fit_pass.start)), task.basis))

    return started


def _chunks(task: Task, plan: ChunkPlan, fit_pass: FitPass, report: Report | None) -> Iterator[tuple[Array, ...]]:
    """What a pass gives, chunk by chunk."""
    return _through(task, plan, task.run.kernels.regress, _started(task, fit_pass), report)


def _through(
    task: Task,
    plan: ChunkPlan,
    regress: Callable[..., Any],
    passes_of: Callable[[np.ndarray], Any],
    report: Report | None = None,
) -> Iterator[tuple[Array, ...]]:
    """What a kernel gives, chunk by chunk; `passes_of` says by the units of a chunk what is done with them."""
    white, all_ids = task.whitener, task.ids  # made here: inside `work` it would run on the stream of the first chunk

    def arguments(chosen: np.ndarray, unit_ids: Array | None) -> tuple[Any, ...]:
        ids = all_ids if unit_ids is None else replace(all_ids, unit=unit_ids)
        return task.basis, task.usable, white, ids, passes_of(chosen)

    place = (task.unit_ids, task.basis)
    there = task.run.kernels.name == "cuda"
    for chosen, found in through(task.block, list(plan), *place, regress, arguments, task.run.streams, there):
        yield found
        if report is not None:
            report(len(chosen))


class _Found:
    """What a pass finds, chunk by chunk."""

    def __init__(self, task: Task, n_units: int) -> None:
        self.task, self.n_units, self.n_done = task, n_units, 0
        self.diagnostics = UnitDiagnostics.blank(n_units)
        self.coefficients: np.ndarray | None = None
        self.counts, self.held = np.zeros((2, BINS + 1), np.int64), np.empty((n_units, 2), np.int32)

    def add(self, a: np.ndarray, table: np.ndarray) -> None:
        """The next units, on the host."""
        if len(a) == self.n_units:
            self.coefficients = a
        else:
            if self.coefficients is None:
                self.coefficients = np.empty((self.n_units, a.shape[1]), a.dtype)
            self.coefficients[self.n_done : self.n_done + len(a)] = a
        self.read(table)

    def read(self, table: np.ndarray) -> None:
        """The table of the next units, on the host."""
        task, rows = self.task, slice(self.n_done, self.n_done + len(table))
        out = tuple(x[rows] for x in self.diagnostics.columns)
        self.counts += task.run.kernels.diagnose(table, task.rank, task.schedule.floor, (*out, self.held[rows]))
        self.n_done = rows.stop

    def extension(self, a: Array | None = None) -> Extension:
        """All units; `a` are the coefficients, if they were not added."""
        a = self.coefficients if a is None else a
        return Extension(a, self.diagnostics, Tally(*self.counts), self.held)
