"""What follows for each unit from the table of its fit pass: what it is like, and whether it is looked at again.

The rules are written once, for one unit or for arrays of them: with arrays this is the plain code, and Numba compiles the
same functions for one unit at a time (`numba.verdict_kernel`). Hence only operators and NumPy's elementwise functions.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

OK, TOO_FEW_OBSERVATIONS, TOO_FEW_INLIERS, ILL_CONDITIONED, CONTESTED = 0, 1, 2, 3, 4  # as in files: never renumber
# What may have to be done with a unit, as bits of a number: fit it again; try random subsets, since its inliers are too few;
# seek a rival; see whether a component rests on one observation, or nothing tells since its inliers have no spread.
DOUBTFUL, FAILED, CONTESTABLE, SKEWED, UNKNOWN = 1, 2, 4, 8, 16
FORMER = 5  # on a device, the status before units were compared is above these bits

# Where zeta of a regression stops, in standard deviations of the noise: 6e-5 of normal noise lies beyond. Without a floor,
# regressions run on a handful of entries: the background of a real video came out at 29 dB instead of 51 to 53 dB.
FLOOR_SIGMAS = 4.0
BINS = 4096  # of shares from 0 to 1, and of spreads: medians are known to 1/4096, and the counts of a shard stay small
WIDEST = 4.0  # thresholds up to which spreads are counted; inliers lie within one, so a typical spread is far below
_EXACT = 1e-6  # floor over zeta_0 below which entries do not agree by chance; float64's rounding alone gives 3e-9
_SHAKY = 1e3  # error over the spread of the inliers from which a few inliers do not tell all unknowns; 10 is usual
# Trace of the inverse normal equations, over what it is by chance, from which a unit is looked at. Where a component rests
# on one observation of n it is about n / r^2, less if that one is large: 2.6 and more on nine rows in ten alike.
_LOPSIDED = 1.6
_BELOW = (
    0.8  # of the trace of such a unit, that others are looked at as well: at 0.99 a column of blocks of zeros was missed
)
_WRONG = 1e-3  # chance that a unit's winner is wrong from which it is not believed; docs/trust.md says so
# Shares of agreeing outliers that are considered. A sample of the core cannot tell less than 2 % from none; at one half, no
# lead would ever be enough.
LEAST_SHARE, MOST_SHARE = 0.02, 0.49


class Column(IntEnum):
    """Columns of the table of a fit pass, which has a row for each unit; the kernels have the same order."""

    N_FIT = 0  # entries in the fit
    N_INLIERS = 1
    SPREAD = 2  # standard deviation of the inlying residuals
    ILL = 3  # 1 if the inliers do not determine the unit (ill-conditioned), else 0
    STANDARD_ERROR = 4  # expected error of the unit from noise alone, in the norm
    N_INFORMATIVE = 5  # inliers that are larger than `FitPass.informative`
    N_HELD = 6  # entries held out
    N_CONSENSUS = 7  # those of them that agree with the solution


class Limits(NamedTuple):
    """What the units of a side are compared with.

    Attributes
    ----------
    rank : int
    share, spread : float
        The typical share of inliers, and the typical spread of these.
    floor, zeta0 : float
        Of the schedule of the regressions.
    length : float
        Positions of a unit that are used.
    coherence : float
        1 over the largest share of a component in one position, times the length; huge if no position tells much.
    holdout : float
        Share of the observations that is held out.
    consensus : float
        Share of the entries that agree on another solution than their unit has.
    contests : bool
        Whether rivals are sought.
    mended : bool
        Whether units that are not typical are fitted again; else only too few inliers, and rivals, count.
    proof : int
        Exact agreements that prove a solution, at least.
    """

    rank: int
    share: float
    spread: float
    floor: float
    zeta0: float
    length: float
    coherence: float
    holdout: float
    consensus: float
    contests: bool
    mended: bool
    proof: int


def pick(condition: Any, x: Any, y: Any) -> Any:
    """`x` where `condition` holds, else `y`."""
    return np.where(condition, x, y)


# ---------------------------------------------------------------- one unit, or arrays of them


def first_status(n_obs: Any, n_inliers: Any, ill: Any, rank: int) -> Any:
    """The status of a unit by itself, before units are compared with each other."""
    # r unknowns fit r observations whatever they are, and r + 1 nearly; two more are the least that says anything
    enough = n_obs >= rank + 2
    return pick(enough, pick((n_inliers >= rank + 2) & (ill > 0), ILL_CONDITIONED, OK), TOO_FEW_OBSERVATIONS)


def share_bin(n_obs: Any, n_inliers: Any) -> Any:
    """In which bin of the tally the share of inliers is counted."""
    return np.rint(n_inliers / n_obs * BINS)


def spread_bin(spread: Any, floor: float) -> Any:
    """In which bin of the tally a spread is counted; `floor` is above 0."""
    wide = spread / (WIDEST * floor)
    return np.rint(pick(wide < 1.0, wide, 1.0) * BINS)  # NaN is not below 1


def thin(n_obs: Any, n_inliers: Any, typical: float, deviations: float) -> Any:
    """Whether a unit has fewer inliers, by some standard deviations, than the typical share leaves by chance."""
    typical = min(typical, 0.95)  # at a share of 1 the binomial has no spread, and a single miss would be too many
    return n_inliers < typical * n_obs - deviations * np.sqrt(typical * (1 - typical) * n_obs)


def has_noise(floor: float, zeta0: float) -> bool:
    """Whether the floor is above that of rounding."""
    # which is eps^0.5 medians (`CoreSearch.schedule`): 7e-5 zeta_0 in float32
    return floor > 1e-4 * zeta0


def beatable(n_obs: Any, n_inliers: Any, rank: int, noisy: bool) -> Any:
    """Whether a better solution than that of a unit is possible: without noise, two have at most `rank` inliers in common.

    With noise, a near one may have some more. Units that cannot be beaten are not fitted again (the paper's problem: 0.21
    instead of 0.30 s of CPU).
    """
    return (2 * n_inliers < n_obs + 2 * rank) | noisy


def wide(n_inliers: Any, spread: Any, at: Limits, deviations: float) -> Any:
    """Whether a unit's inliers spread wider than chance gives, beside the noise and beside the typical unit."""
    dof = np.maximum(n_inliers - at.rank, 1)
    return spread > max(at.floor / FLOOR_SIGMAS, at.spread) * (1 + deviations / np.sqrt(2 * dof))


