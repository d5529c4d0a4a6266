"""A core that was solved and judged, with all that the rest of the solve needs of it."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from ..backends.arrays import array_namespace, to_numpy
from ..backends.plain.posterior import Noise
from ..backends.plain.regression import Schedule
from ..core.history import RankCurve
from ..core.iteration import Core
from ..extend.diagnostics import CONTESTED, OK, Summary, UnitDiagnostics
from ..judge.causes import Cause, Evidence
from ..judge.expected_error import CoreFacts
from ..judge.groups import Groups
from ..judge.structure import Structure
from ..judge.words import Verdict
from ..noise.model import NoiseFacts, NoiseModel, outlier_threshold
from ..options import Settings
from ..result.uncertainty import Uncertainty
from .store import Arrays

NOISELESS = 1e-6  # noise relative to the entries that counts as none: far below any accuracy asked for
_ROUNDING = 1000.0  # eps that an iteration may leave in the residuals by rounding; that is no noise


@dataclass(frozen=True, eq=False)
class SolvedCore:
    """One attempt at a core, judged.

    Attributes
    ----------
    core : Core
    rows, cols : UnitDiagnostics
        Of its rows and columns.
    schedule : Schedule
        Thresholds of the extension.
    consensus : float, optional
        Share of its entries that agree on another solution than their row and column has; None if outliers are not
        expected.
    evidence : Evidence
    verdict : Verdict
        On the core alone.
    gamma : float
        Decay of its threshold.
    facts : CoreFacts
        What the expected error of everything else follows from.
    settings : Settings
        Of the solve, with the share that was really held out.
    typical_size : float
        Median size of an observation.
    no_threshold : float
        A threshold that no residual exceeds; 0 if outliers are expected.
    device, kernels : str
        Where it was computed, and by which kernels.
    curve : RankCurve or None
        How the rank was chosen, if it was.
    asked : int
        The rank that was asked for, or chosen first.
    chosen : bool
        Whether the solver chose the rank.
    glimpsed : bool
        Whether a first look at the data already showed noise.
    model : NoiseModel or None
        The noise model, if that look was at all data.
    groups : Groups or None
        Groups of the core's rows and columns that are not tied together, if there are any.
    """

    core: Core
    rows: UnitDiagnostics
    cols: UnitDiagnostics
    schedule: Schedule
    consensus: float | None
    evidence: Evidence
    verdict: Verdict
    gamma: float
    facts: CoreFacts
    settings: Settings
    typical_size: float
    no_threshold: float
    device: str
    kernels: str
    curve: RankCurve | None = None
    asked: int = 0
    chosen: bool = False
    glimpsed: bool = False
    model: NoiseModel | None = None
    groups: Groups | None = None

    @property
    def n_undetermined(self) -> int:
        """Rows and columns that are not determined."""
        return len(self.rows.undetermined) + len(self.cols.undetermined)

    @property
    def only_contested(self) -> bool:
        """Whether all rows and columns that are not determined have rivals."""
        status = np.concatenate([self.rows.status, self.cols.status])
        return bool(np.all((status == OK) | (status == CONTESTED)))

    def score(self) -> tuple[bool, bool, float, bool, int]:
        """Smaller is better: confirmed first, then those of which only single rows and columns are wrong.

        Shares of unexplained entries are compared to three digits: beyond these they differ by chance. Of equals an exact
        core is better than one that still moves: of two groups that never met, each may be recovered.
        """
        lost = self.verdict.cause is not Cause.UNDETERMINED
        return not self.verdict.ok, lost, round(self.evidence.unexplained, 3), self.noisy, self.n_undetermined

    @property
    def noisy(self) -> bool:
        """Whether there is noise, so that the noise model finishes the solve."""
        # a resolution is for outliers that move together, as in videos: the model would take them for components
        if self.settings.sweeps == 0 or self.settings.resolution > 0 or self.verdict.cause is Cause.DIVERGED:
            return False
        if self.verdict.cause is Cause.NOT_SETTLED and self.settings.max_iter is not None:
            return False  # it may be exact data: the user ended the iteration
        core = self.core
        rounding = _ROUNDING * float(array_namespace(core.s).finfo(core.s.dtype).eps)
        return self.glimpsed or not core.sigma <= max(NOISELESS, rounding) * self.typical_size

    def on_host(self) -> SolvedCore:
        """The same with its arrays on the host, and without the user's callback."""
        W, s, V = (to_numpy(x) for x in (self.core.W, self.core.s, self.core.V))
        history = [replace(state, make=None) for state in self.core.history]
        core = replace(self.core, W=W, s=s, V=V, history=history)
        return replace(self, core=core, settings=replace(self.settings, callback=None))


