"""The observations that the noise model is fitted to: the intersection, and columns and rows beside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..backends.arrays import to_numpy
from ..backends.blocks import Block
from ..backends.plain.passes import is_held_out


@dataclass(frozen=True, eq=False)
class Part:
    """Observations on the host, each once.

    Rows are numbered with those of I first, then the others of the part; columns likewise, with those of J first.

    Attributes
    ----------
    inside : Block
        I x J; units are rows.
    columns : Block
        Columns outside of J; positions are I.
    rows : Block
        Rows outside of I; positions are J.
    row_ids, col_ids : int64 arrays
        Their numbers in the matrix: I and the others, J and the others.
    """

    inside: Block
    columns: Block
    rows: Block
    row_ids: np.ndarray
    col_ids: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the part."""
        return len(self.row_ids), len(self.col_ids)

    @cached_property
    def by_rows(self) -> Block:
        """All observations of the rows of I; positions are columns of the part."""
        return _side_by_side(self.inside, self.columns.transpose())

    @cached_property
    def by_cols(self) -> Block:
        """All observations of the columns of J; positions are rows of the part."""
        return _side_by_side(self.inside.transpose(), self.rows.transpose())

    @cached_property
    def entries(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, column and value of every observation."""
        m = self.inside.n_units
        i = np.concatenate([self.by_rows.unit_of_entry(), m + self.rows.unit_of_entry()])
        j = np.concatenate([self.by_rows.index, self.rows.index]).astype(np.int64)
        return i, j, np.concatenate([self.by_rows.value, self.rows.value]).astype(np.float64)

    @cached_property
    def sigma(self) -> np.ndarray | None:
        """Standard deviation of the noise of every observation, if it is known."""
        first, rest = self.by_rows.sigma, self.rows.sigma
        return first if first is None or rest is None else np.concatenate([first, rest])

    def is_held(self, i: np.ndarray, j: np.ndarray, seed: int, share: float) -> np.ndarray:
        """Whether entries of the part are held out of the fit."""
        return is_held_out(self.row_ids[i], self.col_ids[j], seed, share)


def on_host(block: Block) -> Block:
    """The same block as NumPy arrays."""
    return block.mapped(to_numpy)


def _side_by_side(left: Block, right: Block) -> Block:
    """Units with the entries of both; positions of the second come after those of the first."""
    counts = left.counts + right.counts
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    index, value = np.empty(int(indptr[-1]), np.int32), np.empty(int(indptr[-1]), left.value.dtype)
    sigma = None if left.sigma is None else np.empty_like(value)
    for block, first, shift in ((left, indptr[:-1], 0), (right, indptr[:-1] + left.counts, left.length)):
        place = np.arange(block.n_obs) + np.repeat(first - block.indptr[:-1], block.counts)
        index[place], value[place] = block.index + np.int32(shift), block.value
        if sigma is not None and block.sigma is not None:
            sigma[place] = block.sigma
    return Block(indptr, index, value, left.length + right.length, sigma)
