"""Blocks of entries taken apart and put together on CUDA: the methods of `blocks.Block`, which asks here first."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array
from .launch import dense, kernel, launch, pointer

Block = Any  # `blocks.Block`, whose methods ask here: it cannot be imported

_WARPS, _THREADS = 4, 128  # of a block, as in blocks.cu
_MANY_WARPS = 32  # of one that has everything
_MOST_BLOCKS = 1 << 16  # more than any GPU runs at a time
_SUM_BLOCKS = 256  # whose last one goes over what all have found
# Runs of units, a block each, when units and positions are exchanged: enough for any GPU, and few enough, since each goes
# over what all those before it have.
_MOST_RUNS = 256
_SHORT = 1 << 16  # positions up to which 16 bits tell them
_WORDS = {4: "float32", 8: "float64"}  # values are moved, whatever they are


def serves(block: Block) -> bool:
    """Whether the kernels take such a block."""
    value, sigma = block.value, block.sigma
    return value.dtype.itemsize in _WORDS and (sigma is None or sigma.dtype.itemsize == value.dtype.itemsize)


def _launch(name: str, block: Block, blocks: int, arguments: tuple[Any, ...]) -> None:
    function = kernel("blocks.cu", name, _WORDS[block.value.dtype.itemsize])
    launch(function, min(blocks, _MOST_BLOCKS), _THREADS, arguments)


def _units_to_blocks(units: int) -> int:
    return -(-units // _WARPS)


def _places(block: Block) -> tuple[Array, Array]:
    return dense(block.indptr, np.int64), dense(block.index, np.int32)


def _numbers(block: Block) -> tuple[Array, Any]:
    """Values, and their sigma if there is any."""
    return dense(block.value), pointer(None if block.sigma is None else dense(block.sigma))


def _room(block: Block, total: int) -> tuple[Array, Array, Array | None]:
    """Memory for positions, values and sigma."""
    sigma = None if block.sigma is None else cupy.empty(total, block.sigma.dtype)
    return cupy.empty(total, np.int32), cupy.empty(total, block.value.dtype), sigma


def select(
    block: Block,
    units: np.ndarray | None = None,
    flags: Array | None = None,
    places: Array | None = None,
    with_units: bool = False,
) -> tuple[Block, Array | None]:
    """Some entries, in two launches: how many there are has to be known before they are taken.

    Parameters
    ----------
    block : Block
    units : integer array, optional
        Numbers of the units to take, in their order; all by default.
    flags : bool array (n_obs,), optional
        Which entries to take.
    places : bool array (length,), optional
        The positions to take entries at.
    with_units : bool
        Whether the unit of each entry is wanted as well.

    Returns
    -------
    block : Block
    unit : int64 array (n,) or None
        Numbers in the new block.
    """
    with block.value.device:
        n = block.n_units if units is None else len(units)
        chosen = None if units is None else cupy.asarray(units, dtype=np.int64)
        wanted = (pointer(x if x is None else dense(x, np.bool_)) for x in (flags, places))
        known = (np.int64(n), pointer(chosen), *_places(block), *wanted)
        ends = cupy.empty(n + 1, np.int64)
        _launch("count_wanted", block, _units_to_blocks(n), (*known, cupy.zeros(1, np.uint32), ends))
        index, value, sigma = _room(block, int(ends[n]))
        unit = cupy.empty(len(index), np.int64) if with_units else None
        out = (index, value, pointer(sigma), pointer(unit))
        _launch("take_wanted", block, _units_to_blocks(n), (*known, ends, *_numbers(block), *out))
    return replace(block, indptr=ends, index=index, value=value, sigma=sigma), unit


def residuals(
    block: Block,
    units: np.ndarray,
    places: np.ndarray | None,
    own: tuple[Array, np.ndarray],
    other: tuple[Array, np.ndarray],
) -> Block:
    """What a product of factors leaves of some entries, to 0.4 %, on the host.

    Parameters
    ----------
    block : Block
    units : int64 array (n,)
        On the host.
    places : bool array (length,), optional
        The positions to take entries at, on the host.
    own, other : (float array, int64 array)
        The factor of the units, and the rows of it that they have (n,); the other factor, and the rows that positions have
        (length,).
    """
    with block.value.device:
        n, real = len(units), block.value.dtype
        chosen, own_rows, other_rows = (cupy.asarray(x, dtype=np.int64) for x in (units, own[1], other[1]))
        known = (np.int64(n), chosen, *_places(block), pointer(None if places is None else cupy.asarray(places)))
        starts = cupy.empty(n + 1, np.int64)
        # in one launch, so there is room for all that there may be
        room = min(n * (block.length if places is None else int(np.count_nonzero(places))), block.n_obs)
        index = cupy.empty(room, np.uint16 if block.length <= _SHORT else np.int32)
        rest, given = cupy.empty(room, np.uint16), (dense(own[0], real), own_rows, dense(other[0], real), other_rows)
        to = (index, pointer(None)) if index.dtype == np.uint16 else (pointer(None), index)
        arguments = (*known, dense(block.value), *given, np.int32(own[0].shape[1]), starts, *to, rest)
        launch(kernel("blocks.cu", "take_residuals", _WORDS[real.itemsize]), 1, 32 * _MANY_WARPS, arguments)
        indptr = cupy.asnumpy(starts)
        total = int(indptr[-1])
        upper = cupy.asnumpy(rest[:total]).astype(np.uint32) << 16
        found = cupy.asnumpy(index[:total]).astype(np.int32), upper.view(np.float32).astype(np.float64)
    return replace(block, indptr=indptr, index=found[0], value=found[1], sigma=None)


def join_rows(
    core: Array, rest: Array, places: np.ndarray, scale: Array | None = None, more: np.ndarray | None = None
) -> Array:
    """Rows of two arrays as one, in one launch.

    Parameters
    ----------
    core, rest : float arrays (.., ...)
    places : int64 array (n,)
        Which row of `core` each of the rows is; or -1 less which of `rest`.
    scale : float array, optional
        What rows of `rest` are multiplied by.
    more : float array (.., ...), optional
        Further rows of `rest`, on the host.
    """
    n, width, dtype = len(places), math.prod(core.shape[1:]), core.dtype
    with core.device:
        out = cupy.empty((n, *core.shape[1:]), dtype)
        scaling = pointer(None if scale is None else dense(scale, dtype))
        behind = pointer(None if more is None else cupy.asarray(more, dtype=dtype))
        sizes, given = (
            (np.int64(n), np.int32(width)),
            (cupy.asarray(places, dtype=np.int64), dense(core), np.int64(len(rest))),
        )
        arguments = (*sizes, *given, dense(rest, dtype), behind, scaling, out)
        blocks = min(-(-n * width // _THREADS), _MOST_BLOCKS)
        launch(kernel("blocks.cu", "join_rows", dtype.name), blocks, _THREADS, arguments)
    return out


def transpose(block: Block, units: np.ndarray | None = None) -> Block:
    """`Block.transpose`, in two launches."""
    with block.value.device:
        chosen = None if units is None else cupy.asarray(units, dtype=np.int64)
        n = block.n_units if units is None else len(units)
        exchanged = _Exchange(n, chosen, _places(block), block.length, _WORDS[block.value.dtype.itemsize])
        unit, value, sigma = _room(block, block.n_obs if units is None else int(exchanged.starts[-1]))
        exchanged.write(_numbers(block), (unit, value, pointer(sigma)))
    return replace(block, indptr=exchanged.starts, index=unit, value=value, length=n, sigma=sigma)


def places_by_position(indptr: Array, index: Array, length: int) -> tuple[Array, Array, Array]:
    """Where the entries of each position begin (length + 1,), their units, and where they stand among those by units."""
    with index.device:
        unit, places, nothing = cupy.empty(len(index), np.int32), cupy.empty(len(index), np.int64), pointer(None)
        known = (dense(indptr, np.int64), dense(index, np.int32))
        exchanged = _Exchange(len(indptr) - 1, None, known, length, "float64")  # a place has the size of a float64
        exchanged.write((nothing, nothing), (unit, places, nothing))
    return exchanged.starts, unit, places


class _Exchange:
    """Units, all or the chosen ones, and positions exchanged, in two launches; `starts` (length + 1,) is there before them.

    Between these there is time to take memory.
    """

    def __init__(self, n: int, chosen: Array | None, places: tuple[Array, Array], length: int, word: str) -> None:
        n_obs = len(places[1]) * n // max(len(places[0]) - 1, 1)  # of the chosen units, about
        self._runs = max(1, min(n, n_obs // max(length, 1), _MOST_RUNS))  # what is counted takes no more than the entries
        self._counts, self._word = cupy.empty((2, self._runs, length), np.uint32), word
        self._known = (np.int64(n), pointer(chosen), np.int64(length), *places)
        self.starts = cupy.zeros(length + 1, np.int64)
        self._launch("count_places", (*self._known, self._counts[0], cupy.zeros(1, np.uint32), self.starts))

    def write(self, numbers: tuple[Any, Any], out: tuple[Any, ...]) -> None:
        """Write units, values and sigma by position to `out`; without values, places of entries stand for them."""
        self._launch("exchange", (*self._known, *self._counts, self.starts, *numbers, *out))

    def _launch(self, name: str, arguments: tuple[Any, ...]) -> None:
        launch(kernel("blocks.cu", name, self._word), self._runs, _THREADS, arguments)


def join(by_r: Block, by_c: Block, units: np.ndarray | None = None) -> tuple[Block, Array]:
    """`joining.join` of blocks of one dtype, in two launches; of the second, some `units` alone if they are given."""
    with by_c.value.device:
        n, chosen = by_r.n_units, None if units is None else cupy.asarray(units, dtype=np.int64)
        first, second = _places(by_r), (pointer(chosen), *_places(by_c))
        ends = cupy.empty(n + 1, np.int64)
        arguments: tuple[Any, ...] = (np.int64(n), *first, *second, cupy.zeros(1, np.uint32), ends)
        _launch("count_union", by_c, _units_to_blocks(n), arguments)
        index, value, sigma = _room(by_c, int(ends[n]))
        code = cupy.empty(len(index), np.int8)
        halves = (*first, *_numbers(by_r), *second, *_numbers(by_c))
        arguments = (np.int64(n), *halves, ends, index, value, pointer(sigma), code)
        _launch("take_union", by_c, _units_to_blocks(n), arguments)
    return replace(by_c, indptr=ends, index=index, value=value, sigma=sigma), code


def fingerprints(block: Block, odd: int) -> tuple[Array, Array]:
    """`samples.intersection.fingerprints` of units and of positions, in one launch."""
    with block.value.device:
        out = cupy.empty(block.n_units, np.int64), cupy.zeros(block.length, np.int64)
        arguments = (np.int64(block.n_units), *_places(block), dense(block.value), np.uint64(odd), *out)
        _launch("fingerprint", block, _units_to_blocks(block.n_units), arguments)
    return out


def largest_sizes(x: Array, y: Array) -> tuple[float, float]:
    """The largest sizes of the numbers of two vectors of one dtype, in one launch."""
    with x.device:
        blocks = max(1, min(-(-max(len(x), len(y)) // _THREADS), _SUM_BLOCKS))
        out, work = cupy.empty(2), (cupy.empty(2 * blocks), cupy.zeros(1, np.uint32))
        function = kernel("blocks.cu", "largest_sizes", x.dtype.name)
        launch(function, blocks, _THREADS, (np.int64(len(x)), dense(x), np.int64(len(y)), dense(y), *work, out))
        first, second = cupy.asnumpy(out).tolist()
    return first, second
