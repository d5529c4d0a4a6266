"""How the noise depends on the size of the recovered value, from residuals: more ways than the noise model knows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from ..backends.arrays import Array, array_namespace, asarray_on, gather

_RATIO = 1.25  # between the sizes of neighbouring classes: ten of them for a digit
_N_CLASSES = 60  # down to 1e-6 of the largest; all that is smaller is one class
_FEW = 10  # observations of a class, below which it is one with the next smaller one


@dataclass(frozen=True, eq=False)
class NoiseBySize:
    """How the noise depends on the size of the recovered value.

    Attributes
    ----------
    edges : float64 array (c - 1,)
        Sizes that separate the classes, ascending.
    factors : float64 array (c,)
        Of the scale of the noise in each class.
    """

    edges: np.ndarray
    factors: np.ndarray

    def at(self, fitted: Array) -> Array:
        """The factors of some values (k,)."""
        xp = array_namespace(fitted)
        size = xp.abs(xp.astype(fitted, xp.float64))
        return gather(asarray_on(self.factors, size), xp.searchsorted(asarray_on(self.edges, size), size, side="right"))


def noise_by_size(size: np.ndarray, score: np.ndarray, wide: float, tail: float, least: float, pool: float) -> NoiseBySize:
    """How the noise depends on the size of the values.

    Parameters
    ----------
    size, score : float arrays (k,)
        Of the recovered values, and of the residuals over the scale of the noise.
    wide : float
        Scores beyond this are outliers for sure.
    tail : float
        Degrees of freedom of the noise.
    least : float
        The smallest factor.
    pool : float
        Observations by which the squared factor of a class is drawn to 1.
    """
    largest = float(size.max()) if len(size) else 0.0
    edges = largest * _RATIO ** np.arange(-float(_N_CLASSES), 0.0)
    if not edges[:1].all():  # no size at all, or one that vanishes
        return NoiseBySize(np.zeros(0), np.maximum(np.ones(1), least))
    taken = score < wide
    middle = float(stdtrit(tail, 0.75))
    if least >= 1 and pool == 0 and np.count_nonzero(score[taken] > middle) < _FEW // 2:  # no class has a larger median
        return NoiseBySize(np.zeros(0), np.full(1, least))
    number, score = np.searchsorted(edges, size[taken], side="right"), score[taken]
    factors = np.full(len(edges) + 1, np.nan)
    rest = np.zeros(0)
    for k in range(len(factors)):
        here = np.concatenate([rest, score[number == k]])
        if len(here) < _FEW:
            rest = here
            continue
        factors[k], rest = _robust_scale(here, middle), np.zeros(0)
        factors[k] = math.sqrt((pool + len(here) * factors[k] ** 2) / (pool + len(here)))
    return NoiseBySize(edges, np.maximum(_next_to(_filled(factors)), least))


def _robust_scale(score: np.ndarray, middle: float) -> float:
    """Median over that of noise of scale 1, without what it makes improbable: outliers shift the median of all."""
    scale = float(np.median(score)) / middle
    for _ in range(3):
        inner = score[score <= 6 * scale]
        if len(inner) == 0:
            break
        scale = float(np.median(inner)) / middle
    return scale


def _filled(factors: np.ndarray) -> np.ndarray:
    """Classes without observations take the factor of the next smaller class, the smallest ones that of the first known."""
    known = np.flatnonzero(~np.isnan(factors))
    if len(known) == 0:
        return np.ones_like(factors)
    place = np.searchsorted(known, np.arange(len(factors)), side="right") - 1
    return factors[known[np.maximum(place, 0)]]


def _next_to(factors: np.ndarray) -> np.ndarray:
    """The largest of each class and its neighbours: rounding to digits jumps within a class."""
    padded = np.concatenate([factors[:1], factors, factors[-1:]])
    return np.max([padded[:-2], padded[1:-1], padded[2:]], axis=0)
