"""Choose the rows I and the columns J where the user has only a list of observations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

# Observations that a row of the intersection should have for each component where rows and columns are chosen: gradients
# alone recover the core then, which is faster than Gauss-Newton steps.
CORE_PER_RANK = 10
# Observations that it needs. With 20 % outliers half of the problems are recovered at 4.4, nearly all at 5; with 30 % at 5.4
# and 6.6 (bench.phase).
NEEDED_PER_RANK = 6
# A cross is clear if its rows have this many times the observations of the next ones. A power law of counts drops less, by
# (1.25 / 0.9)^decay in `_drops`: 1.4 at a decay of 1.
_CLEAR = 2.0
_MIDDLE = 0.3  # share that is seen of the intersection over that of the chosen rows beside it, at least
# Share of the observations that may fall outside a cross that is not clear. A split by contrast alone left 58 to 81 % of
# heavy-tailed counts unused; with this rule it is 1 to 4 %.
_UNUSED = 0.05
# From one number of observations per row and column to the next that is tried. Each costs a pass over all pairs or several;
# a smaller factor would find a slightly denser intersection.
_GROWTH = 1.25
_AT_ONCE = 1 << 20  # observations counted at a time: memory stays small, and each count is longer than its overhead
_SHRINK = 0.7  # share of the pairs left from which they are copied: passes get shorter, and a copy costs about a pass


class Pairs(Protocol):
    """Row and column of each observation, some at a time; there may be more than memory holds."""

    def __len__(self) -> int:
        """How many pairs there are."""

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows and columns of all pairs, in parts."""

    def kept(self, rows: np.ndarray, cols: np.ndarray, count: int) -> Pairs:
        """At least the `count` pairs whose row and column are marked; an implementation may keep all."""


@dataclass(frozen=True, eq=False)
class ArrayPairs:
    """Pairs in memory.

    Attributes
    ----------
    i, j : integer arrays (n,)
    at_once : int
        How many come at a time.
    """

    i: np.ndarray
    j: np.ndarray
    at_once: int = _AT_ONCE

    def __len__(self) -> int:
        return len(self.i)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(self.i), self.at_once):
            yield self.i[start : start + self.at_once], self.j[start : start + self.at_once]

    def kept(self, rows: np.ndarray, cols: np.ndarray, count: int) -> ArrayPairs:
        """The marked pairs, copied."""
        return collected(self, rows, cols, count, self.i.dtype, self.at_once)


def collected(pairs: Pairs, rows: np.ndarray, cols: np.ndarray, count: int, dtype: Any, at_once: int) -> ArrayPairs:
    """The `count` pairs whose row and column are marked, in memory."""
    i, j, end = np.empty(count, dtype), np.empty(count, dtype), 0
    for some_i, some_j in pairs:
        both = rows[some_i] & cols[some_j]
        start, end = end, end + int(np.count_nonzero(both))
        i[start:end], j[start:end] = some_i[both], some_j[both]
    return ArrayPairs(i, j, at_once)


