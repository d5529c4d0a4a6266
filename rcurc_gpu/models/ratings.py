"""Ratings: noise as large as what is sought, counts with heavy tails, some ratings wrong.

A front of the noise model, for lists of ratings: all rows and columns are chosen, so it is fitted to all ratings at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..backends import MAD_TO_SIGMA, Block, Stream, choose, generator
from ..errors import (
    ArgumentError,
    ArgumentTypeError,
    check_count,
    check_number,
    check_shape,
    seed_to_int,
)
from ..judge import Groups, model_ties
from ..noise import Group, NoiseForm, NoiseModel, Part, fit_noise
from ..options import Settings
from ..samples import check_finite, float_values, host_array, triplet_index
from .rating_predictions import Ratings, variances

# Degrees of freedom of the noise: on a scale wrong ratings are hardly further off than right ones are, so the likelihood
# takes them for noise and chooses 30. On MovieLens-100k, 6 instead of 4, 8 or 30 is a compromise: 4 is worse by 0.003 (RMSE)
# where all ratings are right, 8 by 0.002 where a tenth is turned round. Scales of the noise of single users, who have some
# hundred ratings, are drawn to that of all by 500: with 50 or without limit the error is larger by 0.001 to 0.002.
_FORM = NoiseForm(tails=(6.0,), pool=500.0, by_size=False)
# Times the typical rating: larger ones are cut off. The noise model takes numbers of 1e-15 of the data's for rounding, and
# squares of larger ones would make rounding of all others.
_HUGE = 1e6
_CLIP = 3.0  # standard deviations that a held-out rating counts at most: some held-out ratings are wrong themselves
_OVERFIT = 2.0  # noise on held-out ratings over that of the fit, from which the fit is of too few ratings to know its noise
_ENOUGH_HELD = 30  # held-out ratings with which their spread says more than the model: it is then known to an eighth
_ROUNDS = 100  # of the spread of held-out ratings and the share of wrong ones; after 50 both stand still to 1e-3


def complete_ratings(
    i: Any,
    j: Any,
    values: Any,
    shape: tuple[int, int],
    rank: int = 10,
    *,
    scale: tuple[float, float] | None = None,
    sweeps: int | None = None,
    holdout: float = 0.03,
    seed: Any = 0,
) -> Ratings:
    """Predict all ratings from some, of which a part is wrong.

    For ratings, where the noise is as large as the signal and most rows have few observations. Where a matrix is of low rank
    up to small noise, `rcurc` is more accurate. Runs on the host.

    Parameters
    ----------
    i, j : integer arrays (n,)
        Row and column (user and item) of each rating. Of ratings of the same pair the median is taken.
    values : array (n,)
    shape : (int, int)
    rank : int
        The largest rank; what the ratings do not need is left out.
    scale : (float, float), optional
        Least and greatest possible rating, to which predictions and intervals are clipped.
    sweeps : int, optional
        Rounds of regressions over all ratings, at most; by default until they change hardly anything.
    holdout : float in [0, 0.5]
        Share of the ratings that is kept out of the fit to measure `Ratings.held_out_error` and to calibrate intervals.
    seed : int, None or numpy.random.Generator

    Returns
    -------
    Ratings

    Notes
    -----
    The noise has Student's t distribution, mixed with a few outliers that may be anything, so that ratings far from their
    prediction count little. Factors and offsets are normal with variances that are found with them (variational Bayes).
    There is nothing to tune.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> made = rg.synthetic_ratings((200, 300), n=12_000, seed=0)
    >>> found = rg.complete_ratings(made.i, made.j, made.values, made.shape, scale=(1, 5))
    >>> found.predict([0, 0, 1], [5, 6, 5]).shape  # users 0, 0 and 1 for items 5, 6 and 5
    (3,)
    >>> lower, upper = found.interval(7, [5, 6])  # where a new rating of user 7 would be
    >>> found.suspicious()[:3].shape  # ratings that the others contradict, worst first
    (3,)
    """
    n1, n2 = check_shape("shape", shape)
    values = float_values("values", host_array("values", values))
    i, j = triplet_index("i", host_array("i", i), n1, values), triplet_index("j", host_array("j", j), n2, values)
    if len(values) == 0:
        raise ValueError("values is empty: there are no ratings")
    check_finite("values", values)
    i, j, values = i.astype(np.int64), j.astype(np.int64), values.astype(np.float64)
    rank = check_count("rank", rank)
    scale = None if scale is None else _check_scale(scale)
    seed = seed_to_int(seed)
    settings = Settings(
        sweeps=None if sweeps is None else check_count("sweeps", sweeps), holdout=0.0, offsets=True, seed=seed
    )
    held = generator(seed, Stream.RATINGS).random(len(values)) < check_number("holdout", holdout, 0, 0.5)
    if held.all():
        held[:] = False

    unit = float(np.median(np.abs(values[values != 0]))) if values.any() else 1.0
    values = np.clip(values / unit, -_HUGE, _HUGE)
    part = _part_of(i[~held], j[~held], values[~held], (n1, n2))
    model, offsets = (_fitted(part, most, settings) for most in (rank, 0))
    groups = model_ties(part, model, choose("auto", np.empty(0)), settings.seed).groups
    if groups is not None:
        groups = Groups(_labels(groups.rows, part.row_ids, n1), _labels(groups.columns, part.col_ids, n2))
    model, offsets = (_everywhere_of(x, part, (n1, n2)) for x in (model, offsets))
    return replace(_result(model, offsets, (i, j, values, held), unit, scale), groups=groups)


def _labels(known: np.ndarray, ids: np.ndarray, n: int) -> np.ndarray:
    """The groups of `n` units, of which `ids` are known; -1 of the others."""
    labels = np.full(n, -1)
    labels[ids] = known
    return labels


def _part_of(i: np.ndarray, j: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> Part:
    """All rows and columns with ratings; of several ratings of a pair the median."""
    key = i * shape[1] + j
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    if len(first) < len(key):
        order = np.lexsort((values, key))
    key, ordered, count = key[order][first], values[order], np.diff(first, append=len(key))
    y = 0.5 * (ordered[first + (count - 1) // 2] + ordered[first + count // 2])
    (rows, row), (cols, col) = (_numbered(*x) for x in zip(np.divmod(key, shape[1]), shape, strict=True))
    indptr = np.append(0, np.cumsum(np.bincount(row))).astype(np.int64)
    inside = Block(indptr, col.astype(np.int32), y, len(cols))

    def empty(length: int) -> Block:
        return Block(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0), length)

    return Part(inside, empty(len(rows)), empty(len(cols)), rows, cols)


def _numbered(units: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Which of `n` units there are, ascending, and the place of each of the `units` among them."""
    there = np.zeros(n, dtype=bool)
    there[units] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[units]


