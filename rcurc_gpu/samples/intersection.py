"""The observations inside I x J, from both blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backends.arrays import Array
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
    from ..backends.kernels import choose  # here: samples are at the end of long chains of imports

    by_r = from_r.transpose()  # by rows, too: two sorted lists are merged in linear time
    block, code = choose("auto", by_c.value).join(by_r, by_c)
    block.mapped(freeze)
    freeze(code)
    return Intersection(block, code)


def freeze(array: Array) -> Array:
    """The array; one of NumPy is read-only from now on."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array
