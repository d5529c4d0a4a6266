"""What is typical of the units of a side, and which units are not typical: they are fitted again, or not believed.

The typical numbers are medians from counts, and counts add up: parts of the units, wherever they are, give the same medians
as all units at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..backends.plain.regression import Schedule
from .diagnostics import OK, TOO_FEW_INLIERS, TOO_FEW_OBSERVATIONS, UnitDiagnostics

# Where zeta of a regression stops, in standard deviations of the noise: 6e-5 of normal noise lies beyond. Without a floor,
# regressions run on a handful of entries: the background of a real video came out at 29 dB instead of 51 to 53 dB.
FLOOR_SIGMAS = 4.0
_BINS = 4096  # of shares from 0 to 1, and of spreads: medians are known to 1/4096, and the counts of a shard stay small
_WIDEST = 4.0  # thresholds up to which spreads are counted; inliers lie within one, so a typical spread is far below
# Share of doubtful units from which the basis is wrong, and not the units. Then fitting them again is in vain, and costs
# more than the first pass.
_MANY = 0.3
_EXACT = 1e-6  # floor over zeta_0 below which entries do not agree by chance; float64's rounding alone gives 3e-9
_LEAST_PROOF = 4  # exact agreements that prove a solution
_SHAKY = 1e3  # error over the spread of the inliers from which a few inliers do not tell all unknowns; 10 is usual
_FEW = 16  # so many may always be fitted again: of few units a large share may be doubtful by chance, and they cost little


@dataclass(frozen=True)
class Typical:
    """What is typical of the units of a block.

    Attributes
    ----------
    share : float
        Share of inliers among the observations in the fit.
    spread : float
        Standard deviation of the inlying residuals.
    again : bool
        Whether doubtful units are few enough to fit them again.
    subsets : bool
        Whether units with too few inliers are few enough to try random subsets of their entries.
    """

    share: float
    spread: float
    again: bool = False
    subsets: bool = False


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts from which medians are taken; tallies of parts add up.

    Attributes
    ----------
    shares, spreads : int64 arrays (4097,)
        Units by their share of inliers, and by the spread of these.
    """

    shares: np.ndarray
    spreads: np.ndarray

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.shares + other.shares, self.spreads + other.spreads)

    def packed(self) -> dict[str, np.ndarray]:
        """Both by name, each as one vector: how many counts there are, where they are not 0, and the counts there.

        Most are 0, and tallies travel over the network.
        """
        packed = {}
        for name, counts in (("shares", self.shares), ("spreads", self.spreads)):
            places = np.flatnonzero(counts)
            packed[name] = np.concatenate([[len(counts)], places, counts[places]])
        return packed

    @classmethod
    def unpacked(cls, packed: dict[str, np.ndarray]) -> Tally:
        """What `packed` gave."""

        def unpack(numbers: np.ndarray) -> np.ndarray:
            counts = np.zeros(numbers[0], dtype=np.int64)
            places, there = np.split(numbers[1:], 2)
            counts[places] = there
            return counts

        return cls(unpack(packed["shares"]), unpack(packed["spreads"]))


def tally(d: UnitDiagnostics, floor: float) -> Tally:
    """Count units by share and spread; `floor` is the threshold of their regressions."""
    enough = d.status != TOO_FEW_OBSERVATIONS
    share = d.n_inliers[enough] / d.n_obs[enough]
    spread = np.minimum(d.spread / (_WIDEST * floor), 1.0) if floor > 0 else np.zeros(len(d.spread))
    return Tally(_counted(share), _counted(np.where(np.isfinite(spread), spread, 1.0)))


def _counted(x: np.ndarray) -> np.ndarray:
    return np.bincount(np.rint(x * _BINS).astype(np.int64), minlength=_BINS + 1)


def typical_of(counts: Tally, floor: float) -> Typical:
    """The medians."""
    share, spread = _median(counts.shares), _median(counts.spreads)
    return Typical(1.0 if share is None else share, 0.0 if spread is None else spread * _WIDEST * floor)


def _median(counts: np.ndarray) -> float | None:
    """Of numbers from 0 to 1; None of none."""
    total = np.cumsum(counts)
    return float(np.searchsorted(total, 0.5 * total[-1])) / _BINS if total[-1] else None


def in_doubt(d: UnitDiagnostics, typical: Typical, rank: int, schedule: Schedule) -> np.ndarray:
    """How many units are doubtful, have too few inliers, and are there at all (3,); these numbers add up."""
    marked = mark(d, typical, rank)
    failed = np.count_nonzero(marked.status == TOO_FEW_INLIERS)
    return np.asarray([len(doubtful(marked, typical, rank, schedule)), failed, len(d.status)])


def with_gates(typical: Typical, doubts: np.ndarray) -> Typical:
    """`typical`, with what the counts of `in_doubt` allow: when many units fail, fitting them again is in vain."""
    n_doubtful, n_failed, n_units = map(int, doubts)
    most = max(_MANY * n_units, _FEW)
    again = n_doubtful <= most
    return replace(typical, again=again, subsets=again or n_failed <= most)


