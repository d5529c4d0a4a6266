"""Pieces of work on all cores, and arrays as kernels want them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numba import config

from ..cores import alone
from .values import LANES

THREADS: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # it is set at run time


@cache
def _pool() -> ThreadPoolExecutor | None:
    """Threads beside the caller's, as many as Numba would take (NUMBA_NUM_THREADS)."""
    others = THREADS - 1
    return ThreadPoolExecutor(others, thread_name_prefix="rcurc") if others > 0 else None


if hasattr(os, "register_at_fork"):  # the child of a fork has none of the threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run(kernel: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> None:
    """Call ``kernel(*arguments[k])`` for all k, on all cores; the calls must not depend on each other."""
    if len(arguments) == 1 or THREADS == 1:
        for these in arguments:
            kernel(*these)
        return
    with shared(kernel, arguments) as todo:
        for these in todo:
            kernel(*these)


@contextmanager
def shared(kernel: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> Iterator[Iterator[tuple[Any, ...]]]:
    """The arguments of calls that the caller has to make itself, while other threads make the rest of them."""
    n, pool = len(arguments), None if alone.get() else _pool()
    todo = iter(arguments)  # next() on it is one operation under Python's lock
    others = [] if pool is None else [pool.submit(_call_next, kernel, todo) for _ in range(min(THREADS, n) - 1)]
    try:
        yield todo
    finally:
        for _ in todo:  # after an error or Ctrl-C: leave nothing for the others to begin
            pass
        wait(others)  # all of them, before anyone looks at what they wrote
    for other in others:
        other.result()


def _call_next(kernel: Callable[..., Any], todo: Iterator[tuple[Any, ...]]) -> None:
    for arguments in todo:
        kernel(*arguments)


def lines(n: int, width: int) -> np.ndarray:
    """Zeros (n, width), float64, that begin with a line of the cache; `width` is a multiple of LANES."""
    room = np.zeros(n * width + LANES)
    first = -(room.ctypes.data // room.itemsize) % LANES
    return room[first : first + n * width].reshape(n, width)


def fixed(x: np.ndarray) -> np.ndarray:
    """`x` contiguous and read-only: Numba compiles once more for arrays that differ in either."""
    if type(x) is np.ndarray and x.flags.c_contiguous and not x.flags.writeable:
        return x
    x = np.ascontiguousarray(x).view()
    x.flags.writeable = False
    return x
