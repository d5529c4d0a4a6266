"""How well each column and row could be determined."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..backends.arrays import Array, asarray_on, to_numpy
from ..backends.blocks import join_units
from ..backends.plain.verdicts import CONTESTED, ILL_CONDITIONED, OK, TOO_FEW_INLIERS, TOO_FEW_OBSERVATIONS
from ..errors import ArgumentError
from ..summary import Summarised
from ..summary import Summary as Said

__all__ = [
    "CONTESTED",
    "DIAGNOSTIC_NAMES",
    "FILE_NAMES",
    "ILL_CONDITIONED",
    "OK",
    "STATUS_WORDS",
    "TOO_FEW_INLIERS",
    "TOO_FEW_OBSERVATIONS",
    "Summary",
    "UnitDiagnostics",
    "join_diagnostics",
]

STATUS_WORDS = {
    OK: "determined",
    TOO_FEW_OBSERVATIONS: "fewer observations than rank + 2",
    TOO_FEW_INLIERS: "too few observations agree with the rest",
    ILL_CONDITIONED: "the observed entries do not determine it (ill-conditioned)",
    CONTESTED: "about as many observations agree on something else",
}


@dataclass(frozen=True, eq=False, repr=False)
class UnitDiagnostics(Summarised):
    """How well each column (row) could be determined; host arrays, one entry per unit.

    Attributes
    ----------
    status : int8 (n,)
        0 determined, 1 too few observations, 2 too few inliers, 3 ill-conditioned, 4 contested: about as many
        observations agree on something else.
    n_obs, n_inliers : int64 (n,)
        Observations in the fit, and those within the threshold of the solution.
    spread : float64 (n,)
        Standard deviation of the inlying residuals.
    standard_error : float64 (n,)
        Expected error of the unit's part in the cross from noise alone, in the norm.
    n_informative : int64 (n,)
        Inliers that are not about 0. An entry about 0 fits a solution of 0 whatever is true.
    """

    status: np.ndarray
    n_obs: np.ndarray
    n_inliers: np.ndarray
    spread: np.ndarray
    standard_error: np.ndarray
    n_informative: np.ndarray

    @property
    def n_telling(self) -> np.ndarray:
        """The first name of `n_informative`."""
        warnings.warn("n_telling is now n_informative", DeprecationWarning, stacklevel=2)
        return self.n_informative

    @property
    def undetermined(self) -> np.ndarray:
        """Numbers of the units that could not be determined."""
        return np.flatnonzero(to_numpy(self.status) != OK)

    @property
    def n_undetermined(self) -> int | None:
        """How many could not be determined; None if the arrays are on a cluster."""
        return len(self.undetermined) if isinstance(self.status, np.ndarray) else None

    def to_frame(self, labels: Any = None) -> Any:
        """A pandas DataFrame with a line for each unit, its status in words.

        Parameters
        ----------
        labels : sequence of n labels, optional
            What to call the units; by default their numbers.
        """
        import pandas as pd

        table = {name: to_numpy(x) for name, x in self.arrays().items()}
        table["status"] = np.asarray(list(STATUS_WORDS.values()), dtype=object)[table["status"]]
        if labels is not None and len(labels) != len(table["status"]):
            raise ArgumentError("labels", f"must be {len(table['status'])} labels, one for each line, got {len(labels)}")
        return pd.DataFrame(table, index=labels)

    def _summary(self) -> Said:
        if self.n_undetermined is None:
            return Said({"units": f"{len(self.status):,}, on the workers of a cluster"})
        n, fine = len(self.status), self.status == OK
        facts = {"determined": f"{int(fine.sum()):,} of {n:,}"} | {why: f"{k:,}" for why, k in self.reasons().items()}
        if n:
            low, high = int(self.n_obs.min()), int(self.n_obs.max())
            facts["observations of each"] = f"{low:,} to {high:,}, median {float(np.median(self.n_obs)):,.0f}"
        facts["as a table"] = "to_frame()"
        return Said(facts)

    def take(self, units: np.ndarray | slice) -> UnitDiagnostics:
        """The diagnostics of some units."""
        return UnitDiagnostics(*(x[units] for x in self.columns))

    def put(self, units: np.ndarray, new: UnitDiagnostics) -> UnitDiagnostics:
        """The same diagnostics, with `new` ones for some units."""
        copy = UnitDiagnostics(*(x.copy() for x in self.columns))
        copy.write(units, new)
        return copy

    def write(self, units: np.ndarray | slice, new: UnitDiagnostics) -> None:
        """Overwrite the diagnostics of some units."""
        for old, x in zip(self.columns, new.columns, strict=True):
            old[units] = x

    @classmethod
    def blank(cls, n: int) -> UnitDiagnostics:
        """A table for `n` units, to be filled in."""
        return cls(*(np.empty(n, dtype) for dtype in (np.int8, np.int64, np.int64, np.float64, np.float64, np.int64)))

    @classmethod
    def from_table(cls, table: np.ndarray) -> UnitDiagnostics:
        """From a table (n, 6) or wider, with a column for each array."""
        return cls(*(table[:, k].astype(x.dtype) for k, x in enumerate(cls.blank(0).columns)))

    def as_table(self) -> np.ndarray:
        """What `from_table` takes: float64 (n, 6)."""
        return np.stack([np.asarray(x, dtype=np.float64) for x in self.columns], axis=1)

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        """All arrays."""
        return tuple(getattr(self, name) for name in DIAGNOSTIC_NAMES)

    def arrays(self) -> dict[str, np.ndarray]:
        """All arrays by name."""
        return {name: getattr(self, name) for name in DIAGNOSTIC_NAMES}

    def file_arrays(self) -> dict[str, np.ndarray]:
        """All arrays by the names they have in files."""
        return dict(zip(FILE_NAMES, self.arrays().values(), strict=True))

    def scaled(self, factor: float) -> UnitDiagnostics:
        """The diagnostics of ``factor * Y``."""
        return replace(self, spread=self.spread * factor, standard_error=self.standard_error * factor)

    def weights(self, like: Array) -> Array:
        """1 for units that are determined, 0 for others (n,), beside `like`."""
        return asarray_on((self.status == OK).astype(np.float64), like, like.dtype)

    def reasons(self) -> dict[str, int]:
        """How many units for each reason."""
        counts = np.bincount(to_numpy(self.status), minlength=len(STATUS_WORDS))
        return {word: int(counts[k]) for k, word in STATUS_WORDS.items() if k != OK and counts[k]}


class LateDiagnostics(UnitDiagnostics):
    """Diagnostics that are on a device, and come to the host when one of their arrays is looked at for the first time.

    Parameters
    ----------
    fetch : callable
        Gives the table, on the host.
    """

    def __init__(self, fetch: Callable[[], np.ndarray]) -> None:
        object.__setattr__(self, "_fetch", fetch)

    def __getattr__(self, name: str) -> Any:
        if name not in DIAGNOSTIC_NAMES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.__dict__.update(UnitDiagnostics.from_table(self.__dict__["_fetch"]()).arrays())
        return self.__dict__[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return UnitDiagnostics, self.columns  # a copy, in a file or in another process, has the arrays

    def scaled(self, factor: float) -> UnitDiagnostics:
        return UnitDiagnostics(*self.columns).scaled(factor)


@dataclass(frozen=True)
class Summary:
    """A few numbers about many units; summaries of parts add up.

    Attributes
    ----------
    by_status : tuple of 5 ints
        How many units there are of each status.
    first : int
        Number of the first one that could not be determined; -1 if there is none.
    n_obs, n_inliers : int
        Of all units.
    square : float
        Sum of the squared standard errors of those that are determined.
    n_held, n_consensus : int
        Entries held out, and those of them that agree.
    """

    by_status: tuple[int, ...]
    first: int
    n_obs: int
    n_inliers: int
    square: float
    n_held: int = 0
    n_consensus: int = 0

    @classmethod
    def of(cls, d: UnitDiagnostics, n_held: int = 0, n_consensus: int = 0, start: int = 0) -> Summary:
        """The summary of units that are numbered from `start`."""
        counts = np.bincount(d.status, minlength=len(STATUS_WORDS))
        lost = d.undetermined
        error = d.standard_error
        if len(lost):
            error = error.copy()
            error[lost] = 0.0
        return cls(
            tuple(counts.tolist()),
            start + int(lost[0]) if len(lost) else -1,
            int(d.n_obs.sum()),
            int(d.n_inliers.sum()),
            float(np.vdot(error, error)),
            n_held,
            n_consensus,
        )

    @classmethod
    def parted(cls, d: UnitDiagnostics, chosen: np.ndarray, start: int) -> tuple[Summary, Summary]:
        """The summaries of units that are numbered from `start`, and of those of them that are not `chosen`."""
        whole, inside = cls.of(d, start=start), cls.of(d.take(chosen))
        by_status = tuple(a - b for a, b in zip(whole.by_status, inside.by_status, strict=True))
        lost = d.undetermined
        lost = lost[~np.isin(lost, chosen)]
        # not the difference of the sums: that of few units beside many would be rounding
        error = d.standard_error.copy()
        error[d.undetermined], error[chosen] = 0.0, 0.0
        numbers = (whole.n_obs - inside.n_obs, whole.n_inliers - inside.n_inliers, float(np.vdot(error, error)))
        return whole, cls(by_status, start + int(lost[0]) if len(lost) else -1, *numbers)

    @classmethod
    def by_sums(cls, sums: np.ndarray, inside: UnitDiagnostics) -> tuple[Summary, Summary]:
        """The same from sums over the units that are not chosen, and the diagnostics of the others; without `first`.

        `sums` are how many there are of each status, and the other fields in their order.
        """
        counts = sums.astype(np.int64).tolist()
        rest = cls(tuple(counts[:5]), -1, counts[5], counts[6], float(sums[7]))
        return replace(rest + cls.of(inside), first=-1), replace(rest, n_held=counts[8], n_consensus=counts[9])

    def __add__(self, other: Summary) -> Summary:
        """The summary of these units and, after them, the `other` ones."""
        by_status = tuple(a + b for a, b in zip(self.by_status, other.by_status, strict=True))
        sums = ("n_obs", "n_inliers", "square", "n_held", "n_consensus")
        added = {name: getattr(self, name) + getattr(other, name) for name in sums}
        return Summary(by_status, self.first if self.first >= 0 else other.first, **added)

    def named(self, prefix: str) -> dict[str, np.ndarray]:
        """The fields as arrays, by name."""
        return {f"{prefix}.{name}": np.asarray(value) for name, value in vars(self).items()}

    @classmethod
    def from_named(cls, arrays: Mapping[str, Any], prefix: str) -> Summary:
        """The summary that `named` wrote."""
        found = {name: np.asarray(arrays[f"{prefix}.{name}"]).tolist() for name in cls.__dataclass_fields__}
        return cls(**found | {"by_status": tuple(found["by_status"])})

    @property
    def n_units(self) -> int:
        """How many units."""
        return sum(self.by_status)

    @property
    def n_undetermined(self) -> int:
        """How many could not be determined."""
        return self.n_units - self.by_status[OK]

    @property
    def mean_square(self) -> float:
        """Mean squared standard error of those that are determined; 0 of none."""
        return self.square / self.by_status[OK] if self.by_status[OK] else 0.0

    def reasons(self) -> dict[str, int]:
        """How many units for each reason."""
        return {word: self.by_status[k] for k, word in STATUS_WORDS.items() if k != OK and self.by_status[k]}


DIAGNOSTIC_NAMES = ("status", "n_obs", "n_inliers", "spread", "standard_error", "n_informative")
# Names in files: the last one keeps its old name, so that files of earlier versions still load.
FILE_NAMES = ("status", "n_obs", "n_inliers", "spread", "standard_error", "n_telling")


def join_diagnostics(core: UnitDiagnostics, rest: UnitDiagnostics, chosen: np.ndarray, total: int) -> UnitDiagnostics:
    """Diagnostics of `core` at the numbers `chosen` and of `rest` at the others, ascending."""
    return UnitDiagnostics(*(join_units(a, b, chosen, total) for a, b in zip(core.columns, rest.columns, strict=True)))
