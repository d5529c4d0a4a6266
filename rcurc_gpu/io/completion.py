"""A result with its labels, which needs nothing else: no samples, no table it came from. Its file: `result_file`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice

import numpy as np

from ..backends.arrays import to_numpy
from ..backends.blocks import Block
from ..result.matrix import CURMatrix
from ..result.outcome import Outcome
from ..result.outliers import outlying_once
from ..result.result import Result
from ..samples.cells import Cells, chosen_first
from ..samples.view import Samples
from ..summary import Fields, Summary
from .labels import Labels

_SHOWN = 400  # observations that are kept for pictures
_SHARDS_READ = 4  # of each side, for these


@dataclass(frozen=True, eq=False, repr=False)
class Outliers(Fields):
    """Observations that do not fit the recovered matrix, each once.

    Attributes
    ----------
    i, j : int64 arrays (k,)
        Row and column.
    observed, recovered : float64 arrays (k,)
    score : float64 array (k,)
        ``|observed - recovered|`` over the threshold above which an observation does not fit; the largest first.
    """

    i: np.ndarray
    j: np.ndarray
    observed: np.ndarray
    recovered: np.ndarray
    score: np.ndarray

    def __len__(self) -> int:
        return len(self.i)


@dataclass(frozen=True, eq=False, repr=False)
class Observations(Fields):
    """Some of the observations that were solved, for pictures.

    Attributes
    ----------
    i, j : int64 arrays (k,)
        Row and column.
    value : float64 array (k,)
    """

    i: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    j: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    value: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.i)

    @classmethod
    def of(cls, samples: Samples, most: int = _SHOWN) -> Observations:
        """An even selection of at most so many, half of them from the chosen rows and half from the chosen columns; of
        samples on disk, from their first shards."""
        parts = []
        for side in "rc":
            found = [
                _even(samples, side, first, block, most // 2) for first, block in islice(samples.blocks(side), _SHARDS_READ)
            ]
            here = [np.concatenate(column) for column in zip(*found, strict=True)]
            chosen = _evenly(len(here[0]), most // 2)
            parts.append([column[chosen] for column in here])
        i, j, value = (np.concatenate(column) for column in zip(*parts, strict=True))
        _, once = np.unique(i * samples.shape[1] + j, return_index=True)
        return cls(i[once], j[once], value[once])


def _even(samples: Samples, side: str, first: int, block: Block, most: int) -> tuple[np.ndarray, ...]:
    """Row, column and value of an even selection of the observations in a block."""
    at = _evenly(block.n_obs, most)
    unit = first + np.searchsorted(to_numpy(block.indptr), at, side="right") - 1
    index = to_numpy(block.index)[at].astype(np.int64)
    i, j = (samples.rows[index], unit) if side == "r" else (unit, samples.cols[index])
    return i, j, to_numpy(block.value)[at].astype(np.float64)


def _evenly(total: int, most: int) -> np.ndarray:
    return np.linspace(0, max(total - 1, 0), min(total, most)).astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(Fields):
    """Entries of the recovered matrix that somebody asked for.

    Attributes
    ----------
    value : float64 array (k,)
        NaN where the entry is not known.
    expected_error : float64 array (k,)
        Standard deviation of the error to expect of the value, in the unit of the data; NaN where the value is.
    known_row, known_col : bool arrays (k,)
        Whether there is such a row, and column. Where both are and the value is NaN, it could not be determined.
    guess : bool array (k,)
        Where there is a value though the observations of its row or column do not determine it: what is typical
        (``undetermined="prior"``), or doubtful (``undetermined="keep"``).
    lower, upper : float64 arrays (k,), or None
        Interval of a new observation of the entry, outliers apart; NaN where the value is. None if the noise model was
        used and its intervals were not kept (``intervals=False``).
    """

    value: np.ndarray
    expected_error: np.ndarray
    known_row: np.ndarray
    known_col: np.ndarray
    guess: np.ndarray
    lower: np.ndarray | None = None
    upper: np.ndarray | None = None

    @property
    def unknown(self) -> np.ndarray:
        """Where there is no such row or column, bool (k,)."""
        return ~(self.known_row & self.known_col)

    @property
    def undetermined(self) -> np.ndarray:
        """Where there are such, but the entry could not be determined, bool (k,)."""
        return ~self.unknown & np.isnan(self.value)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Completion(Outcome):
    """A solve as it is kept in a file: what `Result` says, and the labels. The functions of `plot` draw both.

    Attributes
    ----------
    cur, converged, message, cause, history, columns, rows, noise, threshold, expected_error, prediction_error, strengths, \
