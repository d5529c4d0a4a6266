"""The kernel of the extension that Numba compiles for the CPU: eight units side by side, one in each lane of a vector.

Sums then need no reduction over lanes, and the small systems of eight units are solved in the time of one. A unit so long
that eight of them would not stay in the cache goes alone: its entries are dealt to the lanes, and the lanes of every sum are
added. Either way entry t of a unit is number ``t * stride + lane`` of a buffer of shape (rows, LANES), and no lane's result
depends on what is in the others.

The rank comes as a number, or as a tuple of that length: it is then part of the type, and the compiler unrolls what it can.
"""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import numpy as np

from ..plain.passes import LEAST_HELD, PART, Column
from ..plain.regression import HALVINGS, TIGHT
from .entries import hashed, pair_of, uniform
from .functions import compact, is_known, not_inlined, number_of
from .lanes import ROWS, all_lanes, classify, larger, measure, normal_equations, residuals, solve
from .parts import kernel, part
from .values import LANES
from .vectors import gathered, indices, load, places, prefetch, root, size, splat, store, total, vectors, where

ZERO, GIVEN, PART_OF, SUBSETS = range(4)  # where a fit pass begins
_N_FIT, _N_HELD, _N_COLUMNS = int(Column.N_FIT), int(Column.N_HELD), len(Column)  # the rest is written by `lanes.measure`
# Bytes of basis rows that stay close to a core, in its second cache. Longer units go alone: eight of them would be read from
# further away in each step. With a smaller number units go alone whose systems are solved in one lane of eight.
_CACHED = 1 << 18
_LINE = 16  # entries of which the positions (int32) fill a line of the cache, 64 bytes
_AHEAD = 1024  # entries of a unit that are asked for ahead; in longer ones the machine sees what comes
_SHORT = 32  # entries, times the rank, below which solving a system for one unit alone takes longer than waiting for memory


@part
def _drawn(buffers, lengths, names, marks, key, begin, number, count, floor, eps, n, rows, rank, alone):
    """Begin with what is drawn; the first threshold."""
    if begin == PART_OF:
        return _part(*buffers, names, marks, count, floor, eps, rows, rank, alone)
    return _subsets(*buffers, lengths, names, key, number, floor, eps, n, rows, rank, alone)


