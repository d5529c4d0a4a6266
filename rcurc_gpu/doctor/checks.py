"""What the self-test checks of the backends: that CUDA sources compile, the plain code, and the kernels.

Kernels are compared with the plain code on NumPy, and that with formulas. The data are such that the answer does not
hang on rounding: outliers are far from the noise, and thresholds lie in gaps. All that the doctor takes from `backends`
comes through this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..backends import (
    MAX_STEPS,
    MIX_1,
    MIX_2,
    XP,
    Block,
    EntryIds,
    FitPass,
    Grid,
    Iterates,
    Kernels,
    Schedule,
    choose,
    operators,
    stream_key,
    to_numpy,
    uniform_at,
)
from ..backends.cuda import KERNELS, options, source
from .probes import Cupy
from .selftest import Check, Place, Trial

RANKS, QUICK_RANKS = (1, 5, 16, 32), (5,)
_DTYPES = ("float32", "float64")
_WIDTH = 7  # of the core's factors, so that nothing is compiled twice
_USUAL = (80, 75, 90)  # architectures to try without a device: the first that NVRTC knows
_BEGINS = ("zero", "given", "part", "subsets", "measure")
_OF_TWO = {"float32": ("subsets of two",), "float64": ("part of two", "subsets of two")}  # see `_units`
_NOISE, _FLOOR, _ZETA0 = 1e-3, 2e-2, 12.0
_TOLERANCE = {"float32": 3e-3, "float64": 1e-10}  # of regressions; float32 leaves four digits of the spread
_SUMS = {"float32": 1e-4, "float64": 1e-12}  # of sums over products
_OF_INVERSE = slice(3, 5)  # columns of the table of a fit pass: ill-conditioned, standard error
_STEPS = 6  # of the recursion
_TIMED = 5  # rank at which the recursion is timed
_DRAWN = 2000  # different units
_PANEL = 1 << 14  # bytes: several panels, and the sparse layout where little is seen
_MASK = (1 << 64) - 1


def largest_difference(got: Any, want: Any) -> float:
    """The largest difference between arrays, in units of the largest entry of the truth; over several, the worst."""
    got, want = (x if isinstance(x, (tuple, list)) else (x,) for x in (got, want))
    differences = [0.0]
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g) if np.isscalar(g) else to_numpy(g), np.asarray(w)
        if g.shape != w.shape:
            raise AssertionError(f"shape {g.shape} instead of {w.shape}")
        size = float(np.max(np.abs(w), initial=0.0)) or 1.0
        differences.append(float(np.max(np.abs(g.astype(np.float64) - w.astype(np.float64)), initial=0.0)) / size)
    return float(np.max(differences))  # NaN, if there is one


# ---------------------------------------------------------------- do the CUDA sources compile?


def device_compile_checks(ranks: tuple[int, ...] = RANKS) -> list[Check]:
    """Compile every file for CuPy's current device, and load its kernels."""
    return _compile_checks(_compile_here, "", ranks)


def nvrtc_compile_checks(cupy: Cupy | None) -> list[Check]:
    """Compile every file for an architecture that is not here; nothing if there is no compiler."""
    known = [number for number in _USUAL if cupy is not None and number in cupy.architectures]
    return _compile_checks(partial(_compile_with_nvrtc, known[0]), f" for sm_{known[0]}", QUICK_RANKS) if known else []


def _compile_checks(compile_one: Callable[[str, str, int], Any], where: str, ranks: tuple[int, ...]) -> list[Check]:
    """Every file, at each dtype and size that `compile_one` gets after the name of the file."""

    def make(name: str, dtype: str, size: int, place: Place, _: int) -> Trial:
        return Trial(partial(compile_one, name, dtype, size))

    sizes: dict[str | None, tuple[int, ...]] = {"RANK": ranks, "WIDTH": (_WIDTH,), None: (0,)}
    checks = []
    for name, (macro, _) in KERNELS.items():
        pairs = [(dtype, size) for dtype in _DTYPES for size in sizes[macro]]
        parts = {f"{dtype}, {macro} {size}" if macro else dtype: partial(make, name, dtype, size) for dtype, size in pairs}
        checks.append(Check("compile", f"{name}{where}, {len(parts)} times", parts, 0))
    return checks


def _compile_here(name: str, dtype: str, size: int) -> None:
    from ..backends.cuda import kernel

    try:
        for function in KERNELS[name][1]:
            kernel(name, function, dtype, size)
    except Exception as error:
        raise _compiler_error(str(error), error) from error


