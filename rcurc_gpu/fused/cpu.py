"""Kernels compiled for the CPU, on all its cores; the same functions as in plain array-API code."""

from __future__ import annotations

import numpy as np

from ..backend import Array
from ..block import Block, pieces
from ..hashing import stream_key
from ..look import HOLDOUT_STREAM, N_NUMBERS, PART_STREAM, SUBSET_STREAM, Look, Names
from . import cpu_core_kernels, cpu_look_kernel
from .cpu_normal_kernel import normal_sums as normal_kernel
from .cpu_paper_kernel import advance as advance_kernel
from .threads import THREADS, run

_PIECE = 1 << 16  # observations of a piece of work: some milliseconds
_MOST_KNOWN, _MANY = 8, 1 << 20  # a rank up to the first is told to the compiler where there are so many observations
_BEGIN = {
    "zero": cpu_look_kernel.ZERO,
    "given": cpu_look_kernel.GIVEN,
    "part": cpu_look_kernel.PART_OF,
    "subsets": cpu_look_kernel.SUBSETS,
}


def regress(
    block: Block, units: np.ndarray, basis: Array, usable: Array, white: Array, names: Names, look: Look
) -> tuple[Array, Array]:
    """`look.regress`."""
    u, r = len(units), basis.shape[1]
    streams = (HOLDOUT_STREAM, PART_STREAM + (look.number if look.begin == "part" else 0), SUBSET_STREAM)
    keys = np.asarray([stream_key(names.seed, stream) for stream in streams], dtype=np.uint64)
    units = _fixed(units)
    start = _fixed(np.empty((1, r), dtype=basis.dtype) if look.start is None else look.start)
    there = tuple(map(_fixed, (basis, usable, white, names.unit, names.index)))
    a, table = np.empty((u, r), dtype=basis.dtype), np.empty((u, N_NUMBERS), dtype=basis.dtype)
    counts = block.counts[units]
    edges = pieces(counts, min(_PIECE, max(int(counts.sum()) // (4 * THREADS), _PIECE // 32)))
    s = look.schedule
    known = r <= _MOST_KNOWN and block.n_obs >= _MANY and look.begin in ("zero", "given")
    rank = (0,) * r if known else r
    entries = (_fixed(block.indptr), _fixed(block.index), _fixed(block.value))

    def work(k: int) -> None:
        part = slice(edges[k], edges[k + 1])
        cpu_look_kernel.regress(
            *entries,
            units[part],
            _order(counts[part]),
            *there,
            names.transposed,
            keys,
            float(names.share),
            _BEGIN[look.begin],
            look.number,
            start if look.start is None else start[part],
            float(s.zeta0),
            float(s.floor),
            float(s.gamma),
            look.max_steps,
            float(look.telling),
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
    names: Names,
    bases: Array,
    turns: Array,
    zetas: Array,
    step_size: float,
    a: Array,
) -> tuple[Array, Array]:
    """`follow.advance`."""
    key = np.uint64(stream_key(names.seed, HOLDOUT_STREAM))
    units, a = _fixed(units), np.array(a, order="C")
    edges = pieces(block.counts[units], _PIECE)
    sums = np.zeros((len(edges) - 1, turns.shape[0], 2))
    entries = (_fixed(block.indptr), _fixed(block.index), _fixed(block.value))
    there = (*map(_fixed, (usable, names.unit, names.index)), names.transposed, key, float(names.share))
    iterates = (_fixed(bases), _fixed(turns), _fixed(zetas), float(step_size))

    def work(k: int) -> None:
        part = slice(edges[k], edges[k + 1])
        advance_kernel(*entries, units[part], *there, *iterates, a[part], sums[k])

    run(work, len(edges) - 1)
    return a, sums.sum(axis=0).astype(bases.dtype)


def normal_sums(block: Block, units: np.ndarray, basis: Array, usable: Array, names: Names, a: Array, floor: float) -> Array:
    """`normal.normal_sums`."""
    r = basis.shape[1]
    key = np.uint64(stream_key(names.seed, HOLDOUT_STREAM))
    out = np.empty((len(units), r * r + r + 2))
    units, a = _fixed(units), _fixed(a)
    entries = (_fixed(block.indptr), _fixed(block.index), _fixed(block.value))
    there = (*map(_fixed, (basis, usable, names.unit, names.index)), names.transposed, key, float(names.share))
    edges = pieces(block.counts[units], _PIECE)

    def work(k: int) -> None:
        part = slice(edges[k], edges[k + 1])
        normal_kernel(*entries, units[part], *there, a[part], float(floor), out[part])

    run(work, len(edges) - 1)
    return out


def held_out(block: Block, unit_names: Array, index_names: Array, seed: int, share: float) -> Array:
    """`look.held_out`."""
    key = np.uint64(stream_key(seed, HOLDOUT_STREAM))
    out = np.empty(block.n_obs, dtype=np.bool_)
    there = tuple(map(_fixed, (block.indptr, block.index, unit_names, index_names)))
    cpu_core_kernels.held_out(*there, key, float(share), out)
    return out


def _order(counts: np.ndarray) -> np.ndarray:
    """An order in which neighbours have about the same `counts`; as they come, if these differ little."""
    uneven = counts.max() > 2 * counts.mean()
    return np.argsort(counts, kind="stable") if uneven else np.arange(len(counts))


def _fixed(x: np.ndarray) -> np.ndarray:
    """`x` contiguous and read-only: Numba compiles once more for arrays that differ in either."""
    x = np.ascontiguousarray(x).view()
    x.flags.writeable = False
    return x
