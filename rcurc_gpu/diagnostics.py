"""How well each column and row could be determined."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .block import others

OK, TOO_FEW_OBSERVATIONS, TOO_FEW_INLIERS, ILL_CONDITIONED = 0, 1, 2, 3
STATUS_WORDS = {
    OK: "determined",
    TOO_FEW_OBSERVATIONS: "fewer observations than rank + 2",
    TOO_FEW_INLIERS: "too few observations agree with the rest",
    ILL_CONDITIONED: "the observed entries do not determine it (ill-conditioned)",
}


@dataclass(frozen=True, eq=False)
class UnitDiagnostics:
    """How well each column (row) could be determined; host arrays, one entry per unit.

    Attributes
    ----------
    status : int8 (n,)
        0 determined, 1 too few observations, 2 too few inliers, 3 ill-conditioned.
    n_obs, n_inliers : int64 (n,)
        Observations in the fit, and those within the threshold of the solution.
    spread : float64 (n,)
        Standard deviation of the inlying residuals.
    standard_error : float64 (n,)
        Expected error of the unit's part in the cross from noise alone, in the norm.
    n_telling : int64 (n,)
        Inliers that are not about 0; such an entry fits a solution of 0 whatever is true.
    """

    status: np.ndarray
    n_obs: np.ndarray
    n_inliers: np.ndarray
    spread: np.ndarray
    standard_error: np.ndarray
    n_telling: np.ndarray

    @property
    def undetermined(self) -> np.ndarray:
        """Numbers of the units that could not be determined."""
        return np.flatnonzero(self.status != OK)

    def scaled(self, factor: float) -> UnitDiagnostics:
        """The diagnostics of ``factor * Y``."""
        return replace(self, spread=self.spread * factor, standard_error=self.standard_error * factor)

    def reasons(self) -> dict[str, int]:
        """How many units for each reason."""
        return {STATUS_WORDS[k]: int((self.status == k).sum()) for k in (1, 2, 3) if (self.status == k).any()}


DIAGNOSTIC_NAMES = ("status", "n_obs", "n_inliers", "spread", "standard_error", "n_telling")


def join_diagnostics(core: UnitDiagnostics, rest: UnitDiagnostics, chosen: np.ndarray, total: int) -> UnitDiagnostics:
    """Diagnostics of `core` at the numbers `chosen` and of `rest` at the others, ascending."""
    rest_of_them = others(chosen, total)

    def join(name: str) -> np.ndarray:
        out = np.empty(total, dtype=getattr(core, name).dtype)
        out[chosen] = getattr(core, name)
        out[rest_of_them] = getattr(rest, name)
        return out

    return UnitDiagnostics(*(join(name) for name in DIAGNOSTIC_NAMES))


def diagnose(table: np.ndarray, rank: int) -> UnitDiagnostics:
    """Diagnostics from the table of a look (see `look.regress`), before units are compared with each other."""
    n_obs, n_in, spread, ill, error, telling = table[:, :6].T
    status = np.where(n_obs < rank + 2, TOO_FEW_OBSERVATIONS, OK).astype(np.int8)
    status[(status == OK) & (n_in >= rank + 2) & (ill > 0)] = ILL_CONDITIONED
    return UnitDiagnostics(
        status, n_obs.astype(np.int64), n_in.astype(np.int64), spread.copy(), error.copy(), telling.astype(np.int64)
    )
