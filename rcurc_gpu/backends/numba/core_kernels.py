"""The kernels of the core's grid that Numba compiles for the CPU; see `entries` for how they are made."""

# Numba looks at the age of this file alone: after a change of `entries`, touch it, or what was compiled before is used.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .entries import OPTIONS, WITHIN, products, residual, uniform
from .parts import compact, not_inlined
from .small_kernels import dot, inner


@njit(**WITHIN)
def split_rows(indptr, index, value, weight, edges, first, last, left, QT, used, zeta, S, G, Z, sums):
    """`Grid.threshold` for the pieces `first` to `last` of the rows; only the leading `used` rows of `left` are not 0."""
    not_inlined()
    K, n = QT.shape
    D = np.empty((K + 2, n), value.dtype)
    e, of_row = D[K], D[K + 1]
    limit = value.dtype.type(zeta)
    for piece in range(first, last):
        square = 0.0
        n_out = 0.0
        for i in range(edges[piece], edges[piece + 1]):
            low = indptr[i]
            m = indptr[i + 1] - low
            w, s, g = weight[low : low + m], S[low : low + m], G[low : low + m]
            _gather(index[low : low + m], QT, D, m, K)
            for q in range(used):
                of_row[q] = left[q, i]
            residual(D, value[low : low + m], of_row, e, m, used)
            for t in range(m):
                rest = e[t] - s[t]
                square += rest * rest
                out = abs(e[t]) >= limit
                s[t] = e[t] if out else e[t] * 0
                n_out += 1.0 if out else 0.0
                g[t] = w[t] * (e[t] - s[t])
            products(D, g, of_row, m, K)
            for q in range(K):
                Z[q, i] = left[q, i] + of_row[q]
        sums[piece, 0] = square
        sums[piece, 1] = n_out


@njit(**WITHIN)
def add_product(indptr, index, edges, first, last, G, XT, Z):
    """`Grid.mul` for the pieces `first` to `last` of the rows, added to Z (k, m)."""
    not_inlined()
    K, n = XT.shape
    D = np.empty((K + 1, n), G.dtype)
    of_row = D[K]
    for i in range(edges[first], edges[last]):
        low = indptr[i]
        m = indptr[i + 1] - low
        _gather(index[low : low + m], XT, D, m, K)
        products(D, G[low : low + m], of_row, m, K)
        for q in range(K):
            Z[q, i] += of_row[q]


@njit(**WITHIN)
def _gather(index, QT, D, m, K):
    """D[q, t] = QT[q, index[t]]"""
    not_inlined()
    for q in range(K):
        source, target = QT[q], D[q]
        for t in range(m):
            target[t] = source[np.uint32(index[t])]  # unsigned: no check for a negative one


@njit(**WITHIN)
def back_product(indptr, index, edges, first, last, G, PT, parts, full):
    """`Grid.rmul` for the pieces `first` to `last` of the rows, each into its part (k, n).

    Where a good share of a row is observed (`full`): vectors, four rows at a time, zeros included.
    """
    not_inlined()
    K, n = parts.shape[1:]
    rows = np.empty((4, n), G.dtype)
    for piece in range(first, last):
        out, end = parts[piece], edges[piece + 1]
        for q in range(K):
            for j in range(n):
                out[q, j] = 0
        for i in range(edges[piece], end, 4 if full else 1):
            if full:
                for k in range(4):
                    for j in range(n):
                        rows[k, j] = 0
                for k in range(min(4, end - i)):
                    for t in range(indptr[i + k], indptr[i + k + 1]):
                        rows[k, np.uint32(index[t])] = G[t]
                row0, row1, row2, row3 = rows[0], rows[1], rows[2], rows[3]
                i1, i2, i3 = min(i + 1, end - 1), min(i + 2, end - 1), min(i + 3, end - 1)
                for q in range(K):
                    target, p0, p1, p2, p3 = out[q], PT[q, i], PT[q, i1], PT[q, i2], PT[q, i3]
                    for j in range(n):
                        target[j] += p0 * row0[j] + p1 * row1[j] + p2 * row2[j] + p3 * row3[j]
            else:
                low, high = indptr[i], indptr[i + 1]
                for q in range(K):
                    target, p0 = out[q], PT[q, i]
                    for t in range(low, high):
                        target[np.uint32(index[t])] += p0 * G[t]


