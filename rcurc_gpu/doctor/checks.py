"""What the self-test checks: that CUDA sources compile, the plain code against formulas, the kernels, whole solves.

The data are such that the answer does not hang on rounding: outliers are far from the noise, and thresholds between them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..api import rcurc
from ..backends import (
    XP,
    Begin,
    Column,
    EntryIds,
    FitPass,
    Iterates,
    Kernels,
    Model,
    Noise,
    Recipe,
    Schedule,
    choose,
    cuda_kernels,
    laid_out,
    operators,
    positions_of,
    posterior_of_matrix,
    stream_key,
    uniform_at,
)
from ..backends.cuda import KERNELS, options, source
from ..errors import without_warning
from ..testing import synthetic
from .probes import Cupy, Machine, attempt
from .selftest import Check, Place, Trial, largest_difference
from .step_checks import step_checks

RANKS, QUICK_RANKS = (1, 5, 16, 32), (5,)
_TIMED = 5  # rank at which the recursion is timed
_WIDTH = 7  # of the core's factors, so that nothing is compiled twice
_USUAL = (80, 75, 90)  # architectures to try without a device: the first that NVRTC knows
_EPS = {"float32": 1.2e-7, "float64": 2.2e-16}
_FITTED = {"float32": 3e-3, "float64": 1e-10}  # tolerance of regressions; float32 leaves four digits of the spread
_SUMMED = {"float32": 1e-4, "float64": 1e-12}  # of sums over products
_PANEL = 1 << 14  # bytes: several panels, and the sparse layout where little is seen
_STEPS = 6  # of the recursion
_GRIDS: tuple[tuple[Any, ...], ...] = (  # name, share of the intersection that is seen, methods, and sizes
    ("dense", 0.7, ("threshold", "inlying"), (60, 1500, 3000)),
    ("sparse", 0.08, ("threshold", "inlying"), (60, 1500, 3000)),
    ("scalars", 0.7, ("floor_threshold", "change"), (60,)),
    ("iterations", 0.7, ("loop",), (60, 1500)),
)
# Sums over rows with their columns: of the noise model, of what ties rows to columns, and of Gauss-Newton steps.
SUMS = {
    "noise model": ("posterior", "matrix_steps"),
    "ties": ("couple", "grams", "inverses"),
    "Gauss-Newton": ("make_side",),
}
# Where a regression begins: which part, or how many subsets. Without steps it ends there, and what was drawn shows.
_BEGINS = {"zero": 0, "given": 0, "part": 2, "subsets": 60, "given, no steps": 0}
_BEGINS_1 = {**_BEGINS, "part, no steps": 2, "subsets, no steps": 1}  # at rank 1 a subset is never singular


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


def _against(tested: Any, truth: Any, data: dict[str, Any], place: Place, ready: Any = partial, **how: Any) -> Trial:
    """A trial of `tested` on a copy of the data that `truth` gets; `ready` makes of such a function what is run and timed.

    `how`: fields of `Trial`, and a `view` of results to compare.
    """
    view = how.pop("view", lambda got: got)
    run = ready(tested, **place.put(data))
    return Trial(run, lambda got: largest_difference(view(got), view(ready(truth, **data)())), **how)


# ---------------------------------------------------------------- CUDA


def nvrtc_compile_checks(cupy: Cupy | None) -> list[Check]:
    """Compile every file for an architecture that is not here; nothing if there is no compiler."""
    known = [number for number in _USUAL if cupy is not None and number in cupy.architectures]
    return compile_checks(QUICK_RANKS, known[0]) if known else []


def compile_checks(ranks: tuple[int, ...], architecture: int = 0) -> list[Check]:
    """Compile every file for CuPy's current device and load its kernels, or compile it for an architecture (80: sm_80)."""

    def make(name: str, dtype: str, size: int, *_: Any) -> Trial:
        return Trial(partial(_compile, name, dtype, size, architecture))

    sizes: dict[str | None, tuple[int, ...]] = {"RANK": ranks, "WIDTH": (_WIDTH,), None: (0,)}
    where, checks = f" for sm_{architecture}" if architecture else "", []
    for name, (macro, _) in KERNELS.items():
        pairs = [(dtype, size) for dtype in _EPS for size in sizes[macro]]
        parts = {f"{dtype}, {macro} {size}" if macro else dtype: partial(make, name, dtype, size) for dtype, size in pairs}
        checks.append(Check("compile", f"{name}{where}, {len(parts)} times", parts, 0))
    return checks


