"""Estimate single columns and rows, given the noise model: those of a shard, or new ones."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property

import numpy as np
from array_api_compat import is_numpy_array

from ..backends.arrays import MAD_TO_SIGMA, Array, array_namespace, asarray_on, gather, to_numpy, triangle
from ..backends.blocks import Block
from ..backends.kernels import RunContext
from ..backends.plain.posterior import Fit, Model, Noise, Positions, packed_size
from ..backends.plain.regression import Schedule
from ..backends.plain.verdicts import FLOOR_SIGMAS
from ..extend.diagnostics import OK, TOO_FEW_INLIERS, TOO_FEW_OBSERVATIONS, UnitDiagnostics
from ..extend.tasks import Task, run_pass
from .choices import from_prior, is_far, prior_size
from .model import Group
from .modes import Found, with_modes
from .precision import precisions
from .run import run_posterior
from .sweeps import POOL

_RICH = 5  # observations over unknowns from which a robust regression without prior is a good start
# Share of the inliers of a row or column below which its fit is chance, however many they are: of 470 observations that lie
# elsewhere together, some twenty are near to any solution.
_RARE = 0.2
_GAMMA = 0.4  # decay of its threshold, as everywhere in the extension

Estimate = tuple[Array, Array, Array]


def _no_means() -> np.ndarray:
    return np.zeros((0, 0))


def _no_ids() -> np.ndarray:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class UnitModel:
    """What columns (rows) are estimated from, beside their observations.

    Attributes
    ----------
    at : Positions
        The rows (columns) where they are seen.
    index_ids : int64 array (length,)
        The numbers of these in the matrix.
    columns : bool
        Whether the units are columns.
    precision : float array (K,)
        Of their prior.
    noise : Noise
    known, known_ids : float array (., K), int64 array
        Where the estimates of some units begin, and their numbers, ascending.
    sigma : float or None
        What the user says of observations with this `noise`, if anything.
    """

    at: Positions
    index_ids: np.ndarray
    columns: bool
    precision: np.ndarray
    noise: Noise
    known: np.ndarray = field(default_factory=_no_means)
    known_ids: np.ndarray = field(default_factory=_no_ids)
    sigma: float | None = None


class Units:
    """Units of a block, to be estimated.

    Parameters
    ----------
    model : UnitModel
    block : Block
    like : float array
        Of the type and at the place of what is returned.
    run : RunContext
    first : int
        Number of the first unit in the matrix.
    """

    def __init__(self, model: UnitModel, block: Block, like: Array, run: RunContext, first: int = 0) -> None:
        self.model, self.block, self.like, self.run = model, block, like, run.at(model.at.x.shape[1])
        self.first = first
        self.at = model.at.to(like)
        self.precision = asarray_on(model.precision, like)
        self.noise = Noise(*(float(x) for x in astuple(model.noise)))  # NumPy's numbers do not mix with all arrays
        self.weight: Array | None = None
        if block.sigma is not None and model.sigma is not None:
            self.weight = asarray_on(precisions(block.sigma, model.sigma, block.n_obs), like, like.dtype)

    def prior(self, n: int) -> Estimate:
        """The mean of the prior, sure of itself: where fits begin."""
        K = self.model.at.x.shape[1]
        arrays = (np.zeros((n, K)), np.zeros((n, packed_size(K))), np.ones(n))
        mean, covariance, scale = (asarray_on(x, self.like) for x in arrays)
        return mean, covariance, scale

    def estimated(self, units: np.ndarray) -> tuple[Estimate, np.ndarray]:
        """Mean (u, K), packed covariance (u, P) and scale of the squared noise (u,) of some units, and their table.

        `units` ascend.
        """
        if len(units) == 0:
            return self.prior(0), np.zeros((0, len(Fit)))
        model = self.model
        start, begun = self._start(units)
        # two steps, then the scale of the noise of each unit, drawn to that of all, and a last step with it
        found, table = self._posterior(units, start, (1.0, 1.0), measure=False)
        again = np.flatnonzero(~begun | is_far(to_numpy(found[0]), model.precision))
        if len(again):
            # once more from the prior, slowly; the better of the two counts
            heats = from_prior(model.precision, model.at, model.noise)
            here = (_take(found[0], again), _take(found[1], again), _take(found[2], again))
            _, old = self._posterior(units[again], here, (), measure=True)
            fresh, new = self._posterior(units[again], self.prior(len(again)), heats, measure=True)
            better = new[:, Fit.OBJECTIVE] > old[:, Fit.OBJECTIVE]
            table[again] = np.where(better[:, None], new, old)
            mean, covariance = (
                _put(x, again[better], _take(y, np.flatnonzero(better))) for x, y in zip(found[:2], fresh[:2], strict=True)
            )
            found = (mean, covariance, found[2])
        scale = (POOL + table[:, Fit.SQUARES]) / (POOL + table[:, Fit.INLIERS])
        start = (found[0], found[1], asarray_on(scale, self.like))
        (mean, covariance, noise), table = self._posterior(units, start, (1.0,), measure=False)
        part, known = Model(self.at, self.noise, self.precision), Found(mean, covariance, table)
        mean, covariance, table = with_modes(
            self.run, self.block, self.weight, units, self.first + units, part, noise, known
        )
        mean, covariance = typical_where_lost((mean, covariance), table, model.precision)
        return (mean, covariance, noise), table

    def _start(self, units: np.ndarray) -> tuple[Estimate, np.ndarray]:
        """Where estimates begin, and which begin elsewhere than at the prior (u,)."""
        model = self.model
        mean, covariance, scale = self.prior(len(units))
        ids = self.first + units
        place = np.minimum(np.searchsorted(model.known_ids, ids), max(len(model.known_ids) - 1, 0))
        known = model.known_ids[place] == ids if len(model.known_ids) else np.zeros(len(ids), dtype=bool)
        if known.any():
            mean = _put(mean, np.flatnonzero(known), asarray_on(model.known[place[known]], self.like))
        rich = (self.block.counts[units] >= _RICH * mean.shape[1]) & ~known
        if rich.any():
            xp = array_namespace(mean)
            found = xp.astype(self._regressed(units[rich]), mean.dtype)
            mean = _put(mean, np.flatnonzero(rich), xp.where(xp.isfinite(found), found, xp.zeros_like(found)))
        return (mean, covariance, scale), rich | known

    def _posterior(
        self, units: np.ndarray, start: Estimate, heats: tuple[float, ...], measure: bool
    ) -> tuple[Estimate, np.ndarray]:
        model = Model(self.at, self.noise, self.precision)
        mean, covariance, table = run_posterior(self.run, self.block, self.weight, units, model, start, heats, measure)
        return (mean, covariance, start[2]), np.array(to_numpy(table))

    def _regressed(self, units: np.ndarray) -> Array:
        """Robust regressions without prior; `units` ascend."""
        xp = array_namespace(self.like)
        around = self.block.take_units(np.arange(units[0], units[-1] + 1))  # without a copy
        value = around.value - gather(xp.astype(self.at.shift, around.value.dtype), around.index)
        basis = xp.astype(self.at.x, value.dtype)
        task = Task(
            Block(around.indptr, around.index, value, around.length), basis, xp.ones_like(basis[:, 0]),
            np.arange(around.n_units), self.model.index_ids, self.model.columns, self._schedule,
            replace(self.run, holdout=0.0),
        )  # fmt: skip
        return run_pass(task, units - units[0], task.first).coefficients

    @cached_property
    def _schedule(self) -> Schedule:
        """Thresholds of the robust regressions, from the model: they must not depend on the shard."""
        noise = self.noise.variance**0.5
        floor = FLOOR_SIGMAS * noise
        size = math.hypot(prior_size(self.model.precision, self.model.at), noise) / MAD_TO_SIGMA  # of a median entry
        return Schedule(max(5 * size, floor), floor, _GAMMA)


def typical_where_lost(found: tuple[Array, Array], table: np.ndarray, precision: np.ndarray) -> tuple[Array, Array]:
    """Means (n, K) and covariances (n, P) that are those of the prior where most observations of a unit are outliers."""
    lost = np.flatnonzero(_lost(table, len(precision)))
    typical = Group.typical(precision, len(lost))
    mean, covariance = (
        _put(x, lost, asarray_on(new, x, x.dtype)) for x, new in zip(found, (typical.mean, typical.covariance), strict=True)
    )
    return mean, covariance


def _take(x: Array, places: np.ndarray) -> Array:
    return array_namespace(x).take(x, asarray_on(places, x), axis=0)


def _put(x: Array, places: np.ndarray, new: Array) -> Array:
    """`x` with `new` rows at some places; it is not to be used any more."""
    if len(places) == 0:
        return x
    if is_numpy_array(x):
        x[places] = new
        return x
    xp = array_namespace(x)
    source = np.arange(x.shape[0])
    source[places] = x.shape[0] + np.arange(len(places))
    return xp.take(xp.concat([x, new]), asarray_on(source, x), axis=0)


def factor_rows(mean: Array, centre: float, offsets: bool, columns: bool, scale: float, dtype: str) -> Array:
    """Rows of the factor: components, and for offsets (a, 1) of rows, (1, b + m) of columns; these in the data's `scale`."""
    xp = array_namespace(mean)
    if offsets:
        one, offset = xp.ones_like(mean[:, :1]), mean[:, -1:]
        tail = [one, offset + centre] if columns else [offset, one]
        mean = xp.concat([mean[:, :-1], *tail], axis=1)
    if columns and scale != 1:
        mean = mean * scale
    return xp.astype(mean, getattr(xp, dtype))


