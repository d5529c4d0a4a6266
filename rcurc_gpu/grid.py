"""The observations of the intersection, laid out for the core's iteration.

Two layouts with the same methods: `DenseGrid` when a good share of the intersection is observed, `PaddedGrid` when a
dense array would waste memory. Both work in panels of rows small enough for a cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .backend import Array, array_namespace, asarray_on, default_chunk_bytes, device_of, gather, take_rows
from .block import Block, ChunkPlan, load_chunk


class Grid(Protocol):
    """What the core needs to know of the intersection.

    `G` and `S` below are lists of panels in the layout's own form: treat them as opaque.
    """

    shape: tuple[int, int]

    def threshold(self, left: Array, V: Array, zeta: Array, S: Any) -> tuple[Any, Any, Array, Array]:
        """Residual of ``left @ V.T``, split at `zeta`.

        Returns the weighted inliers G, the outliers S (its last value comes in, None at first), the squared norm of
        the residual with the former outliers taken out (the numerator of e_k), and the number of outliers.
        """

    def inlying(self, left: Array, V: Array, zeta: float) -> tuple[Any, Array, Array]:
        """Unweighted inlying residuals, and the number of inliers of each row and each column."""

    def mul(self, G: Any, Q: Array) -> Array:
        """G @ Q"""

    def rmul(self, G: Any, P: Array) -> Array:
        """G.T @ P"""


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
    dense = cells <= 4 * block.n_obs or 40 * cells <= chunk_bytes
    if layout == "dense" or (layout == "auto" and dense):
        return DenseGrid.of(block, weight, chunk_bytes)
    return PaddedGrid.of(block, weight, chunk_bytes)


@dataclass(eq=False)
class DenseGrid:
    """Dense panels of rows.

    `Y` and `weight` are 0 where nothing is seen, `fit` is 1 where an entry takes part and 0 elsewhere.
    """

    shape: tuple[int, int]
    edges: list[int]
    Y: list[Array]
    weight: list[Array]
    fit: list[Array]

    @classmethod
    def of(cls, block: Block, weight: Array, chunk_bytes: int) -> DenseGrid:
        xp = array_namespace(block.value)
        m, n = block.n_units, block.length
        step = max(chunk_bytes // (8 * 8 * n), 1)
        edges = [*range(0, m, step), m]
        key = block.unit_of_entry() * n + xp.astype(block.index, xp.int64)
        Y, W, F = [], [], []
        for start, stop in zip(edges[:-1], edges[1:], strict=True):
            low, high = int(block.host_indptr[start]), int(block.host_indptr[stop])
            place = key[low:high] - start * n
            shape = (stop - start, n)
            Y.append(_scatter(place, block.value[low:high], shape))
            W.append(_scatter(place, weight[low:high], shape))
            F.append(xp.astype(W[-1] > 0, block.value.dtype))
            Y[-1] = Y[-1] * F[-1]
        return cls((m, n), edges, Y, W, F)

    def _panels(self) -> Any:
        return zip(range(len(self.Y)), self.edges[:-1], self.edges[1:], strict=True)

    def threshold(self, left: Array, V: Array, zeta: Array, S: Any) -> tuple[Any, Any, Array, Array]:
        xp = array_namespace(left)
        G, S_new, square, count = [], [], [], []
        Vt = V.T
        for k, start, stop in self._panels():
            E = (self.Y[k] - left[start:stop, :] @ Vt) * self.fit[k]
            rest = E if S is None else E - S[k]
            square.append(xp.sum(rest * rest))
            out = xp.astype(xp.abs(E) >= zeta, E.dtype)
            outlying = E * out
            count.append(xp.sum(out))
            G.append((E - outlying) * self.weight[k])
            S_new.append(outlying)
        return G, S_new, _total(xp, square), _total(xp, count)

    def inlying(self, left: Array, V: Array, zeta: float) -> tuple[Any, Array, Array]:
        xp = array_namespace(left)
        kept, by_row, by_col = [], [], []
        for k, start, stop in self._panels():
            E = (self.Y[k] - left[start:stop, :] @ V.T) * self.fit[k]
            inlier = xp.astype(xp.abs(E) < zeta, E.dtype) * self.fit[k]
            kept.append(E * inlier)
            by_row.append(xp.sum(inlier, axis=1))
            by_col.append(xp.sum(inlier, axis=0))
        return kept, xp.concat(by_row), _total(xp, by_col)

    def mul(self, G: Any, Q: Array) -> Array:
        xp = array_namespace(Q)
        return xp.concat([panel @ Q for panel in G])

    def rmul(self, G: Any, P: Array) -> Array:
        xp = array_namespace(P)
        return _total(xp, [G[k].T @ P[start:stop, :] for k, start, stop in self._panels()])


@dataclass(eq=False)
class PaddedGrid:
    """Rows padded to the longest of their panel, for a sparsely observed intersection.

    `by_row` holds (units, index, value, weight, fit) of each panel. `by_col` holds (units, index, source) of the
    transposed panels; `source` says where in the flattened panels of `by_row` an entry stands.
    """

    shape: tuple[int, int]
    by_row: list[tuple[Array, Array, Array, Array, Array]]
    by_col: list[tuple[Array, Array]]
    row_order: Array
    col_order: Array

    @classmethod
    def of(cls, block: Block, weight: Array, chunk_bytes: int) -> PaddedGrid:
        xp = array_namespace(block.value)
        everyone = np.arange(block.n_units)
        plan = ChunkPlan.of(block.counts, everyone, 8 * 24, chunk_bytes)
        by_row, offset = [], 0
        home = np.zeros(block.n_units, dtype=np.int64)  # where in the flattened panels a row begins
        weights = Block(block.indptr, block.index, weight, block.length)
        for units in plan:
            chunk = load_chunk(block, units)
            w = load_chunk(weights, units).value
            fit = xp.astype(w > 0, block.value.dtype)
            by_row.append((chunk.units, chunk.index, chunk.value * fit, w, fit))
            width = chunk.value.shape[1]
            home[units] = offset + width * np.arange(len(units))
            offset += width * len(units)
        # one more cell, always 0, for the padding of the transposed panels
        shift = asarray_on(home - block.host_indptr[:-1], block.value)
        entry = xp.arange(block.n_obs, dtype=xp.int64, device=device_of(block.value))
        place = entry + xp.repeat(shift, block.indptr[1:] - block.indptr[:-1])
        flipped = Block(block.indptr, block.index, place, block.length).transpose()
        col_plan = ChunkPlan.of(flipped.counts, np.arange(flipped.n_units), 8 * 24, chunk_bytes)
        by_col = []
        for units in col_plan:
            chunk = load_chunk_of_places(flipped, units, offset)
            by_col.append((chunk.index, chunk.value))
        return cls(
            (block.n_units, block.length),
            by_row,
            by_col,
            asarray_on(plan.restore(), block.value),
            asarray_on(col_plan.restore(), block.value),
        )

    def threshold(self, left: Array, V: Array, zeta: Array, S: Any) -> tuple[Any, Any, Array, Array]:
        xp = array_namespace(left)
        G, S_new, square, count = [], [], [], []
        for k, (units, index, value, weight, fit) in enumerate(self.by_row):
            E = (value - _entries(take_rows(left, units), take_rows(V, index))) * fit
            rest = E if S is None else E - S[k]
            square.append(xp.sum(rest * rest))
            out = xp.astype(xp.abs(E) >= zeta, E.dtype)
            outlying = E * out
            count.append(xp.sum(out))
            G.append((E - outlying) * weight)
            S_new.append(outlying)
        return G, S_new, _total(xp, square), _total(xp, count)

    def inlying(self, left: Array, V: Array, zeta: float) -> tuple[Any, Array, Array]:
        xp = array_namespace(left)
        kept, inliers = [], []
        for units, index, value, _, fit in self.by_row:
            E = (value - _entries(take_rows(left, units), take_rows(V, index))) * fit
            inliers.append(xp.astype(xp.abs(E) < zeta, E.dtype) * fit)
            kept.append(E * inliers[-1])
        ones = xp.ones((self.shape[1], 1), dtype=left.dtype, device=device_of(left))
        tall = xp.ones((self.shape[0], 1), dtype=left.dtype, device=device_of(left))
        return kept, self.mul(inliers, ones)[:, 0], self.rmul(inliers, tall)[:, 0]

    def mul(self, G: Any, Q: Array) -> Array:
        xp = array_namespace(Q)
        parts = [_row_sums(panel, take_rows(Q, index)) for panel, (_, index, _, _, _) in zip(G, self.by_row, strict=True)]
        return xp.take(xp.concat(parts), self.row_order, axis=0)

    def rmul(self, G: Any, P: Array) -> Array:
        xp = array_namespace(P)
        zero = xp.zeros((1,), dtype=P.dtype, device=device_of(P))
        flat = xp.concat([*(xp.reshape(panel, (-1,)) for panel in G), zero])
        parts = [_row_sums(gather(flat, source), take_rows(P, index)) for index, source in self.by_col]
        return xp.take(xp.concat(parts), self.col_order, axis=0)


def load_chunk_of_places(block: Block, units: np.ndarray, nowhere: int) -> Any:
    """`load_chunk` for a block whose values are places; padding points `nowhere`."""
    from dataclasses import replace

    chunk = load_chunk(replace(block, value=block.value + 1), units)  # padding is 0 there
    xp = array_namespace(chunk.value)
    return replace(chunk, value=xp.where(chunk.seen, chunk.value - 1, xp.full_like(chunk.value, nowhere)))


def _entries(left: Array, right: Array) -> Array:
    """(u, r) and (u, m, r) to (u, m): inner products."""
    return (right @ left[:, :, None])[:, :, 0]


def _row_sums(weights: Array, rows: Array) -> Array:
    """(u, m) and (u, m, k) to (u, k): weighted sums."""
    return (weights[:, None, :] @ rows)[:, 0, :]


def _total(xp: Any, parts: list[Array]) -> Array:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _scatter(place: Array, value: Array, shape: tuple[int, int]) -> Array:
    """A dense array with `value` at the ascending flat positions `place` and 0 elsewhere.

    The array API cannot assign by index arrays, so every cell looks up whether it is among the places.
    """
    xp = array_namespace(value)
    cells = shape[0] * shape[1]
    device = device_of(value)
    if place.shape[0] == 0:
        return xp.zeros(shape, dtype=value.dtype, device=device)
    everything = xp.arange(cells, dtype=xp.int64, device=device)
    found = xp.searchsorted(place, everything)
    found = xp.where(found < place.shape[0], found, xp.zeros_like(found))
    hit = gather(place, found) == everything
    return xp.reshape(xp.where(hit, gather(value, found), xp.zeros_like(value[:1])), shape)
