"""The core's iteration on a GPU: kernels alone, a group of iterations as one CUDA graph, one small read-back for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array
from ..plain.loop import NUMBERS, Begin, Entries, Factors, Group, Loop, Recipe
from .graphs import ReadBack, capture
from .launch import dense, kernel, launch, pointer
from .sketch import Small, Tall, of_product

_ROTATE_WARPS = 4  # of a block
_MOST_BLOCKS = 512  # for each of the two factors; fixed, so that the order of sums does not depend on the device
_LONGEST = 8  # iterations of a group: those of the caller are five, or one
_SCHEDULE = 1024  # thresholds that are sent at once: more iterations than nearly all cores take


class LoopGrid(Protocol):
    """What the loop needs of a layout (`grid.KernelGrid`): steps of an iteration into memory that is there."""

    shape: tuple[int, int]
    value: Array

    def scale(self, P: Array, s: Array, rank: int) -> tuple[Array, Array]:
        """As in `Grid`."""

    def split(
        self, factors: tuple[Array, Array], before: tuple[Any, Any], out: tuple[Array, Array, Array], sums: Array
    ) -> None:
        """`Grid.threshold`."""

    def find_threshold(
        self,
        factors: tuple[Array, Array],
        sample: Entries,
        zeta: tuple[float, Any, Any],
        floor: float,
        sizes: Array,
        result: Array,
    ) -> None:
        """`Grid.floor_threshold`."""

    def product(self, G: Array, X: Array, base: Array | None, turn: Array | None, out: Array) -> None:
        """`Grid.mul`."""

    def product_of_columns(
        self, G: Array, X: Array, base: Array | None, turn: Array | None, out: Array, work: tuple[Any, ...]
    ) -> None:
        """`Grid.rmul`."""

    def work(self, width: int) -> tuple[Any, ...]:
        """Memory for `product_of_columns`."""


@dataclass(frozen=True, eq=False)
class CudaGroup(Group):
    """A group whose numbers are on their way to pinned memory."""

    loop: CudaLoop | None = None

    def table(self) -> np.ndarray:
        """The numbers, after a wait for the device."""
        assert self.loop is not None
        assert self.loop.k == self.k, "the next group has overwritten these numbers"
        return self.loop.arrived(len(self.numbers))

    def factors(self, rank: int) -> Factors:
        """(W, s, V) of U_k, once more from cuSOLVER: what is returned does not depend on the kernels' own SVD."""
        P, s, Q = self.whole
        return of_product(P[:, :rank] * s[:rank], Q[:, :rank])


