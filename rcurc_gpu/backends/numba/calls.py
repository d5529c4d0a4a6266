"""Kernels compiled for the CPU, on all its cores; the same functions as in plain array-API code."""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..blocks import Block, pieces
from ..plain.passes import N_NUMBERS, EntryIds, FitPass
from ..random import PositionStream, stream_key
from . import core_kernels as cpu_core_kernels
from . import pass_kernel as cpu_look_kernel
from .normal_kernel import normal_sums as normal_kernel
from .paper_kernel import advance as advance_kernel
from .threads import THREADS, run
from .vectors import LANES

_PIECE = 1 << 16  # observations of a piece of work: some milliseconds
_MOST_KNOWN, _MANY = 8, 1 << 20  # a rank up to the first is told to the compiler where there are so many observations
_BEGIN = {
    "zero": cpu_look_kernel.ZERO,
    "given": cpu_look_kernel.GIVEN,
    "part": cpu_look_kernel.PART_OF,
    "subsets": cpu_look_kernel.SUBSETS,
}


def regress(
    block: Block, units: np.ndarray, basis: Array, usable: Array, white: Array, ids: EntryIds, fit_pass: FitPass
) -> tuple[Array, Array]:
    """`passes.regress`."""
    u, r = len(units), basis.shape[1]
    part_stream = PositionStream.PART + (fit_pass.number if fit_pass.begin == "part" else 0)
    streams = (PositionStream.HOLDOUT, part_stream, PositionStream.SUBSET)
    keys = np.asarray([stream_key(ids.seed, stream) for stream in streams], dtype=np.uint64)
    units = _fixed(units)
    start = _fixed(np.empty((1, r), dtype=basis.dtype) if fit_pass.start is None else fit_pass.start)
    there = tuple(map(_fixed, (basis, usable, white, ids.unit, ids.index)))
    a, table = np.empty((u, r), dtype=basis.dtype), np.empty((u, N_NUMBERS), dtype=basis.dtype)
    counts = block.counts[units]
    edges = pieces(counts, min(_PIECE, max(int(counts.sum()) // (4 * THREADS), _PIECE // 32)))
    if u > 4 * LANES * len(edges):  # pieces of many units: of whole groups of them
        edges[1:-1] -= edges[1:-1] % LANES
    s = fit_pass.schedule
    known = r <= _MOST_KNOWN and block.n_obs >= _MANY and fit_pass.begin in ("zero", "given")
    rank = (0,) * r if known else r
    entries = (_fixed(block.indptr), _fixed(block.index), _fixed(block.value))

    def work(k: int) -> None:
        part = slice(edges[k], edges[k + 1])
        cpu_look_kernel.regress(
            *entries,
            units[part],
            *there,
            ids.transposed,
            keys,
            float(ids.share),
            _BEGIN[fit_pass.begin],
            fit_pass.number,
            start if fit_pass.start is None else start[part],
            float(s.zeta0),
            float(s.floor),
            float(s.gamma),
            fit_pass.max_steps,
            float(fit_pass.informative),
            rank,
            a[part],
            table[part],
        )

    run(work, len(edges) - 1)
    return a, table


def advance(
    block: Block,
    units: np.ndarray,
    usable: Array,
    ids: EntryIds,
    bases: Array,
    turns: Array,
    zetas: Array,
    step_size: float,
    a: Array,
) -> tuple[Array, Array]:
    """`recursion.advance`."""
    key = np.uint64(stream_key(ids.seed, PositionStream.HOLDOUT))
    units, a = _fixed(units), np.array(a, order="C")
    edges = pieces(block.counts[units], _PIECE)
    sums = np.zeros((len(edges) - 1, turns.shape[0], 2))
    entries = (_fixed(block.indptr), _fixed(block.index), _fixed(block.value))
    there = (*map(_fixed, (usable, ids.unit, ids.index)), ids.transposed, key, float(ids.share))
    iterates = (_fixed(bases), _fixed(turns), _fixed(zetas), float(step_size))

    def work(k: int) -> None:
        part = slice(edges[k], edges[k + 1])
        advance_kernel(*entries, units[part], *there, *iterates, a[part], sums[k])

    run(work, len(edges) - 1)
    return a, sums.sum(axis=0).astype(bases.dtype)


def normal_sums(
    block: Block, units: np.ndarray, basis: Array, usable: Array, ids: EntryIds, a: Array, floor: float
) -> Array:
    """`normal.normal_sums`."""
    r = basis.shape[1]
    key = np.uint64(stream_key(ids.seed, PositionStream.HOLDOUT))
    out = np.empty((len(units), r * r + r + 2))
    units, a = _fixed(units), _fixed(a)
    entries = (_fixed(block.indptr), _fixed(block.index), _fixed(block.value))
    there = (*map(_fixed, (basis, usable, ids.unit, ids.index)), ids.transposed, key, float(ids.share))
    edges = pieces(block.counts[units], _PIECE)

    def work(k: int) -> None:
        part = slice(edges[k], edges[k + 1])
        normal_kernel(*entries, units[part], *there, a[part], float(floor), out[part])

    run(work, len(edges) - 1)
    return out


def held_out(block: Block, unit_ids: Array, index_ids: Array, seed: int, share: float) -> Array:
    """`passes.held_out`."""
    key = np.uint64(stream_key(seed, PositionStream.HOLDOUT))
    out = np.empty(block.n_obs, dtype=np.bool_)
    there = tuple(map(_fixed, (block.indptr, block.index, unit_ids, index_ids)))
    cpu_core_kernels.held_out(*there, key, float(share), out)
    return out


def _fixed(x: np.ndarray) -> np.ndarray:
    """`x` contiguous and read-only: Numba compiles once more for arrays that differ in either."""
    x = np.ascontiguousarray(x).view()
    x.flags.writeable = False
    return x
