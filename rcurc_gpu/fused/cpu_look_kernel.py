"""The kernel of the extension that Numba compiles for the CPU: eight units side by side, one in each lane of a vector.

Sums then need no reduction over lanes, and the small systems of eight units are solved in the time of one. A unit so long
that eight of them would not stay in the cache goes alone: its entries are dealt to the lanes, and the lanes of every sum are
added. Either way entry t of a unit is number ``t * stride + lane`` of a buffer of shape (rows, LANES), and no lane's result
depends on what is in the others.

The rank comes as a number, or as a tuple of that length: it is then part of the type, and the compiler unrolls what it can.
"""

# Numba looks at the age of this file alone: after a change of `cpu_kernels`, `cpu_lanes` or `vectors`, touch it, or what was
# compiled before is used. It reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import overload

from ..look import LEAST_HELD, N_NUMBERS, PART
from ..regress import HALVINGS, TIGHT
from .cpu_kernels import OPTIONS, hashed, pair_of, uniform
from .cpu_lanes import ROWS, WITHIN, all_lanes, classify, larger, measure, normal_equations, number_of, residuals, solve
from .vectors import LANES, load, root, size, splat, store, total, where

ZERO, GIVEN, PART_OF, SUBSETS = range(4)  # where a look begins
_CACHED = 1 << 18  # bytes of basis rows that stay close to a core
_SHORT = 32  # entries, times the rank, below which solving a system for one unit alone takes longer than waiting for memory


def _drawn(there, lengths, names, keys, begin, number, count, floor, eps, n, rows, rank, alone):
    """Begin with what is drawn; the first threshold."""


@overload(_drawn)
def _drawn_for(there, lengths, names, keys, begin, number, count, floor, eps, n, rows, rank, alone):
    def drawn(there, lengths, names, keys, begin, number, count, floor, eps, n, rows, rank, alone):
        if begin == PART_OF:
            return _part(*there, lengths, names, keys[1], count, floor, eps, n, rows, rank, alone)
        return _subsets(*there, lengths, names, keys[2], number, floor, eps, n, rows, rank, alone)

    def none(there, lengths, names, keys, begin, number, count, floor, eps, n, rows, rank, alone):
        raise ValueError("where the rank is known to the compiler, looks begin at 0 or where they are told")

    return none if isinstance(rank, types.BaseTuple) else drawn


