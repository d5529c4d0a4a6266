"""Whether a core, or a noise model, is identified: are its rows and columns tied together by what agrees with it?"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse

from ..backends.arrays import Array, array_namespace, asarray_on, gather, take_rows
from ..backends.blocks import Block
from ..backends.kernels import Kernels, RunContext
from ..core.iteration import Checked
from ..core.problem import CoreProblem
from ..extend.diagnostics import ILL_CONDITIONED, OK, UnitDiagnostics
from ..extend.lone import rests_on_one, skewed
from ..noise.model import NoiseModel, outlier_threshold
from ..noise.part import Part
from .groups import Groups, groups_apart, groups_in
from .ties import FREE, Ties, ties_of

_LOOSE = 0.15  # gap of a noise model below which entries that tie the weakest direction are asked whether they agree with it
_LARGE = 0.25  # share of all residuals that are called large
# Share of large residuals among such entries from which they do not agree. Two groups with 1 or 2 % seen between them: 0.46
# to 0.83 where the fit was wrong, 0.27 to 0.3 where it was right.
_TOO_LARGE = 0.4
_FEWEST_ASTRAY, _FEW_NEAR = 5, 0.3  # observations of a row or column, and the share of them, below which it goes astray
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
    left, right = core.W * core.s, core.V * core.s
    W, V = (xp.astype(x, xp.float64) for x in (core.W, core.V))
    some = some_of(data.block, core.rank)
    for block in (some, data.block) if some is not None else (data.block,):
        usable = rows.weights(core.W), cols.weights(core.W)
        ties = ties_of(agreeing(block, left, core.V, floor, usable), W, V, run.kernels, run.seed)
        sides = ((data.block, V, left, rows, ties.row_skew), (data.by_cols, W, right, cols, ties.col_skew))
        rows, cols = (_without_lone(*side, there, floor) for side, there in zip(sides, usable[::-1], strict=True))
        if ties.gap > _CLEAR:
            break
    return ties, (core, rows, cols)


def _without_lone(
    block: Block, basis: Array, factor: Array, known: UnitDiagnostics, skew: np.ndarray, usable: Array, floor: float
) -> UnitDiagnostics:
    """Mark units of the core of which a component rests on a single entry, or on none."""
    doubtful = np.flatnonzero(skewed(skew, known.n_inliers, basis) & (known.status == OK))
    if len(doubtful) == 0:
        return known
    coefficients = take_rows(factor, asarray_on(doubtful, factor))
    lone = rests_on_one(block, doubtful, basis, coefficients, usable, floor)
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
    near = np.abs(y - fitted) < outlier_threshold(model.noise)
    matrix = scipy.sparse.csr_array((y[near], (i[near], j[near])), shape=part.shape)
    matrix.sort_indices()
    block = Block(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, part.shape[1])
    variance = model.noise.variance
    prior = (variance * model.row_precision, variance * model.col_precision)
    ties = ties_of(block, left, right, kernels, seed, prior)
    m, n = len(model.rows), len(model.cols)
    # components of single groups are tied by their priors: whether the groups ever met is asked without the model
    met = ties_of(block, np.ones((part.shape[0], 1)), np.ones((part.shape[1], 1)), kernels, seed)
    gap, groups = min(ties.gap, met.gap), None
    if ties.free or met.free:
        groups = groups_apart(block, kernels, seed) or groups_in(ties, left, right)
    elif ties.gap < _LOOSE and _contradicted(ties, left, right, (i, j, y - fitted)):
        gap, groups = 0.0, groups_apart(block, kernels, seed) or groups_in(ties, left, right)
    if groups is not None:
        groups = groups.first(m, n) if groups.first(m, n).apart else None
    dependent = float(np.sum((left.T @ left) * (ties.noise_cols.T @ ties.noise_cols)))
    dependent += float(np.sum((ties.noise_rows.T @ ties.noise_rows) * (right.T @ right)))
    dependent += 2 * float(np.sum((left.T @ ties.noise_rows) * (ties.noise_cols.T @ right)))
    gap = gap if groups is not None else max(ties.gap, FREE)  # what is not a group is a single case
    # the centre is known no better than the mean of all observations
    square = variance * max(max(dependent, 0.0) / (part.shape[0] * part.shape[1]), 1 / max(len(y), 1))
    return ModelTies(gap, square**0.5, groups, _astray((i, j, y - fitted), near, part.shape))


def _astray(residuals: tuple[np.ndarray, np.ndarray, np.ndarray], near: np.ndarray, shape: tuple[int, int]) -> float:
    """Root mean square, over all entries, of the residuals of rows, or columns, that reject nearly all of theirs."""
    i, j, residual = residuals
    squares = []
    for unit, total in zip((i, j), shape, strict=True):
        count = np.bincount(unit, minlength=total)
        astray = (count >= _FEWEST_ASTRAY) & (np.bincount(unit, near, minlength=total) < _FEW_NEAR * count)
        square = np.bincount(unit, residual**2, minlength=total)[astray] / count[astray]
        squares.append(float(np.sum(square)) / total)
    return max(squares) ** 0.5


def _contradicted(
    ties: Ties, left: np.ndarray, right: np.ndarray, residuals: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> bool:
    """Whether the entries that tie the weakest direction have far larger residuals than others.

    Then the fit has taken the wrong one of several solutions: of two groups that met at few places, for example, each is
    right for itself, and one of them in other units. Entries count by how much the direction changes them.
    """
    i, j, residual = residuals
    change = np.einsum("nk,nk->n", ties.rows[i], right[j]) + np.einsum("nk,nk->n", left[i], ties.cols[j])
    change /= np.maximum(np.linalg.norm(left[i], axis=1) * np.linalg.norm(right[j], axis=1), 1e-300)
    weight = change**2
    total = float(np.sum(weight))
    if not 0 < total < np.inf:
        return False
    large = np.abs(residual) > np.quantile(np.abs(residual), 1 - _LARGE)
    share, n = float(np.sum(weight * large)) / total, total**2 / float(np.sum(weight**2))
    return share > max(_TOO_LARGE, _LARGE + 5 * (_LARGE * (1 - _LARGE) / n) ** 0.5)


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
    """

    gap: float
    error: float
    groups: Groups | None
    astray: float = 0.0

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays, for a store."""
        found = {"ties": np.asarray([self.gap, self.error])}
        if self.groups is not None:
            found |= {"groups.rows": self.groups.rows, "groups.columns": self.groups.columns}
        return found

    @classmethod
    def from_arrays(cls, a: dict[str, np.ndarray]) -> ModelTies:
        """What `arrays` gave."""
        groups = Groups(a["groups.rows"], a["groups.columns"]) if "groups.rows" in a else None
        gap, error = a["ties"].tolist()
        return cls(gap, error, groups)


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


def agreeing(block: Block, left: Array, right: Array, floor: float, usable: tuple[Array, Array]) -> Block:
    """The entries of a block that agree with left @ right.T, in rows and columns that are `usable`."""
    xp = array_namespace(block.value)
    unit, index = block.unit_of_entry(), xp.astype(block.index, xp.int64)
    residual = block.value - xp.sum(take_rows(left, unit) * take_rows(right, index), axis=1)
    return block.where((xp.abs(residual) < floor) & (gather(usable[0], unit) > 0) & (gather(usable[1], index) > 0))
