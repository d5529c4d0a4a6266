"""Where the sweeps of the noise model begin: offsets by medians, components by an SVD of what these leave, clipped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from ..backends.arrays import MAD_TO_SIGMA
from ..backends.random import Stream, generator

_ROUNDS = 4  # of row and column medians
_CLIP = 4.0  # standard deviations at which residuals are clipped for the SVD: outliers would make components of their own
_FAR = 3.5  # standard deviations from which an offset may be that of outliers
# Spread of a row's residuals over its distance from all others, from which a far offset is that of outliers: these agree on
# nothing. A column of another size (areas beside lengths) has a narrow spread; begun elsewhere, it would be lost for good.
_SCATTERED = 0.5
_FEWEST = 3  # observations with which a row's own median says something
# Components at least, before the data have their say: on the real matrices of bench.real up to 31 are of use. Those without
# use shrink to nothing in the sweeps.
_LEAST_WIDTH = 20
_MANY, _NARROW = 200_000, 8  # observations from which fewer are enough to begin with: each costs time, and more are added
_SPARE = 5  # components beside those that stand out from chance: weak ones do not, at first
_OUTSTANDING = 1.1  # largest singular value over that of chance, from which it is structure
_ROUGH = 1e-3  # accuracy of singular values that may be chance's: they lie so close together that more digits take long
_ROUGHER = 0.1  # the same for a first look at the largest: on chance it was right to 0.1 %, in a quarter of the time
# Rows or columns, and entries, up to which the Gram matrix gives singular values faster than Lanczos: 4 ms instead of 17 for
# 300 rows and 150 columns.
_GRAM, _MOST_DENSE = 256, 1_000_000
_MOST_WIDTH = 40  # components at most; each observation costs the square of this
_PER_COMPONENT = 2  # observations of a typical row for each component, at least
_FAR_BEYOND = 1e4  # times the median size of the values, beyond which one says nothing of where others may be


@dataclass(frozen=True, eq=False)
class Start:
    """A first guess.

    Attributes
    ----------
    centre : float
    row_offset, col_offset : float arrays (n1,), (n2,)
    left, right : float arrays (n1, k), (n2, k)
        Components, as large on both sides.
    variance : float
        Of the noise.
    """

    centre: float
    row_offset: np.ndarray
    col_offset: np.ndarray
    left: np.ndarray
    right: np.ndarray
    variance: float


def start_of(
    entries: tuple[np.ndarray, np.ndarray, np.ndarray],
    shape: tuple[int, int],
    most: int,
    offsets: bool,
) -> Start:
    """Begin with some observations (row, column, value); `most` components.

    Random signs are the same whatever the user's seed: a width of one more or less is no matter of chance.
    """
    i, j, y = entries
    by_row, by_col = _Grouping.of(i, shape[0]), _Grouping.of(j, shape[1])
    centre, a, b = _medians(by_row, by_col, y) if offsets else (0.0, np.zeros(shape[0]), np.zeros(shape[1]))
    rest = y - centre - a[i] - b[j]
    size = MAD_TO_SIGMA * float(np.median(np.abs(rest))) or float(np.mean(np.abs(rest)))
    size = size or np.finfo(float).tiny ** 0.25
    clipped = np.clip(rest, -_CLIP * size, _CLIP * size)
    matrix = scipy.sparse.csr_array((clipped, (i, j)), shape=shape)
    rng = generator(0, Stream.NOISE_START)
    most = min(most, most_components((i, j), shape))
    many = len(y) >= _MANY
    # Of many observations few components at first, and few digits: these took half of the time of a fit.
    at_first, accuracy = (_NARROW + _SPARE // 2, _ROUGH) if many else (2 * _LEAST_WIDTH, 0.0)
    u, s, v = _leading(matrix, min(most, at_first), rng, accuracy)
    # What chance gives: the same entries with random signs.
    chance = scipy.sparse.csr_array((clipped * rng.choice([-1.0, 1.0], len(clipped)), (i, j)), shape=shape)
    edge = _leading(chance, min(most, 1), rng, _ROUGH)[1][:1]
    if len(s) and s[-1] > edge[0] and most > len(s):
        u, s, v = _leading(matrix, most, rng, accuracy)
    least = _NARROW if many else _LEAST_WIDTH
    width = min(max(int(np.sum(s > edge[:1])) + _SPARE, least), most)
    root = np.sqrt(s[:width] / max(len(y) / (shape[0] * shape[1]), np.finfo(float).tiny))
    a, b = _near(a, by_row, rest), _near(b, by_col, rest)
    return Start(centre, a, b, u[:, :width] * root, v[:, :width] * root, size * size)


def usual_values(y: np.ndarray) -> np.ndarray:
    """Values (n,) without those that are far beyond the others, which say nothing of how large values usually are.

    Outliers are taken to be anywhere in the range of the values. One of 1e6 among some of size 1 would make all other
    places so unlikely that noise explains what is there better; one of 1e9 would be the size of what is to be recovered.
    """
    size = np.abs(y)
    return y[size <= _FAR_BEYOND * np.median(size[size > 0])] if size.any() else y


def most_components(places: tuple[np.ndarray, np.ndarray], shape: tuple[int, int]) -> int:
    """Components for which there are observations enough, at rows and columns given as `places`."""
    i, j = places
    typical = [float(np.median(np.bincount(k, minlength=n))) for k, n in zip((i, j), shape, strict=True)]
    return max(min(int(min(typical)) // _PER_COMPONENT, min(shape) - 1, _MOST_WIDTH), 1)


def structure_in(
    entries: tuple[np.ndarray, np.ndarray, np.ndarray], shape: tuple[int, int], most: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Components (n1, c), (n2, c) of some entries that stand out from the same entries with random signs; `most` of them."""
    i, j, y = entries
    most = max(min(most, min(shape) - 1), 0)
    matrix, chance = (
        scipy.sparse.csr_array((y * signs, (i, j)), shape=shape) for signs in (1.0, rng.choice([-1.0, 1.0], len(y)))
    )
    many = len(y) >= _MANY
    u, s, v = _leading(matrix, min(most, 1) if many else most, rng, _ROUGHER if many else _ROUGH)
    edge = _leading(chance, min(most, 1), rng, _ROUGHER if many else _ROUGH)[1][:1]
    if many and most and s[0] > _OUTSTANDING * edge[0]:  # mostly nothing is left, and one tells that
        u, s, v = _leading(matrix, most, rng, _ROUGH)
    found = int(np.sum(s > _OUTSTANDING * edge)) if len(edge) else 0
    root = np.sqrt(s[:found] / max(len(y) / (shape[0] * shape[1]), np.finfo(float).tiny))
    return u[:, :found] * root, v[:, :found] * root


