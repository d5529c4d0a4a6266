"""How many rows, columns and observations are enough: a rule fitted to measurements (bench/plan_calibration.py)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..errors import check_count, check_number
from ..summary import Summarised, Summary, size_words
from .cross import CrossSamples
from .drawing import ccs_sample

# Observations that a column needs. The form is fitted to where `rcurc` recovers 5 matrices of 5 to 1e-3: sizes 300 to
# 10,000, ranks 1 to 20, 0 to 40 % outliers, rates 0.25 to 1 (bench/plan_calibration.py; uncertain by a step or two).
# Since there are Gauss-Newton steps, outliers cost less. Measured again: n = 300, rank 5, rate 0.5, 0 to 40 %: 17, 19, 19,
# 27, 52 (the rule says 19, 24, 30, 45, 111); rank 10 with 20 and 30 %: 39, 48 (45, 60); rank 1, 20 %: 25 (19); n = 1000,
# 20 %, rank 5 at rates 0.25, 0.5, 1: 27, 24, 27 (33, 32, 30); rank 20: 92 (75). With the margin all of these are enough.
_PER_RANK, _PER_RANK_AND_OUTLIERS = 2.7, 1.0  # for each component, without outliers and times their share: for the core
_AT_LEAST, _FOR_OUTLIERS = 4.0, 20.0  # beyond that, whatever the rank is
_PER_LOG = 0.6  # times log(n): of n columns none may have too few inliers by chance
_MARGIN = 1.6  # the boundary differs from one matrix to another, and is itself known to a step or two of 12 %
_NOISE_MARGIN = 2.0  # of the squared error: `rcurc` confirms only what it expects to be below the accuracy
_RATE = 0.5  # share of the chosen rows and columns to observe; any other needs about as many observations


@dataclass(frozen=True, repr=False)
class SamplePlan(Summarised):
    """How many samples of a matrix to take; made by `plan_samples`.

    Attributes
    ----------
    shape : (int, int)
    rank : int
    outliers, noise : float
        What was asked for.
    n_rows, n_cols : int
        |I| and |J|.
    rate_rows, rate_cols : float
        p_R and p_C.
    expected_error : float
        Relative error to expect from the noise; 0 without noise, where the matrix is recovered to rounding.
    """

    shape: tuple[int, int]
    rank: int
    outliers: float
    noise: float
    n_rows: int
    n_cols: int
    rate_rows: float
    rate_cols: float
    expected_error: float

    @property
    def n_observations(self) -> int:
        """Observations to expect; those of the intersection that both blocks see count once."""
        n1, n2 = self.shape
        twice = self.n_rows * self.n_cols * self.rate_rows * self.rate_cols
        return round(self.n_rows * n2 * self.rate_rows + self.n_cols * n1 * self.rate_cols - twice)

    @property
    def share(self) -> float:
        """Share of the matrix that is observed."""
        return self.n_observations / (self.shape[0] * self.shape[1])

    def describe(self) -> str:
        """The plan in words."""
        n1, n2 = self.shape
        quality = f"an error of about {self.expected_error:.1%}, from noise" if self.noise else "an error of rounding"
        return (
            f"For a {n1:,} x {n2:,} matrix of rank {self.rank} with {self.outliers:.0%} outliers: choose "
            f"{self.n_rows:,} rows and observe {self.rate_rows:.1%} of them, and {self.n_cols:,} columns and observe "
            f"{self.rate_cols:.1%} of them. "
            f"These are {self.n_observations:,} observations, {self.share:.2%} of the matrix; expect {quality}."
        )

    def _summary(self) -> Summary:
        facts = {
            "matrix": f"{size_words(self.shape)}, rank {self.rank}, {self.outliers:.0%} outliers",
            "rows": f"{self.n_rows:,}, of which to observe {self.rate_rows:.1%}",
            "columns": f"{self.n_cols:,}, of which to observe {self.rate_cols:.1%}",
            "observations": f"{self.n_observations:,}, {self.share:.2%} of the matrix",
            "error": f"{self.expected_error:.2g}" if self.noise else "rounding",
        }
        return Summary(facts)

    def draw(self, Y: Any, seed: Any = None) -> CrossSamples:
        """Draw these samples of a matrix, as `ccs_sample` does.

        Parameters
        ----------
        Y : anything with ``shape`` and entries by index, (n1, n2)
        seed : None, int or numpy.random.Generator
        """
        shape = tuple(getattr(Y, "shape", ()))
        if shape and shape != self.shape:
            raise ValueError(f"Y must have the shape of the plan, {self.shape}, got {shape}")
        return ccs_sample(Y, self.n_rows, self.n_cols, self.rate_rows, self.rate_cols, seed)


def plan_samples(
    n1: int,
    n2: int,
    rank: int,
    outliers: float = 0.2,
    noise: float = 0.0,
    accuracy: float = 1e-2,
    *,
    rate: float | None = None,
) -> SamplePlan:
    """Plan samples from which `rcurc` recovers a matrix, with a margin.

    The rule is fitted to generic matrices (Gaussian factors, outliers at random places). A matrix whose information sits in
    few rows or columns, or whose singular values differ by orders of magnitude, needs more. With much noise (10 %) and
    outliers a few rows and columns may remain undetermined.

    Parameters
    ----------
    n1, n2 : int
        Size of the matrix.
    rank : int
    outliers : float in [0, 0.5)
        Share of the observations that is wrong.
    noise : float
        Standard deviation of the noise over the typical size (root mean square) of an entry.
    accuracy : float
        Relative error that is good enough; it matters where there is noise.
    rate : float in (0, 1], optional
        Share of the chosen rows and columns that can be observed; by default a half. What a column needs is a number of
        observations, so a small rate asks for more rows, and for about as many observations. More than `rate` is
        planned where there are not enough rows or columns.

    Returns
    -------
    SamplePlan

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> plan = rg.plan_samples(n1=2000, n2=1500, rank=4, outliers=0.2)
    >>> plan.n_rows < 2000 and plan.n_cols < 1500
    True
    >>> problem = rg.synthetic((2000, 1500), rank=4, seed=0)  # stands for your matrix
    >>> samples = plan.draw(problem, seed=0)
    >>> rg.rcurc(samples, rank=4).converged
    True
    """
    n1, n2 = check_count("n1", n1), check_count("n2", n2)
    rank = check_count("rank", rank, 1, min(n1, n2))
    outliers = check_number("outliers", outliers, 0, 0.5, open_high=True)
    noise, accuracy = check_number("noise", noise), check_number("accuracy", accuracy, 0, open_low=True)
    rate = _RATE if rate is None else check_number("rate", rate, 0, 1, open_low=True)
    # both sides add r / (inliers of a column) noise^2 to the squared error
    for_noise = _NOISE_MARGIN * 2 * rank / (1 - outliers) * (noise / accuracy) ** 2
    sides = []
    # the n2 columns are observed on the chosen rows, of which there are n1
    for count, length, what in ((n2, n1, "column"), (n1, n2, "row")):
        least = observations_needed(count, rank, outliers, 1.0)
        if max(least, for_noise) > length:
            reason = f"{noise:g} noise and accuracy {accuracy:g}" if for_noise > least else f"{outliers:.0%} outliers"
            raise ValueError(
                f"a {n1:,} x {n2:,} matrix is too small for rank {rank} with {reason}: a {what} needs about "
                f"{math.ceil(max(least, for_noise)):,} observations and has {length:,} entries"
            )
        wanted = max(_MARGIN * observations_needed(count, rank, outliers, rate), for_noise)
        chosen = min(max(math.ceil(wanted / rate), rank), length)
        sides.append((chosen, min(max(rate, wanted / chosen), 1.0)))
    (n_rows, rate_rows), (n_cols, rate_cols) = sides
    error = noise * math.sqrt(
        rank / (1 - outliers) * sum(1 / (k * p) + 1 / (n * p) for k, p, n in ((*sides[0], n2), (*sides[1], n1)))
    )
    return SamplePlan((n1, n2), rank, outliers, noise, n_rows, n_cols, rate_rows, rate_cols, error)


def observations_needed(n: int, rank: int, outliers: float, rate: float) -> float:
    """Observations of each of `n` columns from which on most matrices are recovered."""
    # how close the outliers are to a majority, in terms of the variance of their number
    majority = outliers * (1 - outliers) / (0.5 - outliers) ** 2
    by_chance = _PER_LOG * math.log(n) * (majority + 1 - rate)
    return _AT_LEAST + _FOR_OUTLIERS * outliers + (_PER_RANK + _PER_RANK_AND_OUTLIERS * outliers) * rank + by_chance
