"""A second look at single rows and columns of the core.

Now and then the core's iteration leaves one row wrong while all others are exact. The others give the basis, so the row is
a robust regression like any column outside of the core.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, quantile_abs, take_rows, to_numpy
from ..backends.blocks import Block
from ..backends.kernels import Kernels
from ..backends.operators import product_svd
from ..backends.plain.grid import Grid
from ..backends.plain.passes import Column, FitPass
from ..backends.plain.regression import Schedule
from ..backends.random import Stream, generator
from ..extend.diagnostics import (
    CONTESTED,
    DIAGNOSTIC_NAMES,
    ILL_CONDITIONED,
    OK,
    TOO_FEW_INLIERS,
    TOO_FEW_OBSERVATIONS,
    UnitDiagnostics,
)
from ..extend.rivals import consensus_share, contestable, contested, rivals
from ..extend.tasks import Extension, Task, extend
from ..extend.typical import beatable, thin
from ..samples.cross import CoreView, CrossSamples
from .iteration import Core
from .problem import CoreData

_SOME = 32  # rows, and columns, in which rivals are counted
_ZEROS = 0.2  # share of entries about 0 from which they are told from the others


@dataclass(frozen=True, eq=False)
class CheckedCore:
    """A core with the diagnostics of its rows and columns, and weights that leave undetermined ones out.

    `agreeing` is the share of its entries that agree on another solution than their row and column has; None if outliers
    are not expected.
    """

    core: Core
    rows: UnitDiagnostics
    cols: UnitDiagnostics
    schedule: Schedule
    agreeing: float | None = None

    @property
    def usable_rows(self) -> Array:
        """1 for rows that are determined, 0 for others (|I|,)."""
        return self._usable(self.rows)

    @property
    def usable_cols(self) -> Array:
        """1 for columns that are determined, 0 for others (|J|,)."""
        return self._usable(self.cols)

    @property
    def n_undetermined(self) -> int:
        """Rows and columns that are not determined."""
        return len(self.rows.undetermined) + len(self.cols.undetermined)

    @property
    def only_contested(self) -> bool:
        """Whether those that are not determined have rivals, all of them."""
        status = np.concatenate([self.rows.status, self.cols.status])
        return bool(np.all((status == OK) | (status == CONTESTED)))

    def _usable(self, diagnostics: UnitDiagnostics) -> Array:
        return asarray_on((diagnostics.status == OK).astype(np.float64), self.core.s, self.core.s.dtype)


def check_core(
    samples: CrossSamples | CoreView,
    data: CoreData,
    core: Core,
    schedule: Schedule,
    holdout: float,
    seed: int,
    chunk_bytes: int | None,
    kernels: Kernels,
    mend: bool = True,
) -> CheckedCore:
    """Count the inliers of every row and column of the core and, to `mend` it, regress again those that have too few."""
    informative = _informative_grid(data, schedule, kernels, chunk_bytes)
    rows, cols, typical = _count(data, core, schedule)
    rows, cols = _believed(data, core, rows, cols, schedule, informative, kernels, chunk_bytes)
    bad_rows, bad_cols = (
        np.flatnonzero((d.status != OK) | (thin(d, typical, 2.5) & beatable(d, core.rank, schedule))) for d in (rows, cols)
    )
    n_bad, n_all = len(bad_rows) + len(bad_cols), len(rows.status) + len(cols.status)
    if not mend or n_bad == 0 or n_bad > 0.3 * n_all:
        return CheckedCore(core, rows, cols, schedule)

    def regress(block: Block, basis: Array, known: UnitDiagnostics, units: np.ndarray, transposed: bool) -> Extension:
        usable = asarray_on((known.status == OK).astype(np.float64), basis, basis.dtype)
        ids = (samples.cols, samples.rows) if transposed else (samples.rows, samples.cols)
        task = Task(block, basis, usable, *ids, transposed, holdout, seed, schedule, chunk_bytes, kernels)
        return extend(task, units, typical)

    if len(bad_rows):
        again = regress(data.block, core.V, cols, bad_rows, False)
        left, rows = _exchange(core.W * core.s, rows, again, bad_rows)
        core = _orthonormal(core, left, core.V)
    if len(bad_cols):
        again = regress(data.by_cols, core.W, rows, bad_cols, True)
        right, cols = _exchange(core.V * core.s, cols, again, bad_cols)
        core = _orthonormal(core, core.W, right)
    rows, cols = _believed(data, core, rows, cols, schedule, informative, kernels, chunk_bytes)
    return CheckedCore(core, rows, cols, schedule)


def without_contested(
    checked: CheckedCore, data: CoreData, holdout: float, seed: int, chunk_bytes: int | None, kernels: Kernels
) -> CheckedCore:
    """Mark rows and columns whose solution has a rival; how often there is one, some of them tell."""
    core, rng = checked.core, generator(seed, Stream.RIVALS)
    left, right = core.W * core.s, core.V * core.s
    sides = (
        (data.block, left, core.V, checked.usable_cols, checked.rows),
        (data.by_cols, right, core.W, checked.usable_rows, checked.cols),
    )

    def count(side: int, units: np.ndarray, share: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        block, factor, basis, usable, _ = sides[side]
        a = take_rows(factor, asarray_on(units, factor))
        return rivals(block, units, units, a, basis, usable, checked.schedule, kernels, chunk_bytes, share)

    some = [np.flatnonzero(side[4].status == OK) for side in sides]
    some = [np.sort(rng.choice(units, _SOME, replace=False)) if len(units) > _SOME else units for units in some]
    counted = [count(side, units) for side, units in enumerate(some)]
    share = consensus_share(*(np.concatenate(x) for x in zip(*counted, strict=True)))
    found = []
    for side, (*_, diagnostics) in enumerate(sides):
        typical = float(np.median(diagnostics.n_inliers / np.maximum(diagnostics.n_obs, 1)))
        units = contestable(diagnostics, share, holdout, typical)
        found.append(contested(diagnostics, units, *count(side, units, share), share) if len(units) else diagnostics)
    return replace(checked, rows=found[0], cols=found[1], agreeing=share)


def _informative_grid(data: CoreData, schedule: Schedule, kernels: Kernels, chunk_bytes: int | None) -> Grid | None:
    """The entries that are not about 0, if many are."""
    xp = array_namespace(data.weight)
    if schedule.floor > 0.1 * float(quantile_abs(data.sample[2])):  # small entries are everywhere, and cannot be told from 0
        return None
    informative = xp.abs(data.block.value) > schedule.floor
    if int(xp.count_nonzero(informative)) > (1 - _ZEROS) * data.block.n_obs:
        return None
    return kernels.make_grid(data.block, data.weight * xp.astype(informative, data.weight.dtype), chunk_bytes)


def _believed(
    data: CoreData,
    core: Core,
    rows: UnitDiagnostics,
    cols: UnitDiagnostics,
    schedule: Schedule,
    informative: Grid | None,
    kernels: Kernels,
    chunk_bytes: int | None,
) -> tuple[UnitDiagnostics, UnitDiagnostics]:
    """A row (column) of many zeros, which fit a solution of 0, is not determined if the rest of it does not fit, or if it
    was only seen where the others are 0."""
    if informative is None:
        return rows, cols
    left = core.W * core.s
    _, *inside = informative.inlying(left, core.V, schedule.floor)
    _, *there = informative.inlying(left, core.V, float("inf"))
    found = []
    sides = ((data.block, core.V, left), (data.by_cols, core.W, core.V * core.s))
    for d, n_in, n_all, side in zip((rows, cols), map(to_numpy, inside), map(to_numpy, there), sides, strict=True):
        enough = n_all >= core.rank + 2
        share = float(np.median(n_in[enough] / n_all[enough])) if enough.any() else 1.0
        doubt = enough & (n_in < 0.5 * share * n_all) & (d.status == OK)
        status = np.where(doubt, TOO_FEW_INLIERS, d.status)
        block, basis, factor = side
        fit_pass = FitPass(schedule, 0.0, "given", start=factor, max_steps=0)
        blind = to_numpy(kernels.regress_all(block, basis, fit_pass, chunk_bytes)[1])[:, Column.ILL] > 0
        status = np.where(blind & (status == OK), ILL_CONDITIONED, status).astype(np.int8)
        found.append(replace(d, status=status, n_informative=n_in.astype(np.int64)))
    return found[0], found[1]


def _exchange(factor: Array, known: UnitDiagnostics, again: Extension, numbers: np.ndarray) -> tuple[Array, UnitDiagnostics]:
    """Take the second look at some rows of a factor where it is as good; what remains undetermined becomes 0, so as not to
    spoil the others."""
    xp = array_namespace(factor)
    taken = again.diagnostics.n_inliers >= known.n_inliers[numbers]
    good = asarray_on((again.diagnostics.status == OK).astype(np.float64)[:, None], factor, factor.dtype)
    place = np.arange(factor.shape[0])
    place[numbers[taken]] = factor.shape[0] + np.flatnonzero(taken)
    factor = take_rows(xp.concat([factor, again.coefficients * good]), asarray_on(place, factor))

    def put(name: str) -> np.ndarray:
        values = getattr(known, name).copy()
        values[numbers[taken]] = getattr(again.diagnostics, name)[taken]
        return values

    return factor, UnitDiagnostics(*(put(name) for name in DIAGNOSTIC_NAMES))


def _count(data: CoreData, core: Core, schedule: Schedule) -> tuple[UnitDiagnostics, UnitDiagnostics, float]:
    left = core.W * core.s
    _, in_rows, in_cols = data.grid.inlying(left, core.V, schedule.floor)
    _, all_rows, all_cols = data.grid.inlying(left, core.V, float("inf"))
    host = [to_numpy(x).astype(np.int64) for x in (in_rows, all_rows, in_cols, all_cols)]
    typical = float(np.median(host[0] / np.maximum(host[1], 1)))
    m, n = data.grid.shape
    rows = _diagnose(host[0], host[1], core, n, typical)
    return rows, _diagnose(host[2], host[3], core, m, typical), typical


def _diagnose(n_in: np.ndarray, n_obs: np.ndarray, core: Core, length: int, typical: float) -> UnitDiagnostics:
    r = core.rank
    status = np.where(n_in < np.maximum(r + 2, 0.5 * typical * n_obs), TOO_FEW_INLIERS, OK)
    status = np.where(n_obs < r + 2, TOO_FEW_OBSERVATIONS, status).astype(np.int8)
    # with an orthonormal basis the Gram matrix is about n_in / length times the identity
    error = core.sigma * np.sqrt(r * length / np.maximum(n_in, 1))
    return UnitDiagnostics(status, n_obs, n_in, np.full(len(n_in), core.sigma), error, n_in)


def _orthonormal(core: Core, left: Array, right: Array) -> Core:
    """The core whose U is ``left @ right.T``, as an SVD."""
    W, s, V = product_svd(left, right)
    return replace(core, W=W, s=s, V=V)
