"""The intersection for CUDA kernels: entries by rows and by columns, or dense."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array, scatter
from ..blocks import Block
from ..plain.loop import Begin, Entries, Grid, InlierTally, Loop, Recipe
from .blocks import places_by_position, select
from .launch import dense, kernel, launch, pointer
from .loop import CudaLoop
from .sources import MOST_WIDTH

_WARPS = 4  # of a block, as in core.cu
_SELECT_THREADS = 512  # as in core.cu
_MOST_BLOCKS = 1024  # of a sum over everything: enough for any GPU; fixed, so that its order does not depend on the device
_SLAB = 64  # rows of a dense product with the transpose that a block takes at least: fewer, and the sums of blocks cost more
_SLAB_BLOCKS = 512  # of such a product: several for each multiprocessor, and partial sums of at most 4 times a large product


def _rows_to_blocks(rows: int) -> int:
    return -(-rows // _WARPS)


@dataclass(eq=False)
class KernelGrid(Grid):
    """What the two layouts share.

    Attributes
    ----------
    value, weights : float arrays
    library : bool
        Whether SVDs are left to cuSOLVER, with the host between them.
    """

    shape: tuple[int, int]
    value: Array
    weights: Array
    _arrived: Array = field(init=False, repr=False)
    _partial: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._blocks = min(_rows_to_blocks(self.shape[0]), _MOST_BLOCKS)
        with self.value.device:
            self._arrived = cupy.zeros(1, dtype=cupy.uint32)
            self._partial = cupy.empty(2 * self._blocks, np.float64)

    def loop(self, recipe: Recipe, begin: Begin) -> Loop:
        # An SVD to an accuracy asks the host after each step.
        if self.library or recipe.svd_tol > 0 or begin.whole[0].shape[1] > MOST_WIDTH:
            return super().loop(recipe, begin)
        return CudaLoop(self, recipe, begin)

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
            G, outliers = cupy.empty_like(self.value), cupy.empty_like(self.value) if S is None else S[0]
            Z, sums = cupy.empty(left.shape, dtype), cupy.empty(2, dtype)
            before = (cupy.asarray(zeta, dtype=dtype), pointer(None if S is None else S[0]))
            self.split((left, Q), before, (outliers, G, Z), sums)
        return [G], [outliers], Z, sums[0], sums[1]

    def split(
        self, factors: tuple[Array, Array], before: tuple[Any, Any], out: tuple[Array, Array, Array], sums: Array
    ) -> None:
        """`threshold` into given memory: `before` has zeta and the former outliers, `out` outliers, G and Z."""
        work = (self._partial, self._arrived, sums)
        self._launch("threshold", factors[0].shape[1], self._blocks, (*self._fit(*factors), *before, *out, *work))

    def inlying(self, left: Array, Q: Array, zeta: float) -> tuple[list[Array], Array, Array]:
        m = self.shape[0]
        with self.value.device:
            kept, inside = cupy.empty_like(self.value), cupy.empty(self.value.shape, np.uint8)
            by_row = cupy.empty(m, np.int64)
            arguments = (*self._fit(left, Q), self.value.dtype.type(zeta), kept, inside, by_row)
            self._launch("inlying", left.shape[1], _rows_to_blocks(m), arguments)
            return [kept], by_row, self._count_columns(inside, left.shape[1])

    def tally(self, left: Array, Q: Array, zeta: float) -> InlierTally:
        (m, n), dtype = self.shape, self.value.dtype
        with self.value.device:
            counts, square = cupy.zeros(2 * (m + n), np.uint32), cupy.empty((), np.float64)
            to = (counts[: 2 * m], counts[2 * m :], self._partial, self._arrived, square)
            self._launch("tally", left.shape[1], self._blocks, (*self._fit(left, Q), dtype.type(zeta), *to))
            found = cupy.asnumpy(counts).astype(np.int64)
            return InlierTally(float(square), *found[: 2 * m].reshape(2, m), *found[2 * m :].reshape(2, n))

    @abstractmethod
    def _count_columns(self, inside: Array, width: int) -> Array:
        """How many entries of each column are `inside`."""

    def floor_threshold(self, left: Array, Q: Array, sample: Entries, zeta: float, floor: float) -> Array:
        dtype = self.value.dtype
        with self.value.device:
            result, sizes = cupy.empty((), dtype), cupy.empty(sample[2].shape, dtype)
            i, j, y = (dense(x, t) for x, t in zip(sample, (np.int64, np.int64, dtype), strict=True))
            factors = (dense(left, dtype), dense(Q, dtype))
            self.find_threshold(factors, (i, j, y), (zeta, pointer(None), pointer(None)), floor, sizes, result)
        return result

    def find_threshold(
        self,
        factors: tuple[Array, Array],
        sample: Entries,
        zeta: tuple[float, Any, Any],
        floor: float,
        sizes: Array,
        result: Array,
    ) -> None:
        """`floor_threshold` into `result`: `zeta` is a number, or a schedule and the iterations that were done."""
        n, real = 0 if floor == 0 else len(sizes), self.value.dtype.type
        given = (real(zeta[0]), *zeta[1:], real(floor), sizes, self._arrived, result)
        blocks = min(-(-n // _SELECT_THREADS), _MOST_BLOCKS)
        self._launch(
            "floor_threshold", factors[0].shape[1], blocks, (np.int64(n), *sample, *factors, *given), _SELECT_THREADS
        )

    def mul(self, G: list[Array], X: Array, base: Array | None = None) -> Array:
        dtype = self.value.dtype
        with self.value.device:
            out, base = cupy.empty((self.shape[0], X.shape[1]), dtype), None if base is None else dense(base, dtype)
            self.product(G[0], X.astype(dtype, copy=False), base, None, out)
        return out

    def rmul(self, G: list[Array], P: Array, base: Array | None = None) -> Array:
        dtype = self.value.dtype
        with self.value.device:
            out, base = cupy.empty((self.shape[1], P.shape[1]), dtype), None if base is None else dense(base, dtype)
            self.product_of_columns(G[0], P.astype(dtype, copy=False), base, None, out, self.work(P.shape[1]))
        return out

    def product(self, G: Array, X: Array, base: Array | None, turn: Array | None, out: Array) -> None:
        """``base @ turn + G @ X`` into `out`; `turn` is square, None for the unit matrix."""
        self._multiply(G, X, (base, turn, out), self.shape, (*self._places, pointer(None)))

    @abstractmethod
    def product_of_columns(
        self, G: Array, X: Array, base: Array | None, turn: Array | None, out: Array, work: tuple[Array, ...]
    ) -> None:
        """``base @ turn + G.T @ X`` into `out`, with memory from `work`."""

    def work(self, width: int) -> tuple[Array, ...]:
        """Memory for `product_of_columns` with so many columns."""
        return ()

    def _multiply(
        self,
        G: Array,
        X: Array,
        others: tuple[Array | None, Array | None, Array],
        shape: tuple[int, int],
        places: tuple[Any, Any, Any],
    ) -> None:
        steps = tuple(np.int64(step // X.dtype.itemsize) for step in X.strides)
        arguments = (*map(np.int64, shape), *places, G, X, *steps, *map(pointer, others))
        self._launch("multiply", X.shape[1], _rows_to_blocks(shape[0]), arguments)

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
class CudaGrid(KernelGrid):
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
            # the weights go with the entries as their sigma
            weight = dense(weight, block.value.dtype)
            fit, _ = select(Block(block.indptr, block.index, block.value, block.length, weight), flags=weight > 0)
            return cls.by_rows((block.n_units, block.length), fit.indptr, fit.index, fit.value, fit.sigma)

    @classmethod
    def by_rows(cls, shape: tuple[int, int], indptr: Array, index: Array, value: Array, weights: Array) -> CudaGrid:
        """A grid of the entries of the fit by rows."""
        by_column = places_by_position(indptr, index, shape[1])
        return cls(shape, value, weights, indptr, index, by_column)

    @property
    def _places(self) -> tuple[Any, Any]:
        return self.indptr, self.index

    def product_of_columns(
        self, G: Array, X: Array, base: Array | None, turn: Array | None, out: Array, work: tuple[Array, ...]
    ) -> None:
        self._multiply(G, X, (base, turn, out), self.shape[::-1], self.by_column)

    def _count_columns(self, inside: Array, width: int) -> Array:
        n = self.shape[1]
        counts = cupy.empty(n, np.int64)
        indptr, _, source = self.by_column
        self._launch("count_columns", width, _rows_to_blocks(n), (np.int64(n), indptr, source, inside, counts))
        return counts


@dataclass(eq=False)
class CudaDenseGrid(KernelGrid):
    """All cells, with weight 0 where nothing takes part. `G` and `S` are lists of one matrix (m, n)."""

    @classmethod
    def of(cls, block: Block, weight: Array) -> CudaDenseGrid:
        """Lay out `block`."""
        shape = (block.n_units, block.length)
        with block.value.device:
            place = block.unit_of_entry() * block.length + block.index
            value = scatter(place, block.value, shape)
            return cls(shape, value, scatter(place, dense(weight, value.dtype), shape))

    def product_of_columns(
        self, G: Array, X: Array, base: Array | None, turn: Array | None, out: Array, work: tuple[Array, ...]
    ) -> None:
        (m, n), (slabs, partial, arrived) = self.shape, work
        groups = len(arrived)
        arguments = (
            np.int64(m),
            np.int64(n),
            np.int32(groups),
            G,
            dense(X),
            pointer(base),
            pointer(turn),
            partial,
            arrived,
            out,
        )
        self._launch("multiply_columns", X.shape[1], groups * slabs, arguments)

    def work(self, width: int) -> tuple[Any, ...]:
        m, n = self.shape
        groups = -(-n // (32 * _WARPS))
        slabs = max(1, min(m // _SLAB, _SLAB_BLOCKS // groups))
        return slabs, cupy.empty((slabs, n, width), self.value.dtype), cupy.zeros(groups, np.uint32)

    def _count_columns(self, inside: Array, width: int) -> Array:
        return inside.sum(axis=0, dtype=np.int64)


def make_grid(
    block: Block, weight: Array, chunk_bytes: int | None = None, layout: str = "auto", library: bool = False
) -> Grid:
    """`grid.make_grid` for the kernels: "dense", "sparse" or, by what moves fewer bytes, "auto"."""
    dense_wanted = layout == "dense" or (layout == "auto" and is_dense(block))
    grid: KernelGrid = CudaDenseGrid.of(block, weight) if dense_wanted else CudaGrid.of(block, weight)
    grid.library = library
    return grid


def is_dense(block: Block) -> bool:
    """Whether a dense layout of a block moves fewer bytes than one by entries."""
    item = block.value.dtype.itemsize
    # In an iteration a dense cell moves 7 numbers; a sparse entry the same, and twice its place: by rows and by columns.
    dense_bytes = 7 * item * block.n_units * block.length
    sparse_bytes = (7 * item + 2 * 4 + 8 + 24) * block.n_obs  # what is scattered comes in pieces of 32 bytes
    return bool(dense_bytes <= sparse_bytes)
