"""The kernels that Numba compiles for the CPU.

Inner loops run along the entries of a unit, over arrays with one row for each unknown: vectors then do not depend on the
rank. A rank known to the compiler gains a fifth to a quarter at rank 5 and nothing at rank 20 (bench/cpu_tools.py), and
costs 12 s of compiling for each rank.
Kernels are plain loops over a range of units or rows, without Python's lock; `threads` hands the ranges to all cores. That
compiles faster than Numba's own parallel loops and needs no threading layer.
"""

# Numba reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ..hashing import MIX_1, MIX_2
from ..look import LEAST_HELD, PART
from ..regress import HALVINGS, RIDGE, TIGHT
from .caching import can_cache

# Sums may be reordered and products fused; NaN and infinity keep their meaning.
OPTIONS: Any = {"nogil": True, "cache": can_cache(), "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
LANES = 16  # entries are padded to a multiple of this
ZERO, GIVEN, PART_OF, SUBSETS, STEPS, MEASURE = range(6)  # where a look begins; and what a solve is for

_MIX_1, _MIX_2 = np.uint64(MIX_1), np.uint64(MIX_2)
_11, _27, _30, _31, _32 = (np.uint64(k) for k in (11, 27, 30, 31, 32))


@njit(inline="always")
def uniform(i, j, key):
    """`hashing.uniform_at` for one position; `key` is made of the seed and the stream."""
    return hashed(pair_of(np.uint64(i), np.uint64(j)) ^ key)


@njit(inline="always")
def pair_of(i, j):
    """A position as one word."""
    return (i << _32) + j


@njit(inline="always")
def hashed(z):
    """`hashing.uniform_at` for a word made of position and key."""
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    z = z ^ (z >> _31)
    z = (z ^ (z >> _30)) * _MIX_1
    z = z ^ (z >> _31)
    return np.float64(z >> _11) * 2.0**-53


@njit(**OPTIONS)
def regress(
    indptr, index, value, units, basis, usable, white, unit_names, index_names, transposed, keys, share,
    begin, number, start, zeta0, floor, gamma, max_steps, telling, a_out, table
):  # fmt: skip
    """`look.regress` for some units."""
    R = basis.shape[1]
    longest = LANES
    for k in range(units.shape[0]):
        longest = max(longest, indptr[units[k] + 1] - indptr[units[k]] + LANES)
    eps = np.finfo(value.dtype).eps
    D = np.empty((R, longest), value.dtype)  # one row for each unknown: inner loops run along the entries
    y = np.empty(longest, value.dtype)
    res = np.empty(longest, value.dtype)
    fit = np.empty(longest, value.dtype)
    w = np.empty(longest, value.dtype)  # the weights of the Gram matrix
    wy = np.empty(longest, value.dtype)
    flip = np.empty(longest, np.int64)
    G = np.empty((R, R))
    L = np.empty((R, R))
    M = np.empty((R, R))
    b = np.empty(R)
    a = np.empty(R)
    best = np.empty(R)
    for k in range(units.shape[0]):
        unit = units[k]
        low = indptr[unit]
        m = indptr[unit + 1] - low
        name = unit_names[unit]
        # ---- load
        count = 0.0
        n_held = 0
        hold = share > 0 and m >= LEAST_HELD * R
        for t in range(m):
            i = index[low + t]
            y[t] = value[low + t]
            res[t] = value[low + t]
            w[t] = 0
            fit[t] = usable[i]
            if hold:
                u = uniform(index_names[i], name, keys[0]) if transposed else uniform(name, index_names[i], keys[0])
                if u < share:
                    fit[t] = -1 - fit[t]  # held out: below 0
                    n_held += 1
            for q in range(R):
                D[q, t] = basis[i, q]
            count += max(fit[t], 0)
        n_entries = m
        while m % LANES:  # zeros, so that vector loops leave no rest
            y[m] = 0
            res[m] = 0
            w[m] = 0
            fit[m] = 0
            for q in range(R):
                D[q, m] = 0
            m += 1
        # ---- where to begin
        zeta = zeta0
        phase = STEPS
        for q in range(R):
            a[q] = 0.0
            best[q] = 0.0
            b[q] = 0.0
        for p in range(R):
            for q in range(R):
                G[p, q] = 0.0
        if begin == GIVEN:
            for q in range(R):
                a[q] = start[k, q]
            residual(D, y, a, res, m, R)
        elif begin == PART_OF or begin == SUBSETS:
            phase = begin
        if max_steps == 0:
            phase = MEASURE
        step = 0  # of the phase
        largest = 0.0  # trace that the Gram matrix had since it was last computed anew
        most = 0.0
        changed = True
        while True:
            # ---- weights of this solve
            n_flips = 0
            if phase == STEPS or phase == MEASURE:
                limit = zeta if phase == STEPS else floor
                for t in range(m):
                    keep = fit[t] if abs(res[t]) < limit and fit[t] > 0 else fit[t] * 0
                    flip[n_flips] = t
                    n_flips += keep != w[t]
            elif phase == PART_OF:
                for t in range(m):
                    if fit[t] > 0 and uniform(name, t, keys[1]) < PART:
                        flip[n_flips] = t
                        n_flips += 1
            else:
                for p in range(R):
                    b[p] = 0.0
                    for q in range(R):
                        G[p, q] = 0.0
                for draw in range(R if n_entries > 0 else 0):
                    t = int(uniform(name, step * R + draw, keys[2]) * n_entries)
                    if fit[t] > 0:
                        for p in range(R):
                            b[p] += y[t] * D[p, t]
                            for q in range(p + 1):
                                G[p, q] += np.float64(D[p, t]) * D[q, t]
            # ---- normal equations: the Gram matrix of what changed sides, or of everything if that is less
            if phase != SUBSETS:
                changed = n_flips > 0
                for f in range(n_flips):
                    w[flip[f]] = fit[flip[f]] - w[flip[f]]
                anew = 2 * n_flips > m
                if not anew:
                    for f in range(n_flips):
                        t = flip[f]
                        sign = 2.0 * w[t] - 1.0
                        for p in range(R):
                            v = sign * D[p, t]
                            for q in range(p + 1):
                                G[p, q] += v * D[q, t]
                    size = 0.0
                    for p in range(R):
                        size += G[p, p]
                    largest = max(largest, size)
                    anew = size < 1e-3 * largest  # what is left of much larger numbers is rounding
                if anew:
                    largest = 0.0
                    for p in range(R):
                        for q in range(p + 1):
                            total = 0.0
                            for t in range(m):
                                total += w[t] * D[p, t] * D[q, t]
                            G[p, q] = total
                        largest += G[p, p]
            if phase == MEASURE:
                break
            if changed or step == 0 or phase == SUBSETS:
                if phase != SUBSETS:
                    for t in range(m):
                        wy[t] = w[t] * y[t]
                    products(D, wy, b, m, R)
                _cholesky(G, L, eps, R)
                for p in range(R):
                    total = b[p]
                    for q in range(p):
                        total -= L[p, q] * a[q]
                    a[p] = total * L[p, p]
                for p in range(R - 1, -1, -1):
                    total = a[p]
                    for q in range(p + 1, R):
                        total -= L[q, p] * a[q]
                    a[p] = total * L[p, p]
                residual(D, y, a, res, m, R)
            # ---- what next
            step += 1
            if phase == STEPS:
                n_in = 0.0
                square = 0.0
                for t in range(m):
                    n_in += w[t]
                    square += w[t] * res[t] * res[t]
                spread = np.sqrt(square / max(n_in - R, 1.0))
                done = zeta <= floor and not changed
                lower = gamma * zeta
                if n_in >= 2 * R and n_in >= 0.5 * count:
                    lower = min(lower, TIGHT * spread)
                zeta = max(lower, floor)
                if done or step == max_steps:
                    phase = MEASURE
            elif phase == PART_OF:
                zeta = max(_middle(res, fit, m, PART * count), floor)
                phase = STEPS
                step = 0
                for t in range(m):
                    w[t] = 0
                for p in range(R):
                    for q in range(R):
                        G[p, q] = 0.0
            else:
                agree = 0.0
                for t in range(m):
                    if abs(res[t]) < 3 * floor and fit[t] > 0:
                        agree += 1.0
                if agree > most:
                    most = agree
                    for q in range(R):
                        best[q] = a[q]
                if step >= number:
                    for q in range(R):
                        a[q] = best[q]
                    residual(D, y, a, res, m, R)
                    zeta = 10 * floor
                    phase = STEPS
                    step = 0
                    for p in range(R):
                        for q in range(R):
                            G[p, q] = 0.0
        # ---- measure
        n_in = 0.0
        square = 0.0
        n_telling = 0
        n_agree = 0
        for t in range(m):
            n_in += w[t]
            square += w[t] * res[t] * res[t]
            n_telling += w[t] > 0 and abs(y[t]) > telling
            n_agree += fit[t] < 0 and abs(res[t]) < floor
        spread = np.sqrt(square / max(n_in - R, 1.0))
        for p in range(R):
            for q in range(p + 1, R):
                G[p, q] = G[q, p]
        for p in range(R):  # M = white G white^T, its lower half, through L
            for q in range(R):
                L[p, q] = 0.0
            for s in range(R):
                for q in range(R):
                    L[p, q] += white[p, s] * G[s, q]
        for p in range(R):
            for q in range(p + 1):
                total = 0.0
                for s in range(R):
                    total += L[p, s] * white[q, s]
                M[p, q] = total
        nothing = True  # entries at rows of the basis that are 0 say nothing
        for p in range(R):
            nothing = nothing and M[p, p] == 0
        size = _cholesky(M, L, eps, R)
        trace = 0.0
        for p in range(R):  # columns of the inverse of L
            for q in range(p, R):
                total = 1.0 if q == p else 0.0
                for s in range(p, q):
                    total -= L[q, s] * b[s]
                b[q] = total * L[q, q]
                trace += b[q] * b[q]
        for q in range(R):
            a_out[k, q] = a[q]
        table[k, 0] = count
        table[k, 1] = n_in
        table[k, 2] = spread
        table[k, 3] = 1.0 if nothing or size * trace >= R / np.sqrt(eps) else 0.0
        table[k, 4] = spread * np.sqrt(trace)
        table[k, 5] = n_telling
        table[k, 6] = n_held
        table[k, 7] = n_agree


@njit(inline="always")
def residual(D, y, a, res, m, R):
    """res = y - D a; four columns at a time, or memory is what it waits for"""
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


@njit(inline="always")
def products(D, x, b, m, R):
    """b = D^T x"""
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


@njit(inline="always")
def _cholesky(G, L, eps, R):
    """L L^T = G + ridge, from the lower half of G; the diagonal of L is inverted. Returns the trace with the ridge."""
    size = 0.0
    for p in range(R):
        size += G[p, p]
    ridge = RIDGE * eps * size if size > 0 else 1.0
    for p in range(R):
        for q in range(p + 1):
            total = G[p, q]
            for s in range(q):
                total -= L[p, s] * L[q, s]
            if p == q:
                L[p, p] = 1 / np.sqrt(max(total + ridge, ridge))
            else:
                L[p, q] = total * L[q, q]
    return size + R * ridge


@njit(**OPTIONS)
def _middle(res, fit, m, wanted):
    """`regress.middle_residual` of one unit."""
    low = 0.0
    high = 0.0
    for t in range(m):
        if fit[t] > 0:
            high = max(high, abs(res[t]))
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        n = 0.0
        for t in range(m):
            if fit[t] > 0 and abs(res[t]) <= middle:
                n += 1.0
        if n >= wanted:
            high = middle
        else:
            low = middle
    return high
