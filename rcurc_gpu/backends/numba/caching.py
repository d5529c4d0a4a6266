"""Whether Numba has a place to keep what it compiles, and a word to the user while it compiles."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile

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


@cache
def texts() -> dict[str, bytes]:
    """The text of everything that kernels are made of, by its path; read once, so that all see the same."""
    return {str(file): file.read_bytes() for file in sorted(Path(__file__).parents[1].rglob("*.py"))}


@cache
def _stamp() -> str:
    return blake2b(b"".join(texts().values())).hexdigest()


_File: Any = IndexDataCacheFile


class Kept(FunctionCache):  # type: ignore[misc]
    """Where a kernel's machine code is kept, for this text of all kernels; Numba looks at the age of one file alone."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._cache_file: Any = _File(self._cache_path, self._impl.filename_base, _stamp())


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
        if self.depth == 1:
            shown = show_compiling(True)
            if not self.told:  # a warning, where no bar says so: who waits for seconds is to know why, without any set-up
                self.told = True
                kept = event.data["dispatcher"].stats.cache_path is not None
                often = "once" if kept else "in every process"
                log.log(logging.INFO if shown else logging.WARNING, "compiling kernels for the CPU, %s: some seconds", often)
            self.collects = gc.isenabled()
            gc.disable()  # compilers make millions of objects that live long: to look through them is a sixth of the time

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
