"""Whether a core, or a noise model, is identified: are its rows and columns tied together by what agrees with it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
import scipy.sparse

from ..backends.arrays import Array, array_namespace, asarray_on, dots, gather, take_rows, unpacking
from ..backends.blocks import Block
from ..backends.kernels import Kernels, RunContext
from ..backends.plain.verdicts import skewed
from ..core.iteration import Checked
from ..core.problem import CoreProblem
from ..extend.diagnostics import ILL_CONDITIONED, OK, UnitDiagnostics
from ..extend.typical import coherence_of
from ..noise.model import Group, NoiseModel, outlier_threshold
from ..noise.part import Part
from ..noise.precision import precisions
from .groups import Groups, groups_apart, groups_in
from .ties import FREE, TIED_TO, Ties, ties_of

LOOSE = 0.15  # gap of a noise model below which entries that tie the weakest direction are asked whether they agree with it
_LARGE = 0.25  # share of all residuals that are called large
# Share of large residuals among such entries from which they do not agree. Two groups with 1 or 2 % seen between them: 0.46
# to 0.83 where the fit was wrong, 0.27 to 0.3 where it was right.
_TOO_LARGE = 0.4
_FOR_VALUES = 100_000  # observations in which equal values are sought
_MANY_EQUAL = 0.1  # share of them that have one value, from which it is asked where
# Share of the observations with this value where the matrix is farthest from it, over that of all: 0.87 to 0.93 where zeros
# stand for half of the entries, 0.4 and less of counts and of rounded values.
_EVERYWHERE = 0.65
_FAR_MORE = 3.0  # standard deviations, by which it rejects more than others
_EXACTLY = 1e-6  # noise over the size of an entry, below which there is none: it shrinks by and by
_FEWEST_ASTRAY, _FEW_NEAR = 5, 0.3  # observations of a row or column, and the share of them, below which it goes astray
# Mean square of coefficients over that of their errors from which they tell something: 1 is what errors alone give, and 1.5
# to 2.3 was measured where a component was outside of I, since errors are larger than the model thinks.
_TOLD = 4.0
_LONE = 0.02  # share of the rows, those with the largest coefficients, that do not count
# Share of the entries tying a core together that disagree with it, beyond that of others, from which a weak tie is none:
# 0.99 and 0.16 where the fit was wrong (a band along the diagonal, a bridge of few rows), 0.05 at most where it was right.
_MORE_REJECTED = 0.1
_ROUNDS = 4  # in which rows and columns of the core are marked, each by those that are left
# Share of the observations that may lie between groups, or in none, where groups are only suspected: those that hardly met
# have a fifth there at the most. The weakest direction of 13 components of spectra had "groups" with one in twenty inside.
_MOST_ACROSS = 0.5
_CLEAR = 0.05  # a gap of some of the entries that leaves no doubt about all of them
_ENOUGH = 8  # entries of a row for each unknown that are looked at first: with these the gap is about 0.25


# ---------------------------------------------------------------- the core


def core_ties(data: CoreProblem, checked: Checked, floor: float, run: RunContext) -> tuple[Ties, Checked]:
    """How well the rows and columns of a core are tied together by the entries that agree with it.

    Some entries of each row are enough if these leave no doubt: more can only tie more. Rows and columns whose own entries
    do not determine them, or only just, are marked.
    """
    core, rows, cols = checked
    xp = array_namespace(core.W)
    left, right = core.left, core.right
    W, V = (xp.astype(x, xp.float64, copy=False) for x in (core.W, core.V))
    some = some_of(data.block, core.rank)
    blocks = (some, data.block) if some is not None else (data.block,)
    for _ in range(_ROUNDS):
        for block in blocks:
            usable = rows.weights(core.W), cols.weights(core.W)
            ties = ties_of(run.kernels.agreeing(block, left, core.V, floor, usable), W, V, run.kernels, run.seed)
            known = rows, cols
            rows = _without_lone(
                lambda units: (data.block, units), V, left, rows, ties.row_skew, usable[1], floor, run.kernels
            )
            cols = _without_lone(data.block.units_across, W, right, cols, ties.col_skew, usable[0], floor, run.kernels)
            if ties.gap > _CLEAR:
                break
        if rows is known[0] and cols is known[1]:
            break  # else others may have rested on those that were marked
    if ties.gap < FREE and _is_rejected(ties, data.block, (W, V), left, core.V, floor, usable):
        ties = replace(ties, gap=0.0)  # few entries agree by chance where others say something else
    return ties, (core, rows, cols)


def _is_rejected(
    ties: Ties,
    block: Block,
    bases: tuple[Array, Array],
    left: Array,
    right: Array,
    floor: float,
    usable: tuple[Array, Array],
) -> bool:
    """Whether entries that the weakest direction changes disagree with a core more often than others do."""
    xp = array_namespace(block.value)
    unit, index = block.unit_of_entry(), xp.astype(block.index, xp.int64)
    x, y = (take_rows(basis, at) for basis, at in zip(bases, (unit, index), strict=True))
    change = xp.sum(take_rows(ties.rows, unit) * y + x * take_rows(ties.cols, index), axis=1)
    weight = change * change / xp.maximum(xp.sum(x * x, axis=1) * xp.sum(y * y, axis=1), xp.full_like(change, 1e-300))
    there = (gather(usable[0], unit) > 0) & (gather(usable[1], index) > 0)
    weight = xp.where(there, weight, xp.zeros_like(weight))  # that of rows without coefficients is beyond all numbers
    weight = weight / xp.maximum(xp.max(weight), xp.full_like(weight[:1], 1e-300))
    residual = block.value - dots(left, unit, right, index)
    there = xp.astype(there, weight.dtype)
    rejected = there * xp.astype(xp.abs(residual) >= floor, weight.dtype)
    total, square = (float(xp.sum(x)) for x in (weight, weight * weight))
    if not 0 < total < np.inf:
        return False
    share, usual = float(xp.sum(weight * rejected)) / total, float(xp.sum(rejected)) / float(xp.sum(there))
    by_chance = (usual * (1 - usual) * square) ** 0.5 / total  # standard deviation of the share
    return share > usual + max(_MORE_REJECTED, 5 * by_chance)


def _without_lone(
    units_of: Callable[[np.ndarray], tuple[Block, np.ndarray]],
    basis: Array,
    factor: Array,
    known: UnitDiagnostics,
    skew: np.ndarray,
    usable: Array,
    floor: float,
    kernels: Kernels,
) -> UnitDiagnostics:
    """Mark units of the core of which a component rests on a single entry, or on none.

    `units_of` gives a block and the numbers there of some of the units.
    """
    coherence = coherence_of(kernels.basis_facts(basis, usable))
    doubtful = np.flatnonzero(skewed(skew, known.n_inliers, basis.shape[1], coherence) & (known.status == OK))
    if len(doubtful) == 0:
        return known
    coefficients = take_rows(factor, asarray_on(doubtful, factor))
    lone = kernels.rests_on_one(*units_of(doubtful), basis, coefficients, usable, floor)
    if not lone.any():
        return known
    status = known.status.copy()
    status[doubtful[lone]] = ILL_CONDITIONED
    return replace(known, status=status)


# ---------------------------------------------------------------- the noise model


def model_ties(part: Part, model: NoiseModel, kernels: Kernels, seed: int) -> ModelTies:
    """How well the rows and columns of a noise model are tied together, by the observations it was fitted to."""
    k = model.rank
    rows, cols = np.concatenate([model.rows.mean, model.more_rows]), np.concatenate([model.cols.mean, model.more_cols])
    i, j, y = part.entries
    fitted = model.centre + np.einsum("nk,nk->n", rows[i, :k], cols[j, :k])
    left, right = rows, cols
    if model.offsets:
        fitted = fitted + rows[i, k] + cols[j, k]
        left, right = (np.concatenate([x[:, :k], np.ones((len(x), 1))], axis=1) for x in (rows, cols))
    # noise is that of a fine observation: residuals of coarser ones (`sigma`) are as many times smaller than they look
    finer = precisions(part.sigma, None if model.sigma is None else model.sigma.fine, len(y)) ** 0.5
    if model.noise.growth:  # as those where values are large are
        finer = finer / model.noise.by_size(fitted) ** 0.5
    near = finer * np.abs(y - fitted) < outlier_threshold(model.noise)
    matrix = scipy.sparse.csr_array((y[near], (i[near], j[near])), shape=part.shape)
    matrix.sort_indices()
    block = Block(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, part.shape[1])
    variance = model.noise.variance
    prior = (variance * model.row_precision, variance * model.col_precision)
    ties = ties_of(block, left, right, kernels, seed, prior)
    m, n = len(model.rows), len(model.cols)
    # components of single groups are tied by their priors: whether the groups ever met is asked without the model
    met = ties_of(block, np.ones((part.shape[0], 1)), np.ones((part.shape[1], 1)), kernels, seed)
    gap = max(ties.gap, FREE)  # what is not a group is a single case
    negligible = TIED_TO * ties.gap * _size(fitted)
    free, groups = ties.free or met.free, None
    contradicted = ties.gap < LOOSE and _contradicted(ties, left, right, (i, j, finer * (y - fitted)), negligible)
    if free or contradicted:
        found = groups_apart(block, kernels, seed) or groups_in(ties, left, right)
        holds = free or not np.mean(found.apart_at(i[near], j[near])) > _MOST_ACROSS
        groups = found.first(m, n) if holds and found.first(m, n).apart else None
        if groups is not None or (free and found.apart):  # I may be in one group, and J in the other
            gap = min(ties.gap, met.gap) if free else 0.0
    dependent = _dependent((ties.noise_rows, ties.noise_cols), left, right)
    # rows of many zeros agree with a solution of 0, whatever the rest of them says
    told = finer * np.maximum(np.abs(y), np.abs(fitted)) > outlier_threshold(model.noise)
    # the centre is known no better than the mean of all observations
    square = variance * max(dependent / (part.shape[0] * part.shape[1]), 1 / max(len(y), 1))
    size = float(np.mean(fitted**2)) ** 0.5 if len(fitted) else 0.0
    astray = _astray((i, j, y - fitted), near, told, part.shape, variance**0.5 < _EXACTLY * size)
    stretch = _stretch(ties, left, right, (i, j)) if gap < LOOSE else 1.0
    return ModelTies(gap, square**0.5, groups, astray, _replaced(y, fitted), contradicted, size, stretch)


def _stretch(ties: Ties, left: np.ndarray, right: np.ndarray, places: tuple[np.ndarray, np.ndarray]) -> float:
    """How much more the weakest direction changes an entry, anywhere, than one of those at `places`: root mean squares."""
    seen = float(np.mean(_changes(ties, left, right, places) ** 2)) if len(places[0]) else 0.0
    anywhere = _dependent((ties.rows, ties.cols), left, right) / (len(left) * len(right))
    return (anywhere / seen) ** 0.5 if 0 < seen < np.inf and 0 < anywhere < np.inf else 1.0


def _replaced(y: np.ndarray, fitted: np.ndarray) -> float:
    """Share of the observations that have one and the same value, if they have it wherever the matrix is; else 0.

    Such a value stands for what is missing, and the model takes half of each entry for noise if half of them are replaced.
    Where values are few, or many are really 0, the matrix is near to it.
    """
    step = max(len(y) // _FOR_VALUES, 1)
    y, fitted = y[::step], fitted[::step]
    values, counts = np.unique(y, return_counts=True)
    if len(y) == 0 or counts.max() < _MANY_EQUAL * len(y):
        return 0.0
    value, share = values[counts.argmax()], float(counts.max()) / len(y)
    away = np.abs(fitted - value)
    far = away >= max(float(np.quantile(away, 0.75)), float(np.mean(away**2)) ** 0.5)
    return share if far.any() and np.mean(y[far] == value) > _EVERYWHERE * share else 0.0


def _dependent(moves: tuple[np.ndarray, np.ndarray], left: np.ndarray, right: np.ndarray) -> float:
    """Squared change, summed over all entries, if rows and columns make these `moves` together."""
    rows, cols = moves
    total = float(np.sum((left.T @ left) * (cols.T @ cols)) + np.sum((rows.T @ rows) * (right.T @ right)))
    return max(total + 2 * float(np.sum((left.T @ rows) * (cols.T @ right))), 0.0)


def _changes(ties: Ties, left: np.ndarray, right: np.ndarray, places: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """How much the weakest direction changes the entries at some places (n,)."""
    i, j = places
    return np.einsum("nk,nk->n", ties.rows[i], right[j]) + np.einsum("nk,nk->n", left[i], ties.cols[j])


def _astray(
    residuals: tuple[np.ndarray, np.ndarray, np.ndarray],
    near: np.ndarray,
    told: np.ndarray,
    shape: tuple[int, int],
    exact: bool,
) -> float:
    """Root mean square, over all entries, of the residuals of rows, or columns, that reject nearly all that is `told`.

    They reject more than others do: where a row has small entries alone, its outliers are all that is told. No entries of
    `exact` data are that small.
    """
    i, j, residual = residuals
    usual = float(np.mean(~near)) if len(near) else 0.0
    squares = []
    for unit, total in zip((i, j), shape, strict=True):
        n_all, n_rejected = np.bincount(unit, minlength=total), np.bincount(unit, ~near, minlength=total)
        count, agree = (np.bincount(unit, x, minlength=total) for x in (told, told & near))
        more = n_rejected > usual * n_all + _FAR_MORE * np.sqrt(usual * n_all)
        astray = (count >= _FEWEST_ASTRAY) & (agree < _FEW_NEAR * count) & (more | exact)
        square = np.bincount(unit, told * residual**2, minlength=total)[astray] / count[astray]
        squares.append(float(np.sum(square)) / total)
    return max(squares) ** 0.5


def _size(fitted: np.ndarray) -> float:
    return float(np.median(np.abs(fitted))) if len(fitted) else 0.0


def _contradicted(
    ties: Ties,
    left: np.ndarray,
    right: np.ndarray,
    residuals: tuple[np.ndarray, np.ndarray, np.ndarray],
    negligible: float,
) -> bool:
    """Whether the entries that tie the weakest direction have far larger residuals than others.

    Then the fit has taken the wrong one of several solutions: of two groups that met at few places, for example, each is
    right for itself, and one of them in other units. Entries count by how much the direction changes them. Residuals that
    are `negligible` agree: a smooth matrix, of which some components are too small to be found, has larger ones at its
    corners.
    """
    i, j, residual = residuals
    change = _changes(ties, left, right, (i, j))
    change /= np.maximum(np.linalg.norm(left[i], axis=1) * np.linalg.norm(right[j], axis=1), 1e-300)
    largest = float(np.max(np.abs(change), initial=0.0))
    if not 0 < largest < np.inf:
        return False
    weight = (change / largest) ** 2  # of changes that are huge, the square is not
    total = float(np.sum(weight))
    large = np.abs(residual) > max(float(np.quantile(np.abs(residual), 1 - _LARGE)), negligible)
    share, n = float(np.sum(weight * large)) / total, total**2 / float(np.sum(weight**2))
    return share > max(_TOO_LARGE, _LARGE + 5 * (_LARGE * (1 - _LARGE) / n) ** 0.5)


def untold(chosen: Group, across: Group, products: np.ndarray) -> float:
    """Mean square of what the `chosen` rows do not tell of columns outside of J, or chosen columns of rows outside of I.

    A component may live in columns of J and rows outside of I alone. Then nothing says how much of it other columns have,
    and where rows of I are not farther from 0 than their errors, these errors are no information, as the model thinks. What
    is not told is as large as it is in the columns of J.

    Parameters
    ----------
    chosen : Group
        Rows of I; their first coefficients are those of the k components.
    across : Group
        Columns of J.
    products : float array (k, k)
        Mean products of the coefficients of all rows.
    """
    k = len(products)
    if k == 0:
        return 0.0
    mine = chosen.mean[:, :k]
    if chosen.mean.shape[1] > k:  # what all of them share is an offset to the columns
        mine = mine - mine.mean(axis=0)
    errors = chosen.covariance.mean(axis=0)[unpacking(chosen.mean.shape[1])][:k, :k]
    errors = errors + np.finfo(float).eps * (np.trace(errors) + np.mean(mine**2)) * np.eye(k)
    if len(mine) < 3 or not np.isfinite(errors).all():
        return 0.0

    def told(some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean squares, errors having size 1, and directions, the least first."""
        sizes, directions = scipy.linalg.eigh(some.T @ some / len(some), errors)
        return sizes, directions

    least = (mine @ told(mine)[1][:, 0]) ** 2
    n_lone = max(round(_LONE * len(mine)), 1)  # what only one row has, its outliers may have made
    sizes, directions = told(mine[np.argsort(least)[:-n_lone]])
    lost = directions[:, sizes < _TOLD]
    inside = across.mean[:, :k] @ errors @ lost  # coefficients of the columns of J in these directions
    return float(np.sum((lost.T @ products @ lost) * (inside.T @ inside))) / len(across)


