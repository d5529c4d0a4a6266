"""Functions that the workers of a Dask cluster run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from distributed import get_worker

from ..backends.arrays import device_scope, to_numpy
from ..backends.cores import on_one_core
from ..backends.devices import namespace_for_device
from ..options import Settings
from ..progress import Progress
from ..samples.view import CoreView
from ..shards.samples import survey_shard
from ..shards.source import Made, Shard
from .engine import InProcess
from .jobs import Job, Stage, arguments, kept, recalled
from .solved import SolvedCore
from .store import Arrays, Part, PartStore
from .work import Side


def run(
    stage: Stage,
    shard: Shard,
    make: Callable[[int, int], Any] | None,
    side: Side,
    before: tuple[Part, Arrays] | None,
    args: tuple[Any, ...],
    store: PartStore | None,
) -> tuple[Part, Arrays]:
    """A job, on the worker's own GPU if that was asked for, else on one CPU core, that of its thread."""
    context = side.context()
    with on_one_core(), device_scope(context.like):
        job = Job(with_function(shard, make), side, None if before is None else before[0], args)
        stamp, done = recalled(stage, job, store)
        if done is None:
            part, numbers = stage.work(*arguments(stage, job, context))
            done = kept(stage, job, store, stamp, ({name: to_numpy(x) for name, x in part.items()}, numbers))
        return done


def survey(shard: Shard, make: Callable[[int, int], Any] | None, chosen: np.ndarray) -> Any:
    """`survey_shard`."""
    return survey_shard(with_function(shard, make), chosen)


def solve_core(view: CoreView, rank: int | str, settings: Settings, device: str) -> SolvedCore:
    """Solve the core on this worker."""
    with Progress(False) as show:
        return InProcess().find_core(view, rank, settings, device, show, None).on_host()


def has_gpu() -> bool:
    """Whether this worker has a GPU."""
    return namespace_for_device("auto")[1] != "cpu"


def without_function(shard: Shard) -> tuple[Shard, Callable[[int, int], Any] | None]:
    """A shard and the function that makes it. The function may carry data, so it travels once for all shards."""
    if not isinstance(shard.source, Made):
        return shard, None
    return replace(shard, source=replace(shard.source, make=_nothing)), shard.source.make


def with_function(shard: Shard, make: Callable[[int, int], Any] | None) -> Shard:
    """The shard with its function, as `without_function` got it."""
    return shard if make is None else replace(shard, source=replace(shard.source, make=make))  # type: ignore[type-var]


def _nothing(start: int, stop: int) -> Any:
    raise AssertionError("stands for a function that is elsewhere")


def same(thing: Any) -> Any:
    """What was sent; as the result of a task, Dask can make it again."""
    return thing


def part_of(found: tuple[Part, Arrays]) -> Part:
    """The part of a step's result."""
    return found[0]


def numbers_of(found: tuple[Part, Arrays]) -> tuple[Arrays, str]:
    """The numbers of a step's result, and the address of the worker that has its part."""
    return found[1], get_worker().address


def kinds_of(found: tuple[Arrays, Arrays]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtype and shape, but for the first axis, of the arrays of a part in memory."""
    return {name: (str(x.dtype), x.shape[1:]) for name, x in found[0].items()}


def pick(part: Arrays, name: str) -> np.ndarray:
    """One array of a part."""
    return part[name]
