"""Offsets and factors of a matrix whose noise is as large as its entries: regressions shrunk to what is typical.

Variational Bayes: normal priors with variances from the data, Student-t noise, covariances carried along. A prototype of
such a model was better than unshrunk regressions on 19 of 20 tasks with real matrices.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse

from ..api import rcurc
from ..errors import ConvergenceWarning
from ..result import Result
from ..samples import CrossSamples

MAD_TO_SIGMA = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
# Degrees of freedom of the noise (Student's t): how much heavier its tails are than the normal ones. 4 was best all in all
# in a prototype on real matrices: with 2 intervals were too narrow, with 8 outliers leaked in.
_TAIL = 4.0
# Ratings this many standard deviations from their prediction do not count at all; the t distribution alone would still give
# them an eighth of their weight.
_CUT = 6.0
_AT_ONCE = 1 << 14  # ratings whose second moments (r^2 numbers each) are in memory at a time


class ShrunkFactor:
    """One factor: mean (n, r) and second moment (n, r * r) of the coefficients of every unit."""

    def __init__(self, mean: np.ndarray) -> None:
        self.mean = mean
        self.second = (mean[:, :, None] * mean[:, None, :]).reshape(len(mean), -1)

    def fit(self, weight: Any, weighted: Any, other: ShrunkFactor, noise: float) -> None:
        """Regress every unit on the `other` factor, shrunk by how much the units differ.

        Parameters
        ----------
        weight, weighted : sparse arrays (n, n_other)
            Weights of the ratings, and the weighted ratings.
        noise : float
            Variance of a rating of weight 1.
        """
        n, r = self.mean.shape
        # the prior variance of each component is its mean square over all units: components without use shrink to 0
        typical = np.mean(self.second.reshape(n, r, r)[:, np.arange(r), np.arange(r)], axis=0)
        prior = np.diag(noise / np.maximum(typical, np.finfo(float).tiny / np.finfo(float).eps))
        covariance = noise * np.linalg.inv((weight @ other.second).reshape(n, r, r) + prior)
        self.mean = (covariance @ (weighted @ other.mean)[:, :, None])[:, :, 0] / noise
        self.second = (covariance + self.mean[:, :, None] * self.mean[:, None, :]).reshape(n, -1)


class ShrunkModel:
    """Mean, offsets, factors and noise while they are fitted to the ratings (i, j, y), in a scale in which y is about 1."""

    def __init__(self, i: np.ndarray, j: np.ndarray, y: np.ndarray, shape: tuple[int, int]) -> None:
        self.i, self.j, self.y, self.shape = i, j, y, shape
        self.mean = float(np.median(y))
        self.offsets = [np.zeros(n) for n in shape]
        self.spreads = [np.inf, np.inf]  # variances of the offsets
        self.factors = [ShrunkFactor(np.zeros((n, 0))) for n in shape]
        self.x, self.doubt = np.zeros(len(y)), np.zeros(len(y))  # prediction of the factors, and its variance
        self.variance = 0.0
        self.weight = np.ones(len(y))

    @property
    def noise(self) -> float:
        """Scale of the noise."""
        return self.variance**0.5

    def offsets_at(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Mean and offsets at some places."""
        return self.mean + self.offsets[0][i] + self.offsets[1][j]

    def predict(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Predictions at some places."""
        return self.offsets_at(i, j) + np.einsum("nr,nr->n", self.factors[0].mean[i], self.factors[1].mean[j])

    def weigh(self) -> None:
        """Weights of the ratings and the variance of the noise, from the residuals."""
        residual = self.y - self.offsets_at(self.i, self.j) - self.x
        square = residual**2 + self.doubt
        least = np.finfo(float).eps  # ratings are about 1, so a smaller variance is rounding
        if self.variance == 0:
            # Ratings are whole numbers, so the median of the residuals may be 0.
            size = MAD_TO_SIGMA * float(np.median(np.abs(residual))) or float(np.mean(np.abs(residual)))
            self.variance = max(size**2, least)
        near = np.abs(residual) < _CUT * self.noise
        if not near.any():
            near[:] = True
        self.weight = near * (_TAIL + 1) / (_TAIL + square / self.variance)
        self.variance = max(float(np.sum(self.weight * square) / np.count_nonzero(near)), least)

    def fit_offsets(self) -> None:
        """The mean, and offsets shrunk by how much they differ."""
        self.mean += float(np.average(self.y - self.offsets_at(self.i, self.j) - self.x, weights=self.weight))
        for side, index in ((1, self.j), (0, self.i)):
            rest = self.y - self.offsets_at(self.i, self.j) - self.x + self.offsets[side][index]
            total = np.bincount(index, self.weight * rest, self.shape[side])
            precision = np.bincount(index, self.weight, self.shape[side]) / self.variance + 1 / self.spreads[side]
            there = precision > 0
            self.offsets[side] = np.divide(total / self.variance, precision, out=np.zeros_like(total), where=there)
            spread = np.mean(self.offsets[side][there] ** 2 + 1 / precision[there])
            self.spreads[side] = max(float(spread), np.finfo(float).tiny)

    def begin(self, rank: int, seed: int) -> Result | None:
        """Start with the factors that `rcurc` finds in what the offsets leave; None if they leave nothing.

        On MovieLens-100k this start gives a lower error than a random one (RMSE 0.895 against 0.900, docs/ratings.md).
        """
        rest = self.y - self.offsets_at(self.i, self.j)
        samples = CrossSamples.from_triplets(self.i, self.j, rest, self.shape, duplicates="median")
        if not samples.intersection.block.value.any():
            return None
        rank = min(rank, len(samples.rows), len(samples.cols))
        typical = float(np.median(np.abs(rest))) or float(np.mean(np.abs(rest)))
        with warnings.catch_warnings():
            # Noise as large as the signal is never confirmed; held-out ratings judge the whole model instead. With
            # zeta_0 and gamma given (the best fixed rule on synthetic problems) there is one attempt, and no vain search.
            warnings.simplefilter("ignore", ConvergenceWarning)
            start = rcurc(samples, rank, zeta0=5 * typical, gamma=0.9, holdout=0.0, seed=seed)
        left, right = (np.nan_to_num(factor) for factor in (start.cur.left, start.cur.right))
        # factors of the same size: the priors of both sides then shrink alike
        sizes = np.linalg.norm(left), np.linalg.norm(right)
        balance = (sizes[1] / sizes[0]) ** 0.5 if min(sizes) > 0 else 1.0
        self.factors = [ShrunkFactor(left * balance), ShrunkFactor(right / balance)]
        self._predict_all()
        return start

    def fit_factors(self) -> None:
        """One sweep: rows on columns, then columns on rows."""
        rest = self.weight * (self.y - self.offsets_at(self.i, self.j))
        weight, weighted = (
            scipy.sparse.csr_array((value, (self.i, self.j)), shape=self.shape) for value in (self.weight, rest)
        )
        rows, cols = self.factors
        rows.fit(weight, weighted, cols, self.variance)
        cols.fit(weight.T.tocsr(), weighted.T.tocsr(), rows, self.variance)
        self._predict_all()

    def _predict_all(self) -> None:
        """Predict the ratings from the factors, with the variance of each prediction."""
        rows, cols = self.factors
        for first in range(0, len(self.y), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            i, j = self.i[part], self.j[part]
            self.x[part] = np.einsum("nr,nr->n", rows.mean[i], cols.mean[j])
            square = np.einsum("nr,nr->n", rows.second[i], cols.second[j])
            self.doubt[part] = np.maximum(square - self.x[part] ** 2, 0)

    def surprise(self) -> np.ndarray:
        """Residuals over the noise, each without its own influence on the prediction."""
        residual = self.y - self.offsets_at(self.i, self.j) - self.x
        # leave-one-out; at most 0.9, since a rating that alone determines its row would be divided by about 0
        influence = np.minimum(self.weight * self.doubt / self.variance, 0.9)
        return np.abs(residual) / (1 - influence) / self.noise
