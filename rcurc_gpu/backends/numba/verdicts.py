"""What follows for each unit, compiled for the CPU: the functions of `plain.verdicts` and `plain.votes`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..arrays import Array
from ..blocks import Block, pieces
from ..plain import verdicts as plain
from ..plain.verdicts import BINS, Limits
from ..plain.votes import CLEAR
from . import verdict_kernel
from .threads import THREADS, fixed, run

# Units from which compiled code is used: it takes a quarter of a second to compile, and plain code not more than some ten
# milliseconds below.
_MANY = 1 << 16
_LEAST_PIECE = 1 << 16  # observations, a tenth of a millisecond: for fewer, no other thread is woken


def diagnose(table: np.ndarray, rank: int, floor: float, out: tuple[np.ndarray, ...]) -> np.ndarray:
    """`verdicts.diagnose`."""
    if len(table) < _MANY:
        return plain.diagnose(table, rank, floor, out)
    parts = _parts(len(table))
    counts, table = np.zeros((len(parts), 2, BINS + 1), np.int64), fixed(table)
    each = zip(parts, counts, strict=True)
    run(verdict_kernel.diagnose, [(table[k], rank, float(floor), *(x[k] for x in out), c) for k, c in each])
    return np.asarray(counts.sum(axis=0))


def judge(arrays: tuple[np.ndarray, ...], at: Limits) -> tuple[np.ndarray, np.ndarray]:
    """`verdicts.judge`."""
    n = len(arrays[0])
    if n < _MANY:
        return plain.judge(arrays, at)
    status, bits = np.empty(n, np.int8), np.empty(n, np.uint8)
    given = tuple(map(fixed, arrays))
    run(verdict_kernel.judge, [(*(x[k] for x in given), at, status[k], bits[k]) for k in _parts(n)])
    return status, bits


def split(
    block: Block,
    units: np.ndarray,
    basis: Array,
    usable: Array,
    coefficients: Array,
    floor: float,
    rows: np.ndarray | None = None,
) -> tuple[np.ndarray, Block]:
    """`votes.split`."""
    coefficients = coefficients if rows is None else coefficients[rows]
    counts = block.counts[units]
    size = max(int(counts.sum()) // (4 * THREADS), _LEAST_PIECE)  # four: no core waits long for others
    parts = [slice(*pair) for pair in pairwise(pieces(counts, size))] or [slice(0)]
    votes = np.empty((2, len(units)), np.int64)
    # each part writes what it rejects to the beginning of its own piece, which has room for everything
    found = [tuple(np.empty(counts[k].sum(), x.dtype) for x in (block.index, block.value)) for k in parts]
    there = tuple(map(fixed, (block.indptr, block.index, block.value, basis, usable)))
    units, a, far = fixed(units), fixed(coefficients), CLEAR * float(floor)
    each = zip(parts, found, strict=True)
    run(verdict_kernel.split, [(*there, units[k], a[k], float(floor), far, *votes[:, k], *into) for k, into in each])
    winner, rejected = votes
    pairs = [[x[: rejected[k].sum()] for x in into] for k, into in zip(parts, found, strict=True)]
    index, value = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return winner, Block(np.concatenate([[0], np.cumsum(rejected)]), index, value, block.length)


def _parts(n: int) -> list[slice]:
    edges = np.linspace(0, n, 2 * THREADS + 1).astype(np.int64)
    return [slice(*pair) for pair in pairwise(edges)]
