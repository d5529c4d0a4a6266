"""`plain.tangent` with kernels compiled for the CPU, on all its cores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import Array
from ..blocks import Block, pieces
from ..plain.tangent import Side
from . import tangent_kernel
from .threads import run

_PIECE = 1 << 14  # observations of a piece of work: a tenth of a millisecond; with smaller ones Python's share grows


@dataclass(frozen=True, eq=False)
class CompiledSide(Side):
    """Units as they are in a block.

    Attributes
    ----------
    entries : indptr, index, value and fit of the observations
    parts : list of (first, stop)
        Ranges of units, one for each piece of work.
    """

    entries: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
    parts: list[tuple[int, int]]

    @classmethod
    def of(cls, block: Block, weight: Array, chunk_bytes: int | None) -> CompiledSide:
        """Lay out a block; entries with `weight` 0 (n_obs,) take no part."""
        fit = (np.asarray(weight) > 0).astype(np.float64)
        entries = (np.array(block.indptr), np.array(block.index), np.array(block.value, dtype=np.float64), fit)
        return cls(entries, [(int(a), int(b)) for a, b in pairwise(pieces(block.counts, _PIECE))])

    def weigh(self, left: Array, right: Array, scale: float) -> tuple[Any, Array, Array]:
        """Weights, Gram matrices and gradients."""
        left, right = np.ascontiguousarray(left), np.ascontiguousarray(right)
        m, r = left.shape
        out = np.zeros(len(self.entries[1])), np.zeros((m, r, r)), np.zeros((m, r))
        self._run(tangent_kernel.weigh, (*self.entries, left, right, float(scale)), out)
        return (out[0], right), out[1], out[2]

    def couple(self, weighted: Any, left: Array, X: Array) -> Array:
        """What couples rows with columns."""
        weight, right = weighted
        out = np.zeros_like(left, order="C")
        given = (*self.entries[:2], weight, np.ascontiguousarray(left), right, np.ascontiguousarray(X))
        self._run(tangent_kernel.couple, given, (out,))
        return out

    def clipped(self, X: Array, most: float) -> Array:
        """A product with the clipped observations."""
        out = np.zeros((len(self.entries[0]) - 1, X.shape[1]))
        self._run(tangent_kernel.clipped, (*self.entries, np.ascontiguousarray(X), float(most)), (out,))
        return out

    def _run(self, kernel: Callable[..., None], given: tuple[Any, ...], out: tuple[np.ndarray, ...]) -> None:
        run(kernel, [(*given, first, stop, *out) for first, stop in self.parts])
