"""Ways to compute `passes.regress` on a CPU, for `bench.cpu_tools`; imports happen when a variant is made: they are timed.

What a variant writes, such as compiled code, goes to the directory that NUMBA_CACHE_DIR names.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rcurc_gpu.backends.blocks import pieces
from rcurc_gpu.backends.kernels import XP, Kernels, choose
from rcurc_gpu.backends.plain.passes import Column
from rcurc_gpu.backends.random import PositionStream, stream_key

_HERE = Path(__file__).parent
_FLAGS = ("-O3", "-march=native", "-fopenmp", "-ffast-math", "-shared", "-fPIC")


def numpy_code() -> Kernels:
    """Plain NumPy."""
    return XP


def library() -> Kernels:
    """The library's kernel: Numba, a small rank known to the compiler, threads of our own."""
    return choose("fused", np.empty(0))


def number() -> Kernels:
    """The library's kernel with a rank that the compiler does not know."""

    def regress(*task):
        from rcurc_gpu.backends.numba.pass_kernel import regress as kernel
        from rcurc_gpu.backends.numba.threads import run

        args, out, edges = _arguments(*task)

        parts = [slice(start, stop) for start, stop in pairwise(edges)]
        run(kernel, [(*args[:3], args[3][part], *args[4:], *(x[part] for x in out)) for part in parts])
        return out

    return _replaced(regress)


def prange() -> Kernels:
    """The library's kernel for a piece, called in a parallel loop of Numba's."""

    def regress(*task):
        from bench import prange_kernel

        args, out, edges = _arguments(*task)
        prange_kernel.regress(*args, *out, edges)
        return out

    return _replaced(regress)


def c_code() -> Kernels:
    """regress.c, the rank a constant, OpenMP."""
    return _replaced(_c_regress)


def has_compiler() -> bool:
    """Whether there is a C compiler."""
    return shutil.which("gcc") is not None


VARIANTS: dict[str, Callable[[], Kernels]] = {
    "NumPy": numpy_code,
    "Numba, as in the library": library,
    "Numba, rank a number": number,
    "Numba, prange": prange,
    "C, rank a constant, OpenMP": c_code,
}


def _replaced(regress: Callable[..., Any]) -> Kernels:
    known = library()
    return Kernels("bench", regress, known.advance, known.make_grid, known.plan)


def _arguments(block, units, basis, usable, white, names, fit_pass) -> tuple[tuple, tuple[np.ndarray, ...], np.ndarray]:
    """Arguments of `pass_kernel.regress` from those of `passes.regress`, arrays for what it finds, edges of pieces."""
    assert fit_pass.begin == "zero"
    s = fit_pass.schedule
    keys = np.full(3, stream_key(names.seed, PositionStream.HOLDOUT), dtype=np.uint64)
    arrays = tuple(np.ascontiguousarray(x) for x in (basis, usable, white, names.unit, names.index))
    start = np.empty((1, basis.shape[1]))
    there = (block.indptr, block.index, block.value, units, *arrays)
    there += (names.transposed, keys, float(names.share))
    how = (
        0,
        0,
        start,
        float(s.zeta0),
        float(s.floor),
        float(s.gamma),
        fit_pass.max_steps,
        float(fit_pass.informative),
        basis.shape[1],
    )
    out = (np.empty((len(units), basis.shape[1])), np.empty((len(units), len(Column))))
    return there + how, out, pieces(block.counts[units], 1 << 16)


def _directory() -> Path:
    return Path(os.environ["NUMBA_CACHE_DIR"])


@cache
def _c_library(rank: int) -> Any:
    path = _directory() / f"regress_rank_{rank}.so"
    if not path.exists():
        subprocess.run(["gcc", *_FLAGS, f"-DRANK={rank}", "-o", path, _HERE / "regress.c", "-lm"], check=True)
    return ctypes.CDLL(str(path))


def _c_regress(block, units, basis, usable, white, names, fit_pass):
    assert fit_pass.begin == "zero"
    a, table = np.empty((len(units), basis.shape[1])), np.empty((len(units), len(Column)))
    s, key = fit_pass.schedule, ctypes.c_uint64(stream_key(names.seed, PositionStream.HOLDOUT))

    def there(x: np.ndarray) -> Any:
        assert x.flags.c_contiguous
        return ctypes.c_void_p(x.ctypes.data)

    arrays = [np.ascontiguousarray(x) for x in (units, basis, usable, white, names.unit, names.index)]
    _c_library(basis.shape[1]).regress(
        *map(there, (block.indptr, block.index, block.value, arrays[0])),
        ctypes.c_int64(len(units)),
        *map(there, arrays[1:]),
        ctypes.c_int(names.transposed),
        key,
        *map(ctypes.c_double, (names.share, s.zeta0, s.floor, s.gamma)),
        ctypes.c_int(fit_pass.max_steps),
        ctypes.c_double(fit_pass.informative),
        there(a),
        there(table),
    )
    return a, table