@kernel
def regress(
    indptr, index, value, units, basis, usable, white, unit_ids, index_ids, transposed, keys, share,
    begin, number, start, zeta0, floor, gamma, max_steps, informative, rank, a_out, table
):  # fmt: skip
    """`passes.regress` for some units; `keys` are of what is held out, of subsets, and of parts: of each unit, or of all."""
    compact()
    R = number_of(rank)
    most = max(_CACHED // (8 * LANES * R), _SHORT * R)  # entries of a unit that goes with others
    longest = 0
    for unit in units:
        m = indptr[unit + 1] - indptr[unit]
        longest = max(longest, m if m <= most else m // LANES + 1)
    longest += ROWS
    order, first_of = np.empty(units.shape[0], np.int64), np.zeros(most + 3, np.int64)
    _by_length(indptr, units, most, first_of, order)  # lanes of a group are then about equally full
    eps = np.finfo(value.dtype).eps
    D = vectors(R * longest)  # the rows of the basis: row t R + q has the unknown q of the entries in row t
    y = vectors(longest)
    res = vectors(longest)
    fit = vectors(longest)  # 1 in the fit, 0 not, below 0 held out
    w = vectors(longest)  # 1 for inliers
    lot = vectors(longest)  # below the limit of the lane: held out
    pair = np.zeros(longest * LANES, np.uint64)
    names = np.empty(LANES, np.int64)
    marks = np.empty(LANES, np.uint64)
    lengths = np.empty(LANES, np.int64)  # of the units
    low = np.empty(LANES, np.int64)  # the first entry of a lane
    heights = np.empty(LANES, np.int64)  # how many entries it has
    limits, ends = vectors(1), vectors(1)
    G = vectors(R * R)
    L = vectors(R * R)
    M = vectors(R * R)
    T = vectors(R * R)
    a = vectors(R)
    b = vectors(R)
    numbers = vectors(_N_COLUMNS)
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
        for lane in range(LANES):
            k = order[first + min(lane, n - 1)]
            low[lane] = indptr[units[k]]
            lengths[lane] = indptr[units[k] + 1] - low[lane]
            heights[lane] = lengths[lane]
            names[lane] = unit_ids[units[k]]
            marks[lane] = keys[min(2 + k, keys.shape[0] - 1)]
            limits[0, lane] = share if lengths[lane] >= LEAST_HELD * R else 0.0
            if alone:
                low[lane] += lane
                heights[lane] = (lengths[lane] - lane + LANES - 1) // LANES
            ends[0, lane] = heights[lane] if lane < n or alone else 0  # lanes that are left over repeat the last unit
            for q in range(R):
                a[q, lane] = start[k, q] if begin == GIVEN else 0.0
        apart = LANES if alone else 1
        _load(index, value, basis, usable, low, heights, apart, D, y, fit, rows, rank)
        if share > 0:
            _draw(index, index_ids, names, low, heights, apart, transposed, keys[0], pair, lot.ravel(), rows)
        limit, end = load(limits, 0), load(ends, 0)
        count = zero
        n_held = zero
        for t in range(rows):
            there = splat(1.0 * t) < end
            usual = there * load(fit, t)
            out = there * (load(lot, t) < limit)
            n_held = n_held + out
            count = count + (one - out) * usual
            store(fit, t, where(out, zero - one - usual, usual))
            store(w, t, zero)
        count = all_lanes(count, alone)
        store(numbers, _N_FIT, count)
        store(numbers, _N_HELD, all_lanes(n_held, alone))
        # ---- where to begin
        zeta = splat(zeta0)
        if not is_known(rank) and (begin == PART_OF or begin == SUBSETS):  # known ranks begin at 0 or where they are told
            buffers = (D, y, fit, w, res, pair, lot, G, L, a, b)
            zeta = _drawn(buffers, lengths, names, marks, keys[1], begin, number, count, floor, eps, n, rows, rank, alone)
        if begin == ZERO:
            for t in range(rows):
                store(res, t, load(y, t))
        else:
            residuals(D, y, a, w, res, rows, rank, alone)
        n_in, square = zero, zero
        # ---- steps
        active = one
        for step in range(max_steps):
            if step < LANES // 2:  # not all at once: there is only so much that can be on its way
                _ask_for(indptr, index, value, units, order, first + n + 2 * step, 2)
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
        measure(G, L, M, T, b, res, fit, w, y, numbers, floor, informative, eps, rows, rank, alone)
        for lane in range(n):
            for q in range(R):
                a_out[order[first + lane], q] = a[q, lane]
            for s in range(_N_COLUMNS):
                table[order[first + lane], s] = numbers[s, lane]
        first += n


@part
def _by_length(indptr, units, most, first, order):
    """An order in which units of about the same length are neighbours, and those longer than `most` come last.

    `first` (most + 3,), zeros, is memory.
    """
    compact()
    for unit in units:
        first[min(indptr[unit + 1] - indptr[unit], most + 1) + 1] += 1
    for m in range(most + 2):
        first[m + 1] += first[m]
    for k in range(units.shape[0]):
        m = min(indptr[units[k] + 1] - indptr[units[k]], most + 1)
        order[first[m]] = k
        first[m] += 1


@part
def _ask_for(indptr, index, value, units, order, first, n):
    """Have the entries of the next `n` units on their way while others are worked on: no machine foresees this order."""
    compact()
    for k in range(first, min(first + n, units.shape[0])):
        unit = units[order[k]]
        low = indptr[unit]
        last = min(indptr[unit + 1], low + _AHEAD) - 1
        for e in range(low, last + _LINE, _LINE):
            prefetch(index, min(e, last))
            prefetch(value, min(e, last))
            prefetch(value, min(e + _LINE // 2, last))


@part
def _load(index, value, basis, usable, low, heights, apart, D, y, fit, rows, rank):
    """Bring entries to their lanes: in row t stands number ``low + t * apart``, and past the end of a lane nothing."""
    not_inlined()
    R = number_of(rank)
    flat = basis.ravel()
    full = heights[0]  # rows in which all lanes have an entry
    for lane in range(LANES):
        full = min(full, heights[lane])
    for t in range(full):
        at = places(low, t * apart)
        i = indices(index, at)
        store(y, t, gathered(value, at, 1, 0))
        store(fit, t, gathered(usable, i, 1, 0))
        for q in range(R):
            store(D, t * R + q, gathered(flat, i, R, q))
    for t in range(full, rows):
        for lane in range(LANES):
            there = t < heights[lane]
            e = low[lane] + t * apart if there else 0
            y[t, lane] = value[e] if there else 0.0
            fit[t, lane] = usable[index[e]] if there else 0.0
            for q in range(R):
                D[t * R + q, lane] = basis[index[e], q]  # any row of it, where nothing stands


@part
def _draw(index, index_ids, names, low, heights, apart, transposed, key, pair, lot, rows):
    """Draw the lots of the entries. Numbers are unsigned: Numba looks whether others are negative."""
    compact()
    for lane in range(LANES):
        f, e, name = np.uint64(lane), np.uint64(low[lane]), np.uint64(names[lane])
        for _ in range(heights[lane]):
            other = np.uint64(index_ids[np.uint64(index[e])])
            pair[f] = pair_of(other, name) if transposed else pair_of(name, other)
            f += np.uint64(LANES)
            e += np.uint64(apart)
    _hash(pair, key, lot, rows)


@part
def _hash(pair, key, lot, rows):
    not_inlined()
    for f in range(rows * LANES):
        lot[f] = hashed(pair[f] ^ key)


@part
def _part(D, y, fit, w, res, pair, lot, G, L, a, b, names, marks, count, floor, eps, rows, R, alone):
    """Begin with least squares on a random part of the entries; the first threshold. `w` is 0 before and after."""
    compact()
    for t in range(rows):
        for lane in range(LANES):
            entry = t * LANES + lane if alone else t
            pair[np.uint64(t * LANES + lane)] = pair_of(np.uint64(names[lane]), np.uint64(entry)) ^ marks[lane]
    _hash(pair, np.uint64(0), lot.ravel(), rows)
    for t in range(rows):
        store(w, t, (load(lot, t) < splat(PART)) * (splat(0.0) < load(fit, t)))
    normal_equations(D, y, w, G, b, rows, R, alone)
    solve(G, L, b, a, eps, R)
    residuals(D, y, a, w, res, rows, R, alone)
    for t in range(rows):
        store(w, t, splat(0.0))
    return larger(_middle(res, fit, lot, rows, splat(PART) * count, alone), splat(floor))


@part
def _subsets(D, y, fit, w, res, pair, lot, G, L, a, b, lengths, names, key, number, floor, eps, n, rows, R, alone):
    """Begin with the best of many random subsets of as many entries as unknowns."""
    compact()
    stride = 1 if alone else LANES
    n_drawn = R + -R % ROWS
    drawn_D, drawn_y, drawn_w, best = vectors(n_drawn * R), vectors(n_drawn), vectors(n_drawn), vectors(R)
    places = np.empty(R, dtype=np.int64)
    most = splat(0.0)
    for draw in range(number):
        for lane in range(n):
            for d in range(R if lengths[lane] > 0 else 0):
                last = max(lengths[lane] - R + d, 0)  # see `plain.passes._subset`
                place = int(uniform(names[lane], draw * R + d, key) * (last + 1))
                for before in range(d):
                    if places[before] == place:
                        place = last
                        break
                places[d] = place
                f = place * stride + lane
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


@part
def _middle(res, fit, sizes, rows, wanted, alone):
    """`regression.middle_residual`; `sizes` is for its use."""
    compact()
    low, high = splat(0.0), splat(0.0)
    for t in range(rows):
        inside, x = splat(0.0) < load(fit, t), size(load(res, t))
        high = larger(high, x * inside)
        store(sizes, t, where(inside, x, splat(np.inf)))
    if alone:
        lanes = vectors(1)
        store(lanes, 0, high)
        for lane in range(LANES):
            high = larger(high, splat(lanes[0, lane]))
    for _ in range(HALVINGS):
        middle = splat(0.5) * (low + high)
        n = splat(0.0)
        for t in range(rows):
            n = n + (load(sizes, t) <= middle)
        enough = wanted <= all_lanes(n, alone)
        high = where(enough, middle, high)
        low = where(enough, low, middle)
    return high
