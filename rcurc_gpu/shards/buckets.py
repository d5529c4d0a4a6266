"""A sort of more entries than memory holds: first into buckets of consecutive units on disk, then each bucket by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..backends.blocks import Block, join_blocks
from .spool import ScratchFile

UNIT_BYTES = 8  # of an `indptr`
# Different values of one entry that are combined at once, in multiples of what is sorted at once. They take some 100 bytes
# each, so up to three times the memory that is allowed; only a table that repeats one entry so often comes near to that.
_MOST_REPEATED = 3

# Given units, positions and values that repeat some place, the values that all of them get; or an error.
Resolve = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def plan(counts: np.ndarray, most_entries: int, entry_bytes: int, most_bytes: int) -> np.ndarray:
    """Where to cut units into buckets (n_buckets + 1,): with at most `most_entries` and `most_bytes`, or of one unit.

    Parameters
    ----------
    counts : int64 array (n_units,)
        Entries of each unit.
    most_entries : int
    entry_bytes : int
        Bytes of an entry of a block.
    most_bytes : int
        Bytes of a block of the bucket's units.
    """
    entries = np.concatenate([[0], np.cumsum(counts)])
    size = entries * entry_bytes + UNIT_BYTES * np.arange(len(entries))
    edges = [0]
    while edges[-1] < len(counts):
        start = edges[-1]
        stop = min(
            int(np.searchsorted(entries, entries[start] + most_entries, side="right")),
            int(np.searchsorted(size, size[start] + most_bytes, side="right")),
        )
        edges.append(max(stop - 1, start + 1))
    return np.asarray(edges, dtype=np.int64)


class Buckets:
    """Entries (unit, position, value) in one file, those of a bucket together, in the order in which they came.

    How many entries each unit will have is known before, and with it the place of every bucket in the file: there is one
    file, however many buckets, and a bucket is one read.

    Parameters
    ----------
    path : Path
    edges : int64 array (n_buckets + 1,)
        The units of each bucket.
    counts : int64 array (n_units,)
        Entries of each unit.
    dtype : float32 or float64, or `observed_dtype` of one
    """

    def __init__(self, path: Path, edges: np.ndarray, counts: np.ndarray, dtype: np.dtype) -> None:
        self.edges = edges
        self.sizes = np.add.reduceat(counts, edges[:-1])
        self.record = np.dtype([("unit", np.uint32), ("index", np.int32), ("value", dtype)])
        self._bucket_of = np.repeat(np.arange(len(edges) - 1, dtype=np.int32), np.diff(edges))
        self._next = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        self._file = ScratchFile(path, self.record, buffering=0)

    def close(self) -> None:
        """Close and delete the file."""
        self._file.close()

    def __len__(self) -> int:
        return len(self.sizes)

    def add(self, unit: np.ndarray, index: np.ndarray, value: np.ndarray) -> None:
        """Put entries into their buckets."""
        bucket = self._bucket_of[unit]
        records = np.empty(len(unit), self.record)
        records["unit"] = unit - self.edges[bucket]
        records["index"], records["value"] = index, value
        order, ends = grouped(bucket, len(self))
        records = records[order]
        for k in np.flatnonzero(np.diff(ends)):
            part = records[ends[k] : ends[k + 1]]
            self._file.write(int(self._next[k]), part)
            self._next[k] += len(part)

    def pieces(self, k: int, at_once: int) -> Iterator[np.ndarray]:
        """The records of bucket `k`, with units counted from its first, at most `at_once` at a time."""
        stop = int(self._next[k])
        for start in range(stop - int(self.sizes[k]), stop, at_once):
            yield self._file.read(start, min(at_once, stop - start))

    def sorted_block(self, k: int, length: int, most_entries: int, resolve: Resolve) -> Block:
        """The units of bucket `k`, each of `length` positions, as a block without repeats.

        Parameters
        ----------
        k : int
        length : int
        most_entries : int
            How many may be sorted at once; a unit that has more is sorted in parts.
        resolve : callable
            What to do with entries of which some have the same place: from units, positions and values to new values.
        """
        first, n_units = int(self.edges[k]), int(self.edges[k + 1] - self.edges[k])
        if n_units == 1 and self.sizes[k] > most_entries:
            return self._sorted_unit(k, length, most_entries, lambda p, _, v: resolve(np.full(len(p), first), p, v))
        records = next(self.pieces(k, max(int(self.sizes[k]), 1)), np.empty(0, self.record))
        return sorted_block(records, n_units, length, lambda u, p, v: resolve(u + first, p, v))

    def _sorted_unit(self, k: int, length: int, most_entries: int, resolve: Resolve) -> Block:
        """One unit that is too large, by positions: to the second sort they are units, with one position each."""
        counts = np.zeros(length, np.int64)
        for records in self.pieces(k, most_entries):
            counts += np.bincount(records["index"], minlength=length)
        edges = plan(counts, most_entries, 0, UNIT_BYTES * most_entries)
        path = self._file.path
        with closing(Buckets(path.with_name(f"{path.name}-unit"), edges, counts, self.record["value"])) as parts:
            for records in self.pieces(k, most_entries):
                parts.add(records["index"], np.zeros(len(records), np.int32), records["value"])
            whole = join_blocks([parts._of_few_places(part, most_entries, resolve) for part in range(len(parts))])
        index = np.flatnonzero(np.diff(whole.indptr)).astype(np.int32)
        return Block(np.asarray([0, len(index)], np.int64), index, whole.value, length, whole.sigma)

    def _of_few_places(self, k: int, most_entries: int, resolve: Resolve) -> Block:
        """The units of bucket `k`, of one position each."""
        if self.sizes[k] > most_entries:  # one place, observed more often than fits
            first = next(self.pieces(k, 1))
            others = (records[records["value"] != first["value"]] for records in self.pieces(k, most_entries))
            other = next((records[:1] for records in others if len(records)), None)
            if other is None:
                return sorted_block(first, 1, 1, resolve)
            sorted_block(np.concatenate([first, other]), 1, 1, resolve)  # an error, if they may not differ
            if self.sizes[k] > _MOST_REPEATED * most_entries:
                raise ValueError(
                    f"an entry was observed {self.sizes[k]:,} times, with different values: more than fit into the memory "
                    f"that is allowed, {_MOST_REPEATED * most_entries:,} of one entry"
                )
        # a mean or a median needs all of it
        return self.sorted_block(k, 1, max(int(self.sizes[k]), most_entries), resolve)


def sorted_block(records: np.ndarray, n_units: int, length: int, resolve: Resolve) -> Block:
    """Records as a block; `resolve` decides if some have the same place."""
    by_index, _ = grouped(records["index"], length)
    order, indptr = grouped(records["unit"][by_index], n_units)
    records = records[by_index[order]]
    unit, index, value = (np.ascontiguousarray(records[name]) for name in ("unit", "index", "value"))
    same = (unit[1:] == unit[:-1]) & (index[1:] == index[:-1])
    if same.any():
        repeated = np.flatnonzero(np.append(same, False) | np.append(False, same))
        value[repeated] = resolve(unit[repeated].astype(np.int64), index[repeated], value[repeated])
        first = np.append(True, ~same)
        index, value = index[first], value[first]
        indptr = np.append(0, np.cumsum(np.bincount(unit[first], minlength=n_units)))
    indptr = indptr.astype(np.int64)
    if value.dtype.names is None:
        return Block(indptr, index, value, length)
    return Block(indptr, index, value["value"].copy(), length, value["sigma"].copy())


def grouped(numbers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The order that sorts numbers below `size`, equal ones as they stand, and where each number begins (size + 1,)."""
    # scipy's transposition is a counting sort: linear, and faster than any sort of NumPy
    n = len(numbers)
    kind = np.int32 if max(n, size) < 1 << 31 else np.int64
    places: Any = (np.empty(n, np.int8), numbers.astype(kind), np.arange(n + 1, dtype=kind))
    found = csr_array(places, shape=(n, size)).tocsc()
    return found.indices, found.indptr