def marked(status: Any, n_obs: Any, n_inliers: Any, at: Limits) -> Any:
    """The status, where inliers are too few: fewer than rank + 2, or than half of the typical share.

    rank + 1 entries always nearly agree; two more are the least that says anything.
    """
    least = np.maximum(at.rank + 2, 0.5 * at.share * n_obs)
    return pick((status != TOO_FEW_OBSERVATIONS) & (n_inliers < least), TOO_FEW_INLIERS, status)


def doubtful(status: Any, n_obs: Any, n_inliers: Any, spread: Any, at: Limits) -> Any:
    """Whether a solution may be wrong: fewer inliers than chance leaves at the typical share, or inliers that spread wider
    than the noise. `status` is that of `marked`."""
    # 2.5 and 4 standard deviations: 0.6 % of the units by chance, and fitting a unit again in vain is cheap
    better = beatable(n_obs, n_inliers, at.rank, has_noise(at.floor, at.zeta0))
    atypical = (thin(n_obs, n_inliers, at.share, 2.5) & better) | wide(n_inliers, spread, at, 4.0)
    return (status == TOO_FEW_INLIERS) | ((status == OK) & atypical)


def final_status(status: Any, n_obs: Any, n_inliers: Any, n_informative: Any, spread: Any, error: Any, at: Limits) -> Any:
    """After all passes: a unit with far fewer inliers than typical is believed only if its inliers prove something.

    With noise they have to outnumber the unknowns by far. Without noise a few exact agreements cannot be chance, unless
    they are zeros, which fit a solution of 0. `status` is that of `marked`.
    """
    rejected = n_obs - n_inliers
    # In double precision exact agreements are proof, if they are no zeros.
    proof = (at.floor < _EXACT * at.zeta0) & (n_informative >= 0.9 * n_inliers)
    least = np.maximum(at.proof, 0.5 * at.share * n_obs)
    firm = np.logical_not(error > _SHAKY * spread)
    just = (status == TOO_FEW_INLIERS) & proof & firm & (n_informative >= least) & (n_inliers >= rejected)
    status = pick(just, OK, status)
    # Sparse and block-diagonal matrices and rows of zeros were confirmed and wrong without these two rules. Five standard
    # deviations: of millions of units, hardly one is so far below by chance. Half of that is enough where fewer are
    # informative than are rejected.
    thinner = thin(n_obs, n_inliers, at.share, 2.5)
    doubt = thin(n_obs, n_inliers, at.share, 5.0) & (n_informative < np.maximum(3 * at.rank, 0.25 * n_obs))
    # With 30 % outliers and 36 observations of a unit, one problem in three has a unit with more outliers than inliers.
    doubt = doubt | (thinner & (n_informative < pick(proof, 0.5, 0.8) * rejected))
    atypical = thin(n_obs, n_inliers, at.share, 4.5) | (thinner & wide(n_inliers, spread, at, 5.0))
    # with ten inliers for each unknown, a wrong solution would not get so many
    doubt = doubt | (atypical & (n_inliers < 10 * at.rank) & has_noise(at.floor, at.zeta0))
    return pick((status == OK) & doubt, TOO_FEW_INLIERS, status)


def skewed(trace: Any, n: Any, rank: int, coherence: float) -> Any:
    """Whether a unit of `n` observations is to be looked at, since a component may rest on one of them.

    `trace` is that of its inverse normal equations, per unknown, over what it would be if all observations told all
    components alike.
    """
    limit = _LOPSIDED * n / np.maximum(n - rank - 1, 0.5)  # by chance, of normal numbers
    # a component that rests on the position that tells most, and as by chance for the others
    return trace > np.minimum(limit, _BELOW * (n * coherence + rank - 1) / rank)


