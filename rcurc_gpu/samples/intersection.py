"""The observations inside I x J, from both blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backends.arrays import Array, array_namespace, device_of, gather
from ..backends.blocks import Block


@dataclass(frozen=True, eq=False)
class Intersection:
    """The observations inside I x J, by rows.

    Attributes
    ----------
    block : Block
        Units are the rows of I, positions the columns of J.
    seen_by : int8 array (n_obs,)
        1 where only Omega_R sees the entry, 2 where only Omega_C does, 3 where both do.
    """

    block: Block
    seen_by: Array


def join_intersection(from_r: Block, by_c: Block) -> Intersection:
    """Each entry of the intersection once.

    Parameters
    ----------
    from_r : Block
        The columns of J in R: units are J, positions I.
    by_c : Block
        The rows of I in C: units are I, positions J.
    """
    by_r = from_r.transpose()  # by rows, too: two sorted lists are merged in linear time
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
    # 1 for R only, 2 for C only, 3 for both
    code = xp.astype(xp.where(both, xp.full_like(order, 3), 2 - xp.astype(is_from_r, order.dtype)), xp.int8)
    value = gather(xp.concat([by_r.value, by_c.value]), order)
    sigma = None
    if by_r.sigma is not None and by_c.sigma is not None:
        sigma = gather(xp.concat([by_r.sigma, by_c.sigma]), order)[first]
    key, value, code = key[first], value[first], code[first]
    edges = xp.arange(by_c.n_units + 1, dtype=xp.int64, device=device_of(key)) * width
    block = Block(xp.astype(xp.searchsorted(key, edges), xp.int64), xp.astype(key % width, xp.int32), value, width, sigma)
    block.mapped(freeze)
    freeze(code)
    return Intersection(block, code)


def freeze(array: Array) -> Array:
    """The array; one of NumPy is read-only from now on."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array
