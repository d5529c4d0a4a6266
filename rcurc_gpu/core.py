"""The core: robust rank-r completion of the intersection I x J.

U_k = W diag(s) V^T evolves on the intersection alone: threshold the residual, step, truncate. The rest of R and C is not
needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .backend import Array, array_namespace, asarray_on, device_of, gather, quantile_abs, take_rows, to_numpy
from .grid import Grid, make_grid
from .hashing import uniform_at
from .operators import random_start, sketch_width, subspace_svd
from .samples import CrossSamples

log = logging.getLogger("rcurc_gpu")

_HOLDOUT_STREAM = 11
_CHECK_EVERY = 5  # iterations between two looks at the device
_SAMPLE = 16384  # entries from which medians are taken
Factors = tuple[Array, Array, Array]  # W, s, V
MAD_TO_SIGMA = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


@dataclass(frozen=True)
class CoreOptions:
    """How the core iterates; the symbols are the paper's.

    Attributes
    ----------
    zeta0, gamma : float
        Threshold and its decay.
    step_rows, step_cols : float
        eta_R and eta_C.
    tol : float
        Target of e_k; the change of U that counts as none is its square root.
    max_iter : int
    floor : float
        The threshold never falls below this many median residuals; 0 lets it decay to nothing, as in the paper.
    svd_tol : float
        Accuracy of each truncated SVD; 0 takes one warm-started step.
    """

    zeta0: float
    gamma: float
    step_rows: float
    step_cols: float
    tol: float
    max_iter: int
    floor: float = 2.5
    svd_tol: float = 0.0


@dataclass(frozen=True)
class IterationState:
    """What a callback sees of an iteration, and what `Result.history` keeps.

    Attributes
    ----------
    iteration : int
    error : float
        e_k of the paper.
    threshold : float
        zeta_k.
    outlier_share : float
        Share of the observations beyond the threshold.
    change : float
        ``||U_k - U_{k-1}||_F / ||U_k||_F``.
    seconds : float
        Since the start of the solve; interpolated between the few iterations after which the clock is read.
    """

    iteration: int
    error: float
    threshold: float
    outlier_share: float
    change: float
    seconds: float


@dataclass(frozen=True, eq=False)
class CoreData:
    """The intersection, ready to iterate.

    Attributes
    ----------
    grid : Grid
    rate : float
        Share of the intersection that takes part in the fit.
    total : float
        ``||P_Omega Y||^2`` there.
    count : int
        Entries that take part.
    sample, held : (i, j, y)
        Places and values of some entries of the fit that are not 0, and of the entries held out of it.
    """

    grid: Grid
    rate: float
    total: float
    count: int
    sample: tuple[Array, Array, Array]
    held: tuple[Array, Array, Array]


@dataclass(frozen=True, eq=False)
class Core:
    """A solved core.

    Attributes
    ----------
    W : (|I|, r), s : (r,), V : (|J|, r)
    stopped : bool
        Whether the stopping rule fired.
    history : list of IterationState
    sigma : float
        Standard deviation of the inlying residuals, estimated robustly.
    threshold : float
        The last zeta.
    """

    W: Array
    s: Array
    V: Array
    stopped: bool
    history: list[IterationState]
    sigma: float
    threshold: float

    @property
    def rank(self) -> int:
        """Number of singular values."""
        return int(self.s.shape[0])


def is_held_out(i: Array, j: Array, seed: int, share: float) -> Array:
    """Whether the entry (i, j) of Y, by its place in the matrix, is held out of the fit."""
    return uniform_at(i, j, seed, _HOLDOUT_STREAM) < share


def step_weights(seen_by: Array, step_rows: float, step_cols: float, dtype: Any) -> Array:
    """The step of each entry of the intersection: eta_R, eta_C, or their harmonic mean where both blocks see it."""
    xp = array_namespace(seen_by)
    both = 2 * step_rows * step_cols / (step_rows + step_cols)
    table = asarray_on(np.asarray([0.0, step_rows, step_cols, both]), seen_by, dtype)
    return gather(table, xp.astype(seen_by, xp.int64))


def prepare(
    samples: CrossSamples,
    step_rows: float | None,
    step_cols: float | None,
    holdout: float,
    seed: int,
    chunk_bytes: int | None,
    layout: str = "auto",
) -> tuple[CoreData, float, float]:
    """Lay out the intersection; steps that are None become 1 / p_u, p_u the observed share of the intersection."""
    inter = samples.intersection
    block = inter.block
    xp = array_namespace(block.value)
    unit = block.unit_of_entry()
    rows, cols = asarray_on(samples.rows, block.value), asarray_on(samples.cols, block.value)
    held = is_held_out(gather(rows, unit), gather(cols, block.index), seed, holdout)
    fit_places, held_places = xp.nonzero(~held)[0], xp.nonzero(held)[0]
    count = int(fit_places.shape[0])
    if count == 0:
        raise ValueError("no observation lies in the intersection of rows and cols: the core cannot be found")
    rate = count / (len(samples.rows) * len(samples.cols))
    step_rows = 1 / rate if step_rows is None else step_rows
    step_cols = 1 / rate if step_cols is None else step_cols
    fit = xp.astype(~held, block.value.dtype)
    weight = step_weights(inter.seen_by, step_rows, step_cols, block.value.dtype) * fit
    rng = np.random.default_rng([seed, 1])
    # An entry that is exactly 0 in a matrix of many zeros fits anything: medians are taken from the others.
    telling = xp.nonzero(~held & (block.value != 0))[0]
    telling = telling if telling.shape[0] else fit_places
    if telling.shape[0] > _SAMPLE:
        drawn = np.sort(rng.choice(telling.shape[0], _SAMPLE, replace=False))
        telling = gather(telling, asarray_on(drawn, block.value))

    def places(at: Array) -> tuple[Array, Array, Array]:
        return gather(unit, at), xp.astype(gather(block.index, at), xp.int64), gather(block.value, at)

    grid = make_grid(block, weight, chunk_bytes, layout)
    total = float(xp.sum((block.value * fit) ** 2))
    data = CoreData(grid, rate, total, count, places(telling), places(held_places))
    return data, step_rows, step_cols


def residuals(left: Array, V: Array, entries: tuple[Array, Array, Array]) -> Array:
    """``y - (left V^T)_ij`` at a list of entries (i, j, y)."""
    xp = array_namespace(left)
    i, j, y = entries
    return y - xp.sum(take_rows(left, i) * take_rows(V, j), axis=1)


@dataclass(frozen=True, eq=False)
class CoreStep:
    """The iterate U_k, and what was measured with it; scalars are still on the device.

    Attributes
    ----------
    k : int
    factors, previous : (W, s, V) of U_k and U_{k-1}
    threshold, n_outliers : 0-d arrays
        zeta_k and the number of outliers in S_k.
    square : 0-d array
        ``||P_Omega(S_k + U_k - Y)||^2``, the numerator of e_k.
    next_threshold : 0-d array
    """

    k: int
    factors: Factors
    previous: Factors
    threshold: Array
    n_outliers: Array
    square: Array
    next_threshold: Array


def iterate_core(data: CoreData, rank: int, options: CoreOptions, seed: int) -> Iterator[CoreStep]:
    """Iterate the intersection from U_0 = 0, without reading anything back from the device."""
    like = data.sample[2]
    xp = array_namespace(like)
    m, n = data.grid.shape
    W, V = (xp.zeros((size, rank), dtype=like.dtype, device=device_of(like)) for size in (m, n))
    factors: Factors = (W, xp.zeros((rank,), dtype=like.dtype, device=device_of(like)), V)
    Q = xp.linalg.qr(random_start(n, sketch_width(rank, (m, n)), like, seed)).Q
    zeta = _threshold(factors, data, options, 0)
    G, S, _, n_out = data.grid.threshold(W * factors[1], V, zeta, None)
    for k in range(1, options.max_iter + 1):
        previous = factors
        *factors, Q = _truncate(data.grid, previous, G, Q, rank, options, first=k < 5)  # type: ignore[assignment]
        W, s, V = factors
        next_zeta = _threshold(factors, data, options, k)
        G, S, square, next_out = data.grid.threshold(W * s, V, next_zeta, S)
        yield CoreStep(k, (W, s, V), previous, zeta, n_out, square, next_zeta)
        zeta, n_out = next_zeta, next_out


def _threshold(factors: Factors, data: CoreData, options: CoreOptions, k: int) -> Array:
    W, s, V = factors
    xp = array_namespace(W)
    zeta = xp.asarray(options.zeta0 * options.gamma**k, dtype=W.dtype, device=device_of(W))
    if options.floor == 0:
        return zeta
    return xp.maximum(zeta, options.floor * quantile_abs(residuals(W * s, V, data.sample)))


def solve_core(
    data: CoreData,
    rank: int,
    options: CoreOptions,
    seed: int,
    clock: Callable[[], float],
    callback: Callable[[IterationState], Any] | None = None,
) -> Core:
    """Iterate the core until it stands still.

    A handful of scalars is read back from the device every few iterations (every one, with a callback). A callback
    that returns True ends the iteration.
    """
    history: list[IterationState] = []
    pending: list[CoreStep] = []
    stopped = False
    for step in iterate_core(data, rank, options, seed):
        pending.append(step)
        if step.k % _CHECK_EVERY and step.k != options.max_iter and callback is None:
            continue
        history += read_back(pending, data, history[-1].seconds if history else 0.0, clock())
        pending.clear()
        ended = callback is not None and callback(history[-1]) is True
        stopped = _stands_still(step, history[-1], data, options)
        if stopped or ended or not np.isfinite(history[-1].error):
            break
    W, s, V = step.factors
    sigma = robust_sigma(residuals(W * s, V, data.sample), step.next_threshold, dof_share(data, rank))
    return Core(W, s, V, stopped, history, sigma, float(step.next_threshold))


def _truncate(grid: Grid, factors: Factors, G: Any, Q: Array, rank: int, options: CoreOptions, first: bool) -> Any:
    """D_r of W diag(s) V^T + G, warm-started at Q."""
    W, s, V = factors
    Ws, Vs = W * s, V * s
    P, s, Q = subspace_svd(
        lambda X: Ws @ (V.T @ X) + grid.mul(G, X),
        lambda X: Vs @ (W.T @ X) + grid.rmul(G, X),
        Q,
        rank,
        # The first matrices are far from low rank and from each other; later one step keeps up with the iteration.
        steps=200 if options.svd_tol > 0 else (3 if first else 1),
        tol=options.svd_tol,
    )
    return P[:, :rank], s[:rank], Q[:, :rank], Q


def change_of(new: Factors, old: Factors) -> Array:
    """Relative change of U from its factors, without cancellation; a 0-d array on the device."""
    xp = array_namespace(new[0])
    left = xp.linalg.qr(xp.concat([new[0] * new[1], -old[0] * old[1]], axis=1)).R
    right = xp.linalg.qr(xp.concat([new[2], old[2]], axis=1)).R
    return xp.linalg.matrix_norm(left @ right.T) / xp.linalg.vector_norm(new[1])


def read_back(steps: list[CoreStep], data: CoreData, before: float, now: float) -> list[IterationState]:
    """Scalars of some iterations as history; the clock was `before` the first and is `now`."""
    xp = array_namespace(steps[0].square)
    rows = [(step.square, step.n_outliers, step.threshold, change_of(step.factors, step.previous)) for step in steps]
    table = to_numpy(xp.stack([xp.stack(row) for row in rows])).tolist()
    total = data.total if data.total > 0 else 1.0
    seconds = np.linspace(before, now, len(steps) + 1)[1:].tolist()
    return [
        IterationState(step.k, square / total, zeta, n_out / data.count, change, at)
        for step, (square, n_out, zeta, change), at in zip(steps, table, seconds, strict=True)
    ]


def _stands_still(step: CoreStep, state: IterationState, data: CoreData, options: CoreOptions) -> bool:
    """Whether U has stopped moving: to the square root of tol, or to a thousandth of the noise once that holds the
    threshold up."""
    if not state.change <= 1:  # also NaN
        return False
    xp = array_namespace(step.square)
    zeta = float(step.next_threshold)
    floored = zeta > options.zeta0 * options.gamma**step.k
    m, n = data.grid.shape
    typical = float(xp.linalg.vector_norm(step.factors[1])) / (m * n) ** 0.5
    noise = zeta / options.floor / typical if floored and typical > 0 else 0.0
    return state.change <= max(options.tol**0.5, 1e-3 * noise) and (floored or state.error <= options.tol)


def robust_sigma(sample: Array, zeta: Array, dof_share: float = 0.0) -> float:
    """Robust standard deviation of the residuals below the threshold.

    Parameters
    ----------
    sample : float array (n,)
    zeta : 0-d array
    dof_share : float
        Unknowns of the fit over its entries: residuals of a fit are smaller than the noise by the root of the rest.
    """
    xp = array_namespace(sample)
    inlying = sample[xp.abs(sample) < zeta]
    if inlying.shape[0] == 0:
        return float("inf")
    return MAD_TO_SIGMA * float(quantile_abs(inlying)) / max(1 - dof_share, 0.25) ** 0.5


def dof_share(data: CoreData, rank: int) -> float:
    """Unknowns of a rank-r core over its entries."""
    m, n = data.grid.shape
    return rank * (m + n - rank) / data.count
