"""`rcurc` and `icurc` for samples in shards: in this process, or on the workers of a Dask client."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from .._version import __version__
from ..backend import place_for
from ..checkpoint import Checkpoint, settings_identity
from ..progress import Progress
from ..result import Result
from ..samples import CoreView, CrossSamples
from ..settings import Settings, Where
from ..units import numbers_in_units, power_of_two
from .engine import Engine, InProcess
from .on_disk import checksum
from .output import Output
from .samples import SHARD_BYTES, OnDisk, ShardedSamples
from .solve import ShardedSolve


def solve_in_shards(
    samples: CrossSamples | ShardedSamples, rank: int | str, settings: Settings, where: Where, progress: bool
) -> Result:
    """Solve samples in shards, or samples in memory that become shards."""
    begun = time.perf_counter()
    _check(settings, where)
    sharded = samples if isinstance(samples, ShardedSamples) else ShardedSamples.of(samples, _shard_bytes(samples, where))
    engine = _engine(where)
    try:
        return _solve(samples, sharded, rank, settings, where, progress, engine, begun)
    finally:
        engine.close()


def _solve(
    samples: CrossSamples | ShardedSamples,
    sharded: ShardedSamples,
    rank: int | str,
    settings: Settings,
    where: Where,
    progress: bool,
    engine: Engine,
    begun: float,
) -> Result:
    sharded = engine.surveyed(sharded)
    like = np.empty(0, dtype=sharded.dtype)
    unit = power_of_two(sharded.survey.largest[0], like)
    output = keeper = None
    if where.output is not None:
        identity = _identity(sharded, rank, settings, place_for(where.device, like))
        output = Output(where.output, identity)
        keeper = Checkpoint(output.core, identity, where.checkpoint_every)
        engine.store = output.store
    view = CoreView(
        sharded.shape,
        sharded.rows,
        sharded.cols,
        sharded.intersection,
        sharded.rate_rows,
        sharded.rate_cols,
        sharded.survey.largest,
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
        solve = ShardedSolve(sharded, found, unit, where.device, engine, show, output)
        result = solve.run(lambda: time.perf_counter() - begun)
    return replace(numbers_in_units(result, unit), samples=samples)


def _check(settings: Settings, where: Where) -> None:
    if settings.method != "fast":
        raise ValueError(f"samples in shards are for method='fast', got method={settings.method!r}")
    if where.checkpoint is not None:
        raise ValueError("checkpoint is for samples in memory; for samples in shards, output keeps what was done")
    if where.gather is not True and (where.client is None or where.output is not None):
        raise ValueError(f"gather is for a solve with a client and without output, got gather={where.gather!r}")


def _shard_bytes(samples: CrossSamples, where: Where) -> int:
    """How large to cut samples in memory: four shards of a side for each thread of a cluster, but not tiny ones."""
    if where.client is None:
        return SHARD_BYTES
    threads = max(sum(where.client.nthreads().values()), 1)
    return min(max(samples.nbytes // (8 * threads), 1 << 20), SHARD_BYTES)


def _engine(where: Where) -> Any:
    if where.client is None:
        return InProcess()
    from .cluster import OnCluster

    return OnCluster(where.client, where.gather)


def _identity(samples: ShardedSamples, rank: int | str, settings: Settings, like: Any) -> dict[str, str]:
    """What has to be the same for a solve to go on where another one ended."""
    inside = samples.intersection
    sums = [checksum([samples.rows, samples.cols, inside.block.indptr, inside.block.index, inside.block.value])]
    shards = [*samples.r_shards, *samples.c_shards]
    edges = np.asarray([(shard.start, shard.stop) for shard in shards])
    sums += [checksum([edges]), *(shard.source.facts.crc32 for shard in shards if isinstance(shard.source, OnDisk))]
    return {name: repr(value) for name, value in settings_identity(settings, rank, like).items()} | {
        "version": __version__,
        "samples": f"{samples.shape} {samples.dtype} {samples.survey} {checksum([np.asarray(sums)])}",
    }
