"""Ragged observations: a list of units, each with the entries of it that were seen.

A unit is what the extension regresses: a column of the row block R, or a row of the column block C. Both blocks are
the same thing here, so everything that reads observations is written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np
from array_api_compat import is_cupy_array, is_numpy_array

from .arrays import (
    Array,
    array_namespace,
    asarray_on,
    bring,
    device_of,
    gather,
    repeat_each,
    same_place,
    takes_kernels,
    to_numpy,
)

# Rows between two chosen ones, on average, from which copying them run by run is faster than by their numbers.
_LONG_RUNS = 100


@dataclass(frozen=True, eq=False)
class Block:
    """Observed entries of `n_units` vectors of the same `length`.

    Attributes
    ----------
    indptr : int64 array (n_units + 1,)
        Unit u has the entries ``indptr[u]:indptr[u + 1]``.
    index : int32 array (n_obs,)
        Where in the unit an entry stands, ascending within the unit.
    value : float array (n_obs,)
    length : int
    sigma : float array (n_obs,), optional
        Standard deviation of the noise of each entry, in a unit of its own; None if nobody knows.
    """

    indptr: Array
    index: Array
    value: Array
    length: int
    sigma: Array | None = None

    @property
    def n_units(self) -> int:
        """How many vectors."""
        return int(self.indptr.shape[0]) - 1

    @property
    def n_obs(self) -> int:
        """How many entries were seen."""
        return int(self.value.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        xp = array_namespace(self.value)
        floats = 1 if self.sigma is None else 2
        return self.n_obs * (4 + floats * (xp.finfo(self.value.dtype).bits // 8)) + 8 * (self.n_units + 1)

    @cached_property
    def host_indptr(self) -> np.ndarray:
        """`indptr` on the host, where chunks are planned."""
        return to_numpy(self.indptr)

    @cached_property
    def counts(self) -> np.ndarray:
        """Observations of each unit, on the host (n_units,)."""
        return np.diff(self.host_indptr)

    def counts_of(self, units: np.ndarray) -> np.ndarray:
        """Observations of some units, on the host; from a device those of these units alone are brought."""
        if "host_indptr" in self.__dict__ or not is_cupy_array(self.value):
            return np.asarray(self.counts[units])
        ends = gather(self.indptr, asarray_on(np.stack([units, units + 1]), self.value))
        return np.diff(to_numpy(ends), axis=0)[0]

    def unit_of_entry(self) -> Array:
        """The unit of every entry, int64 (n_obs,)."""
        xp = array_namespace(self.value)
        units = xp.arange(self.n_units, dtype=xp.int64, device=device_of(self.value))
        return repeat_each(units, self.indptr, self.n_obs)

    def take_units(self, units: np.ndarray) -> Block:
        """The block of some units only, in the order given."""
        xp = array_namespace(self.value)
        if len(units) and units[-1] - units[0] == len(units) - 1 and bool(np.all(np.diff(units) == 1)):  # no copy
            low, high = int(self.host_indptr[units[0]]), int(self.host_indptr[units[-1] + 1])
            indptr = self.indptr[int(units[0]) : int(units[-1]) + 2] - low
            index, value, sigma = self.per_entry(lambda x: x[low:high])
            return Block(indptr, index, value, self.length, sigma)
        cuda = self._kernels
        if cuda is not None:
            return cast(Block, cuda.select(self, units)[0])
        counts = self.counts[units]
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        shift = asarray_on(self.host_indptr[:-1][units] - indptr[:-1], self.value)
        total, taken = int(indptr[-1]), asarray_on(indptr, self.value)
        entry = xp.arange(total, dtype=xp.int64, device=device_of(self.value))
        position = entry + repeat_each(shift, taken, total)
        index, value, sigma = self.per_entry(lambda x: gather(x, position))
        return Block(taken, index, value, self.length, sigma)

    def where(self, wanted: Array) -> Block:
        """The block of some entries only: those for which `wanted` (n_obs,) is true."""
        cuda = self._kernels
        if cuda is not None:
            return cast(Block, cuda.select(self, flags=wanted)[0])
        xp = array_namespace(self.value)
        place = xp.nonzero(wanted)[0]
        unit = gather(self.unit_of_entry(), place)
        edges = xp.arange(self.n_units + 1, dtype=unit.dtype, device=device_of(unit))
        index, value, sigma = self.per_entry(lambda x: gather(x, place))
        return Block(xp.astype(xp.searchsorted(unit, edges), xp.int64), index, value, self.length, sigma)

    def at_positions(self, wanted: np.ndarray, units: np.ndarray | None = None) -> Block:
        """The entries of some units (by default all) at the positions for which `wanted` (length,) is true."""
        cuda = self._kernels
        if cuda is not None:
            return cast(Block, cuda.select(self, units, places=asarray_on(wanted, self.value))[0])
        some = self if units is None else self.take_units(units)
        return some.where(gather(asarray_on(wanted, some.value), some.index))

    def triplets(
        self, wanted: Array, drawn: Callable[[int], np.ndarray | None] = lambda n: None
    ) -> tuple[Array, Array, Array]:
        """Unit and position (int64) and value of the entries for which `wanted` (n_obs,) is true.

        `drawn` says from their number which of them are taken, ascending; None, the default, for all.
        """
        xp = array_namespace(self.value)
        cuda = self._kernels
        if cuda is not None:
            some, unit = cuda.select(self, flags=wanted, with_units=True)
            found = (unit, xp.astype(some.index, xp.int64), some.value)
            numbers = drawn(some.n_obs)
            if numbers is None:
                return found
            at = asarray_on(numbers, self.value)
            return gather(found[0], at), gather(found[1], at), gather(found[2], at)
        place = xp.nonzero(wanted)[0]
        numbers = drawn(int(place.shape[0]))
        if numbers is not None:
            place = gather(place, asarray_on(numbers, self.value))
        unit = xp.astype(xp.searchsorted(self.indptr, place, side="right"), xp.int64) - 1
        return unit, xp.astype(gather(self.index, place), xp.int64), gather(self.value, place)

    @property
    def _kernels(self) -> Any:
        """What does this in few launches on CUDA; None elsewhere."""
        if not takes_kernels(self.value):
            return None
        from .cuda import blocks

        return blocks if blocks.serves(self) else None

    def per_entry(self, change: Callable[[Array], Array]) -> tuple[Array, Array, Array | None]:
        """What has a number for each entry, changed: `index`, `value` and, if there is any, `sigma`."""
        return change(self.index), change(self.value), None if self.sigma is None else change(self.sigma)

    def mapped(self, change: Callable[[Array], Array]) -> Block:
        """The same block with all its arrays changed, to another place for example."""
        index, value, sigma = self.per_entry(change)
        return Block(change(self.indptr), index, value, self.length, sigma)

    def copy(self) -> Block:
        """A block that shares nothing with this one, on the host."""
        return self.mapped(np.array)

    def scaled(self, factor: float) -> Block:
        """The same entries times `factor`."""
        half = 2.0 ** round(math.log2(abs(factor)) / 2) if factor else 1.0  # the whole may be too large for float32
        return replace(self, value=(self.value * half) * (factor / half))

    def to(self, like: Array) -> Block:
        """The same block where `like` is; itself, if it is there."""
        return self if same_place(self.value, like) else self.mapped(lambda x: bring(x, like))

    @cached_property
    def across(self) -> Block:
        """`transpose`, made once and kept."""
        return self.transpose()

    def units_across(self, positions: np.ndarray) -> tuple[Block, np.ndarray]:
        """A block in which some positions, ascending, are units, and their numbers in it: `across`, or a part of it.

        On a CPU the part takes a third of the time, if `across` is not there.
        """
        if "across" in self.__dict__ or not is_numpy_array(self.value):
            return self.across, positions
        wanted = np.zeros(self.length, dtype=bool)
        wanted[positions] = True
        return self.at_positions(wanted).across.take_units(positions), np.arange(len(positions))

    def transpose(self, units: np.ndarray | None = None) -> Block:
        """The same entries, of all units or of some in the order given, with units and positions exchanged."""
        xp, cuda = array_namespace(self.value), self._kernels
        if cuda is not None:
            return cast(Block, cuda.transpose(self, units))
        if units is not None:
            return self.take_units(units).transpose()
        if is_numpy_array(self.value):  # scipy's counting sort is linear and ten times faster
            from scipy.sparse import csr_array

            # 64-bit indices where scipy would not choose them otherwise are harmless
            shape = (self.n_units, self.length)
            flipped = csr_array((self.value, self.index, self.indptr), shape=shape).tocsc()
            indptr, unit = flipped.indptr.astype(np.int64), flipped.indices.astype(np.int32)
            sigma = (
                None if self.sigma is None else csr_array((self.sigma, self.index, self.indptr), shape=shape).tocsc().data
            )
            return Block(indptr, unit, flipped.data, self.n_units, sigma)
        order = xp.argsort(self.index, stable=True)
        index, value, sigma = self.per_entry(lambda x: gather(x, order))
        edges = xp.arange(self.length + 1, dtype=self.index.dtype, device=device_of(self.value))
        indptr = xp.astype(xp.searchsorted(index, edges), xp.int64)
        unit = xp.astype(gather(self.unit_of_entry(), order), self.index.dtype)
        return Block(indptr, unit, value, self.n_units, sigma)


def others(chosen: np.ndarray, total: int) -> np.ndarray:
    """The numbers below `total` that are not `chosen`, ascending."""
    left = np.ones(total, dtype=bool)
    left[chosen] = False
    return np.flatnonzero(left)


def pieces(counts: np.ndarray, size: int) -> np.ndarray:
    """Where to cut units of these `counts` so that a piece has about `size` observations (n_pieces + 1,)."""
    n = int(counts.sum()) // max(size, 1)
    if n <= 1:
        return np.arange(0, len(counts) + 1, max(len(counts), 1))
    total = np.cumsum(counts)
    cuts = np.searchsorted(total, np.arange(1, n) * (total[-1] / n)) + 1
    edges = np.concatenate([[0], cuts, [len(counts)]]).astype(np.int64)
    return edges[np.diff(edges, prepend=-1) > 0]


def join_blocks(blocks: list[Block]) -> Block:
    """One block of the units of several, on the host."""
    shifts = np.cumsum([0, *(block.n_obs for block in blocks[:-1])])
    indptr = [np.zeros(1, np.int64), *(block.indptr[1:] + shift for block, shift in zip(blocks, shifts, strict=True))]
    index, value = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("index", "value"))
    sigmas = [block.sigma for block in blocks if block.sigma is not None]  # all of them, or none
    return Block(np.concatenate(indptr), index, value, blocks[0].length, np.concatenate(sigmas) if sigmas else None)


def usual_labels(block: Block, labels: np.ndarray) -> np.ndarray:
    """The label that the positions of most entries of each unit have, int64 (n_units,); -1 of units where none has one.

    `labels` (length,) are on the host, from 0 on, or -1 for none.
    """
    n_labels = int(labels.max(initial=-1)) + 1
    if n_labels == 0:
        return np.full(block.n_units, -1)
    unit, label = np.repeat(np.arange(block.n_units), block.counts), labels[to_numpy(block.index)]
    there = label >= 0
    counts = np.bincount(unit[there] * n_labels + label[there], minlength=block.n_units * n_labels)
    counts = counts.reshape(block.n_units, n_labels)
    return np.where(counts.any(axis=1), np.argmax(counts, axis=1), -1)


def join_units(core: Array, rest: Array, chosen: np.ndarray, total: int, scale: Array | None = None) -> Array:
    """Rows of `core` at the numbers `chosen` and rows of `rest`, times `scale` (r,), at the others, ascending (total, r)."""
    if takes_kernels(core):
        from .cuda.blocks import join_rows

        return join_rows(core, rest, places_of(chosen, total), scale)
    rest = rest if scale is None else rest * scale
    if is_numpy_array(core):  # one copy instead of two
        out = np.empty((total, *core.shape[1:]), dtype=core.dtype)
        if _LONG_RUNS * len(chosen) < total:
            edges = np.sort(chosen)
            for k, (low, high) in enumerate(pairwise([-1, *edges.tolist(), total])):
                out[low + 1 : high] = rest[low + 1 - k : high - k]
        else:
            out[others(chosen, total)] = rest
        out[chosen] = core
        return out
    rest_ids = others(chosen, total)
    xp = array_namespace(core)
    place = np.empty(total, dtype=np.int64)
    place[chosen] = np.arange(len(chosen))
    place[rest_ids] = np.arange(len(chosen), total)
    return xp.take(xp.concat([core, rest]), asarray_on(place, core), axis=0)


def places_of(chosen: np.ndarray, total: int) -> np.ndarray:
    """Where rows stand (total,): k for chosen[k], and -1 - k for the k-th of the others."""
    places, rest = np.empty(total, np.int64), others(chosen, total)
    places[chosen], places[rest] = np.arange(len(chosen)), -1 - np.arange(len(rest))
    return places


def put_rows(x: Array, numbers: np.ndarray, rows: Array) -> Array:
    """`x` with other `rows` at the given numbers; NumPy and CuPy arrays are overwritten."""
    if is_numpy_array(x) or is_cupy_array(x):
        x[asarray_on(numbers, x)] = rows
        return x
    xp = array_namespace(x)
    source = np.arange(x.shape[0])
    source[numbers] = x.shape[0] + np.arange(len(numbers))
    return xp.take(xp.concat([x, rows]), asarray_on(source, x), axis=0)


def blank_rows(factor: Array, numbers: np.ndarray) -> Array:
    """`factor` with NaN in the rows `numbers`."""
    if len(numbers) == 0:
        return factor
    xp = array_namespace(factor)
    flag = np.zeros((factor.shape[0], 1), dtype=bool)
    flag[numbers] = True
    nan = xp.asarray(float("nan"), dtype=factor.dtype, device=device_of(factor))
    return xp.where(asarray_on(flag, factor), nan, factor)
