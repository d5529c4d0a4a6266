"""What is kept of how a core was found: its iterations, and how its rank was chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Columns of the table in checkpoints; a new order would make older files unreadable.
_NUMBERS = ("iteration", "error", "threshold", "outlier_share", "change", "seconds")


@dataclass(frozen=True)
class IterationState:
    """What a callback sees of an iteration, and what `Result.history` keeps.

    Attributes
    ----------
    iteration : int
    error : float
        e_k of the paper: ``||P_Omega(S_k + X_k - Y)||^2 / ||P_Omega Y||^2``.
    threshold : float
        zeta_k.
    outlier_share : float
        Share of the observations beyond the threshold.
    change : float
        ``||U_k - U_{k-1}||_F / ||U_k||_F``.
    seconds : float
        Since the start of the solve. The clock is read after some iterations only; the others are interpolated.
    make : callable or None
        What `cur` calls; None in `Result.history`, which would otherwise keep every iterate.
    """

    iteration: int
    error: float
    threshold: float
    outlier_share: float
    change: float
    seconds: float
    make: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    def cur(self) -> Any:
        """The whole matrix X_k as a `CURMatrix`, made now; for callbacks of ``method="paper"``.

        Raises
        ------
        RuntimeError
            Where there is no X_k: in `Result.history`; with ``method="fast"``, which iterates the intersection alone; and
            with more than 4096 columns outside of J or rows outside of I, most of which follow at the end.
        """
        if self.make is None:
            few = "at most 4096 columns outside of J and rows outside of I"
            raise RuntimeError(f"no whole matrix here: only a callback of method='paper' sees one, with {few}")
        return self.make()


def as_table(history: list[IterationState]) -> np.ndarray:
    """The numbers of some iterations as a table for a file (n, 6)."""
    rows = [[getattr(state, name) for name in _NUMBERS] for state in history]
    return np.asarray(rows, dtype=np.float64).reshape(-1, len(_NUMBERS))


def from_table(table: np.ndarray) -> list[IterationState]:
    """The iterations that `as_table` wrote."""
    return [IterationState(int(row[0]), *row[1:].tolist()) for row in table]


@dataclass(frozen=True)
class RankCurve:
    """Held-out error by rank.

    Attributes
    ----------
    ranks : list of int
        The ranks that were tried, ascending.
    errors : list of float
        Lower quartile of the held-out residuals over that of the observations.
    supported : list of int
        How many singular components the held-out entries confirm at each rank.
    chosen : int
    """

    ranks: list[int]
    errors: list[float]
    supported: list[int]
    chosen: int
