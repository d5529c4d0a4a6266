"""Which units have a component that rests on a single entry (`extend.extension` says why it matters)."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, device_of, gather, inverse, take_rows, to_numpy
from ..blocks import Block
from ..chunks import load_chunk
from .regression import fitted, gram, with_ridge

ALONE = 1 - 1e-3  # leverage of an observation without which a component would not be known
_AT_ONCE = 1 << 18  # observations that are looked at together: a few MB


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
        found[low:high] = to_numpy((xp.max(leverage, axis=1) > ALONE) | none)
    return found
