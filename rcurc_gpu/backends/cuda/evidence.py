"""How a core does on some of its entries on CUDA: `plain.evidence` in few launches, with a small read-back for each."""

from __future__ import annotations

from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array, unpacking
from ..blocks import Block
from ..plain import evidence as plain
from ..plain.evidence import NEAR, SLACK, BasisFacts, Compared, Measured, Sizes
from ..plain.loop import Entries
from .blocks import select
from .launch import dense, kernel, launch
from .sources import MOST_RANK

_THREADS = 256  # of a block, as in evidence.cu
_MOST_BLOCKS = 64  # of a sum over everything; fixed, so that its order does not depend on the device
_SUMS = 7  # beside those of the components
_PIECE = 1024  # entries that a warp takes: there are no units here


def _launch(name: str, blocks: int, dtype: Any, rank: int, arguments: tuple[Any, ...]) -> None:
    launch(kernel("evidence.cu", name, dtype.name, rank), blocks, _THREADS, arguments)


def measure(entries: Entries, core: tuple[Array, Array, Array], floor: float, size: float, sigma: float) -> Measured:
    """`evidence.measure`, in one launch."""
    n, rank, dtype = len(entries[2]), core[0].shape[1], entries[2].dtype
    if rank > MOST_RANK or n == 0:
        return plain.measure(entries, core, floor, size, sigma)
    with entries[2].device:
        blocks = min(-(-n // _THREADS), _MOST_BLOCKS)
        lists = cupy.empty(n, dtype), cupy.empty(n, dtype), cupy.empty(n, np.bool_)
        n_sums = _SUMS + 2 * rank
        out = cupy.empty(n_sums)
        places = (dense(x, t) for x, t in zip(entries, (np.int64, np.int64, dtype), strict=True))
        numbers = (dtype.type(x) for x in (floor, size, NEAR * sigma, SLACK * sigma))
        work = (cupy.empty(blocks * n_sums), cupy.zeros(1, np.uint32), out)
        factors = (dense(x, dtype) for x in core)
        _launch("measure", blocks, dtype, rank, (np.int64(n), *places, *factors, *numbers, *lists, *work))
        sums = cupy.asnumpy(out)
    n_informative, n_agree, n_below, n_zero, n_nonzero = sums[:5].astype(np.int64).tolist()
    counts = (n, n_informative, n_agree, n_below, n_zero, n_nonzero)
    square = float(sums[6] / sums[5]) if sums[5] else 0.0
    return Measured(*counts, square, sums[_SUMS : _SUMS + rank] / n, sums[_SUMS + rank :] / n, lists)


def compare(measured: Measured, y: Array, floor: float) -> Compared:
    """`evidence.compare`, in one launch; in three, if not all entries are informative."""
    residual, shown, informative = measured.lists
    n, dtype = len(y), y.dtype
    with y.device:
        residuals, values = dense(residual), dense(shown)
        if measured.n_informative < n:
            residuals, values = _chosen(residuals, values, informative)
        out = cupy.empty(5)
        everything = (np.int64(n), dense(y), dense(residual), dtype.type(floor), out)
        _launch("compare", 5, dtype, 1, (np.int64(len(values)), residuals, values, *everything))
        found = cupy.asnumpy(out)
    lower, value, typical, chance, chance_of_all = found.tolist()
    return Compared(lower, value, typical, int(chance), int(chance_of_all))


def _chosen(x: Array, y: Array, flags: Array) -> tuple[Array, Array]:
    """Some of the numbers of two lists, in their order."""
    n = len(x)
    edges = cupy.asarray(np.minimum(np.arange(0, n + _PIECE, _PIECE), n))
    index = cupy.empty(n, np.int32)  # not read, but moved
    some, _ = select(Block(edges, index, y, 0, x), flags=flags)
    return some.sigma, some.value


def n_larger(x: Array, size: float) -> int:
    """`evidence.n_larger`, in one launch."""
    with x.device:
        blocks = max(1, min(-(-len(x) // _THREADS), _MOST_BLOCKS))
        out = cupy.empty(())
        arguments = (np.int64(len(x)), dense(x), x.dtype.type(size), cupy.empty(blocks), cupy.zeros(1, np.uint32), out)
        _launch("count_larger", blocks, x.dtype, 1, arguments)
        return int(out)


def sizes(y: Array) -> Sizes:
    """`evidence.sizes`, in one launch."""
    with y.device:
        out = cupy.empty(4)
        _launch("sizes", 4, y.dtype, 1, (np.int64(len(y)), dense(y), out))
        return Sizes(*map(float, cupy.asnumpy(out)))


def largest_squares(x: Array, y: Array) -> np.ndarray:
    """`evidence.largest_squares`, in one launch."""
    rank = x.shape[1]
    if not 0 < rank <= MOST_RANK:
        return plain.largest_squares(x, y)
    with x.device:
        out = cupy.empty(rank)
        sizes = (np.int64(len(x)), dense(x), np.int64(len(y)), dense(y, x.dtype))
        _launch("largest_squares", rank, x.dtype, rank, (*sizes, out))
        return np.asarray(cupy.asnumpy(out))


def basis_facts(basis: Array, usable: Array) -> BasisFacts:
    """`evidence.basis_facts`, in one launch."""
    length, rank = basis.shape
    if not 0 < rank <= MOST_RANK:
        return plain.basis_facts(basis, usable)
    with basis.device:
        packed = rank * (rank + 1) // 2
        out = cupy.empty(packed + 2)
        _launch("basis_facts", 1, basis.dtype, rank, (np.int64(length), dense(basis), dense(usable, basis.dtype), out))
        found = cupy.asnumpy(out)
    return BasisFacts(found[unpacking(rank)].astype(basis.dtype), float(found[packed]), float(found[packed + 1]), length)
