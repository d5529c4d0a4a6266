"""What is said of a result: causes, the figures behind them, and the sentences made of both.

A sentence names arguments through a `Wording`, so that the command line can name its options instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..errors import PYTHON, Wording
from ..extend.diagnostics import Summary
from ..samples.choosing import NEEDED_PER_RANK
from .structure import Structure


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
    """

    unexplained: float
    held_share: float
    fit_share: float
    supported: int
    missing: float
    informative_share: float
    n_held: int
    beyond_chance: float = 1.0


# What is wrong with a core, and what to try.
_CORE_TEXTS = {
    Cause.DIVERGED: (
        "The iteration diverged after {p.n_iter} iterations: its steps are too long for these data; choose smaller "
        "step_rows and step_cols."
    ),
    Cause.TOO_FEW_OBSERVATIONS: (
        "Too few observations: no rank-{p.rank} matrix is confirmed by the held-out entries. The intersection has "
        "{p.per_row:.0f} observations per row (median), and about {needed} are needed for this rank; observe more, choose "
        "more rows and columns, or ask for a smaller rank."
    ),
    Cause.RANK_TOO_LARGE: (
        "Rank {p.rank} is too large: the held-out entries confirm only {e.supported} components; ask for rank "
        "{e.supported}{or_auto}."
    ),
    Cause.UNEXPLAINED: (
        "No rank-{p.rank} matrix explains the held-out entries (residuals are {e.unexplained:.0%} of the entries): either "
        "too many of the observations are outliers (about half is the most that can be told apart), or the data are noise, "
        "or the rank is far too small; try another rank{or_auto}, and look at the data."
    ),
    Cause.RANK_TOO_SMALL: (
        "Rank {p.rank} is too small: structure beyond it is left in the residuals; ask for a larger rank{or_auto}."
    ),
    Cause.OVERFIT: (
        "The solution is fitted to chance ({e.held_share:.0%} of the held-out entries agree with it, but {e.fit_share:.0%} "
        "of the fitted ones): the rank may be wrong, there may be too many outliers, or the threshold decayed too fast"
        "{decay}."
    ),
    Cause.TOO_MANY_OUTLIERS: (
        "Only {e.held_share:.0%} of the held-out entries that are not about 0 agree with the solution{chance}: with so many "
        "taken for outliers, a wrong solution cannot be told from the right one; observe more, or leave rows and columns of "
        "zeros out."
    ),
    Cause.NOT_SETTLED: "The iteration had not settled after {p.n_iter} iterations{patience}.",
    Cause.UNDETERMINED: "Some rows or columns of the intersection could not be determined.",
}


@dataclass(frozen=True)
class CoreFault:
    """Something is wrong with the core.

    Attributes
    ----------
    per_row : float
        Median of the observations of a row of the intersection.
    """

    cause: Cause
    rank: int
    per_row: float
    n_iter: int
    gamma: float
    evidence: Evidence

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try; `chosen` if the rank was chosen by the solver."""
        or_auto = "" if chosen else f" or {words('rank', 'auto')}"
        decay, patience = "", "; more observations help"
        if words.has("gamma"):
            gamma = words("gamma", self.gamma)
            decay = f" ({gamma}; nearer to 1 is slower and safer)"
            patience = f": raise {words('max_iter')}, or let the threshold decay more slowly ({gamma} now)"
        needed = NEEDED_PER_RANK * self.rank
        few_values = self.evidence.beyond_chance < 0.9 * self.evidence.held_share
        chance = f" ({self.evidence.beyond_chance:.0%} beyond chance, for there are few values)" if few_values else ""
        text = _CORE_TEXTS[self.cause]
        more = {"or_auto": or_auto, "decay": decay, "patience": patience, "chance": chance}
        return text.format(p=self, e=self.evidence, needed=needed, **more)


@dataclass(frozen=True)
class FittedToChance:
    """Held-out entries of the columns or rows outside of the core do not agree as the fitted ones do."""

    units: str  # "columns" or "rows"
    held_share: float
    fit_share: float
    per_unit: float
    cause = Cause.TOO_FEW_OBSERVATIONS

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong."""
        return (
            f"The {self.units} outside of the core are fitted to chance ({self.held_share:.0%} of their held-out entries "
            f"agree, {self.fit_share:.0%} of the fitted ones): too few observations per {self.units[:-1]} "
            f"({self.per_unit:.0f} on average)."
        )


@dataclass(frozen=True)
class TooNoisy:
    """Noise leaves a larger error than was asked for."""

    expected_error: float
    accuracy: float
    cause = Cause.NOISE

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        return (
            "The iteration settled, but noise, or outliers too many or too small to tell from it, limits the accuracy to "
            f"about {self.expected_error:.1%} ({words('accuracy', self.accuracy)} was asked for): observe more, or pass a "
            f"larger {words('accuracy')} if that is good enough."
        )


