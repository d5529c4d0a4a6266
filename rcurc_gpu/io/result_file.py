"""Files of results with their labels: `save_result` and `load_result`."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import numpy as np

from .. import files
from ..core.history import as_table, from_table
from ..extend.diagnostics import FILE_NAMES, UnitDiagnostics
from ..judge.groups import Groups
from ..result.matrix import FACTORS, CURMatrix, matrix_from
from ..result.result import Result
from ..result.uncertainty import uncertainty_arrays
from .completion import Completion, Observations, cells_of, ranked
from .labels import Labels

_VERSION = 1
_WORDS = ("message", "cause", "method", "device", "kernels")
_NUMBERS = ("noise", "threshold", "expected_error", "seconds")
_LISTED = ("i", "j", "observed")  # of the outliers; the rest follows from the matrix
# what arrays of a file may be of, beside those of the matrix: whole numbers, or any
_KINDS = dict.fromkeys(("seen", "n_obs", "outlier_i", "outlier_j", "observed_i", "observed_j"), "iu")
_KINDS |= dict.fromkeys((f"{axis}_{name}" for axis in ("row", "col") for name in FILE_NAMES), "iufb")
_KINDS |= dict.fromkeys(("observed_value", "outlier_observed", "history", *_NUMBERS), "iuf")


def save_result(path: str | os.PathLike[str], result: Result | Completion, labels: Labels | None = None) -> None:
    """Write a result with its labels to one ``.npz`` file (no pickle), atomically; `CURMatrix.load` reads it too.

    Parameters
    ----------
    path : path
    result : Result or Completion
    labels : Labels, optional
        Of the rows and columns, if a `Result` is given.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((60, 50), rank=1, n_rows=30, n_cols=30, rate=0.8, seed=0)
    >>> labels = rg.io.Labels([f"hut {i}" for i in range(60)], [f"day {j}" for j in range(50)])
    >>> rg.io.save_result("huts.npz", rg.rcurc(problem.samples), labels)
    >>> rg.io.load_result("huts.npz").predict(["hut 3"], ["day 5"]).value.shape
    (1,)
    """
    c = result if isinstance(result, Completion) else Completion.of(result, labels)
    arrays: dict[str, np.ndarray] = {
        "completion": np.asarray(_VERSION),
        **{name: getattr(c.cur, name) for name in FACTORS},
        "singular_values": c.cur.singular_values(),
        "converged": np.asarray(c.converged),
        "history": as_table(c.history),
        **{f"outlier_{name}": getattr(c.outliers, name) for name in _LISTED},
        "n_obs": np.asarray(c.n_obs),
        "seen": c.seen,
        **{f"observed_{f.name}": getattr(c.some_observed, f.name) for f in fields(Observations)},
        "prediction_error": np.asarray(float(c.prediction_error)),
    }
    if c.noise_strengths is not None:
        arrays["strengths"] = np.asarray(c.noise_strengths, dtype=np.float64)
    if c.groups is not None:
        arrays |= {"group_of_row": c.groups.rows, "group_of_col": c.groups.columns}
    arrays |= {name: np.asarray(str(getattr(c, name))) for name in _WORDS}
    arrays |= {name: np.asarray(float(getattr(c, name))) for name in _NUMBERS}
    for axis, units in (("row", c.rows), ("col", c.columns)):
        arrays |= {f"{axis}_{name}": x for name, x in units.file_arrays().items()}
    files.write_npz(path, "CURMatrix", arrays | uncertainty_arrays(c.cur.uncertainty) | c.labels.arrays())


def load_result(path: str | os.PathLike[str]) -> Completion:
    """Read what `save_result` wrote.

    Raises
    ------
    ValueError
        If the file is another one, or damaged.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((60, 50), rank=1, n_rows=30, n_cols=30, rate=0.8, seed=0)
    >>> rg.io.save_result("huts.npz", rg.rcurc(problem.samples))
    >>> kept = rg.io.load_result("huts.npz")
    >>> kept.converged, kept.shape
    (True, (60, 50))
    """
    where = os.fspath(path)
    a = files.read_npz(path, "CURMatrix", FACTORS)
    if "completion" not in a:
        raise ValueError(f"{where!r} has a matrix only, not how it was found (CURMatrix.save wrote it, not save_result)")
    if str(a["completion"]) != str(_VERSION):
        raise ValueError(f"{where!r} is a result of version {str(a['completion'])[:20]}; this program reads {_VERSION}")
    try:
        return _loaded(where, a)
    except KeyError as error:
        raise ValueError(f"{where!r} lacks {error.args[0]}: the result is damaged") from error
    except (IndexError, TypeError, OverflowError, ValueError) as error:
        if str(error).startswith(repr(where)):
            raise
        raise ValueError(f"{where!r} is damaged: {files.line_of(error)}") from error


def _matrix_in(where: str, a: dict[str, np.ndarray]) -> tuple[CURMatrix, np.ndarray | None]:
    """The matrix with its uncertainty, and the strengths of its components; version 0.1 had neither."""
    cur = matrix_from(where, a)
    strengths = np.asarray(a["strengths"], dtype=np.float64) if "strengths" in a else None
    if strengths is not None and (strengths.ndim != 1 or cur.rank - len(strengths) not in (0, 2)):
        raise ValueError(f"{where!r} is damaged: strengths do not fit a matrix of rank {cur.rank}")
    return cur, strengths


def _some_observed(where: str, a: dict[str, np.ndarray], shape: tuple[int, int]) -> Observations:
    """The observations for pictures; version 0.1 had none."""
    if "observed_i" not in a:
        return Observations()
    found = Observations(*(a[f"observed_{f.name}"] for f in fields(Observations)))
    sizes = {found.i.shape, found.j.shape, found.value.shape}
    inside = all(
        x.ndim == 1 and (len(x) == 0 or 0 <= x.min() <= x.max() < n) for x, n in zip((found.i, found.j), shape, strict=True)
    )
    if len(sizes) != 1 or not inside:
        raise ValueError(f"{where!r} is damaged: the observations do not fit a matrix of {shape}")
    return found


def _groups_in(where: str, a: dict[str, np.ndarray], shape: tuple[int, int]) -> Groups | None:
    """The groups that nothing ties together, if there are any."""
    if "group_of_row" not in a:
        return None
    labels = a["group_of_row"], a["group_of_col"]
    if tuple(x.shape for x in labels) != ((shape[0],), (shape[1],)) or any(x.dtype.kind != "i" for x in labels):
        raise ValueError(f"{where!r} is damaged: the groups do not fit a matrix of {shape}")
    return Groups(*labels)


def _loaded(where: str, a: dict[str, np.ndarray]) -> Completion:
    cur, strengths = _matrix_in(where, a)
    for name, kinds in _KINDS.items():
        if name in a and a[name].dtype.kind not in kinds:
            raise ValueError(f"{where!r} is damaged: {name} is of {a[name].dtype}")
    if a["seen"].shape != cells_of(cur).shape:
        raise ValueError(f"{where!r} is damaged: seen does not fit a matrix of {cur.shape}")
    units = {}
    for axis, n in zip(("row", "col"), cur.shape, strict=True):
        found = [a[f"{axis}_{name}"] for name in FILE_NAMES]
        if any(x.shape != (n,) for x in found):
            raise ValueError(f"{where!r} is damaged: the diagnostics do not fit a matrix of {cur.shape}")
        units[axis] = UnitDiagnostics(*found)
    words: dict[str, Any] = {name: str(a[name]) for name in _WORDS} | {name: float(a[name]) for name in _NUMBERS}
    i, j, observed = (a[f"outlier_{name}"] for name in _LISTED)
    if {x.shape for x in (i, j, observed)} != {(i.size,)} or a["history"].ndim != 2:
        raise ValueError(f"{where!r} is damaged: the outliers or the history are none")
    return Completion(
        cur=cur,
        labels=Labels.from_arrays(a, cur.shape, where),
        converged=bool(a["converged"]),
        history=from_table(a["history"]),
        columns=units["col"],
        rows=units["row"],
        outliers=ranked(cur, i, j, observed, words["threshold"]),
        n_obs=int(a["n_obs"]),
        seen=a["seen"],
        some_observed=_some_observed(where, a, cur.shape),
        groups=_groups_in(where, a, cur.shape),
        prediction_error=float(a.get("prediction_error", np.nan)),
        noise_strengths=strengths,
        **words,
    )
