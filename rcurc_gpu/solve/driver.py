"""One solve, whatever the samples are: samples -> core -> extend -> judge -> result.

Samples in memory are one shard for each side; samples on disk, or for a cluster, are many. The core (U on I x J) is found
first, in one place. Then an engine takes the shards of both sides (R and C) through the steps of the extension. The verdict
comes last.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import is_cupy_array, is_numpy_array

from ..backends.arrays import device_scope, free_memory, is_out_of_memory
from ..backends.devices import place_for
from ..errors import ArgumentError
from ..files import line_of
from ..judge.causes import Cause
from ..judge.identified import ModelTies
from ..noise.fit import room_for
from ..noise.model import NoiseModel
from ..options import Settings, Where, check_rank
from ..progress import Progress
from ..result.result import Result
from ..samples.cross import CrossSamples
from ..samples.view import CoreView
from ..shards.samples import ShardedSamples
from .conclude import announced, concluded, in_groups
from .engine import InProcess, search_of
from .groups import all_groups
from .jobs import Engine
from .noise_fit import find_model, part_of
from .noisy import estimate_all, sides_of
from .output import Output
from .paper import by_the_paper
from .rejected import with_rejected
from .scaling import matrix_at, power_of_two, rescaled, state_at
from .sides import Sides
from .solved import Extended, SolvedCore
from .store import Checkpoint, identity_of
from .supply import Supply, check_sigma, check_where, is_in_memory, supply_of

log = logging.getLogger("rcurc_gpu")


def solve(samples: CrossSamples | ShardedSamples, rank: int | str, settings: Settings, where: Where) -> Result:
    """samples -> core -> extend -> judge -> result."""
    begun = time.perf_counter()
    rank = check_rank(rank, min(len(samples.rows), len(samples.cols)), "min(|I|, |J|)")
    check_where(samples, settings, where)
    room, users = _Room(samples, where), np.geterr()
    with room, ExitStack() as at_the_end:
        # a core that diverges overflows; the verdict says so, in other words than NumPy's
        at_the_end.enter_context(np.errstate(over="ignore", invalid="ignore"))
        # samples: the intersection and shards, and stores to resume from
        engine = _engine(where)
        at_the_end.callback(engine.close)
        if is_in_memory(samples, where):
            at_the_end.enter_context(device_scope(place_for(where.device, samples.r_block.value)))
        supply = supply_of(samples, where, engine.surveyed)
        check_sigma(supply.view, settings)
        steps, output = _stores(supply, rank, settings, where)
        if output is not None:
            at_the_end.callback(output.close)  # the last to be called: it lets others use the directory
            engine.store = output.parts
        elif steps is not None:
            begun -= steps.elapsed
            # short passes are not kept but made again, with the same outcome
            engine.store = steps if max(map(len, supply.shards.values())) > 1 else None
        if steps is not None:
            at_the_end.callback(steps.close)
        # exact, and only for data whose squares overflow or vanish
        scale = power_of_two(supply.view.largest[0], supply.like)
        view = supply.view if scale == 1 else supply.view.scaled(1 / scale)
        scaled = settings if scale == 1 else settings.scaled(1 / scale)
        show = at_the_end.enter_context(Progress(where.progress, _watcher(settings, supply, scale, users)))
        # core: W, s, V on I x J, judged by its held-out entries
        given = None
        if settings.method == "paper":
            search = search_of(view, scaled, where.device, show)
            engine, blocks = InProcess(search.run), (supply.scaled_block("r", scale), supply.scaled_block("c", scale))
            solved, given = by_the_paper(search, blocks, rank)
        else:
            solved = engine.find_core(view, rank, scaled, where.device, show, steps)
            if output is not None:  # a later run resumes from this core, however this one ends
                output.steps.write()
        solved = solved if supply.in_memory else solved.on_host()
        # extend: all columns of R and rows of C, by robust regressions, or with noise by a model of it
        done = None if output is None else output.done
        found = None if done is None else Extended.from_json(done)
        if found is None and given is None and solved.noisy:
            model, ties = _noise_model(supply, view, solved, engine, show, steps, scale)
            both = sides_of(model, view, solved.settings, where.device, scale)
            found = estimate_all(model, ties, both, supply.shards, engine, show)
        elif found is None:
            sides = Sides(supply.shards, solved, (view.rows, view.cols), scale, engine, where.device, show, given)
            found = Extended(sides.extended(), sides.whole, sides.outside)
        factors = _collected(engine, supply, found, output, done is None)
        # judge, and the result
        found = with_rejected(solved, supply, factors, found, scale, engine)
        if output is not None and done is None:
            output.finish(supply.view.rows, supply.view.cols, found.as_json())
        result = concluded(solved, supply, factors, found, scale, time.perf_counter() - begun)
        # a core may seem to fall into groups where the noise model, which sees more, does not
        groups = all_groups(solved, found, supply, engine) if result.cause is Cause.UNIDENTIFIED else None
        result = result if groups is None else in_groups(result, groups)
    if room.is_short:
        return solve(samples, rank, settings, replace(where, device="cpu"))
    if supply.in_memory:  # of other samples, factors are already where the user asked for them
        result = replace(result, cur=matrix_at(result.cur, supply.like, supply.home))
    return announced(rescaled(result, scale))


class _Room:
    """A solve on a device that may be too small for it; if it is, samples that are on the host are solved there.

    Attributes
    ----------
    is_short : bool
        Whether there was not enough memory.
    """

    def __init__(self, samples: CrossSamples | ShardedSamples, where: Where) -> None:
        self.samples, self.where, self.is_short = samples, where, False

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        where, samples = self.where, self.samples
        # a checkpoint belongs to one device
        if error is None or not is_out_of_memory(error) or not is_in_memory(samples, where) or where.checkpoint is not None:
            return False
        like = place_for(where.device, samples.r_block.value)
        self.is_short = is_numpy_array(samples.r_block.value) and is_cupy_array(like)
        if self.is_short:
            log.warning("device %s has not enough memory (%s): solved on the CPU", where.device, line_of(error))
            free_memory(like)
        return self.is_short


def _engine(where: Where) -> Engine:
    if where.client is None:
        return InProcess()
    from .cluster import OnCluster

    return OnCluster(where.client, where.gather)


def _stores(supply: Supply, rank: int | str, settings: Settings, where: Where) -> tuple[Checkpoint | None, Output | None]:
    """The store for the steps of the core, and the directory for everything else if there is one."""
    if where.checkpoint is None and where.output is None:
        return None, None
    # Workers have other devices than this process, so the identity leaves those out; stamps tell parts of another core.
    like = supply.like if where.client is not None else place_for(where.device, supply.like)
    shards = [*supply.shards["r"], *supply.shards["c"]]
    identity = identity_of(supply.view, shards, supply.survey, rank, settings, like)
    if where.output is None:
        assert where.checkpoint is not None
        return Checkpoint(where.checkpoint, identity, where.checkpoint_every), None
    output = Output(where.output, identity, where.checkpoint_every)
    return output.steps, output


def _watcher(settings: Settings, supply: Supply, scale: float, users: Any) -> Any:
    """The user's callback, for states on samples that were divided by `scale`; `users` is what NumPy is to say there."""
    callback = settings.callback
    if callback is None:
        return None

    def watch(state: Any) -> Any:
        seen = state_at(state, supply.like, scale, supply.home)
        with np.errstate(**users):
            return callback(seen)

    return watch


