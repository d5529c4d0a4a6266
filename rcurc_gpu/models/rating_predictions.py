"""The result of `complete_ratings`: predictions, intervals, and ratings that the others contradict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, overload

import numpy as np
from scipy.special import ndtri

from ..backends import product_variance
from ..errors import PYTHON, Wording, check_number
from ..judge import Groups, StillMoving, Untied
from ..noise import NoiseModel
from ..result import Result
from ..samples import host_array
from ..summary import Summarised, Summary

# Standard errors of the gain below which it may be chance. Of 150 fits of pure noise 4 came out above 2, none above 2.4.
_CHANCE = 3.0
_AT_ONCE = 1 << 14  # ratings whose covariances are in memory at a time


@dataclass(frozen=True, eq=False, repr=False)
class Ratings(Summarised):
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
        How far each rating is from what the others predict for it, over the noise of its row and column and the doubt about
        the prediction.
    held_out_error, offsets_error : float
        Mean absolute error on ratings held out of the fit, of the prediction and of a fit of offsets alone; each counts at
        most as three times the noise, since some are wrong. NaN if nothing was held out.
    gain_error : float
        Standard error of ``offsets_error - held_out_error``.
    scale : (float, float) or None
        Predictions and intervals are clipped to this interval.
    model : NoiseModel
        Of rows and columns in the order of the matrix, for ratings divided by `unit`.
    unit : float
    factor : float
        By which the model's standard deviations are multiplied to be those of held-out ratings.
    groups : Groups or None
        Groups of rows and columns that the ratings do not tie together: nothing is known of what is between them.
    start : None
        Was the result of `rcurc` with which the fit began. It now begins by itself.
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
    model: NoiseModel = field(repr=False)
    unit: float
    factor: float
    groups: Groups | None = None
    start: Result | None = field(default=None, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)"""
        return len(self.row_offset), len(self.col_offset)

    @property
    def rank(self) -> int:
        """Columns of the factors: those that the ratings need."""
        return int(self.left.shape[1])

    def _summary(self) -> Summary:
        facts = {
            "ratings": f"{len(self.surprise):,} of {self.shape[0]:,} rows for {self.shape[1]:,} columns",
            "components": f"{self.rank}, beside offsets",
            "held-out error": f"{self.held_out_error:.3g}; {self.offsets_error:.3g} with offsets alone",
            "noise": f"{self.noise:.3g}",
            "suspicious": f"{len(self.suspicious()):,} ratings",
        }
        return Summary(facts, self.message, self.converged and self.helps)

    @property
    def helps(self) -> bool:
        """Whether held-out ratings are predicted better than by the offsets alone, by more than chance gives.

        Never without components: two fits of offsets alone differ by next to nothing, always in the same direction.
        """
        return self.rank > 0 and self.offsets_error - self.held_out_error > _CHANCE * self.gain_error

    @property
    def converged(self) -> bool:
        """Whether the fit stands still, and all rows and columns are tied together."""
        return self.model.settled and self.groups is None

    @property
    def message(self) -> str:
        """How good the predictions are, or what is wrong with them."""
        return self.sentence(PYTHON)

    def sentence(self, words: Wording, names: tuple[str, str] = ("rows", "columns")) -> str:
        """The message, with arguments named by `words`, and with other names for rows and columns."""
        if self.groups is not None:
            return Untied(tuple(self.groups.sizes()), names).sentence(words, True)
        if not self.model.settled:
            return StillMoving(self.model.n_sweeps).sentence(words, True)
        if np.isnan(self.held_out_error):
            return "Too few ratings to hold any out: nothing is known of how good predictions are."
        better = "better" if self.helps else "no better, beyond what chance gives,"
        return f"Held-out ratings are predicted {better} than by offsets of {names[0]} and {names[1]} alone."

    @overload
    def predict(self, i: Any, j: Any, return_std: Literal[False] = False) -> np.ndarray: ...
    @overload
    def predict(self, i: Any, j: Any, return_std: Literal[True]) -> tuple[np.ndarray, np.ndarray]: ...
    def predict(self, i: Any, j: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predicted ratings of the rows `i` for the columns `j`, broadcast against each other.

        A row or column without ratings gets the mean and the other's offset.

        Parameters
        ----------
        i, j : integer arrays
        return_std : bool
            Whether to give standard deviations too: how far a new rating, if it is right, is from its prediction. They count
            the doubt about the prediction and the noise, and held-out ratings calibrate them.

        Returns
        -------
        float array, or a pair of them
        """
        i, j = self._places(i, j)
        x = self._unclipped(i, j)
        x = x if self.scale is None else np.clip(x, *self.scale)
        return (x, self._std(i, j)) if return_std else x

    def interval(self, i: Any, j: Any, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Where a new rating is with probability `level` if it is right, within the scale.

        Parameters
        ----------
        i, j : integer arrays
            Broadcast against each other.
        level : float in (0, 1)

        Returns
        -------
        lower, upper : float arrays
        """
        level = check_number("level", level, 0, 1, open_low=True, open_high=True)
        i, j = self._places(i, j)
        x, half = self._unclipped(i, j), float(ndtri(0.5 + 0.5 * level)) * self._std(i, j)
        low, high = (-np.inf, np.inf) if self.scale is None else self.scale
        return np.clip(x - half, low, high), np.clip(x + half, low, high)

    def suspicious(self, level: float = 3.0) -> np.ndarray:
        """Numbers of the ratings whose surprise exceeds `level`, most surprising first."""
        level = check_number("level", level)
        order = np.argsort(-self.surprise, kind="stable")
        return order[: np.count_nonzero(self.surprise > level)]

    def _places(self, i: Any, j: Any) -> tuple[np.ndarray, np.ndarray]:
        i, j = np.broadcast_arrays(_numbers("i", i, self.shape[0]), _numbers("j", j, self.shape[1]))
        return i, j

    def _unclipped(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        x = self.mean + self.row_offset[i] + self.col_offset[j]
        return np.asarray(x + np.einsum("...r,...r->...", self.left[i], self.right[j]))

    def _std(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        doubt, noise = variances(self.model, i.ravel(), j.ravel())
        return np.asarray(self.unit * self.factor * np.sqrt(doubt + noise)).reshape(i.shape)


def variances(model: NoiseModel, i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances of predictions, and squared scales of the noise there."""
    rows, cols = model.rows, model.cols
    doubt = np.empty(len(i))
    for low in range(0, len(i), _AT_ONCE):
        part = slice(low, low + _AT_ONCE)
        u, v = rows.mean[i[part]], cols.mean[j[part]]
        u[:, -1] = v[:, -1] = 1.0
        doubt[part] = product_variance(u, v, rows.covariance[i[part]], cols.covariance[j[part]], True)
    return doubt, model.noise.variance * rows.scale[i] * cols.scale[j]


def _numbers(name: str, index: Any, size: int) -> np.ndarray:
    index = host_array(name, index)
    if index.size and index.dtype.kind not in "iu":
        raise TypeError(
            f"{name} must hold integers, got dtype {index.dtype}; numpy.unique(labels, return_inverse=True) numbers labels"
        )
    if index.size and (index.min() < 0 or index.max() >= size):
        raise ValueError(f"{name} must lie in 0..{size - 1}, got {index[(index < 0) | (index >= size)].flat[0]}")
    return index.astype(np.int64)
