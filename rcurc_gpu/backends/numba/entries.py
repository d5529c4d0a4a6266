"""What the kernels that Numba compiles for the CPU share.

Kernels are plain loops over a range of units or rows, without Python's lock; `threads` hands the ranges to all cores. That
compiles faster than Numba's own parallel loops and needs no threading layer. Those of the core and of the paper's recursion
leave vectors to the compiler: their inner loops run along the entries of a unit. That of the extension, whose units are
often short, makes them itself: see `pass_kernel`.
"""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import numpy as np

from ..random import MIX_1, MIX_2
from .functions import not_inlined
from .parts import part

PADDING = 16  # buffers have room for so many entries more than the longest unit: none is ever empty

_MIX_1, _MIX_2 = np.uint64(MIX_1), np.uint64(MIX_2)
_11, _27, _30, _31, _32 = (np.uint64(k) for k in (11, 27, 30, 31, 32))


@part
def uniform(i, j, key):
    """`random.uniform_at` for one position; `key` is made of the seed and the stream."""
    return hashed(pair_of(np.uint64(i), np.uint64(j)) ^ key)


@part
def pair_of(i, j):
    """A position as one word."""
    return (i << _32) + j


@part
def hashed(z):
    """`random.uniform_at` for a word made of position and key."""
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    z = z ^ (z >> _31)
    z = (z ^ (z >> _30)) * _MIX_1
    z = z ^ (z >> _31)
    return np.float64(z >> _11) * 2.0**-53


@part
def residual(D, y, a, res, m, R):
    """res = y - D a; four columns at a time, or memory is what it waits for"""
    not_inlined()
    for t in range(m):
        res[t] = y[t]
    for block in range(R // 4):
        q = 4 * block
        D0, D1, D2, D3 = D[q], D[q + 1], D[q + 2], D[q + 3]
        a0, a1 = res.dtype.type(a[q]), res.dtype.type(a[q + 1])
        a2, a3 = res.dtype.type(a[q + 2]), res.dtype.type(a[q + 3])
        for t in range(m):
            res[t] -= a0 * D0[t] + a1 * D1[t] + a2 * D2[t] + a3 * D3[t]
    for q in range(R - R % 4, R):
        D0, a0 = D[q], res.dtype.type(a[q])
        for t in range(m):
            res[t] -= a0 * D0[t]


@part
def products(D, x, b, m, R):
    """b = D^T x"""
    not_inlined()
    for block in range(R // 4):
        q = 4 * block
        D0, D1, D2, D3 = D[q], D[q + 1], D[q + 2], D[q + 3]
        b0 = b1 = b2 = b3 = 0.0
        for t in range(m):
            b0 += x[t] * D0[t]
            b1 += x[t] * D1[t]
            b2 += x[t] * D2[t]
            b3 += x[t] * D3[t]
        b[q], b[q + 1], b[q + 2], b[q + 3] = b0, b1, b2, b3
    for q in range(R - R % 4, R):
        D0, b0 = D[q], 0.0
        for t in range(m):
            b0 += x[t] * D0[t]
        b[q] = b0
