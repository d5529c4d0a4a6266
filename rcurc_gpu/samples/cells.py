"""A matrix seen from afar: counts of entries in the cells of a coarse grid, the chosen rows and columns first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..backends.arrays import to_numpy
from ..backends.blocks import Block, others
from .view import Samples

MOST_CELLS = 150  # per side
_AT_ONCE = 1 << 22  # observations


@dataclass(frozen=True, eq=False)
class Cells:
    """Which cell each row and column of a matrix falls into.

    Attributes
    ----------
    row_cell : int64 array (n1,)
    col_cell : int64 array (n2,)
    shape : (int, int)
        How many cells, down and across.
    """

    row_cell: np.ndarray
    col_cell: np.ndarray
    shape: tuple[int, int]

    @classmethod
    def of(cls, row_place: np.ndarray, col_place: np.ndarray) -> Cells:
        """Cells for rows and columns that are drawn at these places (permutations of their numbers)."""
        places = (row_place, col_place)
        shape = (min(MOST_CELLS, len(row_place)), min(MOST_CELLS, len(col_place)))
        row_cell, col_cell = (place * count // len(place) for place, count in zip(places, shape, strict=True))
        return cls(row_cell, col_cell, shape)

    @property
    def area(self) -> np.ndarray:
        """Entries of the matrix in each cell, int64 `shape`."""
        down, across = np.bincount(self.row_cell), np.bincount(self.col_cell)  # no cell is empty
        return np.outer(down, across)

    def count(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """How many of the entries (i[k], j[k]) lie in each cell, int64 `shape`."""
        flat = self.row_cell[i] * self.shape[1] + self.col_cell[j]
        return np.bincount(flat, minlength=self.shape[0] * self.shape[1]).reshape(self.shape)

    def count_seen(self, samples: Samples) -> np.ndarray:
        """How many observations lie in each cell, each once, int64 `shape`."""
        total = np.zeros(self.shape, dtype=np.int64)
        for i, j, sign in seen(samples):
            total += sign * self.count(i, j)
        return total


def chosen_first(chosen: np.ndarray, total: int) -> np.ndarray:
    """Where each row (column) is drawn if the chosen ones come first, int64 (total,)."""
    place = np.empty(total, dtype=np.int64)
    place[np.concatenate([chosen, others(chosen, total)])] = np.arange(total)
    return place


def seen(samples: Samples) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Rows and columns of the observations in R, in C, and, with the sign -1, of those that both hold; in pieces."""
    for first, block in samples.blocks("r"):
        for unit, index in _pieces(block):
            yield samples.rows[index], first + unit, 1
    for first, block in samples.blocks("c"):
        for unit, index in _pieces(block):
            yield first + unit, samples.cols[index], 1
    twice = to_numpy(samples.intersection.seen_by) == 3
    start = 0
    for unit, index in _pieces(samples.intersection.block):
        both = twice[start : start + len(unit)]
        start += len(unit)
        yield samples.rows[unit[both]], samples.cols[index[both]], -1


def _pieces(block: Block) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Unit and position of the entries of a block, on the host."""
    unit, index = np.repeat(np.arange(block.n_units, dtype=np.int32), block.counts), to_numpy(block.index)
    for start in range(0, len(unit), _AT_ONCE):
        yield unit[start : start + _AT_ONCE], index[start : start + _AT_ONCE]
