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

from ..backends.arrays import Array, array_namespace, asarray_on, to_numpy, unpacking
from ..backends.blocks import Block
from ..backends.kernels import Kernels
from ..backends.plain.ties import Lanczos, TieProblem, unpacked
from ..backends.random import Stream, generator

FREE = 0.01  # a gap below this is a direction that the data do not tell
# Relative error that a weak tie may make of what is left in the residuals, which it makes larger by 1 over the gap at most:
# a tenth of the accuracy of exact results.
TIED_TO = 1e-3
_STEPS = 60  # of Lanczos, at most: the largest value of 60,000 is then known if the next is 3 % smaller
# Where there is hardly a gap it may as well be none, and nears 0 slowly: from 1e-3 after 60 steps to 1e-8, groups with a
# bridge of fewer rows than the rank.
_MOST_STEPS, _SAME_WEAK = 300, 0.01
_FEW_NUMBERS = 1 << 16  # of a vector, up to which so many are kept: two of each step, 300 MB. Only weak gaps need them
_FEWEST_STEPS, _SAME = 5, 0.2  # steps at least, and the change of the gap in three of them that counts as none
# Logarithm of the growth of a free direction after which it is seen, however little of it there is at the start: of 50 pairs
# of groups that never met, one had less than e^-6 of it (rank 1).
_GROWN = 11.5
_FOUND = 1e-8  # change of the value in three steps after which a free direction is known to many digits
# Size of the draw in the weakest direction, at least. Where most of the error is in this one, it is a normal number, and
# twice the expected error holds it in 99 % of the cases only if this much is expected.
_UNLUCKY = 1.3
_FIXED = 1e4  # precision of a prior, over that of the observations of a row, from which a coefficient is as it is
_RIDGE = 1e-10  # over the mean of the diagonal: for rows whose entries do not determine them
# Size of a matrix up to which its work does not matter. `dpotri` wakes the threads of SciPy's BLAS, which spin for 15 ms
# after it, while the cores are wanted for better.
_SMALL = 100
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
        # of no use beyond this, and in the way of all others: an offset that is 0 for sure has 1e26
        limits = [_FIXED * float(xp.max(xp.mean(x @ diagonal, axis=0))) for x in packed]
        on_cols, on_rows = (
            asarray_on(np.minimum(np.asarray(to_numpy(x)), y), right, right.dtype)
            for x, y in zip(prior[::-1], limits, strict=True)
        )
        packed = packed[0] + diagonal @ on_cols, packed[1] + diagonal @ on_rows
    G = unpacked(packed[0], K)
    normal = asarray_on(generator(seed, Stream.TIES).standard_normal((n, K)), right, right.dtype)
    problem = TieProblem(block, across, left, right, packed, G, _gauge(right, packed[0]), normal, _RIDGE)
    for most in (_STEPS, _MOST_STEPS) if n * K <= _FEW_NUMBERS else (_STEPS,):
        lanczos = kernels.lanczos(problem, most, kernels)
        alpha, beta, theta, length, settled = _followed(lanczos, most)
        if settled or theta[-1] < 1 - FREE:
            break
    skews = (lanczos.row_skew / K, lanczos.col_skew / K)
    if not theta:  # nothing but gauge
        nothing = (xp.zeros_like(left), xp.zeros_like(right))
        return Ties(1.0, *nothing, *nothing, *skews)

    values, shares = _ritz(alpha, beta)
    gap = 1 - min(max(theta[-1], 0.0), 1.0) ** 0.5
    weakest = lanczos.combined(shares[:, -1])
    if prior is None:
        return Ties(gap, *weakest, *weakest, *skews)
    # what Lanczos makes of the start times (1 - M^T M)^-1/2: noise in the columns when the rows are not known
    drawn = length * shares[0]  # about normal numbers of standard deviation 1
    drawn[-1] = np.copysign(max(abs(drawn[-1]), _UNLUCKY), drawn[-1])
    noise = shares @ (drawn / np.sqrt(np.maximum(1 - values, _LEAST_TIED)))
    return Ties(gap, *weakest, *lanczos.combined(noise), *skews)


def _followed(lanczos: Lanczos, most: int) -> tuple[list[float], list[float], list[float], float, bool]:
    """Steps until the largest value is known, at most `most`: alpha, beta, values, length of the start, whether it is."""
    alpha: list[float] = []
    beta: list[float] = []
    theta: list[float] = []
    length = 0.0
    for step in range(most):
        size = lanczos.size()
        if not size > (1e-10 * max(abs(theta[-1]), 1e-3) if step else 0):
            return alpha, beta, theta, length, True
        if step:
            beta.append(size)
        else:
            length = size
        alpha.append(lanczos.step())
        theta.append(float(_ritz(alpha, beta)[0][-1]))
        # with each step a free direction grows by exp(2 (rest / theta)^1/2) over the others, at least
        growth = 2 * step * (max(1 - theta[-1], 0.0) / max(theta[-1], 1e-300)) ** 0.5
        if step >= _FEWEST_STEPS and (growth > _GROWN or theta[-1] > 1 - FREE):
            change, rest = abs(theta[-1] - theta[-4]), max(1 - theta[-1], 0.0)
            if change < (_SAME if theta[-1] < 1 - FREE else _SAME_WEAK) * rest or change < _FOUND:
                return alpha, beta, theta, length, True
        if step >= _STEPS and theta[-1] < 1 - FREE:
            break
    return alpha, beta, theta, length, False


def _ritz(alpha: list[float], beta: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of the tridiagonal matrix of Lanczos's method."""
    beta = beta[: len(alpha) - 1]
    values, shares = np.linalg.eigh(np.diag(alpha) + np.diag(beta, 1) + np.diag(beta, -1))
    return values, shares


def _gauge(right: Array, packed: Array) -> Array:
    """The inverse (K K, K K) of the Gram matrix of the gauge: rows follow its directions wholly, and no entry changes."""
    k = int(right.shape[1])
    xp = array_namespace(right)
    # x_j x_j^T and G_j are symmetric: a quarter of their products is enough
    q, p = (asarray_on(side, right) for side in np.tril_indices(k))
    products = to_numpy((xp.take(right, q, axis=1) * xp.take(right, p, axis=1)).T @ packed)
    place = unpacking(k)
    gram = products[place[:, None, :, None], place[None, :, None, :]].reshape(k * k, k * k)
    ridge = _RIDGE * float(np.trace(gram)) / (k * k) or 1.0
    return asarray_on(_positive_inverse(gram + ridge * np.eye(k * k)), right, right.dtype)


def _positive_inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverse of a symmetric positive matrix, by its Cholesky factor: a third of the work of any other matrix."""
    if len(matrix) <= _SMALL:
        return np.asarray(np.linalg.inv(matrix))
    factor, failed = dpotrf(matrix, lower=1)
    inverse, failed = (None, failed) if failed else dpotri(factor, lower=1)
    if inverse is None or failed:
        return np.asarray(np.linalg.inv(matrix))
    whole = inverse + inverse.T  # LAPACK leaves zeros above the diagonal
    np.fill_diagonal(whole, np.diagonal(inverse))
    return np.asarray(whole)
