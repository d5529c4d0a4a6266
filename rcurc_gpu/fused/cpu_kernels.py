"""The kernels that Numba compiles for the CPU.

Each factory makes a kernel for one rank (or width): with the rank a constant the compiler unrolls what it runs over, which
is worth a factor of three. Kernels are plain loops over a range of units or rows, without Python's lock; `cpu` hands the
ranges to threads. That compiles four times faster than Numba's own parallel loops and needs no threading layer.
"""

# Numba reads types from arguments and the constants of a factory from its closure; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

from functools import cache

import numpy as np
from numba import njit

from ..hashing import MIX_1, MIX_2
from ..look import LEAST_HELD, PART
from ..regress import TIGHT

# Sums may be reordered and products fused; NaN and infinity keep their meaning.
_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
ZERO, GIVEN, PART_OF, SUBSETS, STEPS, MEASURE = range(6)  # where a look begins; and what a solve is for

_MIX_1, _MIX_2 = np.uint64(MIX_1), np.uint64(MIX_2)
_11, _27, _30, _31, _32 = (np.uint64(k) for k in (11, 27, 30, 31, 32))


@njit(nogil=True, cache=True, inline="always")
def _uniform(i, j, key):
    """`hashing.uniform_at` for one position; `key` is made of the seed and the stream."""
    z = ((np.uint64(i) << _32) + np.uint64(j)) ^ key
    z = (z ^ (z >> _30)) * _MIX_1
    z = (z ^ (z >> _27)) * _MIX_2
    z = z ^ (z >> _31)
    z = (z ^ (z >> _30)) * _MIX_1
    z = z ^ (z >> _31)
    return np.float64(z >> _11) * 2.0**-53


@cache
def regress_kernel(R: int):
    """The kernel of `look.regress` for rank `R`."""

    @njit(**_OPTIONS)
    def regress(
        indptr, index, value, units, basis, usable, white, unit_names, index_names, transposed, keys, share,
        begin, number, start, zeta0, floor, gamma, max_steps, telling, a_out, table
    ):  # fmt: skip
        longest = 0
        for k in range(units.shape[0]):
            longest = max(longest, indptr[units[k] + 1] - indptr[units[k]])
        eps = np.finfo(value.dtype).eps
        D = np.empty((R, longest), value.dtype)  # one row for each unknown: inner loops run along the entries
        y = np.empty(longest, value.dtype)
        res = np.empty(longest, value.dtype)
        fit = np.empty(longest, value.dtype)
        w = np.empty(longest, value.dtype)  # the weights of the Gram matrix
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
                    u = _uniform(index_names[i], name, keys[0]) if transposed else _uniform(name, index_names[i], keys[0])
                    if u < share:
                        fit[t] = -1 - fit[t]  # held out: below 0
                        n_held += 1
                for q in range(R):
                    D[q, t] = basis[i, q]
            for t in range(m):
                count += max(fit[t], 0)
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
                _residual(D, y, a, res, m, R)
            elif begin == PART_OF or begin == SUBSETS:
                phase = begin
            if max_steps == 0:
                phase = MEASURE
            step = 0  # of the phase
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
                        if fit[t] > 0 and _uniform(name, t, keys[1]) < PART:
                            flip[n_flips] = t
                            n_flips += 1
                else:
                    for p in range(R):
                        b[p] = 0.0
                        for q in range(R):
                            G[p, q] = 0.0
                    for draw in range(R if m > 0 else 0):
                        t = int(_uniform(name, step * R + draw, keys[2]) * m)
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
                    if 2 * n_flips > m:
                        for p in range(R):
                            for q in range(p + 1):
                                total = 0.0
                                for t in range(m):
                                    total += w[t] * D[p, t] * D[q, t]
                                G[p, q] = total
                    else:
                        for f in range(n_flips):
                            t = flip[f]
                            sign = 2.0 * w[t] - 1.0
                            for p in range(R):
                                v = sign * D[p, t]
                                for q in range(p + 1):
                                    G[p, q] += v * D[q, t]
                if phase == MEASURE:
                    break
                if changed or step == 0 or phase == SUBSETS:
                    if phase != SUBSETS:
                        for p in range(R):
                            total = 0.0
                            for t in range(m):
                                total += w[t] * y[t] * D[p, t]
                            b[p] = total
                    _cholesky(G, L, eps, R)
                    for p in range(R):
                        total = b[p]
                        for q in range(p):
                            total -= L[p, q] * a[q]
                        a[p] = total / L[p, p]
                    for p in range(R - 1, -1, -1):
                        total = a[p]
                        for q in range(p + 1, R):
                            total -= L[q, p] * a[q]
                        a[p] = total / L[p, p]
                    _residual(D, y, a, res, m, R)
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
                        _residual(D, y, a, res, m, R)
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
            for p in range(R):  # M = white G white^T, through L
                for q in range(R):
                    total = 0.0
                    for s in range(R):
                        total += white[p, s] * G[s, q]
                    L[p, q] = total
            for p in range(R):
                for q in range(R):
                    total = 0.0
                    for s in range(R):
                        total += L[p, s] * white[q, s]
                    M[p, q] = total
            size = _cholesky(M, L, eps, R)
            trace = 0.0
            for p in range(R):  # columns of the inverse of L
                for q in range(p, R):
                    total = 1.0 if q == p else 0.0
                    for s in range(p, q):
                        total -= L[q, s] * b[s]
                    b[q] = total / L[q, q]
                    trace += b[q] * b[q]
            for q in range(R):
                a_out[k, q] = a[q]
            table[k, 0] = count
            table[k, 1] = n_in
            table[k, 2] = spread
            table[k, 3] = 1.0 if size * trace >= R / np.sqrt(eps) else 0.0
            table[k, 4] = spread * np.sqrt(trace)
            table[k, 5] = n_telling
            table[k, 6] = n_held
            table[k, 7] = n_agree

    return regress