def is_exact(attempt: SolvedCore) -> bool:
    """Whether a core is at rest and exact, but for components that are too many or single rows and columns."""
    mostly = attempt.verdict.ok or attempt.verdict.cause in (Cause.RANK_TOO_LARGE, Cause.UNDETERMINED)
    return attempt.core.stopped and mostly and not attempt.noisy


def resigned(last: list[SolvedCore]) -> bool:
    """Whether more attempts are in vain.

    Only single rows or columns are wrong with the last two attempts, because of noise or rivals, and the second attempt
    mended less than a fifth of them.
    """
    if len(last) < 2 or any(attempt.verdict.cause is not Cause.UNDETERMINED for attempt in last):
        return False
    first, second = last
    noisy = second.core.sigma > NOISELESS * second.typical_size
    return (noisy or second.only_contested) and second.n_undetermined > 0.8 * first.n_undetermined


@dataclass(frozen=True, eq=False)
class Extended:
    """All columns ("r") and rows ("c").

    Attributes
    ----------
    parts : dict of lists
        Of the shards of each side, as the engine keeps them; empty if an earlier run put them into files.
    whole, outside : dict of Summary
        Of all units of a side, and of those outside of the core.
    noise : NoiseFacts or None
        What is known of the noise, if it was modelled.
    structure : Structure or None
        What the rejected observations have in common, if they were looked at.
    """

    parts: dict[str, list[Any]]
    whole: dict[str, Summary]
    outside: dict[str, Summary]
    noise: NoiseFacts | None = None
    structure: Structure | None = None

    def as_json(self) -> dict[str, Any]:
        """What is known of it, for a file."""
        told: dict[str, Any] = {}
        for side in "rc":
            named = self.whole[side].named("whole") | self.outside[side].named("outside")
            told[side] = {name: x.tolist() for name, x in named.items()}
        facts = (("noise", self.noise), ("structure", self.structure))
        return told | {name: None if x is None else x.as_json() for name, x in facts}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Extended:
        """What `as_json` gave."""
        whole, outside = ({side: Summary.from_named(told[side], name) for side in "rc"} for name in ("whole", "outside"))
        noise, structure = told.get("noise"), told.get("structure")  # version 0.1 had none
        return cls(
            {},
            whole,
            outside,
            None if noise is None else NoiseFacts.from_json(noise),
            None if structure is None else Structure.from_json(structure),
        )


def threshold_of(solved: SolvedCore, found: Extended) -> float:
    """Residuals above this are outliers where the noise is typical."""
    return solved.schedule.floor if found.noise is None else outlier_threshold(found.noise.noise)


def uncertainty_of(factors: dict[str, Arrays], noise: NoiseFacts | None, scale: float) -> Uncertainty | None:
    """What intervals are made of, if it was kept."""
    if noise is None or "covariance" not in factors["r"]:
        return None
    c, r = factors["c"], factors["r"]
    plain = Noise(*(float(x) for x in astuple(noise.noise)))  # NumPy's numbers do not mix with arrays on other devices
    known = Uncertainty(c["covariance"], r["covariance"], c["scale"], r["scale"], plain, noise.offsets, float(noise.factor))
    left, right = (None if x is None else np.asarray(x) for x in (noise.row_precision, noise.col_precision))
    known = replace(known, right_unit=scale, centre=float(noise.centre), left_precision=left, right_precision=right)
    return replace(known, sigma=noise.sigma)
