"""The paper's recursion for units outside of the core, given the core's iterates.

[X_k]_{I,j} = W_k a_j for a column j outside of J, and a_j <- W_{k+1}^T (W_k a_j + eta_R g_j), g_j its residual below the
threshold. `advance` here is the reference; the compiled ones in `fused` have the same signature and agree to rounding.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, gather, take_rows
from ..blocks import Block, load_chunk
from .passes import EntryIds, held_in
from .regression import fitted


def advance(
    block: Block,
    units: np.ndarray,
    usable: Array,
    ids: EntryIds,
    bases: Array,
    turns: Array,
    zetas: Array,
    step_size: float,
    a: Array,
) -> tuple[Array, Array]:
    """Take some units through K iterations.

    Parameters
    ----------
    block, units, usable, names :
        As in `passes.regress`.
    bases : float array (K + 1, length, r)
        W_k before and after each iteration.
    turns : float array (K, r, r)
        ``W_k^T W_{k+1}``.
    zetas : float array (K,)
        Thresholds.
    step_size : float
        eta.
    a : float array (u, r)

    Returns
    -------
    a : float array (u, r)
    sums : float array (K, 2)
        For each iteration the squared residual in the numerator of e_k, and the number of outliers.
    """
    xp = array_namespace(bases)
    chunk = load_chunk(block, units)
    y = chunk.value
    held = held_in(chunk, ids, bases.shape[2])
    fit = xp.astype(chunk.seen & ~held, y.dtype) * gather(usable, chunk.index)
    E = (y - fitted(take_rows(bases[0, :, :], chunk.index), a)) * fit
    sums = []
    for k in range(turns.shape[0]):
        keep = xp.astype(xp.abs(E) < zetas[k], y.dtype) * fit
        D = take_rows(bases[k + 1, :, :], chunk.index)
        a = a @ turns[k, :, :] + ((step_size * E * keep)[:, None, :] @ D)[:, 0, :]
        residual = (y - fitted(D, a)) * fit
        rest = residual - E * (fit - keep)
        sums.append(xp.stack([xp.sum(rest * rest), xp.sum(fit - keep)]))
        E = residual
    return a, xp.stack(sums)
