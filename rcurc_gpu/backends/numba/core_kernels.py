"""The kernels of the core's grid that Numba compiles for the CPU; see `entries` for how they are made."""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import math

import numpy as np

from .entries import residual, uniform
from .functions import compact, not_inlined
from .parts import kernel, part
from .small_kernels import dot, inner
from .values import LANES
from .vectors import add_products, following, load, rows_at, splat, store, totals, vectors


@part
def lay_out(QT, lines):
    """Let the lines of `lines` (n, width) begin with the columns of QT (k, n); the rest of each stays 0.

    The numbers of one column of the intersection then stand in one line of the cache, and are a vector or a few.
    """
    compact()
    for q in range(QT.shape[0]):
        for j in range(QT.shape[1]):
            lines[j, q] = QT[q, j]


@part
def fitted_row(lines, own, index, low, high, out):
    """``own . lines[index[t]]`` for t from `low` to `high`, to the beginning of `out`, which has room for whole vectors."""
    not_inlined()
    width, zero = lines.shape[1], splat(0.0)
    none = (zero, zero, zero, zero, zero, zero, zero, zero)
    for t in range(low, high, LANES):
        at, x = following(index, t, high - 1), none
        for c in range(width // LANES):
            x = add_products(x, rows_at(lines, at, width, c * LANES), load(own, c))
        store(out, (t - low) // LANES, totals(x))


@part
def row_sums(lines, G, index, low, high, out):
    """``out = sum_t G[t] lines[index[t]]``, t from `low` to `high`."""
    not_inlined()
    width = lines.shape[1] // LANES
    last = high - (high - low) % 4
    for c in range(width):
        a = b = d = e = splat(0.0)  # four, or each sum waits for the one before
        for t in range(low, last, 4):
            a = a + splat(G[t]) * load(lines, width * index[t] + c)
            b = b + splat(G[t + 1]) * load(lines, width * index[t + 1] + c)
            d = d + splat(G[t + 2]) * load(lines, width * index[t + 2] + c)
            e = e + splat(G[t + 3]) * load(lines, width * index[t + 3] + c)
        for t in range(last, high):
            a = a + splat(G[t]) * load(lines, width * index[t] + c)
        store(out, c, (a + b) + (d + e))


@part
def split_rows(indptr, index, value, weight, edges, first, last, left, lines, used, zeta, S, G, Z, sums):
    """`Grid.threshold` for the pieces `first` to `last` of the rows; only the leading `used` rows of `left` are not 0."""
    not_inlined()
    K, (n, width) = Z.shape[0], lines.shape
    e, own, of_row = np.empty(n + LANES), np.zeros(width), np.empty(width)
    limit = value.dtype.type(zeta)
    for piece in range(first, last):
        square = 0.0
        n_out = 0.0
        for i in range(edges[piece], edges[piece + 1]):
            low = indptr[i]
            m = indptr[i + 1] - low
            y, w, s, g = value[low : low + m], weight[low : low + m], S[low : low + m], G[low : low + m]
            for q in range(used):
                own[q] = left[q, i]
            fitted_row(lines, own, index, low, low + m, e)
            for t in range(m):  # not all in one loop: with so many arrays, LLVM would not make vectors of it
                e[t] = y[t] - e[t]
            for t in range(m):
                rest = e[t] - s[t]
                square += rest * rest
                out = abs(e[t]) >= limit
                s[t] = e[t] if out else e[t] * 0
                n_out += 1.0 if out else 0.0
                g[t] = w[t] * (e[t] - s[t])
            row_sums(lines, G, index, low, low + m, of_row)
            for q in range(K):
                Z[q, i] = left[q, i] + of_row[q]
        sums[piece, 0] = square
        sums[piece, 1] = n_out


@part
def add_product(indptr, index, edges, first, last, G, lines, Z):
    """`Grid.mul` for the pieces `first` to `last` of the rows, added to Z (k, m)."""
    not_inlined()
    of_row = np.empty(lines.shape[1])
    for i in range(edges[first], edges[last]):
        row_sums(lines, G, index, indptr[i], indptr[i + 1], of_row)
        for q in range(Z.shape[0]):
            Z[q, i] += of_row[q]


@part
def back_product(indptr, index, edges, first, last, G, PT, parts, full):
    """`Grid.rmul` for the pieces `first` to `last` of the rows, each into its part (k, n).

    Where most of a row is observed (`full`): vectors along it, four rows at a time, zeros included. Else a vector, or a few,
    for each entry: the numbers of its row of the intersection, added to those of its column.
    """
    not_inlined()
    K, n = parts.shape[1:]
    width = (K + LANES - 1) // LANES
    rows, sums, own = np.empty((4, n), G.dtype), vectors(0 if full else n * width), vectors(width)
    for piece in range(first, last):
        out, end = parts[piece], edges[piece + 1]
        if full:
            for q in range(K):
                for j in range(n):
                    out[q, j] = 0
            for i in range(edges[piece], end, 4):
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
            for i in range(edges[piece], end):
                for q in range(K):
                    own[q // LANES, q % LANES] = PT[q, i]
                for c in range(width):
                    x = load(own, c)
                    for t in range(indptr[i], indptr[i + 1]):
                        at = width * index[t] + c
                        store(sums, at, load(sums, at) + splat(G[t]) * x)
            for j in range(n):
                for q in range(K):
                    out[q, j] = sums[width * j + q // LANES, q % LANES]
                for c in range(width):
                    store(sums, width * j + c, splat(0.0))


@part
def add_parts(parts, out):
    """Add the pieces of `back_product` to `out`."""
    not_inlined()
    for q in range(out.shape[0]):
        target = out[q]
        for p in range(parts.shape[0]):
            more = parts[p, q]
            for j in range(target.shape[0]):
                target[j] += more[j]


@kernel
def inlying(indptr, index, value, first, last, left, lines, zeta, kept, by_row, by_col):
    """`Grid.inlying` for rows `first` to `last`; `by_col` is added to."""
    n, width = lines.shape
    e, own = np.empty(n + LANES), np.zeros(width)
    for i in range(first, last):
        low = indptr[i]
        m = indptr[i + 1] - low
        y, where, k = value[low : low + m], index[low : low + m], kept[low : low + m]
        for q in range(left.shape[0]):
            own[q] = left[q, i]
        fitted_row(lines, own, index, low, low + m, e)
        count = 0
        for t in range(m):
            x = y[t] - e[t]
            inside = abs(x) < zeta
            k[t] = x if inside else x * 0
            count += inside
            by_col[np.uint32(where[t])] += inside
        by_row[i] = count


@part
def change(left, QT, old_left, old_QT, old_s, turn, back, rest) -> float:
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


@part
def floor_threshold(i, j, y, left, lines, used, zeta, floor, sizes) -> float:
    """`Grid.floor_threshold`; `sizes` is memory (n_entries,)."""
    not_inlined()
    lowest, times = y.dtype.type(zeta), y.dtype.type(floor)
    n = y.shape[0]
    if times == 0 or n == 0:
        return lowest * 1.0
    most, width = lines.shape
    e, own = np.empty(most + LANES), np.zeros(width)
    middle, below, low = (n - 1) // 2, 0, 0
    while low < n:
        high = low + 1
        while high < n and i[high] == i[low] and high - low < most:  # entries of one row stand together
            high += 1
        for q in range(used):
            own[q] = left[q, i[low]]
        fitted_row(lines, own, j, low, high, e)
        some, of = sizes[low:high], y[low:high]
        for t in range(high - low):
            some[t] = abs(of[t] - e[t])
            below += times * some[t] <= lowest
        if below > middle:  # so the median does not hold the threshold up, whatever it is
            return lowest * 1.0
        low = high
    return 1.0 * (times * _select(sizes, middle))


@part
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


@kernel
def held_out(indptr, index, unit_ids, index_ids, key, share, out):
    """`passes.held_out`"""
    for unit in range(indptr.shape[0] - 1):
        for t in range(indptr[unit], indptr[unit + 1]):
            out[t] = uniform(unit_ids[unit], index_ids[index[t]], key) < share
