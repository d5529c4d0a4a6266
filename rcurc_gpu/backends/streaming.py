"""Taking chunks of units through the device that computes, wherever the observations are.

Observations that are there already are worked on in place. Those on the host go through a CUDA device in two slots in turn
(`pipeline`): while one chunk is computed, the next is copied, and nothing else is kept there. A chunk for which there is no
memory is cut in two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .arrays import Array, free_memory, is_out_of_memory, profiled, same_place, to_numpy
from .blocks import Block

if TYPE_CHECKING:
    from .cuda.pipeline import Pipeline

Kernel = Callable[..., Any]
Arguments = Callable[[np.ndarray, Array | None], tuple[Any, ...]]
Done = Iterator[tuple[np.ndarray, tuple[Array, ...]]]


class Streams:
    """What streaming needs of a device, made when it is needed first, and kept as long as a solve takes."""

    def __init__(self) -> None:
        self._pipeline: Pipeline | None = None

    def pipeline(self) -> Pipeline:
        """Streams and memory, on the current device of CuPy."""
        from .cuda.pipeline import Pipeline

        if self._pipeline is None or not self._pipeline.is_here():
            self._pipeline = Pipeline()
        return self._pipeline


def through(
    block: Block,
    chunks: list[np.ndarray],
    ids: np.ndarray,
    like: Array,
    kernel: Kernel,
    arguments: Arguments,
    streams: Streams | None = None,
    there: bool = False,
) -> Done:
    """Take chunks of units to the device of `like`.

    Parameters
    ----------
    block : Block
    chunks : list of integer arrays
        Ascending units of each chunk.
    ids : int64 array (n_units,)
        Numbers of the units in the whole matrix, on the host.
    like : array
        Where to compute.
    kernel : callable
        Called with a block on the device, the numbers of the units in it, and what `arguments` returns. Returns an array
        with a row for each unit, or a tuple of such arrays. The block may have units beside these.
    arguments : callable
        From the numbers of some units in `block`, and the `ids` of all units that the kernel's block has, on the device, or
        None if the kernel gets `block` itself, to the other arguments of the kernel.
    streams : Streams, optional
        Those of the solve.
    there : bool
        Whether the kernel takes the numbers of streamed units on the device, where they are anyway, or on the host.

    Yields
    ------
    units, (array, ...)
        In the order given, where `block` is.
    """
    if same_place(block.value, like):
        return _in_place(block, chunks, kernel, arguments)
    line = (streams or Streams()).pipeline()
    return _streamed(block, chunks, ids, lambda chosen: line.compute(kernel, arguments, chosen, there), line)


class _Halving:
    """Chunks to be done, cut in two where memory was short."""

    def __init__(self, chunks: list[np.ndarray]) -> None:
        self._todo = deque(chunks)
        self._most = max(map(len, chunks), default=1)

    def __bool__(self) -> bool:
        return bool(self._todo)

    def next(self) -> np.ndarray:
        """The next chunk."""
        chosen = self._todo.popleft()
        while len(chosen) > self._most:
            middle = len(chosen) // 2
            self._todo.appendleft(chosen[middle:])
            chosen = chosen[:middle]
        return chosen

    def was_short(self, chosen: np.ndarray) -> None:
        """There was no memory for this chunk: it, and all others, become smaller."""
        self._most = max(len(chosen) // 2, 1)
        self._todo.appendleft(chosen)

    def largest(self, size: Callable[[np.ndarray], int]) -> int:
        """The largest `size` of a chunk, as they are cut now."""
        return max((size(x[k : k + self._most]) for x in self._todo for k in range(0, len(x), self._most)), default=0)


def _in_place(block: Block, chunks: list[np.ndarray], kernel: Kernel, arguments: Arguments) -> Done:
    todo = _Halving(chunks)
    while todo:
        chosen = todo.next()
        try:
            with profiled(f"{len(chosen)} units", block.value):
                found = kernel(block, chosen, *arguments(chosen, None))
        except Exception as error:
            if not is_out_of_memory(error) or len(chosen) == 1:
                raise
            todo.was_short(chosen)
            free_memory(block.value)
            continue
        yield chosen, found if isinstance(found, tuple) else (found,)


def _streamed(
    block: Block, chunks: list[np.ndarray], ids: np.ndarray, compute: Callable[[np.ndarray], None], line: Pipeline
) -> Done:
    host = Block(to_numpy(block.indptr), to_numpy(block.index), to_numpy(block.value), block.length)
    todo = _Halving(chunks)
    running: deque[np.ndarray] = deque()

    def tried(step: Callable[[], None], chosen: np.ndarray) -> bool:
        """Whether there was memory for a step; an error if there is none although nothing else is there."""
        try:
            step()
        except Exception as error:
            if not is_out_of_memory(error) or (len(chosen) == 1 and not running):
                raise
            return False
        return True

    def upload(chosen: np.ndarray) -> None:
        line.upload(host, chosen, ids, lambda: todo.largest(lambda units: line.size_of(host, units)))

    with line.working():
        while todo or running:
            chosen = todo.next() if todo else None
            there = chosen is not None and tried(partial(upload, chosen), chosen)
            # while chunk i + 1 is on its way and chunk i is computed, the results of chunk i - 1 are taken
            if len(running) == 2 or (running and not there):
                yield running.popleft(), line.results()
            if chosen is None:
                continue
            if there and tried(partial(compute, chosen), chosen):
                running.append(chosen)
                continue
            while running:
                yield running.popleft(), line.results()
            line.release()
            todo.was_short(chosen)
