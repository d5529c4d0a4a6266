"""What a solve found, in memory and in files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..backends.arrays import array_namespace, native
from ..core.history import IterationState
from ..errors import ArgumentError
from ..extend.diagnostics import UnitDiagnostics
from ..summary import Summarised, Summary, size_words
from .matrix import CURMatrix, refuse_dask


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Outcome(Summarised):
    """What a solve found: in memory a `Result`, which says what the fields mean, in a file an `io.Completion`."""

    cur: CURMatrix
    converged: bool
    message: str
    cause: str
    history: list[IterationState]
    columns: UnitDiagnostics
    rows: UnitDiagnostics
    noise: float
    threshold: float
    expected_error: float
    method: str
    device: str
    kernels: str
    seconds: float

    @cached_property
    def native_cur(self) -> CURMatrix:
        """`cur` with NumPy or CuPy factors on the same memory, for kernels, where its own are of another library."""
        return self.cur.mapped(native)

    @property
    def n_iter(self) -> int:
        """Iterations of the core."""
        return len(self.history)

    prediction_error: float = float("nan")
    noise_strengths: np.ndarray | None = None

    @property
    def has_noise_model(self) -> bool:
        """Whether the noise model made the result: there is noise, and the model was not turned off."""
        return self.noise_strengths is not None

    @cached_property
    def strengths(self) -> np.ndarray:
        """Standard deviation of what each component adds to an entry, largest first, on the host (r,).

        Offsets of rows and columns are not counted. Without noise these are singular values over the root of the number of
        entries; rows and columns that could not be determined are left out.
        """
        if self.noise_strengths is not None:
            return self.noise_strengths
        refuse_dask(self.cur)
        xp = array_namespace(self.cur.left)
        sizes = [int(xp.sum(xp.astype(xp.isfinite(f[:, 0]), xp.int64))) for f in (self.cur.left, self.cur.right)]
        return np.asarray(self.cur.singular_values() / max(math.prod(sizes), 1) ** 0.5)

    @property
    def typical_size(self) -> float:
        """Root mean square of the entries of the components; without noise, of the matrix."""
        return math.hypot(*self.strengths.tolist())

    @property
    def rank_curve(self) -> np.ndarray:
        """Another name of `strengths`: what speaks for the rank that was chosen."""
        return self.strengths

    @property
    def rank(self) -> int:
        """Components of the recovered matrix; offsets are not counted."""
        return self.cur.rank if self.noise_strengths is None else len(self.noise_strengths)

    def _summary(self) -> Summary:
        offsets = " beside offsets" if self.has_noise_model and self.cur.rank > self.rank else ""
        facts = {
            "matrix": f"{size_words(self.cur.shape)}, rank {self.rank}{offsets}, {self.cur.dtype}",
            "expected error": f"{self.expected_error:.2g} (relative), {self.prediction_error:.2g} for new observations",
            "noise": f"{self.noise:.3g}; observations further off than {self.threshold:.3g} are outliers",
        }
        lost = [units.n_undetermined for units in (self.rows, self.columns)]
        if None not in lost:  # those on a cluster would have to be fetched
            facts["undetermined"] = (
                f"{lost[0]:,} of {self.cur.shape[0]:,} rows, {lost[1]:,} of {self.cur.shape[1]:,} columns"
            )
        facts["solved"] = f"{self.seconds:.2f} s on {self.device}, {self.n_iter} iterations, kernels: {self.kernels}"
        return Summary(facts, self.message, bool(self.converged))

    def check_sigma(self, used: bool = True) -> None:
        """Refuse a `sigma` where there is nothing to compare it with."""
        if not used:
            raise ArgumentError("sigma", "is for new=True: the matrix itself has no noise")
        known = self.cur.uncertainty
        if self.has_noise_model and (known is None or known.sigma is None):
            raise ArgumentError("sigma", "is for results of samples with sigma, solved with intervals=True")
