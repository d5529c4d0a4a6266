"""Three streams that chunks of observations go through: to the device, the work on them, and back.

Two slots of memory take turns. Chunk i + 1 is copied to one of them while chunk i is computed in the other, and while the
results of chunk i - 1 come back. Each slot is one piece of pinned and one of device memory, so a chunk is one copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array, free_memory, profiled
from ..blocks import Block

_ALIGNED = 256  # bytes at which arrays in a slot begin, as CuPy's own do
# Observations of a range of units over those of its chosen units up to which the range is copied as it is. A gather takes
# 7 ns of a host thread for each chosen observation, a copy of others not a tenth of that; but they take memory of the slot.
_GAPS = 1.5


class _Slot:
    """Memory for one chunk, and what happens to it.

    Attributes
    ----------
    uploaded, computed, returned : events
        When the chunk is there, when its results are, and when these are on the host.
    """

    def __init__(self) -> None:
        self.pinned: Any = None
        self.device: Any = None
        self.back: Any = None
        self.uploaded, self.computed, self.returned = (cupy.cuda.Event(disable_timing=True) for _ in range(3))
        self.block: Block | None = None
        self.units: Any = None
        self.ids: Array | None = None
        self.found: tuple[Array, ...] = ()
        self.results: list[np.ndarray] = []

    def ready(self, size: int, room: Callable[[], int]) -> None:
        """Have memory for a chunk of `size` bytes: as much as the largest of all chunks needs."""
        if self.device is None or self.device.nbytes < size:
            self.returned.synchronize()  # nothing reads or writes what is given back here
            self.pinned = self.device = None
            most = max(size, room())
            self.pinned, self.device = _pinned(most), cupy.empty(most, cupy.uint8)


class Pipeline:
    """Streams and slots on the current device; they are used again for every pass of a solve.

    Attributes
    ----------
    bytes_written : int
        By the host, to pinned and other memory, on the way to the device.
    n_gathered : int
        Chunks whose units were so far apart that they were gathered first.
    """

    def __init__(self) -> None:
        self._device = cupy.cuda.runtime.getDevice()
        self._up, self._work, self._down = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
        self._slots = deque((_Slot(), _Slot()))
        self._running: deque[_Slot] = deque()
        self.bytes_written = self.n_gathered = 0

    def is_here(self) -> bool:
        """Whether it belongs to the current device."""
        return bool(cupy.cuda.runtime.getDevice() == self._device)

    @property
    def pinned_bytes(self) -> int:
        """Pinned memory that it holds."""
        return sum(0 if x is None else x.mem.size for slot in self._slots for x in (slot.pinned, slot.back))

    @contextmanager
    def working(self) -> Iterator[None]:
        """While chunks go through; nothing runs any more when this ends, whatever the reason."""
        # what the work reads beside the chunks was made on the caller's stream
        before = cupy.cuda.get_current_stream().record()
        for stream in (self._up, self._work):
            stream.wait_event(before)
        try:
            yield
        finally:
            for stream in (self._up, self._work, self._down):
                stream.synchronize()
            self._running.clear()
            for slot in self._slots:
                slot.found = ()

    def size_of(self, block: Block, chosen: np.ndarray) -> int:
        """Bytes of a chunk in a slot."""
        n_units, n_obs = self._extent(block, chosen)[:2]
        itemsizes = (block.index.dtype.itemsize, block.value.dtype.itemsize)
        sizes = (8 * (n_units + 1), 8 * n_units, 8 * len(chosen), *(n_obs * size for size in itemsizes))
        return sum(-(-size // _ALIGNED) * _ALIGNED for size in sizes)

    def _extent(self, block: Block, chosen: np.ndarray) -> tuple[int, int, bool]:
        """Units and observations of a chunk as it is uploaded, and whether as a range, with what lies in between."""
        low, high = int(chosen[0]), int(chosen[-1]) + 1
        n_range = int(block.indptr[high] - block.indptr[low])
        n_chosen = n_range if high - low == len(chosen) else int(block.counts[chosen].sum())
        # within a range no more units than that either: they may be empty
        if n_range <= _GAPS * n_chosen and high - low <= 2 * len(chosen):
            return high - low, n_range, True
        return len(chosen), n_chosen, False

    def upload(self, block: Block, chosen: np.ndarray, ids: np.ndarray, room: Callable[[], int]) -> None:
        """Copy a chunk into the slot that is next; returns before it is there.

        The results of the chunk before the last may still be on their way back. `room` says how large chunks may be.
        """
        slot = self._slots[0]
        slot.ready(self.size_of(block, chosen), room)
        slot.uploaded.synchronize()  # what was in the pinned memory before
        self._up.wait_event(slot.computed)  # what was in the device's
        low, high = int(chosen[0]), int(chosen[-1]) + 1
        n_units, _, whole = self._extent(block, chosen)
        into = _Carved(slot.pinned, slot.device)
        if whole:
            begin, end = int(block.indptr[low]), int(block.indptr[high])
            here, there = into.next(n_units + 1, np.int64)
            np.subtract(block.indptr[low : high + 1], begin, out=here)
            host_indptr, indptr = here, there
            slot.ids = into.copy(ids[low:high])
            slot.units = into.next(len(chosen), np.int64)
            np.subtract(chosen, low, out=slot.units[0])
            index, value = into.copy(block.index[begin:end]), into.copy(block.value[begin:end])
        else:
            part = block.take_units(chosen)
            host_indptr, indptr = part.indptr, into.copy(part.indptr)
            slot.ids, slot.units = into.copy(ids[chosen]), into.next(len(chosen), np.int64)
            slot.units[0][:] = np.arange(len(chosen))
            index, value = into.copy(part.index), into.copy(part.value)
            self.n_gathered += 1
            self.bytes_written += part.nbytes + 8 * part.n_obs  # with the positions that were gathered
        slot.device.data.copy_from_host_async(slot.pinned.ptr, into.used, self._up)
        slot.uploaded.record(self._up)
        self.bytes_written += into.written
        slot.block = Block(indptr, index, value, block.length)
        slot.block.__dict__["host_indptr"] = host_indptr  # what a cached property would fetch from the device

    def compute(
        self, kernel: Callable[..., Any], arguments: Callable[..., tuple[Any, ...]], chosen: np.ndarray, there: bool
    ) -> None:
        """Do the work on the chunk that was uploaded, and copy its results back; returns before that is done.

        The kernel gets the numbers of its units on the device if `there`, else on the host.
        """
        slot = self._slots[0]
        assert slot.block is not None
        with self._work:
            self._work.wait_event(slot.uploaded)
            with profiled(f"{len(chosen)} units", slot.block.value):
                found = kernel(slot.block, slot.units[there], *arguments(chosen, slot.ids))
            slot.found = found if isinstance(found, tuple) else (found,)  # kept until they are on the host
            slot.computed.record(self._work)
        size = sum(x.nbytes for x in slot.found)
        if slot.back is None or slot.back.mem.size < size:
            slot.back = _pinned(size + size // 8)  # chunks differ a little
        self._down.wait_event(slot.computed)
        slot.results, begin = [], 0
        for x in slot.found:
            slot.results.append(np.frombuffer(slot.back, x.dtype, x.size, begin).reshape(x.shape))
            x.get(stream=self._down, out=slot.results[-1], blocking=False)
            begin += x.nbytes
        slot.returned.record(self._down)
        self._slots.rotate(-1)
        self._running.append(slot)

    def results(self) -> tuple[np.ndarray, ...]:
        """Wait for the results of the oldest chunk, and copy them out of the pinned memory."""
        slot = self._running.popleft()
        slot.returned.synchronize()
        slot.found = ()
        return tuple(x.copy() for x in slot.results)

    def release(self) -> None:
        """Give back all memory, after all results were taken: there was not enough for a chunk."""
        for stream in (self._up, self._work, self._down):
            stream.synchronize()
        for slot in self._slots:
            slot.pinned = slot.device = slot.back = slot.block = slot.ids = slot.units = None
            slot.found, slot.results = (), []
        free_memory(cupy.empty(0))


class _Carved:
    """Arrays one after the other in the memory of a slot, on the host and on the device."""

    def __init__(self, pinned: Any, device: Array) -> None:
        self._pinned, self._device = pinned, device
        self.used = self.written = 0

    def next(self, n: int, dtype: Any) -> tuple[np.ndarray, Array]:
        """A vector to be written on the host, and the same on the device."""
        dtype = np.dtype(dtype)
        here = np.frombuffer(self._pinned, dtype, n, self.used)
        there = cupy.ndarray((n,), dtype, self._device.data + self.used)
        self.used += -(-here.nbytes // _ALIGNED) * _ALIGNED
        self.written += here.nbytes
        return here, there

    def copy(self, x: np.ndarray) -> Array:
        """A copy of a vector; what is returned is on the device."""
        here, there = self.next(len(x), x.dtype)
        here[:] = x
        return there


def _pinned(size: int) -> Any:
    try:
        return cupy.cuda.alloc_pinned_memory(max(size, 1))
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MemoryError(f"no pinned memory for a chunk of {size} bytes") from error