@njit(**OPTIONS)
def regress(
    indptr, index, value, units, order, basis, usable, white, unit_names, index_names, transposed, keys, share,
    begin, number, start, zeta0, floor, gamma, max_steps, telling, rank, a_out, table
):  # fmt: skip
    """`look.regress` for some units, taken in an `order` in which neighbours should be of about the same length."""
    R = number_of(rank)
    most = max(_CACHED // (8 * LANES * R), _SHORT * R)  # entries of a unit that goes with others
    longest = 0
    for unit in units:
        m = indptr[unit + 1] - indptr[unit]
        longest = max(longest, m if m <= most else m // LANES + 1)
    longest += ROWS
    eps = np.finfo(value.dtype).eps
    D = _vectors(R * longest)  # the rows of the basis: row t R + q has the unknown q of the entries in row t
    y = _vectors(longest)
    res = _vectors(longest)
    fit = _vectors(longest)  # 1 in the fit, 0 not, below 0 held out
    w = _vectors(longest)  # 1 for inliers
    held = _vectors(longest)
    flat_y, flat_fit, flat_held = y.ravel(), fit.ravel(), held.ravel()
    place = np.empty(longest * LANES, np.uint64)
    pair = np.empty(longest * LANES, np.uint64)
    lengths = np.empty(LANES, np.int64)
    names = np.empty(LANES, np.int64)
    G = _vectors(R * R)
    L = _vectors(R * R)
    M = _vectors(R * R)
    T = _vectors(R * R)
    a = _vectors(R)
    b = _vectors(R)
    numbers = _vectors(N_NUMBERS)
    for p in range(R):
        for q in range(R):
            store(T, p * R + q, splat(np.float64(white[p, q])))
    zero, one, lowest = splat(0.0), splat(1.0), splat(floor)
    first = 0
    while first < units.shape[0]:
        # ---- load
        n = 0
        rows = 0
        alone = False
        while n < LANES and first + n < units.shape[0] and not alone:
            unit = units[order[first + n]]
            m = indptr[unit + 1] - indptr[unit]
            if m > most and n > 0:
                break
            alone = m > most
            rows = max(rows, m // LANES + 1 if alone else m)
            n += 1
        rows += -rows % ROWS
        stride = 1 if alone else LANES
        for lane in range(1 if alone else LANES):
            k = order[min(first + lane, units.shape[0] - 1)]
            unit = units[k]
            low = indptr[unit]
            high = indptr[unit + 1] if lane < n else low
            lengths[lane] = high - low
            names[lane] = unit_names[unit]
            limit = share if high - low >= LEAST_HELD * R else 0.0
            _load(index, value, low, high, names[lane], index_names, usable, transposed, limit, lane, stride,
                  place, pair, flat_y, flat_fit, flat_held, rows * LANES)  # fmt: skip
            for q in range(R):
                a[q, lane] = start[k, q] if begin == GIVEN else 0.0
        if alone:
            for q in range(R):
                store(a, q, splat(a[q, 0]))
        _hold(pair, keys[0], flat_held, rows * LANES)
        count = zero
        n_held = zero
        for t in range(rows):
            out, usual = load(held, t), load(fit, t)
            n_held = n_held + out
            count = count + (one - out) * usual
            store(fit, t, where(out, zero - one - usual, usual))
            store(w, t, zero)
        count = all_lanes(count, alone)
        store(numbers, 0, count)
        store(numbers, 6, all_lanes(n_held, alone))
        _gather(basis, place, D, rows, rank)
        # ---- where to begin
        zeta = splat(zeta0)
        if begin == PART_OF or begin == SUBSETS:
            there = (D, y, fit, w, res, G, L, a, b)
            zeta = _drawn(there, lengths, names, keys, begin, number, count, floor, eps, n, rows, rank, alone)
        n_in, square = residuals(D, y, a, w, res, rows, rank, alone)
        # ---- steps
        active = one
        for step in range(max_steps):
            changed = all_lanes(classify(res, fit, w, zeta, active, rows), alone)
            if step == 0 or total(changed) > 0:
                normal_equations(D, y, w, G, b, rows, rank, alone)
                solve(G, L, b, a, eps, rank)
                n_in, square = residuals(D, y, a, w, res, rows, rank, alone)
            active = active * (one - (zeta <= lowest) * (changed == zero))
            if total(active) == 0:
                break
            lower = splat(gamma) * zeta
            tight = splat(TIGHT) * root(square / larger(n_in - splat(1.0 * R), one))
            trust = (splat(2.0 * R) <= n_in) * (splat(0.5) * count <= n_in) * (tight < lower)
            zeta = larger(where(trust, tight, lower), lowest)
        # ---- measure
        changed = classify(res, fit, w, lowest, one, rows)
        if max_steps == 0 or total(changed) > 0:
            normal_equations(D, y, w, G, b, rows, rank, alone)
        measure(G, L, M, T, b, res, fit, w, y, numbers, floor, telling, eps, rows, rank, alone)
        for lane in range(n):
            for q in range(R):
                a_out[order[first + lane], q] = a[q, lane]
            for s in range(N_NUMBERS):
                table[order[first + lane], s] = numbers[s, lane]
        first += n


@njit(**WITHIN)
def _vectors(n):
    """An array (n, LANES) whose rows are lines of the cache."""
    room = np.zeros((n + 1) * LANES)
    first = -(room.ctypes.data // 8) % LANES
    return room[first : first + n * LANES].reshape(n, LANES)


@njit(**WITHIN)
def _load(
    index, value, low, high, name, index_names, usable, transposed, limit, lane, stride, place, pair, y, fit, held, end
):
    """Bring the entries of a unit to their lane. Numbers are unsigned: Numba looks whether others are negative."""
    f, step, name = np.uint64(lane), np.uint64(stride), np.uint64(name)
    for e in range(np.uint64(low), np.uint64(high)):
        i = np.uint64(index[e])
        other = np.uint64(index_names[i])
        place[f] = i
        pair[f] = pair_of(other, name) if transposed else pair_of(name, other)
        y[f] = value[e]
        fit[f] = usable[i]
        held[f] = limit
        f += step
    while f < np.uint64(end):
        place[f] = 0  # any: it takes no part
        y[f] = 0.0
        fit[f] = 0.0
        held[f] = 0.0
        f += step


@njit(**WITHIN)
def _hold(pair, key, held, end):
    """From the share of the entries to hold out, in `held`, to 1 for those that are."""
    for f in range(end):
        held[f] = 1.0 if hashed(pair[f] ^ key) < held[f] else 0.0


@njit(**WITHIN)
def _gather(basis, place, D, rows, rank):
    """Bring rows of the basis to the lanes of their entries."""
    R = number_of(rank)
    for t in range(rows):
        for lane in range(LANES):
            i = place[np.uint64(t * LANES + lane)]
            for q in range(R):
                D[t * R + q, lane] = basis[i, q]


@njit(**WITHIN)
def _part(D, y, fit, w, res, G, L, a, b, lengths, names, key, count, floor, eps, n, rows, R, alone):
    """Begin with least squares on a random part of the entries; the first threshold. `w` is 0 before and after."""
    stride = 1 if alone else LANES
    weight = w.ravel()
    for lane in range(n):
        for t in range(lengths[lane]):
            f = t * stride + lane
            if fit.ravel()[f] > 0 and uniform(names[lane], t, key) < PART:
                weight[f] = 1
    normal_equations(D, y, w, G, b, rows, R, alone)
    solve(G, L, b, a, eps, R)
    residuals(D, y, a, w, res, rows, R, alone)
    for t in range(rows):
        store(w, t, splat(0.0))
    return larger(_middle(res, fit, rows, splat(PART) * count, alone), splat(floor))


@njit(**WITHIN)
def _subsets(D, y, fit, w, res, G, L, a, b, lengths, names, key, number, floor, eps, n, rows, R, alone):
    """Begin with the best of many random subsets of as many entries as unknowns."""
    stride = 1 if alone else LANES
    n_drawn = R + -R % ROWS
    drawn_D, drawn_y, drawn_w, best = _vectors(n_drawn * R), _vectors(n_drawn), _vectors(n_drawn), _vectors(R)
    most = splat(0.0)
    for draw in range(number):
        for lane in range(n):
            for d in range(R if lengths[lane] > 0 else 0):
                f = int(uniform(names[lane], draw * R + d, key) * lengths[lane]) * stride + lane
                t, column = f // LANES, f % LANES
                drawn_y[d, lane] = y[t, column]
                drawn_w[d, lane] = 1.0 if fit[t, column] > 0 else 0.0
                for q in range(R):
                    drawn_D[d * R + q, lane] = D[t * R + q, column]
        normal_equations(drawn_D, drawn_y, drawn_w, G, b, n_drawn, R, alone)
        solve(G, L, b, a, eps, R)
        residuals(D, y, a, w, res, rows, R, alone)
        agree = splat(0.0)
        for t in range(rows):
            agree = agree + (size(load(res, t)) < splat(3 * floor)) * (splat(0.0) < load(fit, t))
        agree = all_lanes(agree, alone)
        better = most < agree
        most = where(better, agree, most)
        for q in range(R):
            store(best, q, where(better, load(a, q), load(best, q)))
    for q in range(R):
        store(a, q, load(best, q))
    return splat(10 * floor)


@njit(**WITHIN)
def _middle(res, fit, rows, wanted, alone):
    """`regress.middle_residual`."""
    low, high = splat(0.0), splat(0.0)
    for t in range(rows):
        high = larger(high, size(load(res, t)) * (splat(0.0) < load(fit, t)))
    if alone:
        lanes = _vectors(1)
        store(lanes, 0, high)
        for lane in range(LANES):
            high = larger(high, splat(lanes[0, lane]))
    for _ in range(HALVINGS):
        middle = splat(0.5) * (low + high)
        n = splat(0.0)
        for t in range(rows):
            n = n + (size(load(res, t)) <= middle) * (splat(0.0) < load(fit, t))
        enough = wanted <= all_lanes(n, alone)
        high = where(enough, middle, high)
        low = where(enough, low, middle)
    return high
