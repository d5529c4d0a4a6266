"""What rows and columns are, given their observations and a prior: the half-sweep of the noise model, in plain array code.

    y_ij = m + a_i + b_j + u_i . v_j + e_ij

A unit (a column, say) has the unknowns z = (v_j, b_j), or v_j alone without offsets. Its positions (rows, then) have means
and covariances of (u_i, a_i). The noise e is Student's t with a scale for each unit and position, mixed with a few outliers
that may be anything. `posterior` gives mean and covariance of z: normal equations with the second moments of the positions
and a prior, the observations weighted by how well they fit. Symmetric matrices are packed: the lower triangle, row by row.

This is the reference; `numba.posterior_kernel` has the same signature and agrees with it to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from array_api_compat import is_numpy_array

from ..arrays import Array, array_namespace, asarray_on, bring, device_of, gather, inverse, scatter, triangle, unpacking
from ..blocks import Block

# Entries of the matrix for each place that is asked for, up to which a product of matrices gives them faster. At 40 it takes
# as long with 6 coefficients, and 0.3 times as long with 16 and 32; at 8 it takes 0.1 times as long.
# And entries that are in memory at most.
_CELLS, _MOST_CELLS = 40, 4_000_000
LARGEST_EXPONENT = 300.0  # e to this is far beyond all odds, and its products are still finite


class Fit(IntEnum):
    """Columns of the table of `posterior`, which has a row for each unit."""

    N_FIT = 0  # observations with a weight
    INLIERS = 1  # sum of their probabilities of being no outliers
    SQUARES = 2  # weighted squares of their residuals, in units of the noise; this over INLIERS is 1 if its scale is right
    N_INLIERS = 3  # those that are rather no outliers
    RESIDUALS = 4  # sum of their squared residuals, weighted by these probabilities
    OBJECTIVE = 5  # log-likelihood of the unit with its prior: the larger, the better
    N_INFORMATIVE = 6  # inliers that the offsets and the prior alone do not explain


@dataclass(frozen=True)
class Noise:
    """The noise of an observation.

    Attributes
    ----------
    variance : float
        Squared scale.
    tail : float
        Degrees of freedom (nu), an even number: then its density takes a square root and no logarithm.
    share : float
        Share of the outliers.
    span : float
        Outliers are anywhere in an interval of this length.
    constant, growth : float
        How the squared scale depends on the value x: by a factor constant + growth x^2, which is 1 for a typical one. Errors
        of so many per cent, and rounding to so many digits, are larger where values are.
    """

    variance: float
    tail: float
    share: float
    span: float
    constant: float = 1.0
    growth: float = 0.0

    def by_size(self, x: Array) -> Array:
        """The squared scale where the matrix is `x`, over the typical one."""
        return self.constant + self.growth * (x * x)

    @property
    def top(self) -> float:
        """Log of the density at 0 of Student's t with scale 1."""
        nu = self.tail
        return math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi)

    @property
    def odds(self) -> float:
        """Odds of an outlier against an observation without noise, of scale 1."""
        return self.share / (1 - self.share) / self.span / math.exp(self.top)


@dataclass(frozen=True, eq=False)
class Positions:
    """What units are regressed on.

    Attributes
    ----------
    x : float array (length, K)
        Means of u, and a last column of 1 with offsets.
    shift : float array (length,)
        m + a.
    second : float array (length, P)
        Packed second moments of x.
    cross : float array (length, K)
        Covariances of u with a; 0 in the last column.
    covariance : float array (length, P)
        Packed, of (u, a).
    scale : float array (length,)
        Of the squared noise.
    offsets : bool
    """

    x: Array
    shift: Array
    second: Array
    cross: Array
    covariance: Array
    scale: Array
    offsets: bool

    def to(self, like: Array) -> Positions:
        """The same where `like` is."""
        names = ("x", "shift", "second", "cross", "covariance", "scale")
        return replace(self, **{name: bring(getattr(self, name), like) for name in names})


@dataclass(frozen=True, eq=False)
class Model:
    """What is known of all units: the positions they are regressed on, the noise, and the precision of their prior (K,)."""

    at: Positions
    noise: Noise
    precision: Array


def packed_size(k: int) -> int:
    """Numbers of a packed symmetric matrix."""
    return k * (k + 1) // 2


def product_variance(u: Array, v: Array, S: Array, T: Array, offsets: bool) -> Array:
    """Squared standard deviation of ``u . v`` (n,), for means u, v (n, K) with packed covariances S, T (n, P).

    With `offsets` the last number of each is 1, and its variance that of an offset, which is added to that of the other
    side, not multiplied with it.
    """
    xp = array_namespace(u)
    twice, inner = _multiplicities(u, offsets)
    found = xp.sum(T * (twice * products_of(u) + inner * S) + twice * S * products_of(v), axis=1)
    return xp.maximum(found, xp.zeros_like(found))


