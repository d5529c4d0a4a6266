"""The one search for outliers: observations that differ from the recovered matrix by the threshold or more.

Observations come in blocks (samples in memory, shards, a sparse matrix), or are all entries of a whole matrix, whose rows
are multiplied out instead. Either way they are read in pieces, wherever their arrays are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, device_of, is_array, sparse_module, take_rows, to_numpy
from ..backends.blocks import Block
from ..samples.building import check_same_place
from ..samples.dense import DenseReader, dense_source
from ..samples.view import Samples
from .matrix import LowRankMatrix

# Observations at once: a piece takes two arrays of this many rows, each as wide as the rank, a few MB beside the factors.
_ENTRIES_AT_ONCE = 1 << 18


class Outlying(NamedTuple):
    """Some observations beyond the threshold.

    Attributes
    ----------
    unit, index : integer arrays (k,)
        Row (of C) or column (of R), and the position in it.
    observed, residual : float arrays (k,)
        The value, and the value minus the recovered one.
    """

    unit: Array
    index: Array
    observed: Array
    residual: Array

    @classmethod
    def joined(cls, parts: Iterable[Outlying]) -> Outlying:
        """One of several."""
        columns = list(zip(*parts, strict=True))
        xp = array_namespace(columns[0][0])
        return cls(*(xp.concat(column) for column in columns))


def outlying_in(block: Block, basis: Array, coefficients: Array, threshold: float) -> Outlying:
    """What is outlying in a block, where `basis` is.

    Parameters
    ----------
    block : Block
    basis : float array (length, r)
        The product of its rows with the coefficients of a unit is the unit.
    coefficients : float array (n_units, r)
    threshold : float
    """
    return Outlying.joined(_pieces(block.to(basis), basis, coefficients, threshold))


def _pieces(block: Block, basis: Array, coefficients: Array, threshold: float) -> Iterator[Outlying]:
    xp = array_namespace(basis)
    for start in range(0, max(block.n_obs, 1), _ENTRIES_AT_ONCE):
        stop = min(start + _ENTRIES_AT_ONCE, block.n_obs)
        entry = xp.arange(start, stop, dtype=xp.int64, device=device_of(basis))
        unit = xp.searchsorted(block.indptr, entry, side="right") - 1
        index, value = block.index[start:stop], block.value[start:stop]
        residual = value - xp.sum(take_rows(basis, index) * take_rows(coefficients, unit), axis=1)
        out = xp.abs(residual) >= threshold  # False where the recovered value is NaN
        yield Outlying(unit[out], index[out], value[out], residual[out])


def outlying_blocks(samples: Samples, cur: LowRankMatrix, threshold: float) -> Iterator[tuple[str, int, Block, Outlying]]:
    """Side, first unit and observations of each block of samples, R first, and what is outlying in it."""
    for side, chosen, left, right in (("r", samples.rows, cur.left, cur.right), ("c", samples.cols, cur.right, cur.left)):
        basis = take_rows(left, asarray_on(chosen, left))
        for first, block in samples.blocks(side):
            yield side, first, block, outlying_in(block, basis, right[first : first + block.n_units, :], threshold)


def outlying_once(samples: Samples, cur: LowRankMatrix, threshold: float) -> tuple[np.ndarray, ...]:
    """Row, column, observed value and residual of each outlier of samples, by rows, on the host; each once."""
    parts = []
    for side, first, _, found in outlying_blocks(samples, cur, threshold):
        unit, index, observed, residual = (to_numpy(x) for x in found)
        place = (samples.rows[index], first + unit) if side == "r" else (first + unit, samples.cols[index])
        parts.append((*place, observed, residual))
    i, j, observed, residual = (np.concatenate(column) for column in zip(*parts, strict=True))
    _, once = np.unique(i * samples.shape[1] + j, return_index=True)  # both blocks may see an entry of the intersection
    return i[once], j[once], observed[once], residual[once]


def outlying_in_matrix(Y: Any, X: LowRankMatrix, threshold: float) -> Any:
    """``Y - X`` where it exceeds the threshold, as a sparse matrix (n1, n2) of the kind of the factors of X.

    Here all entries of a row are wanted, and a product of matrices gives them much faster than one entry after the other.
    """
    Y = dense_source(Y)
    if tuple(Y.shape) != X.shape:
        raise ValueError(f"Y must have the shape of the recovered matrix, {X.shape}, got {tuple(Y.shape)}")
    xp, sparse = array_namespace(X.left), sparse_module(X.left)
    if is_array(Y) and not isinstance(Y, np.ndarray):
        check_same_place("Y", Y, "the recovered matrix", X.left)
    parts = []
    for start, part in DenseReader(Y, X.left).pieces():
        residual = part - X.left[start : start + part.shape[0], :] @ X.right.T
        i, j = xp.nonzero(xp.abs(residual) >= threshold)  # False where either is NaN
        parts.append((i + start, j, residual[i, j]))
    i, j, value = (xp.concat(column) for column in zip(*parts, strict=True))
    make = getattr(sparse, "csr_array", None) or sparse.csr_matrix
    return make((value, (i, j)), shape=X.shape)
