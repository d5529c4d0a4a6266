"""Columns whose outliers are nearly all in rows outside of I, and rows whose outliers are in columns outside of J.

A component that lives in rows outside of I and in a few columns of J is rejected there, and too few of its entries are for
signs or values to show it: those of a single column have no pattern at all. But outliers of a column do not know which rows
were chosen. Where a column has none in rows of I, and many in the others, these others have something of their own. What it
is in columns outside of J, nobody has seen.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, pdtrc, pdtrik, xlogy

from .structure import FAR_MORE, MATTERS, Looked, typical_size

_RARE = 1e-3  # chance of finding such a column where there is none
_NEVER = 1e-9  # chance of numbers that are not reckoned with


def is_lopsided(n_core: np.ndarray, k_core: np.ndarray, rows: Looked) -> bool:
    """Whether columns of J have far more outliers outside of I, of sizes that matter; as `lopsided`."""
    there = lopsided(n_core, k_core, rows)[rows.j] & rows.rejected
    return bool(there.any()) and float(np.median(np.abs(rows.residual[there]))) > MATTERS * typical_size(rows.fitted)


def lopsided(n_core: np.ndarray, k_core: np.ndarray, rows: Looked) -> np.ndarray:
    """Which columns of J have far more outliers in some `rows` outside of I than in rows of I (n,).

    What these rows have more of in all columns is not held against a column.

    Parameters
    ----------
    n_core, k_core : integer arrays (n,)
        Observations of each column in rows of I, and outliers among them.
    rows : Looked
        Observations of columns of J (from 0 on) in rows outside of I.
    """
    n, k = np.bincount(rows.j, minlength=len(n_core)), np.bincount(rows.j, rows.rejected, len(n_core)).astype(np.int64)
    more = _of_rows(n_core, k_core, n, rows)
    far = np.flatnonzero((k > more) & ((k - more) * n_core > FAR_MORE * k_core * n))
    chance = np.ones(len(n_core))
    chance[far] = _chance_beside_rows(*(x[far] for x in (k, n, k_core, n_core, more)))
    # Tarone's way to count trials: columns that could not have so small a chance, wherever their outliers were, are none.
    # Chances of columns are not multiplied, since some have their outliers in the same rows.
    most = np.minimum(k + k_core, n)
    least = chance_of(most, n, k + k_core - most, n_core)
    trials = np.searchsorted(np.sort(least), chance, side="right")
    return np.asarray(chance * np.maximum(trials, 1) < _RARE)


def _of_rows(n_core: np.ndarray, k_core: np.ndarray, n: np.ndarray, rows: Looked) -> np.ndarray:
    """How many outliers more each column is to have in `rows`, as far as these have more in other columns (n,).

    In a column that has more outliers everywhere, they add as many times more.
    """
    of_row, k_of_row = np.bincount(rows.i), np.bincount(rows.i, rows.rejected)
    elsewhere = (k_of_row[rows.i] - rows.rejected) / np.maximum(of_row[rows.i] - 1, 1)  # share in other columns
    usual = float(k_core.sum()) / max(float(n_core.sum()), 1.0)
    more = np.maximum(np.bincount(rows.j, elsewhere, len(n_core)) - usual * n, 0.0)
    share = k_core / np.maximum(n_core, 1)
    return np.asarray(more * np.maximum(share / usual, 1.0)) if usual > 0 else more


def _chance_beside_rows(
    k: np.ndarray, n: np.ndarray, k_other: np.ndarray, n_other: np.ndarray, more: np.ndarray
) -> np.ndarray:
    """As `chance_of`, where rows explain a Poisson number of the k outliers, `more` (m,) in the mean."""
    most = np.minimum(k, pdtrik(1 - _NEVER, more).astype(np.int64) + 2)
    at, m = _up_to(most)
    share = np.exp(xlogy(m, more[at]) - more[at] - gammaln(m + 1.0))
    explained = share * chance_of(k[at] - m, n[at], k_other[at], n_other[at])
    return np.asarray(np.bincount(at, explained, len(k)) + pdtrc(most - 1.0, more))


def chance_of(k: np.ndarray, n: np.ndarray, k_other: np.ndarray, n_other: np.ndarray) -> np.ndarray:
    """Chance that k or more of k + k_other outliers are in the first n of n + n_other observations: Fisher's test (m,)."""
    total = k + k_other
    at, more = _up_to(np.minimum(n, total) - k + 1)
    n, total, some = n[at], total[at], k[at] + more
    ways = _log_ways(n, some) + _log_ways(n_other[at], total - some) - _log_ways(n + n_other[at], total)
    return np.asarray(np.bincount(at, np.exp(ways), len(k)))


def _up_to(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each of some counts (m,) the numbers below it: to which they belong, and the numbers."""
    at = np.repeat(np.arange(len(counts)), counts)
    return at, np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)


def _log_ways(n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Logarithm of the number of ways to choose k of n."""
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))