method, device, kernels, seconds :
        As in `Result`, on the host. Files of version 0.1 have no `prediction_error` (NaN) and no `noise_strengths` (None).
    labels : Labels
    outliers : Outliers
    n_obs : int
        Observations that were solved.
    seen : int64 array
        Observations in each cell of a coarse grid (see `cells.Cells`), for pictures.
    some_observed : Observations
        A few hundred of the observations, for pictures; none from a file of version 0.1.
    groups : Groups or None
        As in `Result`.
    """

    labels: Labels
    outliers: Outliers
    n_obs: int
    seen: np.ndarray
    some_observed: Observations = field(default_factory=Observations)

    @classmethod
    def of(cls, result: Result, labels: Labels | None = None) -> Completion:
        """What to keep of a result."""
        known = None if result.cur.uncertainty is None else result.cur.uncertainty.mapped(to_numpy)
        cur = CURMatrix(to_numpy(result.cur.left), to_numpy(result.cur.right), result.cur.rows, result.cur.cols, known)
        i, j, observed, _ = outlying_once(result.samples, cur, result.outlier_rule)
        same = {field.name: getattr(result, field.name) for field in fields(Outcome)}
        return cls(
            **same | {"cur": cur, "converged": bool(result.converged)},
            labels=Labels() if labels is None else labels,
            outliers=ranked(cur, i, j, observed.astype(np.float64), result.threshold),
            n_obs=result.samples.n_obs,
            seen=cells_of(cur).count_seen(result.samples),
            some_observed=Observations.of(result.samples),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)"""
        return self.cur.shape

    @property
    def outlier_cells(self) -> np.ndarray:
        """Outliers in each cell of the grid of `seen`."""
        return cells_of(self.cur).count(self.outliers.i, self.outliers.j)

    def _summary(self) -> Summary:
        known = super()._summary()
        more = {"outliers": f"{len(self.outliers):,} of {self.n_obs:,} observations"}
        return replace(known, facts={**known.facts, **more})

    @property
    def offsets(self) -> bool:
        """Whether rows and columns have offsets beside the components."""
        return self.has_noise_model and self.cur.rank > self.rank

    @property
    def has_intervals(self) -> bool:
        """Whether `interval` can be asked."""
        return not self.has_noise_model or self.cur.uncertainty is not None

    def predict(self, rows: Sequence[str], cols: Sequence[str], level: float = 0.95) -> Predictions:
        """Entries by the labels of their rows and columns (or numbers from 0, where there are no labels).

        Parameters
        ----------
        rows, cols : sequences of str (k,)
        level : float in (0, 1)
            Of the intervals.
        """
        n1, n2 = self.shape
        return self.predict_at(self.labels.find_rows(rows, n1), self.labels.find_cols(cols, n2), level)

    def predict_at(self, i: np.ndarray, j: np.ndarray, level: float = 0.95) -> Predictions:
        """Entries by number, int64 arrays (k,); -1 stands for a row or column that does not exist."""
        known_row, known_col = i >= 0, j >= 0
        both = known_row & known_col
        value, error, lower, upper = (np.full(len(i), np.nan) for _ in range(4))
        guess = np.zeros(len(i), dtype=bool)
        at = i[both], j[both]
        value[both], error[both], guess[both] = self.cur.entries(*at), self._entry_errors(*at), self._guessed(*at)
        error[np.isnan(value)] = np.nan
        if self.has_intervals:
            lower[both], upper[both] = self.interval(*at, level)
        intervals = (lower, upper) if self.has_intervals else ()
        return Predictions(value, error, known_row, known_col, guess & ~np.isnan(value), *intervals)

    def _entry_errors(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Standard deviation of the error of each entry: from the noise model, if its covariances were kept.

        If not, the errors of a row and of a column, each spread evenly over its part in the cross; they add in squares.
        Without noise model, so does the way that the iteration had still to go (see `judge.expected_error`), and what could
        not be determined is as uncertain as others differ.
        """
        if self.cur.uncertainty is not None:
            return np.asarray(self.cur.standard_deviations(i, j))
        of_row = self.rows.standard_error[i] / len(self.cur.cols) ** 0.5
        error = np.hypot(of_row, self.columns.standard_error[j] / len(self.cur.rows) ** 0.5)
        if self.has_noise_model:
            return error
        still = self.history[-1].change if self.history else 0.0
        if np.isfinite(still):
            error = np.hypot(error, 5 * still * self.typical_size)
        return np.where(self._guessed(i, j), self._spread(i, j), error)


def cells_of(cur: CURMatrix) -> Cells:
    """The coarse grid over a matrix in which observations and outliers are counted for pictures."""
    n1, n2 = cur.shape
    return Cells.of(chosen_first(cur.rows, n1), chosen_first(cur.cols, n2))


def ranked(cur: CURMatrix, i: np.ndarray, j: np.ndarray, observed: np.ndarray, threshold: float) -> Outliers:
    """Outliers with the largest score first."""
    recovered = cur.entries(i, j).astype(np.float64)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        score = np.abs(observed - recovered) / threshold
    order = np.argsort(-score, kind="stable")
    return Outliers(*(x[order] for x in (i, j, observed, recovered, score)))
