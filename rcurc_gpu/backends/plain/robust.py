"""Robust regressions of dense rows, although up to half of their entries are something else."""

from __future__ import annotations

import numpy as np

# What is farther off than the scale hardly counts. It begins so wide that all values count, and shrinks step by step, so
# that the fit follows the majority although it starts from the mean (graduated non-convexity).
WIDEST, SHRINK = 64.0, 0.7
RIDGE = 1e-6  # relative: keeps the equations solvable where a component is not seen
AGREES = 3.0  # times the noise, within which a value agrees with the fit
_ENTRIES_AT_ONCE = 1 << 18  # of float32, with a few copies: what stays in the cache


def robust_fit(
    values: np.ndarray,
    design: np.ndarray,
    noise: float,
    start: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    group: np.ndarray | None = None,
    widest: float = WIDEST,
    shrink: float = SHRINK,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit each row of `values` by the columns of `design`.

    Parameters
    ----------
    values : uint8 or float32 array (n, m)
    design : float32 array (m, k)
    noise : float
        Standard deviation of what is left.
    start : float32 array (n, k), optional
        Where to begin; by default with least squares.
    weights : float32 array (g, m), optional
        What each value counts, 0 to 1, in g groups of rows.
    group : int32 array (n,), optional
        The group of each row; by default all are in the first.
    widest : float
        The scale to begin with.
    shrink : float
        By what it is multiplied after each step: less is faster, and follows a majority that is hard to see less well.

    Returns
    -------
    coefficients : float32 array (n, k)
    agree : float32 array (n,)
        Share of the values that agree with the fit.
    """
    n, m = values.shape
    coefficients, agree = np.empty((n, design.shape[1]), dtype=np.float32), np.empty(n, dtype=np.float32)
    step = max(_ENTRIES_AT_ONCE // max(m, 1), 1)
    for begin in range(0, n, step):
        part = slice(begin, begin + step)
        own = (
            np.ones((1, m), dtype=np.float32) if weights is None else weights[:1] if group is None else weights[group[part]]
        )
        first = None if start is None else start[part]
        coefficients[part], agree[part] = _fit(values[part].astype(np.float32), design, noise, first, own, widest, shrink)
    return coefficients, agree


def _fit(
    values: np.ndarray,
    design: np.ndarray,
    noise: float,
    start: np.ndarray | None,
    own: np.ndarray,
    widest: float,
    shrink: float,
) -> tuple[np.ndarray, np.ndarray]:
    """`robust_fit` of a few rows, all float32."""
    upper = np.triu_indices(design.shape[1])
    products = design[:, upper[0]] * design[:, upper[1]]
    found = _solve(np.broadcast_to(own, values.shape), values, design, products) if start is None else start
    scale, last = widest, AGREES * noise
    while True:
        scale = max(scale, last)
        square = values - found @ design.T
        np.square(square, out=square)
        square *= np.float32(1 / scale**2)
        square += 1
        np.square(square, out=square)
        found = _solve(own / square, values, design, products)
        if scale == last:
            break
        scale *= shrink
    agree = np.mean(np.abs(values - found @ design.T) < last, axis=1, dtype=np.float32)
    return found, np.asarray(agree)


def _solve(weights: np.ndarray, values: np.ndarray, design: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Weighted least squares of each row, by Cholesky's method for all rows at once."""
    k = design.shape[1]
    right = (weights * values) @ design
    gram = weights @ products
    if k == 1:
        return right / np.maximum(gram, np.float32(1e-6))
    at = np.zeros((k, k), dtype=np.intp)
    at[np.triu_indices(k)] = np.arange(gram.shape[1])
    lower: list[list[np.ndarray]] = []
    x: list[np.ndarray] = []
    for i in range(k):
        row: list[np.ndarray] = []
        for j in range(i):
            entry = gram[:, at[j, i]] - sum((row[p] * lower[j][p] for p in range(j)), np.float32(0))
            row.append(entry / lower[j][j])
        own = gram[:, at[i, i]]
        left = own - sum((np.square(r) for r in row), np.float32(0))
        row.append(np.sqrt(np.maximum(left, RIDGE * own + 1e-12)))
        lower.append(row)
        x.append((right[:, i] - sum((row[p] * x[p] for p in range(i)), np.float32(0))) / row[i])
    for i in reversed(range(k)):
        x[i] = (x[i] - sum((lower[p][i] * x[p] for p in range(i + 1, k)), np.float32(0))) / lower[i][i]
    return np.stack(x, axis=1)
