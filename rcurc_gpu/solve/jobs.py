"""Steps of the work on shards, and what an engine has to do with them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..backends.blocks import Block
from ..backends.kernels import RunContext, StepStore
from ..extend.normal import Normal
from ..options import Settings
from ..progress import Progress
from ..samples.cross import CoreView
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


def run_job(
    stage: Stage, job: Job, run: RunContext, store: PartStore | None, block: Block | None = None
) -> tuple[Part, Arrays]:
    """Do one step of the work on a shard, or take it from the store; return a part and its numbers.

    `block` has all observations, if they have been read already.
    """
    shard, side, part = job.shard, job.side, job.part
    stamp = "" if store is None else _stamp(stage, shard, side, part, job.args)
    # before the observations are read: a part in the store does not need them
    if store is not None and (known := store.find(stage.name, shard, stamp)) is not None:
        return known
    if stage.reads and block is None:
        block = shard.load()
    before = () if part is None else (loaded(part),)
    found, numbers = stage.work(shard, block if stage.reads else None, side, run, *before, *job.args)
    return (found if store is None else store.keep(stage.name, shard, stamp, found, numbers)), numbers


def _stamp(stage: Stage, shard: Shard, side: Any, part: Part | None, args: tuple[Any, ...]) -> str:
    """A stamp of what a part was made from: parts with another stamp are not reused."""
    words = f"{stage.name} {side.stamp} {args!r} {part.stamp if isinstance(part, Saved) else ''}"
    return f"{zlib.crc32(words.encode()):08x}-{shard.start}-{shard.stop}"


class Engine(Protocol):
    """Works on shards. Parts stay where they were made; the driver only has the engine's handles of them.

    Attributes
    ----------
    store : PartStore or None
        Where parts are kept, if they are to outlive the solve.
    """

    store: PartStore | None

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

    def total(self, parts: list[Any]) -> Normal:
        """The sum of the normal equations that parts have."""

    def collect(self, parts: list[Any]) -> Arrays:
        """Arrays with the rows of all parts, one after the other."""

    def saved(self, parts: list[Any]) -> list[Saved]:
        """Where the parts are, if the engine keeps them in files."""