def _noise_model(
    supply: Supply,
    view: CoreView,
    solved: SolvedCore,
    engine: Engine,
    show: Progress,
    steps: Checkpoint | None,
    scale: float,
) -> tuple[NoiseModel, ModelTies]:
    """Fit the noise model to a part of the observations, and see what ties that together."""
    s = solved.settings
    most = max(len(view.rows), len(view.cols)) if solved.chosen else solved.asked
    if not solved.chosen and s.offsets is True and most > (room := room_for(len(view.rows), len(view.cols), True)):
        counts = f"{len(view.rows)} chosen rows and {len(view.cols)} chosen columns"
        what = f"must be at most {room} with {counts} and offsets=True, which add two to the rank of the matrix"
        raise ArgumentError("rank", f"{what}, got {most}", most)
    gather = partial(part_of, view, supply.shards, engine, s, scale)
    model, ties = find_model(gather, s, most, steps, show, solved.model)
    if steps is not None:  # now, and not when it is time: parts of all shards are of use with this model alone
        steps.write()
    return model, ties


def _collected(engine: Engine, supply: Supply, found: Extended, output: Output | None, fresh: bool) -> dict[str, Any]:
    """The factor and the diagnostics of both sides; in the output directory, if there is one."""
    if output is None:
        return {side: engine.collect(found.parts[side]) for side in "rc"}
    lengths = dict(zip("rc", supply.view.shape[::-1], strict=True))
    if fresh:
        for side, length in lengths.items():
            output.assemble(side, engine.saved(found.parts[side]), length)
    return {side: output.load(side, length) for side, length in lengths.items()}
