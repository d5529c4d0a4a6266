"""The problems that are timed, for ``rcurc-gpu bench`` and for ``pytest bench/``: they stand here, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..testing import SyntheticProblem, synthetic

ALPHA, C = 0.2, 10.0  # the paper's share of outliers, and their size
_SHARE, _RATE = 0.3, 0.25  # of the rows and columns that is chosen, and of these that is seen, as in the paper
_CHOSEN, _THIN = 1000, 0.05  # rows and columns, and their share that is seen, where there are very many observations


@dataclass(frozen=True)
class Case:
    """A square matrix with outliers.

    Attributes
    ----------
    name : str
    size : int
        Rows, and columns.
    chosen : int
        Chosen rows, and columns.
    rate : float
        Share of them that is seen.
    rank : int
    dtype : str
    """

    name: str
    size: int
    chosen: int
    rate: float
    rank: int = 5
    dtype: str = "float64"

    @property
    def n_obs(self) -> int:
        """Observations, about."""
        return round(2 * self.size * self.chosen * self.rate)

    @property
    def nbytes(self) -> int:
        """Bytes of the observations, about: a value and a position each."""
        return self.n_obs * (np.dtype(self.dtype).itemsize + 4)

    @cached_property
    def problem(self) -> SyntheticProblem:
        """The samples and the truth; made when first asked for, and the same each time."""
        return synthetic(
            (self.size, self.size),
            self.rank,
            ALPHA,
            C,
            n_rows=self.chosen,
            n_cols=self.chosen,
            rate=self.rate,
            seed=0,
            dtype=self.dtype,
        )


def square(size: int, rank: int = 5, dtype: str = "float64") -> Case:
    """The paper's problem: three tenths of the rows and columns, a quarter of them seen."""
    rate = max(_RATE, min(1.0, 7 * rank / (_SHARE * size)))  # seven observations per unknown: a small one needs them
    return Case(f"d = {size:,}", size, max(round(_SHARE * size), 1), rate, rank, dtype)


def many_observations(count: int, rank: int = 5, dtype: str = "float64") -> Case:
    """Long rows and columns of which little is seen, nearly all of them outside of the core."""
    chosen, rate = _CHOSEN, _THIN
    size = round(count / (2 * chosen * rate))
    if size < 2 * chosen:  # for tests and emulators: a matrix four times as long as what is chosen, a third of that seen
        rate = 1 / 3
        chosen = max(round((count / (8 * rate)) ** 0.5), 1)
        size = 4 * chosen
    return Case(f"{_power(count)} observations", size, chosen, rate, rank, dtype)


def _power(count: int) -> str:
    exponent = len(str(count)) - 1
    return f"1e{exponent}" if count == 10**exponent else f"{count:,}"


SIZES, COUNTS = (500, 3000, 10_000), (10**6, 10**7, 10**8)
_QUICK = 2_000_000  # observations at most, where it has to be quick: some seconds in all


def make_cases(
    sizes: Sequence[int] | None = None, counts: Sequence[int] | None = None, dtype: str = "float64", quick: bool = False
) -> list[Case]:
    """The usual cases, or those of other sizes or numbers of observations, the smallest first."""
    if sizes is None and counts is None:
        sizes, counts = SIZES, COUNTS
    cases = [square(n, dtype=dtype) for n in sizes or ()] + [many_observations(n, dtype=dtype) for n in counts or ()]
    return sorted((case for case in cases if not quick or case.n_obs <= _QUICK), key=lambda case: case.n_obs)
