"""Whether what was taken for outliers has structure of its own.

Outliers at random have signs at random. Where the signs of the rejected residuals follow rows and columns, they are a
further component of the matrix that the core does not have: in rows outside of I, for example, or in some of the columns
only. Rows, columns and blocks with many more outliers than the rest are named as well; they do not decide, for results with
them are often exact.

Of data with two values, such as yes and no, signs say nothing: a residual has the sign that the recovered value leaves it.
There an entry agrees by chance as often as not: exact agreement is no proof either, and the places of the rejected decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import bdtrc

from ..backends.random import Stream, generator
from .exact_component import agreeing_exactly, with_other_sign

FEWEST = 100  # rejected entries of a block, below which their signs say nothing
_DRAWS, _MORE_DRAWS = 4, 40  # random signs to compare with: at first, and where these leave a doubt
_DOUBT = 1.05  # largest singular value over that of random signs, from which there is one
# Standard deviation of the largest singular value of random signs over its mean, at least; it is 1.4 to 6 % where 4,000 to
# 100 signs were drawn. So few draws do not say it well, but with this no score without doubt is above 4.
_LEAST_SPREAD = 0.0125
_STEPS = 10  # of the power method: the same for the signs found and the random ones, so that these remain comparable
_CLASSES = 16  # of recovered values, in which signs may have a mean of their own
_BY_CHANCE = 0.1  # share of the observations that agree with a recovered value of another place, from which values are few
LIMIT = 5.0  # standard deviations above random signs from which the rejected may be a component
_LARGE = 0.5  # share of the sum of squares that makes up the entries where singular vectors are large
_FOLLOWING = 0.75  # share of the observations there that follow
_BALANCE = 0.3  # of signs
MATTERS = 1e-3  # residuals over the size of an entry from which a component matters: a tenth of the accuracy, as in a core
_RARE = 1e-3  # chance of naming any row (column) where all have the same share of outliers
FAR_MORE = 2.0  # share of the outliers of a row (column) over that of all, from which it is named
_BLOCK = 0.5  # share of the outliers where named rows and columns cross, from which this is a block
_NAMED = 5  # rows, and columns, that a message names
_FEWEST_THERE = 20  # observations there, below which nothing is said


@dataclass(frozen=True)
class Structure:
    """What the rejected observations, those taken for outliers, have in common.

    Attributes
    ----------
    core, columns, rows : float
        How far their signs are from random ones, in standard deviations: in the intersection, in columns outside of J and in
        rows outside of I. 0 where there are too few of them to say anything.
    components : tuple of str
        Where they are a further component of the matrix, by their signs or by their values: "core", "columns" or "rows".
    crowded_rows, crowded_columns : tuples of ints
        With far more outliers than the rest, the most first.
    block_rows, block_columns : tuples of ints
        Those of them between which most observations are outliers; empty if there is no such block.
    """

    core: float = 0.0
    columns: float = 0.0
    rows: float = 0.0
    components: tuple[str, ...] = ()
    crowded_rows: tuple[int, ...] = ()
    crowded_columns: tuple[int, ...] = ()
    block_rows: tuple[int, ...] = ()
    block_columns: tuple[int, ...] = ()

    @property
    def crowded(self) -> bool:
        """Whether some rows or columns have far more outliers than the rest."""
        return bool(self.crowded_rows or self.crowded_columns)

    @property
    def sentence(self) -> str:
        """Which rows, columns and block have far more outliers than the rest."""
        named = (("row", self.crowded_rows), ("column", self.crowded_columns))
        said = " and ".join(_named(what, numbers) for what, numbers in named if numbers)
        block = ""
        if self.block_rows:
            n, k = len(self.block_rows), len(self.block_columns)
            block = f" (between them a block of {n} x {k} where most observations are outliers)"
        verb = "has" if len(self.crowded_rows) + len(self.crowded_columns) == 1 else "have"
        return f"{said[0].upper()}{said[1:]} {verb} far more outliers than the rest{block}."

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Structure:
        """What `as_json` gave."""
        fields: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in told.items()}
        return cls(**fields)


def _named(what: str, numbers: tuple[int, ...]) -> str:
    """At most five numbers of rows or columns, and how many more there are."""
    more = len(numbers) - _NAMED
    first = [str(x) for x in numbers[:_NAMED]] + ([f"{more:,} more"] if more > 0 else [])
    listed = first[0] if len(first) == 1 else f"{', '.join(first[:-1])} and {first[-1]}"
    return f"{what}{'s' if len(numbers) > 1 else ''} {listed}"


def crowded(n_obs: np.ndarray, n_outliers: np.ndarray, of: tuple[int, float, float] | None = None) -> np.ndarray:
    """Numbers of the units with far more outliers than the rest, the most first.

    Parameters
    ----------
    n_obs, n_outliers : integer arrays (n,)
    of : (int, float, float), optional
        Units, observations and outliers there are, if these are some of the units only.
    """
    n_units, total, n_out = (len(n_obs), int(n_obs.sum()), int(n_outliers.sum())) if of is None else of
    share = n_out / max(total, 1)
    many = np.flatnonzero(n_outliers > np.maximum(FAR_MORE * share * n_obs, 2))
    if len(many) == 0:
        return many
    chance = bdtrc(n_outliers[many] - 1.0, n_obs[many], share)
    named = many[chance < _RARE / n_units]
    return named[np.argsort(-n_outliers[named] / n_obs[named], kind="stable")]


def block_of(rows: np.ndarray, columns: np.ndarray, is_outlier: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rows and columns between which most observations are outliers; none if they are not.

    Parameters
    ----------
    rows, columns : integer arrays (n,)
        Of the observations where crowded rows and columns cross.
    is_outlier : bool array (n,)
    """
    if len(rows) < _FEWEST_THERE or np.mean(is_outlier) < _BLOCK:
        return (), ()
    return tuple(np.unique(rows).tolist()), tuple(np.unique(columns).tolist())


