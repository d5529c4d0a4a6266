"""The verdict on a result, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import PYTHON, Wording
from ..summary import Summarised, Summary
from .causes import Cause
from .faults import (
    CoreFault,
    FittedToChance,
    MoreRejected,
    StructuredOutliers,
    TooNoisy,
    UnconfirmedSolve,
    Undetermined,
    Untied,
)
from .noise_faults import Astray, MoreComponents, Noisy, NothingFound, Replaced, StillMoving, TooFewHeld, WronglySure
from .structure import Structure

# Something that is wrong: a cause, and the figures that the sentence about it needs.
Fault = (
    CoreFault
    | FittedToChance
    | TooNoisy
    | Undetermined
    | Untied
    | NothingFound
    | TooFewHeld
    | MoreComponents
    | Astray
    | Replaced
    | StillMoving
    | WronglySure
    | StructuredOutliers
    | MoreRejected
    | UnconfirmedSolve
)


@dataclass(frozen=True, repr=False)
class Verdict(Summarised):
    """Whether a result can be trusted.

    Attributes
    ----------
    faults : tuple of Fault
        The worst first; none if all is well.
    expected_error : float
        Relative error to expect from the noise.
    asked, rank : int
        The rank that was asked for and the one that was used; equal if nothing is to be said of them.
    chosen : bool
        Whether the rank was chosen by the solver.
    outliers : bool
        False if every observation was treated as right.
    noise : Noisy or None
        What there is to say of the noise, if there is any.
    structure : Structure or None
        What the rejected observations have in common, if they were looked at.
    structure_expected : bool
        Whether the caller expects them to have something in common.
    """

    faults: tuple[Fault, ...] = ()
    expected_error: float = 0.0
    asked: int = 0
    rank: int = 0
    chosen: bool = False
    outliers: bool = True
    noise: Noisy | None = None
    structure: Structure | None = None
    structure_expected: bool = False

    def _summary(self) -> Summary:
        causes = {"causes": ", ".join(fault.cause.value for fault in self.faults)} if self.faults else {}
        error = {"expected error": f"{self.expected_error:.2g} (relative)"}
        return Summary(causes | {"rank": f"{self.rank}"} | error, self.message, self.ok)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults

    @property
    def cause(self) -> Cause:
        """The cause of the worst fault."""
        return self.faults[0].cause if self.faults else Cause.NONE

    @property
    def message(self) -> str:
        """The verdict in words, for Python."""
        return self.sentence(PYTHON)

    def sentence(self, words: Wording) -> str:
        """The verdict in words: how good the result is, or what is wrong and what to try."""
        said = [fault.sentence(words, self.chosen) for fault in self.faults]
        if self.ok and self.noise is not None:
            said = [self.noise.sentence(self.expected_error, words)]
        elif self.ok:
            said = [f"Converged; the expected error, estimated from the residuals, is {self.expected_error:.1e}."]
        if (
            self.noise is None
            and self.rank < self.asked
            and not self.chosen
            and self.cause in (Cause.NONE, Cause.UNDETERMINED, Cause.NOISE)
        ):
            said.insert(
                0,
                f"Rank {self.asked} was asked for, but the held-out entries confirm only rank {self.rank}, which was used.",
            )
        if self.ok and self.structure is not None and self.structure.crowded:
            said.append(self.structure.sentence)
        if not (self.ok or self.outliers):
            said.append("No observation was treated as an outlier; if some are wrong, use rcurc.")
        return " ".join(said)