@dataclass(frozen=True, eq=False)
class ModelTies:
    """How well the rows and columns of a noise model are tied together.

    Attributes
    ----------
    gap : float
    error : float
        Root mean square error of an entry of the part, from columns and rows that depend on each other.
    groups : Groups or None
        Of I and J, if they fall apart.
    astray : float
        Root mean square error of an entry if all observations were right in rows, or columns, that reject nearly all of
        theirs.
    replaced : float
        Share of the observations with one value, wherever the matrix is.
    contradicted : bool
        Whether the entries that tie the weakest direction disagree with the model: it is wrong there, or on its way.
    size : float
        Root mean square of what the model says of the observations.
    stretch : float
        How much more the weakest direction changes an entry, anywhere, than one that was observed.
    """

    gap: float
    error: float
    groups: Groups | None
    astray: float
    replaced: float = 0.0
    contradicted: bool = False
    size: float = 0.0
    stretch: float = 1.0

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays, for a store."""
        numbers = [self.gap, self.error, self.astray, self.replaced, self.contradicted, self.size, self.stretch]
        found = {"ties": np.asarray(numbers)}
        if self.groups is not None:
            found |= {"groups.rows": self.groups.rows, "groups.columns": self.groups.columns}
        return found

    @classmethod
    def from_arrays(cls, a: dict[str, np.ndarray]) -> ModelTies:
        """What `arrays` gave."""
        groups = Groups(a["groups.rows"], a["groups.columns"]) if "groups.rows" in a else None
        numbers = a["ties"].tolist()
        numbers += (0.0, 0.0, 1.0)[len(numbers) - 4 :]  # older stores lack the last ones
        gap, error, astray, replaced, contradicted, size, stretch = numbers
        return cls(gap, error, groups, astray, replaced, bool(contradicted), size, stretch)


# ---------------------------------------------------------------- entries that agree


def some_of(block: Block, unknowns: int) -> Block | None:
    """A few entries of each unit, spread over it; None if that would be most of them."""
    most = _ENOUGH * unknowns
    counts = np.minimum(block.counts, most)
    if 2 * counts.sum() > block.n_obs:
        return None
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    lane = np.arange(int(indptr[-1])) - np.repeat(indptr[:-1], counts)
    # units begin at different places of their stride, so that all positions are met
    stride = block.counts / np.maximum(counts, 1)
    phase = (np.arange(block.n_units) * 0.6180339887498949) % 1.0
    place = np.repeat(block.host_indptr[:-1], counts) + np.floor(
        (lane + np.repeat(phase, counts)) * np.repeat(stride, counts)
    ).astype(np.int64)
    place = asarray_on(place, block.value)
    return Block(asarray_on(indptr, block.value), gather(block.index, place), gather(block.value, place), block.length)
