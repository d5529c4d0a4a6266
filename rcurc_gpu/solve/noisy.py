"""Data with noise: how every row and column follows from the noise model (`noise_fit`), in one pass over all shards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, to_numpy, triangle
from ..backends.blocks import Block, blank_rows, join_units, others, pieces
from ..backends.devices import place_for
from ..backends.kernels import RunContext, choose
from ..backends.plain.posterior import Noise, Positions, positions_of
from ..extend.diagnostics import Summary, join_diagnostics
from ..judge.identified import LOOSE, ModelTies, untold
from ..judge.ties import FREE
from ..noise.estimate import Estimate, UnitModel, Units, diagnosed, expected_square, factor_rows, typical_where_lost
from ..noise.left_out import SHRINKING
from ..noise.model import Group, NoiseFacts, NoiseModel
from ..options import Settings
from ..progress import Progress
from ..samples.view import CoreView
from ..shards.on_disk import checksum
from ..shards.source import Shard
from .jobs import Engine, Job, Stage
from .solved import Extended
from .store import Arrays

_MOST_EXCESS = 2.0  # residuals of entries left out over what is expected of them, as far as `prediction_error` believes them
# The same, from which residuals are more than noise: 0.9 to 1.3 with noise of most kinds, 1.7 to 6 of functions of a matrix
# of low rank, and of singular values that decay, which a rank cuts off.
_NOT_NOISE = 1.5
# Observations whose units are estimated at a time: what is known of these (300 bytes of each, in double precision) is soon
# made smaller for keeps, instead of being copied as a whole, from memory and back, five times.
_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False)
class NoisySide:
    """What all shards of one side need; it is sent to every process once.

    Attributes
    ----------
    side : {"r", "c"}
        Columns of R, or rows of C.
    at : Positions
        Rows of I, or columns of J.
    index_ids, chosen : int64 arrays
        I and J, or J and I.
    core : Group
        The chosen units.
    precision : float array (K,)
        Of the prior.
    known, known_ids : float array (., K), int64 array
        Where estimates of some other units begin, and their numbers, ascending.
    noise : Noise
    centre : float
    settings : Settings
    device : str
    scale : float
        Observations are divided by this.
    sigma : float or None
        What the user says of observations with this `noise`, if anything.
    """

    side: str
    at: Positions
    index_ids: np.ndarray
    chosen: np.ndarray
    core: Group
    core_table: np.ndarray
    precision: np.ndarray
    known: np.ndarray
    known_ids: np.ndarray
    noise: Noise
    centre: float
    settings: Settings
    device: str
    scale: float
    sigma: float | None

    @property
    def units(self) -> str:
        """What the units are called."""
        return "columns" if self.side == "r" else "rows"

    @property
    def unit_model(self) -> UnitModel:
        """What the units of a shard are estimated from."""
        known = (self.known, self.known_ids)
        return UnitModel(self.at, self.index_ids, self.side == "r", self.precision, self.noise, *known, self.sigma)

    @cached_property
    def stamp(self) -> str:
        """Identifies the side: parts of sides with different stamps must not be mixed."""
        arrays = (
            self.at.x,
            self.at.shift,
            self.at.covariance,
            self.core.mean,
            self.core.covariance,
            self.precision,
            self.known,
        )
        rest = (self.noise, self.centre, self.scale, self.settings.undetermined, self.settings.intervals, self.sigma)
        return f"{checksum(list(arrays))} {self.side} {rest!r}"

    def context(self) -> RunContext:
        """How a worker computes."""
        s, like = self.settings, place_for(self.device, self.at.x)
        return RunContext(like, choose(s.kernels, like), s.seed, s.holdout, s.chunk_bytes)


def sides_of(model: NoiseModel, view: CoreView, settings: Settings, device: str, scale: float) -> list[NoisySide]:
    """Columns and rows."""
    row_group = _believed(model.rows, model.row_table, model.row_precision)
    col_group = _believed(model.cols, model.col_table, model.col_precision)
    rows, cols = (positions_of(g.mean, g.covariance, g.scale, model.centre, model.offsets) for g in (row_group, col_group))
    sigma = None if model.sigma is None else model.sigma.fine
    more = (model.noise, model.centre, replace(settings, callback=None), device, scale, sigma)
    return [
        NoisySide(
            "r",
            rows,
            view.rows,
            view.cols,
            col_group,
            model.col_table,
            model.col_precision,
            model.more_cols,
            model.more_col_ids,
            *more,
        ),
        NoisySide(
            "c",
            cols,
            view.cols,
            view.rows,
            row_group,
            model.row_table,
            model.row_precision,
            model.more_rows,
            model.more_row_ids,
            *more,
        ),
    ]


def _believed(chosen: Group, table: np.ndarray, precision: np.ndarray) -> Group:
    """The chosen rows (columns); typical ones stand for those that took most of their observations for outliers.

    What such a row says of itself may be of the wrong ones, and it says it with certainty: 4 of 9 observations agreed with
    three times its size, and nothing said so.
    """
    mean, covariance = typical_where_lost((chosen.mean.copy(), chosen.covariance.copy()), table, precision)
    return replace(chosen, mean=mean, covariance=covariance)


def estimated(shard: Shard, block: Block, side: NoisySide, run: RunContext) -> tuple[Arrays, Arrays]:
    """Mean and covariance of all units of a shard, given the model."""
    block = (block if side.scale == 1 else block.scaled(1 / side.scale)).to(run.like)
    like = asarray_on(np.empty(0), block.value)  # of double precision: normal equations of noisy data in single lose much
    units = Units(side.unit_model, block, like, run, shard.start)
    done = []
    for low, high in pairwise(pieces(block.counts, _AT_ONCE)):
        places = np.flatnonzero((side.chosen >= shard.start + low) & (side.chosen < shard.start + high))
        found, table = units.estimated(low + others(side.chosen[places] - shard.start - low, high - low))
        done.append(
            _with_chosen(side, places, range(shard.start + low, shard.start + high), found, table, str(block.value.dtype))
        )
    parts, sums, wholes, rests = zip(*done, strict=True)
    part = {name: _joined([x[name] for x in parts]) for name in parts[0]}
    numbers = {name: sum(x[name] for x in sums) for name in sums[0]}
    for name, summaries in (("whole", wholes), ("outside", rests)):
        numbers |= sum(summaries[1:], summaries[0]).named(name)
    return part, numbers


def _with_chosen(
    side: NoisySide, places: np.ndarray, ids: range, found: Estimate, table: np.ndarray, dtype: str
) -> tuple[Arrays, Arrays, Summary, Summary]:
    """What is kept of units of a block, sums over them, and summaries of all of them and of those that are not chosen.

    Parameters
    ----------
    side : NoisySide
    places : int64 array
        Which of the chosen units are among them.
    ids : range
        Their numbers.
    found, table : Estimate, float array
        Of those that are not chosen.
    dtype : str
        Of the factor.
    """
    inside, n_units = side.chosen[places] - ids.start, len(ids)
    core = [asarray_on(x[places], found[0]) for x in (side.core.mean, side.core.covariance, side.core.scale)]
    mean, covariance, scale = (join_units(a, b, inside, n_units) for a, b in zip(core, found, strict=True))
    K = side.at.x.shape[1]
    rest = diagnosed(table, K, expected_square(to_numpy(found[1]), side.at))
    chosen = diagnosed(side.core_table[places], K, expected_square(side.core.covariance[places], side.at))
    diagnostics = join_diagnostics(chosen, rest, inside, n_units)
    whole, outside = Summary.of(diagnostics, start=ids.start), Summary.of(rest)
    factor = factor_rows(mean, side.centre, side.at.offsets, side.side == "r", side.scale, dtype.rpartition(".")[2])
    if side.settings.undetermined == "nan":
        factor = blank_rows(factor, diagnostics.undetermined)
    if side.scale != 1:
        diagnostics = diagnostics.scaled(side.scale)
    part = {"factor": factor} | diagnostics.arrays()
    if side.settings.intervals:
        xp = array_namespace(covariance)
        # standard deviations of three digits are plenty, and covariances are the larger part of the result
        part |= {name: xp.astype(x, xp.float32) for name, x in (("covariance", covariance), ("scale", scale))}
    return part, _moments(mean, covariance, scale), whole, outside


def _joined(arrays: list[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else array_namespace(arrays[0]).concat(arrays)


def _moments(mean: Array, covariance: Array, scale: Array) -> Arrays:
    """Sums over units: of the products of their coefficients, of these, of their covariances and scales; they add up."""
    mean, covariance, scale = (np.asarray(to_numpy(x), dtype=np.float64) for x in (mean, covariance, scale))
    one = np.ones((len(mean), 1))
    full = np.concatenate([mean, one], axis=1)
    return {"products": full.T @ full, "covariances": covariance.sum(axis=0), "scales": np.asarray(scale.sum())}


def estimate_all(
    model: NoiseModel,
    ties: ModelTies,
    sides: list[NoisySide],
    shards: dict[str, list[Shard]],
    engine: Engine,
    show: Progress,
) -> Extended:
    """Every row and column, in one pass over all shards."""
    jobs = [Job(shard, side) for side in sides for shard in shards[side.side]]
    show.stage("columns and rows", sum(job.n_units for job in jobs))
    found = iter(engine.map(Stage(estimated, "noise"), jobs, show.advance))
    parts, numbers = {}, {}
    for side in "rc":
        here = [next(found) for _ in shards[side]]
        parts[side], numbers[side] = [part for part, _ in here], [small for _, small in here]
    whole, outside = ({side: _summed(x, name) for side, x in numbers.items()} for name in ("whole", "outside"))
    return Extended(parts, whole, outside, _facts(model, ties, numbers["r"], numbers["c"]))


def _summed(numbers: list[Arrays], name: str) -> Summary:
    terms = [Summary.from_named(x, name) for x in numbers]
    return sum(terms[1:], terms[0])


def _share(off: float, square: float) -> float:
    """Relative error, of a mean squared error and the mean square of the estimates."""
    return (off / max(square + off, np.finfo(float).tiny)) ** 0.5


def _facts(model: NoiseModel, ties: ModelTies, columns: list[Arrays], rows: list[Arrays]) -> NoiseFacts:
    """What the result says of the model; the errors to expect follow from the sums of all shards."""
    (c, r) = (
        {name: sum(x[name] for x in side) for name in ("products", "covariances", "scales")} for side in (columns, rows)
    )
    K = len(model.row_precision)
    k = K - model.offsets
    q, p = triangle(K)
    double = np.where(q == p, 1.0, 2.0)
    components = [*range(k), K] if model.offsets else [*range(K)]  # (u, 1), of the products of (u, a, 1)

    def means(side: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        n = float(side["products"][-1, -1])
        full = side["products"] / n
        return full, full[np.ix_(components, components)][q, p], side["covariances"] / n, float(side["scales"]) / n

    (full_c, tilde_c, cov_c, scale_c), (full_r, tilde_r, cov_r, scale_r) = means(c), means(r)
    both = np.where(q < k, cov_c * cov_r, 0.0)
    doubt = max(float(np.sum(double * (cov_c * tilde_r + cov_r * tilde_c + both))), 0.0)
    # covariances are of rows given columns and of columns given rows; where these hardly tie each other down, errors of
    # both together are larger
    doubt = doubt + ties.error**2 if ties.gap < LOOSE else max(doubt, ties.error**2)
    crosses = False
    for chosen, across, (mine, theirs) in ((model.rows, model.cols, (full_r, c)), (model.cols, model.rows, (full_c, r))):
        outside = 1 - len(across) / float(theirs["products"][-1, -1])
        crosses |= outside > 0
        if outside > 0:
            doubt += outside * untold(chosen, across, mine[:k, :k])
    if model.offsets:  # rows are (u, a, 1), columns (v, 1, b + m)
        at = [*range(k), K, k]
        right, first, shift = full_c[np.ix_(at, at)], full_c[at, -1], np.zeros(len(at))
        shift[-1] = model.centre
        square = float(np.sum(full_r * (right + np.outer(shift, first) + np.outer(first, shift) + np.outer(shift, shift))))
    else:
        square = float(np.sum(full_r[:K, :K] * full_c[:K, :K]))
    nu, held = model.noise.tail, model.confirmation
    f, excess = (1.0, 1.0) if held is None else (held.factor, held.excess)
    if crosses and f > SHRINKING:  # what was held out is in the cross: of the rest, nobody has seen that it is better known
        f = max(f, 1.0)
    noise = model.typical_noise.variance * model.noise.by_size(square**0.5) * nu / (nu - 2) * scale_c * scale_r
    size = max(square, np.finfo(float).tiny) ** 0.5
    # Entries left out are off by more, but some of them are outliers that nobody can tell: a third of it, in logarithms.
    worse = min(max(excess, 1.0), _MOST_EXCESS) ** (1 / 3)
    # Noise cancels out; what is left of a matrix of another kind, a function of one of low rank, does not. Loose ties make
    # it larger by 1 over the gap at most, where nothing was held out.
    loose = ties.gap < LOOSE and excess > _NOT_NOISE
    spread = noise * (excess**2 - 1) / max(ties.gap, FREE) ** 2 if loose else 0.0
    # Estimates are drawn to the prior, so they are smaller than what they estimate: by what is not known of it.
    off, off_new = f**2 * (doubt + spread), worse**2 * (max(f, 1.0) ** 2 * doubt + noise)
    systematic = 0.0 if held is None else held.mistaken**2 + held.bias**2
    off, off_new = off + systematic, off_new + systematic
    return NoiseFacts(
        model.typical_noise,
        model.offsets,
        tuple(model.strengths.tolist()),
        model.settled,
        model.left_over,
        model.n_sweeps,
        model.confirmation,
        _share(off, square),
        _share(off_new, square),
        model.centre,
        tuple(model.row_precision.tolist()),
        tuple(model.col_precision.tolist()),
        ties.gap,
        None if ties.groups is None else (tuple(ties.groups.rows.tolist()), tuple(ties.groups.columns.tolist())),
        None if model.sigma is None else model.sigma.typical,
        ties.astray / size,
        ties.replaced,
        f,
    )
