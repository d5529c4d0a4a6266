"""The observations inside I x J, from both blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from array_api_compat import is_cupy_array, is_numpy_array

from ..backends.arrays import Array, array_namespace, device_of, takes_kernels, to_numpy
from ..backends.blocks import Block

_ODD = 0x5851F42D4C957F2D  # any large odd number: products with it differ in their upper digits


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

    def first_copies(self) -> tuple[np.ndarray, ...]:
        """For each row, and for each column, the first that was seen in the same places with the same values, or itself."""
        if takes_kernels(self.block.value):
            from ..backends.cuda import blocks

            return tuple(map(_firsts, blocks.fingerprints(self.block, _ODD)))
        rows = np.arange(self.block.n_units) if _begin_differently(self.block) else _firsts(fingerprints(self.block))
        if _columns_begin_differently(self.block):
            return rows, np.arange(self.block.length)
        return rows, _firsts(fingerprints(self.block.across))


def _firsts(numbers: Array) -> np.ndarray:
    """For each number the place of the first like it."""
    _, first, which = np.unique(to_numpy(numbers), return_index=True, return_inverse=True)
    return first[np.ravel(which)]


def _begin_differently(block: Block) -> bool:
    """Whether no two units can have the same entries, since not even their first ones are the same; False if unknown."""
    if not is_numpy_array(block.value) or np.min(block.counts, initial=1) == 0:
        return False
    return len(np.unique(block.value[block.indptr[:-1]])) == block.n_units


def _columns_begin_differently(block: Block) -> bool:
    """The same of its positions, without a block of these."""
    if not is_numpy_array(block.value) or block.n_obs == 0:
        return False
    first = np.full(block.length, np.nan)
    first[block.index[::-1]] = block.value[::-1]  # the last that is written stays
    return len(np.unique(first)) == block.length and not np.isnan(first).any()


def fingerprints(block: Block) -> Array:
    """A number for each unit of a block (n_units,), the same for two if they have the same entries, and else hardly ever.

    They are sums of whole numbers, which do not depend on their order, and are made where the entries are.
    """
    value, index, indptr = block.value, block.index, block.indptr
    if not (is_numpy_array(value) or is_cupy_array(value)):  # other libraries do not show the digits of a number
        value, index, indptr = (to_numpy(x) for x in (value, index, indptr))
    xp = array_namespace(value)
    digits = xp.astype(value.view(xp.int64 if value.dtype == xp.float64 else xp.int32), xp.int64)
    place = (xp.astype(index, xp.int64) + 1) * _ODD
    place = (place ^ (place >> 29)) * _ODD
    # whole numbers have zeros for the lower half of their digits
    each = ((digits ^ (digits >> 32)) + _ODD) * place
    total = xp.concat([xp.zeros(1, dtype=xp.int64, device=device_of(each)), xp.cumulative_sum(each)])
    return total[indptr[1:]] - total[indptr[:-1]]


def join_intersection(
    from_r: Block, by_c: Block, rows: np.ndarray | None = None, cols: np.ndarray | None = None
) -> Intersection:
    """Each entry of the intersection once.

    Parameters
    ----------
    from_r : Block
        The columns of J in R: units are J, positions I. Or all of R, with J as `cols`.
    by_c : Block
        The rows of I in C: units are I, positions J. Or all of C, with I as `rows`.
    """
    from ..backends.kernels import choose  # here: samples are at the end of long chains of imports

    by_r = from_r.transpose(cols)  # by rows, too: two sorted lists are merged in linear time
    kernels = choose("auto", by_c.value)
    if rows is not None and kernels.name == "cuda":  # which skips the others
        block, code = kernels.join(by_r, by_c, rows)
    else:
        block, code = kernels.join(by_r, by_c if rows is None else by_c.take_units(rows))
    block.mapped(freeze)
    freeze(code)
    return Intersection(block, code)


def freeze(array: Array) -> Array:
    """The array; one of NumPy is read-only from now on."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = False
    return array