@njit(inline="always")
def _residual(D, y, a, res, m, R):
    """res = y - D a"""
    for t in range(m):
        res[t] = y[t]
    for q in range(R):
        coefficient = res.dtype.type(a[q])
        for t in range(m):
            res[t] -= coefficient * D[q, t]


@njit(inline="always")
def _cholesky(G, L, eps, R):
    """L L^T = G + ridge, from the lower half of G; the trace with the ridge."""
    size = 0.0
    for p in range(R):
        size += G[p, p]
    ridge = eps * size if size > 0 else 1.0
    for p in range(R):
        for q in range(p + 1):
            total = G[p, q]
            for s in range(q):
                total -= L[p, s] * L[q, s]
            if p == q:
                L[p, p] = np.sqrt(max(total + ridge, ridge))
            else:
                L[p, q] = total / L[q, q]
    return size + R * ridge


@njit(nogil=True, cache=True)
def _middle(res, fit, m, wanted):
    """`regress.middle_residual` of one unit."""
    low = 0.0
    high = 0.0
    for t in range(m):
        if fit[t] > 0:
            high = max(high, abs(res[t]))
    for _ in range(30):
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


@cache
def advance_kernel(R: int):
    """The kernel of `follow.advance` for rank `R`."""

    @njit(**_OPTIONS)
    def advance(
        indptr, index, value, units, usable, unit_names, index_names, transposed, key, share,
        bases, turns, zetas, step_size, a_out, sums
    ):  # fmt: skip
        longest = 0
        for k in range(units.shape[0]):
            longest = max(longest, indptr[units[k] + 1] - indptr[units[k]])
        y = np.empty(longest, value.dtype)
        E = np.empty(longest, value.dtype)  # the residual before the step, then its inlying part
        out = np.empty(longest, value.dtype)  # its outlying part
        fit = np.empty(longest, value.dtype)
        D = np.empty((R, longest), value.dtype)
        a = np.empty(R)
        turned = np.empty(R)
        for k in range(units.shape[0]):
            unit = units[k]
            low = indptr[unit]
            m = indptr[unit + 1] - low
            name = unit_names[unit]
            hold = share > 0 and m >= LEAST_HELD * R
            for t in range(m):
                i = index[low + t]
                y[t] = value[low + t]
                fit[t] = usable[i]
                if hold:
                    u = _uniform(index_names[i], name, key) if transposed else _uniform(name, index_names[i], key)
                    if u < share:
                        fit[t] = 0
            for q in range(R):
                a[q] = a_out[k, q]
                for t in range(m):
                    D[q, t] = bases[0, index[low + t], q]
            _residual(D, y, a, E, m, R)
            for t in range(m):
                E[t] *= fit[t]
            for step in range(turns.shape[0]):
                zeta = value.dtype.type(zetas[step])
                n_out = 0.0
                for t in range(m):
                    inlying = abs(E[t]) < zeta
                    out[t] = E[t] * 0 if inlying else E[t]
                    n_out += fit[t] * (0 if inlying else 1)
                    E[t] -= out[t]
                for t in range(m):
                    i = index[low + t]
                    for q in range(R):
                        D[q, t] = bases[step + 1, i, q]
                for q in range(R):
                    total = 0.0
                    for t in range(m):
                        total += E[t] * D[q, t]
                    turned[q] = step_size * total
                    for s in range(R):
                        turned[q] += a[s] * turns[step, s, q]
                for q in range(R):
                    a[q] = turned[q]
                _residual(D, y, a, E, m, R)
                square = 0.0
                for t in range(m):
                    E[t] *= fit[t]
                    rest = E[t] - out[t]
                    square += rest * rest
                sums[step, 0] += square
                sums[step, 1] += n_out
            for q in range(R):
                a_out[k, q] = a[q]

    return advance


