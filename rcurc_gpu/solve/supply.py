"""Samples in the form that the driver takes: the intersection, and shards of both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from array_api_compat import is_cupy_array

from ..backends.arrays import Array, same_place
from ..backends.blocks import Block
from ..backends.devices import place_for
from ..errors import ArgumentError
from ..options import Settings, Where
from ..samples.cross import CrossSamples
from ..samples.view import CoreView
from ..shards.samples import SHARD_BYTES, ShardedSamples, cut
from ..shards.source import Shard

# Bytes of a shard that is cut for a cluster, at least: below, sending it costs more than the work on it. Each shard costs
# 58 kB of Dask's own messages.
_LEAST_BYTES = 1 << 20
_TYPICAL_THREADS = 16  # assumed for a cluster with output=: a run on another cluster has to find the same shards
_PART = 2_000_000  # observations of a shard in a checkpoint: some hundredths to tenths of a second of work may be lost


@dataclass(frozen=True, eq=False)
class Supply:
    """Samples in the form that the driver takes.

    Attributes
    ----------
    samples : CrossSamples or ShardedSamples
        The user's.
    view : CoreView
    shards : dict of lists of Shard
        Of R ("r") and of C ("c").
    like : array
        Of the kind of the user's observations.
    survey : str
        Identifies samples that functions make.
    in_memory : bool
        Whether all samples are in this process, where the engine works.
    """

    samples: CrossSamples | ShardedSamples
    view: CoreView
    shards: dict[str, list[Shard]]
    like: Array
    survey: str = ""
    in_memory: bool = False

    @property
    def home(self) -> Array | None:
        """`CrossSamples.home` of the user's samples, if they have one."""
        return self.samples.home if isinstance(self.samples, CrossSamples) else None

    def scaled_block(self, side: str, scale: float) -> Block:
        """All observations of a side in memory, divided by `scale`."""
        (shard,) = self.shards[side]
        block = shard.load()
        return block if scale == 1 else block.scaled(1 / scale)


def is_in_memory(samples: CrossSamples | ShardedSamples, where: Where) -> TypeGuard[CrossSamples]:
    """Whether samples are solved as they are: in this process, and not into a directory."""
    return isinstance(samples, CrossSamples) and where.client is None and where.output is None


def check_where(samples: CrossSamples | ShardedSamples, settings: Settings, where: Where) -> None:
    """Refuse options that do not go together."""
    if is_in_memory(samples, where):
        if where.gather is not True:
            raise ArgumentError("gather", f"is for a solve with a client, got gather={where.gather!r} and none")
        if where.checkpoint is not None and settings.method != "fast":
            raise ArgumentError("checkpoint", f"is for method='fast', got method={settings.method!r}")
        return
    if settings.method != "fast":
        raise ArgumentError("samples", f"in shards are for method='fast', got method={settings.method!r}")
    if where.checkpoint is not None:
        raise ArgumentError("checkpoint", "is for samples in memory; for samples in shards, output keeps what was done")
    if where.gather is not True and (where.client is None or where.output is not None):
        raise ArgumentError("gather", f"is for a solve with a client and without output, got gather={where.gather!r}")


def check_sigma(view: CoreView, settings: Settings) -> None:
    """Refuse options that turn the noise model off where samples say how large their noise is: only that model hears it."""
    if view.intersection.block.sigma is None:
        return
    s = settings
    for name, given, wrong, wanted in (
        ("method", s.method, s.method != "fast", "'fast'"),
        ("sweeps", s.sweeps, s.sweeps == 0, "None, or at least 1,"),
        ("resolution", s.resolution, s.resolution > 0, "0"),
    ):
        if wrong:
            raise ArgumentError(name, f"must be {wanted} for samples with sigma, got {given!r}", given)


def supply_of(
    samples: CrossSamples | ShardedSamples, where: Where, surveyed: Callable[[ShardedSamples], ShardedSamples]
) -> Supply:
    """Lay out samples for a solve; `surveyed` adds a survey of all observations."""
    if isinstance(samples, CrossSamples):
        if is_in_memory(samples, where):
            return in_memory(samples, place_for(where.device, samples.r_block.value), where.checkpoint is not None)
        sharded = ShardedSamples.of(samples, _shard_bytes(samples, where))
    else:
        sharded = samples
    sharded = surveyed(sharded)
    shards = {"r": sharded.r_shards, "c": sharded.c_shards}
    return Supply(samples, CoreView.of(sharded), shards, np.empty(0, dtype=sharded.dtype), repr(sharded.survey))


def in_memory(samples: CrossSamples, like: Array, in_parts: bool = False) -> Supply:
    """Samples in this process: one shard for each side, or parts that a checkpoint keeps.

    From the host they stream to a CUDA device. To any other place of `like`, another device for example, they are copied.
    """
    value = samples.r_block.value
    here = samples
    if is_cupy_array(value) or not is_cupy_array(like):
        here = samples if same_place(like, value) else samples.to(like)
    # a block of less than two parts is not worth cutting
    shards = {
        side: cut(side, block, _PART if in_parts and block.n_obs >= 2 * _PART else None)
        for side, block in (("r", here.r_block), ("c", here.c_block))
    }
    return Supply(samples, CoreView.of(here), shards, samples.r_block.value[:0], in_memory=True)


def _shard_bytes(samples: CrossSamples, where: Where) -> int:
    """How large to cut samples in memory: four shards of a side for each thread of a cluster, but not tiny ones."""
    if where.client is None:
        return SHARD_BYTES
    # output= resumes with the same shards, whatever the next cluster is
    # 8: four shards of each of the two sides, so that a slow worker leaves others something to do
    threads = _TYPICAL_THREADS if where.output is not None else max(sum(where.client.nthreads().values()), 1)
    return min(max(samples.nbytes // (8 * threads), _LEAST_BYTES), SHARD_BYTES)
