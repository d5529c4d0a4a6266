"""What else a row or column with few observations may be.

Mean field finds one solution for a row, and the noise says how exactly. Where a row has hardly more right observations than
unknowns, other solutions explain it about as well, with other observations taken for outliers: of six, any four may fit.
Which one is found is chance, and the covariance knows nothing of it. So such rows are begun at subsets of their
observations; what these come to is weighted by how likely it is, and mean and covariance are those of the mixture. The same
for columns.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..backends.arrays import Array, asarray_on, diagonal, gather, to_numpy, triangle, unpacking
from ..backends.blocks import Block
from ..backends.plain.posterior import Fit, Model
from ..backends.random import PositionStream, uniform_at
from .run import run_posterior

if TYPE_CHECKING:
    from ..backends.kernels import RunContext

# Subsets of observations to begin at: of a tenth of outliers, half of those of six have none, and one in six of those of
# eight has none where there are a fifth.
_SUBSETS = 16
_FEW = 8  # inliers more than unknowns, from which nothing else is likely: so many do not agree by chance
_TELLS = 4.0  # size of an entry over the noise, below which a wrong observation hardly matters
_NO_OUTLIERS = 1e-6  # share of the outliers, below which there are none
# Share of rows of which half of the observations are wrong. The share of all says what is usual; beside 1 % of outliers, any
# solution with which a few of them happen to agree would be likelier than eight in one row.
_BROKEN = 0.01
_CERTAIN = 0.999  # probability of what was found, from which it is left as it is
_APART = 2.0  # standard deviations by which predictions of two solutions differ, if they are not the same
_STEPS = (1.0, 1.0, 1.0)
_AT_ONCE = 4096  # units: their modes are in memory together


class Found(NamedTuple):
    """Mean (n, K), packed covariance (n, P) and table (n, len(Fit)) of units."""

    mean: Array
    covariance: Array
    table: np.ndarray


def with_modes(
    run: RunContext,
    block: Block,
    weight: Array | None,
    units: np.ndarray,
    ids: np.ndarray,
    model: Model,
    scale: Array,
    found: Found,
) -> Found:
    """`found`, with mixtures for units that may be something else.

    Parameters
    ----------
    run, block, weight, model
        As for `run_posterior`.
    units, ids : int64 arrays (n,)
        Numbers of the units in the block, ascending, and in the matrix.
    scale : float array (n,)
        Of their squared noise.
    found : Found
    """
    thin = np.flatnonzero(_thin(found.table, model))
    if len(thin) == 0:
        return found
    mean, covariance, scales = (to_numpy(x) for x in (found.mean, found.covariance, scale))
    mean, covariance, table = mean.copy(), covariance.copy(), found.table.copy()
    for low in range(0, len(thin), _AT_ONCE):
        at = thin[low : low + _AT_ONCE]
        some = block.take_units(units[at])
        given = None if weight is None else _taken(weight, block, some, units[at])
        now = Found(mean[at], covariance[at], table[at])
        mixed, new = _mixture(_modes(run, some, given, ids[at], model, scales[at], now), model)
        at = at[mixed]
        mean[at], covariance[at], table[at] = (x[mixed] for x in new)
    return Found(asarray_on(mean, found.mean), asarray_on(covariance, found.covariance), table)


def _thin(table: np.ndarray, model: Model) -> np.ndarray:
    """Units that may be something else (n,)."""
    n_in, n_fit = table[:, Fit.N_INLIERS], table[:, Fit.N_FIT]
    matters = model.noise.share > _NO_OUTLIERS and _size(model) > _TELLS
    return (n_in < int(model.at.x.shape[1]) + _FEW) & (n_fit > 0) & matters


def _size(model: Model) -> float:
    """Standard deviation of an entry by the prior over that of the noise."""
    squares = to_numpy(model.at.second)[:, diagonal(int(model.at.x.shape[1]))]
    if len(squares) == 0:
        return 0.0
    return float(np.sum(squares.mean(axis=0) / to_numpy(model.precision)) / model.noise.variance) ** 0.5


def _gram(model: Model) -> np.ndarray:
    """Mean products of what units are regressed on (K, K): they turn coefficients into the square of a prediction."""
    return np.asarray(to_numpy(model.at.second).mean(axis=0)[unpacking(int(model.at.x.shape[1]))])


def _taken(weight: Array, block: Block, some: Block, units: np.ndarray) -> Array:
    """The weights of the observations of some units of a block."""
    starts = np.repeat(block.host_indptr[:-1][units] - some.host_indptr[:-1], some.counts)
    return gather(weight, asarray_on(starts + np.arange(some.n_obs), weight))


def _modes(
    run: RunContext, block: Block, given: Array | None, ids: np.ndarray, model: Model, scale: np.ndarray, found: Found
) -> list[Found]:
    """What all units of a block come to, from what was `found` (the first), from their prior, and from subsets."""
    like, here = model.at.x, np.arange(block.n_units)
    k = int(like.shape[1])
    own = asarray_on(scale, like)

    def fitted(given: Array | None, mean: Array, covariance: Array, *heats: float) -> tuple[Array, Array, Array]:
        start = asarray_on(mean, like), asarray_on(covariance, like), own
        return run_posterior(run, block, given, here, model, start, heats, measure=True)

    prior = np.zeros((len(here), k)), np.zeros((len(here), len(triangle(k)[0])))
    heat = _size(model)
    nothing = asarray_on(np.zeros((len(here), k)), like), asarray_on(_typical(model, len(here)), like)
    modes = [fitted(given, found.mean, found.covariance), fitted(given, *nothing), fitted(given, *prior, heat, *_STEPS)]
    precision = np.ones(block.n_obs) if given is None else to_numpy(given).astype(np.float64)
    unit = np.repeat(here, block.counts)
    enough = np.minimum(np.bincount(unit, precision > 0, len(here)) - 1, k)[unit]
    places = unit, ids[unit], to_numpy(block.index).astype(np.int64)
    for number in range(_SUBSETS):
        # one less than there are unknowns, every other time: what is left to the prior may be what is right
        chosen = _order(*places, precision > 0, number) < np.maximum(enough - number % 2, 1)
        mean, covariance, _ = fitted(asarray_on(np.where(chosen, precision, 0.0), like), *prior, heat)
        modes.append(fitted(given, mean, covariance, *_STEPS))
    return [Found(*(to_numpy(x) for x in mode)) for mode in modes]


def _order(unit: np.ndarray, ids: np.ndarray, index: np.ndarray, there: np.ndarray, number: int) -> np.ndarray:
    """Places of observations in a random order, unit by unit; those that are not `there` are last."""
    key = np.where(there, uniform_at(ids, index, number, PositionStream.MODE), 2.0)
    order = np.lexsort((key, unit))
    place = np.empty(len(unit), dtype=np.int64)
    place[order] = np.arange(len(unit)) - np.searchsorted(unit, unit)
    return place


def _typical(model: Model, n: int) -> np.ndarray:
    """Packed covariances (n, P) of the prior."""
    k = int(model.at.x.shape[1])
    packed = np.zeros((n, len(triangle(k)[0])))
    packed[:, diagonal(k)] = 1 / to_numpy(model.precision)
    return packed


def _mixture(modes: list[Found], model: Model) -> tuple[np.ndarray, Found]:
    """For each unit whether it is a mixture (n,), and its mean, covariance, and the table of the most likely mode.

    The first of the modes is what was found before. How likely one is, its observations say, by Laplace's approximation.
    """
    gram = _gram(model)
    q, p = triangle(len(gram))
    means, packed, tables = (np.stack(x) for x in zip(*modes, strict=True))
    full = packed[:, :, unpacking(len(gram))]
    with np.errstate(all="ignore"):
        odds = tables[:, :, Fit.OBJECTIVE] + 0.5 * np.linalg.slogdet(full)[1] + _if_broken(tables, model.noise.share)
    odds = np.where(np.isfinite(odds), odds, -np.inf)
    doubt = np.einsum("bnkl,kl->bn", full, gram)  # of a prediction, squared

    def apart(a: int, b: int) -> np.ndarray:
        way = means[a] - means[b]
        return np.asarray(np.einsum("nk,kl,nl->n", way, gram, way) > _APART**2 * (doubt[a] + doubt[b]))

    for a, b in combinations(range(len(modes)), 2):  # what was reached twice counts once
        less = np.where(odds[b] > odds[a], a, b)
        again = np.flatnonzero(~apart(a, b))
        odds[less[again], again] = -np.inf
    here = np.arange(odds.shape[1])
    best = np.argmax(odds, axis=0)
    with np.errstate(invalid="ignore"):
        share = np.exp(odds - odds[best, here])
        share /= np.sum(share, axis=0)
    off = means - (mean := np.einsum("bn,bnk->nk", share, means))
    covariance = np.einsum("bn,bnp->np", share, packed + off[:, :, q] * off[:, :, p])
    moved = np.choose(best, [np.zeros(len(here), dtype=bool), *(apart(0, b) for b in range(1, len(modes)))])
    mixed = np.isfinite(odds[best, here]) & (moved | (share[best, here] < _CERTAIN))
    return mixed, Found(mean, covariance, tables[best, here])


def _if_broken(tables: np.ndarray, share: float) -> np.ndarray:
    """What is added to the log-likelihood of units if some of them are broken."""
    n, n_in = tables[:, :, Fit.N_FIT], tables[:, :, Fit.N_INLIERS]
    usual = (n - n_in) * np.log(share) + n_in * np.log1p(-share)
    return np.asarray(np.logaddexp(np.log1p(-_BROKEN), np.log(_BROKEN) - n * np.log(2.0) - usual))
