"""Fit the noise model to a part of the observations: sweeps, and what is chosen between them, until nothing moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..backends.arrays import triangle, unpacking
from ..backends.kernels import Kernels
from ..backends.random import Stream, generator
from ..options import Settings
from .choices import Choices
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
_SETTLED = 0.02
_FINEST = 1e-7  # the same over the size of the predictions, where there is hardly any noise
_STILL = 0.05  # relative change of the noise by a sweep, likewise: where it is small, it is found last
# Change of the predictions over their size, or over the noise, after which a fit that used up its sweeps still counts as
# settled, and after which it is time to look for more components.
_NEARLY, _NEARLY_NOISE = 5e-3, 0.1
# Sweeps between two choices, and the first choice: at 12, `octane` kept the heavy tails of the start too long (error of 60 %
# missing 1.5 times as large).
_TAIL_EVERY, _FIRST_TAIL = 4, 8
_LAST_TURN = 30  # sweep after which components are not turned any more, so that what was turned can come to rest
# The same for a fit that goes on with all rows after some of them: it is near its end from the start.
_SETTLED_AGAIN = 0.04
# Mean squared residual of entries as if they were left out, over that before components were added, below which these were
# of use. At 0.99 `cotemp` takes 30 components and three times as long, for an error 4 % lower than that with 18.
_USEFUL = 0.96
_REST = 6  # sweeps after which what was added has found its place
_USUAL = NoiseForm()
# Rows for each column, at least, and rows at least, that the first sweeps see where there are so many times as many. They
# find components and tails in a third of the time; errors are the same to a few per cent, either way.
_FIRST, _LEAST_FIRST, _WORTH_IT = 2, 240, 1.5


@dataclass(frozen=True)
class _Reached:
    """Where sweeps came to: how many there were, the last change of the predictions, and whether that was next to none."""

    number: int = 0
    change: float = math.inf
    settled: bool = False
    ended: bool = False
    may_grow: bool = True


_BEGIN = _Reached()


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
    i, j, _ = part.entries
    offsets = s.offsets is not False
    asked, most = most, min(most, room_for(part.inside.n_units, part.inside.length, offsets))
    enough = most_components((i, j), part.shape)
    side, places = _first_units(part) if s.sweeps is None else ("rows", None)
    first = part if places is None else part.thinned(side, places)
    state = Choices(first, start_of(first.entries, first.shape, most, offsets), offsets, kernels, s, form)
    limit = min(most, enough)
    reached = _swept(state, part, limit, s, report)
    if places is not None:
        state = state.moved(part, side, places)
        reached = _swept(state, part, limit, s, report, reached)
    settled, number, change = reached.settled, reached.number, reached.change
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
        confirmation=confirmation,
        sigma=state.sigma,
    )


def _first_units(part: Part) -> tuple[str, np.ndarray | None]:
    """Which side of the part is long, and some of its units, ascending, if these are enough for the first sweeps."""
    m, n = part.shape
    side, long, short = ("rows", m, n) if m >= n else ("cols", n, m)
    some = max(_FIRST * short, _LEAST_FIRST)
    if not part.is_whole or _WORTH_IT * some > long:
        return side, None
    return side, np.sort(generator(0, Stream.NOISE_FIRST).choice(long, some, replace=False))


def _swept(
    state: Choices,
    whole: Part,
    limit: int,
    settings: Settings,
    report: Callable[[int, float], bool],
    so_far: _Reached = _BEGIN,
) -> _Reached:
    """Sweep until nothing moves, and choose tails and components on the way, at most `limit` of these."""
    if so_far.ended:
        return so_far
    settled, grown, may_grow, last = False, so_far.number, so_far.may_grow, math.inf
    enough = _SETTLED if so_far is _BEGIN else _SETTLED_AGAIN
    number, change = so_far.number, so_far.change
    for number in range(so_far.number + 1, (MOST_SWEEPS if settings.sweeps is None else settings.sweeps) + 1):
        state.believe(min((number - 1) / _HEATED, 1.0))
        before = state.noise.variance
        change = state.sweep(_heat(number))
        if math.isnan(change):  # the noise of exact data has shrunk beyond all digits
            break
        still = abs(math.log(state.noise.variance / before)) < _STILL
        if number >= _FIRST_TAIL and number % _TAIL_EVERY == 0:
            state.choose_tail()
            state.drop_dead()
            if number == 3 * _TAIL_EVERY:
                state.restart_far()
        fine = state.fineness
        settled = number > _HEATED + 1 and change < max(enough * fine, _FINEST) and still
        if settled:  # with the tails of the start, perhaps: some fits rest before tails were ever chosen
            tail = state.noise.tail
            state.choose_tail()
            settled = state.noise.tail == tail
        nearly = max(_NEARLY, _NEARLY_NOISE * fine)
        resting = settled or (number > _HEATED and number - grown >= _REST and change < nearly)
        if report(number, change):
            return _Reached(number, change, settled, True)
        if resting and number <= _LAST_TURN and state.compress():
            settled, resting = False, False
        if resting:  # also in vain: two SVDs in every sweep would take as long as the sweeps
            level = state.left_out_square()
            may_grow = may_grow and number <= _LAST_TURN and level < _USEFUL * last
            last = level
            more, grown = may_grow and state.grow(limit), number
            settled = (settled or state.part is not whole) and not more
        if settled:
            break
    return _Reached(number, change, settled, may_grow=may_grow)


def _ordered(group: Group, numbers: np.ndarray) -> Group:
    """The same with its coefficients in another order."""
    k = len(numbers)
    unpack, (q, p) = unpacking(k), triangle(k)
    return replace(group, mean=group.mean[:, numbers], covariance=group.covariance[:, unpack[numbers[q], numbers[p]]])
