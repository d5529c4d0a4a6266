"""Whether rows and columns are tied together: without that, nobody knows what one group has where it never met another.

Each entry that agrees with the solution ties its row to its column. A direction in which rows and columns can move together
without changing any of these entries is free: the data say nothing about it. Some directions are free always, since the
basis of the coefficients is (the gauge): they change no entry at all and are taken out.

Rows given columns, and columns given rows, are regressions with the matrices G of their normal equations. Together they
have the matrix ((G_r, C), (C^T, G_c)), and the singular values of G_r^-1/2 C G_c^-1/2 say how much of a move of the columns
the rows can follow: 1 in a free direction. 1 less the largest of them is called the gap. It does not depend on units, on
the size of components, or on how often single rows were seen. Measured: 1e-6 and less for two groups that hardly met, 0.14
and more wherever a matrix was recovered, down to 2.7 observations for each unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from scipy.linalg.lapack import dpotrf, dpotri

from ..backends.arrays import Array, array_namespace, asarray_on, gather, take_rows, to_numpy
from ..backends.blocks import Block
from ..backends.kernels import Kernels, RunContext
from ..backends.plain.ties import unpacked
from ..backends.random import Stream, generator
from ..core.iteration import Checked
from ..core.problem import CoreProblem
from ..extend.diagnostics import ILL_CONDITIONED, OK, UnitDiagnostics
from ..extend.lone import rests_on_one, skewed
from ..noise.model import NoiseModel, outlier_threshold
from ..noise.part import Part

FREE = 0.01  # a gap below this is a direction that the data do not tell
_LOOSE = 0.15  # gap of a noise model below which entries that tie the weakest direction are asked whether they agree with it
_LARGE = 0.25  # share of all residuals that are called large
# Share of large residuals among such entries from which they do not agree. Two groups with 1 or 2 % seen between them: 0.46
# to 0.83 where the fit was wrong, 0.27 to 0.3 where it was right.
_TOO_LARGE = 0.4
_FEWEST_ASTRAY, _FEW_NEAR = 5, 0.3  # observations of a row or column, and the share of them, below which it goes astray
_CLEAR = 0.05  # a gap of some of the entries that leaves no doubt about all of them
_ENOUGH = 8  # entries of a row for each unknown that are looked at first: with these the gap is about 0.25
_STEPS = 60  # of Lanczos, at most: the largest value of 60,000 is then known if the next is 3 % smaller
_FEWEST_STEPS, _SAME = 5, 0.2  # steps at least, and the change of the gap in three of them that counts as none
# Logarithm of the growth of a free direction after which it is seen, however little of it there is at the start: of 50 pairs
# of groups that never met, one had less than e^-6 of it (rank 1).
_GROWN = 11.5
_FOUND = 1e-8  # change of the value in three steps after which a free direction is known to many digits
_RIDGE = 1e-10  # over the mean of the diagonal: for rows whose entries do not determine them
_LEAST_TIED = 1e-12  # below this, 1 less a value is rounding
_PAIRS = 512  # rows, and columns, that are compared in search of groups
_ALIKE = 0.8  # share of a group's columns that a row is tied to, if it belongs to the group
_SMALLEST = 0.02  # share of the rows or columns that makes a group; fewer are single cases
_MOST_GROUPS = 8
_PATTERN = 3  # coefficients at random, to see groups in the places of entries: with 1, groups may be alike by chance
_WEAK = 0.3  # gap of places from which no groups are looked for
_COVERED = 0.8  # share of rows, and of columns, that belong to a group, at least
_FEW_ACROSS = 0.25  # share of the entries that is seen between groups over that inside of them, at most


@dataclass(frozen=True, eq=False)
class Ties:
    """How well rows and columns are tied together.

    Attributes
    ----------
    gap : float
        Between 0 (a free direction) and 1.
    rows, cols : float arrays (m, K), (n, K)
        The direction that is tied least: an entry changes by rows_i . x_j + y_i . cols_j.
    noise_rows, noise_cols : float arrays (m, K), (n, K)
        An error as noise of size 1 makes it, of rows and columns that depend on each other, drawn at random: without the
        part of the rows that does not come from the columns. Without a prior, the same as `rows` and `cols`.
    row_skew, col_skew : float arrays (m,), (n,)
        How unevenly the entries of each tell its coefficients, on the host: 1 at best.
    """

    gap: float
    rows: Array
    cols: Array
    noise_rows: Array
    noise_cols: Array
    row_skew: np.ndarray
    col_skew: np.ndarray

    @property
    def free(self) -> bool:
        """Whether the data leave a direction open."""
        return self.gap < FREE


def ties_of(
    block: Block, left: Array, right: Array, kernels: Kernels, seed: int, prior: tuple[Array, Array] | None = None
) -> Ties:
    """Look for a free direction.

    Parameters
    ----------
    block : Block
        Entries that agree with the solution; units are rows.
    left, right : float arrays (m, K), (n, K)
        What columns, and rows, are regressed on: y_i and x_j.
    kernels : Kernels
    seed : int
    prior : two float arrays (K,), optional
        Precisions of the priors of rows and columns, in units of the precision of an entry; none by default.
    """
    xp = array_namespace(right)
    across = block.transpose()
    K, n = int(right.shape[1]), int(right.shape[0])
    packed = kernels.grams(across, left), kernels.grams(block, right)
    if prior is not None:
        q, p = np.tril_indices(K)
        diagonal = asarray_on(np.eye(K)[q] * (q == p)[:, None], right, right.dtype)
        packed = packed[0] + diagonal @ prior[1], packed[1] + diagonal @ prior[0]
    (inverse, col_skew), (inverse_rows, row_skew) = (_inverse(x, K, kernels) for x in packed)
    G = unpacked(packed[0], K)
    gauge = _Gauge(right, G, kernels)

    def followed(b: Array) -> Array:
        """What the rows do when the columns move by b."""
        return kernels.times(inverse_rows, kernels.couple(block, left, right, b))

    start = asarray_on(generator(seed, Stream.TIES).standard_normal((n, K)), right, right.dtype)
    start = kernels.times(xp.linalg.cholesky(inverse), start)  # as noise moves columns, if the rows are known
    vectors: list[Array] = []
    images: list[Array] = []
    alpha: list[float] = []
    beta: list[float] = []
    theta: list[float] = []
    v = gauge.without(gauge.without(start))
    for step in range(_STEPS):
        Gv = kernels.times(G, v)
        size = float(xp.sum(v * Gv)) ** 0.5
        if not size > (1e-10 * max(abs(theta[-1]), 1e-3) if step else 0):
            break
        if step:
            beta.append(size)
        else:
            length = size
        vectors.append(v / size)
        images.append(Gv / size)
        w = gauge.without(kernels.times(inverse, kernels.couple(across, right, left, followed(vectors[-1]))))
        alpha.append(float(xp.sum(images[-1] * w)))
        for _ in range(2):  # twice is enough
            for x, Gx in zip(vectors, images, strict=True):
                w = w - x * xp.sum(Gx * w)
        v = gauge.without(w)
        values, shares = np.linalg.eigh(np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1))
        theta.append(float(values[-1]))
        # with each step a free direction grows by exp(2 (rest / theta)^1/2) over the others, at least
        growth = 2 * step * (max(1 - theta[-1], 0.0) / max(theta[-1], 1e-300)) ** 0.5
        if step >= _FEWEST_STEPS and (growth > _GROWN or theta[-1] > 1 - FREE):
            change, rest = abs(theta[-1] - theta[-4]), max(1 - theta[-1], 0.0)
            if change < _SAME * rest or change < _FOUND:
                break
    if not theta:  # nothing but gauge
        nothing = (xp.zeros_like(left), xp.zeros_like(right))
        return Ties(1.0, *nothing, *nothing, row_skew / K, col_skew / K)

    def combined(weights: np.ndarray) -> tuple[Array, Array]:
        """A direction of the columns, with what the rows do."""
        b = vectors[0] * float(weights[0])
        for x, weight in zip(vectors[1:], weights[1:], strict=False):
            b = b + x * float(weight)
        return -followed(b), b

    gap = 1 - min(max(theta[-1], 0.0), 1.0) ** 0.5
    weakest = combined(shares[:, -1])
    if prior is None:
        return Ties(gap, *weakest, *weakest, row_skew / K, col_skew / K)
    # what Lanczos makes of the start times (1 - M^T M)^-1/2: noise in the columns when the rows are not known
    noise = length * (shares @ (shares[0] / np.sqrt(np.maximum(1 - values, _LEAST_TIED))))
    return Ties(gap, *weakest, *combined(noise), row_skew / K, col_skew / K)


def _inverse(G: Array, k: int, kernels: Kernels) -> tuple[Array, np.ndarray]:
    """Inverses (u, K, K) of packed matrices (u, P), on their range, and traces as if those of the matrices were K (u,)."""
    xp = array_namespace(G)
    diagonal = asarray_on(np.cumsum(np.arange(1, k + 1)) - 1, G)
    size = xp.sum(xp.take(G, diagonal, axis=1), axis=1)[:, None] / k
    size = xp.where(size > 0, size, xp.ones_like(size))
    packed = kernels.inverses(G / size, _RIDGE)
    return unpacked(packed / size, k), to_numpy(xp.sum(xp.take(packed, diagonal, axis=1), axis=1))


class _Gauge:
    """The directions b_j = E^T x_j of the columns, E any K x K matrix: rows follow them wholly, and no entry changes."""

    def __init__(self, right: Array, G: Array, kernels: Kernels) -> None:
        self.right, self.G, self.times = right, G, kernels.times
        k = int(right.shape[1])
        xp = array_namespace(right)
        x = right[:, :, None] * right[:, None, :]
        products = to_numpy(xp.reshape(x, (-1, k * k)).T @ xp.reshape(G, (-1, k * k))).reshape(k, k, k, k)
        gram = products.transpose(0, 2, 1, 3).reshape(k * k, k * k)
        ridge = _RIDGE * float(np.trace(gram)) / (k * k) or 1.0
        self.inverse = asarray_on(_positive_inverse(gram + ridge * np.eye(k * k)), right, right.dtype)

    def without(self, b: Array) -> Array:
        """The rest of a direction (n, K)."""
        xp = array_namespace(b)
        k = int(b.shape[1])
        share = self.inverse @ xp.reshape(self.right.T @ self.times(self.G, b), (-1,))
        return b - self.right @ xp.reshape(share, (k, k))


def _positive_inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverse of a symmetric positive matrix, by its Cholesky factor: a third of the work of any other matrix."""
    factor, failed = dpotrf(matrix, lower=1)
    inverse, failed = (None, failed) if failed else dpotri(factor, lower=1)
    if inverse is None or failed:
        return np.asarray(np.linalg.inv(matrix))
    lower = np.tril(inverse)
    return lower + np.tril(lower, -1).T


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


