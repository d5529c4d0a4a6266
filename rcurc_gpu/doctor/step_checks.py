"""Checks of what a solve does between regressions: blocks, the layout of the core, votes, evidence, ties, verdicts.

Each step is written once: it runs on the device with its kernels, and on NumPy with the plain code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..backends import XP, Kernels, Limits, TieProblem, array_namespace, asarray_on, join_units, to_numpy
from ..samples import CrossSamples
from ..testing import synthetic
from .selftest import Check, Place, Trial, largest_difference

_RANK = 4
_SIZES = (60, 4_000, 40_000)
_TOLERANCE = {"float32": 1e-3, "float64": 1e-10}  # medians of residuals are small differences of large numbers
_LIMITS = Limits(_RANK, 0.8, 0.15, 0.5, 10.0, 70.0, 1e300, 0.05, 0.03, True, True, 5)
_FIT, _ALONE = 1 | 4, 8 | 16  # bits of units that are fitted again, and that may rest on one entry (`verdicts`)


def step_checks(kernels: Kernels) -> list[Check]:
    """A check of each step, for both dtypes."""
    return [
        Check(kernels.name, f"{name}, {dtype}", partial(_trial, kernels, step, dtype), *_SIZES)
        for dtype in _TOLERANCE
        for name, step in STEPS.items()
    ]


def _trial(kernels: Kernels, step: Callable[..., list[Any]], dtype: str, place: Place, size: int) -> Trial:
    data = _data(dtype, size)
    there = SimpleNamespace(**place.put(data))

    def difference(got: Any) -> float:
        return largest_difference(got, step(XP, SimpleNamespace(**data)))

    return Trial(lambda: step(kernels, there), difference, _TOLERANCE[dtype], float(data["block"].n_obs))


def _data(dtype: str, size: int) -> dict[str, Any]:
    """A cross of a matrix with outliers, rows of it, its factors, and tables of a fit pass; lists stay on the host."""
    rng, length = np.random.default_rng(12), 50
    seen: dict[str, Any] = {"n_rows": min(size, 70), "n_cols": length - 10, "rate": 0.6, "seed": 12, "dtype": dtype}
    problem = synthetic((size, length), _RANK, 0.1, 10, 1e-3, **seen)
    cross = problem.samples
    block = cross.c_block.take_units(cross.rows)
    n_obs = rng.integers(2, 60, size)
    inliers = np.minimum(rng.binomial(n_obs, 0.8), n_obs)
    spread = rng.choice([0.0, 0.1, 0.2, 3.0], size)
    fits = (
        n_obs,
        inliers,
        spread,
        rng.random(size) < 0.1,
        3 * spread,
        inliers,
        rng.integers(3, 6, size),
        rng.integers(0, 3, size),
    )
    return {
        "shape": list(cross.shape),
        "rows": cross.rows.tolist(),
        "cols": cross.cols.tolist(),
        "r_block": cross.r_block,
        "c_block": cross.c_block,
        "block": block,
        "left": problem.W[cross.rows].astype(dtype),
        "right": problem.V[cross.cols].astype(dtype),
        "flags": rng.random(block.n_obs) < 0.4,
        "units": rng.permutation(block.n_units)[: block.n_units // 2].tolist(),
        "names": (3 * np.arange(block.n_units) + 1, 2 * np.arange(block.length)),
        "seen_by": rng.integers(1, 4, block.n_obs).astype(np.int8),
        "usable": tuple((rng.random(n) < 0.9).astype(dtype) for n in (block.n_units, block.length)),
        "floor": 0.02 * problem.mean_abs,
        "normal": rng.standard_normal((block.length, _RANK)),
        "gram": rng.standard_normal((block.length, _RANK, _RANK)),
        "fits": np.stack(fits, axis=1).astype(dtype),
        "indptr": np.concatenate([[0], np.cumsum(np.arange(size) % 7)]),
    }


def _arrays(block: Any) -> list[Any]:
    return [block.indptr, block.index, block.value]


def _blocks(kernels: Kernels, d: SimpleNamespace) -> list[Any]:
    """Blocks taken apart, joined and turned; rows of two matrices as one."""
    block, units = d.block, np.asarray(d.units)
    joined, code = kernels.join(block.where(d.flags), block.where(~d.flags | (block.value > 0)))
    parts = [block.take_units(units), block.at_positions(np.arange(block.length) % 3 > 0, units), block.transpose(), joined]
    chosen = np.arange(0, len(d.left), 3)
    rows = join_units(d.left[: len(chosen), :], d.left[len(chosen) :, :], chosen, len(d.left), d.right[0, :])
    return [x for part in parts for x in _arrays(part)] + [code, *block.triplets(d.flags), rows]


def _cross(kernels: Kernels, d: SimpleNamespace) -> list[Any]:
    """The intersection of a cross, and which of its rows and columns are copies of each other."""
    cross = CrossSamples(tuple(d.shape), np.asarray(d.rows), np.asarray(d.cols), d.r_block, d.c_block)
    inside = cross.intersection
    return [*_arrays(inside.block), inside.seen_by, *inside.first_copies(), np.asarray(cross.largest)]


def _layout(kernels: Kernels, d: SimpleNamespace) -> list[Any]:
    """The intersection laid out for the core, and its inliers."""
    laid = kernels.lay_out(d.block, d.seen_by, d.names, (9, 0.1), lambda n: (1.5, 2.0, 3.5), lambda n: None)
    told = laid.grid.tally(d.left, d.right, d.floor)
    return [laid.weight, np.asarray([laid.total, laid.n_fit]), *laid.held, *laid.sample, *told]


def _votes(kernels: Kernels, d: SimpleNamespace) -> list[Any]:
    """Entries that are held out, that agree, and that clearly do not."""
    units = np.asarray(sorted(d.units))
    own = d.left[asarray_on(units, d.left)]
    winner, rejected = kernels.split(d.block, units, d.right, d.usable[1], own, d.floor)
    held = kernels.held_out(d.block, *d.names, 9, 0.1)
    agreeing = kernels.agreeing(d.block, d.left, d.right, d.floor, d.usable)
    lone = kernels.rests_on_one(d.block, units, d.right, own, d.usable[1], d.floor)
    return [winner, held, lone, *_arrays(rejected), *_arrays(agreeing)]


def _evidence(kernels: Kernels, d: SimpleNamespace) -> list[Any]:
    """How a core does on some entries, and what its bases are like."""
    xp = array_namespace(d.left)
    s = xp.ones(_RANK, dtype=d.left.dtype)
    entries = d.block.triplets(d.flags)
    found: list[Any] = []
    for size in (0.5 * d.floor, 20 * d.floor):
        told = kernels.measure(entries, (d.left, s, d.right), d.floor, size, 0.1 * d.floor)
        counts = (told.n_informative, told.n_agree, told.n_below, told.n_zero, told.n_nonzero)
        compared = kernels.compare(told, entries[2], d.floor)
        found += [np.asarray(x, dtype=np.float64) for x in (counts, told.found, told.claimed, compared)]
    facts = kernels.basis_facts(d.right, d.usable[1])
    return [
        *found,
        np.asarray(kernels.sizes(entries[2])),
        facts.gram,
        np.asarray(facts[1:]),
        kernels.largest_squares(d.left, d.right),
    ]


def _ties(kernels: Kernels, d: SimpleNamespace) -> list[Any]:
    """Two steps of Lanczos's method."""
    xp = array_namespace(d.left)
    left, right = (xp.astype(x, xp.float64) for x in (d.left, d.right))
    across = d.block.transpose()
    packed = kernels.grams(across, left), kernels.grams(d.block, right)
    G = d.gram @ xp.matrix_transpose(d.gram)
    gauge = asarray_on(0.1 * np.eye(_RANK**2), left)
    lanczos = kernels.lanczos(TieProblem(d.block, across, left, right, packed, G, gauge, d.normal, 1e-3), 4, kernels)
    return [*packed, np.asarray([f() for _ in range(2) for f in (lanczos.size, lanczos.step)])]


