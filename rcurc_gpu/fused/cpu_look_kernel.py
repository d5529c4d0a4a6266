"""The kernel of the extension that Numba compiles for the CPU: eight units side by side, one in each lane of a vector.

Sums then need no reduction over lanes, and the small systems of eight units are solved in the time of one. A unit so long that
eight of them would not stay in the cache goes alone: its entries are dealt to the lanes, and the lanes of every sum are added.
"""

# Numba looks at the age of this file alone: after a change of `cpu_kernels` or `vectors`, touch it, or what was compiled before
# is used. It reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np
from numba import njit

from ..look import LEAST_HELD, PART
from ..regress import HALVINGS, RIDGE, TIGHT
from .cpu_kernels import OPTIONS, _32, hashed, uniform
from .vectors import LANES, load, root, size, splat, store, total, where

ZERO, GIVEN, PART_OF, SUBSETS = range(4)  # where a look begins
CACHED = 1 << 19  # bytes of basis rows that stay close to a core
_ROWS = 4  # rows of a buffer come in multiples of this
_INLINE = {**OPTIONS, "cache": False}


@njit(**OPTIONS)
def regress(
    indptr, index, value, units, order, basis, usable, white, unit_names, index_names, transposed, keys, share,
    begin, number, start, zeta0, floor, gamma, max_steps, telling, dims, a_out, table
):  # fmt: skip
    """`look.regress` for some units, taken in an `order` in which those of about the same length are neighbours."""
    R = len(dims)
    U = units.shape[0]
    alone_above = CACHED // (8 * LANES * R)
    longest = 0
    for k in range(U):
        m = indptr[units[k] + 1] - indptr[units[k]]
        longest = max(longest, m if m <= alone_above else m // LANES + 1)
    longest += _ROWS
    eps = np.finfo(value.dtype).eps
    D = _vectors(R * longest)  # the rows of the basis: row t R + q has the unknown q of entry t
    y = _vectors(longest)
    res = _vectors(longest)
    fit = _vectors(longest)  # 1 in the fit, 0 not, below 0 held out
    w = _vectors(longest)  # 1 for inliers
    held = _vectors(longest)  # the share to hold out, then 1 if held out
    flat_y, flat_fit, drawn = y.ravel(), fit.ravel(), held.ravel()
    place = np.empty(longest * LANES, np.uint64)
    pair = np.empty(longest * LANES, np.uint64)
    key = keys[0]
    G = _vectors(R * R)
    L = _vectors(R * R)
    M = _vectors(R * R)
    a = _vectors(R)
    b = _vectors(R)
    numbers = _vectors(8)
    T = _vectors(R * R)
    n_draws = R + -R % _ROWS
    drawn_D = _vectors(n_draws * R)
    drawn_y = _vectors(n_draws)
    drawn_w = _vectors(n_draws)
    best = _vectors(R)
    for p in range(R * R):
        store(T, p, splat(np.float64(white[p // R, p % R])))
    zero, one = splat(0.0), splat(1.0)
    low_limit = splat(floor)
    k = 0
    while k < U:
        # ---- load
        n = 0  # units of this round
        rows = 0
        alone = False
        while n < LANES and k + n < U:
            m = indptr[units[order[k + n]] + 1] - indptr[units[order[k + n]]]
            if m > alone_above:
                if n > 0:
                    break
                alone = True
            rows = max(rows, m // LANES + 1 if alone else m)
            n += 1
            if alone:
                break
        rows += -rows % _ROWS
        stride = 1 if alone else LANES  # entry t of a unit is number t * stride + lane of a flattened buffer
        for lane in range(1 if alone else LANES):
            unit = units[order[k + lane]] if lane < n else -1
            low, high = (indptr[unit], indptr[unit + 1]) if lane < n else (0, 0)
            limit = share if high - low >= LEAST_HELD * R else 0.0
            name = unit_names[unit] if lane < n else 0
            _load(index, value, low, high, name, index_names, usable, transposed, limit, lane, stride,
                  place, pair, flat_y, flat_fit, drawn, rows * LANES)
        if share > 0:
            for f in range(rows * LANES):
                drawn[f] = 1.0 if hashed(pair[f] ^ key) < drawn[f] else 0.0
        count = zero
        n_held = zero
        for t in range(rows):
            out = load(held, t)
            f = load(fit, t)
            n_held = n_held + out
            count = count + (one - out) * f
            store(fit, t, where(out, zero - one - f, f))
            store(w, t, zero)
        count = _all(count, alone)
        store(numbers, 0, count)
        store(numbers, 6, _all(n_held, alone))
        _gather(basis, place, D, rows, dims)
        for q in range(R):
            store(a, q, zero)
        if begin == GIVEN:
            for lane in range(LANES):
                for q in range(R):
                    a[q, lane] = start[order[k if alone else min(k + lane, U - 1)], q]
        # ---- where to begin
        zeta = splat(zeta0)
        if begin == PART_OF:
            for lane in range(n):
                unit = units[order[k + lane]]
                name = unit_names[unit]
                for t in range(indptr[unit + 1] - indptr[unit]):
                    row = t // LANES if alone else t
                    column = t % LANES if alone else lane
                    if fit[row, column] > 0 and uniform(name, t, keys[1]) < PART:
                        w[row, column] = 1
            _normal_equations(D, y, w, G, b, rows, dims, alone)
            _solve(G, L, b, a, eps, dims)
            _residuals(D, y, a, w, res, rows, dims, alone)
            zeta = _larger(_middle(res, fit, rows, splat(PART) * count, alone), low_limit)
        elif begin == SUBSETS:
            most = zero
            for q in range(R):
                store(best, q, zero)
            for draw in range(number):
                for lane in range(n):
                    unit = units[order[k + lane]]
                    m = indptr[unit + 1] - indptr[unit]
                    for d in range(R if m > 0 else 0):
                        t = int(uniform(unit_names[unit], draw * R + d, keys[2]) * m)
                        row = t // LANES if alone else t
                        column = t % LANES if alone else lane
                        drawn_y[d, lane] = y[row, column]
                        drawn_w[d, lane] = 1.0 if fit[row, column] > 0 else 0.0
                        for q in range(R):
                            drawn_D[d * R + q, lane] = D[row * R + q, column]
                _normal_equations(drawn_D, drawn_y, drawn_w, G, b, n_draws, dims, alone)
                _solve(G, L, b, a, eps, dims)
                _residuals(D, y, a, w, res, rows, dims, alone)
                agree = zero
                for t in range(rows):
                    agree = agree + (size(load(res, t)) < splat(3 * floor)) * (zero < load(fit, t))
                agree = _all(agree, alone)
                better = most < agree
                most = where(better, agree, most)
                for q in range(R):
                    store(best, q, where(better, load(a, q), load(best, q)))
            for q in range(R):
                store(a, q, load(best, q))
            for lane in range(LANES):
                for d in range(R):
                    drawn_w[d, lane] = 0
            zeta = splat(10 * floor)
        if begin == PART_OF:
            for t in range(rows):
                store(w, t, zero)
        n_in, square = _residuals(D, y, a, w, res, rows, dims, alone)
        # ---- steps
        active = one
        for step in range(max_steps):
            changed = _all(_classify(res, fit, w, zeta, active, rows), alone)
            if step == 0 or total(changed) > 0:
                _normal_equations(D, y, w, G, b, rows, dims, alone)
                _solve(G, L, b, a, eps, dims)
                n_in, square = _residuals(D, y, a, w, res, rows, dims, alone)
            spread = root(square / _larger(n_in - splat(np.float64(R)), one))
            active = active * (one - (zeta <= low_limit) * (changed == zero))
            lower = splat(gamma) * zeta
            trust = (splat(2.0 * R) <= n_in) * (splat(0.5) * count <= n_in) * (splat(TIGHT) * spread < lower)
            zeta = _larger(where(trust, splat(TIGHT) * spread, lower), low_limit)
            if total(active) == 0:
                break
        # ---- measure
        changed = _classify(res, fit, w, low_limit, one, rows)
        if max_steps == 0 or total(changed) > 0:
            _normal_equations(D, y, w, G, b, rows, dims, alone)
        _measure(G, L, M, T, b, res, fit, w, y, numbers, floor, telling, eps, rows, dims, alone)
        for lane in range(n):
            for q in range(R):
                a_out[order[k + lane], q] = a[q, lane]
            for s in range(8):
                table[order[k + lane], s] = numbers[s, lane]
        k += n


@njit(**_INLINE)
def _vectors(n):
    """An array (n, LANES) of zeros whose rows are lines of the cache."""
    room = np.zeros((n + 1) * LANES)
    first = -(room.ctypes.data // 8) % LANES
    return room[first : first + n * LANES].reshape(n, LANES)


@njit(**_INLINE)
def _load(index, value, low, high, name, index_names, usable, transposed, limit, lane, stride, place, pair, y, fit, drawn, end):
    """Bring the entries of a unit to their places; unsigned numbers are those that Numba does not look at for being negative."""
    f = np.uint64(lane)
    step = np.uint64(stride)
    name = np.uint64(name)
    for e in range(np.uint64(low), np.uint64(high)):
        i = np.uint64(index[e])
        place[f] = i
        other = np.uint64(index_names[i])
        pair[f] = (other << _32) + name if transposed else (name << _32) + other
        y[f] = value[e]
        fit[f] = usable[i]
        drawn[f] = limit
        f += step
    while f < np.uint64(end):
        place[f] = 0  # any: it takes no part
        y[f] = 0.0
        fit[f] = 0.0
        drawn[f] = 0.0
        f += step


@njit(**_INLINE)
def _gather(basis, place, D, rows, dims):
    """Rows of the basis."""
    R = len(dims)
    for t in range(rows):
        f = np.uint64(t * LANES)
        for lane in range(LANES):
            i = place[f + np.uint64(lane)]
            for q in range(R):
                D[t * R + q, lane] = basis[i, q]


@njit(**_INLINE)
def _all(x, alone):
    """The sum of the lanes in each of them, if they are those of one unit."""
    return splat(total(x)) if alone else x


@njit(**_INLINE)
def _larger(x, y):
    return where(x < y, y, x)


@njit(**_INLINE)
def _classify(res, fit, w, limit, active, rows):
    """Let `w` be 1 where the residual is below the limit; how many entries of each lane changed."""
    changed = splat(0.0)
    for t in range(rows):
        last = load(w, t)
        keep = where(active, (size(load(res, t)) < limit) * (splat(0.0) < load(fit, t)), last)
        changed = changed + size(keep - last)
        store(w, t, keep)
    return changed


@njit(**_INLINE)
def _normal_equations(D, y, w, G, b, rows, dims, alone):
    """G = D^T diag(w) D, its lower half, and b = D^T diag(w) y; four entries at a time, or memory is what it waits for."""
    R = len(dims)
    for p in range(R):
        store(b, p, splat(0.0))
        for q in range(p + 1):
            store(G, p * R + q, splat(0.0))
    for t in range(0, rows, _ROWS):
        w0, w1, w2, w3 = load(w, t), load(w, t + 1), load(w, t + 2), load(w, t + 3)
        y0, y1, y2, y3 = load(y, t), load(y, t + 1), load(y, t + 2), load(y, t + 3)
        i0, i1, i2, i3 = t * R, (t + 1) * R, (t + 2) * R, (t + 3) * R
        for p in range(R):
            x0, x1, x2, x3 = w0 * load(D, i0 + p), w1 * load(D, i1 + p), w2 * load(D, i2 + p), w3 * load(D, i3 + p)
            store(b, p, load(b, p) + ((x0 * y0 + x1 * y1) + (x2 * y2 + x3 * y3)))
            for q in range(p + 1):
                more = (x0 * load(D, i0 + q) + x1 * load(D, i1 + q)) + (x2 * load(D, i2 + q) + x3 * load(D, i3 + q))
                store(G, p * R + q, load(G, p * R + q) + more)
    if alone:
        for p in range(R):
            store(b, p, splat(total(load(b, p))))
            for q in range(p + 1):
                store(G, p * R + q, splat(total(load(G, p * R + q))))


@njit(**_INLINE)
def _residuals(D, y, a, w, res, rows, dims, alone):
    """res = y - D a; the number of inliers and the sum of their squares."""
    R = len(dims)
    n_in = splat(0.0)
    square = splat(0.0)
    for t in range(0, rows, _ROWS):
        x0, x1, x2, x3 = load(y, t), load(y, t + 1), load(y, t + 2), load(y, t + 3)
        i0, i1, i2, i3 = t * R, (t + 1) * R, (t + 2) * R, (t + 3) * R
        for q in range(R):
            c = load(a, q)
            x0 = x0 - c * load(D, i0 + q)
            x1 = x1 - c * load(D, i1 + q)
            x2 = x2 - c * load(D, i2 + q)
            x3 = x3 - c * load(D, i3 + q)
        store(res, t, x0)
        store(res, t + 1, x1)
        store(res, t + 2, x2)
        store(res, t + 3, x3)
        w0, w1, w2, w3 = load(w, t), load(w, t + 1), load(w, t + 2), load(w, t + 3)
        n_in = n_in + ((w0 + w1) + (w2 + w3))
        square = square + ((w0 * x0 * x0 + w1 * x1 * x1) + (w2 * x2 * x2 + w3 * x3 * x3))
    return _all(n_in, alone), _all(square, alone)


@njit(**_INLINE)
def _cholesky(G, L, eps, dims):
    """L L^T = G + ridge, from the lower half of G; the diagonal of L is inverted. Returns the trace with the ridge."""
    R = len(dims)
    trace = splat(0.0)
    for p in range(R):
        trace = trace + load(G, p * R + p)
    ridge = where(splat(0.0) < trace, splat(RIDGE * eps) * trace, splat(1.0))
    for p in range(R):
        for q in range(p + 1):
            rest = load(G, p * R + q)
            for s in range(q):
                rest = rest - load(L, p * R + s) * load(L, q * R + s)
            if p == q:
                store(L, p * R + p, splat(1.0) / root(_larger(rest + ridge, ridge)))
            else:
                store(L, p * R + q, rest * load(L, q * R + q))
    return trace + splat(np.float64(R)) * ridge


@njit(**_INLINE)
def _solve(G, L, b, a, eps, dims):
    """a = (G + ridge)^-1 b"""
    R = len(dims)
    _cholesky(G, L, eps, dims)
    for p in range(R):
        rest = load(b, p)
        for q in range(p):
            rest = rest - load(L, p * R + q) * load(a, q)
        store(a, p, rest * load(L, p * R + p))
    for p in range(R - 1, -1, -1):
        rest = load(a, p)
        for q in range(p + 1, R):
            rest = rest - load(L, q * R + p) * load(a, q)
        store(a, p, rest * load(L, p * R + p))


@njit(**_INLINE)
def _middle(res, fit, rows, wanted, alone):
    """`regress.middle_residual`."""
    low = splat(0.0)
    high = splat(0.0)
    for t in range(rows):
        high = _larger(high, where(splat(0.0) < load(fit, t), size(load(res, t)), high))
    if alone:
        high = splat(_largest(high))
    for _ in range(HALVINGS):
        middle = splat(0.5) * (low + high)
        n = splat(0.0)
        for t in range(rows):
            n = n + (size(load(res, t)) <= middle) * (splat(0.0) < load(fit, t))
        enough = wanted <= _all(n, alone)
        high = where(enough, middle, high)
        low = where(enough, low, middle)
    return high


@njit(**_INLINE)
def _largest(x):
    lanes = np.empty((1, LANES))
    store(lanes, 0, x)
    return lanes.max()


@njit(**_INLINE)
def _measure(G, L, M, T, b, res, fit, w, y, numbers, floor, telling, eps, rows, dims, alone):
    """Numbers 1 to 5 and 7 of the table of a look; `T` is the whitener, in all lanes."""
    R = len(dims)
    n_in, square, n_telling, n_agree = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    for t in range(rows):
        weight, x = load(w, t), load(res, t)
        n_in = n_in + weight
        square = square + weight * x * x
        n_telling = n_telling + weight * (splat(telling) < size(load(y, t)))
        n_agree = n_agree + (load(fit, t) < splat(0.0)) * (size(x) < splat(floor))
    n_in = _all(n_in, alone)
    spread = root(_all(square, alone) / _larger(n_in - splat(np.float64(R)), splat(1.0)))
    for p in range(R):
        for q in range(p + 1, R):
            store(G, p * R + q, load(G, q * R + p))
    for p in range(R):  # M = T G T^T, its lower half, through L
        for q in range(R):
            x = splat(0.0)
            for s in range(R):
                x = x + load(T, p * R + s) * load(G, s * R + q)
            store(L, p * R + q, x)
    something = splat(0.0)  # entries at rows of the basis that are 0 say nothing
    for p in range(R):
        for q in range(p + 1):
            x = splat(0.0)
            for s in range(R):
                x = x + load(L, p * R + s) * load(T, q * R + s)
            store(M, p * R + q, x)
        something = something + size(load(M, p * R + p))
    trace = _cholesky(M, L, eps, dims)
    inverse = splat(0.0)  # its trace
    for p in range(R):  # columns of the inverse of L
        for q in range(p, R):
            x = splat(1.0 if q == p else 0.0)
            for s in range(p, q):
                x = x - load(L, q * R + s) * load(b, s)
            x = x * load(L, q * R + q)
            store(b, q, x)
            inverse = inverse + x * x
    ill = where(something == splat(0.0), splat(1.0), splat(R / np.sqrt(eps)) <= trace * inverse)
    store(numbers, 1, n_in)
    store(numbers, 2, spread)
    store(numbers, 3, ill)
    store(numbers, 4, spread * root(inverse))
    store(numbers, 5, _all(n_telling, alone))
    store(numbers, 7, _all(n_agree, alone))
