"""How a core does on some of its entries, and what its basis is like: a handful of numbers of each, on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..arrays import Array, array_namespace, gather, quantile_abs, to_numpy

if TYPE_CHECKING:
    from .loop import Entries

NEAR, SLACK = 6.0, 3.0  # standard deviations: of noise with its tails, and by which an outlier may exceed a component


@dataclass(frozen=True, eq=False)
class Measured:
    """Some entries beside a core.

    Attributes
    ----------
    n, n_informative : int
        Entries, and those of them that are, or are said to be, larger than a size: in a matrix of many zeros, others fit
        anything.
    n_agree, n_below : int
        Informative entries, and all, with a residual within the threshold.
    n_zero, n_nonzero : int
        Entries that are 0 and are said to be something else, and entries that are not 0.
    near_square : float
        Mean square of the residuals below six standard deviations of the noise; 0 of none.
    found, claimed : float64 arrays (r,)
        Of each component: mean product of its part in the entries with the truth (clipped against outliers), and its mean
        square.
    lists : (float arrays (n,), float arrays (n,), bool array (n,))
        Residuals, values (at least the size) and whether they are informative, where the entries are.
    """

    n: int
    n_informative: int
    n_agree: int
    n_below: int
    n_zero: int
    n_nonzero: int
    near_square: float
    found: np.ndarray
    claimed: np.ndarray
    lists: tuple[Array, Array, Array]


class Compared(NamedTuple):
    """Quartiles, and what agrees by chance.

    Attributes
    ----------
    residual, value : float
        Lower quartiles of the sizes of informative residuals and values.
    typical : float
        Median size of all values.
    chance, chance_of_all : int
        Values, informative ones or all, within the threshold of what is said of the value half a list away.
    """

    residual: float
    value: float
    typical: float
    chance: int
    chance_of_all: int


class Sizes(NamedTuple):
    """Median, lower quartile and mean of the sizes of some numbers, and their mean square."""

    median: float
    quartile: float
    mean: float
    square: float


class BasisFacts(NamedTuple):
    """What a basis (length, r) is like, on the host.

    Attributes
    ----------
    gram : float array (r, r)
        Sums over the rows that are usable.
    n_usable : float
    largest : float
        The largest square of a row.
    length : int
    """

    gram: np.ndarray
    n_usable: float
    largest: float
    length: int


def measure(entries: Entries, core: tuple[Array, Array, Array], floor: float, size: float, sigma: float) -> Measured:
    """Measure a core at some entries (i, j, y).

    Parameters
    ----------
    entries : (int64, int64, float arrays (n,))
    core : (W, s, V)
    floor : float
        The threshold.
    size : float
        Larger entries are informative.
    sigma : float
        Standard deviation of the noise.
    """
    (i, j, y), (W, s, V) = entries, core
    xp = array_namespace(y)
    n = int(y.shape[0])
    # components first: sums over short rows, and down long narrow columns, take NumPy ten times as long
    parts = xp.take((W * s).T, i, axis=1) * xp.take(V.T, j, axis=1)
    residual = y - xp.sum(parts, axis=0)
    large, told = xp.abs(y) > size, xp.abs(y - residual) > size
    informative, below = large | told, xp.abs(residual) < floor
    n_informative, n_agree, n_below, n_zero, n_nonzero = (
        int(xp.count_nonzero(x)) for x in (informative, informative & below, below, told & (y == 0), y != 0)
    )
    near = xp.astype(xp.abs(residual) < NEAR * sigma, residual.dtype)
    n_near = float(xp.sum(near))
    square = float(xp.sum(near * residual * residual)) / n_near if n_near else 0.0
    bound = xp.abs(parts) + SLACK * sigma
    clipped = xp.minimum(xp.maximum(residual[None, :], -bound), bound)
    found, claimed = (
        to_numpy(xp.sum(x, axis=1)).astype(np.float64) / max(n, 1) for x in (parts * (parts + clipped), parts * parts)
    )
    shown = xp.where(large, y, xp.full_like(y, size))
    counts = (n, n_informative, n_agree, n_below, n_zero, n_nonzero)
    return Measured(*counts, square, found, claimed, (residual, shown, informative))


def compare(measured: Measured, y: Array, floor: float) -> Compared:
    """Quartiles of what was measured at entries with values `y`, and what agrees by chance."""
    residual, shown, informative = measured.lists
    xp = array_namespace(y)
    (which,) = xp.nonzero(informative)
    some = gather(residual, which), gather(shown, which)
    chances = []
    for value, rest in (some[::-1], (y, residual)):
        predicted = xp.roll(value - rest, int(value.shape[0]) // 2)
        chances.append(int(xp.count_nonzero(xp.abs(value - predicted) < floor)))
    lower = [float(quantile_abs(x, 0.25)) if x.shape[0] else 0.0 for x in some]
    typical = float(quantile_abs(y)) if y.shape[0] else 0.0
    return Compared(lower[0], lower[1], typical, chances[0], chances[1])


def n_larger(x: Array, size: float) -> int:
    """How many numbers are larger than `size`, whatever their signs."""
    xp = array_namespace(x)
    return int(xp.count_nonzero(xp.abs(x) > size))


def sizes(y: Array) -> Sizes:
    """The `Sizes` of one or more numbers."""
    xp = array_namespace(y)
    median, quartile = (float(quantile_abs(y, q)) for q in (0.5, 0.25))
    return Sizes(median, quartile, float(xp.mean(xp.abs(y))), float(xp.mean(y * y)))


def largest_squares(x: Array, y: Array) -> np.ndarray:
    """The largest square in each column of two matrices (n, r) and (m, r), one below the other, on the host (r,)."""
    return np.maximum(*(to_numpy(array_namespace(z).max(z * z, axis=0)) for z in (x, y))).astype(np.float64)


def basis_facts(basis: Array, usable: Array) -> BasisFacts:
    """What regressions on a basis need to know of it."""
    xp = array_namespace(basis)
    gram = to_numpy(basis.T @ (basis * usable[:, None]))
    largest = float(xp.max(xp.sum(basis * basis, axis=1))) if basis.shape[0] else 0.0
    return BasisFacts(gram, float(xp.sum(xp.astype(usable > 0, basis.dtype))), largest, int(basis.shape[0]))
