"""What was taken for outliers, looked at after the solve: some of it, from the intersection and from both sides of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from array_api_compat import is_dask_array

from ..backends.arrays import to_numpy
from ..backends.blocks import Block, others
from ..backends.random import Stream, generator
from ..extend.diagnostics import OK
from ..judge.causes import Cause
from ..judge.lopsided import is_lopsided
from ..judge.structure import FAR_MORE, Looked, Structure, block_of, component_scores, crowded
from ..noise.part import on_host
from ..result.matrix import LowRankMatrix, rows_on_host
from ..result.rules import Entries, outliers_among
from ..result.uncertainty import Uncertainty
from ..samples.intersection import fingerprints
from ..shards.source import Made, Shard
from .jobs import Engine, gathered
from .solved import Extended, SolvedCore, threshold_of, uncertainty_of
from .store import Arrays
from .supply import Supply

# Columns (rows) of a block that are looked at, and about how many entries. Half of the units are drawn, the others are those
# with the most outliers: a component that is in few of them is seen as well, and counts say nothing of the signs of outliers
# at random. Exact data: 3 to 4 ms of CPU. With noise, weak components need more, and the fit takes far longer anyway.
_EXACT = (80, 6_000)
_NOISY = (300, 50_000)
_FROM_DEVICE = 2_000  # entries of a block that are brought from a device, about; with noise far more are, for the model
_MADE = 2  # shards of a side that functions make once more for it
_FOR_RULE = 6_000  # entries from which the rule follows what an outlier is


@dataclass(frozen=True, eq=False)
class Found:
    """What a solve found.

    Attributes
    ----------
    factors : dict
        The factor and the diagnostics of the columns ("r") and the rows ("c"), in the scale of the data.
    uncertainty : Uncertainty or None
    threshold : float
        Of observations that were divided by `scale`.
    scale : float
    noisy : bool
        Whether it was found by the noise model.
    """

    factors: dict[str, Arrays]
    uncertainty: Uncertainty | None
    threshold: float
    scale: float
    noisy: bool


def with_rejected(
    solved: SolvedCore, supply: Supply, factors: dict[str, Arrays], found: Extended, scale: float, engine: Engine
) -> Extended:
    """`found`, after a look at the rejected observations; none where the core is wrong anyway."""
    if found.structure is not None or (found.noise is None and solved.verdict.cause not in (Cause.NONE, Cause.UNDETERMINED)):
        return found
    known = uncertainty_of(factors, found.noise, 1.0)
    these = Found(factors, known, threshold_of(solved, found), scale, found.noise is not None)
    return replace(found, structure=look_at_rejected(supply, these, engine, solved.settings.seed))


def look_at_rejected(supply: Supply, found: Found, engine: Engine, seed: int) -> Structure:
    """Look for structure among the rejected, in the intersection and on both sides of it."""
    view, scale = supply.view, found.scale
    rng = generator(seed, Stream.REJECTED)
    m, n = len(view.rows), len(view.cols)
    by_row, by_col = _counts_of(found.factors["c"]), _counts_of(found.factors["r"])
    n_units, n_entries = _NOISY if found.noisy else _EXACT
    inner = _wanted(view.rows, by_row, n_units, rng)
    rows, cols = (
        _cheap(others(chosen, total), supply.shards[side], rng)
        for side, chosen, total in (("c", view.rows, view.shape[0]), ("r", view.cols, view.shape[1]))
    )
    rows, cols = rows[_wanted(rows, by_row, n_units, rng)], cols[_wanted(cols, by_col, n_units, rng)]
    on_device = not (found.noisy or isinstance(view.intersection.block.value, np.ndarray))

    def taken(length: int, n_seen: float) -> np.ndarray | None:
        """Which positions of units with so many entries are brought from a device."""
        return rng.random(length) < _FROM_DEVICE / (n_units * n_seen) if on_device and n_seen > 0 else None

    by_rows, by_cols = taken(n, view.rate_cols * n), taken(m, view.rate_rows * m)
    by_inner = taken(n, view.intersection.block.n_obs / max(m, 1))
    residuals_only = on_device and "known" in found.factors["r"]
    floor = found.threshold if residuals_only else 0.0  # below which values are rounding
    if residuals_only:
        below, beside, inside = _left_over(supply, found, (rows, cols, inner), (by_rows, by_cols, by_inner))
    else:
        whole = view.intersection.block
        inside = on_host(whole.take_units(inner) if by_inner is None else whole.at_positions(by_inner, inner))
        inside = inside if scale == 1 else inside.scaled(1 / scale)
        below = gathered(supply.shards["c"], rows, engine, n, scale, by_rows)
        beside = gathered(supply.shards["r"], cols, engine, m, scale, by_cols)
    # rows are numbered with those of I first, then the others; columns likewise
    core = _some_of(inside, inner, n_entries, floor, rng)
    lower = _some_of(below, m + np.arange(len(rows)), n_entries, floor, rng)
    j, i, *rest = _some_of(beside, n + np.arange(len(cols)), n_entries, floor, rng)
    parts: list[tuple[np.ndarray, ...]] = [core, (i, j, *rest), lower]
    numbers = np.concatenate([view.rows, rows]), np.concatenate([view.cols, cols])
    seen, is_outlier, edges = _judged(found, numbers, parts, residuals_only)
    blocks = [Looked(*(x[low:high] for x in (*seen, is_outlier))) for low, high in pairwise(edges)]
    scores = component_scores(blocks, seed)
    inner_core, on_side, below_it = blocks
    in_rows = _of_chosen(None if found.noisy else by_row, view.rows, inner_core.i, inner_core.rejected)
    in_cols = _of_chosen(None if found.noisy else by_col, view.cols, inner_core.j, inner_core.rejected)
    odd = (False, is_lopsided(*in_rows, on_side._replace(i=on_side.j, j=on_side.i)), is_lopsided(*in_cols, below_it))
    components = tuple(
        name for name, x, y in zip(("core", "columns", "rows"), scores, odd, strict=True) if x.is_component or y
    )
    named = [np.zeros(0, np.int64) if c is None else c.crowded() for c in (by_row, by_col)]
    i, j = (x[k] for x, k in zip(numbers, seen[:2], strict=True))
    block: tuple[tuple[int, ...], tuple[int, ...]] = (), ()
    if len(named[0]) and len(named[1]):
        there = np.isin(i, named[0]) & np.isin(j, named[1])
        block = block_of(i[there], j[there], is_outlier[there])
    core_score, col_score, row_score = (x.score for x in scores)
    crowded_rows, crowded_cols = (tuple(x.tolist()) for x in named)
    return Structure(core_score, col_score, row_score, components, crowded_rows, crowded_cols, *block)


@dataclass(frozen=True, eq=False)
class _Counts:
    """Observations and outliers of all units of a side; of those that are not determined, none."""

    n_obs: np.ndarray
    n_outliers: np.ndarray

    def crowded(self) -> np.ndarray:
        """Numbers of the units with far more outliers than the rest."""
        return crowded(self.n_obs, self.n_outliers)

    def most(self, units: np.ndarray, number: int) -> np.ndarray:
        """Which of some units have the most outliers."""
        return np.argpartition(-self.n_outliers[units], number)[:number]


class _CountsOnDevice:
    """The same, of a table on a device: what is asked for alone comes to the host."""

    def __init__(self, known: Any) -> None:
        self._known = known
        self._units, self._counts, self._totals = known.crowded(FAR_MORE)

    def crowded(self) -> np.ndarray:
        """As `_Counts.crowded`."""
        of = (len(self._known.table), *self._totals.tolist())
        return self._units[crowded(self._counts[:, 0], self._counts[:, 1], of)]

    def most(self, units: np.ndarray, number: int) -> np.ndarray:
        """As `_Counts.most`."""
        return np.asarray(self._known.most_outliers(units, number))


def _counts_of(arrays: Arrays) -> _Counts | _CountsOnDevice | None:
    """From the diagnostics of a side; None if they are on workers, where they may be many."""
    if "known" in arrays:
        return _CountsOnDevice(arrays["known"])
    if is_dask_array(arrays["status"]):
        return None
    status, n_obs, n_inliers = (to_numpy(arrays[name]) for name in ("status", "n_obs", "n_inliers"))
    n_obs = np.where(status == OK, n_obs, 0)
    return _Counts(n_obs, np.maximum(n_obs - n_inliers, 0))


def _of_chosen(
    counts: _Counts | _CountsOnDevice | None, chosen: np.ndarray, at: np.ndarray, is_outlier: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Observations and outliers of chosen rows (columns) in the intersection, or of what was looked `at`.

    With noise, counts are of all observations of these rows, and no help; those on devices and workers are not here.
    """
    if isinstance(counts, _Counts):
        return counts.n_obs[chosen], counts.n_outliers[chosen]
    return np.bincount(at, minlength=len(chosen)), np.bincount(at, is_outlier, len(chosen)).astype(np.int64)