@cache
def threshold_kernel(K: int):
    """The kernel of `Grid.threshold` for `K` columns: rows ``first`` to ``last``."""

    @njit(**_OPTIONS)
    def threshold(indptr, index, value, weight, first, last, left, Q, zeta, S, G, Z, sums):
        square = 0.0
        n_out = 0
        for i in range(first, last):
            z = np.zeros(K)
            for t in range(indptr[i], indptr[i + 1]):
                j = index[t]
                x = 0.0
                for q in range(K):
                    x += left[i, q] * Q[j, q]
                e = value[t] - x
                rest = e - S[t]
                square += rest * rest
                out = abs(e) >= zeta
                n_out += out
                S[t] = e if out else 0.0
                g = 0.0 if out else weight[t] * e
                G[t] = g
                for q in range(K):
                    z[q] += g * Q[j, q]
            for q in range(K):
                Z[i, q] = left[i, q] + z[q]
        sums[0] = square
        sums[1] = n_out

    return threshold


@cache
def mul_kernel(K: int):
    """The kernel of `Grid.mul` for `K` columns."""

    @njit(**_OPTIONS)
    def mul(indptr, index, first, last, G, X, Z):
        for i in range(first, last):
            z = np.zeros(K)
            for t in range(indptr[i], indptr[i + 1]):
                for q in range(K):
                    z[q] += G[t] * X[index[t], q]
            for q in range(K):
                Z[i, q] = z[q]

    return mul


@cache
def rmul_kernel(K: int):
    """The kernel of `Grid.rmul` for `K` columns; each piece adds to an output of its own."""

    @njit(**_OPTIONS)
    def rmul(indptr, index, first, last, G, P, out):
        for i in range(first, last):
            for t in range(indptr[i], indptr[i + 1]):
                for q in range(K):
                    out[index[t], q] += G[t] * P[i, q]

    return rmul


@njit(**_OPTIONS)
def inlying(indptr, index, value, left, Q, zeta, kept, by_row, by_col):
    """`Grid.inlying`, for any number of columns."""
    for i in range(indptr.shape[0] - 1):
        for t in range(indptr[i], indptr[i + 1]):
            x = 0.0
            for q in range(left.shape[1]):
                x += left[i, q] * Q[index[t], q]
            e = value[t] - x
            inside = abs(e) < zeta
            kept[t] = e if inside else 0.0
            by_row[i] += inside
            by_col[index[t]] += inside


@njit(**_OPTIONS)
def residual_sizes(i, j, y, left, Q, out):
    """abs(y - (left Q^T)_ij) at a list of entries."""
    for t in range(out.shape[0]):
        x = 0.0
        for q in range(left.shape[1]):
            x += left[i[t], q] * Q[j[t], q]
        out[t] = abs(y[t] - x)


@njit(nogil=True, cache=True)
def held_out(i, j, key, share):
    """`look.is_held_out`"""
    out = np.empty(i.shape[0], np.bool_)
    for t in range(i.shape[0]):
        out[t] = _uniform(i[t], j[t], key) < share
    return out