def _compile(name: str, dtype: str, size: int, architecture: int) -> None:
    """Raises what the compiler says: the first line of its log that tells what is wrong."""
    program = None
    try:
        if architecture:  # CuPy's own way would ask for a device first
            from cupy_backends.cuda.libs import nvrtc  # type: ignore[import-not-found]

            program = nvrtc.createProgram(source(name), name, (), ())
            nvrtc.compileProgram(program, (*options(name, dtype, size), f"-arch=sm_{architecture}"))
            nvrtc.getCUBIN(program)
        else:
            from ..backends.cuda import kernel

            for function in KERNELS[name][1]:
                kernel(name, function, dtype, size)
    except Exception as error:
        said = str(error) if program is None else nvrtc.getProgramLog(program)
        lines = (line.strip() for line in said.splitlines() if "error" in line.lower() and ":" in line)
        raise RuntimeError(next(lines, str(error.__cause__ or error))) from error
    finally:
        if program is not None:
            nvrtc.destroyProgram(program)


def cuda_checks(ranks: tuple[int, ...] = RANKS) -> list[Check]:
    """The CUDA kernels themselves, whatever the solver chooses to use."""

    def load() -> tuple[Any, Kernels]:
        from ..backends.cuda import elementwise

        return elementwise, cuda_kernels()

    loaded = attempt(load)[0]
    if loaded is None:
        return [Check("cuda", "load the kernels", lambda *_: Trial(load), 0)]
    return [*operator_checks("cuda", loaded[0]), *kernel_checks(loaded[1], ranks)]


# ---------------------------------------------------------------- the plain code


def plain_checks() -> list[Check]:
    """What there is to check without fused kernels."""
    svd = [Check("plain", f"truncated_svd, {dtype}", partial(_truncated_svd, dtype), 40, 600, 3000) for dtype in _EPS]
    uniform = Check("plain", "uniform_at", _uniform_at, 500, 1_000_000, 10_000_000)
    return [*operator_checks("plain", operators), *svd, uniform]


def operator_checks(group: str, operators: Any) -> list[Check]:
    """The paper's entrywise operators, of a module that has them."""
    rows = (("hard_threshold", _hard_threshold, (3000, 4_000_000, 20_000_000)), ("union_sum", _union_sum, (40, 1500, 3000)))
    return [Check(group, f"{n}, {d}", partial(make, operators, d), *sizes) for d in _EPS for n, make, sizes in rows]


def _hard_threshold(operators: Any, dtype: str, place: Place, size: int) -> Trial:
    def truth(M: Any, zeta: float) -> Any:
        return np.where(np.abs(M) >= M.dtype.type(zeta), M, 0)

    M = np.random.default_rng(1).uniform(-2, 2, size).astype(dtype)
    return _against(operators.hard_threshold, truth, {"M": M, "zeta": 0.8}, place, work=2.0 * M.nbytes, unit="B")


def _union_sum(operators: Any, dtype: str, place: Place, size: int) -> Trial:
    def truth(R_inter: Any, C_inter: Any, X: Any, seen_R: Any, seen_C: Any) -> Any:
        rows, cols = seen_R / 0.7, seen_C / 1.4  # means weighted by one over the step
        return np.where(seen_R | seen_C, (rows * R_inter + cols * C_inter) / np.maximum(rows + cols, 0.1), X)

    rng = np.random.default_rng(2)
    data = {name: rng.random((size, size), dtype=np.dtype(dtype).type) for name in ("R_inter", "C_inter", "X")}
    data |= {name: rng.random((size, size), dtype=np.float32) < 0.4 for name in ("seen_R", "seen_C")}
    tested, work = partial(operators.union_sum, step_rows=0.7, step_cols=1.4), 4.0 * data["X"].nbytes + 2.0 * size**2
    return _against(tested, truth, data, place, tolerance=8 * _EPS[dtype], work=work, unit="B")


