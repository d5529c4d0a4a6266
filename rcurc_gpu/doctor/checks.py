"""What the self-test checks: that CUDA sources compile, the plain code against formulas, the kernels, whole solves."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..api import rcurc
from ..backends import MIX_1, MIX_2, XP, Kernels, choose, operators, stream_key, uniform_at
from ..backends.cuda import KERNELS, options, source
from ..errors import without_warning
from ..testing import synthetic
from .kernels import DTYPES, QUICK_RANKS, RANKS, WIDTH, kernel_checks
from .probes import Cupy, Machine
from .selftest import Check, Place, Trial, against

_USUAL = (80, 75, 90)  # architectures to try without a device: the first that NVRTC knows
_MASK = (1 << 64) - 1


def all_checks(place: Place, machine: Machine, quick: bool = False) -> list[Check]:
    """Everything there is to check on a place."""
    ranks = QUICK_RANKS if quick else RANKS
    if place.on_gpu:
        return [*compile_checks(ranks), *plain_checks(), *cuda_checks(ranks), *solve_checks(place)]
    # NVRTC looks at the driver, too, and may crash with one that does not work.
    sources = nvrtc_compile_checks(machine.cupy) if machine.driver.version is None else []
    kernels = choose("auto", np.zeros(1))
    fused = kernel_checks(kernels, ranks) if kernels.name != "xp" else []  # plain NumPy is what is compared with
    return [*sources, *plain_checks(), *fused, *solve_checks(place)]


# ---------------------------------------------------------------- CUDA


def nvrtc_compile_checks(cupy: Cupy | None) -> list[Check]:
    """Compile every file for an architecture that is not here; nothing if there is no compiler."""
    known = [number for number in _USUAL if cupy is not None and number in cupy.architectures]
    return compile_checks(QUICK_RANKS, known[0]) if known else []


def compile_checks(ranks: tuple[int, ...], architecture: int = 0) -> list[Check]:
    """Compile every file for CuPy's current device and load its kernels, or compile it for an architecture (80: sm_80)."""

    def make(name: str, dtype: str, size: int, *_: Any) -> Trial:
        return Trial(partial(_compile, name, dtype, size, architecture))

    sizes: dict[str | None, tuple[int, ...]] = {"RANK": ranks, "WIDTH": (WIDTH,), None: (0,)}
    where, checks = f" for sm_{architecture}" if architecture else "", []
    for name, (macro, _) in KERNELS.items():
        pairs = [(dtype, size) for dtype in DTYPES for size in sizes[macro]]
        parts = {f"{dtype}, {macro} {size}" if macro else dtype: partial(make, name, dtype, size) for dtype, size in pairs}
        checks.append(Check("compile", f"{name}{where}, {len(parts)} times", parts, 0))
    return checks


def _compile(name: str, dtype: str, size: int, architecture: int) -> None:
    """Raises what the compiler says: the first line of its log that tells what is wrong."""
    try:
        if architecture:
            _compile_elsewhere(name, (*options(name, dtype, size), f"-arch=sm_{architecture}"))
            return
        from ..backends.cuda import kernel

        for function in KERNELS[name][1]:
            kernel(name, function, dtype, size)
    except Exception as error:
        lines = (line.strip() for line in str(error).splitlines() if "error" in line.lower() and ":" in line)
        raise RuntimeError(next(lines, str(error.__cause__ or error))) from error


def _compile_elsewhere(name: str, arguments: tuple[str, ...]) -> None:
    """Compile without a driver: CuPy's own way asks for a device first."""
    from cupy_backends.cuda.libs import nvrtc  # type: ignore[import-not-found]

    program = nvrtc.createProgram(source(name), name, (), ())
    try:
        nvrtc.compileProgram(program, arguments)
        nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)) from error
    finally:
        nvrtc.destroyProgram(program)


def cuda_checks(ranks: tuple[int, ...] = RANKS) -> list[Check]:
    """The CUDA kernels themselves, whatever the solver chooses to use."""
    try:
        from ..backends.cuda import calls as cuda
        from ..backends.cuda import elementwise
    except Exception as error:
        return [Check("cuda", "load the kernels", partial(_cannot_load, error), 0)]
    kernels = Kernels("cuda", cuda.regress, cuda.advance, cuda.make_grid, XP.plan)
    return [*operator_checks("cuda", elementwise), *kernel_checks(kernels, ranks)]


def _cannot_load(error: Exception, place: Place, size: int) -> Trial:
    raise error


# ---------------------------------------------------------------- the plain code


def plain_checks() -> list[Check]:
    """What there is to check without fused kernels."""
    svd = [Check("plain", f"truncated_svd, {dtype}", partial(_truncated_svd, dtype), 40, 600, 3000) for dtype in DTYPES]
    uniform = Check("plain", "uniform_at", _uniform_at, 500, 1_000_000, 10_000_000)
    return [*operator_checks("plain", operators), *svd, uniform]


