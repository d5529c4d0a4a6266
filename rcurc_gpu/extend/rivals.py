"""Whether the observations that a unit rejects agree with one another: then its solution has a rival.

Outliers at random agree with nothing. Wrong units of measurement, reversed signs and zeros for what is missing agree with
each other, and in a unit that has more than half of them, by chance or because they come together, they win. That cannot
be seen from how many agree with the winner, but from how many of the others agree on something else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import betainc

from ..backends.arrays import Array, array_namespace, bring, gather, take_rows, to_numpy
from ..backends.blocks import Block, pieces
from ..backends.kernels import Kernels
from ..backends.plain.passes import Column, FitPass, again
from ..backends.plain.regression import Schedule
from .diagnostics import CONTESTED, OK, UnitDiagnostics
from .typical import thin

_WRONG = 1e-3  # chance that a unit's winner is wrong from which it is not believed
_LEAST_SHARE, _MOST_SHARE = 0.02, 0.49  # of agreeing outliers that are thought of
_CHANCE = 1e-5  # of as many votes for a rival, below which a unit has more of them than others have
_MIXED, _PURE = 0.5, 0.7  # share of the rejected entries that belong to a rival of any size, and to one that may win
_SUBSETS, _MOST_SUBSETS = 64, 200  # to estimate how often there are rivals, and to find one
_CLEAR = 2.0  # thresholds from the solution at which entries begin to speak for another
_AT_ONCE = 1_000_000  # observations


def rivals(
    block: Block,
    units: np.ndarray,
    ids: np.ndarray,
    coefficients: Array,
    basis: Array,
    usable: Array,
    schedule: Schedule,
    kernels: Kernels,
    chunk_bytes: int | None,
    share: float | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Count who agrees with the solution of some units, and who with the best other one.

    The other one is found if it has most of the entries that the first rejects.

    Parameters
    ----------
    block : Block
    units : int64 array (u,)
        Their numbers in the block, ascending.
    ids : int64 array (u,)
        Their numbers in the matrix, which fix the random subsets.
    coefficients : float array (u, r)
        Their solutions, where the block is or where the basis is.
    basis, usable : float arrays (length, r) and (length,)
    schedule : Schedule
        Of the regressions that gave the solutions.
    kernels, chunk_bytes :
        What does the work, and in how much memory.
    share : float, optional
        As of `consensus_share`: then rivals are only looked for where they may be too near. Without it, also those are that
        have half of the rejected entries, but less thoroughly.

    Returns
    -------
    winner, rival : int64 arrays (u,)
        The rival is 0 if it has no more entries than any r + 1 of them would give.
    """
    winner, rival = np.zeros((2, len(units)), dtype=np.int64)
    for start, stop in zip(*_edges(block.counts[units]), strict=True):
        here = block.take_units(units[start:stop]).to(basis)
        a = bring(coefficients[start:stop, :], basis)
        winner[start:stop], rejected = _split(here, a, basis, usable, schedule.floor)
        if share is None:
            rest = (ids[start:stop], basis, schedule, kernels, chunk_bytes, _MIXED, _SUBSETS)
            rival[start:stop] = _largest_consensus(rejected, *rest)
            continue
        near = np.flatnonzero(_too_near(winner[start:stop], rejected.counts, share))
        if near.size:
            rest = (ids[start + near], basis, schedule, kernels, chunk_bytes, _PURE, _MOST_SUBSETS)
            rival[start + near] = _largest_consensus(rejected.take_units(near), *rest)
    rival[rival < basis.shape[1] + 2] = 0
    return winner, rival


def _edges(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    edges = pieces(counts, _AT_ONCE)
    return edges[:-1], edges[1:]


def _split(block: Block, a: Array, basis: Array, usable: Array, floor: float) -> tuple[np.ndarray, Block]:
    """How many entries of each unit agree with its solution, and a block of those that clearly do not."""
    xp = array_namespace(basis)
    fit = xp.sum(take_rows(basis, block.index) * take_rows(a, block.unit_of_entry()), axis=1)
    distance = xp.abs(block.value - fit)
    counts = gather(usable, block.index) > 0
    winner = _ends(block, counts & (distance < floor))
    out = counts & (distance >= _CLEAR * floor)
    rejected = Block(_ends(block, out), block.index[out], block.value[out], block.length)
    return np.diff(to_numpy(winner)), rejected


def _ends(block: Block, chosen: Array) -> Array:
    """The `indptr` of a block that has only the entries `chosen` (bool)."""
    xp = array_namespace(chosen)
    total = xp.cumulative_sum(xp.astype(chosen, xp.int64), include_initial=True)
    return gather(total, block.indptr)


def _largest_consensus(
    block: Block,
    ids: np.ndarray,
    basis: Array,
    schedule: Schedule,
    kernels: Kernels,
    chunk_bytes: int | None,
    share: float,
    most_subsets: int,
) -> np.ndarray:
    """The largest number of entries of each unit that some solution agrees with, as far as random subsets find it if a
    `share` of them does."""
    number = int(min(5 / share ** basis.shape[1], most_subsets)) + 1
    first = FitPass(schedule, 0.0)
    found = [
        to_numpy(kernels.regress_all(block, basis, fit_pass, chunk_bytes, ids)[1])[:, Column.N_INLIERS]
        for fit_pass in (first, again(first, 0.7, "subsets", number))
    ]
    return np.maximum(*found).astype(np.int64)


def consensus_share(winner: np.ndarray, rival: np.ndarray) -> float:
    """Share of the outliers that agree among all that agree with something."""
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

    Those held out of the fit, about a share `holdout`, have a vote, too. Where outliers come together, a unit has fewer
    inliers than the `typical` share of them.
    """
    most = d.n_obs / (1 - holdout) + 2 - d.n_inliers
    near = d.n_inliers - most <= margin(share)
    return np.flatnonzero((d.status == OK) & (near | (thin(d, typical, 1.0) & _too_near(d.n_inliers, most, share))))


def contested(d: UnitDiagnostics, units: np.ndarray, winner: np.ndarray, rival: np.ndarray, share: float) -> UnitDiagnostics:
    """Mark those of the `units` whose rival is too near."""
    status = d.status.copy()
    status[units[(rival > 0) & _too_near(winner, rival, share)]] = CONTESTED
    return replace(d, status=status)


def _too_near(winner: np.ndarray, rival: np.ndarray, share: float) -> np.ndarray:
    """Whether the lead of a winner may be chance; a rival with far more votes than the usual `share` has its own."""
    lead, own = winner - rival, rival / np.maximum(winner + rival, 1)
    near = lead <= margin(share)
    unclear = ~near & (lead <= margin(np.maximum(own, share)))
    # the chance of at least so many among all votes, as an incomplete beta function, which takes fractions, too
    typical = min(max(share, _LEAST_SHARE), _MOST_SHARE)
    near[unclear] = betainc(np.maximum(rival[unclear], 1e-3), winner[unclear] + 1, typical) < _CHANCE
    return np.asarray(near)
