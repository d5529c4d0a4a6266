"""Synthetic ratings: whole numbers on a scale, counts with heavy tails, much noise, some ratings wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends.random import DataStream, generator
from ..errors import check_count, check_number, check_shape, seed_to_int
from ..summary import Summarised, Summary

_MEAN, _ROWS, _COLS, _TASTE, _NOISE = 3.6, 0.45, 0.5, 0.5, 0.8  # mean, and standard deviations, much as in MovieLens
_DECAY, _FLAT = 0.9, 15  # popularity falls as (place + _FLAT) ** -_DECAY


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticRatings(Summarised):
    """Ratings from 1 to 5, and what is true.

    Attributes
    ----------
    i, j : int64 arrays (n,)
        Row (user) and column (item) of each rating, in random order.
    values : float64 array (n,)
        The ratings as they were given.
    is_wrong : bool array (n,)
        Which of them were replaced by random ones (one in five by what it was).
    expected : float64 array (n,)
        What each user thinks of the item, without noise; no prediction can be better.
    shape : (int, int)
    """

    i: np.ndarray
    j: np.ndarray
    values: np.ndarray
    is_wrong: np.ndarray
    expected: np.ndarray
    shape: tuple[int, int]

    def _summary(self) -> Summary:
        users, items = self.shape
        facts = {"ratings": f"{len(self.values):,} of {users:,} users for {items:,} items"}
        return Summary(facts | {"wrong": f"{int(self.is_wrong.sum()):,}"})


def synthetic_ratings(
    shape: tuple[int, int] = (943, 1682), n: int = 100_000, rank: int = 3, wrong: float = 0.1, seed: Any = None
) -> SyntheticRatings:
    """Make synthetic ratings: some users and items have very many, most have few.

    Parameters
    ----------
    shape : (int, int)
    n : int
        Number of ratings; at most a quarter of the matrix.
    rank : int
        Rank of what is left beside the offsets of users and items.
    wrong : float in [0, 1]
        Share of the ratings that is replaced at random.
    seed : None, int or numpy.random.Generator

    Returns
    -------
    SyntheticRatings

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> made = rg.synthetic_ratings((200, 300), n=5_000, wrong=0.1, seed=0)
    >>> sorted(set(made.values.tolist()))
    [1.0, 2.0, 3.0, 4.0, 5.0]
    >>> float(made.is_wrong.mean().round(1))
    0.1
    """
    n1, n2 = check_shape("shape", shape)
    n, rank = check_count("n", n, 1, max(n1 * n2 // 4, 1)), check_count("rank", rank)
    wrong = check_number("wrong", wrong, 0, 1)
    rng = generator(seed_to_int(seed), DataStream.WHOLE)
    key = np.empty(0, dtype=np.int64)
    while len(key) < n:
        new = _popular(rng, n1, 2 * n) * n2 + _popular(rng, n2, 2 * n)
        key = np.unique(np.concatenate([key, new]))
    i, j = np.divmod(rng.permutation(key)[:n], n2)
    left, right = rng.standard_normal((n1, rank)), rng.standard_normal((n2, rank))
    taste = _TASTE * np.einsum("kr,kr->k", left[i], right[j]) / rank**0.5
    expected = _MEAN + _ROWS * rng.standard_normal(n1)[i] + _COLS * rng.standard_normal(n2)[j] + taste
    values = np.clip(np.round(expected + _NOISE * rng.standard_normal(n)), 1, 5)
    is_wrong = rng.random(n) < wrong
    values[is_wrong] = rng.integers(1, 6, np.count_nonzero(is_wrong))
    return SyntheticRatings(i, j, values, is_wrong, expected, (n1, n2))


def _popular(rng: np.random.Generator, size: int, n: int) -> np.ndarray:
    """Numbers below `size`, some much more often than others."""
    share = (np.arange(size) + _FLAT) ** -_DECAY
    return np.asarray(rng.permutation(size)[rng.choice(size, n, p=share / share.sum())])