def doubtful(d: UnitDiagnostics, typical: Typical, rank: int, schedule: Schedule) -> np.ndarray:
    """Units whose solution may be wrong: fewer inliers than chance leaves them at the typical share, or inliers that spread
    wider than the noise."""
    # 2.5 and 4 standard deviations: 0.6 % of the units by chance, and fitting a unit again in vain is cheap
    atypical = (thin(d, typical.share, 2.5) & beatable(d, rank, schedule)) | _wide(d, typical, rank, schedule, 4)
    return np.flatnonzero((d.status == TOO_FEW_INLIERS) | ((d.status == OK) & atypical))


def thin(d: UnitDiagnostics, typical: float, deviations: float) -> np.ndarray:
    """Whether a unit has fewer inliers, by some standard deviations, than the typical share leaves by chance."""
    typical = min(typical, 0.95)  # at a share of 1 the binomial has no spread, and a single miss would be too many
    return d.n_inliers < typical * d.n_obs - deviations * np.sqrt(typical * (1 - typical) * d.n_obs)


def beatable(d: UnitDiagnostics, rank: int, schedule: Schedule) -> np.ndarray:
    """Whether a better solution than that of a unit is possible: without noise, two have at most `rank` inliers in common.

    With noise, a near one may have some more. Units that cannot be beaten are not fitted again (the paper's problem: 0.21
    instead of 0.30 s of CPU).
    """
    return (2 * d.n_inliers < d.n_obs + 2 * rank) | _has_noise(schedule)


def _has_noise(schedule: Schedule) -> bool:
    # rounding alone gives a floor of eps^0.5 medians (`CoreSearch.schedule`), 7e-5 zeta_0 in float32
    return schedule.floor > 1e-4 * schedule.zeta0


def _wide(d: UnitDiagnostics, typical: Typical, rank: int, schedule: Schedule, deviations: float) -> np.ndarray:
    """Whether a unit's inliers spread wider than chance gives, beside the noise and beside the typical unit."""
    dof = np.maximum(d.n_inliers - rank, 1)
    return d.spread > max(schedule.floor / FLOOR_SIGMAS, typical.spread) * (1 + deviations / np.sqrt(2 * dof))


def mark(d: UnitDiagnostics, typical: Typical, rank: int) -> UnitDiagnostics:
    """Mark units whose inliers are too few: fewer than rank + 2, or than half of the typical share.

    rank + 1 entries always nearly agree; two more are the least that says anything.
    """
    least = np.maximum(rank + 2, 0.5 * typical.share * d.n_obs)
    few = (d.status != TOO_FEW_OBSERVATIONS) & (d.n_inliers < least)
    return replace(d, status=np.where(few, TOO_FEW_INLIERS, d.status).astype(np.int8))


def mark_atypical(d: UnitDiagnostics, typical: Typical, rank: int, schedule: Schedule) -> UnitDiagnostics:
    """After all passes: a unit with far fewer inliers than typical is believed only if its inliers prove something.

    With noise they have to outnumber the unknowns by far. Without noise a few exact agreements cannot be chance, unless
    they are zeros, which fit a solution of 0.
    """
    rejected = d.n_obs - d.n_inliers
    # In double precision exact agreements are proof, if they are no zeros.
    proof = (schedule.floor < _EXACT * schedule.zeta0) & (d.n_informative >= 0.9 * d.n_inliers)
    # r + 1 of them, one more than unknowns, agree by chance in one unit of ten thousand; not fewer than four, since values
    # such as whole numbers agree more often. On crosses these units decide: 4.2 observations per unknown, 20 % outliers,
    # n = 400: 14 instead of 9 of 20 problems recovered.
    least = np.maximum(np.maximum(rank + 1, _LEAST_PROOF), 0.5 * typical.share * d.n_obs)
    shaky = d.standard_error > _SHAKY * d.spread
    just = (d.status == TOO_FEW_INLIERS) & proof & ~shaky & (d.n_informative >= least) & (d.n_inliers >= rejected)
    status = np.where(just, OK, d.status)
    # Sparse and block-diagonal matrices and rows of zeros were confirmed and wrong without these two rules. Five standard
    # deviations: of millions of units, hardly one is so far below by chance. Half of that is enough where fewer are
    # informative than are rejected.
    doubt = thin(d, typical.share, 5.0) & (d.n_informative < np.maximum(3 * rank, 0.25 * d.n_obs))
    # With 30 % outliers and 36 observations of a unit, one problem in three has a unit with more outliers than inliers.
    doubt = doubt | (thin(d, typical.share, 2.5) & (d.n_informative < np.where(proof, 0.5, 0.8) * rejected))
    if _has_noise(schedule):
        atypical = thin(d, typical.share, 4.5) | (thin(d, typical.share, 2.5) & _wide(d, typical, rank, schedule, 5))
        # with ten inliers for each unknown, a wrong solution would not get so many
        doubt = doubt | (atypical & (d.n_inliers < 10 * rank))
    return replace(d, status=np.where((status == OK) & doubt, TOO_FEW_INLIERS, status).astype(np.int8))
