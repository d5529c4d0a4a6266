"""Groups of rows and columns that are tied together among themselves, but not to the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, to_numpy
from ..backends.blocks import Block
from ..backends.kernels import Kernels
from ..backends.random import Stream, generator
from .ties import Ties, ties_of

_PAIRS = 512  # rows, and columns, that are compared in search of groups
_ALIKE = 0.8  # share of a group's columns that a row is tied to, if it belongs to the group
_SMALLEST = 0.02  # share of the rows or columns that makes a group; fewer are single cases
_MOST_GROUPS = 8
_PATTERN = 3  # coefficients at random, to see groups in the places of entries: with 1, groups may be alike by chance
_WEAK = 0.3  # gap of places from which no groups are looked for
_COVERED = 0.8  # share of rows, and of columns, that belong to a group, at least
_FEW_ACROSS = 0.25  # share of the entries that is seen between groups over that inside of them, at most


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows and columns that are tied together among themselves, but not to the others.

    Attributes
    ----------
    rows, columns : int64 arrays
        The group of each, from 0 on; -1 for those that belong to none.
    """

    rows: np.ndarray
    columns: np.ndarray

    def first(self, n_rows: int, n_columns: int) -> Groups:
        """The groups of the first rows and columns alone."""
        return Groups(self.rows[:n_rows], self.columns[:n_columns])

    @property
    def n_groups(self) -> int:
        """How many."""
        return int(max(self.rows.max(initial=-1), self.columns.max(initial=-1))) + 1

    @property
    def apart(self) -> bool:
        """Whether there are two groups at least that have rows and columns; what has only one of these is a single case."""
        return sum(min(size) > 1 for size in self.sizes()) > 1

    def apart_at(self, i: Any, j: Any) -> np.ndarray:
        """Whether entries (i, j) are between groups, or of rows or columns that belong to none (bool array)."""
        rows, cols = (labels[to_numpy(k)] for labels, k in ((self.rows, i), (self.columns, j)))
        return np.asarray((rows != cols) | (rows < 0))

    def sizes(self) -> list[tuple[int, int]]:
        """Rows and columns of each group."""
        return [(int(np.sum(self.rows == g)), int(np.sum(self.columns == g))) for g in range(self.n_groups)]


def groups_in(ties: Ties, left: Array, right: Array) -> Groups:
    """Groups between which the free direction changes entries, and inside of which it does not.

    Some rows and columns are compared with each other; the others join the group of those that they agree with.
    """
    A, B, Y, X = (np.asarray(to_numpy(x), dtype=np.float64) for x in (ties.rows, ties.cols, left, right))
    sizes = [np.linalg.norm(x, axis=1) for x in (Y, X)]
    some = [_spread(np.flatnonzero(size > 0), _PAIRS) for size in sizes]

    def change(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """How much entries change, for rows and columns of size 1."""
        whole = np.abs(A[i] @ X[j].T + Y[i] @ B[j].T)
        return whole / np.maximum(sizes[0][i][:, None] * sizes[1][j], 1e-300)

    if min(map(len, some)) == 0:
        return Groups(np.full(len(Y), -1), np.full(len(X), -1))
    table = change(*some)
    limit = _between(table)
    tied = table < limit
    seen = np.zeros(len(some[0]), dtype=bool)
    groups: list[np.ndarray] = []  # the columns of each, among those compared
    for _ in range(_MOST_GROUPS):
        rest = _spread(np.flatnonzero(~seen), 32)
        if len(rest) == 0:
            break
        # the row whose columns most of the others share
        votes = [np.mean(np.mean(tied[~seen] == tied[row], axis=1) > _ALIKE) for row in rest]
        leader = tied[rest[int(np.argmax(votes))]]
        mine = ~seen & (np.mean(tied[:, leader], axis=1) > _ALIKE) if leader.any() else ~seen
        if min(np.mean(mine), np.mean(leader)) > _SMALLEST:
            groups.append(np.mean(tied[mine], axis=0) > 0.5)
        seen = seen | mine
        seen[rest[0]] = True
    # every row, and then every column, joins the group to which it is tied best
    everything = np.arange(len(Y)), np.arange(len(X))
    shares = [np.mean(change(everything[0], some[1][own]) < limit, axis=1) if own.any() else 0 * sizes[0] for own in groups]
    rows = _best(shares, len(Y))
    members = [_spread(np.flatnonzero(rows == number), _PAIRS) for number in range(len(groups))]
    shares = [np.mean(change(own, everything[1]) < limit, axis=0) if len(own) else 0 * sizes[1] for own in members]
    return Groups(rows, _best(shares, len(X)))


def groups_apart(block: Block, kernels: Kernels, seed: int) -> Groups | None:
    """Groups with few entries between them, of a block whose units are rows; None if there are none.

    Where the entries are is all that counts: rows and columns get coefficients at random.
    """
    xp = array_namespace(block.value)
    rng = generator(seed, Stream.TIES)
    typical = float(np.median(block.counts)) if block.n_units else 0.0
    k = _PATTERN if typical >= 4 * _PATTERN else 1
    left, right = (asarray_on(_unit_rows(rng, size, k), block.value) for size in (block.n_units, block.length))
    left, right = (xp.astype(x, xp.float64) for x in (left, right))
    ties = ties_of(block, left, right, kernels, seed)
    if ties.gap > _WEAK:
        return None
    groups = groups_in(ties, left, right)
    rows, cols = groups.rows, groups.columns
    if not groups.apart or min(np.mean(rows >= 0), np.mean(cols >= 0)) < _COVERED:
        return None
    unit = np.repeat(rows, block.counts)
    index = cols[to_numpy(block.index)]
    known = (unit >= 0) & (index >= 0)
    inside, all_pairs = sum(a * b for a, b in groups.sizes()), int(np.sum(rows >= 0)) * int(np.sum(cols >= 0))
    n_inside = int(np.sum(known & (unit == index)))
    across = (int(np.sum(known)) - n_inside) / max(all_pairs - inside, 1)
    return groups if across < _FEW_ACROSS * n_inside / max(inside, 1) else None


def _unit_rows(rng: np.random.Generator, n: int, k: int) -> np.ndarray:
    x = rng.standard_normal((n, k)) if k > 1 else np.ones((n, 1))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _best(shares: list[np.ndarray], n: int) -> np.ndarray:
    """The group with the largest share for each of n units; -1 if that is less than half."""
    if not shares:
        return np.full(n, -1)
    table = np.stack(shares)
    best = np.argmax(table, axis=0)
    return np.where(table[best, np.arange(n)] > 0.5, best, -1)


def _spread(units: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the units, evenly."""
    return units if len(units) <= most else units[np.linspace(0, len(units) - 1, most).astype(np.int64)]


def _between(x: np.ndarray) -> float:
    """The number that tells small ones from large ones best: of two normal distributions of logarithms (Otsu 1979)."""
    values = np.sort(np.log(np.maximum(np.ravel(x), 1e-300)))
    values = np.maximum(values, values[-1] - 40)  # what is smaller is rounding
    n = len(values)
    count = np.arange(1, n)
    total = np.cumsum(values)
    low, high = total[:-1] / count, (total[-1] - total[:-1]) / (n - count)
    place = int(np.argmax(count * (n - count) * (low - high) ** 2)) if n > 1 else 0
    return float(np.exp(0.5 * (values[place] + values[min(place + 1, n - 1)])))
