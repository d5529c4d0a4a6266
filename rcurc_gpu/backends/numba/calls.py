"""Kernels compiled for the CPU, on all its cores: the functions of `plain.passes` with the same signatures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import Array
from ..blocks import Block, pieces
from ..plain.passes import Column, EntryIds, FitPass, Iterates
from ..plain.posterior import Fit, Model, Noise
from ..plain.posterior import weigh as plain_weigh
from ..random import PositionStream, stream_key
from . import core_kernels, joining_kernel, pass_kernel
from .paper_kernel import advance as advance_kernel
from .posterior_kernel import layout, widths
from .posterior_kernel import posterior as posterior_kernel
from .posterior_kernel import solve as solve_kernel
from .posterior_kernel import weigh as weigh_kernel
from .threads import THREADS, fixed, lines, run, shared
from .ties_kernel import couple as couple_kernel
from .ties_kernel import grams as grams_kernel
from .ties_kernel import inverses as inverses_kernel
from .ties_kernel import times as times_kernel
from .values import LANES

# Observations of a piece of work: some milliseconds. With smaller ones Python's share grows, with larger ones cores wait for
# the last. The paper's sums are added piece by piece, so another number changes their rounding.
_PIECE = 1 << 16
_LEAST_PIECE = _PIECE // 32  # where there is little work for all cores: below, calling the kernel costs more than it saves
_PIECES_OF_A_CORE = 4  # at least, so that no core waits long for the others
# A rank up to the first is told to the compiler where there are so many observations. At rank 5 that saves a fifth to a
# quarter of the time, at rank 20 nothing (CONTRIBUTING.md); each rank takes some five seconds to compile.
_MOST_KNOWN, _MANY = 8, 1 << 20
_BEGIN = {"zero": pass_kernel.ZERO, "given": pass_kernel.GIVEN, "part": pass_kernel.PART_OF, "subsets": pass_kernel.SUBSETS}


def regress(
    block: Block,
    units: np.ndarray,
    basis: Array,
    usable: Array,
    white: Array,
    ids: EntryIds,
    fit_pass: FitPass,
    together: Sequence[FitPass] = (),
) -> tuple[Array, Array]:
    """`passes.regress`; or passes that begin with different random parts `together`, each over its share of the units."""
    u, r = len(units), basis.shape[1]
    numbers = [x.number for x in together] or [fit_pass.number if fit_pass.begin == "part" else 0]
    streams = (PositionStream.HOLDOUT, PositionStream.SUBSET, *(PositionStream.PART + number for number in numbers))
    keys = np.asarray([stream_key(ids.seed, stream) for stream in streams], dtype=np.uint64)
    units = fixed(units)
    start = fixed(np.empty((1, r), dtype=basis.dtype) if fit_pass.start is None else fit_pass.start)
    draws = (float(ids.share), _BEGIN[fit_pass.begin], fit_pass.number)
    there = (*map(fixed, (basis, usable, white, ids.unit, ids.index)), ids.transposed)
    a, table = np.empty((u, r), dtype=basis.dtype), np.empty((u, len(Column)), dtype=basis.dtype)
    counts = block.counts[units]
    edges = pieces(counts, min(_PIECE, max(int(counts.sum()) // (_PIECES_OF_A_CORE * THREADS), _LEAST_PIECE)))
    if u > 4 * LANES * len(edges):  # pieces of many units: of whole groups of them, or lanes are empty at their ends
        edges[1:-1] -= edges[1:-1] % LANES
    parts = _slices(edges)
    s = fit_pass.schedule
    known = r <= _MOST_KNOWN and block.n_obs >= _MANY and fit_pass.begin in ("zero", "given")
    rank = (0,) * r if known else r
    entries = _entries(block)
    start_of = [start if fit_pass.start is None else start[part] for part in parts]
    keys_of = [keys] * len(parts)
    if together:
        of_units = np.repeat(keys[2:], u // len(together))
        keys_of = [np.concatenate([keys[:2], of_units[part]]) for part in parts]
    how = (float(s.zeta0), float(s.floor), float(s.gamma), fit_pass.max_steps, float(fit_pass.informative), rank)
    each = zip(parts, start_of, keys_of, strict=True)
    kernel = pass_kernel.regress
    calls = [(*entries, units[k], *there, key, *draws, at, *how, a[k], table[k]) for k, at, key in each]
    with shared(kernel, calls) as todo:
        for arguments in todo:  # here, and not in `run`: the way to the kernel is to be short
            kernel(*arguments)
    return a, table


def regress_together(
    block: Block, units: np.ndarray, basis: Array, usable: Array, white: Array, ids: EntryIds, passes: Sequence[FitPass]
) -> tuple[Array, Array]:
    """Several passes over the same units, as `cuda.calls.regress_together`; those that begin with random parts in one call.

    Each lane of a vector has a unit, so that a few units take as long as one.
    """
    parts = [k for k, x in enumerate(passes) if x.begin == "part"]
    u, p = len(units), len(passes)
    a, table = np.empty((u, p, basis.shape[1]), basis.dtype), np.empty((u, p, len(Column)), basis.dtype)
    for group in (*([k] for k in range(p) if k not in parts), *([parts] if parts else ())):
        these = [passes[k] for k in group]
        more = these if these[0].begin == "part" else []
        found = regress(block, np.tile(units, len(group)), basis, usable, white, ids, these[0], more)
        for out, x in zip((a, table), found, strict=True):
            out[:, group, :] = x.reshape(len(group), u, -1).swapaxes(0, 1)
    return a, table


def advance(
    block: Block, units: np.ndarray, usable: Array, ids: EntryIds, iterates: Iterates, a: Array
) -> tuple[Array, Array]:
    """`passes.advance`."""
    units, a = fixed(units), np.array(a, order="C")
    edges = pieces(block.counts[units], _PIECE)
    sums = np.zeros((len(edges) - 1, len(iterates.turns), 2))
    there = (fixed(usable), *_held(ids))
    path = (*map(fixed, (iterates.bases, iterates.turns, iterates.zetas)), float(iterates.step_size))
    entries, parts = _entries(block), zip(_slices(edges), sums, strict=True)
    run(advance_kernel, [(*entries, units[part], *there, *path, a[part], into) for part, into in parts])
    return a, sums.sum(axis=0).astype(iterates.bases.dtype)


def posterior(
    block: Block,
    weight: Array | None,
    units: np.ndarray,
    model: Model,
    start: tuple[Array, Array, Array],
    temperatures: tuple[float, ...],
    measure: bool = False,
) -> tuple[Array, Array, Array]:
    """`plain.posterior.posterior`."""
    counts = block.counts[units]
    at, noise, precision = model.at, model.noise, model.precision
    u, units = len(units), fixed(units)
    out = (np.empty((u, at.x.shape[1])), np.empty((u, at.second.shape[1])), np.empty((u, len(Fit))))
    there = map(fixed, (at.x, at.shift, at.second, at.cross, at.covariance, at.scale))
    positions = lines(len(at.x), LANES * sum(widths(at.x.shape[1], at.offsets)))
    layout(*there, at.offsets, positions)
    positions = fixed(positions)
    common = (positions, at.offsets, _numbers(noise), fixed(precision))
    given = np.empty(0) if weight is None else weight
    entries, begin, heats = (
        (*_entries(block), fixed(given)),
        tuple(map(fixed, start)),
        np.asarray(temperatures, np.float64),
    )
    size = min(_PIECE, max(int(counts.sum()) // (_PIECES_OF_A_CORE * THREADS), _LEAST_PIECE))
    parts = [
        (*entries, units[part], *common, *(x[part] for x in begin), heats, measure, *(x[part] for x in out))
        for part in _slices(pieces(counts, size))
    ]
    with shared(posterior_kernel, parts) as todo:
        for arguments in todo:  # here, and not in `run`: the way to the kernel is to be short
            posterior_kernel(*arguments)
    return out


def weigh(
    y: Array, given: Array, fitted: Array, doubt: Array, model: Model, scale: Array, heat: float, prior: Array | None = None
) -> tuple[Array, Array]:
    """`plain.posterior.weigh`; objectives, which few need, are left to that."""
    if prior is not None:
        return plain_weigh(y, given, fitted, doubt, model, scale, heat, prior)
    w, table = np.empty(y.shape), np.zeros((len(y), len(Fit)))
    there = map(fixed, (y, given, fitted, doubt, scale, model.at.scale, model.at.shift))
    weigh_kernel(*there, _numbers(model.noise), float(heat), w, table)
    return w, table


def _numbers(noise: Noise) -> np.ndarray:
    """As the kernels want them."""
    # not by `astuple`, which copies every number with care: that took 5 % of a fit to a small matrix
    return np.asarray([*vars(noise).values(), noise.top, noise.odds], dtype=np.float64)


def solve_packed(G: Array, precision: Array, h: Array) -> tuple[Array, Array]:
    """`plain.posterior.solve_packed`."""
    mean, covariance = np.empty(h.shape), np.empty(G.shape)
    solve_kernel(*map(fixed, (G, precision, h)), mean, covariance)
    return mean, covariance


def held_out(block: Block, unit_ids: Array, index_ids: Array, seed: int, share: float) -> Array:
    """`passes.held_out`."""
    key = np.uint64(stream_key(seed, PositionStream.HOLDOUT))
    out = np.empty(block.n_obs, dtype=np.bool_)
    there = tuple(map(fixed, (block.indptr, block.index, unit_ids, index_ids)))
    core_kernels.held_out(*there, key, float(share), out)
    return out


def grams(block: Block, right: Array) -> Array:
    """`plain.ties.grams`."""
    k = right.shape[1]
    out = np.empty((block.n_units, k * (k + 1) // 2))
    grams_kernel(fixed(block.indptr), fixed(block.index), fixed(right), out)
    return out


def join(by_r: Block, by_c: Block) -> tuple[Block, Array]:
    """`plain.joining.join`."""
    most = by_r.n_obs + by_c.n_obs + 1
    places = [fixed(x) for x in (by_r.indptr, by_r.index, by_c.indptr, by_c.index)]
    indptr, index, seen_by = np.empty(by_c.n_units + 1, np.int64), np.empty(most, np.int32), np.empty(most, np.int8)
    joined = []
    for name in ("value",) if by_r.sigma is None or by_c.sigma is None else ("value", "sigma"):
        r, c = fixed(getattr(by_r, name)), fixed(getattr(by_c, name))
        value = np.empty(most, np.result_type(r, c))
        memory = np.empty(by_c.length, seen_by.dtype), np.empty(by_c.length, value.dtype)
        n = joining_kernel.join(*places[:2], r, *places[2:], c, indptr, index, value, seen_by, *memory)
        joined.append(value)
    kept: list[np.ndarray] = [index, seen_by, *joined]
    for x in kept:
        x.resize(n, refcheck=False)  # in place, unlike a copy
    return Block(indptr, index, joined[0], by_c.length, *joined[1:]), seen_by


def inverses(packed: Array, ridge: float) -> Array:
    """`plain.ties.inverses`."""
    out, k = np.empty(packed.shape), int((2 * packed.shape[1]) ** 0.5)
    inverses_kernel(fixed(packed), ridge, *np.zeros((2, k, k)), out)
    return out


def couple(block: Block, left: Array, right: Array, x: Array) -> Array:
    """`plain.ties.couple`."""
    out = np.empty((block.n_units, right.shape[1]))
    there = map(fixed, (block.indptr, block.index, left, right, x))
    couple_kernel(*there, out, _known(right.shape[1]))
    return out


def times(matrices: Array, x: Array) -> Array:
    """`plain.ties.times`."""
    out = np.empty(x.shape)
    times_kernel(fixed(matrices), fixed(x), out, _known(x.shape[1]))
    return out


def _known(rank: int) -> Any:
    """A small rank as a tuple, whose length the compiler knows."""
    return (0,) * rank if rank <= _MOST_KNOWN else rank


def _entries(block: Block) -> tuple[np.ndarray, ...]:
    return fixed(block.indptr), fixed(block.index), fixed(block.value)


def _held(ids: EntryIds) -> tuple[Any, ...]:
    """Ids and what is held out, as the kernels want them."""
    key = np.uint64(stream_key(ids.seed, PositionStream.HOLDOUT))
    return fixed(ids.unit), fixed(ids.index), ids.transposed, key, float(ids.share)


def _slices(edges: np.ndarray) -> list[slice]:
    return [slice(start, stop) for start, stop in pairwise(edges)]
