"""Whether the observations that a unit rejects agree with one another: then its solution has a rival.

Outliers at random agree with nothing. Wrong units of measurement, reversed signs and zeros for what is missing agree with
each other. In a row or column that has more than half of them, by chance or because they come together, they win. The number
that agrees with the winner does not show that; the number of the others that agree on something else does.

Without this check 68 of the 174 confirmed results on 300 such problems were wrong; with it 0 of 79 are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy.special import betainc

from ..backends.arrays import Array, bring, same_place, to_numpy
from ..backends.blocks import Block, pieces
from ..backends.plain import verdicts
from ..backends.plain.passes import Column, FitPass, again
from ..backends.plain.verdicts import CONTESTED, LEAST_SHARE, MOST_SHARE, OK, margin, unclear
from .diagnostics import UnitDiagnostics
from .tasks import Task

# Chance of as many votes for a rival, below which a unit has more of them than others. There may be many thousand units, and
# each marked by chance is lost.
_CHANCE = 1e-5
_MIXED, _PURE = 0.5, 0.7  # share of the rejected entries that belong to a rival of any size, and to one that may win
# Random subsets at most, to estimate how frequent rivals are and to find one. 5 / share^rank of them miss one with a chance
# of 0.7 %. That is less than 64 up to rank 3 (mixed), and than 200 up to rank 10 (pure); above, rivals may be missed.
_SUBSETS, _MOST_SUBSETS = 64, 200
# A rival that has to have a larger share of the rejected entries to be too near is found by fewer subsets: 10 / share^rank
# miss it with a chance of 0.005 %. From so many units on, those that need few are taken apart from the others: at rank 5
# and 30 observations of a unit that saves a third of the time that rivals take.
_SURE, _MANY, _KINDS = 10, 500, 8
_AT_ONCE = 1_000_000  # observations whose residuals are in memory at a time


def rivals(
    task: Task, units: np.ndarray, coefficients: Array, share: float | None = None, rows: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Count the entries that agree with the solution of some units, and those that agree with the best other one.

    The other one is found if most of the entries that the first rejects agree with it.

    Parameters
    ----------
    task : Task
        What gave the solutions; its `unit_ids` fix the random subsets.
    units : int64 array (u,)
        Their numbers in the block, ascending.
    coefficients : float array (u, r)
        Their solutions, where the block is or where the basis is.
    share : float, optional
        From `consensus_share`: rivals are then only sought where they may be too near. Without it, they are sought in all
        units and down to half of the rejected entries, with fewer subsets.
    rows : int64 array (u,), optional
        Which rows of `coefficients` are theirs, if it has others as well.

    Returns
    -------
    winner, rival : int64 arrays (u,)
        The rival is 0 if it has no more entries than any r + 1 of them would give.
    """
    winner, rival = np.zeros((2, len(units)), dtype=np.int64)
    ids, rest = task.unit_ids[units], (task.basis, task.usable)
    beside = same_place(task.block.value, task.basis)
    few = task.block.n_obs <= _AT_ONCE  # in one piece, without a look at how long units are, which may be on a device
    edges = [0, len(units)][: 1 + (len(units) > 0)] if few else pieces(task.block.counts[units], _AT_ONCE)
    for start, stop in pairwise(edges):
        block, places = task.block, units[start:stop]
        if not beside:
            block, places = block.take_units(places).to(task.basis), np.arange(len(places))
        theirs = None if rows is None else rows[start:stop]
        a = bring(coefficients[start:stop, :] if rows is None else coefficients, task.basis)
        winner[start:stop], rejected = task.run.kernels.split(block, places, *rest, a, task.schedule.floor, theirs)
        if share is None:
            number = int(min(5 / _MIXED**task.rank, _SUBSETS)) + 1
            rival[start:stop] = _largest_consensus(task, rejected, ids[start:stop], number)
            continue
        most = rejected.counts
        near = np.flatnonzero((most >= task.rank + 2) & too_near(winner[start:stop], most, share))
        for number, some in _by_subsets(task.rank, winner[start + near], most[near], share):
            rival[start + near[some]] = _largest_consensus(task, rejected, ids[start:stop], number, near[some])
    rival[rival < task.rank + 2] = 0  # r entries always agree, and r + 1 nearly do
    return winner, rival


def _by_subsets(rank: int, winner: np.ndarray, most: np.ndarray, share: float) -> Iterator[tuple[int, np.ndarray]]:
    """How many random subsets are enough to find rivals that are too near, and the units for which that is so.

    `most` is how many entries a unit rejects, which would be too near if all of them agreed.
    """
    largest = int(min(5 / _PURE**rank, _MOST_SUBSETS)) + 1
    low, high = np.full_like(most, rank + 2), most.copy()
    while (low < high).any():  # the fewest entries of a rival that is too near, by bisection
        middle = (low + high) // 2
        near = too_near(winner, middle, share)
        low, high = np.where(near, low, middle + 1), np.where(near, middle, high)
    step = -(-largest // _KINDS)
    kinds = np.minimum(_SURE * (most / high) ** rank // step + 1, _KINDS)
    if len(kinds) < _MANY:
        kinds[:] = kinds.max(initial=1)
    for kind in np.unique(kinds):
        yield min(int(kind) * step, largest), np.flatnonzero(kinds == kind)


def _largest_consensus(
    task: Task, block: Block, ids: np.ndarray, number: int, units: np.ndarray | None = None
) -> np.ndarray:
    """The largest number of entries of each unit, of all or of some, that agree on some solution.

    Such a `number` of random subsets look for it.
    """
    first, run = FitPass(task.schedule, 0.0), task.run
    passes = (first, again(first, 0.7, "subsets", number))  # gamma as for restarts in `extension`
    _, tables = run.kernels.regress_each(block, task.basis, passes, run.chunk_bytes, ids, units)
    counts = to_numpy(tables)[:, :, Column.N_INLIERS]  # few units: the whole tables, as they lie there
    return np.asarray(counts.max(axis=1), dtype=np.int64)


def consensus_share(winner: np.ndarray, rival: np.ndarray) -> float:
    """Share of the entries that agree with a rival among all that agree with a winner or a rival."""
    total = int(winner.sum() + rival.sum())
    return int(rival.sum()) / total if total else 0.0


def contestable(d: UnitDiagnostics, share: float, holdout: float, typical: float) -> np.ndarray:
    """Units whose rejected observations, if all of them agreed, might leave no clear winner; see `verdicts.contestable`."""
    return np.flatnonzero((d.status == OK) & verdicts.contestable(d.n_obs, d.n_inliers, typical, holdout, share))


def contested(d: UnitDiagnostics, units: np.ndarray, winner: np.ndarray, rival: np.ndarray, share: float) -> UnitDiagnostics:
    """Mark those of the `units` whose rival is too near."""
    status = d.status.copy()
    status[units[(rival > 0) & too_near(winner, rival, share)]] = CONTESTED
    return replace(d, status=status)


def too_near(winner: np.ndarray, rival: np.ndarray, share: float) -> np.ndarray:
    """Whether the lead of a winner may be chance; a rival with far more votes than the typical `share` has its own share."""
    near = winner - rival <= margin(share)
    open_ = np.flatnonzero(~near & unclear(winner, rival, share))
    if open_.size:
        # The chance of at least so many among all votes (binomial), as an incomplete beta function: it asks for more than 0.
        typical = min(max(share, LEAST_SHARE), MOST_SHARE)
        near[open_] = betainc(np.maximum(rival[open_], 1e-3), winner[open_] + 1, typical) < _CHANCE
    return np.asarray(near)