class Looked(NamedTuple):
    """Observations of a block that were looked at, on the host.

    Attributes
    ----------
    i, j : int64 arrays (n,)
        Rows and columns, as numbers from 0 on.
    fitted, residual : float64 arrays (n,)
        The recovered values, and what was observed minus these.
    rejected : bool array (n,)
        Which of them were taken for outliers.
    """

    i: np.ndarray
    j: np.ndarray
    fitted: np.ndarray
    residual: np.ndarray
    rejected: np.ndarray


class Scores(NamedTuple):
    """What was found in a block.

    Attributes
    ----------
    score : float
        Largest singular value of the signs, in standard deviations above that of random signs; 0 of too few.
    following : float
        Share of the observations that are rejected, with the sign of the singular vectors, where these are large.
    balance : float
        How far signs of both kinds make up the singular value: 1 if they do so alike, 0 if all of one kind do.
    size : float
        Median residual of these observations, over a typical recovered value.
    exact : int
        Rejected entries whose values agree on a component to rounding, or on the recovered values with the other sign.
        Where there are any, `following` and `size` are theirs.
    """

    score: float = 0.0
    following: float = 0.0
    balance: float = 0.0
    size: float = 0.0
    exact: int = 0

    @property
    def is_component(self) -> bool:
        """Whether the rejected are a further component.

        Their signs follow rows and columns; they do so on both sides, unlike those of a block that is shifted as a whole;
        and where they do, most observations are rejected, unlike where outliers at random have such signs. Where the
        residuals are tiny, they are what rounding makes of a component that the core hardly has. Values that agree exactly
        say more than signs.
        """
        proven = self.exact > 0 or (self.score > LIMIT and self.balance > _BALANCE)
        return proven and self.following > _FOLLOWING and self.size > MATTERS


