"""The core: robust rank-r completion of the intersection I x J.

Algorithm 1 of the paper, restricted to I x J, where X_k is U_k = W diag(s) V^T:

    zeta_{k+1} = gamma^k zeta_0                              the threshold
    S_{k+1}    = T_zeta(Y - U_k)                             outliers: residuals that are not below zeta_{k+1}
    U_{k+1}    = D_r(U_k + w P_Omega(Y - U_k - S_{k+1}))     a step, then the best approximation of rank r

The step w of an entry is eta_R, eta_C or their harmonic mean (`problem.Steps`). U_{k+1} needs nothing of R and C outside of
I x J. Two things differ from the paper: an entry that neither block observes keeps its value, since with 0 in its place the
truth is no fixed point (the error stays at 100 %); and zeta stops at the noise (`CoreOptions.floor`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..backends.arrays import MAD_TO_SIGMA, Array, array_namespace, asarray_on, device_of, quantile_abs
from ..backends.kernels import RunContext, Step
from ..backends.linalg import qr
from ..backends.operators import random_start, sketch_width
from ..backends.plain.loop import NUMBERS, Begin, Factors, Group, Loop, Recipe, residuals
from ..extend.diagnostics import UnitDiagnostics
from .history import IterationState, as_table, from_table
from .problem import CoreProblem, dof_share

log = logging.getLogger("rcurc_gpu")

# Iterations between two transfers from the device. Each one waits for the device; a core takes 50 to 500 iterations, so the
# four that may be too many cost little.
CHECK_EVERY = 5
# Iterations after which a converging core has come nearer to rest; a shorter wait would take slow convergence for none.
_WHILE = 20
# e_k, a ratio of squares, from which an iteration is given up: residuals a thousand times the data. Steps that are far too
# long get there within 30 iterations, before anything overflows.
BEYOND = 1e6
_ROUNDING = 1e-6  # residuals relative to the entries that may be float32's rounding (6e-8, summed up) and are no noise


@dataclass(frozen=True)
class CoreOptions:
    """How the core iterates; the symbols are the paper's.

    Attributes
    ----------
    zeta0, gamma : float
        zeta_0 and gamma: the first threshold and its decay. A `gamma` of 1 is for a threshold that nothing exceeds.
    step_rows, step_cols : float
        eta_R and eta_C.
    tol : float
        Target of e_k (epsilon of the paper). Its square root is the relative change of U that counts as none.
    max_iter : int
    floor : float
        zeta_k never falls below this many median residuals. 0 lets it decay to nothing, as in the paper; then real data is
        lost. 2.5 of them (1.7 standard deviations) do no harm without noise, and lower the error with noise.
    svd_tol : float
        Accuracy of each truncated SVD D_r; 0 takes one warm-started step, which keeps up with the iteration.
    rests : bool
        Whether small steps that do not become smaller count as rest: for real data such as videos.
    first_check : int
        Iterations before it is looked for the first time whether U stands still; then every `CHECK_EVERY`.
    """

    zeta0: float
    gamma: float
    step_rows: float
    step_cols: float
    tol: float
    max_iter: int
    floor: float = 2.5
    svd_tol: float = 0.0
    rests: bool = False
    first_check: int = CHECK_EVERY

    def until_check(self, k: int) -> int:
        """Iterations from iteration `k` to the next check; none is beyond `max_iter`."""
        return min((self.first_check - k - 1) % CHECK_EVERY + 1, self.max_iter - k)


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

    @cached_property
    def left(self) -> Array:
        """``U = left @ V.T`` (|I|, r)."""
        return self.W * self.s

    @cached_property
    def right(self) -> Array:
        """``U = W @ right.T`` (|J|, r)."""
        return self.V * self.s


Checked = tuple[Core, UnitDiagnostics, UnitDiagnostics]  # a core, and the diagnostics of its rows and columns


def iterate_core(
    data: CoreProblem, rank: int, options: CoreOptions, seed: int, start: Factors | None = None, resume: Begin | None = None
) -> Loop:
    """The iteration from U_0 = 0, from `start`, or from the end of a group of iterations (`resume`)."""
    like = data.sample[2]
    xp = array_namespace(like)
    m, n = data.grid.shape
    recipe = Recipe(rank, options.zeta0, options.gamma, options.floor, data.sample, options.svd_tol, start is not None)
    if resume is not None:  # the same iterates follow as without a break
        return data.grid.loop(recipe, resume)
    # Warm-started, one column more than the rank keeps up as well as several; an SVD to full accuracy wants several.
    width = sketch_width(rank, (m, n)) if options.svd_tol > 0 else min(rank + 1, m, n)
    Q = qr(random_start(n, width, like, seed))[0]
    P = xp.zeros((m, width), dtype=like.dtype, device=device_of(like))
    s = xp.zeros((width,), dtype=like.dtype, device=device_of(like))
    if start is not None:  # its V, and random columns orthogonal to it
        W, leading, V = start
        P, s = xp.concat([W, P[:, rank:]], axis=1), xp.concat([leading, s[rank:]])
        extra = Q[:, rank:] - V @ (V.T @ Q[:, rank:])
        Q = xp.concat([V, qr(extra)[0]], axis=1) if width > rank else V
    return data.grid.loop(recipe, Begin(0, (P, s, Q)))


def group_size(k: int, options: CoreOptions, watched: bool) -> int:
    """How many iterations follow iteration `k` in one group: one, if a callback watches, or up to the next check."""
    return 1 if watched else options.until_check(k)


def solve_core(
    data: CoreProblem,
    rank: int,
    options: CoreOptions,
    run: RunContext,
    start: Factors | None = None,
    step: Step | None = None,
) -> Core:
    """Iterate the core from 0, or from `start`, until it stands still.

    A handful of numbers is read back from the device every few iterations (every one, with a callback). A callback
    that returns True ends the iteration. `step` keeps the state in the store, and the next run resumes from it.
    """
    xp = array_namespace(data.weight)
    callback = run.progress.iteration
    history: list[IterationState] = []
    stopped, ended, resume = False, False, None
    if step is not None and step.saved is not None:
        if "sigma" in step.saved:
            return finished(step.saved, data.weight)
        history, resume = _half_way(step.saved, data.weight)
    loop = iterate_core(data, rank, options, run.seed, start, resume)
    while not (stopped or ended or diverged(history)) and loop.k < options.max_iter:
        group = loop.advance(group_size(loop.k, options, callback is not None))
        states, s, zeta = read_back(group, data, history[-1].seconds if history else 0.0, run.clock())
        history += states
        note(history[-1])
        ended = callback is not None and callback(history[-1]) is True
        # A callback does not make this check more frequent: progress bars must not change the result.
        due = (group.k - options.first_check) % CHECK_EVERY == 0
        stopped = (due or group.k == options.max_iter) and _stands_still(history, s, zeta, data, options)
        if step is not None and due and group.k < options.max_iter and not (stopped or ended or diverged(history)):
            # copies: the store may write them later, and the next group overwrites them
            W, S, V = (xp.asarray(x, copy=True) for x in group.whole)
            step.save(_kept((W, S, V), history, zeta))
    W, S, V = group.factors(rank)
    sigma = robust_sigma(residuals(W * S, V, data.sample), zeta, dof_share(data, rank))
    core = Core(W, S, V, stopped, history, sigma, zeta)
    if step is not None and not ended:  # a core that a callback ended is not finished
        step.save(finished_state(core))
    return core


def diverged(history: list[IterationState]) -> bool:
    """Whether the last residuals are far beyond the data, or NaN."""
    return bool(history) and not history[-1].error <= BEYOND


def _kept(factors: Factors, history: list[IterationState], zeta: float) -> dict[str, Array]:
    """An iteration as arrays, for `Begin` and `Core`."""
    return dict(zip("WsV", factors, strict=True)) | {"history": as_table(history), "zeta": np.asarray(zeta)}


def _half_way(saved: dict[str, np.ndarray], like: Array) -> tuple[list[IterationState], Begin]:
    W, s, V = (asarray_on(saved[name], like) for name in "WsV")
    history = from_table(saved["history"])
    return history, Begin(history[-1].iteration, (W, s, V), float(saved["zeta"]))


def finished_state(core: Core) -> dict[str, Array]:
    """A solved core as arrays, for the store."""
    more = {"sigma": np.asarray(core.sigma), "stopped": np.asarray(core.stopped)}
    return _kept((core.W, core.s, core.V), core.history, core.threshold) | more


def finished(saved: dict[str, np.ndarray], like: Array) -> Core:
    """What `finished_state` gave, where `like` is."""
    W, s, V = (asarray_on(saved[name], like) for name in "WsV")
    return Core(W, s, V, bool(saved["stopped"]), from_table(saved["history"]), float(saved["sigma"]), float(saved["zeta"]))


def note(state: IterationState) -> None:
    """Write some of the iterations to the log."""
    if state.iteration % CHECK_EVERY == 0:
        numbers = (state.iteration, state.error, state.threshold, 100 * state.outlier_share, state.change)
        log.debug("iteration %d: e = %.1e, threshold %.2e, %.1f %% outliers, change %.1e", *numbers)


def read_back(group: Group, data: CoreProblem, before: float, now: float) -> tuple[list[IterationState], np.ndarray, float]:
    """Numbers of some iterations as history, the last singular values and the next threshold.

    The clock was `before` the first and is `now`.
    """
    table = group.table()
    total = data.total if data.total > 0 else 1.0
    first, each = group.k - len(table) + 1, (now - before) / len(table)
    states = [
        IterationState(first + k, square / total, zeta, n_out / data.count, change, before + (k + 1) * each)
        for k, (square, n_out, zeta, change) in enumerate(table[:, :4].tolist())
    ]
    return states, table[-1, NUMBERS:], float(table[-1, NUMBERS - 1])


def _stands_still(
    history: list[IterationState], s: np.ndarray, zeta: float, data: CoreProblem, options: CoreOptions
) -> bool:
    """Whether U has stopped moving.

    Its relative change is then at most the square root of tol or, once the noise holds the threshold up, a thousandth of the
    noise. If it comes no nearer to rest, a fiftieth is enough: entries at the edge of the threshold change sides for ever.
    """
    state = history[-1]
    floored = _at_floor(zeta, state.iteration, options)
    m, n = data.grid.shape
    typical = float(np.linalg.norm(s)) / (m * n) ** 0.5
    noise = zeta / options.floor / typical if floored and typical > 0 else 0.0
    # e_k alone proves nothing: as zeta falls it becomes small whatever U is. So it only joins the change of U.
    settled = floored or options.gamma == 1 or state.error <= options.tol
    # Shares of the noise, which leaves a larger error in U than either; the larger share is for `rests` alone.
    enough = 2e-2 if options.rests and noise > _ROUNDING and _restless(history, options) else 1e-3
    # at most 1: where U is near 0, the noise relative to it says nothing; NaN gives False
    return state.change <= min(max(options.tol**0.5, enough * noise), 1) and settled


def _restless(history: list[IterationState], options: CoreOptions) -> bool:
    """Whether the steps have hardly become smaller for a while, and the threshold was at its floor all the time."""
    if len(history) <= _WHILE:
        return False
    earlier = history[-1 - _WHILE]
    # less than a fifth in 20 iterations is no convergence
    return _at_floor(earlier.threshold, earlier.iteration - 1, options) and history[-1].change > 0.8 * earlier.change


def _at_floor(zeta: float, k: int, options: CoreOptions) -> bool:
    """Whether the residuals hold a threshold up; one that is not held up is zeta_0 gamma^k, to float32's rounding (1e-5)."""
    return zeta > (1 + 1e-5) * options.zeta0 * options.gamma**k


def robust_sigma(sample: Array, zeta: Array | float, dof_share: float = 0.0) -> float:
    """Robust standard deviation of the residuals below the threshold.

    Parameters
    ----------
    sample : float array (n,)
    zeta : float or 0-d array
    dof_share : float
        Unknowns of the fit over its entries. Residuals of a fit are smaller than the noise by a factor (1 - dof_share)^0.5.
    """
    xp = array_namespace(sample)
    inlying = sample[xp.abs(sample) < zeta]
    if inlying.shape[0] == 0:
        return float("inf")
    # 0.25: near as many unknowns as entries the correction grows without bound, so it is at most a factor of 2
    return MAD_TO_SIGMA * float(quantile_abs(inlying)) / max(1 - dof_share, 0.25) ** 0.5