def _verdicts(kernels: Kernels, d: SimpleNamespace) -> list[Any]:
    """What follows for each unit from a fit pass, and for all of them."""
    n, floor = len(d.fits), _LIMITS.floor
    if kernels.unit_table is not None:
        known = kernels.unit_table(d.fits, n, np.zeros(0, np.int64), np.zeros((0, 6)))
        known.diagnose(d.fits, _RANK, floor)
        sums = known.judge(_LIMITS)
        places, rows, n_obs, a, lone = known.picked(_FIT, _ALONE, d.indptr, d.fits)
        crowded, _, totals = known.crowded(1.5)
        status = known.known()[:, 0]
        most = known.most_outliers(np.arange(n), n // 3)
        outliers = np.sort(to_numpy(known.outliers)[most])
        return [
            sums,
            places,
            rows[:, 1:3],
            n_obs,
            a,
            lone,
            status,
            known.undetermined(),
            crowded,
            totals,
            outliers,
            known.summary()[:5],
        ]
    table, columns = to_numpy(d.fits), tuple(np.empty(n, t) for t in (np.int8, np.int64, np.int64, float, float, np.int64))
    kernels.diagnose(table, _RANK, floor, (*columns, np.empty((n, 2), np.int32)))
    status, bits = kernels.judge(columns, _LIMITS)
    sums = [int(np.count_nonzero(bits & bit)) for bit in (1, 2, 16)]
    places, lone = np.flatnonzero(bits & _FIT), np.flatnonzero((bits & _ALONE > 0) & (bits & _FIT == 0))
    n_obs = np.where(status == 0, columns[1], 0)
    outliers = np.maximum(n_obs - columns[2], 0)
    totals = np.asarray([n_obs.sum(), outliers.sum()])
    crowded = np.flatnonzero(outliers > np.maximum(1.5 * totals[1] / max(totals[0], 1) * n_obs, 2))
    rows, seen = np.stack(columns[1:3], axis=1)[places], np.diff(to_numpy(d.indptr))[places]
    lost, most = np.flatnonzero(status), np.sort(outliers)[n - n // 3 :]
    return [
        sums,
        places,
        rows,
        seen,
        table[places],
        lone,
        status,
        lost,
        crowded,
        totals,
        most,
        np.bincount(status, minlength=5),
    ]


STEPS: dict[str, Callable[..., list[Any]]] = {
    "blocks": _blocks,
    "cross": _cross,
    "layout": _layout,
    "votes": _votes,
    "evidence": _evidence,
    "ties of a core": _ties,
    "verdicts": _verdicts,
}