def component_scores(blocks: Sequence[Looked], seed: int) -> list[Scores]:
    """Compare the signs of the rejected residuals of some blocks with random signs.

    Compared is the largest singular value of the matrix of signs. Each sign is divided by (entries of its row x entries of
    its column)^(1/4), so that no row or column outweighs the others. What a sign has to do with the recovered value alone
    is removed: a value that was replaced, by 0 for example, leaves a residual of the opposite sign. So is what it has to do
    with its row alone, or with its column alone: a sensor may be wrong on one side. Where nothing is left then, and values
    are few, places take the place of signs.
    """
    rng = generator(seed, Stream.REJECTED, 1)
    scores = [Scores()] * len(blocks)
    signs: dict[int, _Signs | _Places] = {}
    for k, block in enumerate(blocks):
        if np.count_nonzero(block.rejected) < FEWEST:
            continue
        here = _Signs(block)
        if here.n_free >= FEWEST:
            signs[k] = here
        elif _share_by_chance(block, rng) > _BY_CHANCE:
            signs[k] = _Places(block)
    sizes: dict[int, np.ndarray] = {}
    vectors: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for draws in (_DRAWS, _MORE_DRAWS):
        some = {k: x for k, x in signs.items() if k not in sizes or sizes[k][0] > _DOUBT * sizes[k][1:].mean()}
        values = [x.drawn(draws, rng) if k in sizes else np.vstack([x.found, x.drawn(draws, rng)]) for k, x in some.items()]
        for k, (size, u, v) in zip(some, _largest(list(some.values()), values, rng), strict=True):
            if k not in sizes:
                vectors[k] = u, v
            else:
                scores[k] = Scores(0.0, *some[k].along(blocks[k], *vectors[k]))
            sizes[k] = np.concatenate([sizes.get(k, size[:0]), size])
            top, others = sizes[k][0], sizes[k][1:]
            score = float((top - others.mean()) / max(others.std(ddof=1), _LEAST_SPREAD * others.mean()))
            scores[k] = scores[k]._replace(score=score)
    return [x if x.is_component else _exactly(block, x, rng) for block, x in zip(blocks, scores, strict=True)]


def _exactly(block: Looked, scores: Scores, rng: np.random.Generator) -> Scores:
    """The scores of a block, by the values of its residuals if these agree on a component."""
    n, following, size = agreeing_exactly(*block, rng)
    if n == 0:
        n, following, size = with_other_sign(*block[2:])
    if n == 0:
        return scores
    return scores._replace(exact=n, following=following, size=size / max(typical_size(block.fitted), 1e-300))


def typical_size(fitted: np.ndarray) -> float:
    """Size of a recovered value."""
    return float(np.mean(fitted**2)) ** 0.5


