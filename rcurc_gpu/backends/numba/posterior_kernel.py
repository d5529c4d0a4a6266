"""`posterior` of the noise model, compiled for the CPU.

Sums run over eight observations of a unit at a time. What is known of a position stands together, in whole vectors (see
`layout`): residuals, their doubt and normal equations are then products of vectors, and weights are found for eight
observations at once. The small systems of eight units are solved side by side, one in each lane.
"""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..plain.posterior import Fit
from .lanes import larger
from .parts import kernel, part
from .values import LANES
from .vectors import (
    add_products,
    gathered,
    indices,
    load,
    places,
    root,
    rows_at,
    splat,
    store,
    total,
    totals,
    weighted,
    where,
)

_BITS = 6  # of half the degrees of freedom
_FEWEST = 1e-300  # a pivot of the Cholesky factorisation; the prior keeps pivots far above it
_N_FIT, _INLIERS, _SQUARES, _N_INLIERS = int(Fit.N_FIT), int(Fit.INLIERS), int(Fit.SQUARES), int(Fit.N_INLIERS)
_RESIDUALS, _OBJECTIVE, _N_INFORMATIVE = int(Fit.RESIDUALS), int(Fit.OBJECTIVE), int(Fit.N_INFORMATIVE)


def widths(K: Any, offsets: Any) -> Any:
    """Vectors of a position: for second moments alone, for these and cross moments, for the mean."""
    P = K * (K + 1) // 2
    moments = P + K if offsets else P
    return (P + LANES - 1) // LANES, (moments + LANES - 1) // LANES, (K + 2 + LANES - 1) // LANES


_widths = part(widths)


@kernel
def layout(x, shift, second, cross, spread, scales, offsets, at):
    """What is known of each position: (second moments, cross), covariance, (mean, shift, scale), in lines of the cache.

    To the lines of `at` (m, LANES * sum of `widths`), zeros.
    """
    m, K = x.shape
    P = second.shape[1]
    own, moments, _ = _widths(K, offsets)
    for i in range(m):
        for c in range(P):
            at[i, c] = second[i, c]
            at[i, moments * LANES + c] = spread[i, c]
        for q in range(K):
            if offsets:
                at[i, P + q] = cross[i, q]
            at[i, (moments + own) * LANES + q] = x[i, q]
        at[i, (moments + own) * LANES + K] = shift[i]
        at[i, (moments + own) * LANES + K + 1] = scales[i]


