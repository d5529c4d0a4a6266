"""The intersection for kernels compiled for the CPU: observations by rows, no padding, no dense array."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..arrays import Array
from ..blocks import Block, pieces
from ..plain.grid import Entries, Grid
from . import core_kernels
from .joining_kernel import with_weight
from .threads import fixed, run

# Share of the intersection above which adding zeros in vectors is cheaper than adding single entries by their indices.
_FULL = 0.25
# Each piece has a sum of its own over the columns: more of them take memory and time to add, fewer leave cores idle.
_MOST_PIECES = 32
# Observations of a piece, some milliseconds. Pieces depend on the data alone, so sums are the same on any number of cores.
_PIECE = 1 << 16


@dataclass(eq=False)
class CompiledGrid(Grid):
    """Entries of the fit in rows.

    Attributes
    ----------
    indptr, index : integer arrays
    value, weights : float arrays (n_entries,)
    edges : int64 array
        Rows where pieces of work begin.
    """

    shape: tuple[int, int]
    indptr: np.ndarray
    index: np.ndarray
    value: np.ndarray
    weights: np.ndarray
    edges: np.ndarray
    _inliers: np.ndarray | None = None  # memory for G: fresh memory for every iteration costs more than filling it

    @classmethod
    def of(cls, block: Block, weight: Array, chunk_bytes: int | None) -> CompiledGrid:
        """Lay out `block`; `chunk_bytes` is not needed."""
        n, entries = len(weight) + 1, tuple(map(fixed, (block.indptr, block.index, block.value, weight)))
        indptr, kept = np.empty_like(block.indptr), [np.empty(n, x.dtype) for x in entries[1:]]
        n = with_weight(*entries, indptr, *kept)
        index, value, weights = (x[:n] for x in kept)
        edges = pieces(np.diff(indptr), max(_PIECE, n // _MOST_PIECES))
        return cls((block.n_units, block.length), indptr, index, value, weights, edges)

    def threshold(
        self, left: Array, Q: Array, zeta: Array, S: list[Array] | None
    ) -> tuple[list[Array], list[Array], Array, Array, Array]:
        left, QT = np.ascontiguousarray(left), np.ascontiguousarray(Q.T)
        outliers = np.zeros_like(self.value) if S is None else S[0]
        if self._inliers is None:
            self._inliers = np.empty_like(self.value)
        G, Z = self._inliers, np.empty((self.shape[0], QT.shape[0]), dtype=left.dtype)
        sums = np.zeros((len(self.edges) - 1, 2))
        used = int(np.flatnonzero(np.any(left, axis=0)).max(initial=-1)) + 1
        there = (self.indptr, self.index, self.value, self.weights)
        rest = (left, QT, used, left.dtype.type(zeta), outliers, G, Z)
        rows = zip(pairwise(self.edges), sums, strict=True)
        run(core_kernels.threshold, [(*there, *first_last, *rest, into) for first_last, into in rows])
        square, count = sums.sum(axis=0).astype(left.dtype)
        return [G], [outliers], Z, square, count

    def mul(self, G: list[Array], X: Array, base: Array | None = None) -> Array:
        XT = np.ascontiguousarray(X.T)
        Z = np.empty((self.shape[0], XT.shape[0]), dtype=X.dtype)
        run(core_kernels.mul, [(self.indptr, self.index, *rows, G[0], XT, Z) for rows in pairwise(self.edges)])
        return Z if base is None else base + Z

    def rmul(self, G: list[Array], P: Array, base: Array | None = None) -> Array:
        P = np.ascontiguousarray(P)
        out = np.zeros((len(self.edges) - 1, P.shape[1], self.shape[1]), dtype=P.dtype)
        full = len(self.value) > _FULL * self.shape[0] * self.shape[1]
        rows = zip(pairwise(self.edges), out, strict=True)
        run(
            core_kernels.rmul_full if full else core_kernels.rmul,
            [(self.indptr, self.index, *first_last, G[0], P, into) for first_last, into in rows],
        )
        total = out.sum(axis=0).T
        return total if base is None else base + total

    def inlying(self, left: Array, Q: Array, zeta: float) -> tuple[list[Array], Array, Array]:
        kept, edges = np.empty_like(self.value), self.edges
        by_row = np.zeros(self.shape[0], dtype=np.int64)
        by_col = np.zeros((len(edges) - 1, self.shape[1]), dtype=np.int64)
        there = (self.indptr, self.index, self.value)
        left, QT = np.ascontiguousarray(left), np.ascontiguousarray(Q.T)
        rest = (left, QT, left.dtype.type(zeta), kept, by_row)
        rows = zip(pairwise(edges), by_col, strict=True)
        run(core_kernels.inlying, [(*there, *first_last, *rest, into) for first_last, into in rows])
        return [kept], by_row, by_col.sum(axis=0)

    def counts(self, left: Array, Q: Array) -> tuple[Array, Array]:
        return np.diff(self.indptr), np.bincount(self.index, minlength=self.shape[1])

    def change(self, left: Array, Q: Array, old_left: Array, old_Q: Array, old_s: Array) -> Array:
        QT, old_QT = np.ascontiguousarray(Q.T), np.ascontiguousarray(old_Q.T)
        found = core_kernels.change(np.ascontiguousarray(left), QT, np.ascontiguousarray(old_left), old_QT, old_s)
        return np.asarray(found, dtype=left.dtype)

    def scale(self, P: Array, s: Array, rank: int) -> tuple[Array, Array]:
        s = np.concatenate([s[:rank], np.zeros_like(s[rank:])])
        return P * s, s

    def floor_threshold(self, left: Array, Q: Array, sample: Entries, zeta: float, floor: float) -> Array:
        if floor == 0:
            return np.asarray(zeta, dtype=left.dtype)
        sizes = np.empty_like(sample[2])
        core_kernels.residual_sizes(*sample, np.ascontiguousarray(left), np.ascontiguousarray(Q), sizes)
        middle = (len(sizes) - 1) // 2
        sizes.partition(middle)
        return np.maximum(np.asarray(zeta, dtype=left.dtype), left.dtype.type(floor) * sizes[middle])
