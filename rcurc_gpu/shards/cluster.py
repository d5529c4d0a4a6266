"""Work on shards by the workers of a Dask cluster, each shard where its data is.

What goes over the network: a side's basis to every worker once, the intersection, a few numbers for each shard, and the
factors if they are asked for. Work that is lost with a worker is done again by others: Dask knows how all of it was made,
except for observations in this process, which are sent again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from operator import itemgetter
from typing import Any

import numpy as np

from ..backend import namespace_for_device
from ..checkpoint import Checkpoint
from ..cores import on_one_core
from ..found import FoundCore
from ..normal import Normal
from ..progress import Progress
from ..samples import CoreView
from ..settings import Settings
from .engine import Job, find_core
from .jobs import Part, Saved, Store, run_job
from .samples import InMemory, Made, Shard, ShardedSamples, survey_shard
from .work import Arrays, Side, Work

try:
    import dask
    from distributed import Client, KilledWorker, as_completed
    from distributed.client import FutureCancelledError
except ImportError as error:
    raise ImportError("a client needs Dask, which the extra 'dask' brings: pip install 'rcurc-gpu[dask]'") from error

log = logging.getLogger("rcurc_gpu")

Future = Any  # a distributed.Future

_PATIENCE = 60.0  # seconds to wait for the first worker
_TRIES = 5  # of sending observations to workers that die with them
_TOGETHER = 8  # normal equations that are added in one task


@dataclass(eq=False)
class Remote:
    """A step of the work on one shard, done or under way on a worker."""

    job: Job
    future: Future
    submit: Callable[[Job], Future] = field(repr=False)


class OnCluster:
    """Works on the workers of a client.

    Parameters
    ----------
    client : distributed.Client
    gather : bool
        Whether to bring the factors here, or to leave them there as Dask arrays.
    """

    def __init__(self, client: Any, gather: bool) -> None:
        if not isinstance(client, Client) or client.asynchronous:
            kind = "an asynchronous one" if isinstance(client, Client) else type(client).__name__
            raise TypeError(f"client must be a dask.distributed.Client that waits for its results, got {kind}")
        client.wait_for_workers(1, timeout=_PATIENCE)
        self.client, self.gather = client, gather
        self.store: Store | None = None
        self._sent: dict[int, Future] = {}  # sides and shards of this process, by id
        self._kept: list[Any] = []  # what these ids belong to
        self._under_way: list[Future] = []

    def close(self) -> None:
        """Cancel what is under way, as after an error."""
        left = [future for future in self._under_way if future.status == "pending"]
        if left and self.client.status == "running":
            self.client.cancel(left)

    # ---------------------------------------------------------------- what is sent

    def _held(self, thing: Any) -> Future:
        """Something small on the workers that need it. As a task, and not scattered, it can be made again."""
        if id(thing) not in self._sent:
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
                self._sent[id(thing)] = self.client.submit(_same, thing, pure=False)
            self._kept.append(thing)
        return self._sent[id(thing)]

    def _source(self, shard: Shard) -> Any:
        """A shard as a worker gets it: the file or function it comes from, or observations of this process."""
        if not isinstance(shard.source, InMemory):
            return shard
        known = self._sent.get(id(shard))
        if known is None or known.status in ("cancelled", "lost", "error"):
            self._sent[id(shard)] = self.client.scatter(shard, hash=False)
            self._kept.append(shard)
        return self._sent[id(shard)]

    # ---------------------------------------------------------------- the engine

    def surveyed(self, samples: ShardedSamples) -> ShardedSamples:
        """The workers call functions that make observations; what is here or in a directory is known here."""
        shards = [*samples.r_shards, *samples.c_shards]
        if not any(isinstance(shard.source, Made) for shard in shards):
            return samples
        futures = [self.client.submit(survey_shard, shard, samples.chosen(shard.side), pure=False) for shard in shards]
        self._under_way += futures
        return samples.with_survey([self._answer(future, shard) for future, shard in zip(futures, shards, strict=True)])

    def find_core(
        self, view: CoreView, rank: int | str, settings: Settings, device: str, show: Progress, keeper: Checkpoint | None
    ) -> FoundCore:
        """Solve the core on a worker with a GPU if there is one, else here."""
        able = [] if device == "cpu" else [name for name, has in self.client.run(_has_gpu).items() if has]
        if not able or settings.callback is not None:
            return find_core(view, rank, settings, device, show, keeper)
        log.info("the core is solved on %s", able[0])
        show.stage("core, on a worker")
        device = "cuda" if device == "auto" else device
        future = self.client.submit(_find_core, self._held(view), rank, settings, device, workers=able, pure=False)
        self._under_way.append(future)
        return future.result()

    def map(
        self, work: Work, step: str, jobs: list[Job], reads: bool, kept: bool, report: Callable[[int], None]
    ) -> list[tuple[Remote, Arrays]]:
        """Do a step on many shards."""
        store = self.store if kept else None

        def submit(job: Job) -> Future:
            before = None if job.part is None else job.part.future
            args = (work, step, self._source(job.shard), self._held(job.side), before, job.args, reads, store)
            return self.client.submit(_run, *args, pure=False, key=f"rcurc-{step}-{job.shard.side}-{next(_numbers)}")

        remotes = [Remote(job, submit(job), submit) for job in jobs]
        self._under_way += [remote.future for remote in remotes]
        numbers = [self.client.submit(itemgetter(1), remote.future, pure=False) for remote in remotes]
        place = {future.key: k for k, future in enumerate(numbers)}
        for future in as_completed(numbers):
            if future.status == "error":
                break  # said below, before the others are done
            report(jobs[place[future.key]].n_units)
        return [(remote, self._settled(remote, 1, future)) for remote, future in zip(remotes, numbers, strict=True)]

    def total(self, parts: list[Remote]) -> Normal:
        """The sum, by workers that have parts of it."""
        futures = [self._future_of(part, _normal_of) for part in parts]
        while len(futures) > 1:
            groups = [futures[k : k + _TOGETHER] for k in range(0, len(futures), _TOGETHER)]
            futures = [self.client.submit(_sum, group, pure=False) for group in groups]
        try:
            return futures[0].result()
        except FutureCancelledError:  # something it is made of was lost
            return _sum([self._settled(part, 0, None, _normal_of) for part in parts])

    def collect(self, parts: list[Remote]) -> Arrays:
        """The arrays here, or as Dask arrays there."""
        if not self.gather:
            return self._dask_arrays(parts)
        futures = [self._future_of(part, itemgetter(0)) for part in parts]
        arrays = [self._settled(part, 0, future) for part, future in zip(parts, futures, strict=True)]
        return {name: np.concatenate([x[name] for x in arrays]) for name in arrays[0]}

    def saved(self, parts: list[Remote]) -> list[Saved]:
        """Where they are."""
        return [self._settled(part, 0) for part in parts]

    # ---------------------------------------------------------------- answers

    def _future_of(self, remote: Remote, pick: Callable[[tuple[Part, Arrays]], Any]) -> Future:
        return self.client.submit(pick, remote.future, pure=False)

    def _settled(
        self, remote: Remote, which: int, future: Future | None = None, pick: Callable[[Any], Any] | None = None
    ) -> Any:
        """The part (0) or the numbers (1) of a job; observations that were lost with a worker are sent again."""
        pick = pick or itemgetter(which)
        for _ in range(_TRIES):
            try:
                return self._answer(future or self._future_of(remote, pick), remote.job.shard)
            except FutureCancelledError:
                self._check_connection()
                future = None
                self._restore(remote)
        raise RuntimeError(f"{remote.job.shard.name} was lost {_TRIES} times, each time with the worker that had it")

    def _answer(self, future: Future, shard: Shard) -> Any:
        try:
            return future.result()
        except KilledWorker as error:
            raise RuntimeError(
                f"{shard.name} could not be worked on: {error}. If they lack memory, give them more or make shards smaller"
            ) from error

    def _check_connection(self) -> None:
        if self.client.status != "running":
            raise ConnectionError(
                "the connection to the Dask scheduler was lost; with output=..., the same call with a new client goes on "
                "where this one ended"
            )

    def _restore(self, remote: Remote) -> None:
        """Submit a job again whose future was lost, and before it those it needs."""
        if remote.job.part is not None:
            self._restore(remote.job.part)
        if remote.future.status in ("cancelled", "lost"):
            log.warning("%s was lost with a worker and is worked on again", remote.job.shard.name)
            remote.future = remote.submit(remote.job)
            self._under_way.append(remote.future)

    def _dask_arrays(self, parts: list[Remote]) -> Arrays:
        import dask.array as da

        kinds = self._settled(parts[0], 0, None, _kinds)
        found = {}
        for name, (dtype, shape) in kinds.items():
            pieces = [
                da.from_delayed(
                    self.client.submit(_pick, part.future, name, pure=False), (part.job.n_units, *shape), np.dtype(dtype)
                )
                for part in parts
            ]
            found[name] = da.concatenate(pieces)
        return found


_numbers = count()


def _run(
    work: Work,
    step: str,
    shard: Shard,
    side: Side,
    before: tuple[Part, Arrays] | None,
    args: tuple[Any, ...],
    reads: bool,
    store: Store | None,
) -> tuple[Part, Arrays]:
    """`run_job` on a worker: on its own GPU if it has one and may use it, else on the core of one of its threads."""
    if side.device == "auto":
        side = replace(side, device=namespace_for_device("auto")[1])
    with on_one_core():
        return run_job(work, step, shard, side, None if before is None else before[0], args, reads, store)


def _find_core(view: CoreView, rank: int | str, settings: Settings, device: str) -> FoundCore:
    with Progress(False) as show:
        return find_core(view, rank, settings, device, show)


def _has_gpu() -> bool:
    return namespace_for_device("auto")[1] != "cpu"


def _same(thing: Any) -> Any:
    return thing


def _normal_of(found: tuple[Part, Arrays]) -> Normal:
    part = found[0]
    arrays = part.load() if isinstance(part, Saved) else part
    return Normal(arrays["sums"], arrays["basis"])


def _sum(terms: list[Normal]) -> Normal:
    return sum(terms[1:], terms[0])


def _kinds(found: tuple[Arrays, Arrays]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (str(x.dtype), x.shape[1:]) for name, x in found[0].items()}


def _pick(found: tuple[Arrays, Arrays], name: str) -> np.ndarray:
    return found[0][name]
