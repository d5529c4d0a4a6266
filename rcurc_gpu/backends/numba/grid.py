"""The intersection for kernels compiled for the CPU: observations by rows, no padding, no dense array."""

# what runs compiled, too, has no annotations
# mypy: disallow-untyped-calls=False

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..arrays import Array
from ..blocks import Block, pieces
from ..plain.loop import Begin, Entries, Grid, Loop, Recipe
from . import core_kernels
from .joining_kernel import with_weight
from .loop import MOST_WIDTH, CompiledLoop, lines_of
from .parts import entry
from .threads import fixed, run

# Share of the intersection above which adding zeros row by row is cheaper than adding entries by their indices. Microseconds
# of 900 x 900 at rank 5: 349 and 222 if 40 % are observed, 471 and 694 if all are; at rank 20 866 and 805, 1087 and 2641.
_FULL = 0.45
# Each piece has a sum of its own over the columns: more of them take memory and time to add, fewer leave cores idle.
_MOST_PIECES = 32
# Observations of a piece, some milliseconds. Pieces depend on the data alone, so sums are the same on any number of cores.
_PIECE = 1 << 16

# Parts of the compiled loop by themselves, for sketches that are too large for it
_split_rows, _add_product, _back_product, _change, _floor_threshold = map(
    entry,
    (
        core_kernels.split_rows,
        core_kernels.add_product,
        core_kernels.back_product,
        core_kernels.change,
        core_kernels.floor_threshold,
    ),
)


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

    def loop(self, recipe: Recipe, begin: Begin) -> Loop:
        if begin.whole[2].shape[1] > MOST_WIDTH:
            return super().loop(recipe, begin)
        entries = (self.indptr, self.index, self.value, self.weights)
        return CompiledLoop(entries, self.edges, self._full, recipe, begin)

    @property
    def _full(self) -> bool:
        return len(self.value) > _FULL * self.shape[0] * self.shape[1]

    def threshold(
        self, left: Array, Q: Array, zeta: Array, S: list[Array] | None
    ) -> tuple[list[Array], list[Array], Array, Array, Array]:
        left, QT = _rows(left), _rows(Q)
        outliers = np.zeros_like(self.value) if S is None else S[0]
        if self._inliers is None:
            self._inliers = np.empty_like(self.value)
        G, Z = self._inliers, np.empty_like(left)
        sums = np.zeros((len(self.edges) - 1, 2))
        used = int(np.flatnonzero(np.any(left, axis=1)).max(initial=-1)) + 1
        there = (self.indptr, self.index, self.value, self.weights, self.edges)
        rest = (left, lines_of(QT), used, float(zeta), outliers, G, Z, sums)
        run(_split_rows, [(*there, p, p + 1, *rest) for p in range(len(sums))])
        square, count = sums.sum(axis=0).astype(left.dtype)
        return [G], [outliers], Z.T, square, count

    def mul(self, G: list[Array], X: Array, base: Array | None = None) -> Array:
        XT = _rows(X)
        Z = np.zeros((XT.shape[0], self.shape[0]), dtype=X.dtype) if base is None else np.array(base.T, order="C")
        there = (self.indptr, self.index, self.edges)
        lines = lines_of(XT)
        run(_add_product, [(*there, p, p + 1, G[0], lines, Z) for p in range(len(self.edges) - 1)])
        return Z.T

    def rmul(self, G: list[Array], P: Array, base: Array | None = None) -> Array:
        PT = _rows(P)
        out = np.empty((len(self.edges) - 1, PT.shape[0], self.shape[1]), dtype=P.dtype)
        there = (self.indptr, self.index, self.edges)
        run(_back_product, [(*there, p, p + 1, G[0], PT, out, self._full) for p in range(len(out))])
        total = out.sum(axis=0).T
        return total if base is None else base + total

    def inlying(self, left: Array, Q: Array, zeta: float) -> tuple[list[Array], Array, Array]:
        kept, edges = np.empty_like(self.value), self.edges
        by_row = np.zeros(self.shape[0], dtype=np.int64)
        by_col = np.zeros((len(edges) - 1, self.shape[1]), dtype=np.int64)
        there = (self.indptr, self.index, self.value)
        rest = (_rows(left), lines_of(_rows(Q)), float(zeta), kept, by_row)
        rows = zip(pairwise(edges), by_col, strict=True)
        run(core_kernels.inlying, [(*there, *first_last, *rest, into) for first_last, into in rows])
        return [kept], by_row, by_col.sum(axis=0)

    def counts(self, left: Array, Q: Array) -> tuple[Array, Array]:
        return np.diff(self.indptr), np.bincount(self.index, minlength=self.shape[1])

    def change(self, left: Array, Q: Array, old_left: Array, old_Q: Array, old_s: Array) -> Array:
        old_s = np.ascontiguousarray(old_s, dtype=np.float64)
        k = len(old_s)
        memory = (np.empty((k, k)), np.empty((k, k)), np.empty(max(self.shape), dtype=left.dtype))
        found = _change(_rows(left), _rows(Q), _rows(old_left), _rows(old_Q), old_s, *memory)
        return np.asarray(found, dtype=left.dtype)

    def scale(self, P: Array, s: Array, rank: int) -> tuple[Array, Array]:
        s = np.concatenate([s[:rank], np.zeros_like(s[rank:])])
        return P * s, s

    def floor_threshold(self, left: Array, Q: Array, sample: Entries, zeta: float, floor: float) -> Array:
        sizes = np.empty(len(sample[2]), dtype=left.dtype)
        i, j, y = map(np.ascontiguousarray, sample)
        there = (i, j.astype(self.index.dtype), y, _rows(left), lines_of(_rows(Q)))
        found = _floor_threshold(*there, left.shape[1], float(zeta), float(floor), sizes)
        return np.asarray(found, dtype=left.dtype)


def _rows(factor: Array) -> np.ndarray:
    """A factor (m, k) as the kernels have it, (k, m)."""
    return np.ascontiguousarray(factor.T)
