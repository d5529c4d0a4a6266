"""Whether Numba has a place to keep what it compiles, and a word to the user while it compiles."""

from __future__ import annotations

import gc
import logging
from typing import Any

from numba import njit
from numba.core import event

from ...progress import show_compiling

log = logging.getLogger("rcurc_gpu")


def can_cache() -> bool:
    """Whether compiled kernels can be kept for later processes; if not, a line in the log says what to do."""
    try:
        njit(cache=True)(_nothing)
    except RuntimeError:  # neither the package's directory nor the user's cache can be written to
        log.warning("compiled kernels cannot be kept and are compiled in every process: set NUMBA_CACHE_DIR to a directory")
        return False
    return True


def _nothing() -> None:
    return None


class _Announcer(event.Listener):
    """Tells the log, once, and progress bars that kernels are being compiled, which takes some seconds.

    Numba announces a compilation only if nothing was kept of an earlier one.
    """

    def __init__(self) -> None:
        self.depth = 0  # kernels compile those that they call; Numba's lock lets one thread at a time do so
        self.told = False
        self.collects = True  # Python's garbage collector, before

    def on_start(self, event: Any) -> None:
        if not _is_ours(event):
            return
        self.depth += 1
        if not self.told:
            self.told = True
            kept = event.data["dispatcher"].stats.cache_path is not None
            log.info("compiling kernels for the CPU, about ten seconds%s", "; kept for later" if kept else "")
        if self.depth == 1:
            show_compiling(True)
            self.collects = gc.isenabled()
            gc.disable()  # a compiler makes objects by the million that live long: to look through them takes a sixth of the time

    def on_end(self, event: Any) -> None:
        if not _is_ours(event):
            return
        self.depth -= 1
        if self.depth == 0:
            if self.collects:
                gc.enable()
            show_compiling(False)


def _is_ours(event: Any) -> bool:
    return str(event.data["dispatcher"].py_func.__module__).startswith(__package__)


event.register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]