@njit(**WITHIN)
def add_parts(parts, out):
    """Add the pieces of `back_product` to `out`."""
    not_inlined()
    for q in range(out.shape[0]):
        target = out[q]
        for p in range(parts.shape[0]):
            more = parts[p, q]
            for j in range(target.shape[0]):
                target[j] += more[j]


@njit(**OPTIONS)
def inlying(indptr, index, value, first, last, left, QT, zeta, kept, by_row, by_col):
    """`Grid.inlying` for rows `first` to `last`; `by_col` is added to."""
    K, n = QT.shape
    D = np.empty((K + 2, n), value.dtype)
    e, of_row = D[K], D[K + 1]
    for i in range(first, last):
        low = indptr[i]
        m = indptr[i + 1] - low
        where, k = index[low : low + m], kept[low : low + m]
        _gather(where, QT, D, m, K)
        for q in range(K):
            of_row[q] = left[q, i]
        residual(D, value[low : low + m], of_row, e, m, K)
        count = 0
        for t in range(m):
            inside = abs(e[t]) < zeta
            k[t] = e[t] if inside else e[t] * 0
            count += inside
            by_col[np.uint32(where[t])] += inside
        by_row[i] = count


@njit(**WITHIN)
def change(left, QT, old_left, old_QT, old_s, turn, back, rest):
    """`Grid.change`; `turn` and `back`, float64 (k, k), and `rest`, as long as the longest row, are memory."""
    compact()
    K = left.shape[0]
    inner(old_QT, QT, turn)
    for p in range(K):
        for q in range(K):
            back[q, p] = turn[p, q]
    size, inside, outside = 0.0, 0.0, 0.0
    for p in range(K):
        size += dot(left[p], left[p])
        moved = rest[: left.shape[1]]
        residual(old_left, left[p], back[p], moved, left.shape[1], K)
        inside += dot(moved, moved)
        if old_s[p] != 0:
            moved = rest[: QT.shape[1]]
            residual(QT, old_QT[p], turn[p], moved, QT.shape[1], K)
            outside += dot(moved, moved) * old_s[p] * old_s[p]
    return math.sqrt(inside + outside) / math.sqrt(size)


@njit(**WITHIN)
def floor_threshold(i, j, y, left, QT, used, zeta, floor, sizes):
    """`Grid.floor_threshold`; `sizes` is memory (n_entries,)."""
    not_inlined()
    lowest, times = y.dtype.type(zeta), y.dtype.type(floor)
    n = y.shape[0]
    if times == 0 or n == 0:
        return lowest * 1.0
    most = QT.shape[1]
    D = np.empty((used + 2, most), y.dtype)
    e, of_row = D[used], D[used + 1]
    middle, below, low = (n - 1) // 2, 0, 0
    while low < n:
        high = low + 1
        while high < n and i[high] == i[low] and high - low < most:  # entries of one row stand together
            high += 1
        _gather(j[low:high], QT, D, high - low, used)
        for q in range(used):
            of_row[q] = left[q, i[low]]
        residual(D, y[low:high], of_row, e, high - low, used)
        some = sizes[low:high]
        for t in range(high - low):
            some[t] = abs(e[t])
            below += times * some[t] <= lowest
        if below > middle:  # so the median does not hold the threshold up, whatever it is
            return lowest * 1.0
        low = high
    return 1.0 * (times * _select(sizes, middle))


@njit(**WITHIN)
def _select(x, k):
    """The number at place k if x were sorted; some of them are moved. NaNs end it like any others."""
    compact()
    low, high = 0, x.shape[0] - 1
    while low < high:
        pivot = x[low + (high - low) // 2]
        first, last = low, high
        while first <= last:
            while x[first] < pivot:
                first += 1
            while x[last] > pivot:
                last -= 1
            if first <= last:
                x[first], x[last] = x[last], x[first]
                first += 1
                last -= 1
        if k <= last:
            high = last
        elif k >= first:
            low = first
        else:
            break
    return x[k]


@njit(**OPTIONS)
def held_out(indptr, index, unit_ids, index_ids, key, share, out):
    """`passes.held_out`"""
    for unit in range(indptr.shape[0] - 1):
        for t in range(indptr[unit], indptr[unit + 1]):
            out[t] = uniform(unit_ids[unit], index_ids[index[t]], key) < share
