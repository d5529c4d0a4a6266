"""CUDA kernels on CuPy: the signatures of `passes.regress`, `passes.advance`, `posterior.posterior`; a launch for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array
from ..blocks import Block
from ..plain.passes import PART, Column, EntryIds, FitPass, Iterates
from ..plain.posterior import Fit, Model
from ..random import PositionStream, stream_key
from .grid import CudaDenseGrid, CudaGrid, make_grid
from .launch import aligned, dense, kernel, launch, multiprocessors, pointer

__all__ = ["CudaDenseGrid", "CudaGrid", "advance", "make_grid", "posterior", "regress", "regress_together"]

_PASS = np.dtype([("draw_key", "u8"), ("gamma", "f8"), ("begin", "i4"), ("number", "i4")])  # as in regress.cu
_BEGIN = {"zero": 0, "given": 1, "part": 2, "subsets": 3}
# Shared memory of a block for observations; the rest of its 48 KiB, which every GPU has, is for matrices. More keeps longer
# units on the chip, but fewer blocks fit on a multiprocessor at a time.
_STAGE_BYTES = 24 << 10
_MOST_STAGED = 32  # tiles of 32 entries: regress.cu has a bit of a word for each
_STAGED = 1.5  # staged entries over those of an average unit: longer units read the rest again in each step
_ADVANCE_WARPS = 4  # of a block, as in paper.cu
_ADVANCE_BLOCKS = 512  # enough for any GPU; each of their warps has a row of partial sums for each iteration


def regress(
    block: Block, units: np.ndarray, basis: Array, usable: Array, white: Array, ids: EntryIds, fit_pass: FitPass
) -> tuple[Array, Array]:
    """`passes.regress` in one launch; `units` may be on the host or on the device."""
    a, table = regress_together(block, units, basis, usable, white, ids, (fit_pass,))
    return a[:, 0, :], table[:, 0, :]


def regress_together(
    block: Block, units: np.ndarray, basis: Array, usable: Array, white: Array, ids: EntryIds, passes: Sequence[FitPass]
) -> tuple[Array, Array]:
    """Several passes over the same units in one launch; they differ in where they begin and in their gamma.

    Returns what `passes.regress` does, with an axis for the passes: (u, passes, r) and (u, passes, 8).
    """
    dtype, rank, first, p = basis.dtype, basis.shape[1], passes[0], len(passes)
    with basis.device:
        u = len(units)
        coefficients, table = cupy.empty((u, p, rank), dtype), cupy.empty((u, p, len(Column)), dtype)
        if u == 0:
            return coefficients, table
        warps, per_block = _team(u * p, rank)
        tiles = _tiles(block, warps, dtype.itemsize)
        start = None if first.begin != "given" else dense(first.start, dtype)
        differing = tuple((_draw_key(ids.seed, x), x.schedule.gamma, _BEGIN[x.begin], x.number) for x in passes)
        arguments = (
            *(cupy.asarray(units, dtype=cupy.int64), np.int64(u * p), np.int32(per_block)),
            *entries_of(block),
            *(aligned(basis, dtype), dense(usable, dtype), aligned(white, dtype)),
            *_held(ids),
            *(_passes(differing, basis.device.id), np.int32(p)),
            *(dtype.type(x) for x in (first.schedule.zeta0, first.schedule.floor, first.informative)),
            np.int32(first.max_steps),
            pointer(start),
            np.uint64(below(PART)),
            *(np.int32(tiles), coefficients, table),
        )
        staged = warps * tiles * 32 * (2 * dtype.itemsize + 4)
        launch(kernel("regress.cu", "regress", dtype.name, rank), -(-u * p // per_block), 32 * warps, arguments, staged)
    return coefficients, table


def _draw_key(seed: int, fit_pass: FitPass) -> int:
    """What random parts and subsets are drawn by."""
    return stream_key(seed, PositionStream.PART + fit_pass.number if fit_pass.begin == "part" else PositionStream.SUBSET)


@lru_cache(maxsize=256)  # the same ones are made chunk by chunk, and solve by solve
def _passes(differing: tuple[tuple[int, float, int, int], ...], device: int) -> Array:
    """What differs between passes, on a device."""
    there = cupy.asarray(np.array(list(differing), dtype=_PASS).view(np.uint8))
    cupy.cuda.get_current_stream().synchronize()  # other streams will read it
    return there


def _team(u: int, rank: int) -> tuple[int, int]:
    """Warps of a block, and units that it takes at a time.

    A short unit keeps one warp busy, so there are as many units to a block as warps, unless some multiprocessors would have
    nothing to do then. Long units take all warps of their block, one after the other.
    """
    warps = 4 if rank <= 16 else 2  # as in regress.cu and posterior.cu
    return warps, min(warps, -(-u // multiprocessors()))


def _tiles(block: Block, warps: int, itemsize: int) -> int:
    """Tiles of 32 entries that a warp stages."""
    wanted = _STAGED * block.n_obs / max(block.n_units, 1)
    room = _STAGE_BYTES // (warps * 32 * (2 * itemsize + 4))
    return max(1, min(math.ceil(wanted / 32), room, _MOST_STAGED))


def entries_of(block: Block) -> tuple[Array, ...]:
    """Where units begin, positions and values, as the kernels want them."""
    return dense(block.indptr, np.int64), dense(block.index, np.int32), dense(block.value)


def _held(ids: EntryIds) -> tuple[Any, ...]:
    """Ids and what is held out, as the kernels want them."""
    key = stream_key(ids.seed, PositionStream.HOLDOUT)
    places = (dense(ids.unit, np.int64), dense(ids.index, np.int64))
    return *places, np.int32(ids.transposed), np.uint64(key), np.uint64(below(ids.share))


def below(share: float) -> int:
    """53 random bits are below this number just when their uniform number is below `share`."""
    return math.ceil(share * 2**53)


def advance(
    block: Block, units: np.ndarray, usable: Array, ids: EntryIds, iterates: Iterates, a: Array
) -> tuple[Array, Array]:
    """`passes.advance` in one launch; `units` may be on the host or on the device."""
    dtype, (_, length, rank) = iterates.bases.dtype, iterates.bases.shape
    u, steps = len(units), iterates.turns.shape[0]
    with iterates.bases.device:
        out, sums = cupy.empty((u, rank), dtype), cupy.empty((steps, 2), dtype)
        blocks = max(1, min(-(-u // _ADVANCE_WARPS), _ADVANCE_BLOCKS))
        tiles = _tiles(block, _ADVANCE_WARPS, dtype.itemsize)
        arguments = (
            cupy.asarray(units, dtype=cupy.int64),
            np.int64(u),
            *entries_of(block),
            dense(usable, dtype),
            *_held(ids),
            np.int64(length),
            *(dense(x, dtype) for x in (iterates.bases, iterates.turns, iterates.zetas)),
            np.int32(steps),
            dtype.type(iterates.step_size),
            dense(a, dtype),
            np.int32(tiles),
            out,
            cupy.empty((blocks * _ADVANCE_WARPS, max(steps, 1), 2), np.float64),
            cupy.zeros(1, np.uint32),  # a fill, not a launch
            sums,
        )
        staged = _ADVANCE_WARPS * tiles * 32 * (2 * dtype.itemsize + 4)
        launch(kernel("paper.cu", "advance", dtype.name, rank), blocks, 32 * _ADVANCE_WARPS, arguments, staged)
    return out, sums


def posterior(
    block: Block,
    weight: Array | None,
    units: np.ndarray,
    model: Model,
    start: tuple[Array, Array, Array],
    temperatures: tuple[float, ...],
    measure: bool = False,
) -> tuple[Array, Array, Array]:
    """`plain.posterior.posterior` in one launch; `units` may be on the host or on the device."""
    at, noise, u = model.at, model.noise, len(units)
    dtype, rank = at.x.dtype, at.x.shape[1]
    with at.x.device:
        out = tuple(cupy.empty((u, n), dtype) for n in (rank, at.second.shape[1], len(Fit)))
        if u == 0:
            return out
        warps, per_block = _team(u, rank)
        indptr, index, value = entries_of(block)
        single = value.dtype == np.float32
        positions = (at.x, at.shift, at.second, at.cross, at.covariance, at.scale)
        logs = (math.log1p(-noise.share), math.log(noise.share / noise.span))
        arguments = (
            *(cupy.asarray(units, dtype=cupy.int64), np.int64(u), np.int32(per_block)),
            *(indptr, index, value if single else dense(value, np.float64), np.int32(single)),
            pointer(None if weight is None else dense(weight, dtype)),
            *(dense(x, dtype) for x in positions),
            np.int32(at.offsets),
            *(dtype.type(x) for x in (noise.variance, noise.constant, noise.growth)),
            *(dtype.type(x) for x in (noise.tail, noise.top, noise.odds, *logs)),
            *(dense(x, dtype) for x in (model.precision, *start)),
            cupy.asarray(temperatures, dtype=dtype),
            *(np.int32(len(temperatures)), np.int32(measure)),
            *out,
        )
        launch(kernel("posterior.cu", "posterior", dtype.name, rank), -(-u // per_block), 32 * warps, arguments)
    return out
