"""What a solve found, in memory and in files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..backends.arrays import Array, array_namespace, asarray_on, native, to_numpy
from ..core.history import IterationState
from ..errors import ArgumentError
from ..extend.diagnostics import OK, UnitDiagnostics
from ..judge.groups import Groups
from ..summary import Summarised, Summary, size_words
from .matrix import CURMatrix, refuse_dask
from .uncertainty import check_level


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Outcome(Summarised):
    """What a solve found: in memory a `Result`, which says what the fields mean, in a file an `io.Completion`."""

    cur: CURMatrix
    converged: bool
    message: str
    cause: str
    history: list[IterationState]
    columns: UnitDiagnostics
    rows: UnitDiagnostics
    noise: float
    threshold: float
    expected_error: float
    method: str
    device: str
    kernels: str
    seconds: float
    prediction_error: float = float("nan")
    noise_strengths: np.ndarray | None = None
    groups: Groups | None = None

    @cached_property
    def native_cur(self) -> CURMatrix:
        """`cur` with NumPy or CuPy factors on the same memory, for kernels, where its own are of another library."""
        return self.cur.mapped(native)

    @property
    def n_iter(self) -> int:
        """Iterations of the core."""
        return len(self.history)

    @property
    def has_noise_model(self) -> bool:
        """Whether the noise model made the result: there is noise, and the model was not turned off."""
        return self.noise_strengths is not None

    @cached_property
    def strengths(self) -> np.ndarray:
        """Standard deviation of what each component adds to an entry, largest first, on the host (r,).

        Offsets of rows and columns are not counted. Without noise these are singular values over the root of the number of
        entries; rows and columns that could not be determined are left out.
        """
        if self.noise_strengths is not None:
            return self.noise_strengths
        refuse_dask(self.cur)
        xp = array_namespace(self.cur.left)
        sizes = [int(xp.sum(xp.astype(xp.isfinite(f[:, 0]), xp.int64))) for f in (self.cur.left, self.cur.right)]
        return np.asarray(self.cur.singular_values() / max(math.prod(sizes), 1) ** 0.5)

    @property
    def typical_size(self) -> float:
        """Root mean square of the entries of the components; without noise, of the matrix."""
        return math.hypot(*self.strengths.tolist())

    @property
    def rank_curve(self) -> np.ndarray:
        """Another name of `strengths`: what speaks for the rank that was chosen."""
        return self.strengths

    @property
    def rank(self) -> int:
        """Components of the recovered matrix; offsets are not counted."""
        return self.cur.rank if self.noise_strengths is None else len(self.noise_strengths)

    def _summary(self) -> Summary:
        offsets = " beside offsets" if self.has_noise_model and self.cur.rank > self.rank else ""
        facts = {
            "matrix": f"{size_words(self.cur.shape)}, rank {self.rank}{offsets}, {self.cur.dtype}",
            "expected error": f"{self.expected_error:.2g} (relative), {self.prediction_error:.2g} for new observations",
            "noise": f"{self.noise:.3g}; observations further off than {self.threshold:.3g} are outliers",
        }
        lost = [units.n_undetermined for units in (self.rows, self.columns)]
        if None not in lost:  # those on a cluster would have to be fetched
            facts["undetermined"] = (
                f"{lost[0]:,} of {self.cur.shape[0]:,} rows, {lost[1]:,} of {self.cur.shape[1]:,} columns"
            )
        facts["solved"] = f"{self.seconds:.2f} s on {self.device}, {self.n_iter} iterations, kernels: {self.kernels}"
        return Summary(facts, self.message, bool(self.converged))

    def check_sigma(self, used: bool = True) -> None:
        """Refuse a `sigma` where there is nothing to compare it with."""
        if not used:
            raise ArgumentError("sigma", "is for new=True: the matrix itself has no noise")
        known = self.cur.uncertainty
        if self.has_noise_model and (known is None or known.sigma is None):
            raise ArgumentError("sigma", "is for results of samples with sigma, solved with intervals=True")

    def interval(self, i: Any, j: Any, level: float = 0.95, *, new: bool = True, sigma: Any = None) -> tuple[Array, Array]:
        """Intervals that hold entries with a probability.

        Parameters
        ----------
        i, j : integers or integer arrays, broadcast against each other
        level : float in (0, 1)
            The probability.
        new : bool
            Whether of a new observation of the entry, noise included, or of the matrix itself. Outliers are not included.
        sigma : float or array, optional
            Standard deviation of the noise of the new observation, in the unit of the `sigma` of the samples; by default
            the median one of these. Only for samples that have it.

        Returns
        -------
        lower, upper : float arrays
            Held-out entries calibrated them. Without noise, from `expected_error`, the same width everywhere but between
            `groups`, where it is that of entries of which nothing is known, and where a row or column could not be
            determined: there it is as wide as others differ.
        """
        refuse_dask(self.cur)
        level = check_level(level)
        known = self.cur.uncertainty
        middle = self.cur.entries(i, j)
        if sigma is not None:
            self.check_sigma(new)
        if known is not None:
            matrix, noise = (x / known.factor**2 for x in self.cur.relative_variances(i, j))
            if sigma is not None:
                noise = noise * known.coarseness(sigma, middle) ** 2
            half = known.half_width(matrix / known.widening, noise if new else None, level)
        elif self.has_noise_model:
            raise ValueError("intervals were not kept; solve with intervals=True")
        else:
            deviations = float(ndtri(0.5 + 0.5 * level))
            half = deviations * self._deviations(i, j, middle, new)
        return middle - half, middle + half

    def _deviations(self, i: Any, j: Any, middle: Array, new: bool) -> Array:
        """Standard deviations of the entries (i[k], j[k]), which are `middle`, where there is no noise model."""
        xp, noise = array_namespace(middle), self.noise if new else 0.0
        size = self.typical_size
        half = xp.full_like(middle, math.hypot(self.expected_error * size, noise))
        places = (self.cur._index(name, x, axis) for axis, (name, x) in enumerate((("i", i), ("j", j))))
        rows, cols = np.broadcast_arrays(*map(to_numpy, places))
        if self.groups is not None:
            # between groups the entry may be anything of the size of the others, whatever was recovered there
            apart = asarray_on(self.groups.apart_at(rows, cols).astype(np.float64), middle, middle.dtype)
            size = max(size, np.finfo(float).tiny)
            half = half + apart * (size * (1 + (middle / size) ** 2) ** 0.5)
        lost = self._guessed(rows, cols)
        if lost.any():
            least = np.hypot(self._spread(rows.reshape(-1), cols.reshape(-1)).reshape(rows.shape), noise)
            half = xp.maximum(half, asarray_on(np.where(lost, least, 0.0), middle, middle.dtype))
        return half

    def _guessed(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Whether the row or column of each entry is not determined by its observations."""
        return (self.rows.status[i] != OK) | (self.columns.status[j] != OK)

    def _spread(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """How far entries would be from their values if undetermined rows and columns were like any other (k,).

        The root mean square over all determined rows in the place of row i, and columns in that of column j; 0 where both
        are determined.
        """
        lost_row, lost_col = self.rows.status[i] != OK, self.columns.status[j] != OK
        if not (lost_row.any() or lost_col.any()):
            return np.zeros(len(i))
        # in this unit squares neither overflow nor vanish; the right factor alone carries the unit of the data
        unit = self.typical_size or 1.0
        factors = (to_numpy(self.cur.left), to_numpy(self.cur.right) / unit)
        (mean_l, cov_l), (mean_r, cov_r) = (
            _moments(x, units) for x, units in zip(factors, (self.rows, self.columns), strict=True)
        )
        left, right = (np.asarray(x[at], dtype=np.float64) for x, at in zip(factors, (i, j), strict=True))
        value = np.sum(left * right, axis=1)
        left, right = np.where(lost_row[:, None], mean_l, left), np.where(lost_col[:, None], mean_r, right)
        square = (np.sum(left * right, axis=1) - value) ** 2
        square += lost_row * np.sum((right @ cov_l) * right, axis=1) + lost_col * np.sum((left @ cov_r) * left, axis=1)
        return unit * np.sqrt(square + (lost_row & lost_col) * np.sum(cov_l * cov_r))


def _moments(factor: np.ndarray, units: UnitDiagnostics) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the determined rows of a factor; of all if none is."""
    good = factor[units.status == OK] if (units.status == OK).any() else factor
    good = np.asarray(good[np.isfinite(good).all(axis=1)], dtype=np.float64)
    if len(good) == 0:
        return np.zeros(factor.shape[1]), np.zeros((factor.shape[1],) * 2)
    mean = good.mean(axis=0)
    return mean, (good - mean).T @ (good - mean) / len(good)
