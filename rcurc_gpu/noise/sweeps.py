"""The sweeps of the noise model: rows given columns, then columns given rows, and what the noise is.

Mean field: each row and column has a normal posterior. Priors are normal with variances from the data, so components that
the data do not need shrink to nothing. What the noise is, by row and column, is found along with the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..backends.blocks import Block
from ..backends.kernels import Kernels, RunContext
from ..backends.plain.posterior import (
    LARGEST_EXPONENT,
    Fit,
    Model,
    Noise,
    Positions,
    is_all_faster,
    laid_out,
    positions_of,
    posterior_of_matrix,
    product_variance,
    product_variances,
)
from ..backends.random import Stream, generator
from ..options import Settings
from .model import Group, balancing
from .part import Part
from .precision import SigmaScale, precisions
from .run import run_posterior
from .start import Start, usual_values

_TAILS = (4.0, 6.0, 10.0, 30.0)  # degrees of freedom to choose from; below 4, outliers count as noise
# Observations by which the scale of the noise of a row or column is drawn to that of all: as if so many had said 1. Of 10,
# 30, 50 and 100 on four real matrices; with 10 rows of few observations lose.
POOL = 50.0
_NO_OUTLIERS = 1e-12  # share of the outliers where all observations are right; not 0, whose logarithm is asked for
_MOST_OUTLIERS = 0.5  # share of the outliers, at most: above, they would be the data
_SAMPLE = 6000  # entries on which sweeps, tails and components are judged: errors of a per cent or two
_EXACT = 1e-14  # variance of the noise over the mean square of the data, at least: with less, weights have no digits left
_LEAST = 1e-30  # of a prior variance, relative to the data's
# Share of the entries that is observed from which products of matrices are faster than sums over entries: in plain code, and
# compiled. There 0.4 is enough for few rows of many columns, and 0.9 for many rows of few.
_DENSE, _DENSE_COMPILED = 0.1, 0.6
_LARGEST = 1_000_000  # entries of such a matrix, at most: a dozen of these are in memory at a time
_AT_ONCE = 1 << 17  # numbers that are gathered for some places at a time: with 1 MB of each kind they stay in the cache


@dataclass(frozen=True)
class NoiseForm:
    """What the noise may look like.

    Attributes
    ----------
    tails : tuple of floats
        Degrees of freedom to choose from, even numbers, ascending.
    pool : float
        Observations by which the scale of the noise of a row or column is drawn to that of all.
    by_size : bool
        Whether the noise may depend on the size of the value.
    patience : float
        How many times smaller than usual the changes have to be before the fit rests: where rows and columns hardly tie each
        other down, sweeps near their end slowly.
    """

    tails: tuple[float, ...] = _TAILS
    pool: float = POOL
    by_size: bool = True
    patience: float = 1.0


class Sweeps:
    """The state of a fit.

    Parameters
    ----------
    part : Part
    start : Start
    offsets : bool
    kernels : Kernels
        For arrays on the host.
    settings : Settings
    form : NoiseForm
    """

    def __init__(
        self,
        part: Part,
        start: Start,
        offsets: bool,
        kernels: Kernels,
        settings: Settings,
        form: NoiseForm,
    ) -> None:
        self.part, self.offsets, self.settings = part, offsets, settings
        self.run = RunContext(np.empty(0), kernels, chunk_bytes=settings.chunk_bytes)
        self.centre = start.centre
        self.rows = Group.at(np.c_[start.left, start.row_offset] if offsets else start.left)
        self.cols = Group.at(np.c_[start.right, start.col_offset] if offsets else start.right)
        i, j, y = part.entries
        self.held_share, self.held_seed, self.is_held = 0.0, settings.seed, np.zeros(len(y), dtype=bool)
        values = usual_values(y)
        self.tails: tuple[float, ...]
        self.tails, share = (form.tails, 0.05) if settings.outliers else (form.tails[-1:], _NO_OUTLIERS)
        self.pool, self.by_size = form.pool, form.by_size
        self.noise = Noise(start.variance, self.tails[0], share, 2 * float(np.ptp(values)) or 1.0)
        self.tables: dict[str, np.ndarray] = {}
        # the same whatever the seed: which entries are looked at must not decide between two fits that are about as good
        self.rng = rng = generator(0, Stream.NOISE_SAMPLE)
        fitted = np.arange(len(y))
        if len(fitted) > _SAMPLE:
            fitted = np.sort(rng.choice(fitted, _SAMPLE, replace=False))
        self.sample = (i[fitted], j[fitted], y[fitted])
        self.sigma, self.belief = SigmaScale.of(part.inside.sigma), 0.0
        self.given = self.given_by(part.sigma, len(y))  # of `part.entries`
        self.sample_at = fitted
        self._weigh()
        size = float(np.mean(values * values))
        self.least = _LEAST * max(size, np.finfo(float).tiny / _LEAST)
        self.least_noise = _EXACT * max(size, np.finfo(float).tiny ** 0.5)  # its inverse is no overflow
        self.last = np.zeros(0)  # predictions of the sample after the last sweep
        self.n_done = 0
        self.tried: dict[str, np.ndarray] = {}
        self.needed = 0  # components when it was last found that all of them are
        self._doubted: tuple[Group, Group, np.ndarray] | None = None

    def given_by(self, sigma: np.ndarray | None, n: int) -> np.ndarray:
        """Precisions of observations with this noise; 1 if it is not known."""
        if self.sigma is None:
            return np.broadcast_to(1.0, (n,))
        return np.asarray(precisions(sigma, self.sigma.fine, n)) ** self.belief

    def believe(self, belief: float) -> None:
        """Take precisions to this power from now on: 0 for all alike, 1 for what the user says of their noise."""
        if self.sigma is None or belief == self.belief:
            return
        before, self.belief = self.belief, belief
        self.given = self.given_by(self.part.sigma, len(self.given))
        # a typical observation (by the geometric mean) keeps its noise
        logs = float(np.mean(np.log(precisions(self.part.sigma, self.sigma.fine, len(self.given)))))
        self.noise = replace(self.noise, variance=self.noise.variance * math.exp((belief - before) * logs))
        self._weigh()

    def _weigh(self) -> None:
        """Find the weights of all entries, by what is held out and believed now."""
        self.weights = {name: self._weight(name) for name in ("by_rows", "rows", "by_cols", "columns")}
        self.dense = {name: x for name in self.weights if (x := self._dense(name)) is not None}

    def _weight(self, name: str) -> np.ndarray | None:
        """Precisions of entries of the fit, 0 for others, of a block of the part; None if all of them count alike."""
        if self.held_share == 0 and self.sigma is None:
            return None
        block: Block = getattr(self.part, name)
        n, n_first = self.part.inside.length, self.part.by_rows.n_obs
        if name in ("by_rows", "rows"):  # all entries are in their order
            held = self.is_held[:n_first] if name == "by_rows" else self.is_held[n_first:]
        else:
            held = self.held_at(block.index.astype(np.int64), block.unit_of_entry() + (n if name == "columns" else 0))
        return np.where(held, 0.0, self.given_by(block.sigma, block.n_obs))

    def _dense(self, name: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Values and weights of a block as matrices, if it is dense enough."""
        block: Block = getattr(self.part, name)
        size = block.n_units * block.length
        dense = _DENSE_COMPILED if self.run.kernels.name == "numba" else _DENSE
        if not dense * size < block.n_obs or size > _LARGEST:
            return None
        return laid_out(block, self.weights[name], np.arange(block.n_units), np.empty(0))

    def held_at(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Whether entries are held out."""
        return self.part.is_held(i, j, self.held_seed, self.held_share)

    def hold_out(self, share: float, seed: int | None = None) -> None:
        """From now on fit without a share of the entries, by the user's seed or another; with 0, fit everything."""
        self.held_share, self.held_seed = share, self.settings.seed if seed is None else seed
        self.is_held = self.held_at(*self.part.entries[:2]) if share else np.zeros(len(self.is_held), dtype=bool)
        self._weigh()

    # ------------------------------------------------------------ one sweep

    def fitted_entries(self) -> tuple[np.ndarray, ...]:
        """Row, column, value and precision of the entries that are not held out."""
        every = (*self.part.entries, self.given)
        return every if self.held_share == 0 else tuple(x[~self.is_held] for x in every)

    def sweep(self, heat: float) -> float:
        """Update rows and columns; return the relative change of the predictions.

        NaN if digits ran out: then nothing was done.
        """
        before = self.state()
        for side in ("rows", "cols"):
            self.tables[side] = self._half(side, heat)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            self._rebalance(self.n_done % 2 == 0)
        self.n_done += 1
        self._noise_from(*self.tables.values())
        i, j, _ = self.sample
        new = self.predicted(i, j)
        if not (np.isfinite(self.rows.mean).all() and np.isfinite(self.cols.mean).all()):
            self.restore(*before)
            return math.nan
        change = (
            math.inf
            if len(self.last) == 0
            else float(np.linalg.norm(new - self.last)) / max(float(np.linalg.norm(self.centre + new)), 1e-300)
        )
        self.last = new
        return change

    def state(self) -> tuple[Group, Group, float, Noise, dict[str, np.ndarray]]:
        """What a sweep changes."""
        return self.rows, self.cols, self.centre, self.noise, dict(self.tables)

    def restore(self, rows: Group, cols: Group, centre: float, noise: Noise, tables: dict[str, np.ndarray]) -> None:
        """Go back to this state."""
        self.rows, self.cols, self.centre, self.noise, self.tables = rows, cols, centre, noise, tables

    @property
    def fineness(self) -> float:
        """Noise over the size of what is predicted."""
        return self.noise.variance**0.5 / max(float(np.mean((self.centre + self.last) ** 2)) ** 0.5, 1e-300)

    def precision(self, side: str) -> np.ndarray:
        """The precision of the prior of a side."""
        group: Group = getattr(self, side)
        return 1 / np.maximum(group.spread(), self.least)

    def _half(self, side: str, heat: float) -> np.ndarray:
        """Update one side by what the other is now; the table of all its units."""
        precision = self.precision(side)
        (inside, table), (rest, more) = (self.posterior(name, units, precision, (heat,)) for name, units in self.views(side))
        setattr(self, side, inside.joined(rest))
        return np.concatenate([table, more])

    def views(self, side: str) -> list[tuple[str, slice]]:
        """The blocks of a side, and the units in each."""
        m, n = self.part.inside.n_units, self.part.inside.length
        if side == "rows":
            return [("by_rows", slice(0, m)), ("rows", slice(m, None))]
        return [("by_cols", slice(0, n)), ("columns", slice(n, None))]

    def positions(self, name: str) -> Positions:
        """What the units of a block are regressed on."""
        group = self.cols if name in ("by_rows", "rows") else self.rows
        if name in ("rows", "columns"):  # these see the intersection's columns or rows alone
            group = group[: self.part.inside.length if name == "rows" else self.part.inside.n_units]
        return positions_of(group.mean, group.covariance, group.scale, self.centre, self.offsets)

    def posterior(
        self, name: str, units: slice, precision: np.ndarray, heats: tuple[float, ...], start: Group | None = None,
        only: np.ndarray | None = None, measure: bool = False,
    ) -> tuple[Group, np.ndarray]:  # fmt: skip
        """Posterior of the units of a block, or of `only` some of them, and their table."""
        block: Block = getattr(self.part, name)
        if block.n_units == 0:  # there is nothing beside the intersection
            return self.rows[:0] if name == "rows" else self.cols[:0], np.zeros((0, len(Fit)))
        begin = getattr(self, "rows" if name in ("by_rows", "rows") else "cols")[units] if start is None else start
        chosen = np.arange(block.n_units) if only is None else only
        model = Model(self.positions(name), self.noise, precision)
        g = (begin.mean, begin.covariance, begin.scale)
        if name not in self.dense:
            mean, covariance, table = run_posterior(self.run, block, self.weights[name], chosen, model, g, heats, measure)
            return Group(mean, covariance, begin.scale), table
        found = np.empty_like(g[0]), np.empty_like(g[1]), np.empty((len(chosen), len(Fit)))
        steps = self.run.kernels.matrix_steps
        for part in _some(len(chosen), g[1].shape[1]):
            values, given = (x[part if only is None else only[part]] for x in self.dense[name])
            some = posterior_of_matrix(values, given, model, (g[0][part], g[1][part], g[2][part]), heats, measure, steps)
            for x, new in zip(found, some, strict=True):
                x[part] = new
        return Group(found[0], found[1], begin.scale), found[2]

    def _rebalance(self, turn: bool) -> None:
        """Components as large on both sides, and offsets of mean 0; the components uncorrelated on both sides if turned.

        Sweeps alone turn components slowly: with turns they need about half as many.
        """
        k = self.rows.mean.shape[1] - self.offsets
        if turn and k:
            there, back = np.eye(k + self.offsets), np.eye(k + self.offsets)
            moments = (g.second_moment()[:k, :k] + self.least * np.eye(k) for g in (self.rows, self.cols))
            there[:k, :k], back[:k, :k] = balancing(*moments)
            self.rows, self.cols = self.rows.turned(there), self.cols.turned(back)
        else:
            sizes = [np.maximum(g.spread(), self.least) for g in (self.rows, self.cols)]
            factor = (sizes[0] / sizes[1]) ** 0.25
            if self.offsets:
                factor[k] = 1.0
            self.rows, self.cols = self.rows.rescaled(1 / factor), self.cols.rescaled(factor)
        if self.offsets:
            for group in (self.rows, self.cols):
                middle = float(np.mean(group.mean[:, k]))
                self.centre += middle
                group.mean[:, k] -= middle

    def _noise_from(self, row_table: np.ndarray, col_table: np.ndarray) -> None:
        """Scales of rows and columns, the scale of all, and the share of the outliers."""
        inliers, squares, n = (col_table[:, c].sum() + row_table[:, c].sum() for c in (Fit.INLIERS, Fit.SQUARES, Fit.N_FIT))
        ratio = squares / max(inliers, 1e-300)
        for side, table in (("rows", row_table), ("cols", col_table)):
            group: Group = getattr(self, side)
            total = table[:, Fit.SQUARES] / max(ratio, 1e-300) * group.scale
            scale = (self.pool + total) / (self.pool + table[:, Fit.INLIERS])
            setattr(self, side, replace(group, scale=scale / np.mean(scale)))
        share = min(max(1 - inliers / max(n, 1), 1e-4), _MOST_OUTLIERS) if self.settings.outliers else _NO_OUTLIERS
        variance = max(self.noise.variance * ratio, self.least_noise)
        # numbers of Python: those of NumPy would bring arrays of other libraries to the host
        self.noise = replace(self.noise, variance=float(variance), share=float(share))

    @property
    def strengths(self) -> np.ndarray:
        """Standard deviation of what each component adds to an entry."""
        k = self.rows.mean.shape[1] - self.offsets
        return np.sqrt(self.rows.spread()[:k] * self.cols.spread()[:k])

    # ------------------------------------------------------------ predictions of single entries

    def predicted(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """The matrix at some places, without its centre."""
        # the numbers of a component side by side, and some places at a time: a fifth of the time of gathering whole rows
        left, right = (np.ascontiguousarray(g.mean.T) for g in (self.rows, self.cols))
        k = len(left) - self.offsets
        if is_all_faster(len(self.rows), len(self.cols), len(i)):
            x = (left[:k].T @ right[:k])[i, j]
        else:
            x = np.empty(len(i))
            for part in _some(len(i), k):
                np.einsum("kn,kn->n", left[:k].take(i[part], axis=1), right[:k].take(j[part], axis=1), out=x[part])
        return x + left[k].take(i) + right[k].take(j) if self.offsets else x

    def doubt(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Variance of the matrix at some places."""
        rows, cols = (g.mean.copy() for g in (self.rows, self.cols))
        if self.offsets:
            rows[:, -1] = cols[:, -1] = 1.0
        S, T = self.rows.covariance, self.cols.covariance
        if is_all_faster(len(rows), len(cols), len(i)):  # what there is to multiply is not copied for each place
            return np.asarray(product_variances(rows, cols, S, T, self.offsets)[i, j])
        out = np.empty(len(i))
        for part in _some(len(i), S.shape[1]):
            r, c = i[part], j[part]
            out[part] = product_variance(rows[r], cols[c], S[r], T[c], self.offsets)
        return out

    def local(self, i: np.ndarray, j: np.ndarray, given: np.ndarray, fitted: np.ndarray | None = None) -> np.ndarray:
        """Squared scale of the noise at some places, of observations with these precisions; the matrix there if known."""
        local = self.noise.variance * self.rows.scale[i] * self.cols.scale[j] / given
        if not self.noise.growth:
            return local
        return local * self.noise.by_size(self.centre + self.predicted(i, j) if fitted is None else fitted)

    def log_likelihood(self, residual: np.ndarray, variance: np.ndarray, noise: Noise | None = None) -> np.ndarray:
        """Log density of observations with these residuals, given the squared scale of each."""
        n = self.noise if noise is None else noise
        variance = np.maximum(variance, np.finfo(float).tiny)  # none at all, of a row that fits exactly
        inside = n.top - 0.5 * np.log(variance) - 0.5 * (n.tail + 1) * np.log1p(residual**2 / (n.tail * variance))
        return np.logaddexp(math.log1p(-n.share) + inside, math.log(n.share / n.span))

    def inlying(self, residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Probability that observations with these residuals are no outliers."""
        n = self.noise
        bent = 1 + residual**2 / (n.tail * variance)
        power = np.minimum(0.5 * (n.tail + 1) * np.log(bent), LARGEST_EXPONENT)
        return 1 / (1 + n.odds * np.sqrt(variance) * np.exp(power))

    def left_out(self, entries: tuple[np.ndarray, ...] | None = None, most: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Residuals of entries as if each had been left out of the fit, and the squared scale of each.

        Entries (row, column, value, precision) are those of the sample by default. `most` limits their influence on their
        own predictions: an entry that alone determines its row would divide by 0.
        """
        i, j, y, given = (*self.sample, self.given[self.sample_at]) if entries is None else entries
        residual = y - self.centre - self.predicted(i, j)
        doubt = self._doubt_of_sample() if entries is None else self.doubt(i, j)
        local = self.local(i, j, given)
        nu = self.noise.tail
        square = (residual**2 + doubt) / local
        weight = self.inlying(residual, local) * (nu + 1) / (nu + square)
        own = np.minimum(weight * doubt / local, most)
        return residual / (1 - own), local + doubt / (1 - own)

    def _doubt_of_sample(self) -> np.ndarray:
        """`doubt` of the entries of the sample, found once for what rows and columns are: several choices ask for it."""
        if self._doubted is None or self._doubted[0] is not self.rows or self._doubted[1] is not self.cols:
            self._doubted = (self.rows, self.cols, self.doubt(*self.sample[:2]))
        return self._doubted[2]


def _some(n: int, width: int) -> list[slice]:
    """So many places, some at a time, for each of which `width` numbers are gathered."""
    size = max(_AT_ONCE // max(width, 1), 1)
    return [slice(low, low + size) for low in range(0, n, size)]
