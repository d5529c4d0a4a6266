"""Steps of the work on shards, and what an engine has to do with them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..backends.blocks import Block, join_blocks
from ..backends.kernels import RunContext, StepStore, choose
from ..noise.part import on_host
from ..options import Settings
from ..progress import Progress
from ..samples.view import CoreView
from ..shards.samples import ShardedSamples
from ..shards.source import Shard
from .solved import SolvedCore
from .store import Arrays, Part, PartStore, Saved, loaded

Work = Callable[..., tuple[Arrays, Arrays]]
Report = Callable[[int], None]  # called with how many units are done


@dataclass(frozen=True)
class Stage:
    """A step of the work on all shards.

    Attributes
    ----------
    work : callable
        ``work(shard, block, side, run, part, *args)``, one of those in `work`.
    name : str
        Name of the step in the store of parts.
    reads : bool
        Whether all observations are needed.
    kept : bool
        Whether its parts go to the store.
    """

    work: Work
    name: str
    reads: bool = True
    kept: bool = True


@dataclass(frozen=True, eq=False)
class Job:
    """A step of the work on one shard; `part` is the result of the step before, or the engine's handle of it."""

    shard: Shard
    side: Any  # a Side, if the step needs one
    part: Any = None
    args: tuple[Any, ...] = ()

    @property
    def n_units(self) -> int:
        """Units of the shard."""
        return self.shard.stop - self.shard.start


def recalled(stage: Stage, job: Job, store: PartStore | None) -> tuple[str, tuple[Part, Arrays] | None]:
    """What the part of a job is made from, and the part with its numbers if an earlier run made it."""
    if store is None:
        return "", None
    stamp = _stamp(stage, job)
    return stamp, store.find(stage.name, job.shard, stamp)


def arguments(stage: Stage, job: Job, run: RunContext, block: Block | None = None) -> tuple[Any, ...]:
    """What the work of a stage is called with; `block` has all observations, if they were read already."""
    if not stage.reads:
        block = None
    elif block is None:
        block = job.shard.load()
    before = () if job.part is None else (loaded(job.part),)
    return job.shard, block, job.side, run, *before, *job.args


def kept(stage: Stage, job: Job, store: PartStore | None, stamp: str, found: tuple[Arrays, Arrays]) -> tuple[Part, Arrays]:
    """The part and the numbers that the work gave, kept in the store if there is one."""
    part, numbers = found
    return (part if store is None else store.keep(stage.name, job.shard, stamp, part, numbers)), numbers


def _stamp(stage: Stage, job: Job) -> str:
    """A stamp of what a part is made from: parts with another stamp are not reused."""
    before = job.part.stamp if isinstance(job.part, Saved) else ""
    words = f"{stage.name} {job.side.stamp} {job.args!r} {before}"
    return f"{zlib.crc32(words.encode()):08x}-{job.shard.start}-{job.shard.stop}"


class Engine(Protocol):
    """Works on shards. Parts stay where they were made; the driver only has the engine's handles of them.

    Attributes
    ----------
    store : PartStore or None
        Where parts are kept, if they are to outlive the solve.
    is_here : bool
        Whether it works in the process of the result, where what a device knows of columns and rows may stay.
    """

    store: PartStore | None
    is_here: bool

    def close(self) -> None:
        """End all that is still running."""

    def surveyed(self, samples: ShardedSamples) -> ShardedSamples:
        """The samples with a survey of all observations, and the intersection."""

    def find_core(
        self, view: CoreView, rank: int | str, settings: Settings, device: str, show: Progress, store: StepStore | None
    ) -> SolvedCore:
        """Solve the core once."""

    def map(self, stage: Stage, jobs: list[Job], report: Report) -> list[tuple[Any, Arrays]]:
        """Do a step on many shards: their parts and their numbers."""

    def collect(self, parts: list[Any]) -> Arrays:
        """Arrays with the rows of all parts, one after the other."""

    def saved(self, parts: list[Any]) -> list[Saved]:
        """Where the parts are, if the engine keeps them in files."""


def gathered(
    shards: list[Shard], units: np.ndarray, engine: Engine, length: int, scale: float, taken: np.ndarray | None = None
) -> Block:
    """The observations of some units of a side, of this `length`, on the host, divided by `scale`.

    `taken` (length,) says which positions are wanted; all by default.
    """
    wanted = [(shard, units[(units >= shard.start) & (units < shard.stop)] - shard.start) for shard in shards]
    jobs = [Job(shard, Nothing(), None, (inside, taken)) for shard, inside in wanted if len(inside)]
    if not jobs:
        return Block(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0), length)
    stage = Stage(sampled, "some units", reads=False, kept=False)
    found = (x for _, x in engine.map(stage, jobs, lambda count: None))
    got = [Block(x["indptr"], x["index"], x["value"], length, x.get("sigma")) for x in found]
    block = join_blocks(got)
    return block if scale == 1 else block.scaled(1 / scale)


def sampled(
    shard: Shard, block: None, side: Any, run: RunContext, units: np.ndarray, taken: np.ndarray | None
) -> tuple[Arrays, Arrays]:
    """The observations of some units of a shard, for the driver."""
    some = on_host(shard.some(units) if taken is None else shard.some(units).at_positions(taken))
    return {}, {name: x for name in ("indptr", "index", "value", "sigma") if (x := getattr(some, name)) is not None}


@dataclass(frozen=True)
class Nothing:
    """Stands for a side where a step needs none."""

    device: str = "cpu"
    stamp: str = ""

    def context(self) -> RunContext:
        """How a worker computes."""
        like = np.empty(0)
        return RunContext(like, choose("auto", like))
