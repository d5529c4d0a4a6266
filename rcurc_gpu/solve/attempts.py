"""One try at a core, and how tries are compared."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.recheck import CheckedCore
from ..judge.words import Evidence, Verdict
from ..samples.cross import CoreView, CrossSamples

NOISELESS = 1e-6  # noise relative to the entries below which there is none to speak of


@dataclass(frozen=True, eq=False)
class Attempt:
    """A core at one rank and gamma, with what is known of it."""

    checked: CheckedCore
    evidence: Evidence
    verdict: Verdict
    gamma: float

    def score(self) -> tuple[bool, bool, float, int]:
        """Smaller is better; single rows and columns are the least that can be wrong."""
        lost = self.verdict.cause != "undetermined"
        return not self.verdict.ok, lost, round(self.evidence.unexplained, 3), self.checked.n_undetermined


def resigned(last: list[Attempt], typical: float) -> bool:
    """Whether single rows or columns are all that is wrong with the last two tries, in noise or because others contest
    them, and the second mended few."""
    if len(last) < 2 or any(attempt.verdict.cause != "undetermined" for attempt in last):
        return False
    first, second = (attempt.checked for attempt in last)
    noisy = second.core.sigma > NOISELESS * typical
    return (noisy or second.only_contested) and second.n_undetermined > 0.8 * first.n_undetermined


def no_threshold(samples: CrossSamples | CoreView) -> float:
    """A threshold that no residual exceeds."""
    return 1e6 * max(samples.largest)
