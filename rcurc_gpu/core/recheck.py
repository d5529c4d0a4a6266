"""A second check of single rows and columns of the core.

Now and then the core's iteration leaves one row of U wrong while all others are exact. The others give the basis V, so the
row is a robust regression like any row outside of I; likewise a column, with the basis W.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, gather, take_rows, to_numpy
from ..backends.blocks import Block
from ..backends.kernels import RunContext
from ..backends.operators import product_svd
from ..backends.plain.grid import Grid
from ..backends.plain.passes import Column, FitPass
from ..backends.plain.regression import Schedule
from ..backends.plain.verdicts import beatable, has_noise, thin
from ..backends.random import Stream, generator
from ..extend.diagnostics import ILL_CONDITIONED, OK, TOO_FEW_INLIERS, TOO_FEW_OBSERVATIONS, UnitDiagnostics
from ..extend.extension import extend
from ..extend.rivals import consensus_share, contestable, contested, rivals
from ..extend.tasks import Extension, Task
from ..samples.view import CoreView
from .iteration import Checked, Core
from .problem import CoreProblem

_SOME = 32  # rows, and columns, in which rivals are counted: enough to tell a share of 2 % from none, and cheap
# Share of entries about 0 from which they are told from the others. Below it they are too few for a wrong row to pass
# by them, and a second grid costs memory.
_ZEROS = 0.2


def recheck(
    view: CoreView, data: CoreProblem, core: Core, schedule: Schedule, run: RunContext, mend: bool = True
) -> Checked:
    """Count the inliers of every row and column of the core; if `mend`, regress those again that have too few."""
    informative = _informative_grid(data, schedule, run)
    rows, cols, typical = _count(data, core, schedule)
    rows, cols = _believed(data, (core, rows, cols), schedule, informative, run)
    # 2.5 standard deviations: 0.6 % of the good ones are regressed again in vain, which is cheap
    noisy = has_noise(schedule.floor, schedule.zeta0)
    bad_rows, bad_cols = (
        np.flatnonzero(
            (d.status != OK) | (thin(d.n_obs, d.n_inliers, typical, 2.5) & beatable(d.n_obs, d.n_inliers, core.rank, noisy))
        )
        for d in (rows, cols)
    )
    n_bad, n_all = len(bad_rows) + len(bad_cols), len(rows.status) + len(cols.status)
    # where many are bad (0.3 as in `typical`), the basis is bad and cannot mend them
    if not mend or n_bad == 0 or n_bad > 0.3 * n_all:
        return core, *_by_different(view, data, (core, rows, cols), schedule, run)

    def regress(block: Block, basis: Array, known: UnitDiagnostics, units: np.ndarray, transposed: bool) -> Extension:
        ids = view.held_ids[::-1] if transposed else view.held_ids
        return extend(Task(block, basis, known.weights(basis), *ids, transposed, schedule, run), units, typical)

    # Rows first: the columns are then regressed on the mended rows.
    if len(bad_rows):
        again = regress(data.block, core.V, cols, bad_rows, False)
        left, rows = _exchange(core.left, rows, again, bad_rows)
        core = _orthonormal(core, left, core.V)
    if len(bad_cols):
        again = regress(data.by_cols, core.W, rows, bad_cols, True)
        right, cols = _exchange(core.right, cols, again, bad_cols)
        core = _orthonormal(core, core.W, right)
    counted = _count(data, core, schedule)
    rows, cols = _recounted(rows, counted[0]), _recounted(cols, counted[1])
    rows, cols = _believed(data, (core, rows, cols), schedule, informative, run)
    return core, *_by_different(view, data, (core, rows, cols), schedule, run)


def _recounted(known: UnitDiagnostics, counted: UnitDiagnostics) -> UnitDiagnostics:
    """Rows that agreed with columns as they were before these were mended, and now do not, are marked."""
    return replace(known, status=np.where(known.status == OK, counted.status, known.status).astype(np.int8))


def _by_different(
    view: CoreView, data: CoreProblem, checked: Checked, schedule: Schedule, run: RunContext
) -> tuple[UnitDiagnostics, UnitDiagnostics]:
    """Mark rows (columns) that agree with too few determined columns (rows), of which copies of each other count once.

    What is not determined may agree with a wrong row only because it was fitted to it.
    """
    core, *found = checked
    xp = array_namespace(data.weight)
    first = [ids == chosen for ids, chosen in zip(view.held_ids, (view.rows, view.cols), strict=True)]
    places = data.block.index, data.block.unit_of_entry
    sides, side = [0, 1], 0
    while sides:  # until neither side has lost any that the other one counted on
        side = sides.pop(0)
        d, counting = found[side], first[1 - side] & (found[1 - side].status == OK)
        if counting.all():
            continue
        place = places[0] if side == 0 else places[1]()
        kept = xp.astype(gather(asarray_on(counting, data.weight), place), data.weight.dtype)
        grid = run.kernels.make_grid(data.block, data.weight * kept, run.chunk_bytes)
        n_in = to_numpy(grid.inlying(core.left, core.V, schedule.floor)[1 + side])
        lost = (n_in < core.rank + 2) & (d.status == OK)
        if lost.any():
            found[side] = replace(d, status=np.where(lost, TOO_FEW_INLIERS, d.status))
            sides = [1 - side]
    return found[0], found[1]


def without_contested(data: CoreProblem, checked: Checked, schedule: Schedule, run: RunContext) -> tuple[Checked, float]:
    """Mark rows and columns whose solution has a rival; a sample of them tells how frequent rivals are.

    Returns
    -------
    checked
    consensus : float
        Share of the entries that agree on another solution than their row and column has.
    """
    core, rows, cols = checked
    # First a sample, for how frequent rivals are; then all units in which a rival of that frequency might have won.
    rng = generator(run.seed, Stream.RIVALS)

    def side(block: Block, basis: Array, known: UnitDiagnostics) -> Task:
        ids = (np.arange(block.n_units), np.arange(block.length))
        return Task(block, basis, known.weights(basis), *ids, False, schedule, run)

    of_rows, diagnostics = side(data.block, core.V, cols), (rows, cols)

    def count(k: int, units: np.ndarray, share: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        if k == 0:
            return rivals(of_rows, units, core.left, share, rows=units)
        block, places = data.block.units_across(units)
        numbers = units if len(units) == block.n_units else np.arange(block.n_units)
        return rivals(replace(side(block, core.W, rows), unit_ids=numbers), places, core.right, share, rows=units)

    some = [np.flatnonzero(d.status == OK) for d in diagnostics]
    some = [np.sort(rng.choice(units, _SOME, replace=False)) if len(units) > _SOME else units for units in some]
    counted = [count(k, units) for k, units in enumerate(some)]
    share = consensus_share(*(np.concatenate(x) for x in zip(*counted, strict=True)))
    found = []
    for k, d in enumerate(diagnostics):
        typical = float(np.median(d.n_inliers / np.maximum(d.n_obs, 1)))
        units = contestable(d, share, run.holdout, typical)
        found.append(contested(d, units, *count(k, units, share), share) if len(units) else d)
    return (core, found[0], found[1]), share


def _informative_grid(data: CoreProblem, schedule: Schedule, run: RunContext) -> Grid | None:
    """The entries that are not about 0, if many are."""
    xp = array_namespace(data.weight)
    # with noise above a tenth of the median entry, small entries are everywhere and cannot be told from 0
    if schedule.floor > 0.1 * data.sizes.median:
        return None
    if data.kernels.n_larger(data.block.value, schedule.floor) > (1 - _ZEROS) * data.block.n_obs:
        return None
    informative = xp.abs(data.block.value) > schedule.floor
    return run.kernels.make_grid(data.block, data.weight * xp.astype(informative, data.weight.dtype), run.chunk_bytes)


def _believed(
    data: CoreProblem, checked: Checked, schedule: Schedule, informative: Grid | None, run: RunContext
) -> tuple[UnitDiagnostics, UnitDiagnostics]:
    """Mark rows (columns) of many zeros, which fit a solution of 0, if the rest of them does not fit.

    Those are marked, too, that were only observed where all others are 0.
    """
    core, rows, cols = checked
    if informative is None:
        return rows, cols
    left = core.left
    _, *inside = informative.inlying(left, core.V, schedule.floor)
    there = informative.counts(left, core.V)
    found = []
    sides = ((data.block, core.V, left), (data.by_cols, core.W, core.right))
    for d, n_in, n_all, side in zip((rows, cols), map(to_numpy, inside), map(to_numpy, there), sides, strict=True):
        enough = n_all >= core.rank + 2
        share = float(np.median(n_in[enough] / n_all[enough])) if enough.any() else 1.0
        doubt = enough & (n_in < 0.5 * share * n_all) & (d.status == OK)  # half of what is typical, as in `_diagnose`
        status = np.where(doubt, TOO_FEW_INLIERS, d.status)
        block, basis, factor = side
        fit_pass = FitPass(schedule, 0.0, "given", start=factor, max_steps=0)
        blind = to_numpy(run.kernels.regress_all(block, basis, fit_pass, run.chunk_bytes)[1])[:, Column.ILL] > 0
        status = np.where(blind & (status == OK), ILL_CONDITIONED, status).astype(np.int8)
        found.append(replace(d, status=status, n_informative=n_in.astype(np.int64)))
    return found[0], found[1]


def _exchange(factor: Array, known: UnitDiagnostics, again: Extension, numbers: np.ndarray) -> tuple[Array, UnitDiagnostics]:
    """Take the second fit of some rows of a factor where it has as many inliers.

    Rows that remain undetermined become 0, so that they do not spoil the others.
    """
    xp = array_namespace(factor)
    taken = again.diagnostics.n_inliers >= known.n_inliers[numbers]
    good = asarray_on((again.diagnostics.status == OK).astype(np.float64)[:, None], factor, factor.dtype)
    place = np.arange(factor.shape[0])
    place[numbers[taken]] = factor.shape[0] + np.flatnonzero(taken)
    factor = take_rows(xp.concat([factor, again.coefficients * good]), asarray_on(place, factor))
    return factor, known.put(numbers[taken], again.diagnostics.take(taken))


def _count(data: CoreProblem, core: Core, schedule: Schedule) -> tuple[UnitDiagnostics, UnitDiagnostics, float]:
    told = data.tally(core.left, core.V, schedule.floor)
    typical = float(np.median(told.in_rows / np.maximum(told.of_rows, 1)))
    m, n = data.grid.shape
    rows = _diagnose(told.in_rows, told.of_rows, core, n, typical)
    return rows, _diagnose(told.in_cols, told.of_cols, core, m, typical), typical


def _diagnose(n_in: np.ndarray, n_obs: np.ndarray, core: Core, length: int, typical: float) -> UnitDiagnostics:
    r = core.rank
    # r + 1 entries always nearly agree, so r + 2 are the least that says anything
    status = np.where(n_in < np.maximum(r + 2, 0.5 * typical * n_obs), TOO_FEW_INLIERS, OK)
    status = np.where(n_obs < r + 2, TOO_FEW_OBSERVATIONS, status).astype(np.int8)
    # with an orthonormal basis the Gram matrix is about n_in / length times the identity
    error = core.sigma * np.sqrt(r * length / np.maximum(n_in, 1))
    return UnitDiagnostics(status, n_obs, n_in, np.full(len(n_in), core.sigma), error, n_in)


def _orthonormal(core: Core, left: Array, right: Array) -> Core:
    """The core whose U is ``left @ right.T``, as an SVD."""
    W, s, V = product_svd(left, right)
    return replace(core, W=W, s=s, V=V)
