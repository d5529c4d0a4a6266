"""Taking chunks of units through the device that computes, wherever the observations are.

Observations that are there already are worked on in place. Those on the host go through a CUDA device in two slots in turn,
each with a stream and pinned memory of its own: while one chunk is computed, the next is copied, and nothing else is kept
there. A chunk for which there is no memory is cut in two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .arrays import Array, free_memory, profiled, same_place, to_numpy
from .blocks import Block

Kernel = Callable[..., Any]
Arguments = Callable[[np.ndarray, Array | None], tuple[Any, ...]]
Done = Iterator[tuple[np.ndarray, tuple[Array, ...]]]


def through(
    block: Block, chunks: list[np.ndarray], ids: np.ndarray, like: Array, kernel: Kernel, arguments: Arguments
) -> Done:
    """Take chunks of units to the device of `like`.

    Parameters
    ----------
    block : Block
    chunks : list of integer arrays
        Units of each chunk.
    ids : int64 array (n_units,)
        Numbers of the units in the whole matrix, on the host.
    like : array
        Where to compute.
    kernel : callable
        Called with a block on the device, the numbers of the units in it, and what `arguments` returns. Returns an array
        with a row for each unit, or a tuple of such arrays.
    arguments : callable
        From the numbers of some units in `block`, and their `ids` on the device, or None if the kernel gets `block` itself,
        to the other arguments of the kernel.

    Yields
    ------
    units, (array, ...)
        In the order given, where `block` is.
    """
    if same_place(block.value, like):
        return _in_place(block, chunks, kernel, arguments)
    return _streamed(block, chunks, ids, kernel, arguments)


def _in_place(block: Block, chunks: list[np.ndarray], kernel: Kernel, arguments: Arguments) -> Done:
    todo = deque(chunks)
    most = max(map(len, chunks), default=1)
    while todo:
        chosen = todo.popleft()
        if len(chosen) > most:
            todo.extendleft(_halves(chosen))
            continue
        try:
            with profiled(f"{len(chosen)} units", block.value):
                found = kernel(block, chosen, *arguments(chosen, None))
        except MemoryError:
            if len(chosen) == 1:
                raise
            most = len(chosen) // 2
            todo.appendleft(chosen)
            free_memory(block.value)
            continue
        yield chosen, _as_tuple(found)


def _as_tuple(found: Any) -> tuple[Array, ...]:
    return found if isinstance(found, tuple) else (found,)


def _halves(chosen: np.ndarray) -> list[np.ndarray]:
    """The two halves, the second one first."""
    middle = len(chosen) // 2
    return [chosen[middle:], chosen[:middle]]


class _Slot:
    """A stream, and pinned memory for what goes there and what comes back."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.stream = cupy, cupy.cuda.Stream(non_blocking=True)
        # what the work reads beside the chunk was made on the caller's stream
        self.stream.wait_event(cupy.cuda.get_current_stream().record())
        self._pinned: dict[str, Any] = {}
        self._results: list[np.ndarray] = []

    def _buffer(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Pinned memory, used again for every chunk."""
        count = int(np.prod(shape))
        size = max(count * np.dtype(dtype).itemsize, 1)
        if name not in self._pinned or self._pinned[name].mem.size < size:
            try:
                self._pinned[name] = self.cupy.cuda.alloc_pinned_memory(size)
            except self.cupy.cuda.runtime.CUDARuntimeError as error:
                raise MemoryError(f"no pinned memory for a chunk of {size} bytes") from error
        return np.frombuffer(self._pinned[name], dtype, count).reshape(shape)

    def _upload(self, name: str, array: np.ndarray) -> Array:
        """A copy of `array` on the device, on its way when this returns."""
        pinned = self._buffer(name, array.shape, array.dtype)
        pinned[...] = array
        there = self.cupy.empty(array.shape, array.dtype)
        there.set(pinned, stream=self.stream)
        return there

    def start(self, block: Block, chosen: np.ndarray, ids: np.ndarray, kernel: Kernel, arguments: Arguments) -> None:
        """Copy the units `chosen` there, do the work, and copy the results back; returns before that is done."""
        part = block.take_units(chosen)
        with self.stream:
            indptr, index, value = (self._upload(name, getattr(part, name)) for name in ("indptr", "index", "value"))
            there = Block(indptr, index, value, part.length)
            there.__dict__["host_indptr"] = part.indptr  # what a cached property would fetch from the device
            rest = arguments(chosen, self._upload("ids", ids[chosen]))
            with profiled(f"{len(chosen)} units", value):
                found = kernel(there, np.arange(len(chosen)), *rest)
            self._results = []
            for k, array in enumerate(_as_tuple(found)):
                self._results.append(self._buffer(f"result {k}", array.shape, array.dtype))
                array.get(stream=self.stream, out=self._results[-1], blocking=False)

    def finish(self) -> tuple[np.ndarray, ...]:
        """Wait for the work, and copy its results out of the pinned memory."""
        self.stream.synchronize()
        return tuple(array.copy() for array in self._results)


def _streamed(block: Block, chunks: list[np.ndarray], ids: np.ndarray, kernel: Kernel, arguments: Arguments) -> Done:
    import cupy  # type: ignore[import-not-found]

    host = Block(to_numpy(block.indptr), to_numpy(block.index), to_numpy(block.value), block.length)
    slots = [_Slot(cupy), _Slot(cupy)]
    idle = list(slots)
    running: deque[tuple[np.ndarray, _Slot]] = deque()
    todo = deque(chunks)
    most = max(map(len, chunks), default=1)
    try:
        while todo or running:
            short = False
            while todo and idle and not short:
                chosen = todo.popleft()
                if len(chosen) > most:
                    todo.extendleft(_halves(chosen))
                    continue
                try:
                    idle[-1].start(host, chosen, ids, kernel, arguments)
                    running.append((chosen, idle.pop()))
                except MemoryError:
                    if len(chosen) == 1 and not running:
                        raise
                    short = True
                    most = max(len(chosen) // 2, 1)
                    todo.appendleft(chosen)
                    idle[-1].stream.synchronize()
                    free_memory(cupy.empty(0))
            if running:
                chosen, slot = running.popleft()
                yield chosen, slot.finish()
                idle.append(slot)
    finally:  # also when the caller goes away: nothing may write to pinned memory that is gone
        for slot in slots:
            slot.stream.synchronize()
