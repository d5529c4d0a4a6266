"""The kernels of the core's grid that Numba compiles for the CPU; see `entries` for how they are made."""

# Numba looks at the age of this file alone: after a change of `entries`, touch it, or what was compiled before is used.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np
from numba import njit

from .entries import OPTIONS, products, residual, uniform


@njit(**OPTIONS)
def threshold(indptr, index, value, weight, first, last, left, QT, used, zeta, S, G, Z, sums):
    """`Grid.threshold` for rows `first` to `last`; only the leading `used` columns of `left` are not 0."""
    K, n = QT.shape
    D = np.empty((K, n), value.dtype)
    e = np.empty(n, value.dtype)
    row = np.empty(K)
    square = 0.0
    n_out = 0.0
    for i in range(first, last):
        low = indptr[i]
        m = indptr[i + 1] - low
        v, w, s, g = value[low : low + m], weight[low : low + m], S[low : low + m], G[low : low + m]
        _gather(index[low : low + m], QT, D, m, K)
        residual(D, v, left[i], e, m, used)
        for t in range(m):
            rest = e[t] - s[t]
            square += rest * rest
            out = abs(e[t]) >= zeta
            s[t] = e[t] if out else e[t] * 0
            n_out += 1.0 if out else 0.0
            g[t] = w[t] * (e[t] - s[t])
        products(D, g, row, m, K)
        for q in range(K):
            Z[i, q] = left[i, q] + row[q]
    sums[0] = square
    sums[1] = n_out


@njit(**OPTIONS)
def mul(indptr, index, first, last, G, XT, Z):
    """`Grid.mul` for rows `first` to `last`."""
    K, n = XT.shape
    D = np.empty((K, n), G.dtype)
    row = np.empty(K)
    for i in range(first, last):
        low = indptr[i]
        m = indptr[i + 1] - low
        _gather(index[low : low + m], XT, D, m, K)
        products(D, G[low : low + m], row, m, K)
        for q in range(K):
            Z[i, q] = row[q]


@njit(inline="always")
def _gather(index, QT, D, m, K):
    """D[q, t] = QT[q, index[t]]"""
    for q in range(K):
        source, target = QT[q], D[q]
        for t in range(m):
            target[t] = source[np.uint32(index[t])]  # unsigned: no check for a negative one


@njit(**OPTIONS)
def rmul(indptr, index, first, last, G, P, out):
    """`Grid.rmul` (transposed) for rows `first` to `last`, added to `out` (K, n)."""
    K = out.shape[0]
    for i in range(first, last):
        low = indptr[i]
        m = indptr[i + 1] - low
        g, where = G[low : low + m], index[low : low + m]
        for q in range(K):
            target, p = out[q], P[i, q]
            for t in range(m):
                target[np.uint32(where[t])] += p * g[t]


@njit(**OPTIONS)
def rmul_full(indptr, index, first, last, G, P, out):
    """`rmul` for rows of which a good share is observed: vectors, four rows at a time, zeros included."""
    K, n = out.shape
    rows = np.zeros((4, n), G.dtype)
    for i in range(first, last, 4):
        rows[:] = 0
        for k in range(min(4, last - i)):
            for t in range(indptr[i + k], indptr[i + k + 1]):
                rows[k, np.uint32(index[t])] = G[t]
        row0, row1, row2, row3 = rows[0], rows[1], rows[2], rows[3]
        for q in range(K):
            target, p0 = out[q], P[i, q]
            p1, p2, p3 = P[min(i + 1, last - 1), q], P[min(i + 2, last - 1), q], P[min(i + 3, last - 1), q]
            for j in range(n):
                target[j] += p0 * row0[j] + p1 * row1[j] + p2 * row2[j] + p3 * row3[j]


@njit(**OPTIONS)
def inlying(indptr, index, value, first, last, left, QT, zeta, kept, by_row, by_col):
    """`Grid.inlying` for rows `first` to `last`; `by_col` is added to."""
    K, n = QT.shape
    D = np.empty((K, n), value.dtype)
    e = np.empty(n, value.dtype)
    for i in range(first, last):
        low = indptr[i]
        m = indptr[i + 1] - low
        where, k = index[low : low + m], kept[low : low + m]
        _gather(where, QT, D, m, K)
        residual(D, value[low : low + m], left[i], e, m, K)
        count = 0
        for t in range(m):
            inside = abs(e[t]) < zeta
            k[t] = e[t] if inside else e[t] * 0
            count += inside
            by_col[np.uint32(where[t])] += inside
        by_row[i] = count


@njit(**OPTIONS)
def change(left, QT, old_left, old_QT, old_s):
    """`Grid.change`"""
    m, K = left.shape
    turn = np.empty((K, K))
    for p in range(K):
        products(QT, old_QT[p], turn[p], QT.shape[1], K)
    inside = 0.0
    size = 0.0
    for i in range(m):
        for q in range(K):
            x = np.float64(left[i, q])
            size += x * x
            for p in range(K):
                x -= old_left[i, p] * turn[p, q]
            inside += x * x
    outside = 0.0
    rest = np.empty(QT.shape[1], QT.dtype)
    for p in range(K):
        if old_s[p] != 0:
            residual(QT, old_QT[p], turn[p], rest, QT.shape[1], K)
            total = 0.0
            for j in range(QT.shape[1]):
                total += rest[j] * rest[j]
            outside += total * old_s[p] * old_s[p]
    return np.sqrt(inside + outside) / np.sqrt(size)


@njit(**OPTIONS)
def residual_sizes(i, j, y, left, Q, out):
    """abs(y - (left Q^T)_ij) at a list of entries."""
    for t in range(out.shape[0]):
        x = 0.0
        for q in range(left.shape[1]):
            x += left[i[t], q] * Q[j[t], q]
        out[t] = abs(y[t] - x)


@njit(**OPTIONS)
def held_out(indptr, index, unit_ids, index_ids, key, share, out):
    """`passes.held_out`"""
    for unit in range(indptr.shape[0] - 1):
        for t in range(indptr[unit], indptr[unit + 1]):
            out[t] = uniform(unit_ids[unit], index_ids[index[t]], key) < share
