"""The intersection for kernels compiled for the CPU: observations by rows, no padding, no dense array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backend import Array
from ..block import Block, pieces
from ..grid import Entries, Grid
from . import cpu_kernels
from .threads import run

_PIECE = 1 << 17  # observations; pieces depend on the data alone, so sums do not depend on the number of threads


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

    @classmethod
    def of(cls, block: Block, weight: Array, chunk_bytes: int | None) -> CompiledGrid:
        """Lay out `block`; `chunk_bytes` is not needed."""
        fit = np.flatnonzero(weight > 0)
        counted = np.concatenate([[0], np.cumsum(weight > 0)])
        indptr = counted[block.indptr].astype(np.int64)
        return cls(
            (block.n_units, block.length),
            indptr,
            block.index[fit],
            block.value[fit],
            weight[fit],
            pieces(np.diff(indptr), _PIECE),
        )

    @property
    def _n_pieces(self) -> int:
        return len(self.edges) - 1

    def threshold(
        self, left: Array, Q: Array, zeta: Array, S: list[Array] | None
    ) -> tuple[list[Array], list[Array], Array, Array, Array]:
        k = Q.shape[1]
        left, Q = np.ascontiguousarray(left), np.ascontiguousarray(Q)
        outliers = np.zeros_like(self.value) if S is None else S[0]
        G, Z = np.empty_like(self.value), np.empty((self.shape[0], k), dtype=left.dtype)
        sums = np.zeros((self._n_pieces, 2))
        kernel = cpu_kernels.threshold_kernel(k)

        def work(p: int) -> None:
            first, last = self.edges[p], self.edges[p + 1]
            kernel(
                self.indptr, self.index, self.value, self.weights, first, last, left, Q, float(zeta), outliers, G, Z, sums[p]
            )

        run(work, self._n_pieces)
        square, count = sums.sum(axis=0).astype(left.dtype)
        return [G], [outliers], Z, square, count

    def mul(self, G: list[Array], X: Array) -> Array:
        X = np.ascontiguousarray(X)
        Z = np.empty((self.shape[0], X.shape[1]), dtype=X.dtype)
        kernel = cpu_kernels.mul_kernel(X.shape[1])
        run(lambda p: kernel(self.indptr, self.index, self.edges[p], self.edges[p + 1], G[0], X, Z), self._n_pieces)
        return Z

    def rmul(self, G: list[Array], P: Array, base: Array | None = None) -> Array:
        P = np.ascontiguousarray(P)
        out = np.zeros((self._n_pieces, self.shape[1], P.shape[1]), dtype=P.dtype)
        kernel = cpu_kernels.rmul_kernel(P.shape[1])
        run(lambda p: kernel(self.indptr, self.index, self.edges[p], self.edges[p + 1], G[0], P, out[p]), self._n_pieces)
        total = out[0] if self._n_pieces == 1 else out.sum(axis=0)
        return total if base is None else base + total

    def inlying(self, left: Array, Q: Array, zeta: float) -> tuple[list[Array], Array, Array]:
        kept = np.empty_like(self.value)
        by_row, by_col = (np.zeros(size, dtype=np.int64) for size in self.shape)
        args = (self.indptr, self.index, self.value, np.ascontiguousarray(left), np.ascontiguousarray(Q), float(zeta))
        cpu_kernels.inlying(*args, kept, by_row, by_col)
        return [kept], by_row, by_col

    def floor_threshold(self, left: Array, Q: Array, sample: Entries, zeta: float, floor: float) -> Array:
        if floor == 0:
            return np.asarray(zeta, dtype=left.dtype)
        sizes = np.empty_like(sample[2])
        cpu_kernels.residual_sizes(*sample, np.ascontiguousarray(left), np.ascontiguousarray(Q), sizes)
        middle = (len(sizes) - 1) // 2
        sizes.partition(middle)
        return np.maximum(np.asarray(zeta, dtype=left.dtype), left.dtype.type(floor) * sizes[middle])
