"""The paper's own iteration on the whole cross, in one pass over the observations.

[X_k]_{I,j} = W_k a_j for a column j outside of J, and a_j <- W_{k+1}^T (W_k a_j + eta_R g_j), g_j its residual below the
threshold. So once the core's iterates are known, each chunk of columns runs through all iterations by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .backend import Array, array_namespace, asarray_on, quantile_abs, take_rows
from .block import load_chunk
from .core import (
    Core,
    CoreData,
    CoreOptions,
    CoreStep,
    IterationState,
    change_of,
    dof_share,
    iterate_core,
    residuals,
    robust_sigma,
)
from .extend import Task
from .regress import fitted

_PILOT = 4096  # units that run along with the core, to see when e_k is small enough


@dataclass(frozen=True, eq=False)
class Side:
    """One block of the cross in the paper's recursion.

    Attributes
    ----------
    task : Task
    units : integer array
        The units to extend, ascending: those outside of J (of I).
    step_size : float
        eta_R or eta_C.
    factor : int
        Which of (W, s, V) is the basis: 0 for columns, 2 for rows.
    """

    task: Task
    units: np.ndarray
    step_size: float
    factor: int


class _Runner:
    """A chunk of units on its way through the iterations."""

    def __init__(self, side: Side, units: np.ndarray) -> None:
        self.side, self.units = side, units
        self.chunk = load_chunk(side.task.block, units)
        _, self.fit, _ = side.task.design(self.chunk)
        xp = array_namespace(self.fit)
        self.residual = self.chunk.value * self.fit
        self.a: Array = xp.zeros((len(units), side.task.basis.shape[1]), dtype=self.fit.dtype, device=self.fit.device)

    def size(self) -> np.ndarray:
        """Squared norm and number of the observations (2,)."""
        xp = array_namespace(self.fit)
        return np.asarray([float(xp.sum(self.residual * self.residual)), float(xp.sum(self.fit))])

    def advance(self, step: CoreStep) -> np.ndarray:
        """From iterate k - 1 to k; the squared residual of e_k and the number of outliers (2,)."""
        xp = array_namespace(self.fit)
        old, new = step.previous[self.side.factor], step.factors[self.side.factor]
        E = self.residual
        keep = xp.astype(xp.abs(E) < step.threshold, E.dtype) * self.fit
        D = take_rows(new, self.chunk.index)
        self.a = self.a @ (old.T @ new) + ((self.side.step_size * E * keep)[:, None, :] @ D)[:, 0, :]
        self.residual = (self.chunk.value - fitted(D, self.a)) * self.fit
        rest = self.residual - E * (self.fit - keep)
        return np.asarray([float(xp.sum(rest * rest)), float(xp.sum(self.fit - keep))])


def solve_paper(
    data: CoreData,
    sides: tuple[Side, Side],
    rank: int,
    options: CoreOptions,
    seed: int,
    clock: Callable[[], float],
    callback: Callable[[IterationState], Any] | None = None,
    report: Callable[[int], None] | None = None,
) -> tuple[Core, tuple[Array, Array]]:
    """Run Algorithm 1; the core, and the coefficients of the units of both sides.

    Notes
    -----
    A random pilot of the units runs along with the core and tells when e_k <= tol. If it is all of them, that is exact.
    Otherwise all of them then follow to the same iteration and e_k is summed over everything; on the pilot the rule is
    asked to hold with a tenth to spare, so that the last iterate meets it.
    """
    rng = np.random.default_rng([seed, 2])
    pilots = [np.sort(rng.choice(side.units, min(len(side.units), _PILOT), replace=False)) for side in sides]
    runners = [[_Runner(side, units) for units in side.task.plan(pilot)] for side, pilot in zip(sides, pilots, strict=True)]
    scale = [len(side.units) / max(len(pilot), 1) for side, pilot in zip(sides, pilots, strict=True)]
    whole = max(scale) <= 1
    core_size = np.asarray([data.total, data.count])
    size = core_size + _scaled_sum(runners, scale, _Runner.size)
    trail: list[CoreStep] = []
    history: list[IterationState] = []
    stopped = False
    for step in iterate_core(data, rank, options, seed):
        sums = _core_sums(step) + _scaled_sum(runners, scale, partial(_Runner.advance, step=step))
        error, outlier_share = (sums / size).tolist()
        moved = float(change_of(step.factors, step.previous))
        history.append(IterationState(step.k, error, float(step.threshold), outlier_share, moved, clock()))
        if not whole:
            trail.append(step)
        stopped = error <= (options.tol if whole else 0.9 * options.tol)
        ended = callback is not None and callback(history[-1]) is True
        if stopped or ended or not np.isfinite(error):
            break
    if not whole:
        history = _follow(sides, runners, trail, history, core_size, report)
        stopped = history[-1].error <= options.tol
    W, s, V = step.factors
    sample = residuals(W * s, V, data.sample)
    core = Core(
        W,
        s,
        V,
        stopped,
        history,
        robust_sigma(sample, 5 * quantile_abs(sample), dof_share(data, rank)),
        float(step.threshold),
    )
    return core, (_gather_coefficients(sides[0], runners[0]), _gather_coefficients(sides[1], runners[1]))


def _core_sums(step: CoreStep) -> np.ndarray:
    return np.asarray([float(step.square), float(step.n_outliers)])


def _scaled_sum(runners: list[list[_Runner]], scale: list[float], measure: Callable[[_Runner], np.ndarray]) -> np.ndarray:
    zero = np.zeros(2)
    return sum((f * sum((measure(runner) for runner in group), zero) for group, f in zip(runners, scale, strict=True)), zero)


def _follow(
    sides: tuple[Side, Side],
    runners: list[list[_Runner]],
    trail: list[CoreStep],
    history: list[IterationState],
    core_size: np.ndarray,
    report: Callable[[int], None] | None,
) -> list[IterationState]:
    """Bring all units to the last iterate, chunk by chunk, and sum e_k over them (the pilot, now done, goes again)."""
    size = core_size
    sums = np.asarray([_core_sums(step) for step in trail])
    for group, side in zip(runners, sides, strict=True):
        group.clear()
        for units in side.task.plan(side.units):
            runner = _Runner(side, units)
            size = size + runner.size()
            sums = sums + np.asarray([runner.advance(step) for step in trail])
            runner.chunk = runner.residual = runner.fit = None  # type: ignore[assignment]  # free all but the result
            group.append(runner)
            if report is not None:
                report(len(units))
    return [
        replace(state, error=e / size[0], outlier_share=n / size[1]) for state, (e, n) in zip(history, sums, strict=True)
    ]


def _gather_coefficients(side: Side, runners: list[_Runner]) -> Array:
    if not runners:
        return side.task.basis[:0, :]
    xp = array_namespace(runners[0].a)
    order = np.argsort(np.concatenate([runner.units for runner in runners]), kind="stable")
    return xp.take(xp.concat([runner.a for runner in runners]), asarray_on(order, runners[0].a), axis=0)