def _compile_with_nvrtc(architecture: int, name: str, dtype: str, size: int) -> bytes:
    """Compile without a driver: CuPy's own way asks for a device first."""
    from cupy_backends.cuda.libs import nvrtc  # type: ignore[import-not-found]

    program = nvrtc.createProgram(source(name), name, (), ())
    try:
        nvrtc.compileProgram(program, (*options(name, dtype, size), f"-arch=sm_{architecture}"))
        return nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise _compiler_error(nvrtc.getProgramLog(program), error) from error
    finally:
        nvrtc.destroyProgram(program)


def _compiler_error(log: str, error: Exception) -> RuntimeError:
    """With the first line of a compiler's log that says what is wrong."""
    lines = (line.strip() for line in log.splitlines() if "error" in line.lower() and ":" in line)
    return RuntimeError(next(lines, str(error)))


# ---------------------------------------------------------------- the plain code


def plain_checks() -> list[Check]:
    """What there is to check without fused kernels."""
    svd = [Check("plain", f"truncated_svd, {dtype}", partial(_truncated_svd, dtype), 40, 600, 3000) for dtype in _DTYPES]
    uniform = Check("plain", "uniform_at", _uniform_at, 500, 1_000_000, 10_000_000)
    return [*operator_checks("plain", operators), *svd, uniform]


def operator_checks(group: str, operators: Any) -> list[Check]:
    """The paper's entrywise operators, of a module that has them."""
    checks = []
    for dtype in _DTYPES:
        threshold, union = partial(_hard_threshold, operators, dtype), partial(_union_sum, operators, dtype)
        checks.append(Check(group, f"hard_threshold, {dtype}", threshold, 3000, 4_000_000, 20_000_000))
        checks.append(Check(group, f"union_sum, {dtype}", union, 40, 1500, 3000))
    return checks


def _hard_threshold(operators: Any, dtype: str, place: Place, size: int) -> Trial:
    M = np.resize(np.random.default_rng(1).uniform(-2, 2, 1_000_003).astype(dtype), size)
    here = place.put(M)

    def difference(got: Any) -> float:
        return largest_difference(got, np.where(np.abs(M) >= np.asarray(0.8, dtype), M, 0))

    return Trial(lambda: operators.hard_threshold(here, 0.8), difference, 0.0, 2.0 * M.nbytes, "B")


def _union_sum(operators: Any, dtype: str, place: Place, size: int) -> Trial:
    rng = np.random.default_rng(2)
    R, C, X = (rng.random((size, size), dtype=np.dtype(dtype).type) for _ in range(3))
    seen_R, seen_C = (rng.random((size, size), dtype=np.float32) < 0.4 for _ in range(2))
    here = place.put({"R_inter": R, "C_inter": C, "seen_R": seen_R, "seen_C": seen_C, "X": X})

    def difference(got: Any) -> float:
        weight_R, weight_C = seen_R / 0.7, seen_C / 1.4  # means weighted by one over the step
        total = weight_R + weight_C
        return largest_difference(got, np.where(total > 0, (weight_R * R + weight_C * C) / np.where(total > 0, total, 1), X))

    tolerance, moved = 8 * float(np.finfo(dtype).eps), 4.0 * R.nbytes + 2.0 * seen_R.nbytes
    return Trial(lambda: operators.union_sum(step_rows=0.7, step_cols=1.4, **here), difference, tolerance, moved, "B")


def _truncated_svd(dtype: str, place: Place, size: int) -> Trial:
    """Against LAPACK's full SVD: singular values and the rank-4 part."""
    rng = np.random.default_rng(3)
    rank, eps = 4, float(np.finfo(dtype).eps)
    left, right = (np.linalg.qr(rng.standard_normal((n, rank)))[0] for n in (size, size + 5))
    M = ((left * [8, 5, 3, 2]) @ right.T + 1e-3 * rng.standard_normal((size, size + 5)) / np.sqrt(size)).astype(dtype)
    here = place.put(M)

    def difference(got: tuple[Any, Any, Any]) -> float:
        u, s, vt = np.linalg.svd(M.astype(np.float64), full_matrices=False)
        W, values, V = got
        return largest_difference((values, (W * values) @ V.T), (s[:rank], (u[:, :rank] * s[:rank]) @ vt[:rank]))

    return Trial(lambda: operators.truncated_svd(here, rank, tol=100 * eps), difference, 1e3 * eps, float(M.size))


