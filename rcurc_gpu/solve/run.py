"""`rcurc` and `icurc` for samples in shards: in this process, or on the workers of a Dask client."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from .._version import __version__
from ..backends.arrays import place_for
from ..errors import ArgumentError
from ..options import Settings, Where
from ..progress import Progress
from ..result.result import Result
from ..samples.cross import CoreView, CrossSamples
from ..shards.on_disk import block_checksum, checksum
from ..shards.samples import SHARD_BYTES, ShardedSamples
from ..shards.source import InMemory, OnDisk, Source
from .checkpoint import Checkpoint, settings_identity
from .engine import Engine, InProcess
from .output import Output
from .scaling import numbers_in_units, power_of_two
from .sharded import ShardedSolve

log = logging.getLogger("rcurc_gpu")

_LEAST_BYTES = 1 << 20  # of a shard that is cut for a cluster
_USUAL_THREADS = 16


def solve_in_shards(
    samples: CrossSamples | ShardedSamples, rank: int | str, settings: Settings, where: Where, progress: bool
) -> Result:
    """Solve samples in shards, or samples in memory that become shards."""
    begun = time.perf_counter()
    _check(settings, where)
    with ExitStack() as at_the_end:
        engine = _engine(where)
        at_the_end.callback(engine.close)
        sharded = (
            samples if isinstance(samples, ShardedSamples) else ShardedSamples.of(samples, _shard_bytes(samples, where))
        )
        sharded = engine.surveyed(sharded)
        output = None
        if where.output is not None:
            output = Output(where.output, _identity(sharded, rank, settings, where))
            at_the_end.callback(output.close)
            engine.store = output.store
        return replace(_solve(sharded, rank, settings, where, progress, engine, output, begun), samples=samples)


def _solve(
    samples: ShardedSamples,
    rank: int | str,
    settings: Settings,
    where: Where,
    progress: bool,
    engine: Engine,
    output: Output | None,
    begun: float,
) -> Result:
    unit = power_of_two(samples.survey.largest[0], np.empty(0, dtype=samples.dtype))
    keeper = None if output is None else _keeper(output, where.checkpoint_every)
    view = CoreView(
        samples.shape,
        samples.rows,
        samples.cols,
        samples.intersection,
        samples.rate_rows,
        samples.rate_cols,
        samples.survey.largest,
    )
    callback = settings.callback
    at_home = None if callback is None else lambda state: callback(replace(state, threshold=state.threshold * unit))
    with Progress(progress, at_home) as show:
        scaled = settings if unit == 1 else settings.scaled(1 / unit)
        try:
            found = engine.find_core(view if unit == 1 else view.scaled(1 / unit), rank, scaled, where.device, show, keeper)
        finally:
            if keeper is not None:
                keeper.close()
        solve = ShardedSolve(samples, found, unit, where.device, engine, show, output)
        result = solve.run(lambda: time.perf_counter() - begun)
    return numbers_in_units(result, unit)


def _keeper(output: Output, every: float) -> Checkpoint:
    """The checkpoint of the core; one that cannot be read is begun anew, since parts tell whether they are of this core."""
    try:
        return Checkpoint(output.core, output.identity, every)
    except ValueError as error:
        log.warning("%s: the core is solved again", error)
        output.core.unlink()
        return Checkpoint(output.core, output.identity, every)


def _check(settings: Settings, where: Where) -> None:
    if settings.method != "fast":
        raise ValueError(f"samples in shards are for method='fast', got method={settings.method!r}")
    if where.checkpoint is not None:
        raise ArgumentError("checkpoint", "is for samples in memory; for samples in shards, output keeps what was done")
    if where.gather is not True and (where.client is None or where.output is not None):
        raise ValueError(f"gather is for a solve with a client and without output, got gather={where.gather!r}")


def _shard_bytes(samples: CrossSamples, where: Where) -> int:
    """How large to cut samples in memory: four shards of a side for each thread of a cluster, but not tiny ones."""
    if where.client is None:
        return SHARD_BYTES
    # what is in a directory goes on with the same shards, whatever the next cluster is
    threads = _USUAL_THREADS if where.output is not None else max(sum(where.client.nthreads().values()), 1)
    return min(max(samples.nbytes // (8 * threads), _LEAST_BYTES), SHARD_BYTES)


def _engine(where: Where) -> Any:
    if where.client is None:
        return InProcess()
    from .cluster import OnCluster

    return OnCluster(where.client, where.gather)


def _identity(samples: ShardedSamples, rank: int | str, settings: Settings, where: Where) -> dict[str, str]:
    """What has to be the same for a solve to go on where another one ended."""
    # the devices of workers are not those of this process; parts of another core are told by their stamps
    like = np.empty(0, dtype=samples.dtype)
    like = place_for(where.device, like) if where.client is None else like
    shards = [*samples.r_shards, *samples.c_shards]
    edges = np.asarray([(shard.start, shard.stop) for shard in shards])
    sums = [checksum([samples.rows, samples.cols, edges]), *(_sum_of(shard.source) for shard in shards)]
    return {name: repr(value) for name, value in settings_identity(settings, rank, like).items()} | {
        "version": __version__,
        "samples": f"{samples.shape} {samples.dtype} {samples.survey} {checksum([np.asarray(sums)])}",
    }


def _sum_of(source: Source) -> str:
    """Checksum of the observations of a shard; those that functions make are in the survey."""
    if isinstance(source, OnDisk):
        return source.facts.crc32
    return block_checksum(source.block) if isinstance(source, InMemory) else ""
