"""What is typical of the units of a side, and what the others are compared with (`backends.plain.verdicts` has the rules).

The typical numbers are medians from counts, and counts add up: parts of the units, wherever they are, give the same medians
as all units at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..backends.plain.evidence import BasisFacts
from ..backends.plain.regression import Schedule
from ..backends.plain.verdicts import BINS, DOUBTFUL, FAILED, WIDEST, Limits

# Share of doubtful units from which the basis is wrong, and not the units. Then fitting them again is in vain, and costs
# more than the first pass.
_MANY = 0.3
_FEW = 16  # so many may always be fitted again: of few units a large share may be doubtful by chance, and they cost little
# Exact agreements that prove a solution, at least; values such as whole numbers agree more often.
_LEAST_PROOF = 4
# Units up to which one more than unknowns is enough: so many agree by chance in one unit of ten thousand. On crosses these
# units decide: 4.2 observations per unknown, 20 % outliers, n = 400: 14 instead of 9 of 20 problems recovered. Of a million
# units with 30 observations each, some of those that were believed were wrong, and the matrix off by 0.4 %.
_MANY_UNITS = 10_000
_COHERENT = 0.1  # share of a component in one position, from which one that is known by this position alone may look usual
_INCOHERENT = 1e300  # not infinite: times 0 observations it is 0


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
    n_units : int
        How many there are.
    """

    share: float
    spread: float
    again: bool = False
    subsets: bool = False
    n_units: int = 0


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


def typical_of(counts: Tally, floor: float) -> Typical:
    """The medians."""
    return typical_by(np.asarray([_median(counts.shares), _median(counts.spreads)]), floor)


def typical_by(medians: np.ndarray, floor: float) -> Typical:
    """The same from the bins of the medians, and how many units were counted (2, 2): shares first, then spreads."""
    (share, n_share), (spread, n_spread) = medians.tolist()
    # of none, a share of 1 and no spread
    numbers = (share / BINS if n_share else 1.0, spread / BINS * WIDEST * floor if n_spread else 0.0)
    return Typical(*numbers, n_units=int(n_spread))


def _median(counts: np.ndarray) -> tuple[float, float]:
    """The bin of the median, and the total."""
    total = np.cumsum(counts)
    return float(np.searchsorted(total, 0.5 * total[-1])), float(total[-1])


def in_doubt(bits: np.ndarray) -> np.ndarray:
    """How many units are doubtful, have too few inliers, and are there at all (3,); these numbers add up."""
    return np.asarray([np.count_nonzero(bits & DOUBTFUL), np.count_nonzero(bits & FAILED), len(bits)])


def with_gates(typical: Typical, doubts: np.ndarray) -> Typical:
    """`typical`, with what the counts of `in_doubt` allow: when many units fail, fitting them again is in vain."""
    n_doubtful, n_failed, n_units = map(int, doubts)
    most = max(_MANY * n_units, _FEW)
    again = n_doubtful <= most
    return replace(typical, again=again, subsets=again or n_failed <= most)


@dataclass(frozen=True)
class Comparison:
    """What `Limits` are made of, beside what is typical: the same for all units of a side.

    Attributes
    ----------
    rank : int
    schedule : Schedule
    length, coherence : float
        Of the basis: see `Limits`.
    holdout : float
    consensus : float, optional
        None if rivals are not sought.
    mended : bool
    """

    rank: int
    schedule: Schedule
    length: float
    coherence: float
    holdout: float
    consensus: float | None
    mended: bool = True

    def limits(self, typical: Typical) -> Limits:
        """What units are compared with."""
        s, contests = self.schedule, self.consensus is not None
        consensus = 0.0 if self.consensus is None else float(self.consensus)
        medians, thresholds = (float(typical.share), float(typical.spread)), (float(s.floor), float(s.zeta0))
        basis, proof = (self.length, self.coherence), max(self.rank + 1 + (typical.n_units > _MANY_UNITS), _LEAST_PROOF)
        return Limits(self.rank, *medians, *thresholds, *basis, float(self.holdout), consensus, contests, self.mended, proof)


def geometry(basis: BasisFacts) -> tuple[float, float]:
    """The `length` and the `coherence` of `Limits`, of an orthonormal basis."""
    return max(basis.n_usable, 1.0), coherence_of(basis)


def coherence_of(basis: BasisFacts) -> float:
    """The `coherence` of `Limits`, of an orthonormal basis."""
    return 1 / (basis.length * basis.largest) if basis.largest > _COHERENT else _INCOHERENT