def product_variances(u: Array, v: Array, S: Array, T: Array, offsets: bool) -> Array:
    """`product_variance` of every row of `u` and S (m, .) with every row of `v` and T (n, .): (m, n), by two products."""
    xp = array_namespace(u)
    twice, inner = _multiplicities(u, offsets)
    found = (twice * products_of(u) + inner * S) @ T.T + (twice * S) @ products_of(v).T
    return xp.maximum(found, xp.zeros_like(found))


def is_all_faster(m: int, n: int, size: int) -> bool:
    """Whether `product_variances` of m and n rows is faster than `product_variance` of so many places."""
    return m * n <= min(_CELLS * size, _MOST_CELLS)


def _multiplicities(u: Array, offsets: bool) -> tuple[Array, Array]:
    """How often each number of a packed matrix stands in it, and 0 for those of the offset (P,), for means `u`."""
    xp, k = array_namespace(u), int(u.shape[1])
    q, p = (asarray_on(x, u) for x in triangle(k))
    twice = xp.astype(xp.where(q == p, xp.ones_like(q), 2 * xp.ones_like(q)), u.dtype)  # below the diagonal
    return twice, twice * xp.astype(q < k - 1, u.dtype) if offsets else twice


def products_of(x: Array) -> Array:
    """Products of the numbers of each row (n, K) with each other, packed (n, P)."""
    n, k = x.shape
    if not is_numpy_array(x):
        xp, (q, p) = array_namespace(x), (asarray_on(side, x) for side in triangle(k))
        return xp.take(x, q, axis=1) * xp.take(x, p, axis=1)
    found, low = np.empty((n, packed_size(k))), 0
    for q in range(k):  # row by row of the triangle: a third of the time of gathering both factors
        np.multiply(x[:, q : q + 1], x[:, : q + 1], out=found[:, low : low + q + 1])
        low += q + 1
    return found


def positions_of(mean: np.ndarray, covariance: np.ndarray, scale: np.ndarray, centre: float, offsets: bool) -> Positions:
    """Rows (columns) with these means (n, K) and packed covariances (n, P), as what columns (rows) are regressed on."""
    n, k = mean.shape
    x, cross = mean.copy(), np.zeros_like(mean)
    shift, inner = np.full(n, centre), packed_size(k)
    if offsets:
        shift += mean[:, -1]
        x[:, -1] = 1.0
        inner = packed_size(k - 1)  # the last row of the triangle is of the offset, here the number 1
        cross[:, :-1] = covariance[:, packed_size(k - 1) : -1]
    second = products_of(x)
    second[:, :inner] += covariance[:, :inner]
    return Positions(x, shift, second, cross, covariance, scale, offsets)


def posterior(
    block: Block,
    weight: Array | None,
    units: np.ndarray,
    model: Model,
    start: tuple[Array, Array, Array],
    temperatures: tuple[float, ...],
    measure: bool = False,
) -> tuple[Array, Array, Array]:
    """Mean and covariance of some units, in as many steps as there are temperatures.

    Parameters
    ----------
    block : Block
    weight : float array (n_obs,) or None
        Precision of each observation relative to the others; 0 leaves it out. None stands for ones.
    units : int64 array (u,)
        Numbers of the units, on the host.
    model : Model
    start : (float array (u, K), float array (u, P), float array (u,))
        Mean, covariance and scale of the squared noise to begin with.
    temperatures : tuple of floats
        Of each step: the scale of the noise is multiplied by it when the weights of the observations are found. High ones
        let in what the start does not yet explain. Without any, the start is measured as it is.
    measure : bool
        Whether the table is of the last mean, with the objective; by default it is of the mean before, at no cost.

    Returns
    -------
    mean : float array (u, K)
    covariance : float array (u, P)
    table : float array (u, len(Fit))
    """
    matrices = laid_out(block, weight, units, model.at.x)
    return posterior_of_matrix(*matrices, model, start, temperatures, measure)


def solve_packed(G: Array, precision: Array, h: Array) -> tuple[Array, Array]:
    """Inverses of packed G (u, P) plus diag(precision), times h (u, K): the products, and the inverses, packed."""
    xp = array_namespace(G)
    k = h.shape[1]
    eye = xp.eye(k, dtype=G.dtype, device=device_of(G))
    full = xp.take(G, asarray_on(np.ravel(unpacking(k)), G), axis=1)
    matrices = xp.reshape(full, (-1, k, k)) + eye * precision
    inverses = inverse(matrices)
    q, p = triangle(k)
    packed = xp.take(xp.reshape(inverses, (-1, k * k)), asarray_on(q * k + p, G), axis=1)
    return (inverses @ h[:, :, None])[:, :, 0], packed


def laid_out(block: Block, weight: Array | None, units: np.ndarray, like: Array) -> tuple[Array, Array]:
    """Values and weights of some units as matrices (u, length), 0 where nothing was observed."""
    xp = array_namespace(like)
    some = block.take_units(units)
    if weight is None:
        given = xp.ones_like(some.value)
    else:
        starts = np.repeat(block.host_indptr[:-1][units] - some.host_indptr[:-1], some.counts)
        given = gather(weight, asarray_on(starts + np.arange(some.n_obs), like))
    place = some.unit_of_entry() * block.length + xp.astype(some.index, xp.int64)
    shape = (len(units), block.length)
    return scatter(place, xp.astype(some.value, like.dtype), shape), scatter(place, xp.astype(given, like.dtype), shape)


