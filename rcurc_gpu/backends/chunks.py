"""Some units of a block at a time, as a padded rectangle: how the plain code goes over blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .arrays import Array, array_namespace, asarray_on, device_of, gather

if TYPE_CHECKING:
    from .blocks import Block


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some units of a block as a padded rectangle.

    Attributes
    ----------
    units : int64 array (u,)
    index : integer array (u, m)
        Positions; padding repeats a valid one.
    value : float array (u, m)
        0 in the padding.
    seen : bool array (u, m)
        False in the padding.
    """

    units: Array
    index: Array
    value: Array
    seen: Array


@dataclass(frozen=True)
class ChunkPlan:
    """Units in the order of their counts, cut so that a chunk's padded rectangle stays below a number of bytes.

    Units of about the same count stand together, so little is padding even when counts differ a thousandfold.
    """

    order: np.ndarray
    edges: np.ndarray

    @classmethod
    def of(cls, counts: np.ndarray, units: np.ndarray, bytes_per_entry: int, chunk_bytes: int) -> ChunkPlan:
        """Plan `units` (their numbers) of a block with these `counts`."""
        order = units[np.argsort(counts[units], kind="stable")]
        width = np.maximum(counts[order], 1)
        edges = [0]
        while edges[-1] < len(order):
            start = edges[-1]
            # Widths ascend, so a chunk is as wide as its last unit, and no longer than its first would allow.
            most = max(chunk_bytes // (int(width[start]) * bytes_per_entry), 1)
            ahead = width[start : start + most]
            sizes = np.arange(1, len(ahead) + 1) * ahead * bytes_per_entry
            fits = int(np.searchsorted(sizes, chunk_bytes, side="right"))
            edges.append(start + max(fits, 1))
        return cls(order, np.asarray(edges))

    def __len__(self) -> int:
        return len(self.edges) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        for start, stop in zip(self.edges[:-1], self.edges[1:], strict=True):
            yield self.order[start:stop]

    @cached_property
    def in_order(self) -> bool:
        """Whether the chunks have the units in ascending order."""
        return bool(np.all(np.diff(self.order) > 0))

    def restore(self) -> np.ndarray:
        """Where each planned unit, in ascending order, stands in the concatenated chunks."""
        return np.arange(len(self.order)) if self.in_order else np.argsort(self.order, kind="stable")

    def join(self, parts: list[Array]) -> Array:
        """One array from arrays with a row for each unit of a chunk; its rows are in the ascending order of the units."""
        xp = array_namespace(parts[0])
        whole = parts[0] if len(parts) == 1 else xp.concat(parts)
        return whole if self.in_order else xp.take(whole, asarray_on(self.restore(), whole), axis=0)


def load_chunk(block: Block, units: np.ndarray) -> Chunk:
    """Gather the observations of `units` into a padded rectangle."""
    xp = array_namespace(block.value)
    device = device_of(block.value)
    counts = block.counts[units]
    width = max(int(counts.max(initial=0)), 1)
    starts = asarray_on(block.host_indptr[:-1][units], block.value)
    lane = xp.arange(width, dtype=xp.int64, device=device)
    seen = lane[None, :] < asarray_on(counts, block.value)[:, None]
    last = xp.asarray(max(block.n_obs - 1, 0), dtype=xp.int64, device=device)
    position = xp.minimum(starts[:, None] + lane[None, :], last)
    if block.n_obs == 0:
        shape = (len(units), width)
        index = xp.zeros(shape, dtype=block.index.dtype, device=device)
        value = xp.zeros(shape, dtype=block.value.dtype, device=device)
    else:
        index = gather(block.index, position)
        value = gather(block.value, position) * xp.astype(seen, block.value.dtype)
    return Chunk(asarray_on(units, block.value), index, value, seen)