def _fitted(part: Part, most: int, settings: Settings) -> NoiseModel:
    """The noise model with at most `most` components."""
    return fit_noise(part, most, settings, choose("auto", np.empty(0)), form=_FORM)


def _everywhere_of(model: NoiseModel, part: Part, shape: tuple[int, int]) -> NoiseModel:
    """A model of all rows and columns of the matrix; those without ratings are typical."""
    sides = ((model.rows, model.row_precision, part.row_ids), (model.cols, model.col_precision, part.col_ids))
    rows, cols = (Group.typical(prior, n).put(ids, known) for (known, prior, ids), n in zip(sides, shape, strict=True))
    return replace(model, rows=rows, cols=cols)


def _predicted(model: NoiseModel, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    rows, cols = model.rows.mean, model.cols.mean
    x = np.einsum("nk,nk->n", rows[i, :-1], cols[j, :-1])
    return np.asarray(model.centre + rows[i, -1] + cols[j, -1] + x)


def _result(
    model: NoiseModel,
    offsets: NoiseModel,
    ratings: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    unit: float,
    scale: tuple[float, float] | None,
) -> Ratings:
    """What comes out; `ratings` are rows, columns, values over the unit, and which of them were held out."""
    i, j, values, held = ratings
    residual = values - _predicted(model, i, j)
    doubt, local = variances(model, i, j)
    nu, sigma = model.noise.tail, model.noise.variance**0.5
    # Without held-out ratings the standard deviation is that of Student's t.
    factor = (nu / (nu - 2)) ** 0.5
    if np.count_nonzero(held) >= _ENOUGH_HELD:
        factor = _calibrated(residual[held], np.sqrt(doubt + local)[held], 2 * float(np.ptp(values)) or 1.0)

    # Each without its own influence on its prediction: at most 0.9, since a rating that alone determines its row would be
    # divided by about 0. Those held out have none.
    weight = (nu + 1) / (nu + (residual**2 + doubt) / local)
    others = np.where(held, 1.0, 1 - np.minimum(weight * doubt / local, 0.9))
    surprise = np.abs(residual) / others / np.sqrt(local + doubt / others)
    alone = values[held] - _predicted(offsets, i[held], j[held])
    # A fit of few ratings leaves next to no residuals; held-out ratings show the noise.
    spread = [MAD_TO_SIGMA * float(np.median(np.abs(x))) for x in (residual[held], alone) if held.any()]
    noise = spread[0] if spread and spread[0] > _OVERFIT * sigma else sigma

    errors = [unit * np.minimum(np.abs(x), _CLIP * max([noise, *spread])) for x in (residual[held], alone)]
    held_out_error, offsets_error = (float(np.mean(x)) if held.any() else float("nan") for x in errors)
    # both errors are of the same ratings, so their difference has a smaller error than each
    gain_error = float(np.std(errors[1] - errors[0]) / np.sqrt(np.count_nonzero(held))) if held.any() else float("nan")

    return Ratings(
        mean=unit * model.centre,
        row_offset=unit * model.rows.mean[:, -1],
        col_offset=unit * model.cols.mean[:, -1],
        left=unit * model.rows.mean[:, :-1],
        right=model.cols.mean[:, :-1],
        noise=unit * noise,
        surprise=surprise * sigma / noise,
        held_out_error=held_out_error,
        offsets_error=offsets_error,
        gain_error=gain_error,
        scale=scale,
        model=model,
        unit=unit,
        factor=factor,
    )


def _calibrated(residual: np.ndarray, std: np.ndarray, span: float) -> float:
    """By which factor standard deviations of held-out ratings are right, if a few of these are wrong.

    Right ratings are normal with `factor` times these standard deviations, wrong ones anywhere in an interval of length
    `span`; the most likely factor. Student's t would take wrong ratings for noise: where a tenth of MovieLens-100k is
    replaced at random, 95 % intervals then cover 98 % of the right ones.
    """
    square = (residual / np.maximum(std, np.finfo(float).tiny)) ** 2
    factor, share = 1.0, 0.05
    for _ in range(_ROUNDS):
        density = np.exp(-0.5 * square / factor**2) / (np.sqrt(2 * np.pi) * factor * std)
        right = (1 - share) * density / np.maximum((1 - share) * density + share / span, np.finfo(float).tiny)
        if not right.any():
            break
        share = 1 - float(np.mean(right))
        factor = max(float(np.average(square, weights=right)) ** 0.5, np.finfo(float).eps)
    return factor


def _check_scale(scale: Any) -> tuple[float, float]:
    try:
        low, high = (float(x) for x in scale)
    except (TypeError, ValueError):
        raise ArgumentTypeError("scale", f"must be a pair of numbers (least, greatest), got {scale!r}") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise ArgumentError("scale", f"must be a pair of numbers (least, greatest), got {scale!r}")
    return low, high
