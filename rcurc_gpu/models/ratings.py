"""Ratings: noise as large as what is sought, counts with heavy tails, some ratings wrong.

`rcurc` fits each row and column as if it had enough observations. Most users have few ratings: their fit would be mostly
noise, and has to be shrunk to what is typical. So offsets of rows and columns come first here. `rcurc` on the rest gives the
first factors, and sweeps of shrunk regressions over all ratings finish them. Tuned on MovieLens-100k (docs/ratings.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..backends import Stream, generator
from ..errors import ArgumentError, ArgumentTypeError, check_count, check_number, check_shape, seed_to_int
from ..result import Result
from ..samples import check_finite, float_values, host_array, triplet_index
from .shrink import MAD_TO_SIGMA, ShrunkModel

_OFFSET_ROUNDS = 10  # of weights and offsets before the factors begin; the sweeps go on with both, so it need not be exact
_HUGE = 1e100  # times the typical rating: the squares of larger ones would overflow
_CLIP = 3.0  # standard deviations that a held-out rating counts at most: some held-out ratings are wrong themselves
_CHANCE = 2.0  # standard errors of the gain below which it may be chance; without it pure noise came out barely "better"
_OVERFIT = 2.0  # noise on held-out ratings over that of the fit, from which the fit is of too few ratings to know its noise


@dataclass(frozen=True, eq=False)
class Ratings:
    """The result of `complete_ratings`: mean + row offset + column offset + (left right^T).

    Attributes
    ----------
    mean : float
    row_offset, col_offset : float arrays (n1,), (n2,)
        0 for a row or column without ratings.
    left, right : float arrays (n1, r), (n2, r)
    noise : float
        Scale of the noise: a typical rating is about this far from its prediction.
    surprise : float array (n,)
        How far each rating is from what the others predict for it, over the noise.
    held_out_error, offsets_error : float
        Mean absolute error on ratings held out of the fit, of the prediction and of the offsets alone; each counts at
        most as three times the noise, since some are wrong. NaN if nothing was held out.
    gain_error : float
        Standard error of ``offsets_error - held_out_error``.
    scale : (float, float) or None
        Predictions are clipped to this interval.
    start : Result or None
        Of `rcurc`, with which the sweeps began, for ratings divided by their median; None if the offsets left nothing.
    """

    mean: float
    row_offset: np.ndarray
    col_offset: np.ndarray
    left: np.ndarray
    right: np.ndarray
    noise: float
    surprise: np.ndarray
    held_out_error: float
    offsets_error: float
    gain_error: float
    scale: tuple[float, float] | None
    start: Result | None = field(repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)"""
        return len(self.row_offset), len(self.col_offset)

    @property
    def rank(self) -> int:
        """Columns of the factors; the sweeps shrink those that the ratings do not need to about 0."""
        return int(self.left.shape[1])

    @property
    def helps(self) -> bool:
        """Whether held-out ratings are predicted better than by the offsets alone, by more than chance gives."""
        return self.offsets_error - self.held_out_error > _CHANCE * self.gain_error

    def predict(self, i: Any, j: Any) -> np.ndarray:
        """Predicted ratings of the rows `i` for the columns `j`, broadcast against each other.

        A row or column without ratings gets the mean and the other's offset.
        """
        i, j = np.broadcast_arrays(_numbers("i", i, self.shape[0]), _numbers("j", j, self.shape[1]))
        x = self.mean + self.row_offset[i] + self.col_offset[j] + np.einsum("...r,...r->...", self.left[i], self.right[j])
        return x if self.scale is None else np.clip(x, *self.scale)

    def suspicious(self, level: float = 3.0) -> np.ndarray:
        """Numbers of the ratings whose surprise exceeds `level`, most surprising first."""
        level = check_number("level", level)
        order = np.argsort(-self.surprise, kind="stable")
        return order[: np.count_nonzero(self.surprise > level)]