def _uniform_at(place: Place, size: int) -> Trial:
    """Bit by bit against integers of Python."""
    rng = np.random.default_rng(4)
    i, j = rng.integers(0, 1 << 31, size), rng.integers(0, 1 << 31, size)
    i_there, j_there = place.put(i), place.put(j)

    def difference(got: Any) -> float:
        z = (i.astype(object) << 32) + j ^ stream_key(7, 11)
        for shift, factor in ((30, MIX_1), (27, MIX_2), (31, 1), (30, MIX_1), (31, 1)):
            z = (z ^ z >> shift) * factor & _MASK
        return largest_difference(got, (z >> 11).astype(float) * 2.0**-53)

    return Trial(lambda: uniform_at(i_there, j_there, 7, 11), difference, 0.0, float(size))


# ---------------------------------------------------------------- kernels


def cpu_checks(ranks: tuple[int, ...] = RANKS) -> list[Check]:
    """The kernels compiled for the CPU, if there are any; the plain code on NumPy is what is compared with."""
    kernels = choose("auto", np.zeros(1))
    return kernel_checks(kernels, ranks) if kernels.name != "xp" else []


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


def kernel_checks(kernels: Kernels, ranks: tuple[int, ...] = RANKS) -> list[Check]:
    """All that `kernels` can do; each rank is compiled by itself, which takes its time."""
    checks = []
    for dtype in _DTYPES:
        for rank in ranks:
            begins = _BEGINS + (_OF_TWO[dtype] if rank == 1 else ())
            parts = {begin: partial(_regress, kernels, dtype, rank, begin) for begin in begins}
            timed = (50_000 // rank + 500, 400_000 // rank + 4000)
            checks.append(Check(kernels.name, f"regress, rank {rank}, {dtype}", parts, 40 if rank <= 5 else 16, *timed))
        for name, make in {"advance": _advance, "normal equations": _normal}.items():
            parts = {f"rank {rank}": partial(make, kernels, dtype, rank) for rank in sorted(ranks, key=_TIMED.__ne__)}
            checks.append(Check(kernels.name, f"{name}, {dtype}", parts, 40, 10_000, 100_000))
        for name, rate, sizes, calls in _GRIDS:
            parts = {call.__name__.strip("_"): partial(_grid, kernels, dtype, rate, call) for call in calls}
            checks.append(Check(kernels.name, f"grid, {name}, {dtype}", parts, *sizes))
    return checks


def _units(dtype: str, rank: int, count: int, two: bool = False) -> dict[str, Any]:
    """At least `count` units with outliers, the first of them empty, most of them rich enough to have entries held out.

    Entries are of ``basis @ truth[u]``. With `two`, half of them have another truth: which of the two is found shows
    where the regression began.
    """
    rng = np.random.default_rng([6, rank])
    length, drawn = 16 * rank + 24, min(count, _DRAWN)
    shape = (drawn, length)
    basis = np.linalg.qr(rng.standard_normal((length, rank)))[0] * np.sqrt(length)
    usable = (rng.random(length) > 0.1).astype(float)
    seen = rng.random(shape) < rng.uniform(0.5, 1.0, (drawn, 1))
    seen[0, :] = False
    truth = rng.standard_normal((drawn, rank)) / np.sqrt(rank)
    Y = truth @ basis.T + _NOISE * rng.standard_normal(shape)
    wrong = rng.random(shape) < min(0.2, 1 / rank)
    Y = Y + wrong * rng.choice([-1.0, 1.0], shape) * rng.uniform(3, 9, shape)
    if two:
        Y = np.where(rng.random(shape) < 0.5, 1.0, 5.0) * basis.T + _NOISE * rng.standard_normal(shape)
    times = -(-count // drawn)  # more units are the same ones, under other numbers
    eigenvalues, vectors = np.linalg.eigh((basis * usable[:, None]).T @ basis)
    floats = {"basis": basis, "usable": usable, "white": (vectors / np.sqrt(eigenvalues)).T, "truth": truth}
    units = {name: x.astype(dtype) for name, x in floats.items()}
    units["truth"] = np.tile(units["truth"], (times, 1))
    ids = EntryIds(np.arange(times * drawn) * 3 + 1, np.arange(length) * 2, rank % 2 == 1, 9, 0.1)
    return {"block": _block(seen, Y, dtype, times), "ids": ids, **units}


def _block(seen: np.ndarray, Y: np.ndarray, dtype: str, times: int = 1) -> Block:
    """The entries of `Y` that were seen, and the same ones again."""
    counts, index, value = (np.tile(x, times) for x in (seen.sum(axis=1), np.nonzero(seen)[1], Y[seen]))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return Block(indptr.astype(np.int64), index.astype(np.int32), value.astype(dtype), seen.shape[1])


def _of_units(kernels: Kernels, name: str, place: Place, data: tuple[Any, ...], tolerance: float) -> Trial:
    """A trial of the function `name` of `kernels`, for all units of the block that comes first in `data`."""
    units, there = np.arange(data[0].n_units), place.put(data)

    def call(kernels: Kernels, block: Block, *others: Any) -> Any:
        return getattr(kernels, name)(block, units, *others)

    def columns(got: Any) -> list[Any]:
        *coefficients, table = map(to_numpy, got if isinstance(got, tuple) else (got,))
        if name == "regress":  # what an inverse says of fewer inliers than unknowns, or hardly more, is rounding
            table[:, _OF_INVERSE] *= table[:, 1:2] >= 3 * coefficients[0].shape[1]
        return [*coefficients, *table.T]

    def difference(got: Any) -> float:
        return largest_difference(columns(got), columns(call(XP, *data)))

    return Trial(lambda: call(kernels, *there), difference, tolerance, float(data[0].n_obs))


def _regress(kernels: Kernels, dtype: str, rank: int, begin: str, place: Place, size: int) -> Trial:
    units = _units(dtype, rank, size, two=begin.endswith("of two"))
    near = np.asarray(0.001 if begin == "measure" else 0.05, dtype) * np.roll(units["truth"], 1, axis=0)
    kind = "given" if begin == "measure" else begin.partition(" ")[0]
    number = {"part": 2, "subsets": 60, "subsets of two": 1}.get(begin, 0)
    start, steps = units["truth"] + near if kind == "given" else None, 0 if begin == "measure" else MAX_STEPS
    fit_pass = FitPass(Schedule(_ZETA0, _FLOOR, 0.7), 0.5 * _FLOOR, kind, number, start, steps)
    data = (*(units[name] for name in ("block", "basis", "usable", "white", "ids")), fit_pass)
    return _of_units(kernels, "regress", place, data, _TOLERANCE[dtype])


def _advance(kernels: Kernels, dtype: str, rank: int, place: Place, size: int) -> Trial:
    units = _units(dtype, rank, size)
    rng = np.random.default_rng(7)
    bases = [units["basis"] / np.sqrt(units["block"].length)]
    for _ in range(_STEPS):  # towards the next basis, a little
        bases.append(np.linalg.qr(bases[-1] + 0.01 * rng.standard_normal(bases[-1].shape))[0])
        bases[-1] *= np.sign(np.sum(bases[-1] * bases[-2], axis=0))
    path = np.stack(bases).astype(dtype)
    turns = (path[:-1].transpose(0, 2, 1) @ path[1:]).astype(dtype)
    zetas = (_ZETA0 * 0.6 ** np.arange(_STEPS)).astype(dtype)
    iterates = Iterates(path, turns, zetas, 1.2)
    data = (units["block"], units["usable"], units["ids"], iterates, np.zeros_like(units["truth"]))
    trial = _of_units(kernels, "advance", place, data, _SUMS[dtype])
    return replace(trial, work=_STEPS * trial.work)


def _normal(kernels: Kernels, dtype: str, rank: int, place: Place, size: int) -> Trial:
    """The right-hand side is what noise leaves, a thousandth of its terms: hence the tolerance."""
    units = _units(dtype, rank, size)
    data = (*(units[name] for name in ("block", "basis", "usable", "ids", "truth")), 1.0)
    return _of_units(kernels, "normal", place, data, _TOLERANCE[dtype])


# ---------------------------------------------------------------- the core's grid


def _grid(kernels: Kernels, dtype: str, rate: float, call: Callable[..., Any], place: Place, size: int) -> Trial:
    """One of the functions below, which get the arrays of `_core` by their names."""
    core = _core(dtype, rate, size)
    there = place.put(core)
    grid = kernels.make_grid(there["block"], there["weight"], None if place.on_gpu else _PANEL)

    def difference(got: Any) -> float:
        return largest_difference(got, call(XP.make_grid(core["block"], core["weight"], _PANEL), **core))

    tolerance = _SUMS[dtype] * (10 if call is _change else 1)
    return Trial(lambda: call(grid, **there), difference, tolerance, 2.0 * core["block"].n_obs)


def _core(dtype: str, rate: float, size: int) -> dict[str, Any]:
    """An intersection with outliers, factors near its truth, other factors, and a threshold in a gap of the residual."""
    rng = np.random.default_rng([8, int(100 * rate)])
    m, n, k = size, size + 7, _WIDTH
    W, V = (np.linalg.qr(rng.standard_normal((length, k)))[0] for length in (m, n))
    s = np.asarray([4.0, 3, 2, 1, 0, 0, 0]) * np.sqrt(size)
    seen = rng.random((m, n)) < rate
    seen[:, 0] = seen[0, :] = True
    seen[1, 1:] = False  # almost empty, which is as much as a row may be
    Y = (W * s) @ V.T + 0.3 * rng.standard_normal((m, n)) + 5 * (rng.random((m, n)) < 0.1)
    weight = np.where(rng.random(seen.sum()) < 0.1, 0.0, rng.uniform(0.5, 1.5, seen.sum()))  # 0: held out
    left, Q = (W * s).astype(dtype), V.astype(dtype)
    E = np.sort(np.abs((Y - left.astype(float) @ Q.T.astype(float))[seen][weight > 0]))
    window = E[int(0.8 * len(E)) : int(0.9 * len(E))]
    gap = int(np.argmax(np.diff(window)))
    floats = {"weight": weight, "left": left, "Q": Q, "X": rng.standard_normal((n, k)), "P": rng.standard_normal((m, k))}
    floats["zeta"] = window[gap : gap + 2].mean()
    rng, count = np.random.default_rng(9), min(20 * size, 16384)
    sample = (rng.integers(0, size, count), rng.integers(0, size, count), rng.standard_normal(count).astype(dtype))
    rng = np.random.default_rng(10)
    moved = np.linalg.qr(Q + 1e-3 * rng.standard_normal(Q.shape))[0].astype(dtype)
    floats["next_left"] = left + 1e-2 * rng.standard_normal(left.shape)
    floats["next_Q"] = moved * np.sign(np.sum(moved * Q, axis=0))
    floats["norms"] = np.linalg.norm(left.astype(float), axis=0)
    return {"block": _block(seen, Y, dtype), "sample": sample, **{name: x.astype(dtype) for name, x in floats.items()}}


def _threshold(grid: Grid, left: Any, Q: Any, X: Any, P: Any, zeta: Any, **_: Any) -> tuple[Any, ...]:
    """Two thresholds in a row, the second of which knows the outliers of the first, and the products with what is left."""
    G, S, *first = grid.threshold(left, Q, 2 * zeta, None)
    kept = [x + 0 for x in first]  # a copy: buffers may be used again
    G, S, *second = grid.threshold(left, Q, zeta, S)
    return (*kept, *second, grid.mul(G, X), grid.rmul(G, P), grid.rmul(G, P, X))


def _inlying(grid: Grid, left: Any, Q: Any, X: Any, P: Any, zeta: Any, **_: Any) -> tuple[Any, ...]:
    kept, rows, cols = grid.inlying(left, Q, float(zeta))
    return rows, cols, grid.mul(kept, X), grid.rmul(kept, P)


def _floor_threshold(grid: Grid, left: Any, Q: Any, sample: Any, **_: Any) -> tuple[Any, ...]:
    return tuple(grid.floor_threshold(left, Q, sample, *pair) for pair in ((0.1, 2.5), (0.1, 0.0), (1e6, 2.5)))


def _change(grid: Grid, left: Any, Q: Any, next_left: Any, next_Q: Any, norms: Any, **_: Any) -> Any:
    return grid.change(next_left, next_Q, left, Q, norms)


_GRIDS: tuple[tuple[Any, ...], ...] = (  # name, share of the intersection that is seen, sizes, and functions
    ("dense", 0.7, (60, 1500, 3000), (_threshold, _inlying)),
    ("sparse", 0.08, (60, 1500, 3000), (_threshold, _inlying)),
    ("scalars", 0.7, (60,), (_floor_threshold, _change)),
)
