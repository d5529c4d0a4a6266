"""The engine that works on shards in this process, one after the other; `cluster` has the one for Dask."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from ..backends.arrays import array_namespace, device_scope
from ..backends.blocks import Block
from ..backends.devices import place_for
from ..backends.kernels import RunContext, StepStore, choose
from ..options import Settings
from ..progress import Progress
from ..samples.view import CoreView
from ..shards.samples import ShardedSamples
from .jobs import Job, Report, Stage, arguments, kept, recalled
from .search import CoreSearch
from .solved import SolvedCore
from .store import Arrays, Part, PartFolder, PartStore, Saved, loaded
from .work import ON_DEVICE, at_home


def context_of(settings: Settings, like: Any, show: Progress, store: StepStore | None = None) -> RunContext:
    """How to compute where `like` is."""
    s, started = settings, time.perf_counter() - (0.0 if store is None else store.elapsed)
    return RunContext(like, choose(s.kernels, like, s.svd), s.seed, s.holdout, s.chunk_bytes, show, store, started)


def search_of(view: CoreView, settings: Settings, device: str, show: Progress, store: StepStore | None = None) -> CoreSearch:
    """The search for a core in this process."""
    like = place_for(device, view.intersection.block.value)
    with device_scope(like):
        return CoreSearch(view, settings, context_of(settings, like, show, store))


class InProcess:
    """Works on one shard after the other; while one is worked on, the next is read.

    Parameters
    ----------
    run : RunContext, optional
        How to compute; by default the context of the core.
    """

    is_here = True

    def __init__(self, run: RunContext | None = None) -> None:
        self.run = run
        self.store: PartStore | None = None

    def close(self) -> None:
        """Nothing to close: nothing is running."""

    def surveyed(self, samples: ShardedSamples) -> ShardedSamples:
        """The samples as they are: they survey themselves when asked."""
        return samples

    def find_core(
        self, view: CoreView, rank: int | str, settings: Settings, device: str, show: Progress, store: StepStore | None
    ) -> SolvedCore:
        """Solve the core here."""
        search = search_of(view, settings, device, show, store)
        self.run = search.run
        with device_scope(search.run.like):
            return search.find(rank)

    def map(self, stage: Stage, jobs: list[Job], report: Report) -> list[tuple[Part, Arrays]]:
        """Do a step on many shards."""
        assert self.run is not None
        found: list[tuple[Part, Arrays]] = []
        store, show = self.store if stage.kept else None, self.run.progress
        with ThreadPoolExecutor(1, thread_name_prefix="rcurc-read") as reader, device_scope(self.run.like):
            # one shard ahead: two are in memory at a time, and reading overlaps with computing
            ahead: Future[Block] | None = None
            for k, job in enumerate(jobs):
                block = None if ahead is None else ahead.result()
                ahead = self._read_ahead(stage, jobs[k + 1 : k + 2], reader)
                before = show.done
                stamp, done = recalled(stage, job, store)
                if done is None:
                    done = kept(stage, job, store, stamp, stage.work(*arguments(stage, job, self.run, block)))
                part, numbers = done
                if job.shard.resident is not None and not isinstance(part, Saved):  # a file gives arrays on the host
                    part = {name: at_home(job.shard, x) if name in ON_DEVICE else x for name, x in part.items()}
                found.append((part, numbers))
                jobs[k] = replace(job, part=None)  # what it was made of may be as large
                report(job.n_units - (show.done - before))  # what the pass itself did not report
        return found

    def _read_ahead(self, stage: Stage, following: list[Job], reader: ThreadPoolExecutor) -> Future[Block] | None:
        """Begin to read the next shard, unless its part is already in the store and needs no observations."""
        wanted = [job.shard for job in following if stage.reads and job.shard.resident is None]
        there = self.store if isinstance(self.store, PartFolder) else None
        missing = [shard for shard in wanted if there is None or there.is_missing(stage.name, shard)]
        return reader.submit(missing[0].load) if missing else None

    def collect(self, parts: list[Part]) -> Arrays:
        """The arrays of all parts, joined in memory."""
        arrays = [loaded(part) for part in parts]
        if len(arrays) == 1:
            return arrays[0]
        return {name: array_namespace(x).concat([part[name] for part in arrays]) for name, x in arrays[0].items()}

    def saved(self, parts: list[Part]) -> list[Saved]:
        """The parts that are in the store."""
        return [part for part in parts if isinstance(part, Saved)]