# ---------------------------------------------------------------- groups


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows and columns that are tied together among themselves, but not to the others.

    Attributes
    ----------
    rows, columns : int64 arrays
        The group of each, from 0 on; -1 for those that belong to none.
    """

    rows: np.ndarray
    columns: np.ndarray

    def first(self, n_rows: int, n_columns: int) -> Groups:
        """Of the first rows and columns alone."""
        return Groups(self.rows[:n_rows], self.columns[:n_columns])

    @property
    def n_groups(self) -> int:
        """How many."""
        return int(max(self.rows.max(initial=-1), self.columns.max(initial=-1))) + 1

    @property
    def apart(self) -> bool:
        """Whether there are two groups at least that have rows and columns; what has only one of these is a single case."""
        return sum(min(size) > 1 for size in self.sizes()) > 1

    def apart_at(self, i: Any, j: Any) -> np.ndarray:
        """Whether entries (i, j) are between groups, or of rows or columns that belong to none (bool array)."""
        rows, cols = (labels[to_numpy(k)] for labels, k in ((self.rows, i), (self.columns, j)))
        return np.asarray((rows != cols) | (rows < 0))

    def sizes(self) -> list[tuple[int, int]]:
        """Rows and columns of each group."""
        return [(int(np.sum(self.rows == g)), int(np.sum(self.columns == g))) for g in range(self.n_groups)]


def groups_in(ties: Ties, left: Array, right: Array) -> Groups:
    """Groups between which the free direction changes entries, and inside of which it does not.

    Some rows and columns are compared with each other; the others join the group of those that they agree with.
    """
    A, B, Y, X = (np.asarray(to_numpy(x), dtype=np.float64) for x in (ties.rows, ties.cols, left, right))
    sizes = [np.linalg.norm(x, axis=1) for x in (Y, X)]
    some = [_spread(np.flatnonzero(size > 0), _PAIRS) for size in sizes]

    def change(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Of entries, for rows and columns of size 1."""
        whole = np.abs(A[i] @ X[j].T + Y[i] @ B[j].T)
        return whole / np.maximum(sizes[0][i][:, None] * sizes[1][j], 1e-300)

    if min(map(len, some)) == 0:
        return Groups(np.full(len(Y), -1), np.full(len(X), -1))
    table = change(*some)
    limit = _between(table)
    tied = table < limit
    seen = np.zeros(len(some[0]), dtype=bool)
    groups: list[np.ndarray] = []  # the columns of each, among those compared
    for _ in range(_MOST_GROUPS):
        rest = _spread(np.flatnonzero(~seen), 32)
        if len(rest) == 0:
            break
        # the row whose columns most of the others share
        votes = [np.mean(np.mean(tied[~seen] == tied[row], axis=1) > _ALIKE) for row in rest]
        leader = tied[rest[int(np.argmax(votes))]]
        mine = ~seen & (np.mean(tied[:, leader], axis=1) > _ALIKE) if leader.any() else ~seen
        if min(np.mean(mine), np.mean(leader)) > _SMALLEST:
            groups.append(np.mean(tied[mine], axis=0) > 0.5)
        seen = seen | mine
        seen[rest[0]] = True
    # every row, and then every column, joins the group to which it is tied best
    everything = np.arange(len(Y)), np.arange(len(X))
    shares = [np.mean(change(everything[0], some[1][own]) < limit, axis=1) if own.any() else 0 * sizes[0] for own in groups]
    rows = _best(shares, len(Y))
    members = [_spread(np.flatnonzero(rows == number), _PAIRS) for number in range(len(groups))]
    shares = [np.mean(change(own, everything[1]) < limit, axis=0) if len(own) else 0 * sizes[1] for own in members]
    return Groups(rows, _best(shares, len(X)))


