"""Samples in shards: the columns of R and the rows of C in parts, in memory, on disk, or made by a function."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..backends.blocks import Block, join_blocks, pieces
from ..errors import ArgumentError, check_count, check_shape
from ..samples.building import check_both_observed, index_vector
from ..samples.cross import CrossSamples
from ..samples.describe import cross_facts, describe
from ..samples.foreign import DaskMatrix, as_source
from ..samples.intersection import Intersection, freeze, join_intersection
from ..summary import Summarised, Summary
from .folder import SIDES, Cross, FolderWriter, facts_of, in_order, read_core, read_manifest, units_within, workspace
from .on_disk import block_checksum, check_values, checksum, largest_of
from .source import InMemory, Made, OnDisk, Shard

SHARD_BYTES = 64 << 20  # by default; a few seconds of work, and little beside a laptop's memory
_MOST_SHARDS = 100_000  # of a side: each takes half a kilobyte in every process, and a shape may be any number


def _dask_columns(Y: Any, rows: np.ndarray, start: int, stop: int) -> np.ndarray:
    return np.asarray(Y[:, start:stop][rows])


def _dask_rows(Y: Any, cols: np.ndarray, start: int, stop: int) -> np.ndarray:
    return np.asarray(Y[start:stop, :][:, cols])


@dataclass(frozen=True)
class Survey:
    """What is known of all observations: how many R and C have, the largest size in each, and a checksum of those that
    functions made."""

    n_obs: tuple[int, int]
    largest: tuple[float, float]
    made: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class ShardedSamples(Summarised, Cross):
    """Cross-concentrated samples of an n1 x n2 matrix in shards, each small beside the whole.

    Make them with `open` (a directory), `of` (samples in memory), `from_functions`, or `shard_file` and `shard_triplets`
    (more observations than memory). `rcurc` and `icurc` take them where they take `CrossSamples`.

    Attributes
    ----------
    shape : (int, int)
    rows, cols : int64 vectors
        I and J.
    dtype : numpy.dtype
        float32 or float64.
    r_shards, c_shards : list of Shard
        Columns of R, and rows of C, in this order.
    n_unused : int
        Observations that were given but lie outside the cross.
    folder : str or None
        The directory they are read from.
    """

    dtype: np.dtype[Any]
    r_shards: list[Shard]
    c_shards: list[Shard]
    n_unused: int = 0
    folder: str | None = None

    def __post_init__(self) -> None:
        freeze(self.rows)
        freeze(self.cols)

    # ---------------------------------------------------------------- constructors

    @classmethod
    def of(cls, samples: CrossSamples, shard_bytes: int = SHARD_BYTES) -> ShardedSamples:
        """The shards of samples on the host, sharing memory; each has about `shard_bytes` bytes of observations."""
        if not isinstance(samples, CrossSamples):
            raise TypeError(f"samples must be a CrossSamples, got {type(samples).__name__}")
        if not isinstance(samples.r_block.value, np.ndarray):
            raise TypeError(f"samples must be NumPy arrays, got some on {samples.device!r}; use samples.to_namespace(numpy)")
        size = check_count("shard_bytes", shard_bytes) // _bytes_each(samples)
        shards = [cut(side, block, size) for side, block in zip(SIDES, (samples.r_block, samples.c_block), strict=True)]
        return cls(samples.shape, samples.rows, samples.cols, samples.dtype, shards[0], shards[1], samples.n_unused)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> ShardedSamples:
        """The shards in a directory that `save`, `shard_file` or `shard_triplets` wrote; read when they are needed."""
        folder = os.path.abspath(folder)
        manifest = read_manifest(folder)
        rows, cols, dtype = manifest["rows"], manifest["cols"], manifest["dtype"]
        n1, n2 = manifest["shape"]
        shards = []
        for side, length in zip(SIDES, (len(rows), len(cols)), strict=True):
            facts = [(str(Path(folder) / entry["file"]), facts_of(entry)) for entry in manifest["shards"][side]]
            shards.append(
                [Shard(side, k, f.start, f.stop, OnDisk(path, f, length, dtype)) for k, (path, f) in enumerate(facts)]
            )
        return cls((n1, n2), rows, cols, np.dtype(dtype), shards[0], shards[1], manifest["n_unused"], os.fspath(folder))

    @classmethod
    def from_functions(
        cls,
        make_r: Callable[[int, int], Any],
        make_c: Callable[[int, int], Any],
        shape: tuple[int, int],
        rows: Any,
        cols: Any,
        *,
        columns_at_once: int,
        rows_at_once: int,
        dtype: Any = "float64",
    ) -> ShardedSamples:
        """Samples that are made when they are needed, by functions that give the same whenever they are called.

        Parameters
        ----------
        make_r : callable
            ``make_r(start, stop)`` gives the columns start..stop of R = Y[rows, :], an array (|I|, stop - start) with NaN
            where nothing was observed, or a sparse matrix whose stored entries were observed.
        make_c : callable
            ``make_c(start, stop)`` gives the rows start..stop of C = Y[:, cols], (stop - start, |J|), likewise.
        shape : (int, int)
        rows, cols : index vectors
            I and J.
        columns_at_once, rows_at_once : int
            Columns and rows in a shard.
        dtype : float32 or float64
            What the observations become.
        """
        n1, n2 = check_shape("shape", shape)
        rows, cols = index_vector("rows", rows, n1), index_vector("cols", cols, n2)
        if dtype not in ("float32", "float64", np.float32, np.float64):
            raise TypeError(f"dtype must be float32 or float64, got {dtype!r}")
        steps = (check_count("columns_at_once", columns_at_once), check_count("rows_at_once", rows_at_once))
        cross, shards = Cross((n1, n2), rows, cols), {side: list[Shard]() for side in SIDES}
        for side, make, step, name in zip(SIDES, (make_r, make_c), steps, ("columns_at_once", "rows_at_once"), strict=True):
            if cross.n_units(side) > _MOST_SHARDS * step:
                least = -(-cross.n_units(side) // _MOST_SHARDS)
                words = f"must be at least {least:,} for this shape (at most {_MOST_SHARDS:,} shards), got {step:,}"
                raise ArgumentError(name, words, step)
            for k, start in enumerate(range(0, cross.n_units(side), step)):
                stop = min(start + step, cross.n_units(side))
                source = Made(make, side, start, stop, cross.length(side), str(np.dtype(dtype)))
                shards[side].append(Shard(side, k, start, stop, source))
        return cls((n1, n2), rows, cols, np.dtype(dtype), shards["r"], shards["c"])

    @classmethod
    def from_dask(cls, Y: Any, rows: Any, cols: Any, *, shard_bytes: int = SHARD_BYTES) -> ShardedSamples:
        """The cross of a Dask array, in shards that are computed when they are needed; all of it is never here.

        Parameters
        ----------
        Y : dask.array.Array (n1, n2)
            NaN means not observed. It is computed for the survey and for the solve, with noise twice for that, and parts of
            it once more: if that is slow, `save` the samples first.
        rows, cols : index vectors
            I and J.
        shard_bytes : int
            About how large a shard is.
        """
        source = as_source(Y)
        if not isinstance(source, DaskMatrix):
            raise TypeError(f"Y must be a Dask array, got {type(Y).__name__}; CrossSamples.from_dense takes others")
        n1, n2 = check_shape("Y.shape", source.shape)
        rows, cols = index_vector("rows", rows, n1), index_vector("cols", cols, n2)
        dtype = "float32" if Y.dtype == np.float32 else "float64"
        numbers = check_count("shard_bytes", shard_bytes) // np.dtype(dtype).itemsize
        return cls.from_functions(
            partial(_dask_columns, Y, rows),
            partial(_dask_rows, Y, cols),
            (n1, n2),
            rows,
            cols,
            columns_at_once=max(numbers // len(rows), 1),
            rows_at_once=max(numbers // len(cols), 1),
            dtype=dtype,
        )

    # ---------------------------------------------------------------- what is there

    def shards(self, side: str) -> list[Shard]:
        """Those of R ("r") or of C ("c")."""
        return self.r_shards if side == "r" else self.c_shards

    def blocks(self, side: str) -> Iterator[tuple[int, Block]]:
        """The first unit and the observations of each shard, one after the other."""
        for shard in self.shards(side):
            yield shard.start, shard.load()

    def counts(self, side: str) -> np.ndarray:
        """Observations of each unit of a side (n_units,)."""
        every = (shard.some(np.arange(shard.stop - shard.start)).counts for shard in self.shards(side))
        return np.concatenate(list(every))

    @cached_property
    def _surveyed(self) -> tuple[Survey, Block, Block]:
        """The survey, and what both blocks have of the intersection; in a directory nothing but that is read."""
        if self.folder is not None:
            manifest = read_manifest(self.folder)
            entries = [manifest["shards"][side] for side in SIDES]
            n_obs = [sum(entry["n_obs"] for entry in side) for side in entries]
            largest = [max(entry["largest"] for entry in side) for side in entries]
            for side in entries:  # all numbers are scaled by this, long before all shards are read and compared
                one = max(side, key=lambda entry: entry["largest"])
                check_values(Path(self.folder) / one["file"], facts_of(one), self.dtype)
            return _survey(n_obs, largest, *read_core(Path(self.folder), manifest))
        return gathered(self, (survey_shard(shard, self.chosen(shard.side)) for shard in (*self.r_shards, *self.c_shards)))

    @property
    def survey(self) -> Survey:
        """How many observations there are, and how large; where a function makes them, it is called once for each shard."""
        return self._surveyed[0]

    @cached_property
    def intersection(self) -> Intersection:
        """The observations inside I x J, each once."""
        _, by_r, by_c = self._surveyed
        found = join_intersection(by_r, by_c)
        _check_agreement(self, found, by_c)
        return found

    def with_survey(self, answers: Iterable[Surveyed]) -> ShardedSamples:
        """The same samples, with what `survey_shard` gave elsewhere for each shard of R, then of C."""
        same = replace(self)
        same.__dict__["_surveyed"] = gathered(self, answers)
        return same

    @property
    def largest(self) -> tuple[float, float]:
        """The largest size of an observation of R, and of C."""
        return self.survey.largest

    @property
    def device(self) -> str:
        """Where the observations live."""
        return "cpu"

    @property
    def n_obs(self) -> int:
        """Observations in the union of Omega_R and Omega_C."""
        return sum(self.survey.n_obs) - int(np.count_nonzero(self.intersection.seen_by == 3))

    @property
    def nbytes(self) -> int:
        """Bytes that all observations take."""
        return sum(self.survey.n_obs) * _bytes_each(self) + 8 * sum(self.shape)

    @property
    def has_sigma(self) -> bool:
        """Whether the noise of each observation is known."""
        return self.intersection.block.sigma is not None

    @property
    def rate_rows(self) -> float:
        """p_R, the share of R that was observed."""
        return self.survey.n_obs[0] / (len(self.rows) * self.shape[1])

    @property
    def rate_cols(self) -> float:
        """p_C, the share of C that was observed."""
        return self.survey.n_obs[1] / (len(self.cols) * self.shape[0])

    def describe(self, rank: int | None = None) -> str:
        """Say in words what is there, with warnings where it is too little for `rank` (or for any rank)."""
        return describe(self, rank)

    def _summary(self) -> Summary:
        where = "in memory or made when asked for" if self.folder is None else f"in {self.folder}"
        shards = {"shards": f"{len(self.r_shards):,} of columns and {len(self.c_shards):,} of rows, {where}"}
        return Summary(cross_facts(self) | shards | {"values": str(self.dtype)})

    # ---------------------------------------------------------------- elsewhere

    def save(self, folder: str | os.PathLike[str]) -> ShardedSamples:
        """Write a directory of shards, the manifest last, and open it."""
        with workspace(folder, keep=True):
            writer = FolderWriter(folder, self, self.dtype)
            for side in SIDES:
                for start, block in self.blocks(side):
                    writer.add(side, start, block)
            writer.finish(self.n_unused)
        return ShardedSamples.open(folder)

    def to_memory(self) -> CrossSamples:
        """All of them in memory."""
        r, c = (join_blocks([block for _, block in self.blocks(side)]) for side in SIDES)
        return CrossSamples(self.shape, self.rows, self.cols, r, c, self.n_unused)


def _bytes_each(samples: CrossSamples | ShardedSamples) -> int:
    """Bytes that an observation takes."""
    return 4 + (2 if samples.has_sigma else 1) * int(samples.dtype.itemsize)


def cut(side: str, block: Block, size: int | None = None) -> list[Shard]:
    """The shards of a block in memory, sharing it; each has about `size` observations, or all of them."""
    if size is None:
        return [Shard(side, 0, 0, block.n_units, InMemory(block))]
    edges = enumerate(pairwise(pieces(block.counts, size)))
    parts = [(k, int(start), int(stop)) for k, (start, stop) in edges]
    return [Shard(side, k, a, b, InMemory(block.take_units(np.arange(a, b)))) for k, a, b in parts]


Surveyed = tuple[Block, int, float, str]  # what `survey_shard` gives


def survey_shard(shard: Shard, chosen: np.ndarray) -> Surveyed:
    """What a shard has of the intersection, by ascending units; how many observations it has, the largest size, and if a
    function made them a checksum."""
    block = shard.load()
    made = block_checksum(block) if isinstance(shard.source, Made) else ""
    return block.take_units(units_within(chosen, shard.start, shard.stop)).copy(), block.n_obs, largest_of(block.value), made


def gathered(samples: ShardedSamples, answers: Iterable[Surveyed]) -> tuple[Survey, Block, Block]:
    """What `survey_shard` gave for each shard of R, then of C, put together."""
    answers = list(answers)
    sides = answers[: len(samples.r_shards)], answers[len(samples.r_shards) :]
    n_obs, largest = [], []
    for side in sides:
        n_obs.append(sum(n for _, n, _, _ in side))
        largest.append(max(size for _, _, size, _ in side))
    parts = [join_blocks([block for block, *_ in side]) for side in sides]
    survey, by_r, by_c = _survey(n_obs, largest, in_order(parts[0], samples.cols), in_order(parts[1], samples.rows))
    return replace(survey, made=checksum([np.asarray([made for *_, made in answers])])), by_r, by_c


def _survey(n_obs: list[int], largest: list[float], by_r: Block, by_c: Block) -> tuple[Survey, Block, Block]:
    check_both_observed(*n_obs)
    return Survey((n_obs[0], n_obs[1]), (largest[0], largest[1])), by_r, by_c


def _check_agreement(samples: ShardedSamples, found: Intersection, by_c: Block) -> None:
    """Refuse an entry of the intersection that R and C see with different values."""
    of_c = np.flatnonzero(found.seen_by != 1)  # in the order of `by_c`; where R sees it too, with the value of R
    differ = np.flatnonzero(found.block.value[of_c] != by_c.value)
    if differ.size:
        k = int(of_c[differ[0]])
        i = int(np.searchsorted(found.block.indptr, k, side="right")) - 1
        i, j = int(samples.rows[i]), int(samples.cols[found.block.index[k]])
        raise ValueError(
            f"entry ({i}, {j}) was observed with different values, {float(found.block.value[k]):g} in R and "
            f"{float(by_c.value[differ[0]]):g} in C; they must agree"
        )
