"""Sums for normal equations of units, by the entries that agree with the coefficients they have.

`normal_sums` here is the reference; the compiled one in `fused` has the same signature and agrees to rounding.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, gather, take_rows
from ..blocks import Block, load_chunk
from .passes import EntryIds, is_held_out
from .regression import fitted, gram


def normal_sums(
    block: Block, units: np.ndarray, basis: Array, usable: Array, ids: EntryIds, a: Array, floor: float
) -> Array:
    """Sums over the entries of some units that have the coefficients `a` (u, r).

    Returns
    -------
    float array (u, r * r + r + 2)
        For each unit: Gram matrix and, for the change of `a`, right-hand side of its inliers, observations in the fit,
        inliers.
    """
    chunk = load_chunk(block, units)
    xp = array_namespace(basis)
    D = take_rows(basis, chunk.index)
    fit = xp.astype(chunk.seen, basis.dtype) * gather(usable, chunk.index)
    if ids.share > 0:
        unit, place = gather(ids.unit, chunk.units)[:, None], gather(ids.index, chunk.index)
        held = is_held_out(*((place, unit) if ids.transposed else (unit, place)), ids.seed, ids.share)
        fit = fit * xp.astype(~held, basis.dtype)
    residual = chunk.value - fitted(D, a)
    keep = xp.astype(xp.abs(residual) < floor, basis.dtype) * fit
    G = gram(D, keep)
    b = ((residual * keep)[:, None, :] @ D)[:, 0, :]
    counts = [xp.sum(x, axis=1)[:, None] for x in (fit, keep)]
    return xp.concat([xp.reshape(G, (len(units), -1)), b, *counts], axis=1)