class _Signs:
    """Signs of the rejected entries of a block, sorted by rows.

    Attributes
    ----------
    found, mean : float arrays (n,)
        The signs without their means, and the means.
    """

    def __init__(self, block: Looked) -> None:
        which = np.flatnonzero(block.rejected)
        which = which[np.argsort(block.i[which], kind="stable")]
        i, j, fitted, residual = (x[which] for x in block[:4])
        # what singular vectors would be if signs of outliers at random depended on the column alone, or on the row alone
        self.rows, self.row_of, self.left = _numbered(i, block.i)
        self.cols, self.col_of, self.right = _numbered(j, block.j)
        self.row, self.col = self.row_of[i], self.col_of[j]
        sign = np.where(residual > 0, 1.0, -1.0)
        self.mean = _mean_by_value(sign, fitted)
        self.found = sign - self.mean
        self.weight = (self.rows[self.row] * self.cols[self.col]) ** -0.25

    @property
    def n_free(self) -> float:
        """About how many signs do not follow from the recovered value."""
        return float(np.sum(1 - self.mean**2))

    def drawn(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Random signs with these means, without the means (count, n)."""
        return np.where(rng.random((count, len(self.mean))) < 0.5 * (1 + self.mean), 1.0, -1.0) - self.mean

    def along(self, block: Looked, u: np.ndarray, v: np.ndarray) -> tuple[float, float, float]:
        """How many of the observations follow the singular vectors where these are large, how balanced, and how large."""
        row, col = self.row_of[block.i], self.col_of[block.j]
        predicted = np.where((row >= 0) & (col >= 0), u[row] * v[col], 0.0)
        order = np.argsort(-np.abs(predicted))
        square = np.cumsum(predicted[order] ** 2)
        large = order[: int(np.searchsorted(square, _LARGE * square[-1])) + 1]
        following = block.rejected[large] & (predicted[large] * block.residual[large] > 0)
        made = self.found * self.weight * u[self.row] * v[self.col]
        positive, both = float(made[u[self.row] * v[self.col] > 0].sum()), float(made.sum())
        sizes = np.abs(block.residual[large[following]])
        size = float(np.median(sizes)) / max(typical_size(block.fitted), 1e-300) if len(sizes) else 0.0
        return float(np.mean(following)), 2 * min(positive, both - positive) / both, size


class _Places:
    """Places of the rejected among the observations of a block, sorted by rows; as `_Signs`.

    Attributes
    ----------
    found, mean : float arrays (n,)
        1 where an observation was rejected, without its mean, and the mean: what row and column say of it. `found` has the
        sign of the recovered value: a component is a matrix of residuals, and these have the opposite one.
    """

    def __init__(self, block: Looked) -> None:
        order = np.argsort(block.i, kind="stable")
        i, j, rejected = block.i[order], block.j[order], block.rejected[order].astype(np.float64)
        self.rows, row_of, self.left = _numbered(i, i)
        self.cols, col_of, self.right = _numbered(j, j)
        self.row, self.col = row_of[i], col_of[j]
        by_row, by_col = np.bincount(self.row, rejected) / self.rows, np.bincount(self.col, rejected) / self.cols
        self.mean = np.minimum(by_row[self.row] * by_col[self.col] / rejected.mean(), 1.0)
        self.sign = np.where(block.fitted[order] > block.fitted.mean(), 1.0, -1.0)
        self.found = self.sign * (rejected - self.mean)
        self.weight = (self.rows[self.row] * self.cols[self.col]) ** -0.25

    def drawn(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Random places with these means, without the means (count, n)."""
        return self.sign * ((rng.random((count, len(self.mean))) < self.mean) - self.mean)

    def along(self, block: Looked, u: np.ndarray, v: np.ndarray) -> tuple[float, float, float]:
        """Whatever the singular vectors are: there are no signs to follow."""
        return 1.0, 1.0, 1.0


def _share_by_chance(block: Looked, rng: np.random.Generator) -> float:
    """Share of the inliers that agree with the recovered value of another one as with their own."""
    fitted, residual = (x[~block.rejected] for x in (block.fitted, block.residual))
    if len(fitted) == 0:
        return 0.0
    near = float(np.max(np.abs(residual)))
    return float(np.mean(np.abs(fitted + residual - rng.permutation(fitted)) <= near))


def _numbered(rejected: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rejected entries of each row (column) that has any, which of those each row is (-1 for others), and a unit vector."""
    seen = np.bincount(observed)
    count = np.bincount(rejected, minlength=len(seen))
    there = count > 0
    vector = seen[there] ** 0.75
    return count[there], np.where(there, np.cumsum(there) - 1, -1), vector / np.linalg.norm(vector)


def _mean_by_value(sign: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """Mean sign of the entries of about the same recovered value (n,)."""
    place = np.linspace(0, len(fitted) - 1, _CLASSES + 1)[1:-1].astype(np.int64)
    number = np.searchsorted(np.partition(fitted, place)[place], fitted, side="right")
    count = np.bincount(number, minlength=_CLASSES)
    return (np.bincount(number, sign, minlength=_CLASSES) / np.maximum(count, 1))[number]


def _largest(
    patterns: Sequence[_Signs | _Places], values: list[np.ndarray], rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """About the largest singular values of matrices with some `values` (k, n) in each pattern.

    Returns
    -------
    list of (float array (k,), left and right vector of the first matrix)
    """
    if not patterns:
        return []
    from scipy.sparse import csr_array

    # all matrices are blocks on the diagonal of one, so that a product is one call
    copies = [(p, row) for p, rows in zip(patterns, values, strict=True) for row in rows]
    widths, heights = (np.asarray([len(getattr(p, name)) for p, _ in copies]) for name in ("cols", "rows"))
    first, top = (np.concatenate([[0], np.cumsum(x)[:-1]]) for x in (widths, heights))
    index = np.concatenate([p.col + start for (p, _), start in zip(copies, first, strict=True)])
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([p.rows for p, _ in copies]))])
    data = np.concatenate([row * p.weight for p, row in copies])
    whole = csr_array((data, index, indptr), shape=(int(heights.sum()), int(widths.sum())))
    left, right = (np.concatenate([getattr(p, name) for p, _ in copies]) for name in ("left", "right"))
    across = whole.T
    x = np.concatenate([np.tile(rng.standard_normal(len(p.cols)), len(v)) for p, v in zip(patterns, values, strict=True)])
    for step in range(_STEPS):
        x -= right * np.repeat(np.add.reduceat(x * right, first), widths)
        x /= np.repeat(np.sqrt(np.add.reduceat(x * x, first)), widths)
        y = whole @ x
        y -= left * np.repeat(np.add.reduceat(y * left, top), heights)
        if step < _STEPS - 1:
            x = across @ y
    sizes = np.sqrt(np.add.reduceat(y * y, top))
    found, start = [], 0
    for p, v in zip(patterns, values, strict=True):
        u, w = y[top[start] : top[start] + len(p.rows)], x[first[start] : first[start] + len(p.cols)]
        found.append((sizes[start : start + len(v)], u, w))
        start += len(v)
    return found
