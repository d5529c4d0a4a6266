"""The checks of the kernels, fused or not, against the plain code on NumPy.

The data are such that the answer does not hang on rounding: outliers are far from the noise, and thresholds lie in gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..backends.arrays import to_numpy
from ..backends.blocks import Block
from ..backends.kernels import XP, Kernels
from ..backends.plain.grid import Grid
from ..backends.plain.passes import Column, EntryIds, FitPass, Iterates
from ..backends.plain.regression import Schedule
from .selftest import Check, Place, Trial, largest_difference

RANKS = (1, 5, 16, 32)
QUICK_RANKS = (5,)
DTYPES = ("float32", "float64")
BEGINS = ("zero", "given", "part", "subsets", "measure")
_OF_TWO = {"float32": ("subsets of two",), "float64": ("part of two", "subsets of two")}  # see `_units`
_NOISE, _FLOOR, _ZETA0 = 1e-3, 2e-2, 12.0
_TOLERANCE = {"float32": 3e-3, "float64": 1e-10}  # of regressions; float32 leaves four digits of the spread
_SUMS = {"float32": 1e-4, "float64": 1e-12}  # of sums over products
_OF_INVERSE = (Column.ILL, Column.STANDARD_ERROR)
_TIMED = 5  # rank at which the recursion is timed
_DRAWN = 2000  # different units
_PANEL = 1 << 14  # bytes: several panels, and the sparse layout where little is seen


def kernel_checks(kernels: Kernels, ranks: tuple[int, ...] = RANKS) -> list[Check]:
    """All that `kernels` can do; each rank is compiled by itself, which takes its time."""
    checks = []
    for dtype in DTYPES:
        for rank in ranks:
            begins = BEGINS + (_OF_TWO[dtype] if rank == 1 else ())
            parts = {begin: partial(_regress, kernels, dtype, rank, begin) for begin in begins}
            sizes = (50_000 // rank + 500, 400_000 // rank + 4000)
            checks.append(Check(kernels.name, f"regress, rank {rank}, {dtype}", parts, 40 if rank <= 5 else 16, *sizes))
        parts = {f"rank {rank}": partial(_advance, kernels, dtype, rank) for rank in sorted(ranks, key=_TIMED.__ne__)}
        checks.append(Check(kernels.name, f"advance, {dtype}", parts, 40, 10_000, 100_000))
        parts = {f"rank {rank}": partial(_normal, kernels, dtype, rank) for rank in sorted(ranks, key=_TIMED.__ne__)}
        checks.append(Check(kernels.name, f"normal equations, {dtype}", parts, 40, 10_000, 100_000))
        for rate, layout in ((0.7, "dense"), (0.08, "sparse")):
            methods = {"threshold": _threshold, "inlying": _inlying}
            parts = {name: partial(method, kernels, dtype, rate) for name, method in methods.items()}
            checks.append(Check(kernels.name, f"grid, {layout}, {dtype}", parts, 60, 1500, 3000))
        scalars = {"floor_threshold": _floor_threshold, "change": _change}
        parts = {name: partial(method, kernels, dtype) for name, method in scalars.items()}
        checks.append(Check(kernels.name, f"grid, scalars, {dtype}", parts, 60))
    return checks


# ---------------------------------------------------------------- units


@dataclass(frozen=True, eq=False)
class _Units:
    """Units with outliers, on the host: entries of ``basis @ truth[u]``."""

    block: Block
    basis: np.ndarray
    usable: np.ndarray
    white: np.ndarray
    ids: EntryIds
    truth: np.ndarray

    def on(self, place: Place) -> tuple[Block, EntryIds]:
        """The block and its names there."""
        block = _block_on(self.block, place)
        return block, replace(self.ids, unit=place.array(self.ids.unit), index=place.array(self.ids.index))


def _block_on(block: Block, place: Place) -> Block:
    return Block(place.array(block.indptr), place.array(block.index), place.array(block.value), block.length)


def _units(dtype: str, rank: int, count: int, two: bool = False) -> _Units:
    """At least `count` units, the first of them empty, most of them rich enough to have entries held out.

    With `two`, half of the entries have another truth: which of the two is found shows where the regression began.
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
    times = -(-count // drawn)  # more units are the same ones, under other names
    counts, index, value = (np.tile(x, times) for x in (seen.sum(axis=1), np.nonzero(seen)[1].astype(np.int32), Y[seen]))
    eigenvalues, vectors = np.linalg.eigh((basis * usable[:, None]).T @ basis)
    ids = EntryIds(np.arange(len(counts)) * 3 + 1, np.arange(length) * 2, rank % 2 == 1, 9, 0.1)
    return _Units(
        Block(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), index, value.astype(dtype), length),
        basis.astype(dtype),
        usable.astype(dtype),
        (vectors / np.sqrt(eigenvalues)).T.astype(dtype),
        ids,
        np.tile(truth, (times, 1)).astype(dtype),
    )


