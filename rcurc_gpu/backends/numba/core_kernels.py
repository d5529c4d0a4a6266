"""The kernels of the core's grid that Numba compiles for the CPU; see `entries` for how they are made."""

# Numba looks at the age of this file alone: after a change of `entries`, touch it, or what was compiled before is used.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np
from numba import njit

from .entries import OPTIONS, WITHIN, products, residual, uniform


@njit(**OPTIONS)
def threshold(indptr, index, value, weight, edges, first, last, left, QT, used, zeta, S, G, Z, sums):
    """`Grid.threshold` for the pieces `first` to `last` of the rows; only the leading `used` rows of `left` are not 0."""
    K, n = QT.shape
    D = np.empty((K, n), value.dtype)
    e = np.empty(n, value.dtype)
    of_row = np.empty(K)
    limit = value.dtype.type(zeta)
    for piece in range(first, last):
        square = 0.0
        n_out = 0.0
        for i in range(edges[piece], edges[piece + 1]):
            low = indptr[i]
            m = indptr[i + 1] - low
            v, w, s, g = value[low : low + m], weight[low : low + m], S[low : low + m], G[low : low + m]
            _gather(index[low : low + m], QT, D, m, K)
            for q in range(used):
                of_row[q] = left[q, i]
            residual(D, v, of_row, e, m, used)
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


@njit(**OPTIONS)
def mul(indptr, index, edges, first, last, G, XT, Z):
    """`Grid.mul` for the pieces `first` to `last` of the rows, added to Z (k, m)."""
    K, n = XT.shape
    D = np.empty((K, n), G.dtype)
    of_row = np.empty(K)
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
    for q in range(K):
        source, target = QT[q], D[q]
        for t in range(m):
            target[t] = source[np.uint32(index[t])]  # unsigned: no check for a negative one


@njit(**OPTIONS)
def rmul(indptr, index, edges, first, last, G, PT, parts):
    """`Grid.rmul` for the pieces `first` to `last` of the rows, each into its part (k, n)."""
    for piece in range(first, last):
        out = parts[piece]
        out[:] = 0
        for i in range(edges[piece], edges[piece + 1]):
            low = indptr[i]
            m = indptr[i + 1] - low
            g, where = G[low : low + m], index[low : low + m]
            for q in range(out.shape[0]):
                target, p = out[q], PT[q, i]
                for t in range(m):
                    target[np.uint32(where[t])] += p * g[t]


@njit(**OPTIONS)
def rmul_full(indptr, index, edges, first, last, G, PT, parts):
    """`rmul` for rows of which a good share is observed: vectors, four rows at a time, zeros included."""
    K, n = parts.shape[1:]
    rows = np.zeros((4, n), G.dtype)
    for piece in range(first, last):
        out, end = parts[piece], edges[piece + 1]
        out[:] = 0
        for i in range(edges[piece], end, 4):
            rows[:] = 0
            for k in range(min(4, end - i)):
                for t in range(indptr[i + k], indptr[i + k + 1]):
                    rows[k, np.uint32(index[t])] = G[t]
            row0, row1, row2, row3 = rows[0], rows[1], rows[2], rows[3]
            i1, i2, i3 = min(i + 1, end - 1), min(i + 2, end - 1), min(i + 3, end - 1)
            for q in range(K):
                target, p0, p1, p2, p3 = out[q], PT[q, i], PT[q, i1], PT[q, i2], PT[q, i3]
                for j in range(n):
                    target[j] += p0 * row0[j] + p1 * row1[j] + p2 * row2[j] + p3 * row3[j]


@njit(**OPTIONS)
def add_parts(parts, out):
    """Add the pieces of `rmul` to `out`."""
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
    D = np.empty((K, n), value.dtype)
    e = np.empty(n, value.dtype)
    of_row = np.empty(K)
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


@njit(**OPTIONS)
def change(left, QT, old_left, old_QT, old_s):
    """`Grid.change`"""
    K = left.shape[0]
    turn = np.empty((K, K))
    for p in range(K):
        products(QT, old_QT[p], turn[p], QT.shape[1], K)
    back = np.empty((K, K))
    for p in range(K):
        for q in range(K):
            back[q, p] = turn[p, q]
    size, inside, outside = 0.0, 0.0, 0.0
    rest = np.empty(max(left.shape[1], QT.shape[1]), QT.dtype)
    for p in range(K):
        size += _square(left[p], left.shape[1])
        residual(old_left, left[p], back[p], rest, left.shape[1], K)
        inside += _square(rest, left.shape[1])
        if old_s[p] != 0:
            residual(QT, old_QT[p], turn[p], rest, QT.shape[1], K)
            outside += _square(rest, QT.shape[1]) * old_s[p] * old_s[p]
    return np.sqrt(inside + outside) / np.sqrt(size)