def complete_ratings(
    i: Any,
    j: Any,
    values: Any,
    shape: tuple[int, int],
    rank: int = 10,
    *,
    scale: tuple[float, float] | None = None,
    sweeps: int = 20,
    holdout: float = 0.03,
    seed: Any = 0,
) -> Ratings:
    """Predict all ratings from some, of which a part is wrong.

    For ratings, where the noise is as large as the signal and most rows have few observations. Where a matrix is of low rank
    up to small noise, `rcurc` is more accurate. Runs on the host.

    Parameters
    ----------
    i, j : integer arrays (n,)
        Row and column (user and item) of each rating.
    values : array (n,)
    shape : (int, int)
    rank : int
        The largest rank; what the ratings do not need is shrunk away.
    scale : (float, float), optional
        Least and greatest possible rating, to which predictions are clipped.
    sweeps : int
        Rounds of regressions over all ratings.
    holdout : float in [0, 0.5]
        Share of the ratings that is kept out of the fit to measure `Ratings.held_out_error`.
    seed : int, None or numpy.random.Generator

    Returns
    -------
    Ratings

    Notes
    -----
    The noise has Student's t distribution, so that ratings far from their prediction count little. Factors and offsets are
    normal with variances that are found with them (variational Bayes). There is nothing to tune.
    """
    n1, n2 = check_shape("shape", shape)
    values = float_values("values", host_array("values", values))
    i, j = triplet_index("i", host_array("i", i), n1, values), triplet_index("j", host_array("j", j), n2, values)
    if len(values) == 0:
        raise ValueError("values is empty: there are no ratings")
    check_finite("values", values)
    values = values.astype(np.float64)
    rank, sweeps = check_count("rank", rank), check_count("sweeps", sweeps)
    scale = None if scale is None else _check_scale(scale)
    seed = seed_to_int(seed)
    # The order matters: held-out ratings are chosen before anything is fitted, and offsets come before factors.
    held = generator(seed, Stream.RATINGS).random(len(values)) < check_number("holdout", holdout, 0, 0.5)
    if held.all():
        held[:] = False

    size = float(np.median(np.abs(values[values != 0]))) if values.any() else 1.0
    values = np.clip(values / size, -_HUGE, _HUGE)
    model = ShrunkModel(i[~held], j[~held], values[~held], (n1, n2))
    for _ in range(_OFFSET_ROUNDS):
        model.weigh()
        model.fit_offsets()
    offsets = model.offsets_at(i[held], j[held])
    start = model.begin(rank, seed)
    for _ in range(sweeps):
        model.weigh()
        model.fit_offsets()
        model.fit_factors()
    model.weigh()
    surprise = np.empty(len(values))
    surprise[~held] = model.surprise()
    predicted = model.predict(i[held], j[held])
    surprise[held] = np.abs(values[held] - predicted) / model.noise
    # A fit of few ratings leaves next to no residuals; held-out ratings show the noise.
    spread = [MAD_TO_SIGMA * float(np.median(np.abs(values[held] - x))) for x in (predicted, offsets) if held.any()]
    noise = spread[0] if spread and spread[0] > _OVERFIT * model.noise else model.noise
    surprise *= model.noise / noise

    errors = [size * np.minimum(np.abs(values[held] - x), _CLIP * max([noise, *spread])) for x in (predicted, offsets)]
    held_out_error, offsets_error = (float(np.mean(x)) if held.any() else float("nan") for x in errors)
    # both errors are of the same ratings, so their difference has a smaller error than each
    gain_error = float(np.std(errors[1] - errors[0]) / np.sqrt(np.count_nonzero(held))) if held.any() else float("nan")

    return Ratings(
        mean=size * model.mean,
        row_offset=size * model.offsets[0],
        col_offset=size * model.offsets[1],
        left=size * model.factors[0].mean,
        right=model.factors[1].mean,
        noise=size * noise,
        surprise=surprise,
        held_out_error=held_out_error,
        offsets_error=offsets_error,
        gain_error=gain_error,
        scale=scale,
        start=start,
    )


def _check_scale(scale: Any) -> tuple[float, float]:
    try:
        low, high = (float(x) for x in scale)
    except (TypeError, ValueError):
        raise ArgumentTypeError("scale", f"must be a pair of numbers (least, greatest), got {scale!r}") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise ArgumentError("scale", f"must be a pair of numbers (least, greatest), got {scale!r}")
    return low, high


def _numbers(name: str, index: Any, size: int) -> np.ndarray:
    index = host_array(name, index)
    if index.size and index.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold integers, got dtype {index.dtype}")
    if index.size and (index.min() < 0 or index.max() >= size):
        raise ValueError(f"{name} must lie in 0..{size - 1}, got {index[(index < 0) | (index >= size)].flat[0]}")
    return index.astype(np.int64)
