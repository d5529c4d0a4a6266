"""Fit the noise model to a part of the observations: sweeps, and what is chosen between them, until nothing moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..backends.arrays import triangle, unpacking
from ..backends.kernels import Kernels
from ..options import Settings
from .choices import Choices
from .left_out import LeftOut
from .model import Group, NoiseModel
from .part import Part
from .start import most_components, start_of
from .sweeps import NoiseForm

# Sweeps at most. Real matrices (traffic, weather, spectra) need 15 to 40; what moves after that moves by little.
MOST_SWEEPS = 40
# The first sweeps find weights as if the noise were so many times as large: the very first, and then falling to 1. With 1
# from the start, odd spectra are outliers for good (error of `octane` 1.3 times as large); with more, outliers leak in.
_FIRST_HEAT, _HEAT, _HEATED = 4.0, 2.0, 9
# Change of the predictions by a sweep over the noise, after which nothing moves any more. With 0.01 the same errors (20
# tasks on real matrices) take a quarter more time.
SETTLED = 0.02
_FINEST = 1e-7  # the same over the size of the predictions, where there is hardly any noise
_STILL = 0.05  # relative change of the noise by a sweep, likewise: where it is small, it is found last
# Change of the predictions over their size, or over the noise, after which a fit that used up its sweeps still counts as
# settled, and after which it is time to look for more components.
_NEARLY, _NEARLY_NOISE = 5e-3, 0.1
_TAIL_EVERY = 4  # sweeps between two choices
_LAST_TURN = 30  # sweep after which components are not turned any more, so that what was turned can come to rest
# Mean squared residual of entries as if each had been left out, over that before components were added, below which these
# were of use. At 0.99, and by what is left in the residuals, `cotemp` takes 32 components instead of 29, and half as much
# time again.
_USEFUL = 0.97
_REST = 6  # sweeps after which what was added has found its place
_USUAL = NoiseForm()


class _Fit(Choices, LeftOut):
    """Sweeps, what is chosen between them, and what entries say that were left out."""


def _heat(number: int) -> float:
    """Temperature of a sweep."""
    return _FIRST_HEAT if number == 1 else max(_HEAT ** (1 - (number - 2) / (_HEATED - 1)), 1.0)


def room_for(n_rows: int, n_cols: int, offsets: bool) -> int:
    """Components, at most, with so many chosen rows and columns: offsets add two to the rank, but one is always tried."""
    return max(min(n_rows, n_cols) - (2 if offsets else 0), 1)


def fit_noise(
    part: Part,
    most: int,
    settings: Settings,
    kernels: Kernels,
    report: Callable[[int, float], bool] = lambda sweep, change: False,
    form: NoiseForm = _USUAL,
) -> NoiseModel:
    """Fit the model to a part, with at most `most` components; `report` hears of every sweep and may end the fit.

    `form` is what the noise may look like.
    """
    s = settings

    i, j, y = part.entries
    offsets = s.offsets is not False
    asked, most = most, min(most, room_for(part.inside.n_units, part.inside.length, offsets))
    start = start_of((i, j, y), part.shape, most, offsets)
    state = _Fit(part, start, offsets, kernels, s, form)
    settled, number, grown, may_grow, last = False, 0, 0, True, math.inf
    enough = most_components((i, j), part.shape)
    limit = min(most, enough)
    for number in range(1, (MOST_SWEEPS if s.sweeps is None else s.sweeps) + 1):
        state.believe(min((number - 1) / _HEATED, 1.0))
        before = state.noise.variance
        change = state.sweep(_heat(number))
        if math.isnan(change):  # the noise of exact data has shrunk beyond all digits
            break
        still = abs(math.log(state.noise.variance / before)) < _STILL
        if number > _HEATED and number % _TAIL_EVERY == 0:
            state.choose_tail()
            state.free_lone()
            state.drop_dead()
            if number == 3 * _TAIL_EVERY:
                state.restart_far()
        fine = state.fineness
        settled = number > _HEATED + 1 and change < max(SETTLED * fine / form.patience, _FINEST) and still
        if settled:  # with the tails of the start, perhaps: some fits rest before tails were ever chosen
            tail = state.noise.tail
            state.choose_tail()
            settled = not state.free_lone() and state.noise.tail == tail
        nearly = max(_NEARLY, _NEARLY_NOISE * fine)
        resting = settled or (number > _HEATED and number - grown >= _REST and change < nearly)
        if report(number, change):
            break
        if resting and number <= _LAST_TURN and state.compress():
            settled, resting = False, False
        if resting:  # also in vain: two SVDs in every sweep would take as long as the sweeps
            level = state.left_out_square()
            may_grow = may_grow and number <= _LAST_TURN and level < _USEFUL * last
            last = level
            more, grown = may_grow and state.grow(limit), number
            # the last choice: what is not fitted yet is larger where values are
            more = more or (still and number <= _LAST_TURN and state.choose_growth())
            settled = settled and not more
        if settled:
            break
    settled = settled or change < max(_NEARLY, _NEARLY_NOISE * state.fineness)
    state.restart_far()
    if s.offsets is True:
        state.fill_offsets()
        state.sweep(1.0)
    state.drop_unsupported(may_drop_offsets=s.offsets == "auto")
    state.sweep(1.0)
    state.restart_far()
    state.sweep(1.0)
    left_over = asked < enough and len(state.strengths) >= asked and state.has_structure()
    confirmation = state.confirm()
    m, n = part.inside.n_units, part.inside.length
    state.mix("rows", part.row_ids)
    state.mix("cols", part.col_ids)
    order = np.argsort(-state.strengths, kind="stable")
    numbers = np.append(order, len(order)) if state.offsets else order
    rows, cols = (_ordered(group, numbers) for group in (state.rows, state.cols))
    return NoiseModel(
        rows=rows[:m],
        cols=cols[:n],
        more_rows=rows.mean[m:],
        more_cols=cols.mean[n:],
        more_row_ids=part.row_ids[m:],
        more_col_ids=part.col_ids[n:],
        row_table=state.tables["rows"][:m],
        col_table=state.tables["cols"][:n],
        row_precision=state.precision("rows")[numbers],
        col_precision=state.precision("cols")[numbers],
        centre=state.centre,
        offsets=state.offsets,
        noise=state.noise,
        strengths=state.strengths[order],
        settled=settled,
        left_over=left_over,
        n_sweeps=number,
        change=change,
        confirmation=confirmation,
        sigma=state.sigma,
    )


def _ordered(group: Group, numbers: np.ndarray) -> Group:
    """The same with its coefficients in another order."""
    k = len(numbers)
    unpack, (q, p) = unpacking(k), triangle(k)
    return replace(group, mean=group.mean[:, numbers], covariance=group.covariance[:, unpack[numbers[q], numbers[p]]])