def weigh(
    y: Array, given: Array, fitted: Array, doubt: Array, model: Model, scale: Array, heat: float, prior: Array | None = None
) -> tuple[Array, Array]:
    """Weights of observations that are laid out as a matrix (u, length), and the table of its rows.

    Parameters
    ----------
    y, given, fitted, doubt : float arrays (u, length)
        Observations less the shift, their relative precisions (0: there is none), estimates and the variances of these.
    model : Model
    scale : float array (u,)
        Of the squared noise.
    heat : float
        The squared noise is multiplied by it.
    prior : float array (u,), optional
        What the prior takes from the objective; without it there is none.
    """
    xp, noise, nu = array_namespace(y), model.noise, model.noise.tail
    taken = given > 0
    local = noise.variance * scale[:, None] * model.at.scale / xp.where(taken, given, xp.ones_like(given))
    if noise.growth:
        local = local * noise.by_size(fitted + model.at.shift)
    residual = y - fitted
    square = (residual * residual + xp.maximum(doubt, xp.zeros_like(doubt))) / local
    bent = 1 + square / (nu * heat)
    # an odd power of a root, as the compiled kernel has it, by a logarithm: a general power takes several times as long
    power = xp.minimum((0.5 * (nu + 1)) * xp.log(bent), xp.full_like(bent, LARGEST_EXPONENT))
    rare = noise.odds * xp.sqrt(local * heat) * xp.exp(power)
    inlier = xp.where(taken, 1 / (1 + rare), xp.zeros_like(rare))
    rather = xp.astype(inlier > 0.5, y.dtype)
    objective = xp.zeros_like(scale)
    if prior is not None:
        likelihood = math.log1p(-noise.share) + noise.top - 0.5 * xp.log(local) - 0.5 * (nu + 1) * xp.log1p(square / nu)
        likelihood = xp.logaddexp(likelihood, xp.full_like(likelihood, math.log(noise.share / noise.span)))
        objective = xp.sum(xp.where(taken, likelihood, xp.zeros_like(likelihood)), axis=1) - prior
    columns = {
        Fit.N_FIT: xp.sum(xp.astype(taken, y.dtype), axis=1),
        Fit.INLIERS: xp.sum(inlier, axis=1),
        Fit.SQUARES: xp.sum(inlier * square * ((nu + 1) / (nu + square)), axis=1),
        Fit.N_INLIERS: xp.sum(rather, axis=1),
        Fit.RESIDUALS: xp.sum(inlier * residual * residual, axis=1),
        Fit.OBJECTIVE: objective,
        Fit.N_INFORMATIVE: xp.sum(rather * xp.astype(y * y > 4 * local, y.dtype), axis=1),
    }
    return inlier * ((nu + 1) / (nu + square / heat)) / local, xp.stack([columns[column] for column in Fit], axis=1)


@dataclass(frozen=True)
class MatrixSteps:
    """What `posterior_of_matrix` does beside products of matrices: `weigh` and `solve_packed`, or what takes their place."""

    weigh: Callable[..., tuple[Array, Array]] = weigh
    solve: Callable[[Array, Array, Array], tuple[Array, Array]] = solve_packed


PLAIN_STEPS = MatrixSteps()


def posterior_of_matrix(
    values: Array,
    given: Array,
    model: Model,
    start: tuple[Array, Array, Array],
    temperatures: tuple[float, ...],
    measure: bool = False,
    steps: MatrixSteps = PLAIN_STEPS,
) -> tuple[Array, Array, Array]:
    """`posterior` of units that are laid out as rows of a matrix: all sums are products of matrices.

    Where a good part of the entries was observed, this is faster than sums over single observations.
    """
    at, precision = model.at, model.precision
    xp = array_namespace(at.x)
    mean, covariance, scale = start
    q, p = triangle(mean.shape[1])
    double = asarray_on(np.where(q == p, 1.0, 2.0), at.x, at.x.dtype)
    few = mean.shape[0] < at.x.shape[0]  # what there is less of is multiplied
    second, spread = (at.second, at.covariance) if few else (at.second * double, at.covariance * double)
    y = xp.where(given > 0, values - at.shift, xp.zeros_like(values))

    def weighed(heat: float, prior: Array | None = None) -> tuple[Array, Array]:
        tilde = xp.concat([mean[:, :-1], xp.ones_like(mean[:, :1])], axis=1) if at.offsets else mean
        known, products = covariance, products_of(tilde)
        if few:
            known, products = known * double, products * double
        doubt = known @ second.T + products @ spread.T
        return steps.weigh(y, given, mean @ at.x.T, doubt, model, scale, heat, prior)

    for temperature in temperatures:
        w, table = weighed(temperature * temperature)
        mean, covariance = steps.solve(w @ at.second, precision, (w * y) @ at.x - w @ at.cross)
    if measure:
        table = weighed(1.0, 0.5 * xp.sum(mean * mean * precision, axis=1))[1]
    return mean, covariance, table
