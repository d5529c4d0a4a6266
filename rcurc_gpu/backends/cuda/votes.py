"""Questions to single entries on CUDA: who is held out, and who agrees with the solution of its unit."""

from __future__ import annotations

from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array
from ..blocks import Block
from ..plain.votes import CLEAR
from ..random import PositionStream, stream_key
from .calls import below, entries_of
from .launch import dense, kernel, launch, pointer

_WARPS, _MANY_WARPS = 4, 32  # of a block, and of the one that has everything, as in votes.cu
# Units that one block splits: a warp has a unit in any case, so with few of them the others would have little to do. What it
# finds is counted and written in one launch, so there has to be room for all that it may find.
_FEW_UNITS, _MOST_FOUND = 64, 1 << 20


def _launch(name: str, dtype: Any, units: int, arguments: tuple[Any, ...]) -> None:
    launch(kernel("votes.cu", name, dtype.name), -(-units // _WARPS), 32 * _WARPS, (np.int64(units), *arguments))


def held_out(block: Block, unit_ids: Array, index_ids: Array, seed: int, share: float) -> Array:
    """`passes.held_out`, in one launch."""
    key = np.uint64(stream_key(seed, PositionStream.HOLDOUT))
    with block.value.device:
        held = cupy.empty(block.n_obs, np.bool_)
        names = (dense(unit_ids, np.int64), dense(index_ids, np.int64))
        places = entries_of(block)[:2]
        _launch("held_out", block.value.dtype, block.n_units, (*places, *names, key, np.uint64(below(share)), held))
    return held


def agreeing(block: Block, left: Array, right: Array, floor: float, usable: tuple[Array, Array]) -> Block:
    """`votes.agreeing`, in three launches."""
    dtype = block.value.dtype
    with block.value.device:
        found = cupy.empty(block.n_obs, np.bool_)
        given = (dense(x, dtype) for x in (left, right, *usable))
        numbers = (np.int32(left.shape[1]), dtype.type(floor))
        _launch("agree", dtype, block.n_units, (*entries_of(block), *given, *numbers, found))
    return block.where(found)


def split(
    block: Block,
    units: np.ndarray,
    basis: Array,
    usable: Array,
    coefficients: Array,
    floor: float,
    rows: np.ndarray | None = None,
) -> tuple[np.ndarray, Block]:
    """`votes.split`: of few units in one launch; of many in two, for how many entries there are has to be known before."""
    n, dtype, index_dtype = len(units), block.value.dtype, block.index.dtype
    with block.value.device:
        given = (dense(x, dtype) for x in (basis, usable, coefficients))
        own = pointer(None if rows is None else cupy.asarray(rows, dtype=np.int64))
        known = (cupy.asarray(units, dtype=np.int64), *entries_of(block), *given, own, np.int32(basis.shape[1]))
        near, far = dtype.type(floor), dtype.type(CLEAR * floor)
        most = min(n * block.length, block.n_obs)
        if n <= _FEW_UNITS and most <= _MOST_FOUND:
            votes, index, value = cupy.empty(3 * n + 1, np.int64), cupy.empty(most, index_dtype), cupy.empty(most, dtype)
            arguments = (np.int64(n), *known, near, far, votes, index, value)
            launch(kernel("votes.cu", "split_few", dtype.name), 1, 32 * _MANY_WARPS, arguments)
            found = cupy.asnumpy(votes)
            winner, indptr, total = found[:n], votes[2 * n :], int(found[-1])
            return winner, Block(indptr, index[:total], value[:total], block.length)
        votes = cupy.empty((2, n), np.int64)
        _launch("count_votes", dtype, n, (*known, near, far, votes))
        winner, rejected = cupy.asnumpy(votes)
        starts = np.concatenate([[0], np.cumsum(rejected)])
        indptr, total = cupy.asarray(starts), int(starts[-1])
        index, value = cupy.empty(total, index_dtype), cupy.empty(total, dtype)
        _launch("take_rejected", dtype, n, (*known, far, indptr, index, value))
    return winner, Block(indptr, index, value, block.length)
