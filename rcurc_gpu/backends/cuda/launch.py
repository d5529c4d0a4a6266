"""Compiling and launching the CUDA kernels with CuPy."""

from __future__ import annotations

from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array
from .sources import options, source

MOST_BLOCKS = 2**31 - 1


@cupy.memoize(for_each_device=True)  # type: ignore[untyped-decorator]
def _module(name: str, dtype: str, size: int) -> Any:
    return cupy.RawModule(code=source(name), options=options(name, dtype, size))


@cupy.memoize(for_each_device=True)  # type: ignore[untyped-decorator]
def kernel(name: str, function: str, dtype: str, size: int = 0) -> Any:
    """A kernel of the file `name`, compiled for the current device at its first use."""
    return _module(name, dtype, size).get_function(function)


@cupy.memoize(for_each_device=True)  # type: ignore[untyped-decorator]
def multiprocessors() -> int:
    """How many multiprocessors the current device has."""
    runtime = cupy.cuda.runtime
    return int(runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, runtime.getDevice()))


def launch(function: Any, blocks: int, threads: int, arguments: tuple[Any, ...], shared: int = 0) -> None:
    """Launch on the current stream. Python numbers in `arguments` have to be NumPy scalars of the kernel's types.

    Kernels go on with the next piece of work where there is more than there are blocks.
    """
    function((max(1, min(blocks, MOST_BLOCKS)),), (threads,), arguments, shared_mem=shared)


def pointer(x: Array | None) -> Any:
    """An array as an argument of a kernel, or a null pointer."""
    return np.uintp(0) if x is None else x


def dense(x: Array, dtype: Any = None) -> Array:
    """`x` in C order and of `dtype`; itself, if it is that already."""
    return cupy.ascontiguousarray(x, dtype=dtype)


def aligned(x: Array, dtype: Any) -> Array:
    """The same at an address that is a multiple of 16: kernels read rows of such arrays in pieces of 16 bytes."""
    x = dense(x, dtype)
    return x if x.data.ptr % 16 == 0 else x.copy()