def groups_apart(block: Block, kernels: Kernels, seed: int) -> Groups | None:
    """Groups with few entries between them, of a block whose units are rows; None if there are none.

    Where the entries are is all that counts: rows and columns get coefficients at random.
    """
    xp = array_namespace(block.value)
    rng = generator(seed, Stream.TIES)
    typical = float(np.median(block.counts)) if block.n_units else 0.0
    k = _PATTERN if typical >= 4 * _PATTERN else 1
    left, right = (asarray_on(_unit_rows(rng, size, k), block.value) for size in (block.n_units, block.length))
    left, right = (xp.astype(x, xp.float64) for x in (left, right))
    ties = ties_of(block, left, right, kernels, seed)
    if ties.gap > _WEAK:
        return None
    groups = groups_in(ties, left, right)
    rows, cols = groups.rows, groups.columns
    if not groups.apart or min(np.mean(rows >= 0), np.mean(cols >= 0)) < _COVERED:
        return None
    unit = np.repeat(rows, block.counts)
    index = cols[to_numpy(block.index)]
    known = (unit >= 0) & (index >= 0)
    inside, all_pairs = sum(a * b for a, b in groups.sizes()), int(np.sum(rows >= 0)) * int(np.sum(cols >= 0))
    n_inside = int(np.sum(known & (unit == index)))
    across = (int(np.sum(known)) - n_inside) / max(all_pairs - inside, 1)
    return groups if across < _FEW_ACROSS * n_inside / max(inside, 1) else None


def _unit_rows(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    x = rng.standard_normal((n, k)) if k > 1 else np.ones((n, 1))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _best(shares: list[np.ndarray], n: int) -> np.ndarray:
    """The group with the largest share for each of n units; -1 if that is less than half."""
    if not shares:
        return np.full(n, -1)
    table = np.stack(shares)
    best = np.argmax(table, axis=0)
    return np.where(table[best, np.arange(n)] > 0.5, best, -1)


def _spread(units: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the units, evenly."""
    return units if len(units) <= most else units[np.linspace(0, len(units) - 1, most).astype(np.int64)]


def _between(x: np.ndarray) -> float:
    """The number that tells small ones from large ones best: of two normal distributions of logarithms (Otsu 1979)."""
    values = np.sort(np.log(np.maximum(np.ravel(x), 1e-300)))
    values = np.maximum(values, values[-1] - 40)  # what is smaller is rounding
    n = len(values)
    count = np.arange(1, n)
    total = np.cumsum(values)
    low, high = total[:-1] / count, (total[-1] - total[:-1]) / (n - count)
    place = int(np.argmax(count * (n - count) * (low - high) ** 2)) if n > 1 else 0
    return float(np.exp(0.5 * (values[place] + values[min(place + 1, n - 1)])))
