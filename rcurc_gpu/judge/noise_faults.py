"""What can be wrong with a result of the noise model, and what is said of it if nothing is; as in `faults`."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Wording
from ..extend.diagnostics import Summary
from .causes import Cause


@dataclass(frozen=True)
class NothingFound:
    """What was found is hardly better than nothing; `drowned` if there is no component in it, and noise is larger."""

    expected_error: float
    drowned: bool = False
    cause = Cause.UNEXPLAINED

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        if self.drowned:
            return (
                "No component was found, and what is left is larger than what offsets of rows and columns explain: it may "
                "be noise, or a matrix that takes more observations to find."
            )
        return (
            f"The matrix is hardly known: its entries are uncertain by about {self.expected_error:.0%} of their size; "
            "observe more of them."
        )


@dataclass(frozen=True)
class MoreComponents:
    """The residuals have a component for which the rank asked for left no room."""

    rank: int
    cause = Cause.RANK_TOO_SMALL

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        return (
            f"Rank {self.rank} is too small: structure beyond it is left in the residuals; ask for a larger rank or "
            f"{words('rank', 'auto')}."
        )


@dataclass(frozen=True)
class TooFewHeld:
    """Hardly anything was held out of the fit, so that nothing confirms it."""

    n_held: int
    cause = Cause.TOO_FEW_OBSERVATIONS

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        return (
            f"Too few observations to confirm anything: only {self.n_held} could be held out of the fit; observe more, or "
            f"hold more of them out ({words('holdout')})."
            if words.has("holdout")
            else f"Too few observations to confirm anything: only {self.n_held} could be held out of the fit; observe more."
        )


@dataclass(frozen=True)
class StillMoving:
    """The sweeps of the noise model did not come to rest."""

    n_sweeps: int
    cause = Cause.NOT_SETTLED

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        more = f"; allow more {words('sweeps')}" if words.has("sweeps") else ""
        return f"The noise model had not settled after {self.n_sweeps} sweeps{more}."


@dataclass(frozen=True)
class Astray:
    """Rows or columns reject nearly all of their observations, and most of the matrix may be in them (`share`)."""

    share: float
    cause = Cause.UNDETERMINED

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        size = f"{self.share:.0%}" if self.share < 10 else f"{self.share:.0f} times"
        return (
            "In some rows or columns nearly all observations look like outliers. If they are right, these rows or columns "
            f"have another scale than the rest, and the matrix is off by {size} of its size; rescale them, or leave "
            "them out."
        )


@dataclass(frozen=True)
class Replaced:
    """A `share` of the observations has one value, wherever the matrix is."""

    share: float
    cause = Cause.TOO_MANY_OUTLIERS

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        return (
            f"{self.share:.0%} of the observations have the same value, even where the others contradict it: it seems "
            "to mark missing entries. Leave these observations out."
        )


@dataclass(frozen=True)
class WronglySure:
    """Held-out entries are not where the noise model expects them."""

    factor: float
    cause = Cause.OVERFIT

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        size = "larger" if self.factor > 1 else "smaller"
        ratio = max(self.factor, 1 / max(self.factor, 1e-300))
        return (
            f"Held-out entries do not agree with the predicted uncertainty: their residuals are {ratio:.1f} times {size} "
            "than predicted. Intervals were corrected by that, but the noise may not be what the model assumes; look at "
            "the data."
        )


@dataclass(frozen=True)
class Noisy:
    """What is said of a result with noise.

    Attributes
    ----------
    prediction_error : float
    better : float
        Error of offsets alone over that of the model, on held-out entries; 0 if that is not known.
    columns, rows : Summary
    """

    prediction_error: float
    better: float
    columns: Summary
    rows: Summary

    def sentence(self, expected_error: float, words: Wording) -> str:
        """How good the result is."""
        text = (
            f"Converged; the matrix is known to about {expected_error:.2g} of its size, and new observations are predicted "
            f"to about {self.prediction_error:.2g}"
        )
        if self.better:
            times = f"{self.better:.2g}" if self.better < 100 else f"{self.better:,.0f}"
            text += f", {times} times as well as by offsets of rows and columns alone"
        few = [
            f"{units.n_undetermined:,} of {units.n_units:,} {name}"
            for name, units in (("columns", self.columns), ("rows", self.rows))
            if units.n_undetermined
        ]
        if few:
            text += f"; {' and '.join(few)} have too few observations of their own and get typical values"
        return text + "."