def _truncated_svd(dtype: str, place: Place, size: int) -> Trial:
    """Against LAPACK's full SVD: singular values and the rank-4 part."""

    def truth(M: Any) -> Any:
        u, s, vt = np.linalg.svd(M.astype(np.float64), full_matrices=False)
        return u[:, :4], s[:4], vt[:4].T

    rng, shape, tol = np.random.default_rng(3), (size, size + 5), 100 * _EPS[dtype]
    left, right = (np.linalg.qr(rng.standard_normal((n, 4)))[0] for n in shape)
    M = ((left * [8, 5, 3, 2]) @ right.T + 1e-3 * rng.standard_normal(shape) / np.sqrt(size)).astype(dtype)
    tested = partial(operators.truncated_svd, rank=4, tol=tol)
    how = {"tolerance": 10 * tol, "work": float(M.size), "view": lambda got: (got[1], (got[0] * got[1]) @ got[2].T)}
    return _against(tested, truth, {"M": M}, place, **how)


def _uniform_at(place: Place, size: int) -> Trial:
    """Bit by bit against integers of Python."""

    def truth(i: Any, j: Any) -> Any:
        z, mix = (i.astype(object) << 32) + j ^ stream_key(7, 11), 0xBF58476D1CE4E5B9  # splitmix64
        for shift, factor in ((30, mix), (27, 0x94D049BB133111EB), (31, 1), (30, mix), (31, 1)):
            z = (z ^ z >> shift) * factor % (1 << 64)
        return (z >> 11).astype(float) * 2.0**-53

    i, j = np.random.default_rng(4).integers(0, 1 << 31, (2, size))
    return _against(partial(uniform_at, seed=7, stream=11), truth, {"i": i, "j": j}, place, work=float(size))


# ---------------------------------------------------------------- kernels, against the plain code on NumPy