@kernel
def posterior(
    indptr, index, value, weight, units, at, offsets, noise, precision, mean0, cov0, scale0, temperatures, measure, mean,
    cov, table,
):  # fmt: skip
    """`plain.posterior.posterior` for some units.

    `at` is made by `layout`; `noise` is (variance, tail, share, span, constant, growth, top, odds); an empty `weight` stands
    for ones.
    """
    K = mean.shape[1]
    P = cov.shape[1]
    own, moments, means = _widths(K, offsets)
    flat, width = at.ravel(), at.shape[1]
    doubts, tail = moments * LANES, (moments + own) * LANES
    variance, nu, share, span, constant, growth, top, odds = noise
    log_in, log_out = math.log1p(-share), math.log(share / span)
    given_weights = weight.shape[0] > 0
    z, S, h, G = np.zeros((K, LANES)), np.zeros((P, LANES)), np.zeros((K, LANES)), np.zeros((P, LANES))
    L = np.zeros((K * K, LANES))
    D, E, Z = np.zeros((own, LANES)), np.zeros((own, LANES)), np.zeros((means, LANES))
    sums, right = np.zeros((moments, LANES)), np.zeros((means, LANES))
    D_flat, E_flat, Z_flat, sums_flat, right_flat = D.ravel(), E.ravel(), Z.ravel(), sums.ravel(), right.ravel()
    locals_, squares_ = np.zeros((1, LANES)), np.zeros((1, LANES))
    near, ramp = np.empty(LANES, np.int64), np.empty((1, LANES))
    for k in range(LANES):
        near[k], ramp[0, k] = k, k
    zero, one = splat(0.0), splat(1.0)
    none = (zero, zero, zero, zero, zero, zero, zero, zero)
    steps = temperatures.shape[0]
    for first in range(0, units.shape[0], LANES):
        n = min(LANES, units.shape[0] - first)
        for lane in range(n):
            for q in range(K):
                z[q, lane] = mean0[first + lane, q]
            for c in range(P):
                S[c, lane] = cov0[first + lane, c]
        for step in range(steps + 1 if measure else steps):
            last = step == steps
            tabled = step == (steps if measure else steps - 1)
            heat = 1.0 if last else temperatures[step] * temperatures[step]
            for lane in range(n):
                u = first + lane
                low, high = indptr[units[u]], indptr[units[u] + 1]
                c = 0
                for q in range(K):
                    zq = 1.0 if offsets and q == K - 1 else z[q, lane]
                    for p in range(q + 1):
                        twice = 1.0 if p == q else 2.0
                        D_flat[c] = twice * S[c, lane]
                        E_flat[c] = twice * zq * (1.0 if offsets and p == K - 1 else z[p, lane])
                        c += 1
                    Z_flat[q] = z[q, lane]
                for c in range(moments):
                    store(sums, c, zero)
                for c in range(means):
                    store(right, c, zero)
                n_fit, inliers, squares, n_in, residuals, n_informative = zero, zero, zero, zero, zero, zero
                objective = 0.0
                for t in range(low, high, LANES):
                    left = high - t
                    if left < LANES:
                        for k in range(LANES):
                            near[k] = min(k, left - 1)
                    entry = places(near, t)
                    i = indices(index, entry)
                    taken = load(ramp, 0) < splat(1.0 * left)
                    shift = gathered(flat, i, width, tail + K)
                    y = gathered(value, entry, 1, 0) - shift
                    local = splat(variance * scale0[u]) * gathered(flat, i, width, tail + K + 1)
                    if given_weights:
                        given = gathered(weight, entry, 1, 0)
                        taken = taken * (zero < given)
                        local = local / where(taken, given, one)
                    fitted = none
                    for c in range(means):
                        fitted = add_products(fitted, rows_at(flat, i, width, tail + c * LANES), load(Z, c))
                    doubt = none
                    for c in range(own):
                        doubt = add_products(doubt, rows_at(flat, i, width, c * LANES), load(D, c))
                        doubt = add_products(doubt, rows_at(flat, i, width, doubts + c * LANES), load(E, c))
                    estimate = totals(fitted)
                    x = estimate + shift
                    local = local * (splat(constant) + splat(growth) * x * x)
                    r = y - estimate
                    square = (r * r + larger(totals(doubt), zero)) / local
                    bent = one + square * splat(1 / (nu * heat))
                    rare = splat(odds) * root(splat(heat) * local * bent)
                    power, factor = int(nu) // 2, bent
                    while power > 0:
                        if power % 2:
                            rare = rare * factor
                        factor = factor * factor
                        power //= 2
                    if tabled:
                        inlier = taken / (one + rare)
                        rather = splat(0.5) < inlier
                        n_fit = n_fit + taken
                        inliers = inliers + inlier
                        squares = squares + inlier * square * (splat(nu + 1) / (splat(nu) + square))
                        residuals = residuals + inlier * r * r
                        n_in = n_in + rather
                        n_informative = n_informative + rather * (splat(4.0) * local < y * y)
                        if last:
                            store(locals_, 0, local)
                            store(squares_, 0, where(taken, square, zero - one))
                            for k in range(LANES):
                                if squares_[0, k] >= 0:
                                    a = log_in + top - 0.5 * math.log(locals_[0, k])
                                    a -= 0.5 * (nu + 1) * math.log1p(squares_[0, k] / nu)
                                    objective += max(a, log_out) + math.log1p(math.exp(-abs(a - log_out)))
                            continue
                    w = taken * splat((nu + 1) / nu) / ((one + rare) * bent * local)
                    wy = w * y
                    for c in range(moments):
                        store(sums, c, load(sums, c) + weighted(rows_at(flat, i, width, c * LANES), w))
                    for c in range(means):
                        store(right, c, load(right, c) + weighted(rows_at(flat, i, width, tail + c * LANES), wy))
                for k in range(LANES):
                    near[k] = k
                if tabled:
                    table[u, _N_FIT] = total(n_fit)
                    table[u, _INLIERS] = total(inliers)
                    table[u, _SQUARES] = total(squares)
                    table[u, _N_INLIERS] = total(n_in)
                    table[u, _RESIDUALS] = total(residuals)
                    table[u, _N_INFORMATIVE] = total(n_informative)
                    if last:
                        for q in range(K):
                            objective -= 0.5 * z[q, lane] * z[q, lane] * precision[q]
                    table[u, _OBJECTIVE] = objective
                if not last:
                    for c in range(P):
                        G[c, lane] = sums_flat[c]
                    for q in range(K):
                        h[q, lane] = right_flat[q] - (sums_flat[P + q] if offsets else 0.0)
            if not last:
                _solve(G, precision, h, L, z, S)
        for lane in range(n):
            for q in range(K):
                mean[first + lane, q] = z[q, lane]
            for c in range(P):
                cov[first + lane, c] = S[c, lane]


