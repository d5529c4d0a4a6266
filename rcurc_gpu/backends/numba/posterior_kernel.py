"""`posterior` of the noise model, compiled for the CPU: one unit after the other, sums over packed triangles."""

# Numba reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import math

import numpy as np
from numba import njit

from .entries import OPTIONS

_FEWEST = 1e-300  # a pivot of the Cholesky factorisation; the prior keeps pivots far above it


@njit(**OPTIONS)
def posterior(
    indptr, index, value, weight, units, x, shift, second, cross, spread, scales, offsets, noise, precision, mean0, cov0,
    scale0, temperatures, measure, mean, cov, table,
):  # fmt: skip
    """`plain.posterior.posterior` for some units; `noise` is (variance, tail, share, span, top, odds)."""
    K, P = x.shape[1], second.shape[1]
    variance, nu, share, span, top, odds = noise
    z, tilde, h = np.empty(K), np.empty(K), np.empty(K)
    S, G, D, E = np.empty(P), np.empty(P), np.empty(P), np.empty(P)
    L, power = np.empty((K, K)), int(nu) // 2
    log_in, log_out = math.log1p(-share), math.log(share / span)
    steps = temperatures.shape[0]
    for u in range(units.shape[0]):
        unit = units[u]
        low, high = indptr[unit], indptr[unit + 1]
        z[:] = mean0[u]
        S[:] = cov0[u]
        own = variance * scale0[u]
        n_fit = n_in = n_informative = 0.0
        inliers = squares = residuals = objective = 0.0
        for step in range(steps + 1 if measure else steps):
            last = step == steps
            tabled = step == (steps if measure else steps - 1)
            heat = 1.0 if last else temperatures[step] * temperatures[step]
            for q in range(K):
                tilde[q] = z[q]
            if offsets:
                tilde[K - 1] = 1.0
            c = 0
            for q in range(K):
                for p in range(q + 1):
                    twice = 1.0 if p == q else 2.0
                    D[c] = twice * S[c]
                    E[c] = twice * tilde[q] * tilde[p]
                    c += 1
            G[:] = 0.0
            h[:] = 0.0
            for t in range(low, high):
                given = np.float64(weight[t])
                if given <= 0:
                    continue
                i = index[t]
                y = np.float64(value[t]) - shift[i]
                local = own * scales[i] / given
                r, doubt = y, 0.0
                for q in range(K):
                    r -= x[i, q] * z[q]
                for c in range(P):
                    doubt += second[i, c] * D[c] + spread[i, c] * E[c]
                square = (r * r + max(doubt, 0.0)) / local
                bent = 1 + square / (nu * heat)
                rare = odds * math.sqrt(local * heat * bent)
                for _ in range(power):
                    rare *= bent
                inlier = 1 / (1 + rare)
                if tabled:
                    n_fit += 1.0
                    inliers += inlier
                    squares += inlier * (nu + 1) / (nu + square) * square
                    residuals += inlier * r * r
                    if inlier > 0.5:
                        n_in += 1.0
                        if y * y > 4 * local:
                            n_informative += 1.0
                    if last:
                        a = log_in + top - 0.5 * math.log(local) - 0.5 * (nu + 1) * math.log1p(square / nu)
                        objective += max(a, log_out) + math.log1p(math.exp(-abs(a - log_out)))
                        continue
                w = inlier * (nu + 1) / (nu + square / heat) / local
                for c in range(P):
                    G[c] += w * second[i, c]
                wy = w * y
                for q in range(K):
                    h[q] += wy * x[i, q] - w * cross[i, q]
            if last:
                for q in range(K):
                    objective -= 0.5 * z[q] * z[q] * precision[q]
                continue
            _solve(G, precision, h, L, z, S, K)
        mean[u] = z
        cov[u] = S
        table[u, 0] = n_fit
        table[u, 1] = inliers
        table[u, 2] = squares
        table[u, 3] = n_in
        table[u, 4] = residuals
        table[u, 5] = objective
        table[u, 6] = n_informative


@njit(**OPTIONS)
def solve_packed(G, precision, h, mean, cov):
    """`plain.posterior.solve_packed`."""
    K = h.shape[1]
    L = np.empty((K, K))
    for u in range(h.shape[0]):
        _solve(G[u], precision, h[u], L, mean[u], cov[u], K)


@njit(**OPTIONS)
def _solve(G, precision, h, L, z, S, K):
    """z = (G + diag(precision))^-1 h and S, the packed inverse, by Cholesky."""
    c = 0
    for q in range(K):
        for p in range(q + 1):
            v = G[c]
            if p == q:
                v += precision[q]
            for t in range(p):
                v -= L[q, t] * L[p, t]
            L[q, p] = math.sqrt(max(v, _FEWEST)) if p == q else v / L[p, p]
            c += 1
    # the inverse of L, in its upper half: column p of it in row p
    for p in range(K):
        L[p, p] = 1 / L[p, p]
        for q in range(p + 1, K):
            v = 0.0
            for t in range(p, q):
                v -= L[q, t] * (L[p, p] if t == p else L[p, t])
            L[p, q] = v / L[q, q]
    c = 0
    for q in range(K):
        for p in range(q + 1):
            v = 0.0
            for t in range(q, K):
                v += (L[q, q] if t == q else L[q, t]) * (L[p, p] if t == p else L[p, t])
            S[c] = v
            c += 1
    for q in range(K):
        v = 0.0
        for p in range(K):
            v += S[q * (q + 1) // 2 + p if p <= q else p * (p + 1) // 2 + q] * h[p]
        z[q] = v
