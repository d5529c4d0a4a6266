"""A first look at the data: how many components there are, and whether there is noise, by a model of the intersection."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..backends.blocks import Block
from ..backends.kernels import choose
from ..noise.fit import fit_noise
from ..noise.model import NoiseModel
from ..noise.part import Part, on_host
from ..noise.precision import precisions
from ..options import Settings
from ..samples.view import CoreView

# Held-out residuals over what the model predicts of them. On data without noise its noise shrinks from sweep to sweep,
# always behind the residuals: 0.01 to 0.07 on 16 synthetic problems. With noise it is 0.8 to 1.3 (20 tasks, real matrices).
_EXACT, _WRONG = 0.4, 2.5
_MOVING = 0.6  # in place of the first while the model still moves: exact data with a `sigma` that is of no use gave 0.43
_ROUNDING = 1e-6  # noise over the size of an entry that is rounding
_SWEEPS = 25  # after which exact data are told from noisy ones
_MOST = 1_000_000  # observations that are looked at
_LEAST = 30  # observations with which there is something to see


@dataclass(frozen=True)
class Glimpse:
    """What was seen.

    Attributes
    ----------
    rank : int
        Components above the noise, those of offsets included if there is no noise.
    noisy : bool
        Whether there is noise for sure: a model with noise predicts held-out entries as it says it does.
    noise : float
        Its standard deviation.
    model : NoiseModel or None
        The model, if the intersection is the whole matrix: then there is nothing else to fit it to.
    """

    rank: int
    noisy: bool
    noise: float
    model: NoiseModel | None


def glimpse_of(view: CoreView, settings: Settings) -> Glimpse | None:
    """Look at the intersection; None if there is too little of it, or nothing in it."""
    block = view.intersection.block
    inside = on_host(block)
    if inside.n_obs < _LEAST or min(inside.n_units, inside.length) < 3 or not inside.value.any():
        return None
    rows = np.arange(inside.n_units)
    if inside.n_obs > _MOST:  # some rows of it
        rows = rows[: max(int(len(rows) * _MOST / inside.n_obs), min(inside.length, len(rows)))]
        inside = inside.take_units(rows)
    none = inside.take_units(np.zeros(0, np.int64))
    columns, more = (replace(none, length=n) for n in (inside.n_units, inside.length))
    part = Part(inside, columns, more, view.rows[rows], view.cols)
    everything = part.shape == view.shape
    sweeps = settings.sweeps if everything else _SWEEPS if settings.sweeps is None else min(settings.sweeps, _SWEEPS)
    kernels = choose("xp" if settings.kernels == "xp" else "auto", np.empty(0))
    try:
        model = fit_noise(part, max(part.shape), replace(settings, sweeps=sweeps), kernels)
    except np.linalg.LinAlgError:  # noise that shrinks to nothing may end so, on groups that never met
        return None
    if not all(np.isfinite(x.mean).all() for x in (model.rows, model.cols)):
        return None
    size = float(np.median(np.abs(inside.value[inside.value != 0])))
    c = model.confirmation
    noise = model.typical_noise.variance**0.5
    noisy = (c is None or (_EXACT if model.settled else _MOVING) < c.factor < _WRONG) and noise > _ROUNDING * size
    rank = len(model.strengths) if noisy else _rank_above_noise(model, inside)
    return Glimpse(rank, noisy, noise, model if noisy and everything else None)


def _rank_above_noise(model: NoiseModel, inside: Block) -> int:
    """Singular values of the whole, offsets included, that noise of this size does not give."""
    left, right = model.rows.mean, model.cols.mean
    if model.offsets:
        left = np.c_[left, np.ones(len(left))]
        right = np.c_[right[:, :-1], np.ones(len(right)), right[:, -1] + model.centre]
    values = np.linalg.svdvals(np.linalg.qr(left).R @ np.linalg.qr(right).R.T)
    fine = None if model.sigma is None else model.sigma.fine
    rate = float(np.sum(precisions(inside.sigma, fine, inside.n_obs))) / (inside.n_units * inside.length)
    edge = (model.noise.variance / rate) ** 0.5 * (inside.n_units**0.5 + inside.length**0.5)
    return int(np.sum(values > edge))
