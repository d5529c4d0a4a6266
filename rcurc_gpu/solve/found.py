"""A core that was found and judged, with all that the rest of a solve needs of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..backends.arrays import array_namespace, to_numpy
from ..core.recheck import CheckedCore
from ..judge.expected_error import CoreFacts
from ..judge.rank import RankCurve
from ..judge.words import Verdict
from ..options import Settings
from .attempts import NOISELESS

_SWEEPS = 1
_ROUNDING = 1000.0  # what rounding leaves in the residuals of an iteration, in units of the last digit


@dataclass(frozen=True, eq=False)
class FoundCore:
    """A judged core.

    Attributes
    ----------
    checked : CheckedCore
    verdict : Verdict
        On the core alone.
    facts : CoreFacts
    curve : RankCurve or None
        How the rank was chosen, if it was.
    asked : int
        The rank that was asked for, or chosen first.
    settings : Settings
        Of the solve, with the share that is held out as it was.
    typical : float
        Median size of an observation.
    no_threshold : float
        A threshold that no residual exceeds; 0 if outliers are expected.
    device, kernels : str
        Where it was found, and by what.
    """

    checked: CheckedCore
    verdict: Verdict
    facts: CoreFacts
    curve: RankCurve | None
    asked: int
    settings: Settings
    typical: float
    no_threshold: float
    device: str
    kernels: str

    @property
    def sweeps(self) -> int:
        """How many sweeps over all observations the rest of the solve makes."""
        if self.settings.sweeps is not None:
            return self.settings.sweeps
        core = self.checked.core
        rounding = _ROUNDING * float(array_namespace(core.s).finfo(core.s.dtype).eps)  # no noise that a sweep could average
        noisy = core.sigma > max(NOISELESS, rounding) * self.typical
        return _SWEEPS if noisy and self.verdict.cause in ("", "undetermined") else 0

    def on_host(self) -> FoundCore:
        """The same with its arrays on the host, and without the user's callback."""
        core = self.checked.core
        W, s, V = (to_numpy(x) for x in (core.W, core.s, core.V))
        history = [replace(state, make=None) for state in core.history]
        checked = replace(self.checked, core=replace(core, W=W, s=s, V=V, history=history))
        return replace(self, checked=checked, settings=replace(self.settings, callback=None))
