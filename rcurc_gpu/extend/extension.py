"""The extension: every column (row) is a robust regression of its observations on the core's basis.

A first pass over all units tells what is typical of them. Units that are not typical are fitted again, with more effort.
Those that remain doubtful are marked.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, bring, take_rows
from ..backends.plain.passes import again
from ..backends.plain.verdicts import CONTESTABLE, DOUBTFUL, FAILED, ILL_CONDITIONED, OK, SKEWED, UNKNOWN, Limits
from .rivals import contested, rivals, too_near
from .tasks import Extension, Task, run_pass, run_passes
from .typical import Typical, in_doubt, typical_of, with_gates

# Passes that begin with a random part of the entries; `backends.random` has streams for seven. Later passes over 1 % of the
# units add a quarter to the time of the first at 5 % sampling (bench.extension).
_RESTARTS = 6
_PLENTY = 60.0  # random subsets of a unit for each that is expected to be without outliers
_HOPELESS = 1000  # where so many are needed for one without outliers, inliers are too few to be found
_MOST_SUBSETS = 3000  # of a unit: a millisecond at rank 5, ten at rank 20
_MOST_UNKNOWN = 10_000  # units without spread, of which the trace is not known, that may rest on one entry


def extend(task: Task, units: np.ndarray | None = None, typical_share: float | None = None) -> Extension:
    """Regress units; fit those again, with more effort, whose observations do not agree with the rest.

    Parameters
    ----------
    task : Task
    units : integer array, optional
        Ascending numbers of the units to regress, all by default; the result has them in this order.
    typical_share : float, optional
        Share of inliers of a typical unit; by default the median of these units.
    """
    units = np.arange(task.block.n_units) if units is None else units
    first = run_pass(task, units, task.first)
    typical = typical_of(first.tally, task.schedule.floor)
    if typical_share is not None:
        typical = replace(typical, share=typical_share)
    limits = task.comparison.limits(typical)
    status, bits = task.run.kernels.judge(first.diagnostics.columns, limits)
    typical = with_gates(typical, in_doubt(bits))
    chosen = to_look_at(bits, typical)
    whole = replace(first, diagnostics=replace(first.diagnostics, status=status))
    if chosen.size == 0:
        return whole
    return whole.put(chosen, later_passes(task, units[chosen], first.take(chosen), typical, limits))


def to_look_at(bits: np.ndarray, typical: Typical) -> np.ndarray:
    """The units that `later_passes` may change: all that are doubtful, or may rest on one entry, or may have a rival."""
    n_unknown = int(np.count_nonzero(bits & np.uint8(UNKNOWN)))
    return np.flatnonzero(bits & np.uint8(wanted_bits(typical, n_unknown)))


def wanted_bits(typical: Typical, n_unknown: int) -> int:
    """One of these bits makes a unit one that `later_passes` may change; `n_unknown` have no spread."""
    wanted = CONTESTABLE | SKEWED
    if typical.again or typical.subsets:
        wanted |= DOUBTFUL
    return wanted | UNKNOWN if n_unknown <= _MOST_UNKNOWN else wanted


def later_passes(task: Task, units: np.ndarray, first: Extension, typical: Typical, limits: Limits) -> Extension:
    """Fit the units again that are not as `typical`, and mark those that remain doubtful.

    `first` has the status of each of the `units` by itself; the status that is returned is beside all others.
    """
    judge = task.run.kernels.judge
    _, bits = judge(first.diagnostics.columns, limits)
    wanted = DOUBTFUL if typical.again else FAILED if typical.subsets else 0
    chosen = np.flatnonzero(bits & np.uint8(wanted))
    extension = first
    if chosen.size:
        extension = first.put(chosen, _fit_again(task, units[chosen], first.take(chosen), bits[chosen], typical, limits))
    status, bits = judge(extension.diagnostics.columns, limits)
    extension = replace(extension, diagnostics=replace(extension.diagnostics, status=status))
    return _without_contested(task, units, _without_lone(task, units, extension, bits), bits)


def _fit_again(
    task: Task, units: np.ndarray, first: Extension, bits: np.ndarray, typical: Typical, limits: Limits
) -> Extension:
    """Fit `units` again, as long as they are doubtful; `bits` (`verdicts`) say what they are at first."""
    # Cheap passes come first: each one leaves fewer doubtful units to the next. They decay slower than the first one, whose
    # gamma of 0.4 left some columns wrong at r = 20, with 30 % outliers hardly larger than the entries.
    restarts = [again(task.fit_pass, 0.7, "part", k) for k in range(_RESTARTS)]
    groups = [[again(task.fit_pass, 0.8), *restarts]] * typical.again
    n_subsets = _subsets_needed(typical.share, limits.rank) if typical.subsets else 0
    todo = deque(groups + [[again(task.fit_pass, 0.7, "subsets", n_subsets)]] * bool(n_subsets))
    kernels, extension = task.run.kernels, first
    while todo:
        passes = todo.popleft()
        wanted = np.uint8(FAILED if passes[0].begin == "subsets" else DOUBTFUL)
        chosen = np.flatnonzero(bits & wanted)
        if chosen.size == 0:
            continue
        if len(passes) > 1 and chosen.size > kernels.together:
            todo.extendleft([x] for x in reversed(passes))
            continue
        found = run_passes(task, units[chosen], passes) if len(passes) > 1 else [run_pass(task, units[chosen], passes[0])]
        for new in found:  # as if each were made of those units alone that are still doubtful
            left = np.flatnonzero(bits[chosen] & wanted)
            if left.size:
                new = new if left.size == chosen.size else new.take(left)
                better = extension.better_of(new, chosen[left])
                if better is not extension:
                    extension = better
                    _, bits = kernels.judge(better.diagnostics.columns, limits)
    return extension


def _without_lone(task: Task, units: np.ndarray, extension: Extension, bits: np.ndarray) -> Extension:
    """Mark units of which a component rests on a single observation; `bits` (`verdicts`) say where that may be.

    Nothing tells whether that observation is an outlier. A wrong solution can agree with as many observations as it has
    unknowns. Where most of a unit's observations say nothing of a component (it lives in few rows, say), the others may be
    so few that a wrong solution passes: each of them then has a leverage of 1, which means that without it nothing would be
    known of the component. Nine rows in ten alike: 3 of 32 results were confirmed with errors of 10 % and more without this.
    """
    d = extension.diagnostics
    doubtful, unknown = (np.flatnonzero(bits & np.uint8(which)) for which in (SKEWED, UNKNOWN))
    if 0 < len(unknown) <= _MOST_UNKNOWN:
        doubtful = np.union1d(doubtful, unknown)
    if len(doubtful) == 0:
        return extension
    a = take_rows(extension.coefficients, asarray_on(doubtful, extension.coefficients))
    lone = rest_on_one(task, units[doubtful], a)
    status = d.status.copy()
    status[doubtful[lone]] = ILL_CONDITIONED
    return replace(extension, diagnostics=replace(d, status=status))


def _without_contested(task: Task, units: np.ndarray, extension: Extension, bits: np.ndarray) -> Extension:
    """Mark units whose solution has a rival."""
    if task.consensus is None:
        return extension
    d = extension.diagnostics
    chosen = np.flatnonzero((d.status == OK) & (bits & np.uint8(CONTESTABLE) > 0))
    # by the observations that there are, of which at least the inliers agree with the winner
    n_in = d.n_inliers[chosen]
    chosen = chosen[too_near(n_in, task.counts_of(units[chosen]) - n_in, task.consensus)]
    if chosen.size == 0:
        return extension
    a = take_rows(extension.coefficients, asarray_on(chosen, extension.coefficients))
    counts = rivals(task, units[chosen], a, task.consensus)
    return replace(extension, diagnostics=contested(d, chosen, *counts, task.consensus))


def rest_on_one(task: Task, units: np.ndarray, coefficients: Array) -> np.ndarray:
    """Which of some units have a component that rests on a single observation; `coefficients` may be on the host."""
    block, places, _ = task.resident(units)
    a = bring(coefficients, task.basis)
    return np.asarray(task.run.kernels.rests_on_one(block, places, task.basis, a, task.usable, task.schedule.floor))


def _subsets_needed(typical_share: float, rank: int) -> int:
    """How many random subsets of `rank` entries to try until one is without outliers; 0 if that is hopeless."""
    share = (0.75 * typical_share) ** rank  # units that got here have more outliers than most: a quarter fewer inliers
    # 5 / share subsets without replacement all have outliers with a chance of e^-5, if a unit has as many inliers as that.
    # Those that are left have fewer: twelve times as many cost nothing measurable (n = 600, 4.5 observations per unknown:
    # 9 of 10 problems recovered instead of 6).
    return int(min(_PLENTY / share, _MOST_SUBSETS)) + 1 if share > 1 / _HOPELESS else 0


def without_nan(factor: Array) -> Array:
    """`factor` with 0 for what is not finite."""
    xp = array_namespace(factor)
    return xp.where(xp.isfinite(factor), factor, xp.zeros_like(factor))
