"""Whether new columns (rows) can be trusted that were completed with what an earlier solve found.

Nobody held anything out of them. What speaks for them is that they are like the columns of the solve: they reject no more of
their observations, and what they reject follows no pattern.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtrc

from ..extend.diagnostics import OK, Summary, UnitDiagnostics
from .causes import USELESS, Cause
from .faults import MoreRejected, StructuredOutliers, UnconfirmedSolve, Undetermined
from .noise_faults import NothingFound
from .words import Fault, Verdict

_RARE = 1e-3  # chance of doubting units that are like those of the solve
_FAR_MORE = 2.0  # share of rejected observations over the usual one, from which more is far more
_UNUSUAL = 0.99  # quantile of that share among the units of the solve: units with more than that are unusual
_STANDARD_ERRORS = 5.0  # by which the mean share of new units is above that of the solve, from which this is no chance


@dataclass(frozen=True, eq=False)
class NewUnits:
    """What is known of new units.

    Attributes
    ----------
    units : str
        "columns" or "rows".
    diagnostics, peers : UnitDiagnostics
        Of the new ones, and of those of the solve.
    component : bool
        Whether what they reject is a component of their own.
    noisy : bool
        Whether the noise model estimated them: it gives what is typical, with its doubt, where a unit says little.
    """

    units: str
    diagnostics: UnitDiagnostics
    peers: UnitDiagnostics
    component: bool
    noisy: bool


def judge_new(new: NewUnits, solve: tuple[Cause, str], expected_error: float, filled: str) -> Verdict:
    """The verdict on new units.

    Parameters
    ----------
    new : NewUnits
    solve : (Cause, str)
        What is wrong with the solve, and its message.
    expected_error : float
        Relative error to expect of the new units.
    filled : str
        What was put where one could not be determined.
    """
    faults: list[Fault] = []
    if solve[0] is not Cause.NONE:
        faults.append(UnconfirmedSolve(*solve))
    if new.component:
        faults.append(StructuredOutliers((f"new {new.units}",)))
    more = _more_rejected(new)
    if more is not None:
        faults.append(more)
    if new.noisy and not expected_error < USELESS:
        faults.append(NothingFound(expected_error))
    summary, none = Summary.of(new.diagnostics), Summary.of(new.diagnostics.take(np.arange(0)))
    if summary.n_undetermined:
        both = (summary, none) if new.units == "columns" else (none, summary)
        # with noise no rival and no observation that stands alone is looked for: of the rest nothing is said
        faults.append(Undetermined(*both, alone=not (faults or new.noisy), filled=filled, new=True))
    return Verdict(tuple(faults), expected_error)


def _more_rejected(new: NewUnits) -> MoreRejected | None:
    """Whether new units, one of them or all together, reject far more observations than those of the solve."""
    (n, out), (n_peers, out_peers) = _counts(new.diagnostics), _counts(new.peers)
    if len(n) == 0 or len(n_peers) == 0:
        return None
    shares, usual = out_peers / n_peers, float(out_peers.sum() / n_peers.sum())
    share = float(out.sum() / n.sum())
    # one of them: also units of the solve differ from each other, so that an unusual one of these is the measure
    unusual = max(float(np.quantile(shares, _UNUSUAL)), usual)
    many = np.flatnonzero(out > np.maximum(_FAR_MORE * usual * n, 2))
    rare = many[bdtrc(out[many] - 1.0, n[many], unusual) < _RARE / len(n)]
    if len(rare):
        numbers = np.flatnonzero(_counted(new.diagnostics))[rare]
        return MoreRejected(new.units, float(out[rare].sum() / n[rare].sum()), usual, tuple(numbers.tolist()))
    # all of them: the mean of as many units of the solve varies by so much
    spread = (float(np.var(shares)) + usual * (1 - usual) / float(n.mean())) ** 0.5 / len(n) ** 0.5
    if share > _FAR_MORE * usual and share - usual > _STANDARD_ERRORS * spread and out.sum() > 2 * len(n):
        return MoreRejected(new.units, share, usual, ())
    return None


def _counted(d: UnitDiagnostics) -> np.ndarray:
    return np.asarray((d.status == OK) & (d.n_obs > 0))


def _counts(d: UnitDiagnostics) -> tuple[np.ndarray, np.ndarray]:
    """Observations, and rejected ones, of the units that are determined."""
    which = _counted(d)
    n = d.n_obs[which]
    return n, np.maximum(n - d.n_inliers[which], 0)
