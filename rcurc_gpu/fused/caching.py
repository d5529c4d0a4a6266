"""Whether Numba has a place to keep what it compiles."""

from __future__ import annotations

import logging

from numba import njit

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
