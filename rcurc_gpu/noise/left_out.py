"""What entries that a fit did not see say of it: the shape of the noise, and how far predictions can be trusted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ..backends.plain.posterior import Noise
from ..backends.random import Stream, generator
from .model import Confirmation
from .sweeps import Sweeps

# Squared noise that grows with the value over that which is the same everywhere, at a typical value: what is chosen from.
# The first two are tried first: if neither is likelier than no growth, none is.
_GROWTHS = (0.25, 4.0, 0.0625, 1.0, 16.0, 64.0, 256.0)
_FIRST_GROWTHS = 2
# Log-likelihood that each entry has to gain by it, and all of them together: 0.006 to 0.18 with errors of 2 or 10 %. Where
# less is to be gained, predictions stay the same.
_WORTH_EACH, _WORTH_GROWTH = 0.005, 6.0
# Noise over the size of large values, at most: with more, values of the wrong sign would be noise.
_MOST_GROWTH = 0.5
# Squared residuals of held-out entries over those without such noise, from which it was a mistake. It is 0.92 to 1 where
# errors grow, give or take 0.03 for a thousand entries, and 1.06 to 1.24 on air quality.
_WORSE = 1.03
_FEW_HELD = 0.05  # share of the entries that are held out to see whether it was a mistake, at least
_CAPPED = 16.0  # squared residual over its expected square, beyond which it counts as that
_FORGETTING = 4  # sweeps after which entries that are held out are forgotten: factors are 1 to 2 % below those after 12
_ENOUGH_HELD, _MOST_HELD = 1000, 0.1  # entries that are held out to judge a fit, if there are any, and the share at most
SHRINKING = 0.5  # residuals over predicted ones below which there is no noise, and the model of it still shrinks
# Share of the observations with a value from which it is one of a few, and share of the observations that have such values.
_COMMON, _NEARLY_ALL = 0.01, 0.9
# Classes of entries by size, those that the classes are made of, and squared standard errors of a mean that are chance.
_SIZES, _ANYWHERE, _BY_CHANCE = 10, 20_000, 4.0


class LeftOut(Sweeps):
    """Sweeps, and what entries say that were left out of them or count as if they had been."""

    def choose_tail(self) -> None:
        """Degrees of freedom of the noise, by how likely entries of the sample are as if each had been left out."""
        residual, variance = self.left_out()
        noises = [replace(self.noise, tail=tail) for tail in self.tails]
        # the scale that belongs to other tails: the same median
        scores = [float(np.sum(self.log_likelihood(residual, variance, noise))) for noise in noises]
        self.noise = noises[int(np.argmax(scores))]

    def choose_growth(self) -> bool:
        """How the noise depends on the size of the value, by how likely entries are as if each had been left out.

        Whether that is not what it was. Where the user says how large the noise of each observation is, it is left at that.
        """
        if not self.by_size or self.sigma is not None:
            return False
        i, j, _ = self.sample
        residual, variance = self.left_out()
        local = self.local(i, j, self.given[self.sample_at])
        size = np.abs(self.centre + self.predicted(i, j))
        inlier, now, nu = self.inlying(residual, variance), self.noise.by_size(size), self.noise.tail
        n = max(float(np.sum(inlier)), 1e-300)
        typical = max(float(np.sum(inlier * size**2)) / n, self.least)

        def tried(growth: float) -> tuple[float, Noise]:
            """Log-likelihood of the sample with such noise, of the scale that fits it, and this noise."""
            noise = replace(self.noise, constant=1 / (1 + growth), growth=growth / (1 + growth) / typical)
            own = local * noise.by_size(size) / now
            score = residual**2 / (variance - local + own)
            ratio = float(np.sum(inlier * score * ((nu + 1) / (nu + score)))) / n
            noise = replace(noise, variance=max(ratio * self.noise.variance, self.least_noise))
            return float(np.sum(self.log_likelihood(residual, variance - local + ratio * own, noise))), noise

        none, found = tried(0.0), [tried(growth) for growth in _GROWTHS[:_FIRST_GROWTHS]]
        if max(likelihood for likelihood, _ in found) > none[0]:
            found += [tried(growth) for growth in _GROWTHS[_FIRST_GROWTHS:]]
        found = [(likelihood, noise) for likelihood, noise in found if noise.variance * noise.growth < _MOST_GROWTH**2]
        found.append((none[0] + max(_WORTH_GROWTH, _WORTH_EACH * len(size)), none[1]))
        chosen = max(found, key=lambda x: x[0])[1]
        if chosen.constant == self.noise.constant:
            return False
        if not self.noise.growth and self._is_mistaken(chosen):
            self.by_size = False
            return False
        self.noise = chosen
        return True

    def _is_mistaken(self, noise: Noise) -> bool:
        """Whether held-out entries are off by more with noise that grows with the value than without.

        What a model lacks is larger where values are, too. To take it for noise gives small values more weight, and large
        ones are missed: the error of air quality was 2 to 9 % larger.
        """
        before, last = self.state(), self.last
        self.hold_out(min(max(_ENOUGH_HELD / len(self.is_held), _FEW_HELD), _MOST_HELD), 0)
        i, j, y, given = (x[self.is_held] for x in (*self.part.entries, self.given))
        squares = []
        for tried in (self.noise, noise):
            self.restore(*before)
            self.noise = tried
            for _ in range(_FORGETTING):
                if math.isnan(self.sweep(1.0)):
                    break
            squares.append((y - self.centre - self.predicted(i, j)) ** 2)
        most = _CAPPED * (self.doubt(i, j) + self.local(i, j, given))
        self.hold_out(0.0)
        self.restore(*before)
        self.last = last
        near = np.minimum(*squares) < most  # others are outliers for both
        old, new = (float(np.sum(np.minimum(x, most)[near])) for x in squares)
        return new > _WORSE * old

    def left_out_square(self) -> float:
        """Mean squared residual of entries of the sample that are no outliers, as if each had been left out."""
        residual, variance = self.left_out()
        inlier = self.inlying(residual, variance)
        return float(np.sum(inlier * residual**2) / max(float(np.sum(inlier)), 1e-300))

    def confirm(self) -> Confirmation | None:
        """What held-out entries say of a fit without them; the fit of all entries is left as it is.

        It begins where everything was fitted and forgets what is held out in a few sweeps. So which entries are held out
        decides how a fit is judged, and not which fit it is.
        """
        if self.settings.holdout == 0:
            return None
        residual, variance = self.left_out()
        inlier = self.inlying(residual, variance)
        squares, bias = self._expected_and_found(residual, variance, inlier), self._bias(residual, inlier)
        told = Confirmation(0, 1.0, 0.0, 0.0, 0.0, 0.0)
        kept = self.state()
        self.hold_out(max(self.settings.holdout, min(_ENOUGH_HELD / len(self.is_held), _MOST_HELD)))
        if self.is_held.any() and not self.is_held.all():
            for _ in range(_FORGETTING):
                if math.isnan(self.sweep(1.0)):
                    break
            told = self._told(squares, bias)
        self.hold_out(0.0)
        self.restore(*kept)
        return told

    def _told(self, squares: tuple[float, float, float], bias: float) -> Confirmation:
        """What held-out entries say; of those that were fitted the squares of `_expected_and_found`, and their bias."""
        i, j, y, given = (x[self.is_held] for x in (*self.part.entries, self.given))
        x = self.centre + self.predicted(i, j)
        residual, variance = y - x, self.doubt(i, j) + self.local(i, j, given)
        inlier = self.inlying(residual, variance)
        sizes = np.abs(residual) / np.sqrt(variance)
        factor = self._factor(sizes, inlier)
        if factor > SHRINKING:
            factor = self._factor(sizes, _filled(sizes, inlier, (1 - self.noise.share) * len(y)))
        mistaken = float(np.mean((1 - inlier) * residual**2)) ** 0.5 if self._values_are_few() else 0.0
        inlier = inlier * given  # what coarse instruments say of the errors is their noise
        offsets = y - self.centre - (self.rows.mean[i, -1] + self.cols.mean[j, -1] if self.offsets else 0.0)
        total = max(float(inlier.sum()), 1e-300)
        doubt, noise, found = squares
        return Confirmation(
            len(y),
            factor,
            float(np.sum(inlier * residual**2) / total) ** 0.5,
            float(np.sum(inlier * offsets**2) / total) ** 0.5,
            float(np.sum(inlier * x**2) / total) ** 0.5,
            float(np.mean(self.log_likelihood(residual, variance))),
            (found / max(max(factor, 1.0) ** 2 * doubt + noise, 1e-300)) ** 0.5,
            mistaken,
            bias,
        )

    def _factor(self, sizes: np.ndarray, right: np.ndarray) -> float:
        """By which predicted standard deviations are right for nine of ten entries, of those that are `right`."""
        level = min(0.9 * (1 + 1 / max(float(right.sum()), 1.0)), 1.0)  # the next one may be larger than all of them
        return _weighted_quantile(sizes, right, level) / _quantile_of_t(0.9, self.noise.tail)

    def _values_are_few(self) -> bool:
        """Whether nearly all observations have a value that many others have too."""
        counts = np.unique(self.sample[2], return_counts=True)[1]
        n = len(self.sample[2])
        return bool(counts[counts >= _COMMON * n].sum() > _NEARLY_ALL * n)

    def _expected_and_found(
        self, residual: np.ndarray, variance: np.ndarray, inlier: np.ndarray
    ) -> tuple[float, float, float]:
        """Squares of residuals as if each entry had been left out: to expect from doubt and from noise, and those found."""
        i, j, _ = self.sample
        local, nu = self.local(i, j, self.given[self.sample_at]), self.noise.tail
        squares = variance - local, local * (nu / (nu - 2)), residual**2
        doubt, noise, found = (float(np.sum(inlier * x)) for x in squares)
        return doubt, noise, found

    def _bias(self, residual: np.ndarray, inlier: np.ndarray) -> float:
        """What residuals have in common by the size of the entry, as if each had been left out, over all entries.

        An entry that is missing because its noise made it large leaves smaller ones behind: the fit follows them, and no
        standard deviation knows of it. What all have in common is left out: it is where the middle of skew noise lies.
        """
        i, j, _ = self.sample
        rng = generator(0, Stream.NOISE_SAMPLE, 1)
        anywhere = (rng.integers(0, n, _ANYWHERE) for n in self.part.shape)
        edges = np.quantile(self.predicted(*anywhere), np.linspace(0, 1, _SIZES + 1)[1:-1])
        size = np.searchsorted(edges, self.predicted(i, j))
        n, total, square = (np.bincount(size, x, _SIZES) for x in (inlier, inlier * residual, inlier * residual**2))
        middle = total.sum() / max(n.sum(), 1e-300)
        told = n > 1
        n, total, square = n[told], total[told], square[told]
        off = np.maximum((total / n - middle) ** 2 - _BY_CHANCE * square / n**2, 0.0)
        return float(np.mean(off)) ** 0.5 if told.any() else 0.0


def _filled(sizes: np.ndarray, inlier: np.ndarray, n: float) -> np.ndarray:
    """Probabilities of being no outlier that add up to `n` at least: the smallest that seem to be outliers are none.

    Entries that are held out have as many outliers as the others. What looks like more are entries that are badly predicted.
    """
    order = np.argsort(sizes)
    room = 1 - inlier[order]
    missing = max(n - float(inlier.sum()), 0.0) - (np.cumsum(room) - room)
    filled = inlier.copy()
    filled[order] += np.clip(missing, 0.0, room)
    return filled


def _weighted_quantile(x: np.ndarray, weight: np.ndarray, level: float) -> float:
    order = np.argsort(x)
    total = np.cumsum(weight[order])
    return float(x[order][min(int(np.searchsorted(total, level * total[-1])), len(x) - 1)])


def _quantile_of_t(level: float, tail: float) -> float:
    """A quantile of the size of a number with Student's t distribution."""
    from scipy.special import stdtrit

    return float(stdtrit(tail, 0.5 + 0.5 * level))
