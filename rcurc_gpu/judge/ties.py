"""Whether rows and columns are tied together: without that, nobody knows what one group has where it never met another.

Each entry that agrees with the solution ties its row to its column. A direction in which rows and columns can move together
without changing any of these entries is free: the data say nothing about it. Some directions are free always, since the
basis of the coefficients is (the gauge): they change no entry at all and are taken out.

Rows given columns, and columns given rows, are regressions with the matrices G of their normal equations. Together they
have the matrix ((G_r, C), (C^T, G_c)), and the singular values of G_r^-1/2 C G_c^-1/2 say how much of a move of the columns
the rows can follow: 1 in a free direction. 1 less the largest of them is called the gap. It does not depend on units, on
the size of components, or on how often single rows were seen. Measured: 1e-6 and less for two groups that hardly met, 0.14
and more wherever a matrix was recovered, down to 2.7 observations for each unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

from ..backends.arrays import Array, array_namespace, asarray_on, to_numpy
from ..backends.blocks import Block
from ..backends.kernels import Kernels
from ..backends.plain.ties import unpacked
from ..backends.random import Stream, generator

FREE = 0.01  # a gap below this is a direction that the data do not tell
_STEPS = 60  # of Lanczos, at most: the largest value of 60,000 is then known if the next is 3 % smaller
_FEWEST_STEPS, _SAME = 5, 0.2  # steps at least, and the change of the gap in three of them that counts as none
# Logarithm of the growth of a free direction after which it is seen, however little of it there is at the start: of 50 pairs
# of groups that never met, one had less than e^-6 of it (rank 1).
_GROWN = 11.5
_FOUND = 1e-8  # change of the value in three steps after which a free direction is known to many digits
_RIDGE = 1e-10  # over the mean of the diagonal: for rows whose entries do not determine them
_LEAST_TIED = 1e-12  # below this, 1 less a value is rounding


@dataclass(frozen=True, eq=False)
class Ties:
    """How well rows and columns are tied together.

    Attributes
    ----------
    gap : float
        Between 0 (a free direction) and 1.
    rows, cols : float arrays (m, K), (n, K)
        The direction that is tied least: an entry changes by rows_i . x_j + y_i . cols_j.
    noise_rows, noise_cols : float arrays (m, K), (n, K)
        An error as noise of size 1 makes it, of rows and columns that depend on each other, drawn at random: without the
        part of the rows that does not come from the columns. Without a prior, the same as `rows` and `cols`.
    row_skew, col_skew : float arrays (m,), (n,)
        How unevenly the entries of each tell its coefficients, on the host: 1 at best.
    """

    gap: float
    rows: Array
    cols: Array
    noise_rows: Array
    noise_cols: Array
    row_skew: np.ndarray
    col_skew: np.ndarray

    @property
    def free(self) -> bool:
        """Whether the data leave a direction open."""
        return self.gap < FREE


def ties_of(
    block: Block, left: Array, right: Array, kernels: Kernels, seed: int, prior: tuple[Array, Array] | None = None
) -> Ties:
    """Look for a free direction.

    Parameters
    ----------
    block : Block
        Entries that agree with the solution; units are rows.
    left, right : float arrays (m, K), (n, K)
        What columns, and rows, are regressed on: y_i and x_j.
    kernels : Kernels
    seed : int
    prior : two float arrays (K,), optional
        Precisions of the priors of rows and columns, in units of the precision of an entry; none by default.
    """
    xp = array_namespace(right)
    across = block.transpose()
    K, n = int(right.shape[1]), int(right.shape[0])
    packed = kernels.grams(across, left), kernels.grams(block, right)
    if prior is not None:
        q, p = np.tril_indices(K)
        diagonal = asarray_on(np.eye(K)[q] * (q == p)[:, None], right, right.dtype)
        packed = packed[0] + diagonal @ prior[1], packed[1] + diagonal @ prior[0]
    (inverse, col_skew), (inverse_rows, row_skew) = (_inverse(x, K, kernels) for x in packed)
    G = unpacked(packed[0], K)
    gauge = _Gauge(right, G, kernels)

    def followed(b: Array) -> Array:
        """What the rows do when the columns move by b."""
        return kernels.times(inverse_rows, kernels.couple(block, left, right, b))

    start = asarray_on(generator(seed, Stream.TIES).standard_normal((n, K)), right, right.dtype)
    start = kernels.times(xp.linalg.cholesky(inverse), start)  # as noise moves columns, if the rows are known
    vectors: list[Array] = []
    images: list[Array] = []
    alpha: list[float] = []
    beta: list[float] = []
    theta: list[float] = []
    v = gauge.without(gauge.without(start))
    for step in range(_STEPS):
        Gv = kernels.times(G, v)
        size = float(xp.sum(v * Gv)) ** 0.5
        if not size > (1e-10 * max(abs(theta[-1]), 1e-3) if step else 0):
            break
        if step:
            beta.append(size)
        else:
            length = size
        vectors.append(v / size)
        images.append(Gv / size)
        w = gauge.without(kernels.times(inverse, kernels.couple(across, right, left, followed(vectors[-1]))))
        alpha.append(float(xp.sum(images[-1] * w)))
        for _ in range(2):  # twice is enough
            for x, Gx in zip(vectors, images, strict=True):
                w = w - x * xp.sum(Gx * w)
        v = gauge.without(w)
        values, shares = np.linalg.eigh(np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1))
        theta.append(float(values[-1]))
        # with each step a free direction grows by exp(2 (rest / theta)^1/2) over the others, at least
        growth = 2 * step * (max(1 - theta[-1], 0.0) / max(theta[-1], 1e-300)) ** 0.5
        if step >= _FEWEST_STEPS and (growth > _GROWN or theta[-1] > 1 - FREE):
            change, rest = abs(theta[-1] - theta[-4]), max(1 - theta[-1], 0.0)
            if change < _SAME * rest or change < _FOUND:
                break
    if not theta:  # nothing but gauge
        nothing = (xp.zeros_like(left), xp.zeros_like(right))
        return Ties(1.0, *nothing, *nothing, row_skew / K, col_skew / K)

    def combined(weights: np.ndarray) -> tuple[Array, Array]:
        """A direction of the columns, with what the rows do."""
        b = vectors[0] * float(weights[0])
        for x, weight in zip(vectors[1:], weights[1:], strict=False):
            b = b + x * float(weight)
        return -followed(b), b

    gap = 1 - min(max(theta[-1], 0.0), 1.0) ** 0.5
    weakest = combined(shares[:, -1])
    if prior is None:
        return Ties(gap, *weakest, *weakest, row_skew / K, col_skew / K)
    # what Lanczos makes of the start times (1 - M^T M)^-1/2: noise in the columns when the rows are not known
    noise = length * (shares @ (shares[0] / np.sqrt(np.maximum(1 - values, _LEAST_TIED))))
    return Ties(gap, *weakest, *combined(noise), row_skew / K, col_skew / K)


def _inverse(G: Array, k: int, kernels: Kernels) -> tuple[Array, np.ndarray]:
    """Inverses (u, K, K) of packed matrices (u, P), on their range, and traces as if those of the matrices were K (u,)."""
    xp = array_namespace(G)
    diagonal = asarray_on(np.cumsum(np.arange(1, k + 1)) - 1, G)
    size = xp.sum(xp.take(G, diagonal, axis=1), axis=1)[:, None] / k
    size = xp.where(size > 0, size, xp.ones_like(size))
    packed = kernels.inverses(G / size, _RIDGE)
    return unpacked(packed / size, k), to_numpy(xp.sum(xp.take(packed, diagonal, axis=1), axis=1))


class _Gauge:
    """The directions b_j = E^T x_j of the columns, E any K x K matrix: rows follow them wholly, and no entry changes."""

    def __init__(self, right: Array, G: Array, kernels: Kernels) -> None:
        self.right, self.G, self.times = right, G, kernels.times
        k = int(right.shape[1])
        xp = array_namespace(right)
        x = right[:, :, None] * right[:, None, :]
        products = to_numpy(xp.reshape(x, (-1, k * k)).T @ xp.reshape(G, (-1, k * k))).reshape(k, k, k, k)
        gram = products.transpose(0, 2, 1, 3).reshape(k * k, k * k)
        ridge = _RIDGE * float(np.trace(gram)) / (k * k) or 1.0
        self.inverse = asarray_on(_positive_inverse(gram + ridge * np.eye(k * k)), right, right.dtype)

    def without(self, b: Array) -> Array:
        """The rest of a direction (n, K)."""
        xp = array_namespace(b)
        k = int(b.shape[1])
        share = self.inverse @ xp.reshape(self.right.T @ self.times(self.G, b), (-1,))
        return b - self.right @ xp.reshape(share, (k, k))


def _positive_inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverse of a symmetric positive matrix, by its Cholesky factor: a third of the work of any other matrix."""
    factor, failed = dpotrf(matrix, lower=1)
    inverse, failed = (None, failed) if failed else dpotri(factor, lower=1)
    if inverse is None or failed:
        return np.asarray(np.linalg.inv(matrix))
    lower = np.tril(inverse)
    return lower + np.tril(lower, -1).T
