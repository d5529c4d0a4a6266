"""The observations of the intersection, laid out for the core's iteration.

Two layouts with the same methods: `DenseGrid` when a good share of the intersection is observed, `PaddedGrid` when a
dense array would waste memory. Both work in panels of rows small enough for a cache.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add

import numpy as np

from ..arrays import (
    Array,
    array_namespace,
    asarray_on,
    default_chunk_bytes,
    device_of,
    gather,
    repeat_each,
    scatter,
    take_rows,
)
from ..blocks import Block
from ..chunks import Chunk, ChunkPlan, load_chunk
from .loop import Entries, Grid, residuals
from .regression import fitted

__all__ = ["DenseGrid", "Entries", "Grid", "PaddedGrid", "PanelGrid", "make_grid", "residuals"]

# Working memory of a padded entry: 24 numbers, gathered factors of a small rank included. It only sets how large panels
# are: at larger ranks they leave the cache.
_PADDED_BYTES = 8 * 24
_DENSE_NUMBERS = 8  # of a dense cell, in a panel: Y, weight, fit, residual, outliers and what the library makes in between
_DENSE_SHARE = 4  # cells of an observation up to which a dense layout is taken
_DENSE_BYTES = 40  # of a dense cell: where all of them fit in one panel the layout is dense, however sparse the data is


class PanelGrid(Grid):
    """Panels of rows small enough for a cache, in plain array-API code.

    Attributes
    ----------
    weight, fit : lists of arrays, one for each panel
        The step size of each entry, and 1 where an entry takes part in the fit, 0 elsewhere.
    """

    weight: list[Array]
    fit: list[Array]

    @abstractmethod
    def residual(self, k: int, left: Array, Q: Array) -> Array:
        """The residual of ``left @ Q.T`` in panel k, 0 where nothing takes part."""

    def threshold(
        self, left: Array, Q: Array, zeta: Array, S: list[Array] | None
    ) -> tuple[list[Array], list[Array], Array, Array, Array]:
        xp = array_namespace(left)
        G, S_new, square, count = [], [], [], []
        for k, weight in enumerate(self.weight):
            E = self.residual(k, left, Q)
            square.append(xp.linalg.vector_norm(E if S is None else E - S[k]) ** 2)
            out = xp.abs(E) >= zeta
            count.append(xp.astype(xp.count_nonzero(out), E.dtype))
            S_new.append(xp.where(out, E, xp.zeros_like(zeta)))
            E -= S_new[-1]  # in place, here and below: what is in the cache need not be written elsewhere
            E *= weight
            G.append(E)
        return G, S_new, self.mul(G, Q) + left, _total(square), _total(count)

    def inlying(self, left: Array, Q: Array, zeta: float) -> tuple[list[Array], Array, Array]:
        xp = array_namespace(left)
        kept, inliers = [], []
        for k, fit in enumerate(self.fit):
            E = self.residual(k, left, Q)
            inliers.append(xp.astype(xp.abs(E) < zeta, E.dtype) * fit)
            kept.append(E * inliers[-1])
        ones = (xp.ones((size, 1), dtype=left.dtype, device=device_of(left)) for size in self.shape)
        tall, wide = ones
        return kept, self.mul(inliers, wide)[:, 0], self.rmul(inliers, tall)[:, 0]


def make_grid(block: Block, weight: Array, chunk_bytes: int | None, layout: str = "auto") -> Grid:
    """Lay out the intersection.

    Parameters
    ----------
    block : Block
        Its observations, by rows.
    weight : float array (n_obs,)
        The step size of each entry; 0 for entries held out of the fit.
    chunk_bytes : int, optional
        Working memory of a panel.
    layout : {"auto", "dense", "padded"}
    """
    chunk_bytes = chunk_bytes or default_chunk_bytes(block.value)
    cells = block.n_units * block.length
    # Bytes of the two: a dense cell costs 33 (float64), a padded observation about 60 and twice the time.
    dense = cells <= _DENSE_SHARE * block.n_obs or _DENSE_BYTES * cells <= chunk_bytes
    if layout == "dense" or (layout == "auto" and dense):
        return DenseGrid.of(block, weight, chunk_bytes)
    return PaddedGrid.of(block, weight, chunk_bytes)


@dataclass(eq=False)
class DenseGrid(PanelGrid):
    """Dense panels of rows ``edges[k]:edges[k + 1]``; `Y` and `weight` are 0 where nothing takes part."""

    shape: tuple[int, int]
    edges: list[int]
    Y: list[Array]
    weight: list[Array]
    fit: list[Array]

    @classmethod
    def of(cls, block: Block, weight: Array, chunk_bytes: int) -> DenseGrid:
        """Lay out `block`."""
        xp = array_namespace(block.value)
        m, n = block.n_units, block.length
        step = max(chunk_bytes // (_DENSE_NUMBERS * 8 * n), 1)
        edges = [*range(0, m, step), m]
        key = block.unit_of_entry() * n + xp.astype(block.index, xp.int64)
        Y, W, F = [], [], []
        for start, stop in pairwise(edges):
            low, high = int(block.host_indptr[start]), int(block.host_indptr[stop])
            place = key[low:high] - start * n
            shape = (stop - start, n)
            W.append(scatter(place, weight[low:high], shape))
            F.append(xp.astype(W[-1] > 0, block.value.dtype))
            Y.append(scatter(place, block.value[low:high], shape) * F[-1])
        return cls((m, n), edges, Y, W, F)

    def residual(self, k: int, left: Array, Q: Array) -> Array:
        E = left[self.edges[k] : self.edges[k + 1], :] @ -Q.T
        E += self.Y[k]
        E *= self.fit[k]
        return E

    def mul(self, G: list[Array], X: Array, base: Array | None = None) -> Array:
        out = array_namespace(X).concat([panel @ X for panel in G])
        return out if base is None else base + out

    def rmul(self, G: list[Array], P: Array, base: Array | None = None) -> Array:
        parts = [panel.T @ P[start:stop, :] for panel, (start, stop) in zip(G, pairwise(self.edges), strict=True)]
        return _total(parts if base is None else [base, *parts])


@dataclass(eq=False)
class PaddedGrid(PanelGrid):
    """Rows padded to the longest of their panel, for a sparsely observed intersection.

    Attributes
    ----------
    units, index, value, weight, fit : lists of arrays, one for each panel of rows
    row_order, col_order : int64 arrays
        Where rows and columns, in their order, stand in the concatenated panels.
    by_col : list of (index, source)
        The transposed panels; `source` says where in the flattened panels of rows an entry stands.
    """

    shape: tuple[int, int]
    units: list[Array]
    index: list[Array]
    value: list[Array]
    weight: list[Array]
    fit: list[Array]
    row_order: Array
    by_col: list[tuple[Array, Array]]
    col_order: Array

    @classmethod
    def of(cls, block: Block, weight: Array, chunk_bytes: int) -> PaddedGrid:
        """Lay out `block`."""
        xp = array_namespace(block.value)
        plan = ChunkPlan.of(block.counts, np.arange(block.n_units), _PADDED_BYTES, chunk_bytes)
        chunks = [load_chunk(block, units) for units in plan]
        weights = Block(block.indptr, block.index, weight, block.length)
        padded = [load_chunk(weights, units).value for units in plan]
        fit = [xp.astype(w > 0, block.value.dtype) for w in padded]
        places, nowhere = _places(block, plan, chunks)
        flipped = places.transpose()
        col_plan = ChunkPlan.of(flipped.counts, np.arange(flipped.n_units), _PADDED_BYTES, chunk_bytes)
        return cls(
            (block.n_units, block.length),
            [chunk.units for chunk in chunks],
            [chunk.index for chunk in chunks],
            [chunk.value * f for chunk, f in zip(chunks, fit, strict=True)],
            padded,
            fit,
            asarray_on(plan.restore(), block.value),
            [_sources(load_chunk(flipped, units), nowhere) for units in col_plan],
            asarray_on(col_plan.restore(), block.value),
        )

    def residual(self, k: int, left: Array, Q: Array) -> Array:
        rows, D = take_rows(left, self.units[k]), take_rows(Q, self.index[k])
        return (self.value[k] - fitted(D, rows)) * self.fit[k]

    def mul(self, G: list[Array], X: Array, base: Array | None = None) -> Array:
        xp = array_namespace(X)
        parts = [_row_sums(panel, take_rows(X, index)) for panel, index in zip(G, self.index, strict=True)]
        out = xp.take(xp.concat(parts), self.row_order, axis=0)
        return out if base is None else base + out

    def rmul(self, G: list[Array], P: Array, base: Array | None = None) -> Array:
        xp = array_namespace(P)
        zero = xp.zeros((1,), dtype=P.dtype, device=device_of(P))  # where the padding points
        flat = xp.concat([*(xp.reshape(panel, (-1,)) for panel in G), zero])
        parts = [_row_sums(gather(flat, source), take_rows(P, index)) for index, source in self.by_col]
        out = xp.take(xp.concat(parts), self.col_order, axis=0)
        return out if base is None else base + out


def _places(block: Block, plan: ChunkPlan, chunks: list[Chunk]) -> tuple[Block, int]:
    """`block` with, for values, where each entry stands in the flattened panels (counted from 1); and their size."""
    xp = array_namespace(block.value)
    home = np.zeros(block.n_units, dtype=np.int64)  # where a row begins
    size = 0
    for units, chunk in zip(plan, chunks, strict=True):
        width = chunk.value.shape[1]
        home[units] = size + width * np.arange(len(units))
        size += width * len(units)
    shift = asarray_on(home - block.host_indptr[:-1], block.value)
    entry = xp.arange(block.n_obs, dtype=xp.int64, device=device_of(block.value))
    place = entry + repeat_each(shift, block.indptr, block.n_obs) + 1
    return Block(block.indptr, block.index, place, block.length), size


def _sources(chunk: Chunk, nowhere: int) -> tuple[Array, Array]:
    """Positions and places of a transposed panel; padding points `nowhere`."""
    xp = array_namespace(chunk.value)
    return chunk.index, xp.where(chunk.seen, chunk.value - 1, xp.full_like(chunk.value, nowhere))


def _row_sums(weights: Array, rows: Array) -> Array:
    """(u, m) and (u, m, k) to (u, k): weighted sums."""
    return (weights[:, None, :] @ rows)[:, 0, :]


def _total(parts: list[Array]) -> Array:
    return reduce(add, parts)