def margin(share: Any) -> Any:
    """By how many entries a winner has to lead to be believed, where a `share` of the entries agrees on something else.

    With shares q and 1 - q of entries for the wrong solution and for the right one, the odds that a lead of k is that of
    the wrong one are (q / (1 - q))^k.
    """
    share = np.minimum(np.maximum(share, LEAST_SHARE), MOST_SHARE)
    return np.log(1 / _WRONG) / np.log((1 - share) / share)


def unclear(winner: Any, rival: Any, share: float) -> Any:
    """Whether the lead of a winner may be chance, if a rival has its own share, or the typical `share`."""
    return winner - rival <= margin(np.maximum(rival / np.maximum(winner + rival, 1), share))


def contestable(n_obs: Any, n_inliers: Any, typical: float, holdout: float, consensus: float) -> Any:
    """Whether a unit's rejected observations, if all of them agreed, might leave no clear winner.

    Observations held out of the fit, about a share `holdout`, vote too. Where outliers come together, a unit has fewer
    inliers than the `typical` share.
    """
    near = n_inliers - most_rivals(n_obs, n_inliers, holdout) <= margin(consensus)
    # one standard deviation: this only decides where rivals are sought
    thinner = thin(n_obs, n_inliers, typical, 1.0)
    return near | (thinner & unclear(n_inliers, most_rivals(n_obs, n_inliers, holdout), consensus))


def most_rivals(n_obs: Any, n_inliers: Any, holdout: float) -> Any:
    """How many observations at most, held-out ones included, agree on something else."""
    return n_obs / (1 - holdout) + 2 - n_inliers  # + 2: the share that is held out varies a little from unit to unit


def verdict(
    status: Any, n_obs: Any, n_inliers: Any, spread: Any, error: Any, n_informative: Any, at: Limits
) -> tuple[Any, Any]:
    """The status of a unit beside the others, and what may have to be done with it, but for rivals."""
    before = marked(status, n_obs, n_inliers, at)
    again = doubtful(before, n_obs, n_inliers, spread, at) & at.mended
    failed = (before == TOO_FEW_INLIERS) & at.mended
    after = pick(at.mended, final_status(before, n_obs, n_inliers, n_informative, spread, error, at), before)
    ok = after == OK
    blank = ok & np.logical_not(spread > 0) & at.mended
    ratio = error / spread
    trace = ratio * ratio * n_inliers / (at.rank * at.length)
    lone = ok & skewed(trace, n_inliers, at.rank, at.coherence) & at.mended
    return after, DOUBTFUL * again + FAILED * failed + SKEWED * lone + UNKNOWN * blank


# ---------------------------------------------------------------- arrays: the reference for compiled code


def diagnose(table: np.ndarray, rank: int, floor: float, out: tuple[np.ndarray, ...]) -> np.ndarray:
    """Read the table of a fit pass.

    Parameters
    ----------
    table : float array (u, 8)
        See `Column`.
    rank : int
    floor : float
        The threshold of the regressions.
    out : tuple of arrays (u,), the last one (u, 2)
        Status, observations, inliers, spread, standard error and informative inliers, to be written; and how many
        observations were held out, and of these agree.

    Returns
    -------
    counts : int64 array (2, 4097)
        Units by their share of inliers, and by the spread of these; medians are taken from it.
    """
    n_obs, n_in = table[:, Column.N_FIT], table[:, Column.N_INLIERS]
    status = first_status(n_obs, n_in, table[:, Column.ILL], rank)
    columns = (n_obs, n_in, *(table[:, c] for c in (Column.SPREAD, Column.STANDARD_ERROR, Column.N_INFORMATIVE)))
    held = table[:, [Column.N_HELD, Column.N_CONSENSUS]]
    for array, x in zip(out, (status, *columns, held), strict=True):
        array[:] = x
    enough = status != TOO_FEW_OBSERVATIONS
    # in float64 also for a table of float32, or the bins would be others
    spread = table[:, Column.SPREAD].astype(np.float64)
    bins = spread_bin(spread, floor) if floor > 0 else np.zeros(len(spread))
    shares = share_bin(n_obs[enough].astype(np.float64), n_in[enough].astype(np.float64))
    return np.stack([np.bincount(x.astype(np.int64), minlength=BINS + 1) for x in (shares, bins)])


def judge(arrays: tuple[np.ndarray, ...], at: Limits) -> tuple[np.ndarray, np.ndarray]:
    """`verdict` of all units, and whether they may have rivals: status (int8) and bits (uint8).

    `arrays` are those that `diagnose` wrote.
    """
    status, n_obs, n_inliers, spread, error, n_informative = arrays
    with np.errstate(divide="ignore", invalid="ignore"):
        status, bits = verdict(status, n_obs, n_inliers, spread, error, n_informative, at)
    if at.contests:
        bits = bits + CONTESTABLE * ((status == OK) & contestable(n_obs, n_inliers, at.share, at.holdout, at.consensus))
    return status.astype(np.int8), bits.astype(np.uint8)
