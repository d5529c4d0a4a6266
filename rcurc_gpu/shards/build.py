"""From observations on disk to shards: choose the cross, sort, write."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import check_choice, check_count
from ..progress import progress_bar
from ..samples.building import check_both_observed, observed, observed_dtype
from ..samples.choosing import choose_cross_of
from ..samples.duplicates import resolve_duplicates, resolve_weighted
from .buckets import Buckets, Resolve, plan
from .folder import SIDES, WORK, Cross, FolderWriter
from .spool import Spool, SpoolPairs

MEMORY_BYTES = 512 << 20  # by default
_LEAST_MEMORY = 1 << 20  # with less, pieces have so few observations that seeking takes all the time
_ENTRY_BYTES = 96  # of memory, for an observation that is being sorted: its record, copies in two orders, and the orders
_SIGMA_BYTES = 32  # more of it, if its noise is known


@dataclass(frozen=True)
class BuildOptions:
    """How to build shards: see `shard_triplets`."""

    duplicates: str
    dtype: np.dtype[Any]
    shard_bytes: int
    memory_bytes: int
    progress: bool
    sigma: bool

    @classmethod
    def checked(
        cls, duplicates: str, dtype: Any, shard_bytes: Any, memory_bytes: Any, progress: bool, sigma: bool
    ) -> BuildOptions:
        """What a user gave, or an error that names it."""
        try:
            kind = np.dtype(dtype)
        except TypeError:
            kind = None
        if kind not in (np.float32, np.float64) or kind is None:
            raise TypeError(f"dtype must be float32 or float64, got {dtype!r}")
        return cls(
            check_choice("duplicates", duplicates, ("error", "mean", "median")),
            kind,
            check_count("shard_bytes", shard_bytes),
            check_count("memory_bytes", memory_bytes, least=_LEAST_MEMORY),
            bool(progress),
            sigma,
        )

    @property
    def observed(self) -> np.dtype[Any]:
        """The dtype of what is kept of an observation beside its place."""
        return observed_dtype(self.dtype, self.sigma)

    @property
    def at_once(self) -> int:
        """Observations that are looked at, or sorted, at a time."""
        return self.memory_bytes // (_ENTRY_BYTES + (_SIGMA_BYTES if self.sigma else 0))

    def as_dtype(self, values: np.ndarray, words: Callable[[int, str], str]) -> np.ndarray:
        """Finite values as `dtype`; ``words(k, problem)`` says that number k has a problem."""
        with np.errstate(over="ignore"):
            out = values.astype(self.dtype, copy=False)
        if out is not values and not np.isfinite(out).all():
            k = int(np.argmin(np.isfinite(out)))
            raise ValueError(f"{words(k, f'must fit into {self.dtype}, got {values[k]}')}; use dtype='float64'")
        return out


class CrossPlaces(Cross):
    """A cross that knows which observations lie in it, and where."""

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Where each row stands in I, int32 (n1,), and each column in J (n2,); -1 where it does not."""
        found = tuple(np.full(size, -1, np.int32) for size in self.shape)
        for place, chosen in zip(found, (self.rows, self.cols), strict=True):
            place[chosen] = np.arange(len(chosen))
        return found[0], found[1]

    def uses(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Which of some observations lie in the cross."""
        return (self.places[0][i] >= 0) | (self.places[1][j] >= 0)

    def part(self, side: str, i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which of some observations belong to a side, and their units and positions there."""
        unit, position = (j, self.places[0][i]) if side == "r" else (i, self.places[1][j])
        inside = position >= 0
        return inside, unit[inside], position[inside]

    def resolver(self, side: str, duplicates: str) -> Resolve:
        """What decides about entries of a side that repeat a place."""
        n2 = self.shape[1]

        def resolve(unit: np.ndarray, position: np.ndarray, value: np.ndarray) -> np.ndarray:
            i, j = (self.rows[position], unit) if side == "r" else (unit, self.cols[position])
            key = i * np.int64(n2) + j
            if value.dtype.names is None:
                return np.asarray(resolve_duplicates(key, value, n2, duplicates))
            return observed(*resolve_weighted(key, value["value"].copy(), value["sigma"].copy(), n2, duplicates))

        return resolve


def build(
    spool: Spool,
    folder: str | os.PathLike[str],
    shape: tuple[int, int],
    rows: np.ndarray | None,
    cols: np.ndarray | None,
    options: BuildOptions,
    n_unused: int = 0,
    **more: Any,
) -> None:
    """Write the shards of what is spooled into a directory that `workspace` made; the spool is used up.

    Parameters
    ----------
    spool : Spool
    folder : path
    shape : (int, int)
    rows, cols : int64 vectors or None
        I and J; None to choose.
    options : BuildOptions
    n_unused : int
        Observations outside of the cross that are not in the spool.
    more : dict
        What else to say in the manifest.
    """
    if rows is None or cols is None:
        best_rows, best_cols = _chosen(spool, shape, options)
        rows, cols = best_rows if rows is None else rows, best_cols if cols is None else cols
    cross = CrossPlaces(shape, rows, cols)
    counts, outside = _counted(spool, cross, options)
    work, kind = Path(folder) / WORK, options.observed
    entry_bytes = 4 + kind.itemsize
    edges = {side: plan(counts[side], options.at_once, entry_bytes, options.shard_bytes) for side in SIDES}
    writer = FolderWriter(folder, cross, options.dtype)
    with (
        closing(Buckets(work / "r", edges["r"], counts["r"], kind)) as r,
        closing(Buckets(work / "c", edges["c"], counts["c"], kind)) as c,
    ):
        with progress_bar("sorting", len(spool) * spool.bytes_each, options.progress) as shown:
            for i, j, values in spool.triplets(options.at_once):
                for side, buckets in zip(SIDES, (r, c), strict=True):
                    inside, unit, position = cross.part(side, i, j)
                    buckets.add(unit, position, values[inside])
                shown.update(len(i) * spool.bytes_each)
        spool.close()
        total = sum(int(buckets.sizes.sum()) * buckets.record.itemsize for buckets in (r, c))
        with progress_bar("writing shards", total, options.progress) as shown:
            for side, buckets in zip(SIDES, (r, c), strict=True):
                resolve, length = cross.resolver(side, options.duplicates), cross.length(side)
                for k, start in enumerate(buckets.edges[:-1]):
                    writer.add(side, int(start), buckets.sorted_block(k, length, options.at_once, resolve))
                    shown.update(int(buckets.sizes[k]) * buckets.record.itemsize)
                buckets.close()
        writer.finish(n_unused + outside, **more)


def _chosen(spool: Spool, shape: tuple[int, int], options: BuildOptions) -> tuple[np.ndarray, np.ndarray]:
    with progress_bar("choosing rows and columns", None, options.progress, unit=" passes") as shown:
        return choose_cross_of(SpoolPairs(spool, shape, options.memory_bytes), shape, shown.update)


def _counted(spool: Spool, cross: CrossPlaces, options: BuildOptions) -> tuple[dict[str, np.ndarray], int]:
    """Entries of each unit of both sides, and how many observations are in neither."""
    counts = {side: np.zeros(cross.n_units(side), np.int64) for side in SIDES}
    outside, at_once = 0, max(options.at_once, *cross.shape)
    place_bytes = 2 * spool.index_dtype.itemsize
    with progress_bar("counting", len(spool) * place_bytes, options.progress) as shown:
        for i, j in spool.places(at_once):
            for side in SIDES:
                _, unit, _ = cross.part(side, i, j)
                counts[side] += np.bincount(unit, minlength=cross.n_units(side))
            outside += len(i) - int(np.count_nonzero(cross.uses(i, j)))
            shown.update(len(i) * place_bytes)
    check_both_observed(*(int(counts[side].sum()) for side in SIDES))
    return counts, outside
