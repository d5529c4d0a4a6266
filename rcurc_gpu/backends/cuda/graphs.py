"""CUDA graphs of work that repeats, and numbers that come back with each of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array

_streams = threading.local()  # a thread captures on a stream of its own


def capture(work: Callable[[], None]) -> Any:
    """A graph of what `work` launches on the current stream.

    It must take no memory and call no library, and what it launches has to be loaded: CUDA or CuPy refuse them.
    """
    kept = _streams.__dict__.setdefault("of_device", {})
    device = cupy.cuda.Device().id
    if device not in kept:
        kept[device] = cupy.cuda.Stream(non_blocking=True)
    stream = kept[device]
    with stream:
        stream.begin_capture()
        try:
            work()
        finally:
            graph = stream.end_capture()
    return graph


class ReadBack:
    """A small table on the device (rows, columns), and its copy in pinned memory."""

    def __init__(self, shape: tuple[int, int], dtype: Any) -> None:
        self.table: Array = cupy.zeros(shape, dtype)
        self._host = cupy.cuda.alloc_pinned_memory(self.table.nbytes)

    def send(self, rows: int | None = None) -> None:
        """Copy the first `rows`, or all; may be captured, which CuPy's own copies refuse."""
        size = self.table.nbytes if rows is None else rows * self.table.strides[0]
        runtime, stream = cupy.cuda.runtime, cupy.cuda.get_current_stream()
        runtime.memcpyAsync(self._host.ptr, self.table.data.ptr, size, runtime.memcpyDeviceToHost, stream.ptr)

    def wait(self) -> np.ndarray:
        """What was sent last, after a wait for the current stream."""
        cupy.cuda.get_current_stream().synchronize()
        found = np.frombuffer(self._host, self.table.dtype, self.table.size).reshape(self.table.shape)
        return found.astype(np.float64)
