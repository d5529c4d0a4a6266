"""The kernel of normal equations that Numba compiles for the CPU; see `entries` for how it is made."""

# Numba looks at the age of this file alone: after a change of `entries`, touch it, or what was compiled before is used.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np
from numba import njit

from .entries import OPTIONS, uniform


@njit(**OPTIONS)
def normal_sums(
    indptr, index, value, units, basis, usable, unit_ids, index_ids, transposed, key, share, a, floor, out
):  # fmt: skip
    """`passes.normal_sums` for some units."""
    R = basis.shape[1]
    x = np.empty(R)
    G = np.empty((R, R))
    b = np.empty(R)
    for k in range(units.shape[0]):
        unit = units[k]
        name = unit_ids[unit]
        G[:] = 0.0
        b[:] = 0.0
        n_fit = 0.0
        n_in = 0.0
        for t in range(indptr[unit], indptr[unit + 1]):
            i = index[t]
            if usable[i] == 0:
                continue
            if share > 0:
                u = uniform(index_ids[i], name, key) if transposed else uniform(name, index_ids[i], key)
                if u < share:
                    continue
            n_fit += 1.0
            rest = np.float64(value[t])
            for q in range(R):
                x[q] = basis[i, q]
                rest -= x[q] * a[k, q]
            if abs(rest) >= floor:
                continue
            n_in += 1.0
            for q in range(R):
                b[q] += rest * x[q]
                for s in range(q + 1):
                    G[q, s] += x[q] * x[s]
        for q in range(R):
            for s in range(q + 1):
                out[k, q * R + s] = G[q, s]
                out[k, s * R + q] = G[q, s]
            out[k, R * R + q] = b[q]
        out[k, R * R + R] = n_fit
        out[k, R * R + R + 1] = n_in
