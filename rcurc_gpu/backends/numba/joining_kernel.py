"""What puts entries together, or keeps some of them, compiled for the CPU."""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import numpy as np

from .parts import kernel

_FULL = 6  # positions for each entry up to which looking at all of them is faster than merging two lists


@kernel
def join(r_indptr, r_index, r_value, c_indptr, c_index, c_value, indptr, index, value, seen_by, code, there) -> int:
    """`plain.joining.join`; returns the number of entries. The arrays for them have one place more.

    `code`, of the type of `seen_by`, and `there`, of that of `value`, are memory for the positions of a unit.
    """
    n = 0
    length = code.shape[0]
    for u in range(indptr.shape[0] - 1):
        indptr[u] = n
        r, r_end, c, c_end = r_indptr[u], r_indptr[u + 1], c_indptr[u], c_indptr[u + 1]
        if _FULL * (r_end - r + c_end - c) > length:  # all positions in turn: no branch that the entries decide
            for k in range(length):  # to write it as one takes Numba longer to compile
                code[k] = 0
            for t in range(c, c_end):
                j = np.uint32(c_index[t])
                code[j], there[j] = 2, c_value[t]
            for t in range(r, r_end):
                j = np.uint32(r_index[t])
                code[j], there[j] = code[j] + 1, r_value[t]
            for k in range(length):
                index[n], value[n], seen_by[n] = k, there[k], code[k]
                n += code[k] > 0
            continue
        while r < r_end or c < c_end:
            in_r = r < r_end and (c == c_end or r_index[r] <= c_index[c])
            in_c = c < c_end and (r == r_end or c_index[c] <= r_index[r])
            index[n], value[n] = (r_index[r], r_value[r]) if in_r else (c_index[c], c_value[c])
            seen_by[n] = in_r + 2 * in_c
            r += in_r
            c += in_c
            n += 1
    indptr[indptr.shape[0] - 1] = n
    return n


@kernel
def with_weight(indptr, index, value, weight, kept_indptr, kept_index, kept_value, kept_weight) -> int:
    """The entries of a block whose weight is above 0; returns their number. The arrays for them have one place more."""
    n = 0
    for u in range(indptr.shape[0] - 1):
        kept_indptr[u] = n
        for t in range(indptr[u], indptr[u + 1]):
            kept_index[n], kept_value[n], kept_weight[n] = index[t], value[t], weight[t]
            n += weight[t] > 0
    kept_indptr[indptr.shape[0] - 1] = n
    return n
