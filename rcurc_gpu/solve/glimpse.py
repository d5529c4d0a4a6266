"""A first look at the data: how many components there are, and whether there is noise, by a model of the intersection."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..backends.blocks import Block
from ..backends.kernels import choose
from ..backends.operators import product_svd
from ..judge.causes import USELESS
from ..noise.fit import fit_noise
from ..noise.model import Confirmation, NoiseModel
from ..noise.part import Part, on_host
from ..noise.precision import precisions
from ..noise.sweeps import NoiseForm
from ..options import Settings
from ..samples.view import CoreView

# Held-out residuals over what the model predicts of them. On data without noise its noise shrinks from sweep to sweep,
# always behind the residuals: 0.01 to 0.07 on 16 synthetic problems. With noise it is 0.8 to 1.3 (20 tasks, real matrices).
_EXACT, _WRONG = 0.4, 2.5
_MOVING = 0.6  # in place of the first while the model still moves: exact data with a `sigma` that is of no use gave 0.43
# The same where no exact core is worth a try. Exact data that look noisy, with 30 % outliers, gave 1.57 to 2.3 in 14 of 14;
# 42 of 44 tasks on real matrices 0.8 to 1.4.
_CLEARLY, _CLEARLY_AT_MOST = 0.7, 1.4
_ROUNDING = 1e-6  # noise over the size of an entry that is rounding
_SWEEPS = 25  # after which exact data are told from noisy ones
_MOST = 1_000_000  # observations that are looked at
# The same of a quicker look, where there are so many times as many: the paper's problem (d = 3000) takes 0.3 s of CPU
# instead of 1.9.
_QUICK, _MANY = 30_000, 4
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
    clear : bool
        Whether the noise is so well described that no exact core has to be looked for.
    model : NoiseModel
        Of the intersection, or of some of its rows.
    whole : bool
        Whether the intersection is the whole matrix: then there is nothing else to fit a model to.
    """

    rank: int
    noisy: bool
    noise: float
    clear: bool
    model: NoiseModel
    whole: bool

    def factors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """W, s and V of the intersection."""
        return product_svd(*_factors(self.model))


def glimpse_of(view: CoreView, settings: Settings, most: int = _MOST) -> Glimpse | None:
    """Look at `most` observations of the intersection; None if there are too few of them, or there is nothing in them."""
    inside, rows, cols = _piece(on_host(view.intersection.block), most)
    if inside.n_obs < _LEAST or min(inside.n_units, inside.length) < 3 or not inside.value.any():
        return None
    none = inside.take_units(np.zeros(0, np.int64))
    columns, more = (replace(none, length=n) for n in (inside.n_units, inside.length))
    part = Part(inside, columns, more, view.rows[rows], view.cols[cols])
    everything = part.shape == view.shape
    sweeps = settings.sweeps if everything else _SWEEPS if settings.sweeps is None else min(settings.sweeps, _SWEEPS)
    kernels = choose("xp" if settings.kernels == "xp" else "auto", np.empty(0))
    try:
        form = NoiseForm(by_size=everything)  # of no matter to a first look
        model = fit_noise(part, max(part.shape), replace(settings, sweeps=sweeps), kernels, form=form)
    except np.linalg.LinAlgError:  # noise that shrinks to nothing may end so, on groups that never met
        return None
    if not all(np.isfinite(x.mean).all() for x in (model.rows, model.cols)):
        return None
    size = float(np.median(np.abs(inside.value[inside.value != 0])))
    c = model.confirmation
    noise = model.typical_noise.variance**0.5
    noisy = (c is None or (_EXACT if model.settled else _MOVING) < c.factor < _WRONG) and noise > _ROUNDING * size
    rank = len(model.strengths) if noisy else _rank_above_noise(model, inside)
    clear = noisy and model.settled and part.shape[0] == len(view.rows) and part.shape[1] == len(view.cols)
    clear = clear and c is not None and _is_clear(c)
    return Glimpse(rank, noisy, noise, clear, model, everything)


def quick_rank(view: CoreView, settings: Settings) -> int | None:
    """The rank of a piece of a large intersection; None if it is not large, or the piece has noise or nothing in it."""
    if view.intersection.block.n_obs < _MANY * _QUICK:
        return None
    seen = glimpse_of(view, settings, _QUICK)
    return None if seen is None or seen.noisy else seen.rank or None


def _piece(block: Block, most: int) -> tuple[Block, np.ndarray, np.ndarray]:
    """Some rows and columns of a block, evenly spread, with about `most` observations, and their numbers."""
    sides, share = [block.n_units, block.length], min(most / max(block.n_obs, 1), 1.0)
    rows, cols = map(np.arange, sides)
    if share == 1:
        return block, rows, cols
    # the longer side first: each row and column is to keep as many observations as it can
    longer = int(np.argmax(sides))
    kept = max(share, min(sides) / max(sides))
    even = (share / kept) ** 0.5
    counts = [int(n * even * (kept if side == longer else 1)) for side, n in enumerate(sides)]
    rows, cols = (np.linspace(0, n, max(k, 1), endpoint=False).astype(np.int64) for n, k in zip(sides, counts, strict=True))
    return block.take_units(rows).transpose().take_units(cols).transpose(), rows, cols


def _is_clear(c: Confirmation) -> bool:
    """Whether held-out entries agree so well with a model of noise that there is no other reason for their residuals."""
    return _CLEARLY < c.factor < _CLEARLY_AT_MOST and c.error < USELESS * c.size  # else a core may tell why


def _rank_above_noise(model: NoiseModel, inside: Block) -> int:
    """Singular values of the whole, offsets included, that noise of this size does not give."""
    left, right = _factors(model)
    values = np.linalg.svdvals(np.linalg.qr(left).R @ np.linalg.qr(right).R.T)
    fine = None if model.sigma is None else model.sigma.fine
    rate = float(np.sum(precisions(inside.sigma, fine, inside.n_obs))) / (inside.n_units * inside.length)
    edge = (model.noise.variance / rate) ** 0.5 * (inside.n_units**0.5 + inside.length**0.5)
    return int(np.sum(values > edge))


def _factors(model: NoiseModel) -> tuple[np.ndarray, np.ndarray]:
    """Factors of the whole, offsets included."""
    left, right = model.rows.mean, model.cols.mean
    if not model.offsets:
        return left, right
    return np.c_[left, np.ones(len(left))], np.c_[right[:, :-1], np.ones(len(right)), right[:, -1] + model.centre]