def _left_over(
    supply: Supply, found: Found, units: tuple[np.ndarray, ...], taken: tuple[np.ndarray | None, ...]
) -> list[Block]:
    """What the factors leave of entries of some rows, columns, and rows of the intersection, from a device.

    The recovered values are added to it on the host. It comes to 0.4 % only, which is enough for signs and scales, and takes
    a third of the bytes of the observations.
    """
    from ..backends.cuda.blocks import residuals

    view, (rows, cols, inner), (by_rows, by_cols, by_inner) = supply.view, units, taken
    left, right = (found.factors[side]["factor"] for side in "cr")
    (c,), (r,) = supply.shards["c"], supply.shards["r"]
    of_cols, of_rows = (right, view.cols), (left, view.rows)
    blocks = [
        residuals(c.load(), rows, by_rows, (left, rows), of_cols),
        residuals(r.load(), cols, by_cols, (right, cols), of_rows),
        residuals(view.intersection.block, inner, by_inner, (left, view.rows[inner]), of_cols),
    ]
    return [replace(block, value=block.value / found.scale) for block in blocks]


def _cheap(units: np.ndarray, shards: list[Shard], rng: np.random.Generator) -> np.ndarray:
    """Units that are cheap to read: all of them, unless a function has to make whole shards for a few."""
    made = [shard for shard in shards if isinstance(shard.source, Made)]
    if len(made) <= _MADE:
        return units
    some = [made[k] for k in rng.choice(len(made), _MADE, replace=False)]
    return units[np.any([(units >= shard.start) & (units < shard.stop) for shard in some], axis=0)]


