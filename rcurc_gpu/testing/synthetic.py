"""The paper's synthetic problem, with its truth, at any size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends.arrays import to_numpy
from ..backends.random import DataStream, PositionStream, generator, normal_at, uniform_at
from ..errors import check_choice, check_count, check_number, check_shape, seed_to_int
from ..result.matrix import LowRankMatrix
from ..samples.cross import CrossSamples
from ..samples.describe import cross_facts
from ..samples.drawing import ccs_sample
from ..summary import Summarised, Summary, size_words

_MEAN_OF = 4_000_000
_AT_ONCE = 1 << 14  # positions looked at together: working memory does not grow with their number


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticProblem(Summarised):
    """A low-rank matrix X = W V^T, the corrupted Y = X + S + noise by entry, and cross-concentrated samples of Y.

    Attributes
    ----------
    samples : CrossSamples
    W, V : float64 arrays (n1, r), (n2, r)
        The truth as factors.
    alpha, c, noise : float
        Share of outliers, their size and the noise, both in units of `mean_abs`.
    mean_abs : float
        mean|X| (from at most four million entries).
    seed : int
    """

    W: np.ndarray
    V: np.ndarray
    alpha: float
    c: float
    noise: float
    mean_abs: float
    seed: int
    dtype: Any
    samples: CrossSamples = None  # type: ignore[assignment]  # drawn from this very object, see `synthetic`

    def _summary(self) -> Summary:
        facts = {
            "matrix": f"{size_words(self.shape)}, rank {self.W.shape[1]}, {np.dtype(self.dtype)}",
            "outliers": f"{self.alpha:.3g} of the entries, up to {self.c:.3g} times the mean size of an entry",
            "noise": f"{self.noise:.3g} times the mean size of an entry",
        }
        seen = {} if self.samples is None else {k: x for k, x in cross_facts(self.samples).items() if k != "matrix"}
        return Summary(facts | seen | {"seed": str(self.seed)})

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)"""
        return self.W.shape[0], self.V.shape[0]

    def truth(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """X at the positions (i, j)."""
        return _products(self.W, self.V, i, j)

    def is_outlier(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Whether Y carries an outlier at the positions (i, j)."""
        return uniform_at(i, j, self.seed, PositionStream.IS_OUTLIER) < self.alpha

    def entries(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Y at the positions (i, j): the same number whoever asks."""
        out = np.empty(len(i), dtype=self.dtype)
        for start in range(0, len(i), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            out[part] = self._entries(i[part], j[part])
        return out

    def _entries(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        y = self.truth(i, j)
        if self.alpha > 0:
            size = 2 * self.c * self.mean_abs
            y = y + np.where(self.is_outlier(i, j), size * (uniform_at(i, j, self.seed, PositionStream.OUTLIER) - 0.5), 0.0)
        if self.noise > 0:
            y = y + self.noise * self.mean_abs * normal_at(i, j, self.seed, PositionStream.NOISE)
        return y

    def relative_error(self, matrix: Any, undetermined: str = "nan") -> float:
        """``||X_found - X||_F / ||X||_F`` over the whole matrix, exactly, from the factors.

        Parameters
        ----------
        matrix : CURMatrix or LowRankMatrix
        undetermined : {"nan", "skip"}
            What to do with rows and columns that are NaN in `matrix`: the error is NaN, or is taken over the others.
        """
        left, right, W, V = self._aligned(matrix, undetermined)
        if len(left) == 0 or len(right) == 0:
            return float("nan")
        return _norm_of_product(np.hstack([left, -W]), np.hstack([right, V])) / _norm_of_product(W, V)

    def core_error(self, matrix: Any) -> float:
        """The relative error on the intersection I x J alone."""
        rows, cols = self.samples.rows, self.samples.cols
        left, right = to_numpy(matrix.left)[rows].astype(float), to_numpy(matrix.right)[cols].astype(float)
        W, V = self.W[rows], self.V[cols]
        return _norm_of_product(np.hstack([left, -W]), np.hstack([right, V])) / _norm_of_product(W, V)

    def column_errors(self, matrix: Any) -> np.ndarray:
        """The relative error of every column of ``X[rows, :]`` (n2,); NaN where undetermined."""
        rows = self.samples.rows
        return _unit_errors(to_numpy(matrix.left)[rows], to_numpy(matrix.right), self.W[rows], self.V)

    def row_errors(self, matrix: Any) -> np.ndarray:
        """The relative error of every row of ``X[:, cols]`` (n1,); NaN where undetermined."""
        cols = self.samples.cols
        return _unit_errors(to_numpy(matrix.right)[cols], to_numpy(matrix.left), self.V[cols], self.W)

    def _aligned(self, matrix: Any, undetermined: str) -> tuple[np.ndarray, ...]:
        check_choice("undetermined", undetermined, ("nan", "skip"))
        if not isinstance(matrix, LowRankMatrix):
            raise TypeError(f"matrix must be a CURMatrix or LowRankMatrix (result.cur), got {type(matrix).__name__}")
        if tuple(matrix.shape) != self.shape:
            raise ValueError(f"matrix must have the problem's shape {self.shape}, got {tuple(matrix.shape)}")
        left, right = to_numpy(matrix.left).astype(float), to_numpy(matrix.right).astype(float)
        if undetermined == "nan":
            return left, right, self.W, self.V
        i, j = np.isfinite(left).all(axis=1), np.isfinite(right).all(axis=1)
        return left[i], right[j], self.W[i], self.V[j]


def synthetic(
    shape: tuple[int, int] = (3000, 3000),
    rank: int = 5,
    alpha: float = 0.2,
    c: float = 10.0,
    noise: float = 0.0,
    n_rows: int | None = None,
    n_cols: int | None = None,
    rate: float | tuple[float, float] = 0.25,
    seed: Any = None,
    dtype: Any = np.float64,
) -> SyntheticProblem:
    """Make the paper's synthetic problem without ever forming the matrix.

    X = W V^T with Gaussian factors. A share `alpha` of the positions carries an outlier, uniform on
    [-c mean|X|, c mean|X|]; Gaussian noise has the standard deviation ``noise * mean|X|``. Both belong to the
    position, so the two blocks agree where both see it. Memory is proportional to the observations.

    Parameters
    ----------
    shape : (int, int)
    rank : int
    alpha : float in [0, 1]
    c, noise : float
    n_rows, n_cols : int
        |I| and |J|; 30 % of the rows and columns by default, as in the paper.
    rate : float or (float, float)
        Share of R and of C that is observed.
    seed : None, int or numpy.random.Generator
    dtype : float32 or float64, the type of the observations

    Returns
    -------
    SyntheticProblem

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((1000, 800), rank=3, alpha=0.1, c=5, seed=0)
    >>> problem.samples.shape, len(problem.samples.rows)
    ((1000, 800), 300)
    >>> result = rg.rcurc(problem.samples)
    >>> problem.relative_error(result.cur) < 1e-8
    True
    """
    n1, n2 = check_shape("shape", shape)
    rank = check_count("rank", rank, 1, min(n1, n2))
    alpha, c = check_number("alpha", alpha, 0, 1), check_number("c", c)
    noise = check_number("noise", noise)
    n_rows = max(round(0.3 * n1), 1) if n_rows is None else n_rows
    n_cols = max(round(0.3 * n2), 1) if n_cols is None else n_cols
    rates = rate if isinstance(rate, (tuple, list)) else (rate, rate)
    if len(rates) != 2:
        raise ValueError(f"rate must be a number or a pair (for R and for C), got {rate!r}")
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise TypeError(f"dtype must be float32 or float64, got {np.dtype(dtype)}")
    key = seed_to_int(seed)
    rng = generator(key, DataStream.WHOLE)
    W, V = rng.standard_normal((n1, rank)), rng.standard_normal((n2, rank))
    problem = SyntheticProblem(W, V, alpha, c, noise, _mean_abs(W, V, rng), key, np.dtype(dtype))
    samples = ccs_sample(problem, n_rows, n_cols, *rates, rng)
    object.__setattr__(problem, "samples", samples)  # it samples itself; frozen for everyone else
    return problem


def _mean_abs(W: np.ndarray, V: np.ndarray, rng: np.random.Generator) -> float:
    """mean|W V^T|, from four million entries where there are more."""
    n1, n2 = len(W), len(V)
    if n1 * n2 <= _MEAN_OF:
        return float(np.abs(W @ V.T).mean())
    x = _products(W, V, rng.integers(n1, size=_MEAN_OF), rng.integers(n2, size=_MEAN_OF))
    return float(np.abs(x, out=x).mean())


def _products(W: np.ndarray, V: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Entries (i, j) of W V^T."""
    out = np.empty(len(i))
    for start in range(0, len(i), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        out[part] = np.einsum("kr,kr->k", W[i[part]], V[j[part]])
    return out


def _norm_of_product(A: np.ndarray, B: np.ndarray) -> float:
    """||A B^T||_F for tall A and B, without cancellation."""
    if not (np.isfinite(A).all() and np.isfinite(B).all()):
        return float("nan")
    return float(np.linalg.norm(_r_factor(A) @ _r_factor(B).T))


def _r_factor(A: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.qr(A, mode="r"))


def _unit_errors(basis: np.ndarray, coefficients: np.ndarray, true_basis: np.ndarray, truth: np.ndarray) -> np.ndarray:
    ok = np.isfinite(basis).all(axis=1)
    if not ok.any():
        return np.full(len(truth), np.nan)
    both = _r_factor(np.hstack([basis[ok], -true_basis[ok]]).astype(float))
    error = np.linalg.norm(np.hstack([coefficients, truth]) @ both.T, axis=1)
    return error / np.linalg.norm(truth @ _r_factor(true_basis[ok]).T, axis=1)
