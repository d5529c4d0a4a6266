"""What an outlier is: an observation that is more likely anything than the recovered value with noise.

Noise is Student's t with a local scale, as `backends.plain.posterior` has it: that of the noise model by row and column, and
how sure the entry is. Errors may depend on the size of the value in other ways than the noise model knows: rounding to some
digits jumps, and data without noise have no such model. So the residuals of a sample of the observations say how large the
noise is, over that of the model, where recovered values have which size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, gather, quantile_abs, take_rows, to_numpy
from ..backends.plain.posterior import Noise
from ..errors import check_number
from ..noise.model import outlier_threshold
from ..noise.precision import SigmaScale
from ..noise.sweeps import POOL
from ..samples.view import Samples
from .matrix import LowRankMatrix
from .noise_by_size import NoiseBySize, noise_by_size

_SAMPLE = 1 << 17  # observations of R, and of C, from which the sizes of the noise are taken
_WIDE = 30.0  # residuals in units of the noise, beyond which they are outliers whatever their size
# The same without a noise model, over the threshold. Rounding to six digits has errors of 20 times the threshold.
_BEYOND = 1000.0
_OF_SPAN = 0.05  # and over the range of the data, where the threshold is large
_LEAST_FACTOR = 0.01  # of the noise of the smallest values over the typical one
_TAIL = 30.0  # degrees of freedom without a noise model: rounding has no tails
_TAILS = (4.0, 6.0, 10.0, 30.0)  # degrees of freedom to choose from with one
_MOST_LOG = 700.0  # of the odds: what exp takes
# Range of the data over the threshold, at most. One entry may be beyond all others, and `outlier_threshold` halves the range
# 60 times, which leaves six digits; the odds know it by its logarithm only.
_MOST_SPAN = 1e12


class Judged(NamedTuple):
    """Outliers among some observations.

    Attributes
    ----------
    which : int64 array (k,)
        Their numbers.
    score, probability : float64 arrays (k,)
        Size of the residual in units of the local noise, and probability of being an outlier.
    """

    which: Array
    score: Array
    probability: Array


@dataclass(frozen=True, eq=False)
class OutlierRule:
    """When an observation is an outlier.

    Attributes
    ----------
    cur : LowRankMatrix
    noise : Noise
        In units of `unit`.
    sizes : NoiseBySize
    least : float
        Smaller residuals are no outliers, whatever the noise.
    unit : float
        A power of two in which squares of residuals neither overflow nor vanish; everything else but `noise` is in the unit
        of the data.
    probability : float in [0, 1]
        From which on an observation is an outlier.
    sigma : float or None
        What the samples say of an observation with this noise, if they say how large the noise of each is.
    """

    cur: LowRankMatrix
    noise: Noise
    sizes: NoiseBySize
    least: float
    unit: float
    probability: float = 0.5
    sigma: float | None = None

    def with_limits(self, probability: float, least: float) -> OutlierRule:
        """The same for another probability, and a least size of the residuals."""
        probability = check_number("probability", probability, 0, 1)
        return replace(self, probability=probability, least=max(self.least, check_number("least", least)))

    def coarseness(self, sigma: Array | None) -> Array | float:
        """The noise of observations with this `sigma`, over the noise of the rule, float64 (k,); 1 if nothing is known."""
        if sigma is None or self.sigma is None:
            return 1.0
        xp = array_namespace(sigma)
        return xp.astype(sigma, xp.float64) / self.sigma

    def smallest(self, coarse: Array | float = 1.0) -> float:
        """Smaller residuals are no outliers anywhere, among observations with noise that is so many times as large."""
        if self.probability < 0.5:
            return self.least
        finest = coarse if isinstance(coarse, float) else float(array_namespace(coarse).min(coarse))
        square = self.noise.variance * self.noise.constant * (finest * float(self.sizes.factors.min())) ** 2
        known = self.cur.uncertainty
        if known is not None:
            square *= float(np.prod([to_numpy(x).min() for x in (known.left_scale, known.right_scale)], dtype=np.float64))
        return max(self.least, (1 - 1e-6) * self.unit * outlier_threshold(replace(self.noise, variance=square)))

    def judged(self, fitted: Array, residual: Array, i: Array, j: Array, coarse: Array | float = 1.0) -> Judged:
        """Which of some observations are outliers.

        Parameters
        ----------
        fitted, residual : float arrays (k,)
        i, j : int64 arrays (k,)
            Rows and columns.
        coarse : float array (k,) or float
            As `coarseness` gives it.
        """
        xp = array_namespace(residual)
        size = xp.abs(xp.astype(residual, xp.float64))
        enough, size = size >= self.least, size / self.unit
        local = self.local(fitted, i, j) * coarse
        (which,) = xp.nonzero((outlier_probability(self.noise, size, local) >= self.probability) & enough)
        if self.cur.uncertainty is None:
            size, local = gather(size, which), gather(local, which)
            return Judged(which, size / local, outlier_probability(self.noise, size, local))
        # the doubt about an entry takes the most time, and makes outliers less likely: only these are asked
        doubt = self.cur.relative_variances(gather(i, which), gather(j, which))[0]
        local = xp.sqrt(gather(local, which) ** 2 + xp.astype(doubt, xp.float64))
        size = gather(size, which)
        probability = outlier_probability(self.noise, size, local)
        (kept,) = xp.nonzero(probability >= self.probability)
        return Judged(gather(which, kept), gather(size / local, kept), gather(probability, kept))

    def local(self, fitted: Array, i: Array, j: Array) -> Array:
        """Scale of the noise of typical observations, without the doubt about the entry, in units of `unit` (k,)."""
        xp = array_namespace(fitted)
        scale = self.noise.variance**0.5 * self.sizes.at(fitted)
        known = self.cur.uncertainty
        if known is None:
            return scale
        if self.noise.growth:
            scale = scale * xp.sqrt(self.noise.by_size(xp.astype(fitted, xp.float64) / self.unit))
        there = (gather(x, at) for x, at in ((known.left_scale, i), (known.right_scale, j)))
        rows, cols = (xp.astype(x, xp.float64) for x in there)
        return scale * xp.sqrt(rows * cols)


def rounding_of(Y: Any, values: Array, like: Array) -> float:
    """Differences that rounding makes in the `values` (n,) of `Y`, if that is of a lower precision than `like`; else 0.

    Rounding is at most half of eps times the value. Inliers are seldom 30 times the median, so 16 eps times the median is
    more than any of them was rounded by.
    """
    given = getattr(Y, "dtype", None)
    try:
        bits = np.finfo(str(given).rpartition(".")[2]).bits
    except (TypeError, ValueError):  # integers, and what has no dtype, are exact
        return 0.0
    xp = array_namespace(values)
    known = values[xp.isfinite(values)]
    if bits >= xp.finfo(like.dtype).bits or known.shape[0] == 0:
        return 0.0
    return 16 * float(np.finfo(f"float{bits}").eps) * float(quantile_abs(known))


def outlier_probability(noise: Noise, size: Array, scale: Array) -> Array:
    """Probability of being an outlier, of residuals of some sizes where the noise has this scale, float64 arrays (k,)."""
    xp = array_namespace(size)
    nu = noise.tail
    log = math.log(noise.odds) + xp.log(scale) + 0.5 * (nu + 1) * xp.log1p((size / scale) ** 2 / nu)
    return 1 / (1 + xp.exp(-xp.clip(log, -_MOST_LOG, _MOST_LOG)))


def rule_of(samples: Samples, cur: LowRankMatrix, threshold: float, noisy: bool) -> OutlierRule:
    """The rule of a result: by its noise model, or by its threshold where there is none (or none was kept).

    What `samples` say of the noise of each observation counts only if there is noise (`noisy`).
    """
    told = SigmaScale.of(to_numpy(samples.intersection.block.sigma)) if noisy and samples.has_sigma else None
    sigma = None if told is None else told.typical
    return replace(rule_from(_seen(samples, cur, sigma), cur, threshold), sigma=sigma)


def rule_from(seen: Seen, cur: LowRankMatrix, threshold: float) -> OutlierRule:
    """The same, from a sample of the observations."""
    known = cur.uncertainty
    if known is not None:
        unit = abs(known.unit)  # as the solver chose it, or its user's multiple of that
        noise, size = replace(known.noise, variance=known.noise.variance * known.factor**2), np.abs(seen.residual) / unit
        local = noise.variance * noise.by_size(seen.fitted / unit)
        scale = np.sqrt(local * seen.row_scale * seen.column_scale) * seen.coarse
        sizes = noise_by_size(np.abs(seen.fitted), size / scale, _WIDE, noise.tail, _LEAST_FACTOR, POOL)
        return OutlierRule(cur, _with_tail(noise, size / (scale * sizes.at(seen.fitted))), sizes, 0.0, unit)
    return _by_threshold(seen, cur, threshold)


class Entries(NamedTuple):
    """Observations, on the host (k,): numbers of rows and columns, values, and the noise that was told of each (1: none)."""

    i: np.ndarray
    j: np.ndarray
    value: np.ndarray
    sigma: np.ndarray


def outliers_among(
    entries: Entries, matrix: LowRankMatrix, threshold: float, n_for_rule: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recovered values and residuals of some observations, and which of these are outliers, by a rule made of themselves.

    Parameters
    ----------
    entries : Entries
    matrix : LowRankMatrix
        On the host.
    threshold : float
        As in `rule_of`.
    n_for_rule : int, optional
        About how many of the observations make the rule; all by default.
    """
    i, j, value, sigma = entries
    left, right, known = matrix.left, matrix.right, matrix.uncertainty
    fitted = np.einsum("nk,nk->n", left[i], right[j]).astype(np.float64)
    residual = value.astype(np.float64) - fitted
    is_outlier = np.zeros(len(i), dtype=bool)
    if len(i) == 0:
        return fitted, residual, is_outlier
    coarse = sigma.astype(np.float64) / known.sigma if known is not None and known.sigma is not None else np.ones(len(i))
    scales = [np.ones(len(i))] * 2
    if known is not None:
        scales = [known.left_scale[i].astype(np.float64), known.right_scale[j].astype(np.float64)]
    some = slice(None, None, 1 if n_for_rule is None else max(len(i) // n_for_rule, 1))
    rule = rule_from(Seen(*(x[some] for x in (fitted, residual, *scales, coarse))), matrix, threshold)
    (may,) = np.nonzero(np.abs(residual) >= rule.smallest(coarse))
    is_outlier[may[rule.judged(fitted[may], residual[may], i[may], j[may], coarse[may]).which]] = True
    return fitted, residual, is_outlier


def _with_tail(noise: Noise, score: np.ndarray) -> Noise:
    """The noise with the tail that makes residuals (over its local scale) most likely.

    Noise that depends on the size of the value looks heavier than it is to a model that does not know that.
    """

    def likelihood(n: Noise) -> float:
        inside = math.log1p(-n.share) + n.top - 0.5 * (n.tail + 1) * np.log1p(score**2 / n.tail)
        return float(np.sum(np.logaddexp(inside, math.log(n.share / n.span * noise.variance**0.5))))

    return max((replace(noise, tail=tail) for tail in _TAILS if tail >= noise.tail), key=likelihood, default=noise)


def _by_threshold(seen: Seen, cur: LowRankMatrix, threshold: float) -> OutlierRule:
    """Outliers are residuals above the threshold; where residuals of most values of that size are larger, above those."""
    smallest = max(threshold, float(np.finfo(np.float64).tiny))
    unit = math.ldexp(1.0, math.frexp(smallest)[1])
    threshold, residual = smallest / unit, seen.residual / unit
    value = seen.fitted / unit + residual
    span = 2 * float(value.max() - value.min()) if len(value) else 0.0
    span = min(max(span, 10 * threshold), _MOST_SPAN)
    noise, size = Noise((threshold / 8) ** 2, _TAIL, 0.1, span), np.abs(residual) / seen.coarse
    wide = min(_BEYOND * threshold, max(_OF_SPAN * span, threshold))
    for _ in range(3):  # the share of the outliers and the scale at which the threshold is the limit depend on each other
        sigma = noise.variance**0.5
        sizes = noise_by_size(np.abs(seen.fitted), size / sigma, wide / sigma, noise.tail, 1.0, 0.0)
        local = sigma * sizes.at(seen.fitted)
        share = float(np.mean(size >= local * (threshold / sigma))) if len(size) else 0.0
        noise = replace(noise, share=min(max(share, 1e-4), 0.5))
        noise = replace(noise, variance=(sigma * threshold / outlier_threshold(noise)) ** 2)
    sigma = noise.variance**0.5
    sizes = noise_by_size(np.abs(seen.fitted), size / sigma, wide / sigma, noise.tail, 1.0, 0.0)
    return OutlierRule(cur, noise, sizes, unit * threshold * float(seen.coarse.min(initial=1.0)), unit)


class Seen(NamedTuple):
    """Some observations, on the host (k,): recovered values, residuals, scales of the squared noise of rows and columns, and
    how many times the noise of a typical one the noise of each is."""

    fitted: np.ndarray
    residual: np.ndarray
    row_scale: np.ndarray
    column_scale: np.ndarray
    coarse: np.ndarray


def _seen(samples: Samples, cur: LowRankMatrix, sigma: float | None) -> Seen:
    """A sample of the observations, evenly from the first blocks of each side; undetermined entries are left out."""
    parts: list[Any] = []
    known = cur.uncertainty
    for side, chosen in (("r", samples.rows), ("c", samples.cols)):
        missing = _SAMPLE
        for first, block in samples.blocks(side):
            entry = np.arange(0, block.n_obs, max(block.n_obs // missing, 1))
            unit = first + np.searchsorted(to_numpy(block.indptr), entry, side="right") - 1
            there = asarray_on(entry, block.value)
            index = chosen[to_numpy(gather(block.index, there))]
            i, j = (index, unit) if side == "r" else (unit, index)
            rows, cols = asarray_on(i, cur.left), asarray_on(j, cur.left)
            factors = (take_rows(x, at) for x, at in ((cur.left, rows), (cur.right, cols)))
            left, right = (np.asarray(to_numpy(x), dtype=np.float64) for x in factors)
            fitted = np.einsum("nk,nk->n", left, right)
            scales = [np.ones(len(i))] * 2
            if known is not None:
                there_too = ((known.left_scale, rows), (known.right_scale, cols))
                scales = [np.asarray(to_numpy(gather(x, at)), dtype=np.float64) for x, at in there_too]
            value = np.asarray(to_numpy(gather(block.value, there)), dtype=np.float64)
            coarse = np.ones(len(i))
            if sigma is not None:
                coarse = np.asarray(to_numpy(gather(block.sigma, there)), dtype=np.float64) / sigma
            ok = np.isfinite(fitted)
            parts.append([x[ok] for x in (fitted, value - fitted, *scales, coarse)])
            missing -= len(entry)
            if missing <= 0:
                break
    return Seen(*(np.concatenate(column) for column in zip(*parts, strict=True)))
