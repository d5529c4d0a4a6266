"""Whether the observations that a unit rejects agree with one another: then its solution has a rival.

Outliers at random agree with nothing. Wrong units of measurement, reversed signs and zeros for what is missing agree with
each other. In a row or column that has more than half of them, by chance or because they come together, they win. The number
that agrees with the winner does not show that; the number of the others that agree on something else does.

Without this check 68 of the 174 confirmed results on 300 such problems were wrong; with it 0 of 79 are.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import betainc

from ..backends.arrays import Array, array_namespace, bring, gather, take_rows, to_numpy
from ..backends.blocks import Block, pieces
from ..backends.plain.passes import Column, FitPass, again
from .diagnostics import CONTESTED, OK, UnitDiagnostics
from .tasks import Task
from .typical import thin

_WRONG = 1e-3  # chance that a unit's winner is wrong from which it is not believed; docs/trust.md says so
# Shares of agreeing outliers that are considered. A sample of the core cannot tell less than 2 % from none; at one half, no
# lead would ever be enough.
_LEAST_SHARE, _MOST_SHARE = 0.02, 0.49
# Chance of as many votes for a rival, below which a unit has more of them than others. There may be many thousand units, and
# each marked by chance is lost.
_CHANCE = 1e-5
_MIXED, _PURE = 0.5, 0.7  # share of the rejected entries that belong to a rival of any size, and to one that may win
# Random subsets at most, to estimate how frequent rivals are and to find one. 5 / share^rank of them miss one with a chance
# of 0.7 %. That is less than 64 up to rank 3 (mixed), and than 200 up to rank 10 (pure); above, rivals may be missed.
_SUBSETS, _MOST_SUBSETS = 64, 200
_CLEAR = 2.0  # thresholds from the solution at which entries may support another; nearer ones may be the noise's tail
_AT_ONCE = 1_000_000  # observations whose residuals are in memory at a time


def rivals(task: Task, units: np.ndarray, coefficients: Array, share: float | None = None) -> tuple[np.ndarray, np.ndarray]:
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

    Returns
    -------
    winner, rival : int64 arrays (u,)
        The rival is 0 if it has no more entries than any r + 1 of them would give.
    """
    winner, rival = np.zeros((2, len(units)), dtype=np.int64)
    ids = task.unit_ids[units]
    for start, stop in pairwise(pieces(task.block.counts[units], _AT_ONCE)):
        here = task.block.take_units(units[start:stop]).to(task.basis)
        winner[start:stop], rejected = _split(task, here, bring(coefficients[start:stop, :], task.basis))
        if share is None:
            rival[start:stop] = _largest_consensus(task, rejected, ids[start:stop], _MIXED, _SUBSETS)
            continue
        near = np.flatnonzero(_too_near(winner[start:stop], rejected.counts, share))
        if near.size:
            some = rejected.take_units(near)
            rival[start + near] = _largest_consensus(task, some, ids[start + near], _PURE, _MOST_SUBSETS)
    rival[rival < task.rank + 2] = 0  # r entries always agree, and r + 1 nearly do
    return winner, rival


def _split(task: Task, block: Block, a: Array) -> tuple[np.ndarray, Block]:
    """How many entries of each unit agree with its solution, and a block of those that clearly do not."""
    basis, floor = task.basis, task.schedule.floor
    xp = array_namespace(basis)
    fit = xp.sum(take_rows(basis, block.index) * take_rows(a, block.unit_of_entry()), axis=1)
    distance = xp.abs(block.value - fit)
    counts = gather(task.usable, block.index) > 0
    winner = _ends(block, counts & (distance < floor))
    out = counts & (distance >= _CLEAR * floor)
    rejected = Block(_ends(block, out), block.index[out], block.value[out], block.length)
    return np.diff(to_numpy(winner)), rejected


def _ends(block: Block, chosen: Array) -> Array:
    """The `indptr` of a block that has only the entries `chosen` (bool)."""
    xp = array_namespace(chosen)
    total = xp.cumulative_sum(xp.astype(chosen, xp.int64), include_initial=True)
    return gather(total, block.indptr)


def _largest_consensus(task: Task, block: Block, ids: np.ndarray, share: float, most_subsets: int) -> np.ndarray:
    """The largest number of entries of each unit that agree on some solution.

    Random subsets find it if at least a `share` of the entries agrees.
    """
    number = int(min(5 / share**task.rank, most_subsets)) + 1
    first, run = FitPass(task.schedule, 0.0), task.run
    passes = (first, again(first, 0.7, "subsets", number))  # gamma as for restarts in `extension`
    tables = (run.kernels.regress_all(block, task.basis, fit_pass, run.chunk_bytes, ids)[1] for fit_pass in passes)
    return np.maximum(*(to_numpy(table)[:, Column.N_INLIERS] for table in tables)).astype(np.int64)


def consensus_share(winner: np.ndarray, rival: np.ndarray) -> float:
    """Share of the entries that agree with a rival among all that agree with a winner or a rival."""
    total = int(winner.sum() + rival.sum())
    return int(rival.sum()) / total if total else 0.0


def margin(share: Any) -> Any:
    """By how many entries a winner has to lead to be believed, where a `share` of the entries agrees on something else.

    With shares q and 1 - q of entries for the wrong solution and for the right one, the odds that a lead of k is that of
    the wrong one are (q / (1 - q))^k.
    """
    share = np.clip(share, _LEAST_SHARE, _MOST_SHARE)
    return np.log(1 / _WRONG) / np.log((1 - share) / share)


def contestable(d: UnitDiagnostics, share: float, holdout: float, typical: float) -> np.ndarray:
    """Units whose rejected observations, if all of them agreed, would leave no clear winner.

    Observations held out of the fit, about a share `holdout`, vote too. Where outliers come together, a unit has fewer
    inliers than the `typical` share.
    """
    # + 2: the share that is held out varies a little from unit to unit
    most = d.n_obs / (1 - holdout) + 2 - d.n_inliers
    near = d.n_inliers - most <= margin(share)
    # one standard deviation: this only decides where rivals are sought
    return np.flatnonzero((d.status == OK) & (near | (thin(d, typical, 1.0) & _too_near(d.n_inliers, most, share))))


def contested(d: UnitDiagnostics, units: np.ndarray, winner: np.ndarray, rival: np.ndarray, share: float) -> UnitDiagnostics:
    """Mark those of the `units` whose rival is too near."""
    status = d.status.copy()
    status[units[(rival > 0) & _too_near(winner, rival, share)]] = CONTESTED
    return replace(d, status=status)


def _too_near(winner: np.ndarray, rival: np.ndarray, share: float) -> np.ndarray:
    """Whether the lead of a winner may be chance; a rival with far more votes than the typical `share` has its own share."""
    lead, own = winner - rival, rival / np.maximum(winner + rival, 1)
    near = lead <= margin(share)
    unclear = ~near & (lead <= margin(np.maximum(own, share)))
    # The chance of at least so many among all votes (binomial), as an incomplete beta function: it takes fractions, too,
    # and asks for more than 0.
    typical = min(max(share, _LEAST_SHARE), _MOST_SHARE)
    near[unclear] = betainc(np.maximum(rival[unclear], 1e-3), winner[unclear] + 1, typical) < _CHANCE
    return np.asarray(near)
