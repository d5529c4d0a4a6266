"""How rows and columns tie each other down through the entries they share, in plain array code.

An entry (i, j) that agrees with the solution ties what row i may become to what column j may become. With a direction
(a_i, b_j) in which rows and columns move, it changes by a_i . x_j + y_i . b_j. `grams` and `couple` are the two sums over
entries that this needs; `inverses` are those of the first. Symmetric matrices are packed: the lower triangle, row by row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..arrays import (
    Array,
    array_namespace,
    asarray_on,
    default_chunk_bytes,
    device_of,
    diagonal,
    inverse,
    take_rows,
    to_numpy,
    triangle,
    unpacking,
)
from ..blocks import Block
from ..chunks import ChunkPlan, load_chunk

_COPIES = 4  # arrays of (entries, K) that are in memory at a time


def grams(block: Block, right: Array) -> Array:
    """Sums over the entries of each unit of the packed products x_j x_j^T (u, P); `right` has the x_j (length, K)."""
    xp = array_namespace(right)
    k = right.shape[1]
    q, p = triangle(k)
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
    q, p = triangle(k)
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


# ---------------------------------------------------------------- Lanczos


class Operations(Protocol):
    """What does the work of `PlainLanczos`: the table of kernels."""

    @property
    def couple(self) -> Callable[[Block, Array, Array, Array], Array]:
        """`couple`."""

    @property
    def inverses(self) -> Callable[[Array, float], Array]:
        """`inverses`."""

    @property
    def times(self) -> Callable[[Array, Array], Array]:
        """`times`."""


@dataclass(frozen=True, eq=False)
class TieProblem:
    """Rows and columns that tie each other down.

    Attributes
    ----------
    block, across : Block
        Entries that agree with the solution, by rows and by columns.
    left, right : float arrays (m, K), (n, K)
        The y_i and x_j.
    packed : float arrays (n, P), (m, P)
        Normal equations of columns and of rows.
    G : float array (n, K, K)
        The first of them in full.
    gauge : float array (K K, K K)
        The inverse of the Gram matrix of the directions b_j = E^T x_j, E any K x K matrix, which change no entry.
    normal : float array (n, K)
        Normal numbers for the start.
    ridge : float
        Added to the diagonals of the normal equations, relative to their mean.
    """

    block: Block
    across: Block
    left: Array
    right: Array
    packed: tuple[Array, Array]
    G: Array
    gauge: Array
    normal: Array
    ridge: float


class Lanczos(ABC):
    """Lanczos's method for how much of a move of the columns the rows can follow.

    Attributes
    ----------
    row_skew, col_skew : float arrays (m,), (n,)
        Traces of the inverses of the normal equations as if their own traces were K, on the host.
    """

    row_skew: np.ndarray
    col_skew: np.ndarray

    @abstractmethod
    def size(self) -> float:
        """``(v . G v) ** 0.5`` of the last vector."""

    @abstractmethod
    def step(self) -> float:
        """Make the next vector, after a look at the `size` of the last; how much of that one the rows follow."""

    @abstractmethod
    def combined(self, weights: np.ndarray) -> tuple[Array, Array]:
        """A direction of the columns, a sum of the vectors, with what the rows do."""


class PlainLanczos(Lanczos):
    """One call for each operation; `most` is the number of steps at the most, for those that take memory at once."""

    def __init__(self, ties: TieProblem, most: int, operations: Operations) -> None:
        self.ties, self.do = ties, operations
        self.inverse, self.col_skew = self._inverse(ties.packed[0])
        self.inverse_rows, self.row_skew = self._inverse(ties.packed[1])
        self.vectors: list[Array] = []
        self.images: list[Array] = []
        # as noise moves columns, if the rows are known
        start = self.do.times(array_namespace(ties.right).linalg.cholesky(self.inverse), ties.normal)
        self.v = self._without_gauge(self._without_gauge(start))

    def size(self) -> float:
        """``(v . G v) ** 0.5`` of the last vector; `step` needs it."""
        self.image = self.do.times(self.ties.G, self.v)
        square = float(array_namespace(self.v).sum(self.v * self.image))
        self.length = max(square, 0.0) ** 0.5  # what rounding leaves of nothing may be below 0
        return self.length

    def step(self) -> float:
        """Make the next vector; how much of the last one the rows follow."""
        xp, ties, do = array_namespace(self.v), self.ties, self.do
        self.vectors.append(self.v / self.length)
        self.images.append(self.image / self.length)
        moved = do.couple(ties.across, ties.right, ties.left, self._followed(self.vectors[-1]))
        w = self._without_gauge(do.times(self.inverse, moved))
        alpha = float(xp.sum(self.images[-1] * w))
        for _ in range(2):  # twice is enough
            for x, Gx in zip(self.vectors, self.images, strict=True):
                w = w - x * xp.sum(Gx * w)
        self.v = self._without_gauge(w)
        return alpha

    def combined(self, weights: np.ndarray) -> tuple[Array, Array]:
        """A direction of the columns, a sum of the vectors, with what the rows do."""
        b = self.vectors[0] * float(weights[0])
        for x, weight in zip(self.vectors[1:], weights[1:], strict=False):
            b = b + x * float(weight)
        return -self._followed(b), b

    def _followed(self, b: Array) -> Array:
        """What the rows do when the columns move by b."""
        ties = self.ties
        return self.do.times(self.inverse_rows, self.do.couple(ties.block, ties.left, ties.right, b))

    def _without_gauge(self, b: Array) -> Array:
        """The rest of a direction (n, K)."""
        xp, right = array_namespace(b), self.ties.right
        k = int(b.shape[1])
        share = self.ties.gauge @ xp.reshape(right.T @ self.do.times(self.ties.G, b), (-1,))
        return b - right @ xp.reshape(share, (k, k))

    def _inverse(self, G: Array) -> tuple[Array, np.ndarray]:
        """Inverses (u, K, K) of packed matrices, on their range, and their traces as if those of the matrices were K."""
        xp, k = array_namespace(G), int(self.ties.right.shape[1])
        places = asarray_on(diagonal(k), G)
        size = xp.sum(xp.take(G, places, axis=1), axis=1)[:, None] / k
        size = xp.where(size > 0, size, xp.ones_like(size))
        packed = self.do.inverses(G / size, self.ties.ridge)
        return unpacked(packed / size, k), to_numpy(xp.sum(xp.take(packed, places, axis=1), axis=1))
