"""Causes of doubt, and what was measured about a core."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

USELESS = 0.3  # relative error of the matrix from which its numbers say next to nothing


class Cause(str, Enum):
    """What is wrong with a result, in a word or two."""

    NONE = ""
    DIVERGED = "diverged"
    TOO_FEW_OBSERVATIONS = "too few observations"
    RANK_TOO_LARGE = "rank too large"
    UNEXPLAINED = "unexplained"
    UNIDENTIFIED = "unidentified"
    RANK_TOO_SMALL = "rank too small"
    OVERFIT = "overfit"
    TOO_MANY_OUTLIERS = "too many outliers"
    NOT_SETTLED = "not settled"
    STRUCTURED = "structured outliers"
    NOISE = "noise"
    UNDETERMINED = "undetermined"

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(frozen=True)
class Evidence:
    """What was measured about a core.

    Attributes
    ----------
    unexplained : float
        Lower quartile of the held-out residuals over that of the observations: 0 is perfect, 1 explains nothing.
    held_share, fit_share : float
        Share of held-out and of fitted entries that agree with the solution.
    supported : int
        Number of singular components that the held-out entries confirm.
    missing : float
        Size of the largest structure left in the residuals, relative to X; 0 if there is none beyond noise, or too
        little to matter.
    informative_share : float
        Share of the held-out entries that tell something: that are, or are said to be, larger than the threshold.
    n_held : int
        Held-out entries that tell something; 0 if there are too few of them, and the fitted ones were looked at.
    beyond_chance : float
        Share of the entries that agree beyond those that would by chance, which are many if there are few values.
    near_square : float, optional
        Mean square of the residuals of fitted entries that are noise, as in `Measured`; None if it was not measured.
    """

    unexplained: float
    held_share: float
    fit_share: float
    supported: int
    missing: float
    informative_share: float
    n_held: int
    beyond_chance: float = 1.0
    near_square: float | None = None

    @property
    def has_few_values(self) -> bool:
        """Whether many entries agree by chance: a tenth of those that do not agree otherwise."""
        return self.held_share - self.beyond_chance > 0.1 * (1 - self.beyond_chance)
