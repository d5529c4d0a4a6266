"""Robust least squares: y = D a with outliers, many small problems at once.

Hard thresholding as in the paper, but each step solves the normal equations on the inliers instead of taking a gradient
step: about ten steps reach machine precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..arrays import Array, array_namespace, device_of, gather

# Steps at the most. Units need about ten; a threshold that falls by gamma = 0.8 alone is 2e-8 of the first after 80. Units
# whose entries change sides for ever end here.
MAX_STEPS = 80
# Of the normal equations, in units of rounding times the trace: enough to keep an elimination from a pivot of exactly 0.
# More would be seen in the solutions of ill-conditioned units.
RIDGE = 16.0
# Of the interval in which a first threshold is sought, to 1/4096 of the largest residual. Each is a pass over the entries,
# and the threshold falls from there anyway.
HALVINGS = 12
# Standard deviations of the inliers to which the threshold may jump. Smaller, and Gaussian inliers are lost (one in 16,000
# is beyond 4); larger, and it takes more steps to come down.
TIGHT = 4.0
# Share of the entries that a restart begins with, and that its first threshold lets in. Smaller parts differ more from each
# other, and are without outliers more often; larger ones leave enough entries where a unit has few.
PART = 0.6
# Units with fewer entries than this, times the rank, have none to spare for the judgement: a share of a few per cent would
# be no entry or one, and a unit with hardly more entries than unknowns needs each of them.
LEAST_HELD = 8
# Inliers, times the rank, and their share of the entries, from which their spread is believed.
_TRUST_UNKNOWNS, _TRUST_SHARE = 2, 0.5


@dataclass(frozen=True)
class Schedule:
    """How the threshold falls.

    Attributes
    ----------
    zeta0 : float
        First threshold.
    floor : float
        It stops here: the noise.
    gamma : float
        Decay per step. It falls faster where a unit's inliers already agree with each other.
    """

    zeta0: float
    floor: float
    gamma: float


def robust_regression(
    D: Array, y: Array, fit: Array, schedule: Schedule, start: Array | None = None, zeta0: Array | None = None
) -> Array:
    """Solve ``y = D a`` for each unit, leaving outliers out.

    Parameters
    ----------
    D : float array (u, m, r)
    y : float array (u, m)
    fit : float array (u, m)
        1 where an entry takes part, 0 in the padding.
    schedule : Schedule
    start : float array (u, r), optional
        First guess; 0 by default.
    zeta0 : float array (u,), optional
        First thresholds, if not the same for all.

    Returns
    -------
    a : float array (u, r)
    """
    xp = array_namespace(D)
    u, _, r = D.shape
    device = device_of(D)
    zeta = xp.full((u,), schedule.zeta0, dtype=D.dtype, device=device) if zeta0 is None else zeta0
    floor = xp.asarray(schedule.floor, dtype=D.dtype, device=device)
    counts = xp.sum(fit, axis=1)
    active = xp.arange(u, dtype=xp.int64, device=device)  # units still in the rectangle
    finished: list[tuple[Array, Array]] = []
    keep = xp.zeros_like(fit)
    residual = y if start is None else y - fitted(D, start)
    for _ in range(MAX_STEPS):
        last = keep
        keep = xp.astype(xp.abs(residual) < zeta[:, None], D.dtype) * fit
        a = solve_normal(D, y, keep)
        residual = y - fitted(D, a)
        n_in = xp.sum(keep, axis=1)
        inlying = residual * keep
        spread = xp.sqrt(xp.sum(inlying * inlying, axis=1) / xp.maximum(n_in - r, xp.ones_like(n_in)))
        # Inliers that agree to far below the threshold are the solution: go to their spread at once. Not with few of
        # them: r + 1 points always nearly agree. (The compiled kernels have these two numbers in their text.)
        trust = (n_in >= _TRUST_UNKNOWNS * r) & (n_in >= _TRUST_SHARE * counts)
        lower = schedule.gamma * zeta
        done = (zeta <= floor) & (xp.sum(xp.abs(keep - last), axis=1) == 0)
        zeta = xp.maximum(xp.where(trust, xp.minimum(lower, TIGHT * spread), lower), floor)
        n_done = int(xp.sum(xp.astype(done, xp.int64)))
        if n_done == done.shape[0]:
            break
        if 2 * n_done > done.shape[0]:  # go on with the others only; sooner, and copying them costs more than it saves
            out, rest = xp.nonzero(done)[0], xp.nonzero(~done)[0]
            finished.append((gather(active, out), xp.take(a, out, axis=0)))
            active, a, zeta, counts, D, y, fit, keep, residual = (
                xp.take(x, rest, axis=0) for x in (active, a, zeta, counts, D, y, fit, keep, residual)
            )
    units = xp.concat([*(part[0] for part in finished), active])
    values = xp.concat([*(part[1] for part in finished), a])
    return xp.take(values, xp.argsort(units), axis=0)


def fitted(D: Array, a: Array) -> Array:
    """``D a`` for each unit: (u, m, r) and (u, r) to (u, m)."""
    return (D @ a[:, :, None])[:, :, 0]


def gram(D: Array, weight: Array) -> Array:
    """``D^T diag(weight) D`` for each unit (u, r, r)."""
    return D.mT @ (D * weight[:, :, None]) if hasattr(D, "mT") else D.transpose((0, 2, 1)) @ (D * weight[:, :, None])


def solve_normal(D: Array, y: Array, weight: Array) -> Array:
    """Weighted least squares by the normal equations, (u, r); a hair of ridge keeps empty units solvable."""
    xp = array_namespace(D)
    b = ((y * weight)[:, None, :] @ D)[:, 0, :]
    return xp.linalg.solve(with_ridge(gram(D, weight))[0], b[:, :, None])[:, :, 0]


def with_ridge(G: Array) -> tuple[Array, Array]:
    """Gram matrices (u, r, r) with a hair added to the diagonal, or the identity if they are 0; and their traces (u,)."""
    xp = array_namespace(G)
    r = G.shape[1]
    eye = xp.eye(r, dtype=G.dtype, device=device_of(G))
    size = xp.sum(G * eye, axis=(1, 2))
    ridge = xp.where(size > 0, RIDGE * float(xp.finfo(G.dtype).eps) * size, xp.ones_like(size))
    return G + ridge[:, None, None] * eye, size + r * ridge


def middle_residual(residual: Array, fit: Array, share: float) -> Array:
    """About the smallest number that `share` of each unit's abs(residual) do not exceed (u,), to 1/4096 of the largest.

    By bisection: compiled kernels count, they do not sort.
    """
    xp = array_namespace(residual)
    size = xp.abs(residual) * fit
    wanted = share * xp.sum(fit, axis=1)
    low, high = xp.zeros_like(wanted), xp.max(size, axis=1)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        enough = xp.sum(xp.astype(size <= middle[:, None], fit.dtype) * fit, axis=1) >= wanted
        low, high = xp.where(enough, low, middle), xp.where(enough, middle, high)
    return high
