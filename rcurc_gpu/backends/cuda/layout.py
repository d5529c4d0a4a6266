"""The intersection laid out for the core on CUDA: `plain.layout`, in two launches and what a grid takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array, asarray_on, gather
from ..blocks import Block
from ..plain import joining
from ..plain.layout import Drawn, Layout, sample_of
from ..random import PositionStream, stream_key
from . import blocks
from .calls import below, entries_of
from .grid import CudaDenseGrid, CudaGrid, is_dense
from .launch import dense, kernel, launch, pointer

_WARPS, _FIT = 4, 1  # of a block, and of the kinds of entries, as in layout.cu
_MOST_BLOCKS = 256  # of a sum over everything; fixed, so that its order does not depend on the device


def lay_out(
    block: Block,
    seen_by: Array,
    ids: tuple[Array, Array],
    held: tuple[int, float],
    steps_for: Callable[[int], tuple[float, float, float]],
    drawn: Drawn,
    chunk_bytes: int | None = None,
    library: bool = False,
) -> Layout:
    """`plain.layout.lay_out`."""
    n, n_obs, dtype, (seed, share) = block.n_units, block.n_obs, block.value.dtype, held
    n_blocks = min(max(-(-n // _WARPS), 1), _MOST_BLOCKS)
    with block.value.device:
        known = entries_of(block)
        kinds, ends, total = cupy.empty(n_obs, np.uint8), cupy.empty((3, n + 1), np.int64), cupy.empty((), np.float64)
        names = (dense(x, np.int64) for x in ids)
        draws = (np.uint64(stream_key(seed, PositionStream.HOLDOUT)), np.uint64(below(share)))
        work = (cupy.empty(n_blocks), cupy.zeros(1, np.uint32), total)
        _launch("survey", dtype, n_blocks, (np.int64(n), *known, *names, *draws, kinds, ends, *work))
        n_fit, n_held, n_sample = (int(ends[k, n]) for k in range(3))
        steps = tuple(dtype.type(x) for x in steps_for(n_fit))
        weight, lists = cupy.empty(n_obs, dtype), [_triplets(size, dtype) for size in (n_held, n_sample)]
        if as_matrix := is_dense(block):
            index, shape = None, (n, block.length)
            value, fit_weight = cupy.zeros(shape, dtype), cupy.zeros(shape, dtype)
        else:
            index = cupy.empty(n_fit, np.int32)
            value, fit_weight = cupy.empty(n_fit, dtype), cupy.empty(n_fit, dtype)
        sizes, to = (np.int64(n), np.int64(block.length)), (pointer(index), value, fit_weight)
        given = (*known, kinds, dense(seen_by, np.int8), *steps, ends, weight)
        _launch("lay_out", dtype, n_blocks, (*sizes, *given, *to, *lists[0], *lists[1]))
        shape = (n, block.length)
        grid = (
            CudaDenseGrid(shape, value, fit_weight)
            if as_matrix
            else CudaGrid.by_rows(shape, ends[0], index, value, fit_weight)
        )
        grid.library = library
        sample: tuple[Array, ...] = lists[1]
        if n_sample == 0:
            sample = sample_of(block, drawn, kinds & _FIT != 0)
        elif (numbers := drawn(n_sample)) is not None:
            at = asarray_on(numbers, block.value)
            sample = tuple(gather(x, at) for x in sample)
        return Layout(weight, grid, float(total), n_fit, lists[0], sample)


def join(by_r: Block, by_c: Block, units: np.ndarray | None = None) -> tuple[Block, Array]:
    """`joining.join`; of the second block, some `units` alone if they are given."""
    same = by_r.value.dtype == by_c.value.dtype and (by_r.sigma is None) == (by_c.sigma is None)
    if same and blocks.serves(by_r) and blocks.serves(by_c):
        return blocks.join(by_r, by_c, units)
    return joining.join(by_r, by_c if units is None else by_c.take_units(units))


def _triplets(n: int, dtype: Any) -> tuple[Array, Array, Array]:
    return cupy.empty(n, np.int64), cupy.empty(n, np.int64), cupy.empty(n, dtype)


def _launch(name: str, dtype: Any, n_blocks: int, arguments: tuple[Any, ...]) -> None:
    launch(kernel("layout.cu", name, dtype.name), n_blocks, 32 * _WARPS, arguments)
