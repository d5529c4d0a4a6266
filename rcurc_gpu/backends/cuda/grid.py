"""The intersection for CUDA kernels: entries by rows and by columns, or dense."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np
from cupy import cublas

from ..arrays import Array, scatter
from ..blocks import Block
from ..plain.grid import Entries, Grid
from .launch import dense, kernel, launch, pointer

_WARPS = 4  # of a block, as in core.cu
_SELECT_THREADS = 512  # as in core.cu
_MOST_BLOCKS = 1024  # of a sum over everything: enough for any GPU; fixed, so that its order does not depend on the device


def _rows_to_blocks(rows: int) -> int:
    return -(-rows // _WARPS)


@dataclass(eq=False)
class _KernelGrid(Grid):
    """What the two layouts share.

    Attributes
    ----------
    value, weights : float arrays
    """

    shape: tuple[int, int]
    value: Array
    weights: Array
    _arrived: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        with self.value.device:
            self._arrived = cupy.zeros(1, dtype=cupy.uint32)

    @property
    def _places(self) -> tuple[Any, Any]:
        """Where rows begin and which columns their entries are in; null pointers if rows are dense."""
        return pointer(None), pointer(None)

    def _fit(self, left: Array, Q: Array) -> tuple[Any, ...]:
        """What kernels that go over the entries of the fit take first."""
        m, n = self.shape
        factors = (dense(x, self.value.dtype) for x in (left, Q))
        return np.int64(m), np.int64(n), *self._places, self.value, self.weights, *factors

    def _launch(self, name: str, width: int, blocks: int, arguments: tuple[Any, ...], threads: int = 32 * _WARPS) -> None:
        launch(kernel("core.cu", name, self.value.dtype.name, width), blocks, threads, arguments)

    def threshold(
        self, left: Array, Q: Array, zeta: Array, S: list[Array] | None
    ) -> tuple[list[Array], list[Array], Array, Array, Array]:
        dtype = self.value.dtype
        with self.value.device:
            blocks = min(_rows_to_blocks(self.shape[0]), _MOST_BLOCKS)
            G, outliers = cupy.empty_like(self.value), cupy.empty_like(self.value) if S is None else S[0]
            Z, sums = cupy.empty(left.shape, dtype), cupy.empty(2, dtype)
            before = (cupy.asarray(zeta, dtype=dtype), pointer(None if S is None else S[0]))
            work = (cupy.empty(2 * blocks, np.float64), self._arrived, sums)
            self._launch("threshold", left.shape[1], blocks, (*self._fit(left, Q), *before, outliers, G, Z, *work))
        return [G], [outliers], Z, sums[0], sums[1]

    def inlying(self, left: Array, Q: Array, zeta: float) -> tuple[list[Array], Array, Array]:
        m = self.shape[0]
        with self.value.device:
            kept, inside = cupy.empty_like(self.value), cupy.empty(self.value.shape, np.uint8)
            by_row = cupy.empty(m, np.int64)
            arguments = (*self._fit(left, Q), self.value.dtype.type(zeta), kept, inside, by_row)
            self._launch("inlying", left.shape[1], _rows_to_blocks(m), arguments)
            return [kept], by_row, self._count_columns(inside, left.shape[1])

    @abstractmethod
    def _count_columns(self, inside: Array, width: int) -> Array:
        """How many entries of each column are `inside`."""

    def floor_threshold(self, left: Array, Q: Array, sample: Entries, zeta: float, floor: float) -> Array:
        dtype = self.value.dtype
        n = sample[2].shape[0]
        with self.value.device:
            if floor == 0 or n == 0:
                return cupy.full((), zeta, dtype=dtype)
            result = cupy.empty((), dtype)
            arrays = (*(dense(x, np.int64) for x in sample[:2]), *(dense(x, dtype) for x in (sample[2], left, Q)))
            work = (cupy.empty(n, dtype), self._arrived, result)
            arguments = (np.int64(n), *arrays, dtype.type(zeta), dtype.type(floor), *work)
            blocks = min(-(-n // _SELECT_THREADS), _MOST_BLOCKS)
            self._launch("floor_threshold", left.shape[1], blocks, arguments, _SELECT_THREADS)
        return result

    def change(self, left: Array, Q: Array, old_left: Array, old_Q: Array, old_s: Array) -> Array:
        (m, n), dtype = self.shape, self.value.dtype
        width = left.shape[1]
        with self.value.device:
            arrays = tuple(dense(x, dtype) for x in (left, Q, old_left, old_Q, old_s))
            blocks = min(-(-(m + n) * width // (32 * _WARPS)), _MOST_BLOCKS)
            result = cupy.empty((), dtype)
            work = (dense(arrays[3].T @ arrays[1]), cupy.empty(2 * blocks, np.float64), self._arrived, result)
            self._launch("change", width, blocks, (np.int64(m), np.int64(n), *arrays, *work))
        return result

    def record(self, before: Array | None, numbers: list[Array], s: Array) -> Array:
        dtype, width = self.value.dtype, s.shape[0]
        n_before = 0 if before is None else before.shape[0]
        with self.value.device:
            out = cupy.empty(n_before + 5 + width, dtype)
            given = [cupy.asarray(x, dtype=dtype) for x in numbers]
            self._launch("record", width, 1, (pointer(before), np.int32(n_before), *given, s, out), 64)
        return out

    def scale(self, P: Array, s: Array, rank: int) -> tuple[Array, Array]:
        with self.value.device:
            P = dense(P)
            left, leading = cupy.empty(P.shape, P.dtype), cupy.empty(s.shape, s.dtype)
            blocks = min(-(-left.size // (32 * _WARPS)), _MOST_BLOCKS)
            self._launch("scale", s.shape[0], blocks, (np.int64(P.shape[0]), np.int32(rank), P, s, left, leading))
        return left, leading


@dataclass(eq=False)
class CudaGrid(_KernelGrid):
    """Entries of the fit by rows, with their places by columns. `G` and `S` are lists of one vector (n_entries,).

    Attributes
    ----------
    indptr : int64 array (m + 1,)
    index : int32 array (n_entries,)
    by_column : (int64 array (n + 1,), int32 array, int64 array)
        Where columns begin, the rows of their entries, and where these stand among those by rows.
    """

    indptr: Array
    index: Array
    by_column: tuple[Array, Array, Array]

    @classmethod
    def of(cls, block: Block, weight: Array) -> CudaGrid:
        """Lay out `block`; entries of weight 0 are left out."""
        with block.value.device:
            fit = cupy.flatnonzero(weight > 0)
            counted = cupy.zeros(block.n_obs + 1, dtype=np.int64)
            cupy.cumsum(weight > 0, dtype=np.int64, out=counted[1:])
            indptr = counted[block.indptr]
            index, value = block.index[fit], block.value[fit]
            # The place of each entry goes through the transposition as its value.
            places = cupy.arange(value.shape[0], dtype=np.int64)
            flipped = Block(indptr, index, places, block.length).transpose()
            by_column = (flipped.indptr, dense(flipped.index, np.int32), flipped.value)
            return cls((block.n_units, block.length), value, dense(weight[fit], value.dtype), indptr, index, by_column)

    @property
    def _places(self) -> tuple[Any, Any]:
        return self.indptr, self.index

    def mul(self, G: list[Array], X: Array, base: Array | None = None) -> Array:
        return self._multiply(G[0], X, base, self.shape[0], (self.indptr, self.index, pointer(None)))

    def rmul(self, G: list[Array], P: Array, base: Array | None = None) -> Array:
        return self._multiply(G[0], P, base, self.shape[1], self.by_column)

    def _multiply(self, G: Array, X: Array, base: Array | None, rows: int, places: tuple[Any, Any, Any]) -> Array:
        dtype = self.value.dtype
        with self.value.device:
            X = X.astype(dtype, copy=False)
            steps = tuple(np.int64(step // dtype.itemsize) for step in X.strides)
            out = cupy.empty((rows, X.shape[1]), dtype)
            base = None if base is None else dense(base, dtype)
            arguments = (np.int64(rows), *places, G, X, *steps, pointer(base), out)
            self._launch("multiply", X.shape[1], _rows_to_blocks(rows), arguments)
        return out

    def _count_columns(self, inside: Array, width: int) -> Array:
        n = self.shape[1]
        counts = cupy.empty(n, np.int64)
        indptr, _, source = self.by_column
        self._launch("count_columns", width, _rows_to_blocks(n), (np.int64(n), indptr, source, inside, counts))
        return counts


@dataclass(eq=False)
class CudaDenseGrid(_KernelGrid):
    """All cells, with weight 0 where nothing takes part. `G` and `S` are lists of one matrix (m, n)."""

    @classmethod
    def of(cls, block: Block, weight: Array) -> CudaDenseGrid:
        """Lay out `block`."""
        shape = (block.n_units, block.length)
        with block.value.device:
            place = block.unit_of_entry() * block.length + block.index
            value = scatter(place, block.value, shape)
            return cls(shape, value, scatter(place, dense(weight, value.dtype), shape))

    def mul(self, G: list[Array], X: Array, base: Array | None = None) -> Array:
        with self.value.device:
            return G[0] @ X if base is None else cublas.gemm("N", "N", G[0], X, out=base, beta=1.0)

    def rmul(self, G: list[Array], P: Array, base: Array | None = None) -> Array:
        with self.value.device:
            return G[0].T @ P if base is None else cublas.gemm("T", "N", G[0], P, out=base, beta=1.0)

    def _count_columns(self, inside: Array, width: int) -> Array:
        return inside.sum(axis=0, dtype=np.int64)


def make_grid(block: Block, weight: Array, chunk_bytes: int | None = None, layout: str = "auto") -> Grid:
    """`grid.make_grid` for the kernels: "dense", "sparse" or, by what moves fewer bytes, "auto"."""
    item = block.value.dtype.itemsize
    # In an iteration a dense cell moves 7 numbers; a sparse entry the same, and twice its place: by rows and by columns.
    dense_bytes = 7 * item * block.n_units * block.length
    sparse_bytes = (7 * item + 2 * 4 + 8 + 24) * block.n_obs  # what is scattered comes in pieces of 32 bytes
    if layout == "dense" or (layout == "auto" and dense_bytes <= sparse_bytes):
        return CudaDenseGrid.of(block, weight)
    return CudaGrid.of(block, weight)