class CudaLoop(Loop):
    """Iterations by kernels, in memory that is taken once.

    The first group is launched kernel by kernel. The second of the same length is captured into a graph, which is launched
    then and for all that follow. What changes from one to the next is counted and looked up on the device.
    """

    def __init__(self, grid: LoopGrid, recipe: Recipe, begin: Begin) -> None:
        P, s, Q = begin.whole
        self.grid, self.recipe, self.k = grid, recipe, begin.k
        (m, n), (_, width), dtype = grid.shape, P.shape, grid.value.dtype
        self._graphs: dict[int, Any] = {}
        self._seen: set[int] = set()
        with grid.value.device:
            self._numbers = ReadBack((_LONGEST, NUMBERS + width), dtype)
            self.P, self.Q = (dense(x, dtype).copy() for x in (P, Q))
            self.left, self.s = grid.scale(self.P, dense(s, dtype), recipe.rank)
            self._rows, self._columns = Tall(m, width, dtype), Tall(n, width, dtype)
            self._small = Small(width, dtype)
            self._product, self._change, self._next = (
                cupy.empty((n, width), dtype),
                cupy.empty((), dtype),
                cupy.empty((), dtype),
            )
            self._blocks = tuple(min(-(-size // (_ROTATE_WARPS * max(32 // width, 1))), _MOST_BLOCKS) for size in (m, n))
            self._partial = cupy.empty(2 * sum(self._blocks), np.float64)
            self._arrived = cupy.zeros(1, np.uint32)
            self._sample = tuple(dense(x, t) for x, t in zip(recipe.sample, (np.int64, np.int64, dtype), strict=True))
            self._sizes = cupy.empty(self._sample[2].shape, dtype)
            self._outliers, self._inliers = cupy.empty_like(grid.value), cupy.empty_like(grid.value)
            self._Z, self._sums = cupy.empty((m, width), dtype), cupy.empty(2, dtype)
            self._work = grid.work(width)
            # thresholds, and iterations since the first of them
            self._schedule, self._done = cupy.empty(_SCHEDULE + 1, dtype), cupy.empty(1, np.int32)
            self._send_schedule()
            self._begin(begin)

    def _send_schedule(self) -> None:
        """The thresholds from here on, as the host computes them: every device has the same."""
        self._first = self.k
        zetas = [self.recipe.zeta(k) for k in range(self.k, self.k + _SCHEDULE + 1)]
        self._schedule.set(np.asarray(zetas, dtype=self._schedule.dtype))
        self._done.fill(0)

    def _begin(self, begin: Begin) -> None:
        """The split of the first residual, and the first threshold and number of outliers."""
        self._state = cupy.empty(2, self.grid.value.dtype)
        if begin.zeta is None:
            self._find_threshold(self.recipe.zeta(begin.k))
        else:
            self._next.fill(begin.zeta)
        self._split(first=True)
        self._state[0], self._state[1] = self._next, self._sums[1]

    def advance(self, n: int, each: bool = False) -> Group:
        """Iterate `n` times."""
        if self.k + n > self._first + _SCHEDULE:
            self._send_schedule()
        rank, trail = self.recipe.rank, None
        with self.grid.value.device:
            if each:
                trail = tuple(cupy.empty((n + 1, len(x), rank), x.dtype) for x in (self.P, self.Q))
                self._keep(trail, 0)
            if not each and self._repeats(n):
                self._replay(n)
            else:
                for row in range(n):
                    self._iterate(row, self.recipe.steps(self.k + row + 1))
                    if trail is not None:
                        self._keep(trail, row + 1)
                self._numbers.send(n)
        self.k += n
        return CudaGroup(self.k, self._numbers.table[:n], (self.P, self.s, self.Q), trail, self)

    def arrived(self, n: int) -> np.ndarray:
        """Wait for the device; the numbers of the last `n` iterations."""
        return self._numbers.wait()[:n]

    def _keep(self, trail: tuple[Array, Array], at: int) -> None:
        for kept, x in zip(trail, (self.P, self.Q), strict=True):
            kept[at] = x[:, : self.recipe.rank]

    def _repeats(self, n: int) -> bool:
        """Whether a group of `n` iterations is one of those that are captured; the first is not.

        A short core would not pay for the capture, and after it all modules are loaded.
        """
        first = not self._seen
        self._seen.add(n)
        return n > 1 and not first and all(self.recipe.steps(self.k + row + 1) == 1 for row in range(n))

    def _replay(self, n: int) -> None:
        def work() -> None:
            for row in range(n):
                self._iterate(row, 1)
            self._numbers.send(n)

        if n not in self._graphs:
            self._graphs[n] = capture(work)
        self._graphs[n].launch()

    # What follows may be captured: it takes no memory and calls no library.

    def _launch(self, file: str, name: str, blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
        launch(kernel(file, name, self.grid.value.dtype.name, self.P.shape[1]), blocks, threads, arguments)

    def _iterate(self, row: int, steps: int) -> None:
        """One iteration; its numbers go to a row of the table."""
        grid, rows, columns, small = self.grid, self._rows, self._columns, self._small
        for step in range(steps):
            if step > 0:  # (U + G) times what the last step found
                grid.product(self._inliers, columns.Q, self.left, columns.turn, self._Z)
            rows.orthonormalise(self._Z, self.left)
            grid.product_of_columns(self._inliers, rows.Q, self.Q, rows.turn, self._product, self._work)
            columns.orthonormalise(self._product, self.Q)
        small.decompose(columns.R)
        self._rotate()
        self._find_threshold()
        self._split()
        numbers = (self._sums, self._change, self._next, self.s, self._state, self._done, self._numbers.table)
        self._launch("core.cu", "note", 1, 64, (np.int32(row), *numbers))

    def _rotate(self) -> None:
        (m, n), small = self.grid.shape, self._small
        sizes = (np.int64(m), np.int64(n), np.int32(self.recipe.rank), np.int32(self._blocks[0]))
        found = (self._rows.Q, self._columns.Q, small.u, small.s, small.v, self._columns.turn)
        moved = (self.P, self.left, self.Q, self.s)
        arguments = (*sizes, *found, *moved, self._partial, self._arrived, self._change)
        self._launch("sketch.cu", "rotate", sum(self._blocks), 32 * _ROTATE_WARPS, arguments)

    def _find_threshold(self, zeta: float | None = None) -> None:
        schedule, done = (self._schedule, self._done) if zeta is None else (None, None)
        given = (0.0 if zeta is None else zeta, pointer(schedule), pointer(done))
        self.grid.find_threshold((self.left, self.Q), self._sample, given, self.recipe.floor, self._sizes, self._next)

    def _split(self, first: bool = False) -> None:
        before = (self._next, pointer(None if first else self._outliers))
        self.grid.split((self.left, self.Q), before, (self._outliers, self._inliers, self._Z), self._sums)