@part
def _solve(G, precision, h, L, z, S):
    """z = (G + diag(precision))^-1 h and S, the packed inverse, by Cholesky, in each lane."""
    K = h.shape[0]
    for q in range(K):  # the diagonal of L is inverted
        for p in range(q + 1):
            v = load(G, q * (q + 1) // 2 + p)
            for t in range(p):
                v = v - load(L, q * K + t) * load(L, p * K + t)
            if p == q:
                store(L, q * K + q, splat(1.0) / root(larger(v + splat(precision[q]), splat(_FEWEST))))
            else:
                store(L, q * K + p, v * load(L, p * K + p))
    for p in range(K):  # the inverse of L, in its upper half: column p of it in row p
        for q in range(p + 1, K):
            v = splat(0.0)
            for t in range(p, q):
                v = v - load(L, q * K + t) * load(L, p * K + t)
            store(L, p * K + q, v * load(L, q * K + q))
    for q in range(K):
        for p in range(q + 1):
            v = splat(0.0)
            for t in range(q, K):
                v = v + load(L, q * K + t) * load(L, p * K + t)
            store(S, q * (q + 1) // 2 + p, v)
    for q in range(K):
        v = splat(0.0)
        for p in range(K):
            v = v + load(S, q * (q + 1) // 2 + p if p <= q else p * (p + 1) // 2 + q) * load(h, p)
        store(z, q, v)


@kernel
def solve(G, precision, h, mean, cov):
    """`plain.posterior.solve_packed`: (G + diag(precision))^-1 h and the inverses of packed G (u, P), eight at a time."""
    n_units, K = h.shape
    P = G.shape[1]
    sums, right, L = np.zeros((P, LANES)), np.zeros((K, LANES)), np.zeros((K * K, LANES))
    z, S = np.zeros((K, LANES)), np.zeros((P, LANES))
    for first in range(0, n_units, LANES):
        n = min(LANES, n_units - first)
        for lane in range(n):
            for c in range(P):
                sums[c, lane] = G[first + lane, c]
            for q in range(K):
                right[q, lane] = h[first + lane, q]
        _solve(sums, precision, right, L, z, S)
        for lane in range(n):
            for q in range(K):
                mean[first + lane, q] = z[q, lane]
            for c in range(P):
                cov[first + lane, c] = S[c, lane]


@kernel
def weigh(y, given, fitted, doubt, scale, scales, shift, noise, heat, w, table):
    """`plain.posterior.weigh` without the objective; LLVM makes vectors of the inner loop, as it has no branches."""
    variance, nu, _, _, constant, growth, _, odds = noise
    half = int(nu) // 2
    for u in range(y.shape[0]):
        own = variance * scale[u]
        n_fit, inliers, squares, n_in, residuals, n_informative = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for t in range(y.shape[1]):
            taken = given[u, t] > 0
            x = fitted[u, t] + shift[t]
            local = own * scales[t] / (given[u, t] if taken else 1.0) * (constant + growth * (x * x))
            r = y[u, t] - fitted[u, t]
            square = (r * r + max(doubt[u, t], 0.0)) / local
            bent = 1 + square / (nu * heat)
            rare = odds * math.sqrt(heat * local * bent)
            factor = bent
            for bit in range(_BITS):
                rare *= factor if half & (1 << bit) else 1.0
                factor *= factor
            inlier = (1.0 if taken else 0.0) / (1 + rare)
            w[u, t] = inlier * ((nu + 1) / nu) / (bent * local)
            rather = 1.0 if inlier > 0.5 else 0.0
            n_fit += 1.0 if taken else 0.0
            inliers += inlier
            squares += inlier * square * ((nu + 1) / (nu + square))
            residuals += inlier * r * r
            n_in += rather
            n_informative += rather if 4 * local < y[u, t] * y[u, t] else 0.0
        table[u, _N_FIT], table[u, _INLIERS], table[u, _SQUARES] = n_fit, inliers, squares
        table[u, _N_INLIERS], table[u, _RESIDUALS], table[u, _N_INFORMATIVE] = n_in, residuals, n_informative
