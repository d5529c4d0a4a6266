"""The yardstick of `bench.real`: offsets and low rank with Gaussian priors under Student-t noise, by mean field, densely.

    y_ij = m + a_i + b_j + u_i . v_j + noise of scale s and nu degrees of freedom

The coefficients (u_i, a_i) of a row and (v_j, b_j) of a column are Gaussian, with a variance for each component and for the
offsets that is the mean square of what was found (empirical Bayes). One sweep: rows given columns, columns given rows,
each with covariances; then the weight of every observation and s. It starts from medians and an SVD of what they leave,
clipped. The library is to be as good as this or better; only its figures matter, so masks are dense and `width` is given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import svds


@dataclass(frozen=True, eq=False)
class Fit:
    """What `robust_bayes` finds: `X` and the standard deviation `std` of a new observation (n1, n2), and the `rank`."""

    X: np.ndarray
    std: np.ndarray
    rank: int


@dataclass(frozen=True, eq=False)
class _Side:
    """Coefficients of all rows, or of all columns: means (n, k + 1) and covariances (n, k + 1, k + 1); last, the offset."""

    mean: np.ndarray
    cov: np.ndarray

    @property
    def power(self) -> np.ndarray:
        """Mean squares (k + 1,) of the coefficients."""
        own = np.diagonal(self.cov, axis1=1, axis2=2)
        return np.maximum(np.mean(self.mean**2, axis=0) + np.mean(own, axis=0), 1e-30)

    @property
    def design(self) -> np.ndarray:
        """What the other side's coefficients are multiplied with: (n, k + 1), last a 1 for its offset."""
        return np.column_stack([self.mean[:, :-1], np.ones(len(self.mean))])

    @property
    def loose(self) -> np.ndarray:
        """The covariances of `design`."""
        cov = self.cov.copy()
        cov[:, -1, :] = cov[:, :, -1] = 0
        return cov

    def given(self, other: _Side, Y: np.ndarray, weight: np.ndarray) -> _Side:
        """The posterior of this side; rows of `Y` are its units, and `weight` is over the variance of the noise."""
        x = other.design
        square = x[:, :, None] * x[:, None, :] + other.loose
        shared = other.cov[:, :, -1].copy()  # of the design with the other side's offset
        shared[:, -1] = 0
        cov = np.linalg.inv(np.tensordot(weight, square, 1) + np.diag(1 / self.power))
        target = (weight * (Y - other.mean[:, -1])) @ x - weight @ shared
        return _Side((cov @ target[:, :, None])[:, :, 0], cov)

    def times(self, scale: np.ndarray) -> _Side:
        return _Side(self.mean * scale, self.cov * np.outer(scale, scale))


def median_polish(M: np.ndarray, rounds: int = 4) -> tuple[float, np.ndarray, np.ndarray]:
    """Medians of all of `M` (NaN: not observed), then of its rows and of its columns in turns."""
    middle, of_row, of_col = float(np.nanmedian(M)), np.zeros(M.shape[0]), np.zeros(M.shape[1])
    for _ in range(rounds):
        of_row = np.nan_to_num(np.nanmedian(M - middle - of_col, axis=1))
        of_col = np.nan_to_num(np.nanmedian(M - middle - of_row[:, None], axis=0))
    return middle, of_row, of_col


def medians(M: np.ndarray) -> np.ndarray:
    """The matrix (n1, n2) of medians of rows and columns."""
    middle, of_row, of_col = median_polish(M)
    return middle + of_row[:, None] + of_col


def robust_bayes(M: np.ndarray, width: int = 10, nu: float = 4.0, sweeps: int = 60, tol: float = 1e-4) -> Fit:
    """Fit `M` (n1, n2), NaN where nothing was observed, by at most `width` components."""
    seen = ~np.isnan(M)
    k = min(width, min(M.shape) - 1)
    middle, *offsets = median_polish(M)
    Y = np.where(seen, M - middle, 0.0)
    rest = np.where(seen, Y - offsets[0][:, None] - offsets[1], 0.0)
    s = 1.4826 * np.median(np.abs(rest[seen])) + 1e-300
    left, values, right = svds(np.clip(rest, -4 * s, 4 * s), k, random_state=0)
    root = np.sqrt(values / seen.mean())
    rows, cols = (
        _Side(np.column_stack([basis * root, offset]), np.zeros((len(basis), k + 1, k + 1)))
        for basis, offset in zip((left, right.T), offsets, strict=True)
    )
    weight, variance, before = seen / np.maximum(1, np.abs(rest) / s), s * s, None
    for _ in range(sweeps):
        rows = rows.given(cols, Y, weight / variance)
        cols = cols.given(rows, Y.T, weight.T / variance)
        balance = (cols.power / rows.power) ** 0.25  # both sides of a component get the same size
        balance[-1] = 1
        rows, cols = rows.times(balance), cols.times(1 / balance)
        X = rows.design @ np.column_stack([cols.mean[:, :-1], np.zeros(len(cols.mean))]).T
        X += rows.mean[:, -1:] + cols.mean[:, -1]
        spread = _quadratic(rows.cov, cols.design) + _quadratic(cols.cov, rows.design).T
        spread += rows.loose.reshape(len(X), -1) @ cols.loose.reshape(len(X.T), -1).T
        square = (Y - X) ** 2 + spread
        weight = seen * (nu + 1) / (nu + square / variance)
        variance = float((weight * square).sum() / seen.sum())
        if before is not None and np.linalg.norm(X - before) < tol * np.linalg.norm(X):
            break
        before = X
    strength = (rows.power * cols.power)[:-1]
    return Fit(middle + X, np.sqrt(spread + variance), int(np.count_nonzero(strength > 1e-4 * variance)))


def _quadratic(cov: np.ndarray, x: np.ndarray) -> np.ndarray:
    """x_j^T cov_i x_j, (n_i, n_j)."""
    return cov.reshape(len(cov), -1) @ (x[:, :, None] * x[:, None, :]).reshape(len(x), -1).T
