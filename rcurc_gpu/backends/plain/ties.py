"""How rows and columns tie each other down through the entries they share, in plain array code.

An entry (i, j) that agrees with the solution ties what row i may become to what column j may become. With a direction
(a_i, b_j) in which rows and columns move, it changes by a_i . x_j + y_i . b_j. `grams` and `couple` are the two sums over
entries that this needs; `inverses` are those of the first. Symmetric matrices are packed: the lower triangle, row by row.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, array_namespace, asarray_on, default_chunk_bytes, device_of, inverse, take_rows, unpacking
from ..blocks import Block, ChunkPlan, load_chunk

_COPIES = 4  # arrays of (entries, K) that are in memory at a time


def grams(block: Block, right: Array) -> Array:
    """Sums over the entries of each unit of the packed products x_j x_j^T (u, P); `right` has the x_j (length, K)."""
    xp = array_namespace(right)
    k = right.shape[1]
    q, p = np.tril_indices(k)
    place, parts = asarray_on(q * k + p, right), []
    plan = _plan(block, right)
    for units in plan:
        chunk = load_chunk(block, units)
        D = take_rows(right, chunk.index) * xp.astype(chunk.seen, right.dtype)[:, :, None]
        parts.append(xp.take(xp.reshape(xp.matrix_transpose(D) @ D, (-1, k * k)), place, axis=1))
    return plan.join(parts)


def unpacked(packed: Array, k: int) -> Array:
    """Symmetric matrices (u, K, K)."""
    xp = array_namespace(packed)
    return xp.reshape(xp.take(packed, asarray_on(np.ravel(unpacking(k)), packed), axis=1), (-1, k, k))


def inverses(packed: Array, ridge: float) -> Array:
    """Inverses of matrices (u, P) with `ridge` added to their diagonals, packed."""
    xp = array_namespace(packed)
    k = int((2 * packed.shape[1]) ** 0.5)
    q, p = np.tril_indices(k)
    full = unpacked(packed, k) + ridge * xp.eye(k, dtype=packed.dtype, device=device_of(packed))
    return xp.take(xp.reshape(inverse(full), (-1, k * k)), asarray_on(q * k + p, packed), axis=1)


def couple(block: Block, left: Array, right: Array, x: Array) -> Array:
    """Sums over the entries of each unit of x_j (y_i . b_j) (u, K).

    Parameters
    ----------
    block : Block
    left : float array (u, K)
        The y_i.
    right, x : float arrays (length, K)
        The x_j and the b_j.
    """
    xp = array_namespace(right)
    parts = []
    plan = _plan(block, right)
    for units in plan:
        chunk = load_chunk(block, units)
        y = take_rows(left, asarray_on(units, left))
        moved = (take_rows(x, chunk.index) @ y[:, :, None])[:, :, 0] * xp.astype(chunk.seen, right.dtype)
        parts.append((moved[:, None, :] @ take_rows(right, chunk.index))[:, 0, :])
    return plan.join(parts)


def _plan(block: Block, right: Array) -> ChunkPlan:
    bytes_per_entry = _COPIES * 8 * right.shape[1]
    return ChunkPlan.of(block.counts, np.arange(block.n_units), bytes_per_entry, default_chunk_bytes(right))


def times(matrices: Array, x: Array) -> Array:
    """Matrices (u, K, K) times vectors (u, K)."""
    return (matrices @ x[:, :, None])[:, :, 0]
