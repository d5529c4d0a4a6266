"""``rank="auto"``: the rank whose core predicts held-out entries best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .judge import Evidence

_NUMERICALLY_ZERO = 1e-6  # held-out errors below this are all the same
_WORTH = 0.9  # a larger rank has to bring the held-out error below this share of the smaller one's


@dataclass(frozen=True)
class RankCurve:
    """Held-out error by rank.

    Attributes
    ----------
    ranks : list of int
        The ranks that were tried, ascending.
    errors : list of float
        Lower quartile of the held-out residuals over that of the observations.
    chosen : int
    """

    ranks: list[int]
    errors: list[float]
    chosen: int


def choose_rank(evaluate: Callable[[int], Evidence], largest: int) -> RankCurve:
    """Double the rank until the held-out entries stop gaining, then bisect.

    Parameters
    ----------
    evaluate : callable
        Solves the core at a rank and says how it did.
    largest : int
        No rank above this is tried.
    """
    seen: dict[int, float] = {}

    def error(rank: int) -> float:
        if rank not in seen:
            evidence = evaluate(rank)
            seen[rank] = max(evidence.unexplained, _NUMERICALLY_ZERO)
            # components that nothing confirms: the rank is at most the number of the others
            if 0 < evidence.supported < rank:
                seen[rank] = max(seen[rank], 1.0)
                error(evidence.supported)
        return seen[rank]

    low, rank, worse = 1, 1, 0
    best = error(1)
    while rank < largest and best > _NUMERICALLY_ZERO and worse < 2:
        rank = min(2 * rank, largest)
        now = error(rank)
        worse = 0 if now < _WORTH * best else worse + 1
        if now < best:
            low, best = rank, now
    # the smallest rank that is as good as the best, between the last clearly worse one and the best
    best = min(seen.values())
    high = min(k for k, e in seen.items() if e <= best / _WORTH)
    low = max((k for k in seen if k < high), default=high)
    above = min((k for k in seen if k > high), default=high)
    if best > _NUMERICALLY_ZERO and above > high + 1:
        low, high = _climb(error, high, above)
    while high - low > 1:
        middle = (low + high) // 2
        if error(middle) <= error(high) / _WORTH:
            high = middle
        else:
            low = middle
    best = min(seen.values())
    chosen = min(k for k, e in seen.items() if e <= best / _WORTH)
    ranks = sorted(seen)
    return RankCurve(ranks, [seen[k] for k in ranks], chosen)


def _climb(error: Callable[[int], float], high: int, above: int) -> tuple[int, int]:
    """The best rank may lie between two powers of two: walk up from `high` by halving steps."""
    low = high
    step = (above - high) // 2
    while step >= 1:
        if high + step < above and error(high + step) < _WORTH * error(high):
            low, high = high, high + step
        step //= 2
    return low, high