def kernel_checks(kernels: Kernels, ranks: tuple[int, ...] = RANKS) -> list[Check]:
    """All that `kernels` can do; each rank is compiled by itself, which takes its time."""
    rows: list[tuple[str, dict[str, Any], tuple[int, ...]]] = []  # name, parts, sizes
    for dtype in _EPS:
        of_units, of_grid = partial(_units, kernels, dtype), partial(_grid, kernels, dtype)
        for rank in ranks:
            parts = {begin: partial(of_units, "regress", rank, begin) for begin in (_BEGINS_1 if rank == 1 else _BEGINS)}
            sizes = (40, 50_000 // rank + 500, 400_000 // rank + 4000)
            rows.append((f"regress, rank {rank}, {dtype}", parts, sizes))
        ordered = sorted(ranks, key=_TIMED.__ne__)  # the first is timed
        parts = {f"rank {rank}": partial(of_units, "advance", rank, "zero") for rank in ordered}
        rows.append((f"advance, {dtype}", parts, (40, 10_000, 100_000)))
        for name, rate, calls, sizes in _GRIDS:
            rows.append((f"grid, {name}, {dtype}", {call: partial(of_grid, rate, call) for call in calls}, sizes))
        for name, called in SUMS.items():
            parts = {call: partial(_sums, kernels, dtype, call) for call in called}
            rows.append((f"{name}, {dtype}", parts, (40, 20_000, 100_000)))
    return [*(Check(kernels.name, name, parts, *sizes) for name, parts, sizes in rows), *step_checks(kernels)]


def _units(kernels: Kernels, dtype: str, name: str, rank: int, begin: str, place: Place, size: int) -> Trial:
    """A kernel on rows of a matrix with outliers: the first is empty, most are rich enough to have entries held out."""
    rng, length, share = np.random.default_rng(rank), 16 * rank + 24, min(0.2, 1 / rank)
    problem = synthetic((size, length), rank, share, 10, 1e-3, n_rows=1, n_cols=length, rate=0.6, seed=6, dtype=dtype)
    block, mean, floor = problem.samples.c_block, problem.mean_abs, 0.02 * problem.mean_abs
    block = replace(block, indptr=np.insert(block.indptr, 0, 0))  # the empty one
    ids = EntryIds(3 * np.arange(block.n_units) + 1, 2 * np.arange(length), rank % 2 == 1, 9, 0.1)
    a, basis, usable = np.insert(problem.W, 0, 0, axis=0), problem.V, (rng.random(length) > 0.1).astype(float)
    white = np.linalg.inv(np.linalg.cholesky((basis * usable[:, None]).T @ basis))
    path = np.linalg.qr(basis)[0] + 3e-3 * rng.standard_normal((_STEPS + 1, length, rank)).cumsum(axis=0)
    turns, zetas = path[:-1].transpose(0, 2, 1) @ path[1:], 12 * mean * 0.6 ** np.arange(_STEPS)
    a, basis, usable, white, path, turns, zetas = (x.astype(dtype) for x in (a, basis, usable, white, path, turns, zetas))
    start, kind = a * a.dtype.type(1.001) if begin.startswith("given") else None, begin.partition(",")[0]
    fit_pass = FitPass(Schedule(12 * mean, floor, 0.7), 0.5 * floor, kind, _BEGINS_1[begin], start)
    fit_pass = replace(fit_pass, max_steps=0) if "no steps" in begin else fit_pass
    others, tolerance, rounds = {
        "regress": ((basis, usable, white, ids, fit_pass), _FITTED, 1),
        "advance": ((usable, ids, Iterates(path, turns, zetas, 1.2), np.zeros_like(a)), _SUMMED, _STEPS),
    }[name]

    def columns(got: Any) -> list[Any]:
        *coefficients, table = got if isinstance(got, tuple) else (got,)
        if name == "regress":  # what an inverse says of fewer inliers than unknowns, or hardly more, is rounding
            table[:, [Column.ILL, Column.STANDARD_ERROR]] *= table[:, [Column.N_INLIERS]] >= 3 * rank
        return [*coefficients, *table.T]

    def ready(kernel: Any, block: Any, others: tuple[Any, ...]) -> Any:
        return partial(kernel, block, np.arange(block.n_units), *others)

    data, how = {"block": block, "others": others}, {"tolerance": tolerance[dtype], "work": float(rounds * block.n_obs)}
    return _against(getattr(kernels, name), getattr(XP, name), data, place, ready, view=columns, **how)


def _sums(kernels: Kernels, dtype: str, name: str, place: Place, size: int) -> Trial:
    """A kernel that sums in double precision over rows of a matrix with outliers; weights of 0 leave entries out."""
    rng, k, length = np.random.default_rng(10), 4, 60
    problem = synthetic((size, length), k, 0.1, 10, 1e-2, n_rows=1, n_cols=length, rate=0.6, seed=10, dtype=dtype)
    block, left, right = problem.samples.c_block, *(np.asarray(x, np.float64) for x in (problem.W, problem.V))
    weight, X, A = rng.choice([0.0, 1.0, 2.0], block.n_obs), rng.standard_normal((length, k)), rng.random((length, k, k))
    scale, spread = 0.5 + rng.random(size), 0.1 * right.std() ** 2
    q, p = np.tril_indices(k)
    packed = (np.eye(k) + A @ A.transpose(0, 2, 1))[:, q, p]
    at = positions_of(right, spread * packed, 0.5 + rng.random(length), 0.0, True)
    square = problem.mean_abs**2
    noise = Noise(0.01 * square, 6.0, 0.1, 50 * problem.mean_abs, 0.7, 0.2 / square)
    model = Model(at, noise, 0.5 + rng.random(k))
    start = (np.zeros((size, k)), np.zeros((size, packed.shape[1])), scale)
    matrices = laid_out(block, weight, np.arange(size), right)
    others: tuple[Any, ...] = {
        "matrix_steps": (*matrices, model, start, (2.0, 1.0), False),
        "posterior": (block, weight, model, start, (2.0, 1.0), True),
        "couple": (block, left, right, X),
        "grams": (block, right),
        "inverses": (packed, 1e-3),
        "make_side": (block, weight, left, right, X, problem.mean_abs),
    }[name]

    def ready(kernel: Any, others: tuple[Any, ...]) -> Any:
        if name == "posterior":  # numbers of the units stay on the host
            return partial(kernel, *others[:2], np.arange(size), *others[2:])
        if name == "matrix_steps":
            return partial(posterior_of_matrix, *(*others, kernel))
        return partial(_step, kernel(*others[:2], None), *others[2:]) if name == "make_side" else partial(kernel, *others)

    fitted = name in SUMS["noise model"]
    how = {"tolerance": (_FITTED if fitted else _SUMMED)["float64"], "work": float(block.n_obs)}
    return _against(getattr(kernels, name), getattr(XP, name), {"others": others}, place, ready, **how)


def _step(side: Any, left: Any, right: Any, X: Any, scale: float) -> Any:
    """The sums of a Gauss-Newton step."""
    weighted, gram, gradient = side.weigh(left, right, scale)
    return [gram, gradient, side.couple(weighted, left, X), side.clipped(X, scale)]


def _grid(kernels: Kernels, dtype: str, rate: float, name: str, place: Place, size: int) -> Trial:
    """Methods of the core's grid on an intersection with outliers, its factors, and others near them."""
    rng, (m, n) = np.random.default_rng(8), (size, size + 7)
    problem = synthetic((m, n), 4, 0.1, 10, 0.3, n_rows=1, n_cols=n, rate=rate, seed=8, dtype=dtype)
    block, mean = problem.samples.c_block, problem.mean_abs
    Q, T = np.linalg.qr(np.hstack([problem.V, rng.standard_normal((n, _WIDTH - 4))]))
    left, P, X = problem.W @ T[:, :4].T, rng.standard_normal((m, _WIDTH)), rng.standard_normal((n, _WIDTH))
    core = {"left": left, "Q": Q, "P": P, "X": X, "next_left": left + 1e-2 * P, "next_Q": Q + 1e-3 * X}
    core |= {"zeta": np.asarray(2 * mean), "norms": np.linalg.norm(left, axis=0), "values": mean * rng.random(16 * m)}
    core["weight"] = rng.uniform(0.5, 1.5, block.n_obs) * (rng.random(block.n_obs) > 0.1)  # 0: held out
    data = {name: x.astype(dtype) for name, x in core.items()} | {"block": block, "places": rng.integers(0, m, (2, 16 * m))}

    def ready(make_grid: Any, **data: Any) -> Any:
        return partial(_call, make_grid(data["block"], data["weight"], _PANEL), name, SimpleNamespace(**data))

    how = {"tolerance": _SUMMED[dtype] * (10 if name in ("change", "loop") else 1), "work": 2.0 * block.n_obs}
    return _against(kernels.make_grid, XP.make_grid, data, place, ready, **how)


def _call(grid: Any, name: str, d: SimpleNamespace) -> Any:
    """What a method of a grid returns, and the products with the arrays in its own layout."""
    if name == "loop":  # without a threshold, so that nothing hangs on rounding; the second group is a graph on a GPU
        recipe = Recipe(4, 1e6, 1.0, 0.0, (*d.places, d.values))
        loop = grid.loop(recipe, Begin(0, (0 * d.left, 0 * d.norms, d.Q)))
        groups = [(group.table()[:, :4], group.whole) for group in (loop.advance(2) for _ in range(3))]
        P, s, Q = groups[-1][1]
        return [np.concatenate([table for table, _ in groups]), (P * s) @ Q.T]
    if name == "change":
        return grid.change(d.next_left, d.next_Q, d.left, d.Q, d.norms)
    if name == "floor_threshold":
        pairs = ((0.1, 2.5), (0.1, 0.0), (1e6, 2.5))
        return [grid.floor_threshold(d.left, d.Q, (*d.places, d.values), *pair) for pair in pairs]
    if name == "inlying":
        G, *got = grid.inlying(d.left, d.Q, float(d.zeta))
    else:  # two thresholds in a row, the second of which knows the outliers of the first
        _, S, *first = grid.threshold(d.left, d.Q, 2 * d.zeta, None)
        got = [x + 0 for x in first]  # a copy: buffers may be used again
        G, _, *second = grid.threshold(d.left, d.Q, d.zeta, S)
        got += second
    return [*got, grid.mul(G, d.X), grid.rmul(G, d.P), grid.rmul(G, d.P, d.X)]


# ---------------------------------------------------------------- whole solves


def solve_checks(place: Place) -> list[Check]:
    """Against the truth of a synthetic problem: compiled, plain, and streamed to a device."""
    ways: dict[str, dict[str, Any]] = {"auto": {}, "plain": {"kernels": "xp"}}
    ways |= {"from the host": {"device": place.name}} if place.on_gpu else {}
    checks = []
    for method, tolerance, *sizes in (("fast", 1e-8, 120, 2000, 4000), ("paper", 1e-4, 120, 1000, 2000)):
        parts = {name: partial(_solve, method, tolerance, way) for name, way in ways.items()}
        checks.append(Check("solve", f"rcurc, method {method}", parts, *sizes))
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

    return Trial(run, lambda result: float(problem.relative_error(result.cur)), tolerance, float(samples.n_obs))
