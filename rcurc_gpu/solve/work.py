"""The steps of the work on one shard, in this process or on a worker, with arrays of any kind.

Each step returns a part, which stays where it was made, and a few numbers, which go to the driver.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import is_numpy_array

from ..backends.arrays import (
    Array,
    array_namespace,
    asarray_on,
    bring,
    device_of,
    free_memory,
    is_out_of_memory,
    same_place,
    take_rows,
    to_numpy,
)
from ..backends.blocks import Block, blank_rows, join_units, others, places_of, put_rows
from ..backends.devices import place_for
from ..backends.kernels import RunContext, choose
from ..backends.plain.evidence import BasisFacts
from ..backends.plain.regression import Schedule
from ..backends.plain.verdicts import CONTESTABLE, DOUBTFUL, ILL_CONDITIONED, Column, Limits
from ..extend.diagnostics import DIAGNOSTIC_NAMES, OK, Summary, UnitDiagnostics, join_diagnostics
from ..extend.extension import later_passes, rest_on_one, to_look_at, wanted_bits, without_nan
from ..extend.tasks import Extension, Task, fits_of, measuring, run_pass
from ..extend.typical import Comparison, Tally, Typical, geometry, in_doubt
from ..options import Settings
from ..shards.on_disk import checksum
from ..shards.source import Shard
from .store import Arrays

_NOTHING = Tally(*np.zeros((2, 1), np.int64))  # units that are looked at again are not counted again


@dataclass(frozen=True, eq=False)
class Side:
    """What all shards of one side need; it is sent to every process once.

    Attributes
    ----------
    side : {"r", "c"}
        Columns of R, or rows of C.
    basis : float array (length, r)
        What units are regressed on: W for columns of R, V for rows of C.
    usable : float array (length,)
        0 for rows of the basis that are not to be used, else 1.
    index_ids : int64 array (length,)
        I or J.
    to_factor : float array (r,), optional
        Coefficients times this are rows of the factor: 1 for columns, 1/s for rows, since X = B diag(1/s) A^T.
    anchor : float array (length, r)
        The rows of the factor times this, transposed, are R or the transpose of C.
    chosen : int64 array (k,)
        The units that lie in the intersection.
    core : float array (k, r)
        Their rows of the factor.
    core_diagnostics : UnitDiagnostics
    schedule : Schedule
    settings : Settings
        Of the solve.
    device : str
        Where a worker computes.
    scale : float
        Observations are divided by this.
    no_threshold : float
        A threshold that no residual exceeds, if all observations are right; else 0.
    consensus : float, optional
        Share of the entries that agree on another solution than their unit has; None if outliers are not expected.
    mended : bool
        Whether units that are not typical are fitted again; given coefficients are taken as they are.
    stays : bool
        Whether what a device knows of the units may stay there: they are one shard, in the process of the result.
    """

    side: str
    basis: Array
    usable: Array
    index_ids: np.ndarray
    to_factor: Array | None
    anchor: Array
    chosen: np.ndarray
    core: Array
    core_diagnostics: UnitDiagnostics
    schedule: Schedule
    settings: Settings
    device: str
    scale: float
    no_threshold: float
    consensus: float | None
    mended: bool
    stays: bool = False

    @property
    def rank(self) -> int:
        """Columns of the basis."""
        return int(self.basis.shape[1])

    @property
    def units(self) -> str:
        """What the units are called."""
        return "columns" if self.side == "r" else "rows"

    @cached_property
    def comparison(self) -> Comparison:
        """What units are compared with, but for what is typical."""
        numbers = (*geometry(self.facts), self.settings.holdout, self.consensus)
        return Comparison(self.rank, self.schedule, *numbers, mended=self.mended)

    @cached_property
    def facts(self) -> BasisFacts:
        """What the basis is like."""
        return choose(self.settings.kernels, self.basis).at(self.rank).basis_facts(self.basis, self.usable)

    @cached_property
    def stamp(self) -> str:
        """Identifies the side: parts of sides with different stamps must not be mixed."""
        arrays = (self.basis, self.usable, self.anchor, self.core, *self.core_diagnostics.arrays().values())
        s = self.settings
        rest = (s.holdout, s.seed, self.scale, self.no_threshold, s.undetermined, self.consensus, self.mended)
        return f"{checksum([to_numpy(x) for x in arrays])} {self.side} {self.schedule!r} {rest!r}"

    def context(self) -> RunContext:
        """How a worker computes."""
        s, like = self.settings, place_for(self.device, self.basis)
        return RunContext(like, choose(s.kernels, like), s.seed, s.holdout, s.chunk_bytes)


class _Here:
    """A side and the units of one of its shards in this process."""

    def __init__(self, side: Side, shard: Shard, run: RunContext) -> None:
        self.side, self.shard, self.run = side, shard, run.at(side.rank)
        self.n_units = shard.stop - shard.start
        self.places = np.flatnonzero((side.chosen >= shard.start) & (side.chosen < shard.stop))  # in the core
        self.inside = side.chosen[self.places] - shard.start
        self.outside = others(self.inside, self.n_units)

    def task(self, block: Block, ids: np.ndarray | None = None) -> Task:
        """The regression of the units of a block: all of the shard, or those with these numbers in the matrix."""
        s, like = self.side, self.run.like
        basis, usable = bring(s.basis, like), bring(s.usable, like)
        unit_ids = self.ids if ids is None else ids
        task = Task(self.scaled(block), basis, usable, unit_ids, s.index_ids, s.side == "r", s.schedule, self.run)
        return replace(task, consensus=s.consensus, told=s.facts)

    def scaled(self, block: Block) -> Block:
        """The block in the scale of the solve."""
        return block if self.side.scale == 1 else block.scaled(1 / self.side.scale)

    @property
    def ids(self) -> np.ndarray:
        """Numbers of all units in the matrix."""
        return np.arange(self.shard.start, self.shard.stop)

    def core_rows(self, like: Array) -> Array:
        """Rows of the factor for the units that lie in the intersection, beside `like`."""
        core = self.side.core
        if len(self.places) < len(self.side.chosen):  # all of them are in the one shard of samples in memory
            core = take_rows(core, asarray_on(self.places, core))
        return bring(core, like)

    def factor_on_device(self, a: Array, again: np.ndarray, coefficients: np.ndarray) -> Array:
        """`factor` by CUDA kernels; the units `again` outside of the core have other coefficients, on the host."""
        from ..backends.cuda.blocks import join_rows

        places, scale = places_of(self.inside, self.n_units), self.side.to_factor
        places[self.outside[again]] = -1 - len(a) - np.arange(len(again))
        return join_rows(self.core_rows(a), a, places, None if scale is None else bring(scale, a), coefficients)

    def factor(self, a: Array) -> Array:
        """The rows of the factor for all units of the shard, from the coefficients of those outside of the core."""
        core, scale = self.core_rows(a), self.side.to_factor
        a = array_namespace(core).astype(a, core.dtype, copy=False)
        if scale is None or not is_numpy_array(a):
            return join_units(core, a, self.inside, self.n_units, None if scale is None else bring(scale, a))
        factor = join_units(core, a, self.inside, self.n_units)
        factor *= bring(scale, factor)  # a copy of everything would take as long as all that is judged here
        return put_rows(factor, self.inside, core)

    def put(self, factor: Array, units: np.ndarray, a: Array) -> Array:
        """The factor with new coefficients of some units, from where the factor is or from the host."""
        rows = array_namespace(a).astype(a, factor.dtype, copy=False)
        rows = rows if self.side.to_factor is None else rows * bring(self.side.to_factor, rows)
        return put_rows(factor, units, bring(rows, factor))

    def unit_table(self) -> tuple[Any, Array | None]:
        """A table on a device of what is known of the units, if it is to stay there; else None.

        With it, room for what a pass gives of units that are streamed. Where there is none beside their chunks, all that is
        known of them comes to the host; so does what a checkpoint keeps, for its files.
        """
        make, run, n = self.run.kernels.unit_table, self.run, len(self.outside)
        if make is None or self.shard.resident is None or not self.side.stays or run.store is not None or n == 0:
            return None, None
        try:
            known = make(run.like, self.n_units, self.inside, self.side.core_diagnostics.take(self.places).as_table())
            xp = array_namespace(run.like)
            room = None if self.is_there else xp.empty((n, len(Column)), dtype=run.like.dtype, device=device_of(run.like))
        except Exception as error:
            if self.is_there or not is_out_of_memory(error):
                raise
            free_memory(run.like)
            return None, None
        return known, room

    @property
    def is_there(self) -> bool:
        """Whether the observations are where the work is done."""
        return self.shard.resident is not None and same_place(self.shard.resident.value, self.run.like)


def first(shard: Shard, block: Block, side: Side, run: RunContext, given: Array | None = None) -> tuple[Arrays, Arrays]:
    """One pass over the units of a shard outside of the core, or a measurement of the coefficients that are `given`."""
    here = _Here(side, shard, run)
    task = here.task(block)
    report = run.progress.advance if given is None else None
    if given is None and side.no_threshold and len(here.outside):
        # no outliers: plain least squares, and thresholds only judge
        free = replace(task, schedule=replace(side.schedule, zeta0=side.no_threshold, floor=side.no_threshold))
        given, report = fits_of(free, here.outside, free.first, report)[0], None
    fit_pass = task.first if given is None else measuring(task, here.outside, given)
    known, room = here.unit_table()
    if known is not None:
        a, fits = fits_of(task, here.outside, fit_pass, report, room)
        return {"coefficients": a, "known": known}, {"medians": known.diagnose(fits, side.rank, side.schedule.floor)}
    extension = run_pass(task, here.outside, fit_pass, report)
    part = {"coefficients": extension.coefficients, "held": extension.held} | extension.diagnostics.arrays()
    return part, extension.tally.packed()


def doubts(shard: Shard, block: None, side: Side, run: RunContext, part: Arrays, typical: Typical) -> tuple[Arrays, Arrays]:
    """Count the units that are not typical; what was found of units in memory is kept for the next step."""
    limits = side.comparison.limits(typical)
    if "known" in part:
        n_doubtful, n_failed, _ = part["known"].judge(limits)
        return {}, {"doubts": np.asarray([n_doubtful, n_failed, shard.stop - shard.start - len(side.chosen)])}
    status, bits = run.at(side.rank).kernels.judge(_diagnostics(part).columns, limits)
    return {} if shard.resident is None else {"judged": (status, bits)}, {"doubts": in_doubt(bits)}


def second(shard: Shard, block: None, side: Side, run: RunContext, part: Arrays, typical: Typical) -> tuple[Arrays, Arrays]:
    """Fit units again that are not typical, and put all units of the shard together."""
    here = _Here(side, shard, run)
    a, limits = at_home(shard, part["coefficients"]), side.comparison.limits(typical)
    if "known" in part:
        return _second_on_device(here, a, part["known"], typical, limits)
    first = _diagnostics(part)
    status, bits = part.get("judged") or here.run.kernels.judge(first.columns, limits)
    chosen = to_look_at(bits, typical)
    factor = here.factor(a)
    inside = side.core_diagnostics.take(here.places)
    diagnostics = join_diagnostics(inside, replace(first, status=status), here.inside, here.n_units)
    held = part["held"]
    if chosen.size:
        units = here.outside[chosen]
        found = _again(here, Extension(a, first, _NOTHING, held).take(chosen), units, typical, limits)
        factor = here.put(factor, units, found.coefficients)
        diagnostics.write(units, found.diagnostics)
        held = held.copy()
        held[chosen] = found.held
    whole, outside = Summary.parted(diagnostics, here.inside, shard.start)
    n_held, n_consensus = held.sum(axis=0, dtype=np.int64).tolist()
    outside = replace(outside, n_held=n_held, n_consensus=n_consensus)
    factor = _finished(here, factor, diagnostics.undetermined)
    diagnostics = diagnostics.scaled(side.scale) if side.scale != 1 else diagnostics
    return {"factor": factor} | diagnostics.arrays(), whole.named("whole") | outside.named("outside")


def _second_on_device(here: _Here, a: Array, known: Any, typical: Typical, limits: Limits) -> tuple[Arrays, Arrays]:
    """`second`, where what is known of the units stays on a device: only those that are not typical come to the host."""
    side = here.side
    _, _, n_unknown = known.judge(limits)
    wanted, block = wanted_bits(typical, n_unknown), here.shard.resident
    fit, there = wanted & (CONTESTABLE | DOUBTFUL), here.is_there
    assert block is not None
    chosen, rows, n_obs, given, lone = known.picked(fit, wanted & ~fit, block.indptr, a if there else None)
    given = given if there else a[chosen, :]
    if len(lone):  # as `extension` marks them, for units of which nothing but their numbers comes to the host
        task, mark = here.task(block), here.run.kernels.mark_lone
        assert mark is not None
        if there:
            mark(task.block, known, lone, task.basis, a, task.usable, task.schedule.floor)
        else:
            places = to_numpy(lone)
            known.mark(places[rest_on_one(task, here.outside[places], a[places, :])], ILL_CONDITIONED)
    units = here.outside[chosen]
    if chosen.size:
        # few, and much is chosen and replaced among them: that costs nothing on the host
        diagnostics, held = UnitDiagnostics.from_table(rows), rows[:, len(DIAGNOSTIC_NAMES) :].astype(np.int32)
        first = Extension(given, diagnostics, _NOTHING, held)
        task = replace(here.task(block), seen=(units, n_obs))
        found = later_passes(task, units, first, typical, limits)
        given = found.coefficients
        sums = known.summary(units, np.concatenate([found.diagnostics.as_table(), found.held], axis=1))
    else:
        sums = known.summary()
    factor = here.factor_on_device(a, chosen, given) if there else here.put(here.factor(a), units, given)
    whole, outside = Summary.by_sums(sums, side.core_diagnostics.take(here.places))
    lost = np.zeros(0, np.int64)
    if whole.n_undetermined:
        lost = known.undetermined()
        firsts = lost + here.shard.start, lost[~np.isin(lost, here.inside)] + here.shard.start
        whole, outside = (
            replace(x, first=int(k[0]) if len(k) else -1) for x, k in zip((whole, outside), firsts, strict=True)
        )
    factor, known.lost = _finished(here, factor, lost), lost
    known.scale(side.scale)
    return {"factor": factor, "known": known}, whole.named("whole") | outside.named("outside")


def _again(here: _Here, first: Extension, units: np.ndarray, typical: Typical, limits: Limits) -> Extension:
    """`later_passes` over some units of a shard; if it is not in memory, their observations alone are read."""
    shard = here.shard
    if shard.resident is not None:
        task, places = here.task(shard.resident), units
    else:
        task, places = here.task(shard.some(units), shard.start + units), np.arange(len(units))
    return later_passes(task, places, first, typical, limits)


def _finished(here: _Here, factor: Array, lost: np.ndarray) -> Array:
    """The factor in the scale of the data, with what belongs there for units that are not determined (`lost`)."""
    side = here.side
    factor = factor * side.scale if side.side == "r" and side.scale != 1 else factor
    if side.settings.undetermined == "nan":
        return blank_rows(factor, lost)
    return _typical_rows(factor, lost, side) if side.settings.undetermined == "prior" else factor


def _typical_rows(factor: Array, lost: np.ndarray, side: Side) -> Array:
    """`factor` with the mean of the determined chosen units for those that are not determined; 0 if none is."""
    if len(lost) == 0:
        return factor
    xp = array_namespace(factor)
    core = bring(side.core, factor)
    good = without_nan(take_rows(core, asarray_on(np.flatnonzero(side.core_diagnostics.status == OK), factor)))
    mean = xp.mean(good, axis=0) if good.shape[0] else xp.zeros_like(factor[0, :])
    if side.side == "r" and side.scale != 1:
        mean = mean * side.scale
    return put_rows(factor, lost, xp.broadcast_to(mean, (len(lost), factor.shape[1])))


ON_DEVICE = (
    "coefficients",
    "factor",
    "covariance",
    "scale",
)  # arrays of a part that are where the observations are; others are on the host


def at_home(shard: Shard, array: Array) -> Array:
    """An array of a part (perhaps from a file), moved to where the observations are if these are in memory."""
    return array if shard.resident is None else bring(array, shard.resident.value)


def _diagnostics(part: Arrays) -> UnitDiagnostics:
    return UnitDiagnostics(*(np.asarray(part[name]) for name in DIAGNOSTIC_NAMES))