def operator_checks(group: str, operators: Any) -> list[Check]:
    """The paper's entrywise operators, of a module that has them."""
    rows = (("hard_threshold", _hard_threshold, (3000, 4_000_000, 20_000_000)), ("union_sum", _union_sum, (40, 1500, 3000)))
    return [Check(group, f"{n}, {d}", partial(make, operators, d), *sizes) for d in DTYPES for n, make, sizes in rows]


def _hard_threshold(operators: Any, dtype: str, place: Place, size: int) -> Trial:
    M = np.resize(np.random.default_rng(1).uniform(-2, 2, 1_000_003).astype(dtype), size)

    def truth() -> np.ndarray:
        return np.where(np.abs(M) >= np.asarray(0.8, dtype), M, 0)

    return against(truth, place, lambda M: operators.hard_threshold(M, 0.8), {"M": M}, 0.0, 2.0 * M.nbytes, unit="B")


def _union_sum(operators: Any, dtype: str, place: Place, size: int) -> Trial:
    rng = np.random.default_rng(2)
    R, C, X = (rng.random((size, size), dtype=np.dtype(dtype).type) for _ in range(3))
    seen_R, seen_C = (rng.random((size, size), dtype=np.float32) < 0.4 for _ in range(2))

    def truth() -> np.ndarray:
        weight_R, weight_C = seen_R / 0.7, seen_C / 1.4  # means weighted by one over the step
        total = weight_R + weight_C
        return np.where(total > 0, (weight_R * R + weight_C * C) / np.where(total > 0, total, 1), X)

    data = {"R_inter": R, "C_inter": C, "seen_R": seen_R, "seen_C": seen_C, "X": X}
    tolerance, moved = 8 * float(np.finfo(dtype).eps), 4.0 * R.nbytes + 2.0 * seen_R.nbytes
    run = partial(operators.union_sum, step_rows=0.7, step_cols=1.4)
    return against(truth, place, run, data, tolerance, moved, unit="B")


def _truncated_svd(dtype: str, place: Place, size: int) -> Trial:
    """Against LAPACK's full SVD: singular values and the rank-4 part."""
    rng = np.random.default_rng(3)
    rank, eps = 4, float(np.finfo(dtype).eps)
    left, right = (np.linalg.qr(rng.standard_normal((n, rank)))[0] for n in (size, size + 5))
    M = ((left * [8, 5, 3, 2]) @ right.T + 1e-3 * rng.standard_normal((size, size + 5)) / np.sqrt(size)).astype(dtype)

    def truth() -> tuple[np.ndarray, ...]:
        u, s, vt = np.linalg.svd(M.astype(np.float64), full_matrices=False)
        return u[:, :rank], s[:rank], vt[:rank].T

    run = partial(operators.truncated_svd, rank=rank, tol=100 * eps)
    return against(truth, place, run, {"M": M}, 1e3 * eps, float(M.size), view=lambda W, s, V: (s, (W * s) @ V.T))


def _uniform_at(place: Place, size: int) -> Trial:
    """Bit by bit against integers of Python."""
    rng = np.random.default_rng(4)
    i, j = rng.integers(0, 1 << 31, size), rng.integers(0, 1 << 31, size)

    def truth() -> np.ndarray:
        z = (i.astype(object) << 32) + j ^ stream_key(7, 11)
        for shift, factor in ((30, MIX_1), (27, MIX_2), (31, 1), (30, MIX_1), (31, 1)):
            z = (z ^ z >> shift) * factor & _MASK
        return (z >> 11).astype(float) * 2.0**-53

    return against(truth, place, lambda i, j: uniform_at(i, j, 7, 11), {"i": i, "j": j}, 0.0, float(size))


# ---------------------------------------------------------------- whole solves


def solve_checks(place: Place) -> list[Check]:
    """Against the truth of a synthetic problem: compiled, plain, and streamed to a device."""
    ways: dict[str, dict[str, Any]] = {"auto": {}, "plain": {"kernels": "xp"}}
    if place.on_gpu:
        ways["from the host"] = {"device": place.name}
    checks = []
    for method, tolerance, large, larger in (("fast", 1e-8, 2000, 4000), ("paper", 1e-4, 1000, 2000)):
        parts = {name: partial(_solve, method, tolerance, way) for name, way in ways.items()}
        checks.append(Check("solve", f"rcurc, method {method}", parts, 120, large, larger))
    return checks


def _solve(method: str, tolerance: float, way: dict[str, Any], place: Place, size: int) -> Trial:
    """The largest problem is chosen so that it takes a second or two without compiled kernels."""
    share, rate = (0.5, 0.6) if size < 500 else (0.3, 0.3)
    chosen = round(share * size)
    problem = synthetic((size, size), 2, alpha=0.1, n_rows=chosen, n_cols=chosen, rate=rate, seed=5)
    there = place.on_gpu and "device" not in way
    samples = problem.samples.to_namespace(place.xp) if there else problem.samples

    def run() -> Any:
        with without_warning():
            return rcurc(samples, 2, method=method, seed=5, progress=False, **way)

    return Trial(run, lambda result: float(problem.relative_error(result.cur)), tolerance, float(problem.samples.n_obs))
