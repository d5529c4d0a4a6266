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
from .launch import dense, kernel, launch

_WARPS = 4  # of a block, as in votes.cu


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
    block: Block, units: np.ndarray, basis: Array, usable: Array, coefficients: Array, floor: float
) -> tuple[np.ndarray, Block]:
    """`votes.split`, in two launches: how many entries there are has to be known before they are taken."""
    n, dtype = len(units), block.value.dtype
    with block.value.device:
        given = (dense(x, dtype) for x in (basis, usable, coefficients))
        known = (cupy.asarray(units, dtype=np.int64), *entries_of(block), *given, np.int32(basis.shape[1]))
        votes, far = cupy.empty((2, n), np.int64), dtype.type(CLEAR * floor)
        _launch("count_votes", dtype, n, (*known, dtype.type(floor), far, votes))
        winner, rejected = cupy.asnumpy(votes)
        starts = np.concatenate([[0], np.cumsum(rejected)])
        indptr, total = cupy.asarray(starts), int(starts[-1])
        index, value = cupy.empty(total, block.index.dtype), cupy.empty(total, dtype)
        _launch("take_rejected", dtype, n, (*known, far, indptr, index, value))
    return winner, Block(indptr, index, value, block.length)