@njit(**WITHIN)
def _square(x, n):
    total = 0.0
    for t in range(n):
        total += np.float64(x[t]) * x[t]
    return total


@njit(**OPTIONS)
def scale(PT, s, rank, left):
    """`Grid.scale`"""
    for q in range(s.shape[0]):
        if q >= rank:
            s[q] = 0
        source, target, by = PT[q], left[q], s[q]
        for t in range(source.shape[0]):
            target[t] = by * source[t]


@njit(**OPTIONS)
def record(numbers, held, sums, change, zeta, s):
    """The numbers of an iteration; `held` has the threshold and the outliers of the one before, then its own."""
    square, n_out = 0.0, 0.0
    for p in range(sums.shape[0]):
        square += sums[p, 0]
        n_out += sums[p, 1]
    numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] = square, held[1], held[0], change, zeta
    for q in range(s.shape[0]):
        numbers[5 + q] = s[q]
    held[0], held[1] = zeta, n_out


@njit(**OPTIONS)
def floor_threshold(i, j, y, left, QT, used, zeta, floor, sizes):
    """`Grid.floor_threshold`; `sizes` is float64 memory (2, n_entries)."""
    lowest, times = y.dtype.type(zeta), y.dtype.type(floor)
    n = y.shape[0]
    if times == 0 or n == 0:
        return np.float64(lowest)
    most = QT.shape[1]
    D, e, of_row = np.empty((used, most), y.dtype), np.empty(most, y.dtype), np.empty(used)
    middle, below, low = (n - 1) // 2, 0, 0
    while low < n:
        high = low + 1
        while high < n and i[high] == i[low] and high - low < most:  # entries of one row stand together
            high += 1
        m = high - low
        _gather(j[low:high], QT, D, m, used)
        for q in range(used):
            of_row[q] = left[q, i[low]]
        residual(D, y[low:high], of_row, e, m, used)
        of_sample = sizes[0, low:high]
        for t in range(m):
            size = abs(e[t])
            of_sample[t] = size
            below += times * size <= lowest
        if below > middle:  # so the median does not hold the threshold up, whatever it is
            return np.float64(lowest)
        low = high
    return np.float64(times * y.dtype.type(_select(sizes[0], sizes[1], middle)))


_BINS, _FINE = 1 << 12, 46  # bins of a 64th of a binade; the last is for all that is 64 binades below the largest, or less


@njit(**WITHIN)
def _select(x, memory, k):
    """The number at place k if x, none of which is negative, were sorted. Their bits are sorted as they are."""
    bits, kept = x.view(np.int64), memory.view(np.int64)
    n = x.shape[0]
    top = np.int64(0)
    for t in range(n):
        top = max(top, bits[t])
    bins = np.zeros(_BINS, np.int64)
    for t in range(n):
        bins[min((top - bits[t]) >> _FINE, _BINS - 1)] += 1
    place, chosen = n - 1 - k, 0  # counted from the largest
    while place >= bins[chosen]:
        place -= bins[chosen]
        chosen += 1
    few, low, high = 0, top, np.int64(0)
    for t in range(n):
        if min((top - bits[t]) >> _FINE, _BINS - 1) == chosen:
            kept[few] = bits[t]
            low, high = min(low, bits[t]), max(high, bits[t])
            few += 1
    while low < high:  # halve: how many of these few are above the middle
        middle = low + (high - low) // 2
        above = 0
        for t in range(few):
            above += kept[t] > middle
        if above > place:
            low = middle + 1
        else:
            high = middle
    kept[0] = low
    return memory[0]


@njit(**OPTIONS)
def held_out(indptr, index, unit_ids, index_ids, key, share, out):
    """`passes.held_out`"""
    for unit in range(indptr.shape[0] - 1):
        for t in range(indptr[unit], indptr[unit + 1]):
            out[t] = uniform(unit_ids[unit], index_ids[index[t]], key) < share
