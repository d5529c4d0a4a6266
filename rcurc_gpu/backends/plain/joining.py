"""Two blocks with the same units become one; compiled: `numba.joining_kernel`."""

from __future__ import annotations

from ..arrays import Array, array_namespace, device_of, gather
from ..blocks import Block


def join(by_r: Block, by_c: Block) -> tuple[Block, Array]:
    """Each entry of two blocks with the same units once, with the value of the first that has it.

    Returns
    -------
    block : Block
    seen_by : int8 array (n_obs,)
        1 for entries of the first block alone, 2 for those of the second alone, 3 for those of both.
    """
    xp = array_namespace(by_c.value)
    width = by_c.length
    key = xp.concat([block.unit_of_entry() * width + xp.astype(block.index, xp.int64) for block in (by_r, by_c)])
    order = xp.argsort(key, stable=True)
    key = gather(key, order)
    is_from_r = order < by_r.n_obs
    first = both = xp.zeros((0,), dtype=xp.bool, device=device_of(key))  # the array API has no slice 1: of an empty array
    if key.shape[0]:
        same, no = key[1:] == key[:-1], xp.zeros((1,), dtype=xp.bool, device=device_of(key))
        first, both = xp.concat([~no, ~same]), xp.concat([same, no])
    code = xp.astype(xp.where(both, xp.full_like(order, 3), 2 - xp.astype(is_from_r, order.dtype)), xp.int8)
    value = gather(xp.concat([by_r.value, by_c.value]), order)
    sigma = None
    if by_r.sigma is not None and by_c.sigma is not None:
        sigma = gather(xp.concat([by_r.sigma, by_c.sigma]), order)[first]
    key, value, code = key[first], value[first], code[first]
    edges = xp.arange(by_c.n_units + 1, dtype=xp.int64, device=device_of(key)) * width
    block = Block(xp.astype(xp.searchsorted(key, edges), xp.int64), xp.astype(key % width, xp.int32), value, width, sigma)
    return block, code
