"""The noise model of a solve: a part of the observations is gathered, and the model fitted to it.

The part is the intersection and so many columns and rows beside it that those of I and J are known far better than any
single column or row can be. It fits into memory whatever the size of the data; `noisy` does the rest in one pass over all
shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..backends.blocks import others
from ..backends.kernels import StepStore, choose
from ..backends.random import Stream, generator
from ..judge.identified import LOOSE, ModelTies, model_ties
from ..judge.ties import TIED_TO
from ..noise.fit import MOST_SWEEPS, SETTLED, fit_noise
from ..noise.model import NoiseModel
from ..noise.part import Part, on_host
from ..noise.sweeps import NoiseForm
from ..options import Settings
from ..progress import Progress
from ..samples.view import CoreView
from ..shards.source import Shard
from .jobs import Engine, gathered

# Columns of the part over rows of I: noise of a row of I then adds 1/12 to the variance of any column, 4 % to its error.
_ENOUGH = 12
_LEAST_PART = 300_000  # observations that are always taken if they are there: a second's work
# Of a fit that was on its way. 78 were enough where 40 left ten times the error, and 312 where 200 left twice the error.
_MANY_SWEEPS = 12 * MOST_SWEEPS
_PATIENCE = 10.0  # changes that a usual fit rests with, over those of such a fit, at least
# Way that is left to a fit over the error to expect from loose ties, as the last sweep and the gap tell it, from which it is
# on its way: with 1.2 the error of a band along the diagonal was 2.6 times the expected one.
_FAR_AWAY = 0.3


def part_of(view: CoreView, shards: dict[str, list[Shard]], engine: Engine, settings: Settings, scale: float) -> Part:
    """Gather the part from the shards, on the host; observations are divided by `scale`."""
    m, n = len(view.rows), len(view.cols)
    core = on_host(view.intersection.block)
    blocks, ids = {}, {}
    sizes = {"r": (view.cols, view.shape[1], m, view.rate_rows), "c": (view.rows, view.shape[0], n, view.rate_cols)}
    for side, (chosen, total, length, rate) in sizes.items():
        enough = max(_ENOUGH * length, math.ceil(_LEAST_PART / max(rate * length, 1e-9)))
        units = _units_wanted(others(chosen, total), enough, settings.seed)
        blocks[side] = gathered(shards[side], units, engine, length, scale)
        ids[side] = np.concatenate([chosen, units]).astype(np.int64)
    return Part(core, blocks["r"], blocks["c"], ids["c"], ids["r"])


def _units_wanted(units: np.ndarray, enough: int, seed: int) -> np.ndarray:
    """Which units outside of the core to take: all, or so many at random, whatever the shards are."""
    if len(units) <= enough:
        return units
    return np.sort(generator(seed, Stream.NOISE_PART).choice(units, enough, replace=False))


def find_model(
    gather: Callable[[], Part],
    settings: Settings,
    most: int,
    steps: StepStore | None,
    show: Progress,
    known: NoiseModel | None,
) -> tuple[NoiseModel, ModelTies]:
    """Fit the noise model to a part unless it is known, and see what ties that together; or take both from the store."""
    step = None if steps is None else steps.step("noise model")
    if step is not None and step.saved is not None:  # then nothing is gathered
        return NoiseModel.from_arrays(step.saved), ModelTies.from_arrays(step.saved)
    kernels = choose("xp" if settings.kernels == "xp" else "auto", np.empty(0))
    if known is None:
        show.stage("noise", None)

    def report(sweep: int, change: float) -> bool:
        show.advance(1)
        return show.ended

    part = gather()
    model = fit_noise(part, most, settings, kernels, report) if known is None else known
    ties = model_ties(part, model, kernels, settings.seed)
    if ties.groups is None and settings.sweeps is None and _on_its_way(model, ties, MOST_SWEEPS):
        # Of groups that few observations tie, each is found soon, and how they fit together late.
        form = NoiseForm(patience=max(_PATIENCE, _patience(model, ties)))
        model = fit_noise(part, most, replace(settings, sweeps=_MANY_SWEEPS), kernels, report, form)
        ties = model_ties(part, model, kernels, settings.seed)
    if ties.groups is None and _on_its_way(model, ties, settings.sweeps or _MANY_SWEEPS):
        model = replace(model, settled=False)
    if step is not None:
        step.save(model.arrays() | ties.arrays())
    return model, ties


def _on_its_way(model: NoiseModel, ties: ModelTies, most_sweeps: int) -> bool:
    """Whether a fit stopped, perhaps after the most sweeps that were allowed, before it was where it goes."""
    contradicted = ties.contradicted and model.n_sweeps >= most_sweeps
    return ties.gap < LOOSE and (contradicted or _way_left(model, ties) > _near_enough(ties))


def _way_left(model: NoiseModel, ties: ModelTies) -> float:
    """Way that is left to a fit, over the size of the matrix.

    Along the weakest direction a sweep leaves (1 - gap)^2 of the way. What the last sweep changed is known where something
    was observed; the same direction changes other places more.
    """
    kept = (1 - min(ties.gap, 1.0)) ** 2
    return ties.stretch * model.change * kept / (1 - kept) if kept < 1 else 0.0


def _near_enough(ties: ModelTies) -> float:
    """Way left to a fit, over the size of the matrix, that does not matter."""
    return max(TIED_TO, _FAR_AWAY * ties.error / max(ties.size, np.finfo(float).tiny))


def _patience(model: NoiseModel, ties: ModelTies) -> float:
    """Change that a usual fit rests with over that which leaves half of what does not matter."""
    usual = SETTLED * model.noise.variance**0.5 / max(ties.size, np.finfo(float).tiny)
    enough = 0.5 * model.change * _near_enough(ties) / max(_way_left(model, ties), np.finfo(float).tiny)
    return usual / max(enough, np.finfo(float).tiny)