def _wanted(units: np.ndarray, counts: _Counts | _CountsOnDevice | None, most: int, rng: np.random.Generator) -> np.ndarray:
    """Places of the units to look at, ascending, and `most` of them."""
    if len(units) <= most:
        return np.arange(len(units))
    some = rng.choice(len(units), most, replace=False)
    if counts is None:
        return np.sort(some)
    return np.unique(np.concatenate([some[: most // 2], counts.most(units, most // 2)]))


def _some_of(block: Block, numbers: np.ndarray, most: int, floor: float, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Unit (by its number), position, value and told noise (1 if there is none) of the entries of a block.

    Of some positions only, if there are too many. Copies of units and positions are left out: they share their outliers,
    which then look like a pattern.
    """
    if block.n_obs > 1.5 * most:
        block = block.at_positions(rng.random(block.length) < most / block.n_obs)
    units, positions = (_different(x, floor) for x in (block, block.transpose()))
    block, numbers = block.at_positions(positions, np.flatnonzero(units)), numbers[units]
    sigma = np.ones(block.n_obs) if block.sigma is None else block.sigma
    return np.repeat(numbers, block.counts), block.index, block.value, sigma


def _different(block: Block, floor: float) -> np.ndarray:
    """Which units of a block are no copies of earlier ones (n_units,).

    Of residuals, copies share those that are not below `floor`; units without such ones are no copies of each other.
    """
    large = np.abs(block.value) >= floor
    first = np.unique(fingerprints(replace(block, value=np.where(large, block.value, 0.0))), return_index=True)[1]
    different = np.bincount(np.repeat(np.arange(block.n_units), block.counts), large, block.n_units) == 0
    different[first] = True
    return different


def _is_determined(arrays: Arrays, ids: np.ndarray) -> np.ndarray:
    """Which of some units are determined, on the host."""
    return ~np.isin(ids, arrays["known"].lost) if "known" in arrays else rows_on_host(arrays["status"], ids) == OK


def _judged(
    found: Found, numbers: tuple[np.ndarray, np.ndarray], parts: list[tuple[np.ndarray, ...]], residuals_only: bool
) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """Row, column, recovered value and residual of the entries of some parts, which are outliers, and where parts begin.

    With `residuals_only` these are what the parts have in the place of values.
    """
    matrix = LowRankMatrix(found.factors["c"]["factor"], found.factors["r"]["factor"], found.uncertainty).part(*numbers)
    matrix.right /= found.scale
    ok = [_is_determined(found.factors[side], ids) for side, ids in zip("cr", numbers, strict=True)]
    kept = []
    for part in parts:
        fine = np.flatnonzero(ok[0][part[0]] & ok[1][part[1]])
        kept.append(tuple(x[fine] for x in part))
    edges = np.cumsum([0, *(len(part[0]) for part in kept)])
    i, j, value, sigma = (np.concatenate(column) for column in zip(*kept, strict=True))
    i, j = i.astype(np.int64), j.astype(np.int64)
    if residuals_only:
        value = value + np.einsum("nk,nk->n", matrix.left[i], matrix.right[j])
    n_for_rule = None if found.noisy else _FOR_RULE
    fitted, residual, is_outlier = outliers_among(Entries(i, j, value, sigma), matrix, found.threshold, n_for_rule)
    return (i, j, fitted, residual), is_outlier, edges