@dataclass(frozen=True)
class Undetermined:
    """Some columns or rows could not be determined; `alone` if nothing else is wrong; `filled` is what was put there."""

    columns: Summary
    rows: Summary
    alone: bool
    filled: str = "nan"
    cause = Cause.UNDETERMINED

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        parts = []
        for name, units in (("columns", self.columns), ("rows", self.rows)):
            if units.n_undetermined:
                reasons = "; ".join(f"{count:,}: {reason}" for reason, count in units.reasons().items())
                parts.append(f"{units.n_undetermined:,} of {units.n_units:,} {name} (the first is {units.first}; {reasons})")
        fate, cure = {
            "prior": ("given as what is typical of the others", f" (NaN with {words('undetermined', 'nan')})"),
            "nan": ("NaN in the result", f" (doubtful numbers with {words('undetermined', 'keep')})"),
            "keep": ("kept as guesses", ""),
        }[self.filled]
        if words.has("undetermined"):
            fate += cure
        return (
            f"Not everything could be determined: {' and '.join(parts)}. They are {fate}"
            f"{', the rest is confirmed' if self.alone else ''}; observe more of them, or leave them out."
        )


@dataclass(frozen=True)
class Untied:
    """Rows and columns fall apart into groups that the observations do not tie together.

    Attributes
    ----------
    sizes : tuple of (int, int)
        Rows and columns of each group, as far as it is known.
    names : (str, str)
        What rows and columns are called.
    """

    sizes: tuple[tuple[int, int], ...]
    names: tuple[str, str] = ("rows", "columns")
    cause = Cause.UNIDENTIFIED

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        rows, cols = self.names
        if len(self.sizes) < 2:
            return (
                f"The observations leave it open what the matrix is: {rows} and {cols} can change together without any of "
                f"the observations that agree noticing; observe more entries, above all in {rows} and {cols} with few."
            )
        groups = ", ".join(f"{m:,} x {n:,}" for m, n in self.sizes)
        where = ", in result.groups" if words.has("groups") else ""
        # a fifth: of problems of rank 1 to 6 with 20 to 60 % seen inside of two groups all ten were then recovered; with a
        # block in a corner, of 80 rows and columns in groups of 500, they are not
        return (
            f"{rows.capitalize()} and {cols} fall into {len(self.sizes)} groups ({groups}{where}) that hardly any "
            "observation ties together: what is between the groups cannot be known from these data, whatever is said of it "
            f"here; inside of each group it can. Observe entries between them, in {rows} and {cols} of all kinds: a fifth "
            "of the share that was seen inside of the groups is usually enough."
        )


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
                "No component was found, and what is left is larger than all that offsets explain: it may be noise, or a "
                "matrix that needs more observations to be found."
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
            "than predicted. Intervals were corrected by that, but the noise may be of another kind than modelled; look at "
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
            text += f", {self.better:.2g} times as well as by offsets of rows and columns alone"
        few = [
            f"{units.n_undetermined:,} of {units.n_units:,} {name}"
            for name, units in (("columns", self.columns), ("rows", self.rows))
            if units.n_undetermined
        ]
        if few:
            text += f"; {' and '.join(few)} have too few observations of their own and are near to what is typical"
        return text + "."


# Where the rejected are a further component, and what to try.
_COMPONENT_TEXTS = {
    ("columns",): ("columns outside of the chosen ones share", "choose more columns, ask for a larger rank"),
    ("rows",): ("rows outside of the chosen ones share", "choose more rows, ask for a larger rank"),
    ("columns", "rows"): (
        "rows and columns outside of the chosen ones share",
        "choose more rows and columns, ask for a larger rank",
    ),
}


@dataclass(frozen=True)
class StructuredOutliers:
    """What was taken for outliers is a further component; `places` are those of `Structure.components`."""

    places: tuple[str, ...]
    cause = Cause.STRUCTURED

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        where, cure = _COMPONENT_TEXTS.get(self.places, ("the chosen rows and columns share", "ask for a larger rank"))
        if words.has("outliers"):
            cure += f", or pass {words('outliers', 'structured')} if that is expected"
        return f"What was taken for outliers has structure of its own ({where} a further component): {cure}."


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
    | StillMoving
    | WronglySure
    | StructuredOutliers
)


@dataclass(frozen=True)
class Verdict:
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
        False if every observation was taken for right.
    noise : Noisy or None
        What there is to say of the noise, if there is any.
    structure : Structure or None
        What the rejected observations have in common, if they were looked at.
    """

    faults: tuple[Fault, ...] = ()
    expected_error: float = 0.0
    asked: int = 0
    rank: int = 0
    chosen: bool = False
    outliers: bool = True
    noise: Noisy | None = None
    structure: Structure | None = None

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
            said = [f"Converged; the error expected from what is left in the residuals is {self.expected_error:.1e}."]
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
            said.append("All observations were taken for right; if some are outliers, use rcurc.")
        return " ".join(said)
