"""The library's regression in a parallel loop of Numba's, for `bench.cpu_tools`."""

from __future__ import annotations

from numba import njit, prange

from rcurc_gpu.backends.numba import pass_kernel

_piece = pass_kernel.regress


@njit(parallel=True, cache=True, nogil=True)
def regress(
    indptr, index, value, units, basis, usable, white, unit_ids, index_ids, transposed, keys, share,
    begin, number, start, zeta0, floor, gamma, max_steps, informative, rank, a_out, table, edges
):  # fmt: skip
    """`pass_kernel.regress` for all pieces between `edges`."""
    for p in prange(edges.shape[0] - 1):
        low, high = edges[p], edges[p + 1]
        _piece(
            indptr, index, value, units[low:high], basis, usable, white, unit_ids, index_ids,
            transposed, keys, share, begin, number, start, zeta0, floor, gamma, max_steps, informative, rank,
            a_out[low:high], table[low:high]
        )  # fmt: skip
