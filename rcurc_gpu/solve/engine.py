"""Who does the work on shards: this process, one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..backends.arrays import device_scope, place_for
from ..backends.blocks import Block
from ..extend.normal import Normal
from ..options import Settings
from ..progress import Progress
from ..samples.cross import CoreView
from ..shards.samples import ShardedSamples
from ..shards.source import Shard
from .checkpoint import Checkpoint
from .found import FoundCore
from .jobs import Part, Saved, Store, run_job
from .search import CoreSolve
from .work import Arrays, Work


@dataclass(frozen=True, eq=False)
class Job:
    """A step of the work on one shard; see `run_job`."""

    shard: Shard
    side: Any  # a Side, if the step needs one
    part: Any = None  # a Part, or what stands for one
    args: tuple[Any, ...] = ()

    @property
    def n_units(self) -> int:
        """Units of the shard."""
        return self.shard.stop - self.shard.start


class Engine(Protocol):
    """Where shards are worked on. Parts stay there; what stands for them here is the engine's own.

    Attributes
    ----------
    store : Store or None
        Where parts are kept, if they are to outlive the solve.
    """

    store: Store | None

    def close(self) -> None:
        """Leave nothing running."""

    def surveyed(self, samples: ShardedSamples) -> ShardedSamples:
        """The samples with what is known of all observations, and the intersection."""

    def find_core(
        self, view: CoreView, rank: int | str, settings: Settings, device: str, show: Progress, keeper: Checkpoint | None
    ) -> FoundCore:
        """Solve the core once."""

    def map(
        self, work: Work, step: str, jobs: list[Job], reads: bool, kept: bool, report: Callable[[int], None]
    ) -> list[tuple[Any, Arrays]]:
        """Do a step on many shards, for which all observations are needed (`reads`) or not: their parts, to be `kept` or
        not, and their numbers."""

    def total(self, parts: list[Any]) -> Normal:
        """The sum of the normal equations that parts have."""

    def collect(self, parts: list[Any]) -> Arrays:
        """Arrays with the rows of all parts, one after the other."""

    def saved(self, parts: list[Any]) -> list[Saved]:
        """Where the parts are, of an engine that keeps them in files."""


def find_core(
    view: CoreView, rank: int | str, settings: Settings, device: str, show: Progress, keeper: Checkpoint | None = None
) -> FoundCore:
    """Solve the core in this process."""
    like = place_for(device, view.intersection.block.value)
    with device_scope(like):
        return CoreSolve(view, settings, show, like, keeper).find(rank).on_host()


class InProcess:
    """Works on one shard after the other; while one is worked on, the next is read.

    Parameters
    ----------
    store : Store, optional
        Where parts are kept; by default in memory.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self._total: Normal | None = None  # of the last step, which gave normal equations

    def close(self) -> None:
        """Nothing is running."""

    def surveyed(self, samples: ShardedSamples) -> ShardedSamples:
        """As they are: they look when they are asked."""
        return samples

    def find_core(
        self, view: CoreView, rank: int | str, settings: Settings, device: str, show: Progress, keeper: Checkpoint | None
    ) -> FoundCore:
        """Solve the core here."""
        return find_core(view, rank, settings, device, show, keeper)

    def map(
        self, work: Work, step: str, jobs: list[Job], reads: bool, kept: bool, report: Callable[[int], None]
    ) -> list[tuple[Part, Arrays]]:
        """Do a step on many shards."""
        found: list[tuple[Part, Arrays]] = []
        store = self.store if kept else None
        self._total = None
        with ThreadPoolExecutor(1, thread_name_prefix="rcurc-read") as reader:
            ahead: Future[Block] | None = None
            for k, job in enumerate(jobs):
                block = None if ahead is None else ahead.result()
                following = [job.shard for job in jobs[k + 1 : k + 2] if reads and self._is_missing(step, job.shard)]
                ahead = reader.submit(following[0].load) if following else None
                part, numbers = run_job(work, step, job.shard, job.side, job.part, job.args, reads, store, block)
                if not isinstance(part, Saved) and "sums" in part:  # as large as a shard, perhaps: added up, not kept
                    normal = Normal(part.pop("sums"), part.pop("basis"))
                    self._total = normal if self._total is None else self._total + normal
                found.append((part, numbers))
                report(job.n_units)
        return found

    def _is_missing(self, step: str, shard: Shard) -> bool:
        """Whether a shard will have to be read; a part that is there needs no observations."""
        return self.store is None or not os.path.exists(self.store.path(step, shard))

    def total(self, parts: list[Part]) -> Normal:
        """The sum, one after the other."""
        total = self._total
        for part in parts:
            if isinstance(part, Saved):
                arrays = part.load()
                normal = Normal(arrays["sums"], arrays["basis"])
                total = normal if total is None else total + normal
        assert total is not None
        return total

    def collect(self, parts: list[Part]) -> Arrays:
        """All in memory."""
        arrays = [part.load() if isinstance(part, Saved) else part for part in parts]
        return {name: np.concatenate([x[name] for x in arrays]) for name in arrays[0]}

    def saved(self, parts: list[Part]) -> list[Saved]:
        """They are in the store."""
        return [part for part in parts if isinstance(part, Saved)]
