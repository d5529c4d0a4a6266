"""``rank="auto"``: the rank whose core predicts held-out entries best."""

from __future__ import annotations

from collections.abc import Callable

from ..core.history import RankCurve
from .causes import Evidence

_NUMERICALLY_ZERO = 1e-6  # held-out errors below this are all the same
WORTH = 0.9  # a larger rank has to bring the held-out error below this share of the smaller one's


class _Search:
    """Solves each rank once."""

    def __init__(self, evaluate: Callable[[int], Evidence], structure: float, zero: float) -> None:
        self.evaluate, self.structure, self.zero = evaluate, structure, zero
        self.seen: dict[int, Evidence] = {}

    def __call__(self, rank: int) -> Evidence:
        if rank not in self.seen:
            self.seen[rank] = self.evaluate(rank)
            # components that nothing confirms: the rank is at most the number of the others
            if 0 < self.seen[rank].supported < rank:
                self(self.seen[rank].supported)
        return self.seen[rank]

    def sound(self, rank: int) -> bool:
        """Whether every component is confirmed."""
        return self(rank).supported >= rank

    def error(self, rank: int) -> float:
        return max(self(rank).unexplained, self.zero)

    def candidates(self) -> list[int]:
        """Ranks that were tried, are sound and leave no structure; the sound ones, or all, if there is none."""
        sound = sorted(k for k in self.seen if self.sound(k))
        return [k for k in sound if self(k).missing <= self.structure] or sound or sorted(self.seen)

    def exact(self) -> bool:
        return any(self.error(k) <= self.zero and self.sound(k) and self(k).missing <= self.structure for k in self.seen)

    def in_vain(self, rank: int) -> bool:
        """Whether a smaller rank left nothing but noise, and this one does not make it less."""
        smaller = [k for k in self.seen if k < rank and self.sound(k) and self(k).missing <= self.structure]
        return any(self.error(k) < 0.8 and self.error(rank) > WORTH * self.error(k) for k in smaller)

    def best(self) -> int:
        """The smallest sound rank that is as good as any."""
        least = min(self.error(k) for k in self.candidates())
        return min(k for k in self.candidates() if self.error(k) <= least / WORTH)


def choose_rank(evaluate: Callable[[int], Evidence], largest: int, structure: float = 0.0, zero: float = 0.0) -> RankCurve:
    """Double the rank while the held-out entries confirm it, then bisect.

    Parameters
    ----------
    evaluate : callable
        Solves the core at a rank and says how it did.
    largest : int
        No rank above this is tried.
    structure : float
        What may be left in the residuals, relative to the matrix, and still be called noise.
    zero : float
        Held-out errors below this are as good as none.
    """
    search = _Search(evaluate, structure, max(zero, _NUMERICALLY_ZERO))
    rank, failed = 1, 0
    while not search.exact():
        # At a small rank nothing may be confirmed although a larger one explains everything: go on a little.
        failed = 0 if search.sound(rank) else failed + 1
        if rank == largest or (failed >= 2 and rank >= 16) or (failed and search.error(search.best()) < 0.8):
            break
        # Outliers that move together, as people in a video do, are confirmed as components up to any rank.
        if search.in_vain(rank):
            break
        rank = min(2 * rank, largest)
        search(rank)
    if not search.exact():
        _bisect(search, lambda k: search.sound(k))  # the largest rank that is confirmed
        _bisect(search, lambda k: search.error(k) > search.error(search.best()) / WORTH)  # the smallest that is good enough
    ranks = sorted(search.seen)
    return RankCurve(ranks, [search.error(k) for k in ranks], [search.seen[k].supported for k in ranks], search.best())


def _bisect(search: _Search, below: Callable[[int], bool]) -> None:
    """Try ranks until the edge of `below`, true for small ranks, is found between two neighbours."""
    while not search.exact():
        low = max((k for k in search.seen if below(k)), default=None)
        high = min((k for k in search.seen if low is not None and k > low), default=None)
        if low is None or high is None or high - low <= 1:
            break
        search((low + high) // 2)
