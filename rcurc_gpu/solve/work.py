"""What is done to one shard, wherever it is: functions of arrays on the host that give arrays on the host.

Each gives a part, which stays where it was made, and a few numbers, which go to whoever leads the solve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..backends.arrays import bring, device_scope, place_for, to_numpy
from ..backends.blocks import Block, join_units, others
from ..backends.kernels import choose
from ..backends.plain.regression import Schedule
from ..extend.diagnostics import OK, Summary, UnitDiagnostics, join_diagnostics
from ..extend.normal import normal_equations
from ..extend.rivals import contestable
from ..extend.sweeps import renewed, without_nan
from ..extend.tasks import Extension, Task, extend, first_pass, later_passes, pass_over_given
from ..extend.typical import Tally, Typical, doubtful, in_doubt, mark, mark_atypical, tally
from ..shards.on_disk import checksum
from ..shards.source import Shard

Arrays = dict[str, np.ndarray]
Work = Callable[..., tuple[Arrays, Arrays]]


@dataclass(frozen=True, eq=False)
class Side:
    """What all shards of one side need to know; it goes to every process once.

    Attributes
    ----------
    side : {"r", "c"}
        Columns of R, or rows of C.
    basis : float array (length, r)
        What units are regressed on.
    usable : float array (length,)
        0 for rows of the basis that are not to be used, else 1.
    index_ids : int64 array (length,)
        I or J.
    scale : float array (r,)
        Coefficients times this are rows of the factor.
    anchor : float array (length, r)
        What the rows of the factor are multiplied with to give R, or C transposed.
    chosen : int64 array (k,)
        The units that lie in the intersection.
    core : float array (k, r)
        Their rows of the factor.
    core_diagnostics : UnitDiagnostics
    schedule : Schedule
    holdout, seed, chunk_bytes, kernels, device :
        Of the solve.
    unit : float
        Observations are divided by this.
    no_threshold : float
        A threshold that no residual exceeds, if all observations are right; else 0.
    blank : bool
        Whether undetermined rows of the factor become NaN.
    agreeing : float, optional
        Share of the entries that agree on another solution than their unit has; None if outliers are not expected.
    """

    side: str
    basis: np.ndarray
    usable: np.ndarray
    index_ids: np.ndarray
    scale: np.ndarray
    anchor: np.ndarray
    chosen: np.ndarray
    core: np.ndarray
    core_diagnostics: UnitDiagnostics
    schedule: Schedule
    holdout: float
    seed: int
    chunk_bytes: int | None
    kernels: str
    device: str
    unit: float
    no_threshold: float
    blank: bool
    agreeing: float | None

    @property
    def rank(self) -> int:
        """Columns of the basis."""
        return self.basis.shape[1]

    @cached_property
    def order(self) -> np.ndarray:
        """The chosen units in ascending order."""
        return np.argsort(self.chosen, kind="stable")

    @property
    def units(self) -> str:
        """What the units are called."""
        return "columns" if self.side == "r" else "rows"

    @cached_property
    def stamp(self) -> str:
        """What tells one side from another: results for different ones must not be mixed."""
        arrays = (self.basis, self.usable, self.scale, self.anchor, self.core, *self.core_diagnostics.arrays().values())
        rest = (self.side, self.schedule, self.holdout, self.seed, self.unit, self.no_threshold, self.blank, self.agreeing)
        return f"{checksum(list(arrays))} {rest!r}"


class _Place:
    """A side and some of its units in this process."""

    def __init__(self, side: Side, start: int, stop: int) -> None:
        self.side, self.start, self.n_units = side, start, stop - start
        self.like = place_for(side.device, side.basis)
        within = (side.chosen[side.order] >= start) & (side.chosen[side.order] < stop)
        self.places = side.order[within]  # in the core
        self.inside = side.chosen[self.places] - start
        self.outside = others(self.inside, self.n_units)

    def task(self, block: Block, ids: np.ndarray) -> Task:
        """The regression of the units of a block, which have these numbers in the matrix."""
        s = self.side
        block = block if s.unit == 1 else block.scaled(1 / s.unit)
        basis, usable = bring(s.basis, self.like), bring(s.usable, self.like)
        rest = (s.holdout, s.seed, s.schedule, s.chunk_bytes, self.kernels)
        return Task(block, basis, usable, ids, s.index_ids, s.side == "r", *rest, agreeing=s.agreeing)

    @property
    def kernels(self) -> Any:
        """What does the work."""
        return choose(self.side.kernels, self.like).at(self.side.rank)

    def ids(self) -> np.ndarray:
        """Numbers of all units in the matrix."""
        return np.arange(self.start, self.start + self.n_units)


def first(shard: Shard, block: Block, side: Side) -> tuple[Arrays, Arrays]:
    """Regress the units of a shard that lie outside of the core, once."""
    here = _Place(side, shard.start, shard.stop)
    with device_scope(here.like):
        task = here.task(block, here.ids())
        if side.no_threshold:  # everything is right: nothing is cut off, and thresholds only judge
            free = replace(task, schedule=replace(side.schedule, zeta0=side.no_threshold, floor=side.no_threshold))
            given = extend(free, here.outside, once=True).coefficients
            extension = pass_over_given(task, here.outside, given)
        else:
            extension = first_pass(task, here.outside)
    counts = tally(extension.diagnostics, side.schedule.floor)
    return _arrays(extension), {"shares": _packed(counts.shares), "spreads": _packed(counts.spreads)}


def doubts(shard: Shard, block: None, side: Side, part: Arrays, typical: Typical) -> tuple[Arrays, Arrays]:
    """Count the units that are not as usual."""
    return {}, {"doubts": in_doubt(_extension(part).diagnostics, typical, side.rank, side.schedule)}


def second(
    shard: Shard, block: Block | None, side: Side, part: Arrays, typical: Typical, last: bool
) -> tuple[Arrays, Arrays]:
    """Look again at units that are not as usual, and put all units of the shard together.

    With all observations (`block`), also give normal equations of the positions; `last` if nothing follows.
    """
    here = _Place(side, shard.start, shard.stop)
    extension = _extension(part)
    with device_scope(here.like):
        extension = _passed_again(shard, here, extension, typical)
        done = _whole(here, extension.coefficients * side.scale, extension.diagnostics)
        if block is not None:
            done |= _normal(here, block, done)
    outside = Summary.of(extension.diagnostics, extension.n_held, extension.n_consensus)
    return _finished(here, done, last), _summaries(here, done, outside)


def again(shard: Shard, block: Block, side: Side, part: Arrays, last: bool) -> tuple[Arrays, Arrays]:
    """Regress all units once more, on a basis that changed a little; normal equations too if it is not the `last` time."""
    here = _Place(side, shard.start, shard.stop)
    old, diagnostics = part["factor"], _diagnostics(part)
    with device_scope(here.like):
        task = replace(here.task(block, here.ids()), start=without_nan(old))
        extension = extend(task, here.outside, once=True)
        status = diagnostics.status[here.outside]
        new = renewed(extension.coefficients, extension.diagnostics.status == OK, old[here.outside], status)
        factor = join_units(side.core[here.places], new, here.inside, here.n_units)
        done = {"factor": factor} | diagnostics.arrays()
        if not last:
            done |= _normal(here, block, done)
    outside = Summary.of(extension.diagnostics, extension.n_held, extension.n_consensus)
    return _finished(here, done, last), _summaries(here, done, outside)


def _passed_again(shard: Shard, here: _Place, found: Extension, typical: Typical) -> Extension:
    side, rank = here.side, here.side.rank
    marked = mark(found.diagnostics, typical, rank)
    if side.no_threshold:
        return replace(found, diagnostics=marked)
    whole = mark_atypical(marked, typical, rank, side.schedule)
    chosen = doubtful(marked, typical, rank, side.schedule) if typical.again or typical.subsets else np.arange(0)
    if side.agreeing is not None:
        chosen = np.union1d(chosen, contestable(whole, side.agreeing, side.holdout, typical.share))
    if chosen.size == 0:
        return replace(found, diagnostics=whole)
    # only the observations of these are needed
    units = here.outside[chosen]
    task = here.task(shard.some(units), here.start + units)
    few = replace(found, coefficients=found.coefficients[chosen], diagnostics=found.diagnostics.take(chosen))
    few = later_passes(task, np.arange(len(units)), few, typical)
    coefficients = found.coefficients.copy()
    coefficients[chosen] = few.coefficients
    for name, array in few.diagnostics.arrays().items():
        getattr(whole, name)[chosen] = array
    return replace(found, coefficients=coefficients, diagnostics=whole)


def _whole(here: _Place, rows_outside: np.ndarray, outside: UnitDiagnostics) -> Arrays:
    """Rows of the factor and diagnostics of all units of a shard."""
    side = here.side
    factor = join_units(side.core[here.places], rows_outside.astype(side.core.dtype), here.inside, here.n_units)
    inside = side.core_diagnostics.take(here.places)
    return {"factor": factor} | join_diagnostics(inside, outside, here.inside, here.n_units).arrays()


def _normal(here: _Place, block: Block, done: Arrays) -> Arrays:
    """The share that a shard has in the normal equations of the chosen rows (columns)."""
    side = here.side
    block = block if side.unit == 1 else block.scaled(1 / side.unit)
    basis, anchor = (bring(without_nan(x), here.like) for x in (done["factor"], side.anchor))
    usable = bring((done["status"] == OK).astype(basis.dtype), here.like)
    # a chosen row has columns as its positions, so what is transposed here is not there
    normal = normal_equations(
        block.transpose(),
        basis,
        usable,
        anchor,
        side.index_ids,
        here.ids(),
        side.side != "r",
        side.seed,
        side.holdout,
        side.schedule.floor,
        here.kernels,
        side.chunk_bytes,
    )
    return {"sums": normal.sums, "basis": normal.basis}


def _finished(here: _Place, done: Arrays, last: bool) -> Arrays:
    """The part, in the units of the data and with NaN where they are wanted if nothing follows."""
    if not last:
        return done
    side, factor = here.side, done["factor"]
    factor = factor * side.unit if side.side == "r" and side.unit != 1 else factor.copy()
    if side.blank:
        factor[done["status"] != OK] = np.nan
    return {"factor": factor} | _diagnostics(done).scaled(side.unit).arrays()


def _summaries(here: _Place, done: Arrays, outside: Summary) -> Arrays:
    """Of all units, and of those outside of the core."""
    whole = Summary.of(_diagnostics(done), start=here.start)
    return {"whole": numbers_of(whole), "outside": numbers_of(outside)}


def tally_of(small: Arrays) -> Tally:
    """The counts that `first` gave."""
    return Tally(_unpacked(small["shares"]), _unpacked(small["spreads"]))


def _packed(counts: np.ndarray) -> np.ndarray:
    """How many counts there are, where they are not 0, and what they are there: most are 0, and these travel."""
    places = np.flatnonzero(counts)
    return np.concatenate([[len(counts)], places, counts[places]])


def _unpacked(packed: np.ndarray) -> np.ndarray:
    counts = np.zeros(packed[0], dtype=np.int64)
    places, numbers = np.split(packed[1:], 2)
    counts[places] = numbers
    return counts


def numbers_of(summary: Summary) -> np.ndarray:
    """A summary as numbers (11,)."""
    first, *rest = asdict(summary).values()
    return np.asarray([*first, *rest], dtype=np.float64)


def summary_of(numbers: np.ndarray) -> Summary:
    """The summary that `numbers_of` gave as numbers."""
    *by_status, first, n_obs, n_inliers, square, n_held, n_consensus = numbers.tolist()
    return Summary(tuple(map(int, by_status)), int(first), int(n_obs), int(n_inliers), square, int(n_held), int(n_consensus))


def _arrays(extension: Extension) -> Arrays:
    held = np.asarray([extension.n_held, extension.n_consensus])
    return {"coefficients": to_numpy(extension.coefficients), "held": held} | extension.diagnostics.arrays()


def _extension(part: Arrays) -> Extension:
    return Extension(part["coefficients"], _diagnostics(part), int(part["held"][0]), int(part["held"][1]))


def _diagnostics(part: Arrays) -> UnitDiagnostics:
    return UnitDiagnostics(*(np.array(part[name]) for name in UnitDiagnostics.__dataclass_fields__))
