"""The rules of `plain.verdicts`, compiled for one unit at a time: no array in between, and all cores work."""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import numpy as np

from ..plain.passes import Column
from ..plain.verdicts import (
    CONTESTABLE,
    OK,
    TOO_FEW_OBSERVATIONS,
    first_status,
    margin,
    most_rivals,
    share_bin,
    spread_bin,
    thin,
    unclear,
    verdict,
)
from .parts import exact_kernel, kernel

_N_FIT, _N_INLIERS, _SPREAD, _ILL, _ERROR, _N_INFORMATIVE, _N_HELD, _N_CONSENSUS = map(int, Column)


@exact_kernel
def diagnose(table, rank, floor, status, n_obs, n_inliers, spread, error, n_informative, held, counts):
    """`verdicts.diagnose` for some units; adds to `counts` (2, BINS + 1)."""
    for k in range(table.shape[0]):
        n, n_in, wide = np.float64(table[k, _N_FIT]), np.float64(table[k, _N_INLIERS]), np.float64(table[k, _SPREAD])
        kind = first_status(n, n_in, table[k, _ILL], rank)
        status[k] = kind
        n_obs[k], n_inliers[k], n_informative[k] = int(n), int(n_in), int(table[k, _N_INFORMATIVE])
        spread[k], error[k] = wide, table[k, _ERROR]
        if kind != TOO_FEW_OBSERVATIONS:
            counts[0, int(share_bin(n, n_in))] += 1
        counts[1, int(spread_bin(wide, floor)) if floor > 0 else 0] += 1
        held[k, 0], held[k, 1] = int(table[k, _N_HELD]), int(table[k, _N_CONSENSUS])


@exact_kernel
def judge(status, n_obs, n_inliers, spread, error, n_informative, limits, out, bits):
    """`verdicts.judge` for some units."""
    lead = margin(limits.consensus)
    for k in range(status.shape[0]):
        n, n_in = n_obs[k], n_inliers[k]
        kind, what = verdict(status[k], n, n_in, spread[k], error[k], n_informative[k], limits)
        if limits.contests and kind == OK:  # `contestable`, but logarithms are taken for few units
            most = most_rivals(n, n_in, limits.holdout)
            if n_in - most <= lead or (thin(n, n_in, limits.share, 1.0) and unclear(n_in, most, limits.consensus)):
                what += CONTESTABLE
        out[k], bits[k] = kind, what


@kernel
def split(indptr, index, value, basis, usable, units, a, near, far, winners, rejected, out_index, out_value):
    """`votes.split` for some units: votes to `winners` and `rejected`, what is rejected to the beginning of the last two."""
    n = 0
    for k in range(units.shape[0]):
        winner, before = 0, n
        for t in range(indptr[units[k]], indptr[units[k] + 1]):
            at = index[t]
            if usable[at] > 0:
                fit = basis[at, 0] * a[k, 0]
                for q in range(1, basis.shape[1]):
                    fit += basis[at, q] * a[k, q]
                distance = abs(value[t] - fit)
                winner += distance < near
                out_index[n], out_value[n] = at, value[t]  # always, and counted if it is: a branch would be mispredicted
                n += distance >= far
        winners[k], rejected[k] = winner, n - before
