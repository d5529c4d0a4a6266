"""Work on shards by the workers of a Dask cluster, each shard where its data is.

What goes over the network: a side's basis to every worker once, the intersection, a few numbers for each shard, and the
factors if they are asked for. Work that is lost with a worker is done again by others. Dask knows how all of it was made,
except for observations in this process, which are sent again.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np

from ..backends.kernels import StepStore
from ..options import Settings
from ..progress import Progress
from ..samples.view import CoreView
from ..shards.samples import ShardedSamples
from ..shards.source import InMemory, Made, OnDisk, Shard
from . import on_worker
from .engine import InProcess
from .jobs import Job, Report, Stage
from .solved import SolvedCore
from .store import Arrays, PartStore, Saved

try:
    import dask
    from distributed import Client, KilledWorker, as_completed
    from distributed import TimeoutError as TooLate
    from distributed.client import FutureCancelledError

    from .connection import Disconnected, Lost, while_connected
except ImportError as error:
    raise ImportError("a client needs Dask, which the extra 'dask' brings: pip install 'rcurc-gpu[dask]'") from error

log = logging.getLogger("rcurc_gpu")

Future = Any  # a distributed.Future

_FIRST_WORKER = 60.0  # seconds to wait for a first worker: it may be starting, but must not block for ever
_NO_WORKER = 300.0  # seconds without any worker until the solve is given up; batch systems restart workers within minutes
_LOOK = 2.0  # seconds between two questions to the scheduler whether there are workers: each is a round trip
_PAUSE = 0.002  # seconds between two checks of what is done: far below the work on a shard, and no busy waiting
# Attempts at work that needs many shards, or the core. A worker that dies loses it all; five in a row are no accident.
_TRIES = 5
_DEATHS = 3  # workers that died with nothing but one shard to do, from which the shard is the reason (too large, usually)


@dataclass(eq=False)
class Remote:
    """A step of the work on one shard, done or under way on a worker."""

    job: Job
    future: Future
    submit: Callable[[Job], Future] = field(repr=False)
    worker: str | None = None  # where it was done


class OnCluster:
    """Works on the workers of a client.

    Parameters
    ----------
    client : distributed.Client
    gather : bool
        Whether to bring the factors here, or to leave them on the workers as Dask arrays.
    """

    is_here = False

    def __init__(self, client: Any, gather: bool) -> None:
        if not isinstance(client, Client) or client.asynchronous:
            kind = "an asynchronous one" if isinstance(client, Client) else type(client).__name__
            raise TypeError(f"client must be a dask.distributed.Client that waits for its results, got {kind}")
        if client.status != "running":
            raise ValueError(f"client must be connected to a scheduler, got one that is {client.status}")
        self.client, self.gather = client, gather
        self.store: PartStore | None = None
        self._name = uuid.uuid4().hex[:12]  # in the keys of tasks: other solves may use the same cluster
        self._numbers = count()
        self._sent: dict[int, Future] = {}  # sides, functions, and shards of this process, by id
        self._kept: list[Any] = []  # the objects of these ids: an object that is freed gives its id to another
        self._under_way: list[Future] = []
        self._wait_for_a_worker()
        self._seen = self._looked = time.monotonic()  # when there last were workers, and when that was last asked

    def close(self) -> None:
        """Cancel all tasks that are still running, as after an error."""
        left = [future for future in self._under_way if future.status == "pending"]
        if left and self.client.status == "running":
            self.client.cancel(left)

    def _wait_for_a_worker(self) -> None:
        try:
            self.client.wait_for_workers(1, timeout=_FIRST_WORKER)
        except TooLate as error:
            raise RuntimeError(f"client has no workers, and none came in {_FIRST_WORKER:g} seconds") from error

    # ---------------------------------------------------------------- what is sent

    def _submit(self, function: Callable[..., Any], *args: Any, **options: Any) -> Future:
        # pure=False: each call is a new task, also for the same work after a loss
        future = self.client.submit(function, *args, pure=False, **options)
        self._under_way.append(future)
        return future

    def _held(self, thing: Any) -> Future:
        """Something small on the workers that need it: a task, which Dask can run again, and not scattered data."""
        if id(thing) not in self._sent:
            # Dask warns of arguments above 10 MB; the basis of a side may be larger, and is sent once
            with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):
                self._sent[id(thing)] = self.client.submit(on_worker.same, thing, pure=False)
            self._kept.append(thing)
        return self._sent[id(thing)]

    def _source(self, shard: Shard) -> tuple[Any, Any]:
        """A shard as a worker gets it (of a file, a function or observations of this process), and the function."""
        if isinstance(shard.source, InMemory):  # scattered once, not a part of every task
            if id(shard) not in self._sent:
                self._sent[id(shard)] = self._scattered(shard)
                self._kept.append(shard)
            return self._sent[id(shard)], None
        if isinstance(shard.source, OnDisk):  # workers have their own working directories
            shard = replace(shard, source=replace(shard.source, path=os.path.abspath(shard.source.path)))
        shard, make = on_worker.without_function(shard)
        return shard, None if make is None else self._held(make)

    def _scattered(self, shard: Shard) -> Future:
        for _ in range(_TRIES):
            try:
                return self.client.scatter(shard, hash=False)
            except (OSError, TooLate) as error:  # the worker that was to get it is gone, or there is none
                self._check_connection()
                log.warning("%s could not be sent to a worker and is sent again (%s)", shard.name, error)
                self._looked = 0.0
                self._check_workers()
        raise RuntimeError(f"{shard.name} could not be sent to a worker in {_TRIES} attempts")

    # ---------------------------------------------------------------- the engine

    @while_connected
    def surveyed(self, samples: ShardedSamples) -> ShardedSamples:
        """Let the workers call functions that make observations; shards here or in a directory are known here."""
        shards = [*samples.r_shards, *samples.c_shards]
        if not any(isinstance(shard.source, Made) for shard in shards):
            return samples

        def submit(job: Job) -> Future:
            return self._submit(on_worker.survey, *self._source(job.shard), self._held(samples.chosen(job.shard.side)))

        jobs = [Job(shard, None) for shard in shards]
        remotes = [Remote(job, submit(job), submit) for job in jobs]
        return samples.with_survey(self._answers(remotes, None))

    def find_core(
        self, view: CoreView, rank: int | str, settings: Settings, device: str, show: Progress, store: StepStore | None
    ) -> SolvedCore:
        """Solve the core on a worker with a GPU if a GPU was asked for and there is one, else here."""
        found = None
        if device not in ("cpu", "auto") and settings.callback is None:
            found = self._core_on_gpu(view, rank, settings, device, show)
        return InProcess().find_core(view, rank, settings, device, show, store) if found is None else found

    @while_connected
    def _core_on_gpu(
        self, view: CoreView, rank: int | str, settings: Settings, device: str, show: Progress
    ) -> SolvedCore | None:
        """The core by a worker with a GPU; None if no worker has one."""
        for _ in range(_TRIES):
            self._wait_for_a_worker()
            able = [name for name, has in self.client.run(on_worker.has_gpu, on_error="ignore").items() if has]
            if not able:
                return None
            log.info("the core is solved on %s", able[0])
            show.stage("core, on a worker")
            future = self._submit(on_worker.solve_core, self._held(view), rank, settings, device, workers=able)
            try:
                for _ in self._completed([future], able):
                    found: SolvedCore = self._value(future)
                return found
            except Lost as error:
                self.client.cancel([future])
                log.warning("the core was lost with the worker that solved it, and is solved again (%s)", error)
        raise RuntimeError(f"the core was lost {_TRIES} times, each time with the worker that solved it")

    @while_connected
    def map(self, stage: Stage, jobs: list[Job], report: Report) -> list[tuple[Remote, Arrays]]:
        """Do a step on many shards."""
        store = self.store if stage.kept else None

        def submit(job: Job) -> Future:
            shard, make = self._source(job.shard)
            before = None if job.part is None else job.part.future
            args = (stage, shard, make, self._held(job.side), before, job.args, store)
            key = f"rcurc-{stage.name}-{job.shard.side}-{self._name}-{next(self._numbers)}"
            return self._submit(on_worker.run, *args, key=key, **_preferred(job.part))

        remotes = [Remote(job, submit(job), submit) for job in jobs]
        answers = self._answers(remotes, on_worker.numbers_of, report)
        for remote, (_, worker) in zip(remotes, answers, strict=True):
            remote.worker = worker
        return [(remote, numbers) for remote, (numbers, _) in zip(remotes, answers, strict=True)]

    @while_connected
    def collect(self, parts: list[Remote]) -> Arrays:
        """The arrays here, or as Dask arrays there."""
        if not self.gather:
            return self._dask_arrays(parts)
        arrays = self._answers(parts, on_worker.part_of)
        return {name: np.concatenate([x[name] for x in arrays]) for name in arrays[0]}

    @while_connected
    def saved(self, parts: list[Remote]) -> list[Saved]:
        """Where they are."""
        return self._answers(parts, on_worker.part_of)

    def _dask_arrays(self, parts: list[Remote]) -> Arrays:
        import dask.array as da
        from dask.delayed import delayed

        for _ in range(_TRIES):
            kinds = self._answers(parts, on_worker.kinds_of)[0]
            whole = [self._submit(on_worker.part_of, part.future) for part in parts]
            if all([future.status == "finished" for future in self._completed(whole)]):
                break
        else:
            raise RuntimeError(f"factors were lost {_TRIES} times, each time with workers that had parts of them")
        found = {}
        for name, (dtype, shape) in kinds.items():
            pieces = [
                da.from_delayed(delayed(on_worker.pick)(future, name), (part.job.n_units, *shape), np.dtype(dtype))
                for future, part in zip(whole, parts, strict=True)
            ]
            found[name] = da.concatenate(pieces)
        return found

    # ---------------------------------------------------------------- answers

    def _answers(self, remotes: list[Remote], pick: Callable[[Any], Any] | None, report: Report | None = None) -> list[Any]:
        """What `pick` takes of the outcome of each job (None: all of it). The first error ends it.

        Work that is lost with a worker is done again. A worker that dies loses all that it had to do, so the shard that
        killed it, if one did, is not known. Shards that were lost more than once are therefore worked on one at a time, when
        all others are done.
        """
        found: list[Any] = [None] * len(remotes)
        place: dict[str, int] = {}
        n_lost = [0] * len(remotes)
        suspects: list[int] = []

        def ask(k: int) -> Future:
            future = remotes[k].future if pick is None else self._submit(pick, remotes[k].future)
            place[future.key] = k
            return future

        waiting = as_completed([ask(k) for k in range(len(remotes))], loop=self.client.loop)
        for future in self._completed(waiting):
            k = place[future.key]
            try:
                found[k] = self._value(future)
            except Lost as error:
                level = logging.INFO if any(n_lost) else logging.WARNING  # one warning is enough
                log.log(level, "%s was lost with a worker and is worked on again (%s)", remotes[k].job.shard.name, error)
                n_lost[k] += 1
                # once may be the fault of another shard on the same worker; more than once makes it a suspect
                if n_lost[k] > 1 or error.deaths > 1:
                    suspects.append(k)
                else:
                    self._restore(remotes[k])
                    waiting.add(ask(k))
            else:
                if report is not None:
                    report(remotes[k].job.n_units)
        for k in suspects:
            found[k] = self._alone(remotes[k], pick)
            if report is not None:
                report(remotes[k].job.n_units)
        self._under_way = []
        return found

    def _alone(self, remote: Remote, pick: Callable[[Any], Any] | None) -> Any:
        """What `pick` takes of the outcome of a job, with nothing else running."""
        deaths = 0
        while deaths < _DEATHS:
            self._restore(remote)
            future = remote.future if pick is None else self._submit(pick, remote.future)
            try:
                for _ in self._completed([future]):
                    return self._value(future)
            except Lost as error:
                deaths += error.deaths
        raise RuntimeError(
            f"{remote.job.shard.name} could not be worked on: {deaths} workers died that had nothing else to do. If they "
            "lack memory, give them more or make shards smaller"
        )

    def _restore(self, remote: Remote) -> None:
        """Submit a job again, after the jobs that it needs."""
        shard = remote.job.shard
        self._sent.pop(id(shard), None)  # observations of this process may be lost, too
        if remote.job.part is not None:
            self._restore(remote.job.part)
        remote.future, remote.worker = remote.submit(remote.job), None

    def _completed(self, futures: Any, among: list[str] | None = None) -> Iterator[Future]:
        """Futures as they are done; an error if no worker is left to do them (`among` some workers)."""
        waiting = futures if isinstance(futures, as_completed) else as_completed(futures, loop=self.client.loop)
        self._seen = time.monotonic()
        while not waiting.is_empty():
            batch = waiting.next_batch(block=False)
            yield from batch
            if not batch:
                self._check_workers(among)
                time.sleep(_PAUSE)

    def _value(self, future: Future) -> Any:
        """The result of a future that is done."""
        while True:
            try:
                return future.result(timeout=_NO_WORKER)
            except FutureCancelledError as error:
                self._check_connection()
                if error.reason in ("scheduler-connection-lost", "scheduler-restart"):
                    raise Disconnected(error.msg) from error
                raise Lost(1, error) from error
            except KilledWorker as error:
                raise Lost(error.allowed_failures + 1, error) from error
            except TooLate:
                if future.done():  # the error is the task's own
                    raise
                self._check_workers()

    def _check_connection(self) -> None:
        if self.client.status != "running":
            raise Disconnected(f"the client is {self.client.status}")

    def _check_workers(self, among: list[str] | None = None) -> None:
        """Raise if the scheduler is gone, or all workers are and do not come back; raise `Lost` if those of `among` are."""
        self._check_connection()
        now = time.monotonic()
        if now < self._looked + _LOOK:
            return
        self._looked = now
        try:
            workers = self.client.nthreads()
        except OSError as error:
            raise Disconnected(str(error)) from error
        if among is not None and not set(among) & set(workers):
            raise Lost(1, RuntimeError(f"{', '.join(among)} left"))
        if workers:
            self._seen = now
        elif now > self._seen + _NO_WORKER:
            raise RuntimeError(
                f"all workers of client are gone, and none came back in {_NO_WORKER:g} seconds; with output=..., the same "
                "call goes on where this one ended"
            )


def _preferred(part: Remote | None) -> dict[str, Any]:
    """Prefer the worker that has the part, if it is still there.

    Dask knows that worker too, but it would rather send a part away than let it wait behind tasks whose time is unknown.
    """
    if part is None or part.worker is None:
        return {}
    return {"workers": [part.worker], "allow_other_workers": True}
