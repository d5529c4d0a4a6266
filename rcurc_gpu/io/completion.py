"""A result with its labels, in a file that needs nothing else: no samples, no table it came from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .. import files
from ..backends.arrays import to_numpy
from ..core.history import RankCurve, as_table, from_table
from ..extend.diagnostics import FILE_NAMES, OK, UnitDiagnostics
from ..result.matrix import CURMatrix
from ..result.outliers import outlying_once
from ..result.result import Outcome, Result
from ..result.uncertainty import uncertainty_from
from ..samples.building import index_vector
from ..samples.cells import Cells, chosen_first
from .labels import Labels

_VERSION = 1
_WORDS = ("message", "cause", "method", "device", "kernels")
_NUMBERS = ("noise", "threshold", "expected_error", "seconds")
_FACTORS = ("left", "right", "rows", "cols")  # of the matrix
_LISTED = ("i", "j", "observed")  # of the outliers; the rest follows from the matrix


@dataclass(frozen=True, eq=False)
class Outliers:
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


@dataclass(frozen=True, eq=False)
class Predictions:
    """Entries of the recovered matrix that somebody asked for.

    Attributes
    ----------
    value : float64 array (k,)
        NaN where the entry is not known.
    expected_error : float64 array (k,)
        Standard deviation of the error to expect from noise, in the unit of the data; NaN where the value is, and where
        it is a guess (``undetermined="keep"``).
    known_row, known_col : bool arrays (k,)
        Whether there is such a row, and column. Where both are and the value is NaN, it could not be determined.
    guess : bool array (k,)
        Where there is a value though its row or column could not be determined (``undetermined="keep"``).
    """

    value: np.ndarray
    expected_error: np.ndarray
    known_row: np.ndarray
    known_col: np.ndarray
    guess: np.ndarray

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
    cur, converged, message, cause, history, columns, rows, noise, threshold, expected_error, rank_curve, method, device, \
kernels, seconds :
        As in `Result`, on the host.
    labels : Labels
    outliers : Outliers
    n_obs : int
        Observations that were solved.
    seen : int64 array
        Observations in each cell of a coarse grid (see `cells.Cells`), for pictures.
    """

    labels: Labels
    outliers: Outliers
    n_obs: int
    seen: np.ndarray

    @classmethod
    def of(cls, result: Result, labels: Labels | None = None) -> Completion:
        """What to keep of a result."""
        cur = CURMatrix(to_numpy(result.cur.left), to_numpy(result.cur.right), result.cur.rows, result.cur.cols)
        i, j, observed, _ = outlying_once(result.samples, cur, result.threshold)
        same = {field.name: getattr(result, field.name) for field in fields(Outcome)}
        return cls(
            **same | {"cur": cur, "converged": bool(result.converged)},
            labels=Labels() if labels is None else labels,
            outliers=_ranked(cur, i, j, observed.astype(np.float64), result.threshold),
            n_obs=result.samples.n_obs,
            seen=_cells(cur).count_seen(result.samples),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)"""
        return self.cur.shape

    @property
    def outlier_cells(self) -> np.ndarray:
        """Outliers in each cell of the grid of `seen`."""
        return _cells(self.cur).count(self.outliers.i, self.outliers.j)

    def __repr__(self) -> str:
        return (
            f"Completion(shape={self.shape}, rank={self.rank}, converged={self.converged}, outliers={len(self.outliers):,} "
            f"of {self.n_obs:,}, message={self.message!r})"
        )

    def predict(self, rows: Sequence[str], cols: Sequence[str]) -> Predictions:
        """Entries by the labels of their rows and columns (or numbers from 0, where there are no labels).

        Parameters
        ----------
        rows, cols : sequences of str (k,)
        """
        n1, n2 = self.shape
        return self.predict_at(self.labels.find_rows(rows, n1), self.labels.find_cols(cols, n2))

    def predict_at(self, i: np.ndarray, j: np.ndarray) -> Predictions:
        """Entries by number, int64 arrays (k,); -1 stands for a row or column that does not exist."""
        known_row, known_col = i >= 0, j >= 0
        both = known_row & known_col
        value, error = np.full(len(i), np.nan), np.full(len(i), np.nan)
        value[both] = self.cur.entries(i[both], j[both])
        error[both] = self._entry_errors(i[both], j[both])
        guess = np.zeros(len(i), dtype=bool)  # kept although it could not be determined: nobody knows how wrong it is
        guess[both] = (self.rows.status[i[both]] != OK) | (self.columns.status[j[both]] != OK)
        error[np.isnan(value) | guess] = np.nan
        return Predictions(value, error, known_row, known_col, guess & ~np.isnan(value))

    def _entry_errors(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """The errors of a row and of a column, each spread evenly over its part in the cross, and the way that the iteration
        had still to go (see `judge.expected_error`); they add in squares."""
        square = self.rows.standard_error[i] ** 2 / len(self.cur.cols)
        square += self.columns.standard_error[j] ** 2 / len(self.cur.rows)
        still = self.history[-1].change if self.history else 0.0
        typical = float(np.sum(self.cur.singular_values() ** 2)) / (self.shape[0] * self.shape[1])
        return np.sqrt(square + (5 * still) ** 2 * typical if np.isfinite(still) else square)


def _cells(cur: CURMatrix) -> Cells:
    n1, n2 = cur.shape
    return Cells.of(chosen_first(cur.rows, n1), chosen_first(cur.cols, n2))


def _ranked(cur: CURMatrix, i: np.ndarray, j: np.ndarray, observed: np.ndarray, threshold: float) -> Outliers:
    recovered = cur.entries(i, j).astype(np.float64)
    with np.errstate(divide="ignore"):
        score = np.abs(observed - recovered) / threshold
    order = np.argsort(-score, kind="stable")
    return Outliers(*(x[order] for x in (i, j, observed, recovered, score)))


# ---------------------------------------------------------------- files


def save_result(path: str | os.PathLike[str], result: Result | Completion, labels: Labels | None = None) -> None:
    """Write a result with its labels to one ``.npz`` file (no pickle), atomically; `CURMatrix.load` reads it too.

    Parameters
    ----------
    path : path
    result : Result or Completion
    labels : Labels, optional
        Of the rows and columns, if a `Result` is given.
    """
    c = result if isinstance(result, Completion) else Completion.of(result, labels)
    arrays: dict[str, np.ndarray] = {
        "completion": np.asarray(_VERSION),
        **{name: getattr(c.cur, name) for name in _FACTORS},
        "singular_values": c.cur.singular_values(),
        "converged": np.asarray(c.converged),
        "history": as_table(c.history),
        **{f"outlier_{name}": getattr(c.outliers, name) for name in _LISTED},
        "n_obs": np.asarray(c.n_obs),
        "seen": c.seen,
    }
    arrays |= {name: np.asarray(str(getattr(c, name))) for name in _WORDS}
    arrays |= {name: np.asarray(float(getattr(c, name))) for name in _NUMBERS}
    for axis, units in (("row", c.rows), ("col", c.columns)):
        arrays |= {f"{axis}_{name}": x for name, x in units.file_arrays().items()}
    if c.rank_curve is not None:
        curve = c.rank_curve
        arrays["rank_curve"] = np.asarray([curve.ranks, curve.errors, curve.supported], dtype=float)
        arrays["rank_chosen"] = np.asarray(curve.chosen)
    files.write_npz(path, "CURMatrix", arrays | c.labels.arrays())


def load_result(path: str | os.PathLike[str]) -> Completion:
    """Read what `save_result` wrote.

    Raises
    ------
    ValueError
        If the file is another one, or damaged.
    """
    where = os.fspath(path)
    a = files.read_npz(path, "CURMatrix", _FACTORS)
    if "completion" not in a:
        raise ValueError(f"{where!r} has a matrix only, not how it was found (CURMatrix.save wrote it, not save_result)")
    if int(a["completion"]) != _VERSION:
        raise ValueError(f"{where!r} is a result of version {int(a['completion'])}; this program reads {_VERSION}")
    try:
        return _loaded(where, a)
    except KeyError as error:
        raise ValueError(f"{where!r} lacks {error.args[0]}: the result is damaged") from error
    except (IndexError, TypeError) as error:
        raise ValueError(f"{where!r} is damaged: {error}") from error


def _loaded(where: str, a: dict[str, np.ndarray]) -> Completion:
    for name in ("left", "right"):
        if a[name].ndim != 2 or a[name].dtype not in (np.float32, np.float64):
            raise ValueError(f"{where!r} is damaged: {name} is not a matrix of numbers")
    left, right, rows, cols = (a[name] for name in _FACTORS)
    cur = CURMatrix(left, right, rows, cols, uncertainty_from(a, (len(left), len(right))))
    for name, n in zip(("rows", "cols"), cur.shape, strict=True):
        index_vector(f"{where!r} is damaged: {name}", a[name], n)
    if a["seen"].shape != _cells(cur).shape:
        raise ValueError(f"{where!r} is damaged: seen does not fit a matrix of {cur.shape}")
    units = {}
    for axis, n in zip(("row", "col"), cur.shape, strict=True):
        found = [a[f"{axis}_{name}"] for name in FILE_NAMES]
        if any(x.shape != (n,) for x in found):
            raise ValueError(f"{where!r} is damaged: the diagnostics do not fit a matrix of {cur.shape}")
        units[axis] = UnitDiagnostics(*found)
    curve = None
    if "rank_curve" in a:
        ranks, errors, supported = a["rank_curve"].tolist()
        curve = RankCurve([int(k) for k in ranks], errors, [int(k) for k in supported], int(a["rank_chosen"]))
    words: dict[str, Any] = {name: str(a[name]) for name in _WORDS} | {name: float(a[name]) for name in _NUMBERS}
    i, j, observed = (a[f"outlier_{name}"] for name in _LISTED)
    return Completion(
        cur=cur,
        labels=Labels.from_arrays(a, cur.shape, where),
        converged=bool(a["converged"]),
        history=from_table(a["history"]),
        columns=units["col"],
        rows=units["row"],
        rank_curve=curve,
        outliers=_ranked(cur, i, j, observed, words["threshold"]),
        n_obs=int(a["n_obs"]),
        seen=a["seen"],
        **words,
    )
