"""What can be wrong with a result, with the figures behind it and the sentence made of both.

A sentence names arguments through a `Wording`, so that the command line can name its options instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import Wording
from ..extend.diagnostics import Summary
from ..samples.choosing import NEEDED_PER_RANK
from .causes import Cause, Evidence

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
        "of the fitted ones): the rank may be wrong, there may be too many outliers, or the threshold may have fallen too "
        "fast{decay}."
    ),
    Cause.TOO_MANY_OUTLIERS: (
        "Only {e.held_share:.0%} of the held-out entries that are not about 0 agree with the solution{chance}: with so many "
        "taken for outliers, a wrong solution cannot be told from the right one; observe more, or leave out rows and "
        "columns of zeros."
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
            patience = f": raise {words('max_iter')}, or let the threshold fall more slowly ({gamma} now)"
        needed = NEEDED_PER_RANK * self.rank
        chance = (
            f" ({self.evidence.beyond_chance:.0%} beyond chance, as there are few different values)"
            if self.evidence.has_few_values
            else ""
        )
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
    new: bool = False  # columns or rows that were not part of the solve
    cause = Cause.UNDETERMINED

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        parts = []
        for name, units in (("columns", self.columns), ("rows", self.rows)):
            if units.n_undetermined:
                reasons = "; ".join(f"{count:,}: {reason}" for reason, count in units.reasons().items())
                of = f"{units.n_units:,} {'new ' * self.new}{name}"
                parts.append(f"{units.n_undetermined:,} of {of} (the first is {units.first}; {reasons})")
        fate, cure = {
            "prior": ("filled in with values typical of the others", f" (NaN with {words('undetermined', 'nan')})"),
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
                f"The observations do not determine the matrix: {rows} and {cols} can change together without changing any "
                f"entry that was observed; observe more entries, above all in {rows} and {cols} with few."
            )
        groups = ", ".join(f"{m:,} x {n:,}" for m, n in self.sizes)
        where = ", in result.groups" if words.has("groups") else ""
        # a fifth: of problems of rank 1 to 6 with 20 to 60 % seen inside of two groups all ten were then recovered; with a
        # block in a corner, of 80 rows and columns in groups of 500, they are not
        return (
            f"{rows.capitalize()} and {cols} fall into {len(self.sizes)} groups ({groups}{where}) that hardly any "
            "observation ties together: these data do not determine the entries between the groups, so do not use the "
            f"values given there; entries inside a group can be recovered. Observe entries between the groups, in {rows} "
            f"and {cols} of all kinds: a fifth of the share that was seen inside of the groups is usually enough."
        )


# Where the rejected are a further component, and what to try.
_COMPONENT_TEXTS = {
    ("columns",): ("columns outside of the chosen ones share", "choose more columns, ask for a larger rank"),
    ("rows",): ("rows outside of the chosen ones share", "choose more rows, ask for a larger rank"),
    ("columns", "rows"): (
        "rows and columns outside of the chosen ones share",
        "choose more rows and columns, ask for a larger rank",
    ),
    ("new columns",): ("the new columns share", "solve again with some of them among the columns, and a larger rank"),
    ("new rows",): ("the new rows share", "solve again with some of them among the rows, and a larger rank"),
}


@dataclass(frozen=True)
class StructuredOutliers:
    """What was taken for outliers is a further component; `places` are those of `Structure.components`, or new ones."""

    places: tuple[str, ...]
    cause = Cause.STRUCTURED

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        where, cure = _COMPONENT_TEXTS.get(self.places, ("the chosen rows and columns share", "ask for a larger rank"))
        if words.has("outliers"):
            cure += f", or pass {words('outliers', 'structured')} if that is expected"
        return f"What was taken for outliers has structure of its own ({where} a further component): {cure}."


@dataclass(frozen=True)
class MoreRejected:
    """New columns or rows reject far more of their observations than those of the solve.

    Attributes
    ----------
    units : str
        "columns" or "rows".
    share, usual : float
        Share of the rejected observations, among the new ones and in the solve.
    numbers : tuple of ints
        The new ones that do so; empty if only all of them together show it.
    """

    units: str
    share: float
    usual: float
    numbers: tuple[int, ...]
    cause = Cause.STRUCTURED

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong and what to try."""
        some = f" (the first is {self.numbers[0]}, {len(self.numbers):,} in all)" if self.numbers else ""
        return (
            f"New {self.units}{some} reject far more of their observations than those of the solve did ({self.share:.0%} "
            f"instead of {self.usual:.1%}): they may have a component of their own; solve again with some of them among the "
            f"{self.units}."
        )


@dataclass(frozen=True)
class UnconfirmedSolve:
    """The solve behind new columns or rows is not confirmed, and says why."""

    cause: Cause
    message: str

    def sentence(self, words: Wording, chosen: bool) -> str:
        """What is wrong."""
        return f"The solve itself is not confirmed: {self.message}"