def _leading(
    matrix: scipy.sparse.csr_array, k: int, rng: np.random.Generator, accuracy: float = 0.0
) -> tuple[np.ndarray, ...]:
    """Leading singular vectors (n1, k), values (k,) and vectors (n2, k), largest first; 0 asks for all digits."""
    k = min(k, *matrix.shape)
    if k == 0:
        return np.zeros((matrix.shape[0], 0)), np.zeros(0), np.zeros((matrix.shape[1], 0))
    if min(matrix.shape) <= _GRAM and matrix.shape[0] * matrix.shape[1] <= _MOST_DENSE:
        return _by_gram(matrix.toarray(), k)
    if min(matrix.shape) <= 2 * k + 2 or not matrix.data.any():  # Lanczos wants many more than it gives
        u, s, vt = np.linalg.svd(matrix.toarray(), full_matrices=False)
        return u[:, :k], s[:k], vt[:k].T
    from scipy.sparse.linalg import svds  # here, and not above: every import of the library would pay

    u, s, vt = svds(matrix, k, tol=accuracy, v0=rng.standard_normal(min(matrix.shape)))
    order = np.argsort(-s)
    return u[:, order], s[order], vt[order].T


def _by_gram(matrix: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
    """`_leading` of a matrix with few rows or few columns, by the eigenvectors of its Gram matrix.

    What is smaller than 1e-8 of the largest value comes out wrong, as a guess that sweeps will change anyway.
    """
    wide = matrix.shape[0] < matrix.shape[1]
    tall = matrix.T if wide else matrix
    squares, v = np.linalg.eigh(tall.T @ tall)
    squares, v = squares[::-1][:k], v[:, ::-1][:, :k]
    s = np.sqrt(np.maximum(squares, 0.0))
    u = tall @ v / np.maximum(s, max(1e-8 * float(s[0]), np.finfo(float).tiny))
    return (v, s, u) if wide else (u, s, v)


@dataclass(frozen=True, eq=False)
class _Grouping:
    """Observations by row, or by column, for medians of each.

    Rows are sorted one by one, many at a time: those of up to 2, 4, 8, ... observations are the lines of one array. That
    takes a quarter of the time of sorting all observations.

    Attributes
    ----------
    group : integer array (n_obs,)
        The row of each observation.
    order : int64 array (n_obs,)
        The observations, row by row.
    first, counts : int64 arrays (n,)
        Where in `order` those of each row begin, and how many there are.
    """

    group: np.ndarray
    order: np.ndarray
    first: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, group: np.ndarray, n: int) -> _Grouping:
        """The grouping of observations (n_obs,) by their rows, of which there are `n`."""
        counts = np.bincount(group, minlength=n)
        return cls(group, np.argsort(group, kind="stable"), np.cumsum(counts) - counts, counts)

    def medians(self, y: np.ndarray) -> np.ndarray:
        """The median of each row, 0 of none (n,)."""
        found, values = np.zeros(len(self.counts)), y[self.order]
        exponent = np.ceil(np.log2(np.maximum(self.counts, 1))).astype(np.int64)
        for power in np.unique(exponent[self.counts > 0]):
            rows = np.flatnonzero((exponent == power) & (self.counts > 0))
            counts, place = self.counts[rows], np.arange(1 << int(power))
            at = np.minimum(self.first[rows, None] + place, len(values) - 1)
            lines = np.where(place < counts[:, None], values[at], np.inf)
            lines.sort(axis=1)
            line = np.arange(len(rows))
            found[rows] = 0.5 * (lines[line, (counts - 1) // 2] + lines[line, counts // 2])
        return found


def _medians(by_row: _Grouping, by_col: _Grouping, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Centre, row and column offsets, by medians in turn."""
    centre = float(np.median(y))
    a, b = np.zeros(len(by_row.counts)), np.zeros(len(by_col.counts))
    for _ in range(_ROUNDS):
        a = by_row.medians(y - centre - b[by_col.group])
        b = by_col.medians(y - centre - a[by_row.group])
    return centre, a, b


def _near(offset: np.ndarray, group: _Grouping, rest: np.ndarray) -> np.ndarray:
    """Offsets, with the median one in place of those of few observations and of those that outliers made.

    These are far from all others, and the residuals `rest` (n_obs,) of their observations are as far apart.
    """
    middle = float(np.median(offset))
    away = np.abs(offset - middle)
    # Medians of whole numbers are mostly alike, and offsets that all begin at the same number would stay there for good.
    size = MAD_TO_SIGMA * float(np.median(away)) or float(np.mean(away))
    few = group.counts < _FEWEST
    far = away > _FAR * size
    if far.any():
        far &= MAD_TO_SIGMA * group.medians(np.abs(rest)) > _SCATTERED * away
    return np.where(few | far, middle, offset)
