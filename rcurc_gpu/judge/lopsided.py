"""Columns whose outliers are nearly all in rows outside of I, and rows whose outliers are in columns outside of J.

A component that lives in rows outside of I and in a few columns of J is rejected there, and too few of its entries are for
signs or values to show it: those of a single column have no pattern at all. But outliers of a column do not know which rows
were chosen. Where a column has none in rows of I, and many in the others, these others have something of their own. What it
is in columns outside of J, nobody has seen.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from .structure import FAR_MORE, MATTERS, Looked, typical_size

_RARE = 1e-3  # chance of finding such a column where there is none
_DEVIATIONS = 2.0  # standard deviations of what rows with more outliers add to a column that are not held against it


def is_lopsided(n_core: np.ndarray, k_core: np.ndarray, rows: Looked) -> bool:
    """Whether columns of J have far more outliers outside of I, of sizes that matter; as `lopsided`."""
    there = lopsided(n_core, k_core, rows)[rows.j] & rows.rejected
    return bool(there.any()) and float(np.median(np.abs(rows.residual[there]))) > MATTERS * typical_size(rows.fitted)


def lopsided(n_core: np.ndarray, k_core: np.ndarray, rows: Looked) -> np.ndarray:
    """Which columns of J have far more outliers in some `rows` outside of I than in rows of I (n,).

    What these rows have more of in all columns is taken off.

    Parameters
    ----------
    n_core, k_core : integer arrays (n,)
        Observations of each column in rows of I, and outliers among them.
    rows : Looked
        Observations of columns of J (from 0 on) in rows outside of I.
    """
    n, k = np.bincount(rows.j, minlength=len(n_core)), np.bincount(rows.j, rows.rejected, len(n_core))
    of_row, k_of_row = np.bincount(rows.i), np.bincount(rows.i, rows.rejected)
    elsewhere = (k_of_row[rows.i] - rows.rejected) / np.maximum(of_row[rows.i] - 1, 1)  # share in other columns
    usual = float(k_core.sum()) / max(float(n_core.sum()), 1.0)
    more = np.maximum(np.bincount(rows.j, elsewhere, len(n_core)) - usual * n, 0.0)
    own = np.maximum(np.floor(k - more - _DEVIATIONS * np.sqrt(more)), 0.0)
    chance = np.where(own * n_core > FAR_MORE * k_core * n, chance_of(own, n, k_core, n_core), 1.0)
    return chance < _RARE / _testable(chance_of(own + k_core, n, 0 * k_core, n_core))


def _testable(least: np.ndarray) -> int:
    """By how many columns the chance of finding any has to be divided (Tarone): those that could be found at all.

    Parameters
    ----------
    least : float array (n,)
        Chance of each column if all of its outliers were outside of I.
    """
    ordered = np.sort(least)
    count = np.arange(1, len(least) + 1)
    could = np.searchsorted(ordered, _RARE / count, side="right")
    return int(count[np.argmax(could <= count)]) if len(least) else 1


def chance_of(k: np.ndarray, n: np.ndarray, k_other: np.ndarray, n_other: np.ndarray) -> np.ndarray:
    """Chance that so many of the outliers, or more, are among the first n of n + n_other observations (Fisher's test)."""
    k = np.minimum(k, n)
    total, chance = k + k_other, np.ones(len(k))
    for at in np.flatnonzero((k > 0) & (n_other > 0)):
        some = np.arange(k[at], min(n[at], total[at]) + 1)
        ways = _log_ways(n[at], some) + _log_ways(n_other[at], total[at] - some) - _log_ways(n[at] + n_other[at], total[at])
        chance[at] = np.exp(ways).sum()
    return chance


def _log_ways(n: int, k: np.ndarray) -> np.ndarray:
    """Logarithm of the number of ways to choose k of n."""
    return np.asarray(gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0))