def _regress(kernels: Kernels, dtype: str, rank: int, begin: str, place: Place, size: int) -> Trial:
    units = _units(dtype, rank, size, two=begin.endswith("of two"))
    chosen = np.arange(units.block.n_units)
    start = units.truth + np.asarray(0.001 if begin == "measure" else 0.05, dtype) * np.roll(units.truth, 1, axis=0)
    fit_pass = FitPass(Schedule(_ZETA0, _FLOOR, 0.7), 0.5 * _FLOOR, begin.partition(" ")[0])
    if begin in ("given", "measure"):
        fit_pass = replace(fit_pass, begin="given", start=start, max_steps=fit_pass.max_steps if begin == "given" else 0)
    if begin in ("part", "subsets"):
        fit_pass = replace(fit_pass, number=2 if begin == "part" else 60)
    if begin == "subsets of two":
        fit_pass = replace(fit_pass, number=1)
    block, ids = units.on(place)
    arrays = [place.array(x) for x in (units.basis, units.usable, units.white)]
    look_there = fit_pass if fit_pass.start is None else replace(fit_pass, start=place.array(fit_pass.start))

    def difference(got: tuple[Any, Any]) -> float:
        a, table = XP.regress(units.block, chosen, units.basis, units.usable, units.white, units.ids, fit_pass)
        # What an inverse says of fewer inliers than unknowns, or hardly more, is rounding.
        sure = (table[:, [Column.N_INLIERS]] >= 3 * rank) | ~np.isin(list(Column), _OF_INVERSE)
        return largest_difference((got[0], *(to_numpy(got[1]) * sure).T), (a, *(table * sure).T))

    return Trial(
        lambda: kernels.regress(block, chosen, *arrays, ids, look_there),
        difference,
        _TOLERANCE[dtype],
        float(units.block.n_obs),
    )


def _advance(kernels: Kernels, dtype: str, rank: int, place: Place, size: int) -> Trial:
    units = _units(dtype, rank, size)
    chosen = np.arange(units.block.n_units)
    rng = np.random.default_rng(7)
    K, scale = 6, np.sqrt(units.block.length)
    bases = [units.basis / scale]
    for _ in range(K):  # towards the next basis, a little
        bases.append(np.linalg.qr(bases[-1] + 0.01 * rng.standard_normal(units.basis.shape))[0])
        bases[-1] *= np.sign(np.sum(bases[-1] * bases[-2], axis=0))
    path = np.stack(bases).astype(dtype)
    turns = (path[:-1].transpose(0, 2, 1) @ path[1:]).astype(dtype)
    zetas = (_ZETA0 * 0.6 ** np.arange(K)).astype(dtype)
    block, ids = units.on(place)
    usable, *arrays = (place.array(x) for x in (units.usable, path, turns, zetas))
    there = Iterates(arrays[0], arrays[1], arrays[2], 1.2)
    a = np.zeros((len(chosen), rank), dtype)
    a_there = place.array(a)

    def difference(got: tuple[Any, Any]) -> float:
        want, sums = XP.advance(units.block, chosen, units.usable, units.ids, Iterates(path, turns, zetas, 1.2), a)
        return largest_difference((got[0], *got[1].T), (want, *sums.T))

    return Trial(
        lambda: kernels.advance(block, chosen, usable, ids, there, a_there),
        difference,
        _SUMS[dtype],
        float(K * units.block.n_obs),
    )


def _normal(kernels: Kernels, dtype: str, rank: int, place: Place, size: int) -> Trial:
    units = _units(dtype, rank, size)
    chosen = np.arange(units.block.n_units)
    block, ids = units.on(place)
    arrays = [place.array(x) for x in (units.basis, units.usable, units.truth)]

    def difference(got: Any) -> float:
        want = XP.normal(units.block, chosen, units.basis, units.usable, units.ids, units.truth, 1.0)
        return largest_difference(tuple(to_numpy(got).T), tuple(want.T))

    return Trial(
        lambda: kernels.normal(block, chosen, arrays[0], arrays[1], ids, arrays[2], 1.0),
        difference,
        _TOLERANCE[dtype],  # the right-hand side is what noise leaves, a thousandth of its terms
        float(units.block.n_obs),
    )


# ---------------------------------------------------------------- the core's grid


@dataclass(frozen=True, eq=False)
class _Core:
    """An intersection with outliers, factors near its truth, and the residual's gap; on the host."""

    block: Block
    weight: np.ndarray
    left: np.ndarray
    Q: np.ndarray
    X: np.ndarray
    P: np.ndarray
    zeta: float

    def grid(self, kernels: Kernels, place: Place | None = None) -> Grid:
        """The grid of `kernels`, there or on the host."""
        if place is None:
            return kernels.make_grid(self.block, self.weight, _PANEL)
        return kernels.make_grid(_block_on(self.block, place), place.array(self.weight), None if place.on_gpu else _PANEL)


