"""`plain.ties`, compiled for the CPU."""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import math

import numpy as np

from .functions import number_of
from .parts import kernel


@kernel
def grams(indptr, index, right, out):
    """`plain.ties.grams`."""
    K = right.shape[1]
    for u in range(out.shape[0]):
        for c in range(out.shape[1]):  # to write it as one takes Numba a second to compile
            out[u, c] = 0.0
        for t in range(indptr[u], indptr[u + 1]):
            j = index[t]
            c = 0
            for q in range(K):
                for p in range(q + 1):
                    out[u, c] += right[j, q] * right[j, p]
                    c += 1


@kernel
def couple(indptr, index, left, right, x, out, rank):
    """`plain.ties.couple`; `rank` is a tuple of as many numbers as there are unknowns, or their number.

    The compiler then knows it, which halves the time of small ones.
    """
    K = number_of(rank)
    total = np.empty(K)
    for u in range(out.shape[0]):
        for q in range(K):
            total[q] = 0.0
        for t in range(indptr[u], indptr[u + 1]):
            j = index[t]
            moved = 0.0
            for q in range(K):
                moved += left[u, q] * x[j, q]
            for q in range(K):
                total[q] += moved * right[j, q]
        for q in range(K):
            out[u, q] = total[q]


@kernel
def times(matrices, x, out, rank):
    """`plain.ties.times`; `rank` as in `couple`."""
    K = number_of(rank)
    for u in range(out.shape[0]):
        for q in range(K):
            total = 0.0
            for p in range(K):
                total += matrices[u, q, p] * x[u, p]
            out[u, q] = total


@kernel
def inverses(packed, ridge, L, M, out):
    """`plain.ties.inverses`, by Cholesky factors L and their inverses M, both lower triangles in memory (K, K)."""
    K = L.shape[0]
    for u in range(packed.shape[0]):
        c = 0
        for q in range(K):
            for p in range(q + 1):
                v = packed[u, c] + (ridge if p == q else 0.0)
                for t in range(p):
                    v -= L[q, t] * L[p, t]
                L[q, p] = math.sqrt(max(v, 1e-300)) if p == q else v / L[p, p]
                c += 1
        for p in range(K):
            M[p, p] = 1 / L[p, p]
            for q in range(p + 1, K):
                v = 0.0
                for t in range(p, q):
                    v -= L[q, t] * M[t, p]
                M[q, p] = v / L[q, q]
        c = 0
        for q in range(K):
            for p in range(q + 1):
                v = 0.0
                for t in range(q, K):
                    v += M[t, q] * M[t, p]
                out[u, c] = v
                c += 1
