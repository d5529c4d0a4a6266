"""What is chosen between the sweeps: components, offsets, rows and columns to fit again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..backends.arrays import diagonal, to_numpy
from ..backends.operators import product_svd
from ..backends.plain.posterior import Fit, Model, Noise, Positions
from .model import Group
from .modes import Found, with_modes
from .start import structure_in
from .sweeps import Sweeps

_DEAD = 2e-3  # variance of a component over that of the noise, below which nothing is left of it
# Squared coefficients over their prior variances, mean over the coefficients, from which a row may sit on outliers that
# agree: it is fitted once more from its prior. Chance exceeds 6 once in a million rows of rank 5.
_FAR = 6.0
# Squared residual of an observation that is rejected over the variance that the prior allows it: below, a row or column that
# is fitted once more from its prior may take it in. On spectra with odd samples whole columns were lost without (error of
# `octane` with a fifth missing 22 times as large); where outliers are far off, hardly any row is fitted again.
_ALLOWED = 4.0
_MOSTLY = 0.5  # share of the observations that are not about 0, above which a row that rejects these is fitted once more
# Rows (columns) over which a component spreads, and share of the columns (rows) that have it, below which it is made of
# outliers: (sum of squares)^2 over the sum of fourth powers. A tenth of outliers in a column gives 1 and less than 0.1.
_SINGLE, _SPARSE = 2.5, 0.15
# Log-likelihood that each of the other entries loses without such a component, after so many sweeps, from which it is more
# than outliers: 0.13 to 1.3 where a column is ten times as loud as others, below -0.14 where outliers made it.
_NEEDED, _FORGETTING = 0.05, 4
_WORTH = 3.0  # log-likelihood that components or offsets have to add to be kept: by chance they add about 1
_MATTERS = 1e-3  # of the entries: smaller structure, as of rounded numbers, is no reason to doubt a rank that was asked for
_FAR_BELOW = 0.25  # singular value of the intersection over that of noise, below which it is no component
# Variance of a column's entries that is left if the other columns are known, over what there was: above, a component may be
# the column's own. It takes in the outliers there, each by the coefficient of its row, and says nothing of any other entry:
# 0.3 and more where outliers made it (1000 x 40, a tenth of them wrong), below 0.05 else. What is near is tried.
_LONE = 0.2
_NEARLY_OWN = 0.999  # influence of an entry on its own prediction, at most, where such components are looked for
# Square of the mean coefficient over the mean square, from which a component is an offset.
_COMMON_SHARE = 0.9
_NO_WEIGHT = 1e12  # scale of the squared noise of units that are not to count
_MORE = 8  # components that are added at a time: each time costs some sweeps
_MOST_HALVINGS = 30  # noise of 1e-9 of the signal; what is smaller is rounding


class Choices(Sweeps):
    """Sweeps, and what is chosen between them."""

    # ------------------------------------------------------------ single rows, components

    def restart_far(self) -> None:
        """Fit rows and columns again that may sit on outliers or have missed something, and take what is more likely."""
        tempted = self._tempted()  # of both sides, before either changes
        for side in ("rows", "cols"):
            far = is_far(getattr(self, side).mean, self.precision(side)) | tempted[side]
            self._restart(side, far)

    def _restart(self, side: str, far: np.ndarray, always: bool = False) -> None:
        """Fit units of a side again from their prior, and take what is more likely, or `always` what is new."""
        precision, group = self.precision(side), getattr(self, side)
        for name, units in self.views(side):
            here = np.arange(len(group))[units]
            only = np.flatnonzero(far[here])
            if len(only) == 0:
                continue
            now = group[here[only]]
            fresh = replace(Group.at(np.zeros_like(now.mean)), scale=np.ones_like(now.scale) if always else now.scale)
            heats = from_prior(precision, self.positions(name), self.noise)
            found, new = self.posterior(name, units, precision, heats, fresh, only, measure=True)
            better = np.ones(len(only), dtype=bool)
            if not always:
                _, old = self.posterior(name, units, precision, (1.0,), now, only, measure=True)
                better = new[:, Fit.OBJECTIVE] > old[:, Fit.OBJECTIVE]
            group = group.put(here[only[better]], found[better])
        setattr(self, side, group)

    def mix(self, side: str, ids: np.ndarray) -> None:
        """Rows (columns) of the intersection that may be something else become mixtures of all that they may be."""
        (name, units), _ = self.views(side)
        group, table = getattr(self, side), self.tables[side]
        model = Model(self.positions(name), self.noise, self.precision(side))
        here, numbers = group[units], np.arange(len(group))[units]
        known = Found(here.mean, here.covariance, table[units])
        block, weight = getattr(self.part, name), self.weights[name]
        mean, covariance, new = with_modes(self.run, block, weight, numbers, ids[units], model, here.scale, known)
        setattr(self, side, group.put(numbers, Group(mean, covariance, here.scale)))
        self.tables[side] = np.concatenate([new, table[len(new) :]])

    def _tempted(self) -> dict[str, np.ndarray]:
        """Rows and columns that reject observations which their prior would allow, or most of those that are not about 0.

        Perhaps they missed something: a row of many zeros agrees with a solution of 0, whatever the rest of it says. Rows
        that were fitted again in vain, and reject no more than then, are left alone until there are more components.
        """
        i, j, y, given = self.fitted_entries()
        fitted = self.centre + self.predicted(i, j)
        residual, local = y - fitted, self.local(i, j, given, fitted)
        is_rejected = self.inlying(residual, local) < 0.5
        tells = self.inlying(np.maximum(np.abs(y), np.abs(fitted)), local) < 0.5
        rejected = np.flatnonzero(is_rejected)
        found = {}
        for side, unit, other, place in (("rows", i, self.cols, j), ("cols", j, self.rows, i)):
            second = other.squares()
            if self.offsets:
                second[:, -1] = 1.0
            room = second @ (1 / self.precision(side))
            tempting = np.zeros(len(y), dtype=bool)
            tempting[rejected] = residual[rejected] ** 2 < _ALLOWED * room[place[rejected]]
            n, known = len(getattr(self, side)), self.tried.get(side)
            found[side] = np.bincount(unit[tempting if known is None else tempting & ~known], minlength=n) > 0
            self.tried[side] = tempting
            found[side] |= np.bincount(unit, tells & is_rejected, n) > _MOSTLY * np.maximum(np.bincount(unit, tells, n), 1)
        return found

    def grow(self, most: int) -> bool:
        """Add components that are left in the residuals, up to `most` in all; whether there were any.

        Weak components shrink to nothing while the noise is still overestimated. Once the strong ones are right, they show.
        """
        room = min(most - len(self.strengths), _MORE)
        if room <= 0:
            return False
        left, right = self._left_over(room)
        if left.shape[1] == 0:
            return False
        self.rows, self.cols = self.rows.widened(left, self.offsets), self.cols.widened(right, self.offsets)
        self.tried.clear()
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
        rate = max(float(self.given_by(inside.sigma, inside.n_obs).sum()), 1e-9) / (m * n)
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

    def fill_offsets(self, least: float = 0.0) -> None:
        """Give to the offsets what the coefficients of a component have in common; predictions stay as they are.

        A component that is the same in all columns is an offset of rows. Sweeps find either, whichever they meet first. Only
        components are asked of which so large a share, on one side at `least`, is common.
        """
        k = len(self.strengths)
        middle = [g.mean[:, :k].mean(axis=0) for g in (self.rows, self.cols)]
        common = [m**2 / np.maximum(g.spread()[:k], self.least) for m, g in zip(middle, (self.rows, self.cols), strict=True)]
        asked = np.maximum(*common) >= least
        if not asked.any():
            return
        middle = [m * asked for m in middle]
        turns = np.eye(k + 1), np.eye(k + 1)
        turns[0][k, :k], turns[1][k, :k] = middle[1], middle[0]
        self.rows, self.cols = self.rows.turned(turns[0]), self.cols.turned(turns[1])
        for group, own in zip((self.rows, self.cols), middle, strict=True):
            group.mean[:, :k] -= own
        self.centre -= float(middle[0] @ middle[1])  # it is in both offsets now

    def has_structure(self) -> bool:
        """Whether the residuals have a component that no rank allowed for, of a size that matters."""
        left, right = self._left_over(1)
        size = float(np.mean(left**2) * np.mean(right**2)) ** 0.5 if left.shape[1] else 0.0
        return size > _MATTERS * float(np.mean((self.centre + self.predicted(*self.sample[:2])) ** 2)) ** 0.5

    def _left_over(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Components that are left in the residuals, at most so many."""
        i, j, y, given = self.fitted_entries()
        fitted = self.centre + self.predicted(i, j)
        residual, nu, local = y - fitted, self.noise.tail, self.local(i, j, given, fitted)
        weight = self.inlying(residual, local) * (nu + 1) / (nu + residual**2 / local) * (given / np.mean(given))
        if self.noise.growth:
            weight = weight / self.noise.by_size(fitted)
        # in units of the noise of each row and column: a few noisy ones would hide what is left in the others
        rows, cols = np.sqrt(self.rows.scale), np.sqrt(self.cols.scale)
        left, right = structure_in((i, j, residual * weight / (rows[i] * cols[j])), self.part.shape, most, self.rng)
        return left * rows[:, None], right * cols[:, None]

    def drop_dead(self) -> None:
        """Drop components of which nothing is left, or which are offsets: they cost time."""
        if self.offsets:
            self.fill_offsets(_COMMON_SHARE)
        self._keep(np.flatnonzero(self.strengths**2 > _DEAD * self.noise.variance))
        self._drop_outliers()

    def _drop_outliers(self) -> None:
        """Drop components that are outliers of a single row or column, unless all others are then far less likely.

        A column that is far louder than the others may have a component nearly alone, which they need all the same.
        """
        suspects = self._of_outliers()
        if not suspects.any() or self.needed == len(suspects):
            return
        i, j, _ = self.sample
        rest = np.ones(len(i), dtype=bool)
        for group, at in ((self.rows, i), (self.cols, j)):
            loud = np.argsort(-np.abs(group.mean[:, : len(suspects)][:, suspects]), axis=0)[: math.ceil(_SINGLE)]
            rest &= ~np.isin(at, loud)
        before, last, likely = self.state(), self.last, self.log_likelihood(*self.left_out())[rest]
        self._keep(np.flatnonzero(~suspects))
        for _ in range(_FORGETTING):
            if math.isnan(self.sweep(1.0)):
                break
        loss = likely - self.log_likelihood(*self.left_out())[rest]
        self.restore(*before)
        self.last = last
        if np.sum(loss) > _NEEDED * len(loss):
            self.needed = len(suspects)
        else:
            self._keep(np.flatnonzero(~suspects))

    def _of_outliers(self) -> np.ndarray:
        """Components that are outliers of a single row or column: these say nothing of any other entry (k,)."""
        k = len(self.strengths)
        found = np.zeros(k, dtype=bool)
        if not self.settings.outliers:
            return found
        squares = [g.mean[:, :k] ** 2 for g in (self.rows, self.cols)]
        many = [np.sum(x, axis=0) ** 2 / np.maximum(np.sum(x**2, axis=0), 1e-300) for x in squares]
        for (n, one), other in zip(((len(squares[0]), many[0]), (len(squares[1]), many[1])), many[::-1], strict=True):
            found |= (other < _SINGLE) & (one < _SPARSE * n)
        return found

    def free_lone(self) -> bool:
        """Fit columns (rows) with a component of their own again, without it, where that is more likely; whether any was.

        What is compared are their observations, as if each had been left out: what is a column's own predicts none of them.
        """
        found = False
        for side, other in (("cols", "rows"), ("rows", "cols")) if self.settings.outliers else ():
            lone = np.flatnonzero(self._told_by_none(side, other) > _LONE)
            if len(lone) == 0:
                continue
            group, across = getattr(self, side), getattr(self, other)
            at = self.part.entries[1 if side == "cols" else 0]
            chosen = np.flatnonzero(np.isin(at, lone) & ~self.is_held)
            i, j, y, given = (x[chosen] for x in (*self.part.entries, self.given))
            before = self.log_likelihood(*self.left_out((i, j, y, given), _NEARLY_OWN))
            scale = group.scale.copy()
            scale[lone] = _NO_WEIGHT
            setattr(self, side, replace(group, scale=scale))
            self._half(other, 1.0)  # what the others say of it, alone
            self._restart(side, np.isin(np.arange(len(group)), lone), always=True)
            residual = y - self.centre - self.predicted(i, j)
            after = self.log_likelihood(residual, self.doubt(i, j) + self.local(i, j, given))
            gain = np.bincount(at[chosen], after - before, minlength=len(group))
            better, new = lone[gain[lone] > _WORTH], getattr(self, side)
            setattr(self, side, group.put(better, new[better]))
            if len(better):
                found = True
            else:
                setattr(self, other, across)
        return found

    def _told_by_none(self, side: str, other: str) -> np.ndarray:
        """Variance of the entries of each column (row), given all other columns, over that of the prior (n,)."""
        group: Group = getattr(self, side)
        x, prior = group.mean.copy(), 1 / self.precision(other)
        if self.offsets:
            x[:, -1] = 1.0
        at = self.part.entries[1 if side == "cols" else 0]
        given = np.bincount(at[~self.is_held], self.given[~self.is_held], minlength=len(group)) / len(getattr(self, other))
        weight = given / (self.noise.variance * group.scale)  # what a typical row has of each column
        covariance = np.linalg.inv((x * weight[:, None]).T @ x + np.diag(1 / prior))
        doubt = np.einsum("nk,nk->n", x @ covariance, x)
        reach = x**2 @ prior  # 0 for columns of zeros
        left = np.maximum(1 - weight * doubt, np.finfo(float).eps)
        return np.where(reach > 0, doubt / (left * np.where(reach > 0, reach, 1.0)), 0.0)

    def drop_unsupported(self, may_drop_offsets: bool) -> None:
        """Drop components, and perhaps the offsets, that entries do not support, as if each had been left out."""
        i, j, _ = self.sample
        residual, variance = self.left_out()
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


def from_prior(precision: np.ndarray, at: Positions, noise: Noise) -> tuple[float, ...]:
    """Temperatures of a fit that begins at the prior: first what the prior allows is no outlier; by halves down to 1."""
    steps = math.ceil(math.log2(max(2 * prior_size(precision, at) / noise.variance**0.5, 4.0)))
    return (*(2.0**k for k in range(min(steps, _MOST_HALVINGS), 0, -1)), 1.0, 1.0)


def prior_size(precision: np.ndarray, at: Positions) -> float:
    """Standard deviation of an entry, without noise, by the prior."""
    squares = to_numpy(at.second)[:, diagonal(len(precision))]
    return float(np.sum(squares.mean(axis=0) / precision)) ** 0.5 if len(at.x) else 0.0


def is_far(mean: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Which units are far from all others: they may sit on outliers that agree (n,)."""
    return np.mean(mean**2 * precision, axis=1) > _FAR
