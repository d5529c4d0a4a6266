"""Sums over the observations for Gauss-Newton steps at U = left @ right.T, in plain array-API code.

A step U + A right^T + left B^T has one small normal equation for each row and each column, and terms that couple rows with
columns. A `Side` gives both for the rows, or, with the observations by columns, for the columns. This is the reference;
`numba.tangent_kernel` agrees with it to rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace, default_chunk_bytes, take_rows
from ..blocks import Block
from ..chunks import Chunk, ChunkPlan, load_chunk
from .regression import fitted, gram

_BYTES = 8 * 24  # working memory of a padded entry: the gathered factors of a small rank


class Side(ABC):
    """The rows, or the columns, of the intersection, with their observations in the fit. All sums are of float64."""

    @abstractmethod
    def weigh(self, left: Array, right: Array, scale: float) -> tuple[Any, Array, Array]:
        """Weigh the observations by their residuals e of ``left @ right.T``: w = 1 / (1 + (e / scale)^2)^2.

        These are the weights of Geman and McClure: 1 for residuals far below the scale, nearly 0 far above it.

        Parameters
        ----------
        left : float64 array (n_units, r)
        right : float64 array (length, r)
        scale : float

        Returns
        -------
        weighted
            For `couple`; its form is the layout's own.
        gram : (n_units, r, r), gradient : (n_units, r)
            ``sum_j w_ij right_j right_j^T`` and ``sum_j w_ij e_ij right_j`` of each unit i.
        """

    @abstractmethod
    def couple(self, weighted: Any, left: Array, X: Array) -> Array:
        """``sum_j w_ij (left_i . X_j) right_j`` of each unit i (n_units, r), for X (length, r)."""

    @abstractmethod
    def clipped(self, X: Array, most: float) -> Array:
        """``Y X`` (n_units, k), the observations clipped at +-`most`, for X (length, k)."""


@dataclass(frozen=True, eq=False)
class PaddedSide(Side):
    """Units padded to the longest of their chunk.

    Attributes
    ----------
    plan : ChunkPlan
    chunks : list of (Chunk, fit)
        `fit` is 1 where an entry takes part, else 0.
    """

    plan: ChunkPlan
    chunks: list[tuple[Chunk, Array]]

    @classmethod
    def of(cls, block: Block, weight: Array, chunk_bytes: int | None) -> PaddedSide:
        """Lay out a block; entries with `weight` 0 (n_obs,) take no part."""
        xp = array_namespace(block.value)
        double = Block(block.indptr, block.index, xp.astype(block.value, xp.float64), block.length)
        weights = Block(block.indptr, block.index, xp.astype(weight, xp.float64), block.length)
        units = np.arange(block.n_units)
        plan = ChunkPlan.of(block.counts, units, _BYTES, chunk_bytes or default_chunk_bytes(block.value))
        chunks = []
        for chosen in plan:
            fit = xp.astype(load_chunk(weights, chosen).value > 0, xp.float64)
            chunks.append((load_chunk(double, chosen), fit))
        return cls(plan, chunks)

    def weigh(self, left: Array, right: Array, scale: float) -> tuple[Any, Array, Array]:
        """Weights, Gram matrices and gradients."""
        weighted, grams, gradients = [], [], []
        for chunk, fit in self.chunks:
            D = take_rows(right, chunk.index)
            e = chunk.value - fitted(D, take_rows(left, chunk.units))
            x = 1 + (e / scale) ** 2
            w = fit / (x * x)
            weighted.append((w, D))
            grams.append(gram(D, w))
            gradients.append(_sums(w * e, D))
        return weighted, self.plan.join(grams), self.plan.join(gradients)

    def couple(self, weighted: Any, left: Array, X: Array) -> Array:
        """What couples rows with columns."""
        parts = []
        for (chunk, _), (w, D) in zip(self.chunks, weighted, strict=True):
            along = fitted(take_rows(X, chunk.index), take_rows(left, chunk.units))
            parts.append(_sums(w * along, D))
        return self.plan.join(parts)

    def clipped(self, X: Array, most: float) -> Array:
        """A product with the clipped observations."""
        xp = array_namespace(X)
        parts = []
        for chunk, fit in self.chunks:
            y = xp.where(xp.abs(chunk.value) > most, most * xp.sign(chunk.value), chunk.value)
            parts.append(_sums(y * fit, take_rows(X, chunk.index)))
        return self.plan.join(parts)


def _sums(weight: Array, rows: Array) -> Array:
    """(u, m) and (u, m, k) to (u, k): weighted sums."""
    return (weight[:, None, :] @ rows)[:, 0, :]
