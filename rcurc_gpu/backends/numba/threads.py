"""Pieces of work on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any

from numba import config

from ..cores import alone

THREADS: int = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # it is set at run time


@cache
def _pool() -> ThreadPoolExecutor | None:
    """Threads beside the caller's, as many as Numba would take (NUMBA_NUM_THREADS)."""
    others = THREADS - 1
    return ThreadPoolExecutor(others, thread_name_prefix="rcurc") if others > 0 else None


if hasattr(os, "register_at_fork"):  # the child of a fork has none of the threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run(work: Callable[[int], Any], n: int) -> None:
    """Do ``work(0)`` to ``work(n - 1)`` on all cores; they must not depend on each other."""
    pool = None if alone.get() else _pool()
    if n == 1 or pool is None:
        for k in range(n):
            work(k)
        return
    pieces = iter(range(n))  # next() on it is one operation under Python's lock

    def take() -> None:
        for k in pieces:
            work(k)

    others = [pool.submit(take) for _ in range(min(THREADS, n) - 1)]
    try:
        take()
    finally:
        for _ in pieces:  # after an error or Ctrl-C: leave nothing for the others to begin
            pass
        wait(others)  # all of them, before anyone looks at what they wrote
    for other in others:
        other.result()
