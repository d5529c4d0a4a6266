"""Checks of the kernels against the plain code on NumPy.

The data are such that the answer does not hang on rounding: outliers are far from the noise, and thresholds lie in gaps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..backends import MAX_STEPS, XP, Block, EntryIds, FitPass, Grid, Iterates, Kernels, Schedule, to_numpy
from .selftest import Check, Place, Trial, against, largest_difference

RANKS, QUICK_RANKS = (1, 5, 16, 32), (5,)
DTYPES = ("float32", "float64")
WIDTH = 7  # of the core's factors, so that nothing is compiled twice
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


def kernel_checks(kernels: Kernels, ranks: tuple[int, ...] = RANKS) -> list[Check]:
    """All that `kernels` can do; each rank is compiled by itself, which takes its time."""
    checks = []
    for dtype in DTYPES:
        for rank in ranks:
            begins = _BEGINS + (_OF_TWO[dtype] if rank == 1 else ())
            parts = {begin: partial(_of_units, kernels, _regress, dtype, rank, begin) for begin in begins}
            timed = (50_000 // rank + 500, 400_000 // rank + 4000)
            checks.append(Check(kernels.name, f"regress, rank {rank}, {dtype}", parts, 40 if rank <= 5 else 16, *timed))
        for name, prepare in {"advance": _advance, "normal equations": _normal}.items():
            ordered = sorted(ranks, key=_TIMED.__ne__)  # the first is timed
            parts = {f"rank {rank}": partial(_of_units, kernels, prepare, dtype, rank, "") for rank in ordered}
            checks.append(Check(kernels.name, f"{name}, {dtype}", parts, 40, 10_000, 100_000))
        for name, rate, sizes, calls in _GRIDS:
            parts = {call.__name__.strip("_"): partial(_grid, kernels, dtype, rate, call) for call in calls}
            checks.append(Check(kernels.name, f"grid, {name}, {dtype}", parts, *sizes))
    return checks


# ---------------------------------------------------------------- regressions, unit by unit


def _units(dtype: str, rank: int, count: int, two: bool) -> SimpleNamespace:
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
    white = (vectors / np.sqrt(eigenvalues)).T
    floats = {"basis": basis, "usable": usable, "white": white, "truth": np.tile(truth, (times, 1))}
    ids = EntryIds(np.arange(times * drawn) * 3 + 1, np.arange(length) * 2, rank % 2 == 1, 9, 0.1)
    block = _block(seen, Y, dtype, times)
    return SimpleNamespace(block=block, ids=ids, **{name: x.astype(dtype) for name, x in floats.items()})


def _block(seen: np.ndarray, Y: np.ndarray, dtype: str, times: int = 1) -> Block:
    """The entries of `Y` that were seen, and the same ones again."""
    counts, index, value = (np.tile(x, times) for x in (seen.sum(axis=1), np.nonzero(seen)[1], Y[seen]))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return Block(indptr.astype(np.int64), index.astype(np.int32), value.astype(dtype), seen.shape[1])


def _of_units(
    kernels: Kernels, prepare: Callable[..., Any], dtype: str, rank: int, begin: str, place: Place, size: int
) -> Trial:
    """One of the functions below, which give the name of a kernel, what it takes after the units, tolerance and rounds."""
    u = _units(dtype, rank, size, two=begin.endswith("of two"))
    name, others, tolerance, rounds = prepare(u, begin)
    units = np.arange(u.block.n_units)

    def columns(*got: Any) -> list[Any]:
        *coefficients, table = map(to_numpy, got)
        if name == "regress":  # what an inverse says of fewer inliers than unknowns, or hardly more, is rounding
            table[:, _OF_INVERSE] *= table[:, 1:2] >= 3 * rank
        return [*coefficients, *table.T]

    def run(kernels: Kernels, block: Block, others: tuple[Any, ...]) -> Any:
        return getattr(kernels, name)(block, units, *others)

    data = {"block": u.block, "others": others}
    work = float(rounds * u.block.n_obs)
    return against(partial(run, XP, **data), place, partial(run, kernels), data, tolerance[dtype], work, view=columns)


def _regress(u: SimpleNamespace, begin: str) -> tuple[Any, ...]:
    near = np.asarray(0.001 if begin == "measure" else 0.05, u.truth.dtype) * np.roll(u.truth, 1, axis=0)
    kind = "given" if begin == "measure" else begin.partition(" ")[0]
    number = {"part": 2, "subsets": 60, "subsets of two": 1}.get(begin, 0)
    start, steps = u.truth + near if kind == "given" else None, 0 if begin == "measure" else MAX_STEPS
    fit_pass = FitPass(Schedule(_ZETA0, _FLOOR, 0.7), 0.5 * _FLOOR, kind, number, start, steps)
    return "regress", (u.basis, u.usable, u.white, u.ids, fit_pass), _TOLERANCE, 1


def _advance(u: SimpleNamespace, begin: str) -> tuple[Any, ...]:
    rng, dtype = np.random.default_rng(7), u.basis.dtype
    bases = [u.basis / np.sqrt(u.block.length)]
    for _ in range(_STEPS):  # towards the next basis, a little
        bases.append(np.linalg.qr(bases[-1] + 0.01 * rng.standard_normal(bases[-1].shape))[0])
        bases[-1] *= np.sign(np.sum(bases[-1] * bases[-2], axis=0))
    path = np.stack(bases).astype(dtype)
    turns = (path[:-1].transpose(0, 2, 1) @ path[1:]).astype(dtype)
    iterates = Iterates(path, turns, (_ZETA0 * 0.6 ** np.arange(_STEPS)).astype(dtype), 1.2)
    return "advance", (u.usable, u.ids, iterates, np.zeros_like(u.truth)), _SUMS, _STEPS


def _normal(u: SimpleNamespace, begin: str) -> tuple[Any, ...]:
    """The right-hand side is what noise leaves, a thousandth of its terms: hence the tolerance."""
    return "normal", (u.basis, u.usable, u.ids, u.truth, 1.0), _TOLERANCE, 1


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
    m, n, k = size, size + 7, WIDTH
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
