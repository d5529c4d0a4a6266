"""Units of which a component rests on a single observation: whether that is an outlier, nothing tells.

A wrong solution can agree with as many observations as it has unknowns. Where most of a unit's observations say nothing of
a component (it lives in few rows, say), the rest of them may be so few that a wrong solution passes: each observation then
has a leverage of 1, which means that without it nothing would be known of the component. Nine rows in ten alike: 3 of 32
results were confirmed with errors of 10 % and more without this.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, bring, device_of, gather, inverse, take_rows, to_numpy
from ..backends.blocks import Block, load_chunk
from ..backends.plain.regression import fitted, gram, with_ridge
from ..backends.plain.verdicts import ILL_CONDITIONED, SKEWED, UNKNOWN
from .tasks import Extension, Task

_ALONE = 1 - 1e-3  # leverage of an observation without which a component would not be known
_AT_ONCE = 1 << 18  # observations that are looked at together: a few MB
MOST_UNKNOWN = 10_000  # units without spread, of which the trace is not known, that are looked at


def without_lone(task: Task, units: np.ndarray, extension: Extension, bits: np.ndarray) -> Extension:
    """Mark units of which a component rests on a single observation; `bits` (`verdicts`) say where that may be."""
    d = extension.diagnostics
    doubtful, unknown = (np.flatnonzero(bits & np.uint8(which)) for which in (SKEWED, UNKNOWN))
    if 0 < len(unknown) <= MOST_UNKNOWN:
        doubtful = np.union1d(doubtful, unknown)
    if len(doubtful) == 0:
        return extension
    block, places, _ = task.resident(units[doubtful])
    a = take_rows(extension.coefficients, asarray_on(doubtful, extension.coefficients))  # may be on the host
    a = bring(a, task.basis)
    lone = rests_on_one(block, places, task.basis, a, task.usable, task.schedule.floor)
    status = d.status.copy()
    status[doubtful[lone]] = ILL_CONDITIONED
    return replace(extension, diagnostics=replace(d, status=status))


def rests_on_one(
    block: Block, units: np.ndarray, basis: Array, coefficients: Array, usable: Array, floor: float
) -> np.ndarray:
    """Which units have an inlier of leverage 1, or none that tell a component (u,), on the host.

    Parameters
    ----------
    block : Block
        Where `basis` is.
    units : int64 array (u,)
    basis : float array (length, r)
    coefficients : float array (u, r)
    usable : float array (length,)
        0 for positions that are not to be used.
    floor : float
        Residuals below this are inliers.
    """
    xp = array_namespace(basis)
    found = np.zeros(len(units), dtype=bool)
    some = max(_AT_ONCE // max(int(block.counts[units].max(initial=1)), 1), 1)
    for low in range(0, len(units), some):
        high = min(low + some, len(units))
        chunk = load_chunk(block, units[low:high])
        a = xp.astype(coefficients[low:high, :], basis.dtype)
        D = take_rows(basis, chunk.index)
        near = xp.abs(xp.astype(chunk.value, basis.dtype) - fitted(D, a)) < floor
        keep = xp.astype(near & chunk.seen, basis.dtype) * xp.astype(gather(usable, chunk.index) > 0, basis.dtype)
        G, size = with_ridge(gram(D, keep))
        inverses = inverse(G)
        trace = xp.sum(xp.sum(inverses * xp.eye(basis.shape[1], dtype=basis.dtype, device=device_of(basis)), axis=2), axis=1)
        leverage = xp.sum((D @ inverses) * D, axis=2) * keep
        none = size * trace > basis.shape[1] / float(xp.finfo(basis.dtype).eps) ** 0.5  # as in `passes`
        found[low:high] = to_numpy((xp.max(leverage, axis=1) > _ALONE) | none)
    return found