def _core(dtype: str, rate: float, size: int) -> _Core:
    rng = np.random.default_rng([8, int(100 * rate)])
    m, n, k = size, size + 7, 7
    W, V = (np.linalg.qr(rng.standard_normal((length, k)))[0] for length in (m, n))
    s = np.asarray([4.0, 3, 2, 1, 0, 0, 0]) * np.sqrt(size)
    seen = rng.random((m, n)) < rate
    seen[:, 0] = seen[0, :] = True
    seen[1, 1:] = False  # almost empty, which is as much as a row may be
    Y = (W * s) @ V.T + 0.3 * rng.standard_normal((m, n)) + 5 * (rng.random((m, n)) < 0.1)
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]).astype(np.int64)
    weight = np.where(rng.random(seen.sum()) < 0.1, 0.0, rng.uniform(0.5, 1.5, seen.sum()))  # 0: held out
    left, Q = (W * s).astype(dtype), V.astype(dtype)
    E = np.sort(np.abs((Y - left.astype(float) @ Q.T.astype(float))[seen][weight > 0]))
    window = E[int(0.8 * len(E)) : int(0.9 * len(E))]
    gap = int(np.argmax(np.diff(window)))
    return _Core(
        Block(indptr, np.nonzero(seen)[1].astype(np.int32), Y[seen].astype(dtype), n),
        weight.astype(dtype),
        left,
        Q,
        rng.standard_normal((n, k)).astype(dtype),
        rng.standard_normal((m, k)).astype(dtype),
        float(window[gap : gap + 2].mean()),
    )


def _threshold(kernels: Kernels, dtype: str, rate: float, place: Place, size: int) -> Trial:
    """Two thresholds in a row, the second of which knows the outliers of the first, and the products with what is left."""
    core = _core(dtype, rate, size)
    grid = core.grid(kernels, place)
    there = _factors(core, place)

    def difference(got: tuple[Any, ...]) -> float:
        return largest_difference(got, _steps(core.grid(XP), _factors(core, None)))

    return Trial(lambda: _steps(grid, there), difference, _SUMS[dtype], 2.0 * core.block.n_obs)


def _factors(core: _Core, place: Place | None) -> list[Any]:
    arrays = (core.left, core.Q, core.X, core.P, np.asarray(core.zeta, core.left.dtype))
    return [place.array(x) if place is not None else x for x in arrays]


def _steps(grid: Grid, factors: list[Any]) -> tuple[Any, ...]:
    left, Q, X, P, zeta = factors
    _, S, first, square, count = grid.threshold(left, Q, 2 * zeta, None)
    kept = [x + 0 for x in (first, square, count)]  # a copy: buffers may be used again
    G, _, *second = grid.threshold(left, Q, zeta, S)
    return (*kept, *second, grid.mul(G, X), grid.rmul(G, P), grid.rmul(G, P, X))


def _inlying(kernels: Kernels, dtype: str, rate: float, place: Place, size: int) -> Trial:
    core = _core(dtype, rate, size)
    grid = core.grid(kernels, place)

    def run(grid: Grid, factors: list[Any]) -> tuple[Any, ...]:
        left, Q, X, P, _ = factors
        kept, rows, cols = grid.inlying(left, Q, core.zeta)
        return rows, cols, grid.mul(kept, X), grid.rmul(kept, P)

    def difference(got: tuple[Any, ...]) -> float:
        return largest_difference(got, run(core.grid(XP), _factors(core, None)))

    there = _factors(core, place)
    return Trial(lambda: run(grid, there), difference, _SUMS[dtype], float(core.block.n_obs))


def _floor_threshold(kernels: Kernels, dtype: str, place: Place, size: int) -> Trial:
    core = _core(dtype, 0.7, size)
    grid = core.grid(kernels, place)
    rng = np.random.default_rng(9)
    count = min(20 * size, 16384)
    i, j = rng.integers(0, size, count), rng.integers(0, size, count)
    sample = (i, j, rng.standard_normal(count).astype(dtype))
    there = tuple(place.array(x) for x in sample)
    left, Q, *_ = _factors(core, place)

    def run(grid: Grid, left: Any, Q: Any, sample: Any) -> tuple[Any, ...]:
        return tuple(grid.floor_threshold(left, Q, sample, *pair) for pair in ((0.1, 2.5), (0.1, 0.0), (1e6, 2.5)))

    def difference(got: tuple[Any, ...]) -> float:
        return largest_difference(got, run(core.grid(XP), core.left, core.Q, sample))

    return Trial(lambda: run(grid, left, Q, there), difference, _SUMS[dtype], 2.0 * count)


def _change(kernels: Kernels, dtype: str, place: Place, size: int) -> Trial:
    core = _core(dtype, 0.7, size)
    grid = core.grid(kernels, place)
    rng = np.random.default_rng(10)
    Q = np.linalg.qr(core.Q + 1e-3 * rng.standard_normal(core.Q.shape))[0].astype(dtype)
    left = (core.left + 1e-2 * rng.standard_normal(core.left.shape)).astype(dtype)
    norms = np.linalg.norm(core.left.astype(float), axis=0).astype(dtype)
    arrays = (left, Q * np.sign(np.sum(Q * core.Q, axis=0)).astype(dtype), core.left, core.Q, norms)
    there = [place.array(x) for x in arrays]

    def difference(got: Any) -> float:
        return largest_difference(got, core.grid(XP).change(*arrays))

    return Trial(lambda: grid.change(*there), difference, 10 * _SUMS[dtype], float(left.size + Q.size))
