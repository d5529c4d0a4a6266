"""The kernel of the paper's recursion that Numba compiles for the CPU; see `entries` for how it is made."""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import numpy as np

from ..plain.passes import LEAST_HELD
from .entries import PADDING, products, residual, uniform
from .parts import kernel


@kernel
def advance(
    indptr, index, value, units, usable, unit_ids, index_ids, transposed, key, share,
    bases, turns, zetas, step_size, a_out, sums
):  # fmt: skip
    """`passes.advance` for some units."""
    R = bases.shape[2]
    longest = PADDING
    for k in range(units.shape[0]):
        longest = max(longest, indptr[units[k] + 1] - indptr[units[k]] + PADDING)
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
        name = unit_ids[unit]
        hold = share > 0 and m >= LEAST_HELD * R
        for t in range(m):
            i = index[low + t]
            y[t] = value[low + t]
            fit[t] = usable[i]
            if hold:
                u = uniform(index_ids[i], name, key) if transposed else uniform(name, index_ids[i], key)
                if u < share:
                    fit[t] = 0
        for q in range(R):
            a[q] = a_out[k, q]
            for t in range(m):
                D[q, t] = bases[0, index[low + t], q]
        residual(D, y, a, E, m, R)
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
            products(D, E, turned, m, R)
            for q in range(R):
                turned[q] *= step_size
                for s in range(R):
                    turned[q] += a[s] * turns[step, s, q]
            for q in range(R):
                a[q] = turned[q]
            residual(D, y, a, E, m, R)
            square = 0.0
            for t in range(m):
                E[t] *= fit[t]
                rest = E[t] - out[t]
                square += rest * rest
            sums[step, 0] += square
            sums[step, 1] += n_out
        for q in range(R):
            a_out[k, q] = a[q]
