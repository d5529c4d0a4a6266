"""Small regressions of eight units at once, one in each lane of a vector, or of one unit dealt to all lanes.

Parts of `pass_kernel`, which says how entries are laid out.
"""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import numpy as np

from ..plain.passes import Column
from ..plain.regression import RIDGE
from .functions import compact, not_inlined, number_of
from .parts import part
from .vectors import load, root, size, splat, store, total, where

_N_INLIERS, _SPREAD, _ILL = int(Column.N_INLIERS), int(Column.SPREAD), int(Column.ILL)
_STANDARD_ERROR, _N_INFORMATIVE = int(Column.STANDARD_ERROR), int(Column.N_INFORMATIVE)
_N_CONSENSUS = int(Column.N_CONSENSUS)
ROWS = 4  # rows of a buffer come in multiples of this: loops take as many at a time, and load and store sums once for them


@part
def all_lanes(x, alone):
    """The sum of the lanes in each of them, if they are those of one unit."""
    return splat(total(x)) if alone else x


@part
def larger(x, y):
    """The larger of two, in each lane."""
    return where(x < y, y, x)


@part
def classify(res, fit, w, limit, active, rows):
    """Let `w` be 1 where the residual is below the limit; how many entries of each lane changed."""
    not_inlined()
    changed = splat(0.0)
    for t in range(rows):
        last = load(w, t)
        keep = where(active, (size(load(res, t)) < limit) * (splat(0.0) < load(fit, t)), last)
        changed = changed + size(keep - last)
        store(w, t, keep)
    return changed


@part
def normal_equations(D, y, w, G, b, rows, rank, alone):
    """G = D^T diag(w) D, its lower half, and b = D^T diag(w) y; four entries at a time, or memory is what it waits for."""
    not_inlined()
    R = number_of(rank)
    for p in range(R):
        store(b, p, splat(0.0))
        for q in range(R):
            store(G, p * R + q, splat(0.0))
    for t in range(0, rows, ROWS):
        w0, w1, w2, w3 = load(w, t), load(w, t + 1), load(w, t + 2), load(w, t + 3)
        y0, y1, y2, y3 = load(y, t), load(y, t + 1), load(y, t + 2), load(y, t + 3)
        i0, i1, i2, i3 = t * R, (t + 1) * R, (t + 2) * R, (t + 3) * R
        for p in range(0, R - 1, 2):  # and two unknowns
            s = p + 1
            x0, x1, x2, x3 = w0 * load(D, i0 + p), w1 * load(D, i1 + p), w2 * load(D, i2 + p), w3 * load(D, i3 + p)
            z0, z1, z2, z3 = w0 * load(D, i0 + s), w1 * load(D, i1 + s), w2 * load(D, i2 + s), w3 * load(D, i3 + s)
            store(b, p, load(b, p) + ((x0 * y0 + x1 * y1) + (x2 * y2 + x3 * y3)))
            store(b, s, load(b, s) + ((z0 * y0 + z1 * y1) + (z2 * y2 + z3 * y3)))
            for q in range(p + 2):
                d0, d1, d2, d3 = load(D, i0 + q), load(D, i1 + q), load(D, i2 + q), load(D, i3 + q)
                store(G, p * R + q, load(G, p * R + q) + ((x0 * d0 + x1 * d1) + (x2 * d2 + x3 * d3)))
                store(G, s * R + q, load(G, s * R + q) + ((z0 * d0 + z1 * d1) + (z2 * d2 + z3 * d3)))
        if R % 2:
            p = R - 1
            x0, x1, x2, x3 = w0 * load(D, i0 + p), w1 * load(D, i1 + p), w2 * load(D, i2 + p), w3 * load(D, i3 + p)
            store(b, p, load(b, p) + ((x0 * y0 + x1 * y1) + (x2 * y2 + x3 * y3)))
            for q in range(R):
                more = (x0 * load(D, i0 + q) + x1 * load(D, i1 + q)) + (x2 * load(D, i2 + q) + x3 * load(D, i3 + q))
                store(G, p * R + q, load(G, p * R + q) + more)
    if alone:
        for p in range(R):
            store(b, p, splat(total(load(b, p))))
            for q in range(p + 1):
                store(G, p * R + q, splat(total(load(G, p * R + q))))


@part
def residuals(D, y, a, w, res, rows, rank, alone):
    """res = y - D a; the number of inliers and the sum of their squares."""
    not_inlined()
    R = number_of(rank)
    n_in = splat(0.0)
    square = splat(0.0)
    for t in range(0, rows, ROWS):
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
    return all_lanes(n_in, alone), all_lanes(square, alone)


@part
def cholesky(G, L, eps, rank):
    """L L^T = G + ridge, from the lower half of G; the diagonal of L is inverted. Returns the trace with the ridge."""
    not_inlined()
    R = number_of(rank)
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
                store(L, p * R + p, splat(1.0) / root(larger(rest + ridge, ridge)))
            else:
                store(L, p * R + q, rest * load(L, q * R + q))
    return trace + splat(1.0 * R) * ridge


@part
def solve(G, L, b, a, eps, rank):
    """a = (G + ridge)^-1 b"""
    not_inlined()
    R = number_of(rank)
    cholesky(G, L, eps, rank)
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


@part
def measure(G, L, M, T, b, res, fit, w, y, numbers, floor, informative, eps, rows, rank, alone):
    """The columns of the table of a fit pass but N_FIT and N_HELD; `T` is the whitener, in all lanes."""
    compact()
    R = number_of(rank)
    n_in, square, n_informative, n_agree = splat(0.0), splat(0.0), splat(0.0), splat(0.0)
    for t in range(rows):
        weight, x = load(w, t), load(res, t)
        n_in = n_in + weight
        square = square + weight * x * x
        n_informative = n_informative + weight * (splat(informative) < size(load(y, t)))
        n_agree = n_agree + (load(fit, t) < splat(0.0)) * (size(x) < splat(floor))
    n_in = all_lanes(n_in, alone)
    spread = root(all_lanes(square, alone) / larger(n_in - splat(1.0 * R), splat(1.0)))
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
    trace = cholesky(M, L, eps, rank)
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
    store(numbers, _N_INLIERS, n_in)
    store(numbers, _SPREAD, spread)
    store(numbers, _ILL, ill)
    store(numbers, _STANDARD_ERROR, spread * root(inverse))
    store(numbers, _N_INFORMATIVE, all_lanes(n_informative, alone))
    store(numbers, _N_CONSENSUS, all_lanes(n_agree, alone))