def choose_cross(i: np.ndarray, j: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns on which observations concentrate.

    A clear cross, as cross-concentrated sampling leaves it, is taken. Otherwise (ratings: few rows have very many
    observations, many have few, with all numbers between) the intersection is the densest one whose cross leaves out few
    observations. Every row and column of it has at least m observations inside it. m is as large as possible while no more
    than 5 % of all observations are unused, but enough for rank 1 if there is such an intersection at all.

    Parameters
    ----------
    i, j : int64 arrays (n,)
        Row and column of each observation.
    shape : (int, int)

    Returns
    -------
    rows, cols : int64 arrays
        Ascending.
    """
    return choose_cross_of(ArrayPairs(i, j, at_once_for(shape)), shape)


def choose_cross_of(
    pairs: Pairs, shape: tuple[int, int], advance: Callable[[], None] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """`choose_cross` of pairs that need not fit into memory: they are only counted, in some twenty to fifty passes.

    Parameters
    ----------
    pairs : Pairs
    shape : (int, int)
    advance : callable, optional
        Called after each pass.
    """
    counting = _Counting(shape, advance or (lambda: None))
    totals = counting.totals(pairs)
    rows, cols = _by_contrast(pairs, totals, counting)
    if _is_clear(pairs, totals, rows, cols, counting):
        return rows, cols
    return _densest_core(pairs, totals, counting)


def at_once_for(shape: tuple[int, int]) -> int:
    """How many pairs to count at a time: at least as many as rows and columns, since each count writes a zero for each."""
    return max(_AT_ONCE, *shape)


@dataclass(frozen=True)
class _Counting:
    """Counts observations of rows and of columns."""

    shape: tuple[int, int]
    advance: Callable[[], None]

    def totals(self, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        """Observations of each row, and of each column."""
        per_row, per_col = (np.zeros(n, np.int64) for n in self.shape)
        for i, j in pairs:
            per_row += np.bincount(i, minlength=self.shape[0])
            per_col += np.bincount(j, minlength=self.shape[1])
        self.advance()
        return per_row, per_col

    def outside(self, pairs: Pairs, chosen: np.ndarray, axis: int) -> np.ndarray:
        """Observations of each row (`axis` 0) outside of chosen columns, or of each column (1) outside of chosen rows."""
        elsewhere, total = np.ones(self.shape[1 - axis], dtype=bool), np.zeros(self.shape[axis], np.int64)
        elsewhere[chosen] = False
        for pair in pairs:
            total += np.bincount(pair[axis][elsewhere[pair[1 - axis]]], minlength=len(total))
        self.advance()
        return total


def _by_contrast(pairs: Pairs, totals: tuple[np.ndarray, np.ndarray], counting: _Counting) -> tuple[np.ndarray, np.ndarray]:
    """Choose the busiest rows and columns.

    Their number is where the sorted counts split best into a high and a low group (Otsu's criterion). Which ones they are is
    then improved by alternation: a row is worth the observations it has outside of the chosen columns, since those inside
    are covered already.
    """
    per_row, per_col = totals
    rows, cols = _busiest(per_row), _busiest(per_col)
    # at most five rounds: each one is two passes over all pairs, and a cross that is still not stable is hardly a clear one
    for _ in range(5):
        new_rows = _top(counting.outside(pairs, cols, 0), per_row, len(rows))
        new_cols = _top(counting.outside(pairs, new_rows, 1), per_col, len(cols))
        if np.array_equal(new_rows, rows) and np.array_equal(new_cols, cols):
            break
        rows, cols = new_rows, new_cols
    return rows, cols


def _busiest(counts: np.ndarray) -> np.ndarray:
    descending = np.sort(counts)[::-1].astype(float)
    n = len(descending)
    if n == 1:
        return np.arange(1)
    k = np.arange(1, n)
    total = np.cumsum(descending)
    gap = total[:-1] / k - (total[-1] - total[:-1]) / (n - k)
    contrast = k * (n - k) * gap**2
    size = int(np.argmax(contrast)) + 1 if contrast.max() > 0 else n  # equal counts: all rows are alike
    return _top(counts, counts, size)


def _top(worth: np.ndarray, tie: np.ndarray, size: int) -> np.ndarray:
    return np.sort(np.lexsort((-tie, -worth))[:size])


def _is_clear(
    pairs: Pairs, totals: tuple[np.ndarray, np.ndarray], rows: np.ndarray, cols: np.ndarray, counting: _Counting
) -> bool:
    """Whether the observations outside the chosen columns drop from the chosen rows to the others, and the same for columns.

    A few rows and a few columns at the head of power laws are no cross: no core can be found in them.
    """
    if max(len(rows), len(cols)) < min(CORE_PER_RANK, *counting.shape):
        return False
    outside = counting.outside(pairs, cols, 0), counting.outside(pairs, rows, 1)
    if not (_drops(outside[0], len(rows)) and _drops(outside[1], len(cols))):
        return False
    # rows of one group and columns of another, that never met, look like a cross as well, but leave nothing in the middle;
    # a core is then sought in a group, if one of them has enough observations for that
    inside = int(totals[0][rows].sum() - outside[0][rows].sum())
    beside = int(outside[0][rows].sum()) / max(len(rows) * (counting.shape[1] - len(cols)), 1)
    if inside >= _MIDDLE * beside * len(rows) * len(cols):
        return True
    others = (np.delete(total - away, own) for total, away, own in zip(totals, outside, (rows, cols), strict=True))
    return all(np.median(seen) < CORE_PER_RANK for seen in others if len(seen))


def _drops(counts: np.ndarray, size: int) -> bool:
    """Whether the sorted counts drop near the place `size`: a little before it they are far above those a little after.

    A power law of counts does not, whatever is taken for its head.
    """
    descending = np.sort(counts)[::-1]
    # a tenth before and a quarter after: some rows of a cross are thin by chance, and some others have stray observations
    after = math.ceil(1.25 * size)
    return after >= len(counts) or bool(descending[math.ceil(0.9 * size) - 1] > _CLEAR * descending[after])


def _densest_core(pairs: Pairs, totals: tuple[np.ndarray, np.ndarray], counting: _Counting) -> tuple[np.ndarray, np.ndarray]:
    """The last of ever denser intersections whose cross leaves out few observations.

    If the first one that is enough for rank 1 leaves out more, that one; if none is enough, the densest there is.
    """
    for least in range(CORE_PER_RANK, 0, -1):  # the first is enough for rank 1, the last leaves all observations
        core = _Core(pairs, totals)
        core.peel(least, counting.advance)
        if core.n_left:
            break
    while True:  # a core of m + 1 lies in that of m, so peeling goes on from where it is
        rows, cols = core.rows, core.cols
        least = max(least + 1, int(_GROWTH * least))
        core.peel(least, counting.advance, _UNUSED * len(pairs))
        if core.n_unused > _UNUSED * len(pairs):
            return rows, cols


_GONE, _GOING, _HERE = 0, 1, 2


class _Core:
    """An intersection that is peeled: rows and columns with too few observations inside it go, which leaves fewer to others.

    Rows and columns are marked; observations are only counted. An observation is left while its row and column both are.
    """

    def __init__(self, pairs: Pairs, totals: tuple[np.ndarray, np.ndarray]) -> None:
        self.pairs, self.totals, self.n_left = pairs, totals, len(pairs)
        self.counts = tuple(total.copy() for total in totals)
        self.marks = tuple(np.full(len(total), _HERE, np.uint8) for total in totals)

    @property
    def rows(self) -> np.ndarray:
        """The rows that are left, ascending."""
        return np.flatnonzero(self.marks[0] == _HERE)

    @property
    def cols(self) -> np.ndarray:
        """The columns that are left, ascending."""
        return np.flatnonzero(self.marks[1] == _HERE)

    @property
    def n_unused(self) -> int:
        """Observations with neither their row nor their column left."""
        if self.n_left == 0:
            return int(self.totals[0].sum())  # rows that lost their last observation are still marked
        in_rows, in_cols = (int(t[m == _HERE].sum()) for t, m in zip(self.totals, self.marks, strict=True))
        return int(self.totals[0].sum()) - in_rows - in_cols + self.n_left

    def peel(self, least: int, advance: Callable[[], None], most_unused: float = math.inf) -> None:
        """Peel until all rows and columns have `least` observations inside, or more than `most_unused` are unused."""
        while self.n_left and self.n_unused <= most_unused:
            going = [(m == _HERE) & (c < least) for m, c in zip(self.marks, self.counts, strict=True)]
            if not any(g.any() for g in going):
                return
            for mark, go in zip(self.marks, going, strict=True):
                mark[go] = _GOING
            self._uncount()
            advance()
            for mark, go in zip(self.marks, going, strict=True):
                mark[go] = _GONE
            if self.n_left < _SHRINK * len(self.pairs):
                rows, cols = (mark == _HERE for mark in self.marks)
                self.pairs = self.pairs.kept(rows, cols, self.n_left)

    def _uncount(self) -> None:
        """Subtract the observations that go now from the counts."""
        for i, j in self.pairs:
            lost = np.flatnonzero(np.minimum(self.marks[0][i], self.marks[1][j]) == _GOING)
            self.n_left -= len(lost)
            for count, index in zip(self.counts, (i, j), strict=True):
                # bincount writes all counts and is faster per observation; single ones cost less for few
                if len(lost) > len(count) // 8:
                    count -= np.bincount(index[lost], minlength=len(count))
                else:
                    np.subtract.at(count, index[lost], 1)
