"""Fit the noise model to a part of the observations, in sweeps: rows given columns, then columns given rows.

Mean field: each row and column has a normal posterior. Priors are normal with variances from the data, so components that
the data do not need shrink to nothing. What the noise is, by row and column, is found along with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, default_chunk_bytes, device_of, gather, take_rows, to_numpy
from ..backends.blocks import Block, ChunkPlan
from ..backends.kernels import Kernels, RunContext
from ..backends.operators import product_svd
from ..backends.plain.posterior import (
    LARGEST_EXPONENT,
    Fit,
    Model,
    Noise,
    Positions,
    laid_out,
    packed_size,
    positions_of,
    posterior_of_matrix,
)
from ..backends.random import Stream, generator
from ..options import Settings
from .model import Confirmation, Group, NoiseModel
from .part import Part
from .precision import SigmaScale, precisions
from .start import Start, most_components, start_of, structure_in

# Sweeps at most. Real matrices (traffic, weather, spectra) need 15 to 40; what moves after that moves by little.
_MOST_SWEEPS = 40
# The first sweeps find weights as if the noise were so many times as large: the very first, and then falling to 1. With 1
# from the start, odd spectra are outliers for good (error of `octane` 1.3 times as large); with more, outliers leak in.
_FIRST_HEAT, _HEAT, _HEATED = 4.0, 2.0, 9
_SETTLED = 2e-4  # relative change of the predictions by a sweep after which nothing moves any more
_STILL = 0.05  # relative change of the noise by a sweep, likewise: where it is small, it is found last
_NEARLY = 5e-3  # the same, after which a fit that used up its sweeps still counts as settled: noise moves predictions more
_TAILS = (4.0, 6.0, 10.0, 30.0)  # degrees of freedom to choose from; below 4, outliers count as noise
_TAIL_EVERY = 4  # sweeps between two choices
# Observations by which the scale of the noise of a row or column is drawn to that of all: as if so many had said 1. Of 10,
# 30, 50 and 100 on four real matrices; with 10 rows of few observations lose.
POOL = 50.0
_NO_OUTLIERS = 1e-12  # share of the outliers where all observations are right; not 0, whose logarithm is asked for
_MOST_OUTLIERS = 0.5  # share of the outliers, at most: above, they would be the data
_SAMPLE = 6000  # entries on which sweeps, tails and components are judged: errors of a per cent or two
_DEAD = 2e-3  # variance of a component over that of the noise, below which nothing is left of it
# Squared coefficients over their prior variances, mean over the coefficients, from which a row may sit on outliers that
# agree: it is fitted once more from its prior. Chance exceeds 6 once in a million rows of rank 5.
_FAR = 6.0
_WORTH = 3.0  # log-likelihood that components or offsets have to add to be kept: by chance they add about 1
_MATTERS = 1e-3  # of the entries: smaller structure, as of rounded numbers, is no reason to doubt a rank that was asked for
_FAR_BELOW = 0.25  # singular value of the intersection over that of noise, below which it is no component
_GROWTH = 5  # components that are added at a time
_LAST_TURN = 30  # sweep after which components are not turned any more, so that what was turned can come to rest
_REST = 6  # sweeps after which what was added has found its place
_EXACT = 1e-14  # variance of the noise over the mean square of the data, at least: with less, weights have no digits left
_LEAST = 1e-30  # of a prior variance, relative to the data's


_MOST_HALVINGS = 30  # noise of 1e-9 of the signal; what is smaller is rounding
_DENSE = 0.1  # share of the entries that is observed from which products of matrices are faster than sums over entries
_LARGEST = 1_000_000  # entries of such a matrix, at most: a dozen of these are in memory at a time


def _heat(number: int) -> float:
    """Temperature of a sweep."""
    return _FIRST_HEAT if number == 1 else max(_HEAT ** (1 - (number - 2) / (_HEATED - 1)), 1.0)


@dataclass(frozen=True)
class NoiseForm:
    """What the noise may look like.

    Attributes
    ----------
    tails : tuple of floats
        Degrees of freedom to choose from, even numbers, ascending.
    pool : float
        Observations by which the scale of the noise of a row or column is drawn to that of all.
    """

    tails: tuple[float, ...] = _TAILS
    pool: float = POOL


_USUAL = NoiseForm()


class Sweeps:
    """The state of a fit.

    Parameters
    ----------
    part : Part
    start : Start
    offsets : bool
    kernels : Kernels
        For arrays on the host.
    held : callable
        Which of some entries (i, j) are held out.
    settings : Settings
    form : NoiseForm
    """

    def __init__(
        self,
        part: Part,
        start: Start,
        offsets: bool,
        kernels: Kernels,
        held: Callable[[np.ndarray, np.ndarray], np.ndarray],
        settings: Settings,
        form: NoiseForm,
    ) -> None:
        self.part, self.offsets, self.settings = part, offsets, settings
        self.run = RunContext(np.empty(0), kernels, chunk_bytes=settings.chunk_bytes)
        self.centre = start.centre
        self.rows = Group.at(np.c_[start.left, start.row_offset] if offsets else start.left)
        self.cols = Group.at(np.c_[start.right, start.col_offset] if offsets else start.right)
        i, j, y = part.entries
        self.is_held = held(i, j)
        fitted = np.flatnonzero(~self.is_held)
        span = float(y[fitted].max() - y[fitted].min())
        self.tails: tuple[float, ...]
        self.tails, share = (form.tails, 0.05) if settings.outliers else (form.tails[-1:], _NO_OUTLIERS)
        self.pool = form.pool
        self.noise = Noise(start.variance, self.tails[0], share, 2 * span or 1.0)
        self.tables: dict[str, np.ndarray] = {}
        self.rng = rng = generator(settings.seed, Stream.NOISE_SAMPLE)
        if len(fitted) > _SAMPLE:
            fitted = np.sort(rng.choice(fitted, _SAMPLE, replace=False))
        self.sample = (i[fitted], j[fitted], y[fitted])
        self.sigma, self.belief = SigmaScale.of(part.inside.sigma), 0.0
        self.given = self._given(part.sigma, len(y))  # of `part.entries`
        self.sample_at = fitted
        self.weights = {name: self._weight(name) for name in ("by_rows", "rows", "by_cols", "columns")}
        self.dense = {name: x for name in self.weights if (x := self._dense(name)) is not None}
        self.least = _LEAST * max(float(np.mean(y * y)), np.finfo(float).tiny / _LEAST)
        self.least_noise = _EXACT * max(float(np.mean(y * y)), np.finfo(float).tiny ** 0.5)  # its inverse is no overflow
        self.last: np.ndarray | None = None

    def _given(self, sigma: np.ndarray | None, n: int) -> np.ndarray:
        """Precisions of observations with this noise; 1 if it is not known."""
        if self.sigma is None:
            return np.broadcast_to(1.0, (n,))
        return np.asarray(precisions(sigma, self.sigma.fine, n)) ** self.belief

    def believe(self, belief: float) -> None:
        """Take precisions to this power from now on: 0 for all alike, 1 for what the user says of their noise."""
        if self.sigma is None or belief == self.belief:
            return
        before, self.belief = self.belief, belief
        self.given = self._given(self.part.sigma, len(self.given))
        # a typical observation (by the geometric mean) keeps its noise
        logs = float(np.mean(np.log(precisions(self.part.sigma, self.sigma.fine, len(self.given)))))
        self.noise = replace(self.noise, variance=self.noise.variance * math.exp((belief - before) * logs))
        self.weights = {name: self._weight(name) for name in self.weights}
        self.dense = {name: x for name in self.weights if (x := self._dense(name)) is not None}

    def _weight(self, name: str) -> np.ndarray:
        """Precisions of entries of the fit, 0 for others, of a block of the part."""
        block: Block = getattr(self.part, name)
        m, n = self.part.inside.n_units, self.part.inside.length
        unit, index = block.unit_of_entry(), block.index.astype(np.int64)
        places = {
            "by_rows": (unit, index),
            "rows": (m + unit, index),
            "by_cols": (index, unit),
            "columns": (index, n + unit),
        }
        return np.where(self.held_at(*places[name]), 0.0, self._given(block.sigma, block.n_obs))

    def _dense(self, name: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Values and weights of a block as matrices, if it is dense enough."""
        block: Block = getattr(self.part, name)
        size = block.n_units * block.length
        if not _DENSE * size < block.n_obs or size > _LARGEST:
            return None
        return laid_out(block, self.weights[name], np.arange(block.n_units), np.empty(0))

    def held_at(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Whether entries are held out."""
        keys = self._held_keys
        key = i * self.part.shape[1] + j
        place = np.minimum(np.searchsorted(keys, key), max(len(keys) - 1, 0))
        return keys[place] == key if len(keys) else np.zeros(len(key), dtype=bool)

    @cached_property
    def _held_keys(self) -> np.ndarray:
        i, j, _ = self.part.entries
        return np.sort((i * self.part.shape[1] + j)[self.is_held])

    def include_held(self) -> None:
        """From now on fit everything: held-out entries have done their work."""
        blocks: dict[str, Block] = {name: getattr(self.part, name) for name in self.weights}
        self.weights = {name: np.array(self._given(block.sigma, block.n_obs)) for name, block in blocks.items()}
        self.dense = {name: x for name in self.weights if (x := self._dense(name)) is not None}

    # ------------------------------------------------------------ one sweep

    def sweep(self, heat: float) -> float:
        """Update rows and columns; return the relative change of the predictions."""
        for side in ("rows", "cols"):
            self.tables[side] = self._half(side, heat)
        self._rebalance()
        self._noise_from(*self.tables.values())
        i, j, _ = self.sample
        new = self.predicted(i, j)
        change = (
            math.inf
            if self.last is None
            else float(np.linalg.norm(new - self.last)) / max(float(np.linalg.norm(new)), 1e-300)
        )
        self.last = new
        return change

    def precision(self, side: str) -> np.ndarray:
        """Of the prior of a side."""
        group: Group = getattr(self, side)
        return 1 / np.maximum(group.spread(), self.least)

    def _half(self, side: str, heat: float) -> np.ndarray:
        """Update one side by what the other is now; the table of all its units."""
        precision = self.precision(side)
        found = [self._posterior(name, units, precision, (heat,)) for name, units in self._views(side)]
        self._set(side, found)
        return np.concatenate([table for _, table in found])

    def _views(self, side: str) -> list[tuple[str, slice]]:
        """The blocks of a side, and the units in each."""
        m, n = self.part.inside.n_units, self.part.inside.length
        if side == "rows":
            return [("by_rows", slice(0, m)), ("rows", slice(m, None))]
        return [("by_cols", slice(0, n)), ("columns", slice(n, None))]

    def _set(self, side: str, found: list[tuple[Group, np.ndarray]]) -> None:
        setattr(self, side, found[0][0].joined(found[1][0]))

    def _positions(self, name: str) -> Positions:
        """What the units of a block are regressed on."""
        group = self.cols if name in ("by_rows", "rows") else self.rows
        if name in ("rows", "columns"):  # these see the intersection's columns or rows alone
            group = group[: self.part.inside.length if name == "rows" else self.part.inside.n_units]
        return positions_of(group.mean, group.covariance, group.scale, self.centre, self.offsets)

    def _posterior(
        self, name: str, units: slice, precision: np.ndarray, heats: tuple[float, ...], start: Group | None = None,
        only: np.ndarray | None = None, measure: bool = False,
    ) -> tuple[Group, np.ndarray]:  # fmt: skip
        """Posterior of the units of a block, or of `only` some of them, and their table."""
        block: Block = getattr(self.part, name)
        begin = getattr(self, "rows" if name in ("by_rows", "rows") else "cols")[units] if start is None else start
        chosen = np.arange(block.n_units) if only is None else only
        model = Model(self._positions(name), self.noise, precision)
        if name in self.dense:
            values, given = (x if only is None else x[only] for x in self.dense[name])
            g = (begin.mean, begin.covariance, begin.scale)
            mean, covariance, table = posterior_of_matrix(
                values, given, model, g, heats, measure, self.run.kernels.solve_packed
            )
            return Group(mean, covariance, begin.scale), table
        g = (begin.mean, begin.covariance, begin.scale)
        mean, covariance, table = run_posterior(self.run, block, self.weights[name], chosen, model, g, heats, measure)
        return Group(mean, covariance, begin.scale), table

    def _rebalance(self) -> None:
        """Components as large on both sides, and offsets of mean 0."""
        k = self.rows.mean.shape[1] - self.offsets
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

    # ------------------------------------------------------------ predictions of single entries

    def predicted(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """The matrix at some places, without its centre."""
        k = self.rows.mean.shape[1] - self.offsets
        x = np.einsum("nk,nk->n", self.rows.mean[i, :k], self.cols.mean[j, :k])
        return x + self.rows.mean[i, k] + self.cols.mean[j, k] if self.offsets else x

    def doubt(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Variance of the matrix at some places."""
        at = positions_of(self.rows.mean, self.rows.covariance, self.rows.scale, 0.0, self.offsets)
        q, p = np.tril_indices(self.rows.mean.shape[1])
        double = np.where(q == p, 1.0, 2.0)
        tilde = self.cols.mean.copy()
        if self.offsets:
            tilde[:, -1] = 1.0
        out = np.empty(len(i))
        for low in range(0, len(i), 1 << 14):  # a few MB at a time
            part = slice(low, low + (1 << 14))
            own = np.einsum("nc,nc->n", at.second[i[part]], self.cols.covariance[j[part]] * double)
            t = tilde[j[part]]
            out[part] = own + np.einsum("nc,nc->n", at.covariance[i[part]], t[:, q] * t[:, p] * double)
        return np.maximum(out, 0.0)

    def local(self, i: np.ndarray, j: np.ndarray, given: np.ndarray) -> np.ndarray:
        """Squared scale of the noise at some places, of observations with these precisions."""
        return self.noise.variance * self.rows.scale[i] * self.cols.scale[j] / given

    def log_likelihood(self, residual: np.ndarray, variance: np.ndarray, noise: Noise | None = None) -> np.ndarray:
        """Log density of observations with these residuals, given the squared scale of each."""
        n = self.noise if noise is None else noise
        inside = n.top - 0.5 * np.log(variance) - 0.5 * (n.tail + 1) * np.log1p(residual**2 / (n.tail * variance))
        return np.logaddexp(math.log1p(-n.share) + inside, math.log(n.share / n.span))

    def inlying(self, residual: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Probability that observations with these residuals are no outliers."""
        n = self.noise
        bent = 1 + residual**2 / (n.tail * variance)
        power = np.minimum(0.5 * (n.tail + 1) * np.log(bent), LARGEST_EXPONENT)
        return 1 / (1 + n.odds * np.sqrt(variance) * np.exp(power))

    def _left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Residuals of the sample as if each entry had been left out of the fit, and the squared scale of each."""
        i, j, y = self.sample
        residual, doubt = y - self.centre - self.predicted(i, j), self.doubt(i, j)
        local = self.local(i, j, self.given[self.sample_at])
        nu = self.noise.tail
        square = (residual**2 + doubt) / local
        weight = self.inlying(residual, local) * (nu + 1) / (nu + square)
        own = np.minimum(weight * doubt / local, 0.9)  # influence; an entry that alone determines its row would divide by 0
        return residual / (1 - own), local + doubt / (1 - own)

    def choose_tail(self) -> None:
        """Degrees of freedom of the noise, by how likely entries of the sample are as if each had been left out."""
        residual, variance = self._left_out()
        noises = [replace(self.noise, tail=tail) for tail in self.tails]
        # the scale that belongs to other tails: the same median
        scores = [float(np.sum(self.log_likelihood(residual, variance, noise))) for noise in noises]
        self.noise = noises[int(np.argmax(scores))]

    # ------------------------------------------------------------ single rows, components

    def restart_far(self) -> None:
        """Fit rows and columns again that are far from all others, and take what is more likely."""
        for side in ("rows", "cols"):
            precision, group = self.precision(side), getattr(self, side)
            far = is_far(group.mean, precision)
            for name, units in self._views(side):
                here = np.arange(len(group))[units]
                only = np.flatnonzero(far[here])
                if len(only) == 0:
                    continue
                now = group[here[only]]
                _, old = self._posterior(name, units, precision, (1.0,), now, only, measure=True)
                fresh = replace(Group.at(np.zeros_like(now.mean)), scale=now.scale)
                heats = from_prior(precision, self._positions(name), self.noise)
                found, new = self._posterior(name, units, precision, heats, fresh, only, measure=True)
                better = new[:, Fit.OBJECTIVE] > old[:, Fit.OBJECTIVE]
                group = group.put(here[only[better]], found[better])
            setattr(self, side, group)

    def grow(self, most: int) -> bool:
        """Add components that are left in the residuals, up to `most` in all; whether there were any.

        Weak components shrink to nothing while the noise is still overestimated. Once the strong ones are right, they show.
        """
        room = min(most - len(self.strengths), _GROWTH)
        if room <= 0:
            return False
        left, right = self._left_over(room)
        if left.shape[1] == 0:
            return False
        self.rows, self.cols = self.rows.widened(left, self.offsets), self.cols.widened(right, self.offsets)
        return True

    def compress(self) -> bool:
        """Turn the components so that they are singular ones of the intersection, and drop those far below its noise.

        Where nothing was observed, two components may share what is one on the intersection, and add what is none; whether
        any was dropped. If the intersection is all there is, there is no such place, and no reason to.
        """
        k, inside = len(self.strengths), self.part.inside
        m, n = inside.n_units, inside.length
        if k == 0 or self.part.shape == (m, n):
            return False
        rows, cols = self.rows.mean[:, :k], self.cols.mean[:, :k]
        u, s, v = product_svd(rows[:m], cols[:n])
        rate = max(float(self._given(inside.sigma, inside.n_obs).sum()), 1e-9) / (m * n)
        edge = (self.noise.variance / rate) ** 0.5 * (m**0.5 + n**0.5)
        kept = max(int(np.sum(s > _FAR_BELOW * edge)), 0 if self.offsets else 1)
        if kept == k:
            return False
        root = np.sqrt(s[:kept])
        left, right = u[:, :kept] * root, v[:, :kept] * root
        # the others so that the part of the cross that was observed stays as it is: least squares on rows of I, columns of J
        new_cols = cols @ (rows[:m].T @ left) / s[:kept]
        new_rows = rows @ (cols[:n].T @ right) / s[:kept]
        offset = [group.mean[:, k:] for group in (self.rows, self.cols)]
        self.rows, self.cols = (
            replace(Group.at(np.concatenate([new, a], axis=1)), scale=group.scale)
            for new, a, group in ((new_rows, offset[0], self.rows), (new_cols, offset[1], self.cols))
        )
        return True

    def has_structure(self) -> bool:
        """Whether the residuals have a component that no rank allowed for, of a size that matters."""
        left, right = self._left_over(1)
        size = float(np.mean(left**2) * np.mean(right**2)) ** 0.5 if left.shape[1] else 0.0
        return size > _MATTERS * float(np.mean((self.centre + self.predicted(*self.sample[:2])) ** 2)) ** 0.5

    def _left_over(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Components that are left in the residuals, at most so many."""
        i, j, y, given = (x[~self.is_held] for x in (*self.part.entries, self.given))
        residual = y - self.centre - self.predicted(i, j)
        inlying = residual * self.inlying(residual, self.local(i, j, given)) * (given / np.mean(given))
        return structure_in((i, j, inlying), self.part.shape, most, self.rng)

    def drop_dead(self) -> None:
        """Drop components of which nothing is left: they cost time."""
        self._keep(np.flatnonzero(self.strengths**2 > _DEAD * self.noise.variance))

    def drop_unsupported(self, may_drop_offsets: bool) -> None:
        """Drop components, and perhaps the offsets, that entries do not support, as if each had been left out."""
        i, j, _ = self.sample
        residual, variance = self._left_out()
        base = self.log_likelihood(residual, variance)

        def gain(part: np.ndarray) -> float:
            """By how much a part of the predictions makes the entries more likely."""
            return float(np.sum(base - self.log_likelihood(residual + part, variance)))

        k = len(self.strengths)
        gains = [gain(self.rows.mean[i, c] * self.cols.mean[j, c]) for c in range(k)]
        self._keep(np.flatnonzero((np.asarray(gains) > _WORTH) & (self.strengths**2 > _DEAD * self.noise.variance)))
        k = len(self.strengths)
        if not (self.offsets and may_drop_offsets and k):  # without both there would be nothing left
            return
        if gain(self.centre + self.rows.mean[i, k] + self.cols.mean[j, k]) <= _WORTH:
            self.rows, self.cols = (g.taking(np.arange(k)) for g in (self.rows, self.cols))
            self.centre, self.offsets = 0.0, False

    def _keep(self, components: np.ndarray) -> None:
        k = len(self.strengths)
        if len(components) == 0 and not self.offsets:
            components = np.argsort(-self.strengths)[:1]
        if len(components) < k:
            numbers = np.append(components, k) if self.offsets else components
            self.rows, self.cols = self.rows.taking(numbers), self.cols.taking(numbers)

    @property
    def strengths(self) -> np.ndarray:
        """Standard deviation of what each component adds to an entry."""
        k = self.rows.mean.shape[1] - self.offsets
        return np.sqrt(self.rows.spread()[:k] * self.cols.spread()[:k])

    def confirm(self) -> Confirmation | None:
        """What held-out entries say."""
        i, j, y, given = (x[self.is_held] for x in (*self.part.entries, self.given))
        if len(y) == 0:  # none were wanted, or there were too few to hold any out
            return None if self.settings.holdout == 0 else Confirmation(0, 1.0, 0.0, 0.0, 0.0, 0.0)
        x = self.centre + self.predicted(i, j)
        residual, variance = y - x, self.doubt(i, j) + self.local(i, j, given)
        inlier = self.inlying(residual, variance)
        sizes = np.abs(residual) / np.sqrt(variance)
        factor = _weighted_quantile(sizes, inlier, 0.9) / _quantile_of_t(0.9, self.noise.tail)
        inlier = inlier * given  # what coarse instruments say of the errors is their noise
        offsets = y - self.centre - (self.rows.mean[i, -1] + self.cols.mean[j, -1] if self.offsets else 0.0)
        total = max(float(inlier.sum()), 1e-300)
        return Confirmation(
            len(y),
            factor,
            float(np.sum(inlier * residual**2) / total) ** 0.5,
            float(np.sum(inlier * offsets**2) / total) ** 0.5,
            float(np.sum(inlier * x**2) / total) ** 0.5,
            float(np.mean(self.log_likelihood(residual, variance))),
        )


def _weighted_quantile(x: np.ndarray, weight: np.ndarray, level: float) -> float:
    order = np.argsort(x)
    total = np.cumsum(weight[order])
    return float(x[order][min(int(np.searchsorted(total, level * total[-1])), len(x) - 1)])


def _quantile_of_t(level: float, tail: float) -> float:
    """Of the size of a number with Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(tail, 0.5 + 0.5 * level))


def from_prior(precision: np.ndarray, at: Positions, noise: Noise) -> tuple[float, ...]:
    """Temperatures of a fit that begins at the prior: first what the prior allows is no outlier; by halves down to 1."""
    diagonal = np.cumsum(np.arange(1, len(precision) + 1)) - 1
    signal = float(np.sum(to_numpy(at.second)[:, diagonal].mean(axis=0) / precision)) ** 0.5 if len(at.x) else 0.0
    steps = math.ceil(math.log2(max(2 * signal / noise.variance**0.5, 4.0)))
    return (*(2.0**k for k in range(min(steps, _MOST_HALVINGS), 0, -1)), 1.0, 1.0)


def is_far(mean: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Which units are far from all others: they may sit on outliers that agree (n,)."""
    return np.mean(mean**2 * precision, axis=1) > _FAR


def run_posterior(
    run: RunContext,
    block: Block,
    weight: Array,
    units: np.ndarray,
    model: Model,
    start: tuple[Array, Array, Array],
    temperatures: tuple[float, ...],
    measure: bool,
) -> tuple[Array, Array, Array]:
    """`posterior` of units of a block in chunks; `start` has a row for each of them."""
    kernels, at = run.kernels, model.at
    size = packed_size(at.x.shape[1])
    if len(units) == 0:
        xp = array_namespace(at.x)
        return start[0], start[1], xp.zeros((0, len(Fit)), dtype=at.x.dtype, device=device_of(at.x))
    bytes_at_once = run.chunk_bytes or default_chunk_bytes(at.x)
    if kernels.name == "numba":
        plan = kernels.plan(block, units, size, bytes_at_once)
    else:  # units are laid out as rows of a matrix, of which there are a dozen at a time
        most = max(bytes_at_once // (96 * max(block.length, 1)), 1)
        plan = ChunkPlan(units, np.append(np.arange(0, len(units), most), len(units)))
    place = np.empty(block.n_units, dtype=np.int64)
    place[units] = np.arange(len(units))
    parts = []
    for these in plan:
        g = tuple(
            take_rows(x, asarray_on(place[these], x)) if x.ndim == 2 else gather(x, asarray_on(place[these], x))
            for x in start
        )
        parts.append(kernels.posterior(block, weight, these, model, g, temperatures, measure))
    mean, covariance, table = (plan.join(list(x)) for x in zip(*parts, strict=True))
    return mean, covariance, table


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

    def held(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return part.is_held(i, j, s.seed, s.holdout)

    i, j, y = part.entries
    fitted = ~held(i, j)
    if not fitted.any():
        fitted[:] = True
    offsets = s.offsets is not False
    asked, most = most, min(most, room_for(part.inside.n_units, part.inside.length, offsets))
    start = start_of((i[fitted], j[fitted], y[fitted]), part.shape, most, offsets, s.seed)
    state = Sweeps(part, start, offsets, kernels, held, s, form)
    settled, number, grown = False, 0, 0
    enough = most_components((i[fitted], j[fitted]), part.shape)
    limit = min(most, enough)
    for number in range(1, (_MOST_SWEEPS if s.sweeps is None else s.sweeps) + 1):
        state.believe(min((number - 1) / _HEATED, 1.0))
        before = state.noise.variance
        change = state.sweep(_heat(number))
        still = abs(math.log(state.noise.variance / before)) < _STILL
        if number > _HEATED and number % _TAIL_EVERY == 0:
            state.choose_tail()
            state.drop_dead()
            if number == 3 * _TAIL_EVERY:
                state.restart_far()
        settled = number > _HEATED + 1 and change < _SETTLED and still
        resting = settled or (number > _HEATED and number - grown >= _REST and change < _NEARLY)
        if report(number, change):
            break
        if resting and number <= _LAST_TURN and state.compress():
            settled, resting = False, False
        if resting:  # also in vain: two SVDs in every sweep would take as long as the sweeps
            more, grown = state.grow(limit), number
            settled = settled and not more
        if settled:
            break
    settled = settled or change < _NEARLY
    state.restart_far()
    state.drop_unsupported(may_drop_offsets=s.offsets == "auto")
    state.sweep(1.0)
    confirmation = state.confirm()
    left_over = asked < enough and len(state.strengths) >= asked and state.has_structure()
    state.include_held()
    for _ in range(2):
        state.sweep(1.0)
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


def _ordered(group: Group, numbers: np.ndarray) -> Group:
    """The same with its coefficients in another order."""
    k = len(numbers)
    unpack = np.empty((k, k), dtype=np.int64)
    q, p = np.tril_indices(k)
    unpack[q, p] = unpack[p, q] = np.arange(len(q))
    return replace(group, mean=group.mean[:, numbers], covariance=group.covariance[:, unpack[numbers[q], numbers[p]]])
