"""Which observations agree with the solutions of their units, and which clearly do not."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, asarray_on, dots, gather, to_numpy
from ..blocks import Block

CLEAR = 2.0  # thresholds from the solution at which entries may support another; nearer ones may be the noise's tail


def split(
    block: Block,
    units: np.ndarray,
    basis: Array,
    usable: Array,
    coefficients: Array,
    floor: float,
    rows: np.ndarray | None = None,
) -> tuple[np.ndarray, Block]:
    """Count the entries of some units that agree with their solutions; and a block of those that clearly do not.

    Parameters
    ----------
    block : Block
    units : int64 array (u,)
        On the host.
    basis : float array (length, r)
    usable : float array (length,)
        0 for positions that do not vote.
    coefficients : float array (u, r)
    floor : float
        Nearer entries agree.
    rows : int64 array (u,), optional
        Which rows of `coefficients` they have, on the host, if that has others as well.

    Returns
    -------
    winner : int64 array (u,)
        On the host.
    rejected : Block
        Of as many units.
    """
    xp = array_namespace(basis)
    here = block.take_units(units)
    own = here.unit_of_entry()
    fit = dots(basis, here.index, coefficients, own if rows is None else gather(asarray_on(rows, own), own))
    distance = xp.abs(here.value - fit)
    counts = gather(usable, here.index) > 0
    winner = _ends(here, counts & (distance < floor))
    out = counts & (distance >= CLEAR * floor)
    indptr = asarray_on(_ends(here, out), here.value)
    return np.diff(winner), Block(indptr, here.index[out], here.value[out], here.length)


def agreeing(block: Block, left: Array, right: Array, floor: float, usable: tuple[Array, Array]) -> Block:
    """The entries of a block that agree with left @ right.T, in units and at positions that are `usable`."""
    xp = array_namespace(block.value)
    unit, index = block.unit_of_entry(), xp.astype(block.index, xp.int64)
    residual = block.value - dots(left, unit, right, index)
    return block.where((xp.abs(residual) < floor) & (gather(usable[0], unit) > 0) & (gather(usable[1], index) > 0))


def _ends(block: Block, chosen: Array) -> np.ndarray:
    """The `indptr` of a block that has only the entries `chosen` (bool), on the host."""
    xp = array_namespace(chosen)
    total = xp.cumulative_sum(xp.astype(chosen, xp.int64), include_initial=True)
    return to_numpy(gather(total, block.indptr))
