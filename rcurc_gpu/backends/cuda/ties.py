"""Lanczos's method for the ties between rows and columns on CUDA: a step is the launch of a graph and a small read-back."""

from __future__ import annotations

from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array
from ..blocks import Block
from ..plain import lone as plain_lone
from ..plain import ties as plain
from ..plain.regression import RIDGE
from ..plain.verdicts import ILL_CONDITIONED
from .graphs import ReadBack, capture
from .launch import dense, kernel, launch, pointer
from .sources import MOST_RANK
from .verdicts import UnitTable

_WARPS, _SOLVERS, _TILE = 4, 2, 32  # as in ties.cu and lanczos.cu
_FIRST_VECTORS = 16  # of Lanczos, that there is room for at first
_MOST_BLOCKS = 256  # of a sum over everything; fixed, so that its order does not depend on the device


def _units_to_blocks(units: int, per_block: int) -> int:
    return max(-(-units // per_block), 1)


def grams(block: Block, right: Array) -> Array:
    """`plain.ties.grams`, in one launch."""
    K = right.shape[1]
    if K > MOST_RANK:
        return plain.grams(block, right)
    with right.device:
        packed = cupy.empty((block.n_units, K * (K + 1) // 2), right.dtype)
        arguments = (np.int64(block.n_units), *_places(block), dense(right), packed)
        blocks = _units_to_blocks(block.n_units, _WARPS)
        launch(kernel("ties.cu", "grams", right.dtype.name, K), blocks, 32 * _WARPS, arguments)
    return packed


def rests_on_one(
    block: Block, units: np.ndarray, basis: Array, coefficients: Array, usable: Array, floor: float
) -> np.ndarray:
    """`plain.lone.rests_on_one`, in one launch."""
    if basis.shape[1] > MOST_RANK or len(units) == 0:
        return plain_lone.rests_on_one(block, units, basis, coefficients, usable, floor)
    with basis.device:
        out = cupy.empty(len(units), np.bool_)
        _lone((block, basis, coefficients, usable), cupy.asarray(units, dtype=np.int64), floor, None, (None, 0, 0), out)
        return np.asarray(cupy.asnumpy(out))


def mark_lone(
    block: Block, known: UnitTable, places: Array, basis: Array, coefficients: Array, usable: Array, floor: float
) -> None:
    """The same of some units of a table, by their numbers among those that are not of the core: they are marked there."""
    with basis.device:
        mark = (known.table, ILL_CONDITIONED, known.table.shape[1])
        _lone((block, basis, coefficients, usable), known.units, floor, places, mark, None)


def _lone(
    given: tuple[Block, Array, Array, Array],
    units: Array,
    floor: float,
    picked: Array | None,
    mark: tuple[Array | None, int, int],
    out: Array | None,
) -> None:
    block, basis = given[:2]
    K, dtype, n = basis.shape[1], basis.dtype, len(units if picked is None else picked)
    eps = float(np.finfo(dtype).eps)
    numbers = (dtype.type(x) for x in (floor, RIDGE * eps, plain_lone.ALONE, K / eps**0.5))
    asked = (np.int64(n), pointer(picked), units, *_places(block))
    matrices = (dense(x, dtype) for x in (block.value, *given[1:]))
    to = (pointer(mark[0]), np.float64(mark[1]), np.int32(mark[2]), pointer(out))
    function = kernel("ties.cu", "lone", dtype.name, K)
    launch(function, _units_to_blocks(n, _SOLVERS), 32 * _SOLVERS, (*asked, *matrices, *numbers, *to))


def _places(block: Block) -> tuple[Array, Array]:
    return dense(block.indptr, np.int64), dense(block.index, np.int32)


class CudaLanczos(plain.Lanczos):
    """`plain.PlainLanczos` by kernels; vectors stay on the device.

    They and their images take 2 n K numbers for each step. There is room for few of them at first, since most cores need
    about ten, and it is doubled whenever it is full.
    """

    def __init__(self, ties: plain.TieProblem, most: int) -> None:
        (m, K), n, dtype = ties.left.shape, len(ties.right), ties.right.dtype
        self._graph: Any = None
        self._ridge = ties.ridge
        with ties.right.device:
            self._left, self._right, self._G, self._gauge = map(dense, (ties.left, ties.right, ties.G, ties.gauge))
            self._rows, self._columns = _places(ties.block), _places(ties.across)
            self._most = most + 1
            self._vectors, self._images, self._alpha, self._sizes = (
                cupy.empty((0, *shape), dtype) for shape in ((n, K), (n, K), (), ())
            )
            self._numbers = ReadBack((1, 2), dtype)  # the last alpha, and the size of the last vector
            self._lengths: list[float] = []  # sizes of all vectors
            self._step = cupy.full(1, -1, np.int32)
            self._moved, self._w, self._share = (cupy.empty(shape, dtype) for shape in ((m, K), (n, K), K * K))
            self._blocks = min(_units_to_blocks(n, _TILE), _MOST_BLOCKS)
            self._squares, self._arrived = cupy.empty((self._blocks, K * K), dtype), cupy.zeros(1, np.uint32)
            self._make_room(min(_FIRST_VECTORS, self._most))
            self._inverse, self.col_skew = self._inverses(ties.packed[0], ties.normal)
            self._inverse_rows, self.row_skew = self._inverses(ties.packed[1], None)
            self._find_gauge(None)
            self._project(self._share, None, self._first, None)
            self._find_gauge(None)
            self._append()
        self._read()

    def _make_room(self, room: int) -> None:
        """Take memory for so many vectors, the ones that are there included."""
        dtype, self._graph = self._right.dtype, None  # a graph knows where its arrays are
        for name in ("_vectors", "_images", "_alpha", "_sizes"):
            old = getattr(self, name)
            new = cupy.empty((room, *old.shape[1:]), dtype)
            if len(old):
                new[: len(old)] = old
            setattr(self, name, new)  # and the old one is given back, before the next is taken
            del old
        self._first, self._second = cupy.empty((2, room), dtype)  # parts along the vectors
        self._partial = cupy.empty((room, self._blocks), np.float64)

    def _inverses(self, packed: Array, normal: Array | None) -> tuple[Array, np.ndarray]:
        """Inverses and their traces; a start from `normal` numbers goes to w."""
        K, dtype, units = self._right.shape[1], self._right.dtype, len(packed)
        inverse, skew = cupy.empty((units, K, K), dtype), cupy.empty(units, dtype)
        start = (None, None) if normal is None else (dense(normal), self._w)
        found = (pointer(start[0]), inverse, skew, pointer(start[1]))
        arguments = (np.int64(units), dense(packed), dtype.type(self._ridge), *found)
        function = kernel("ties.cu", "invert", self._right.dtype.name, self._right.shape[1])
        launch(function, _units_to_blocks(units, _SOLVERS), 32 * _SOLVERS, arguments)
        return inverse, cupy.asnumpy(skew)

    def size(self) -> float:
        """``(v . G v) ** 0.5`` of the last vector."""
        return self._lengths[-1]

    def step(self) -> float:
        """Make the next vector; how much of the last one the rows follow."""
        with self._right.device:
            if len(self._lengths) == len(self._sizes):
                self._make_room(min(2 * len(self._sizes), self._most))
            if self._graph is None:
                # all other kernels have been launched: nothing is loaded in a capture
                self._couple(self._rows, (self._left, self._right), self._vectors, None, self._inverse_rows, self._moved[:0])
                self._graph = capture(self._iterate)
            self._graph.launch()
            return self._read(sent=True)

    def combined(self, weights: np.ndarray) -> tuple[Array, Array]:
        """A direction of the columns, with what the rows do."""
        n, dtype = len(weights), self._right.dtype
        with self._right.device:
            each = cupy.asarray((weights / np.asarray(self._lengths[:n])).astype(dtype))
            b = (each[None, :] @ self._vectors[:n].reshape(n, -1)).reshape(self._w.shape)
            rows = cupy.empty_like(self._moved)
            self._couple(self._rows, (self._left, self._right), b, None, self._inverse_rows, rows)
            return -rows, b

    def _read(self, sent: bool = False) -> float:
        """Wait for the next vector; keep its size, and give the alpha of the one before."""
        if not sent:
            self._numbers.send()
        alpha, size = self._numbers.wait()[0].tolist()
        self._lengths.append(size)
        return float(alpha)

    # What follows may be captured: it takes no memory and calls no library.

    def _launch(self, name: str, blocks: int, arguments: tuple[Any, ...]) -> None:
        launch(kernel("lanczos.cu", name, self._right.dtype.name, self._right.shape[1]), blocks, 32 * _WARPS, arguments)

    def _iterate(self) -> None:
        """From the last vector to the next one, as in `PlainLanczos.step`."""
        factors = (self._left, self._right)
        self._couple(self._rows, factors, self._vectors, self._step, self._inverse_rows, self._moved)
        self._couple(self._columns, factors[::-1], self._moved, None, self._inverse, self._w)
        self._find_gauge(None)
        self._project(self._share, None, self._first, self._alpha)
        self._project(None, self._first, self._second, None)  # twice is enough
        self._find_gauge(self._second)
        self._append()
        self._numbers.send()

    def _couple(
        self,
        places: tuple[Array, Array],
        factors: tuple[Array, Array],
        x: Array,
        step: Array | None,
        inverse: Array,
        out: Array,
    ) -> None:
        (units, _), length = out.shape, len(factors[1])
        last = (x, pointer(step), self._sizes)
        arguments = (np.int64(units), np.int64(length), *places, *factors, *last, inverse, out)
        self._launch("couple", _units_to_blocks(units, _WARPS), arguments)

    def _find_gauge(self, along: Array | None) -> None:
        known = (self._vectors, self._right, self._G, self._gauge)
        work = (self._w, self._squares, self._arrived, self._share)
        self._launch("gauge", self._blocks, (np.int64(len(self._w)), self._step, pointer(along), *known, *work))

    def _project(self, share: Array | None, along: Array | None, found: Array, alpha: Array | None) -> None:
        taken = (pointer(share), pointer(along))
        known = (self._vectors, self._images, self._sizes, self._right)
        work = (self._w, self._partial, self._arrived, found, pointer(alpha))
        self._launch("project", self._blocks, (np.int64(len(self._w)), self._step, *taken, *known, *work))

    def _append(self) -> None:
        known = (self._w, self._share, self._right, self._G, self._vectors, self._images)
        work = (self._partial, self._arrived, self._alpha, self._sizes, self._numbers.table)
        self._launch("append", self._blocks, (np.int64(len(self._w)), self._step, *known, *work))


def lanczos(ties: plain.TieProblem, most: int, operations: plain.Operations) -> plain.Lanczos:
    """`plain.ties.PlainLanczos`, by kernels up to their largest rank."""
    if ties.right.shape[1] > MOST_RANK:
        return plain.PlainLanczos(ties, most, operations)
    return CudaLanczos(ties, most)