def expected_square(covariance: np.ndarray, at: Positions) -> np.ndarray:
    """Expected squared error of units at all their positions together (n,)."""
    K = at.x.shape[1]
    q, p = triangle(K)
    return np.asarray(covariance, dtype=np.float64) @ (np.where(q == p, 1.0, 2.0) * to_numpy(at.second).sum(axis=0))


def _lost(table: np.ndarray, n_unknowns: int) -> np.ndarray:
    """Units most of whose observations are outliers, with no more others than any solution fits by chance (n,)."""
    n_in, n_fit = table[:, Fit.N_INLIERS], table[:, Fit.N_FIT]
    return (n_in < 0.5 * n_fit) & ((n_in < n_unknowns + 2) | (n_in < _RARE * n_fit))


def diagnosed(table: np.ndarray, n_unknowns: int, square: np.ndarray) -> UnitDiagnostics:
    """Diagnostics from the table of `posterior`; `square` is the expected squared error of each unit."""
    n_obs, n_in = table[:, Fit.N_FIT].astype(np.int64), table[:, Fit.N_INLIERS].astype(np.int64)
    spread = np.sqrt(table[:, Fit.RESIDUALS] / np.maximum(table[:, Fit.INLIERS], 1e-300))
    status = np.full(len(n_obs), OK, dtype=np.int8)
    status[_lost(table, n_unknowns)] = TOO_FEW_INLIERS
    status[n_obs < n_unknowns + 1] = TOO_FEW_OBSERVATIONS
    return UnitDiagnostics(
        status, n_obs, n_in, spread, np.sqrt(np.maximum(square, 0)), table[:, Fit.N_INFORMATIVE].astype(np.int64)
    )
