"""Tables in, tables out: complete a data frame and keep its labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..api import rcurc
from ..backends import Stream, generator
from ..errors import ArgumentError, DisagreementError, check_choice, check_count, seed_to_int
from ..extend import OK
from ..io import Completion
from ..options import Asked, Settings, check_rank, documented
from ..result import Result
from ..samples import (
    CrossSamples,
    choose_cross,
    column_names,
    cross_size,
    is_frame,
    library_of,
    no_table,
    sigma_matrix,
    vector_of,
)
from ..solve import last_seed
from ..summary import Summarised, Summary
from .frames import Long, Wide, frame_of, place_in

REPLACE = ("missing", "outliers", "all")
_PLENTY = 1000  # rows (columns) from which on more of them cost more than they bring
_CONCENTRATED = 2.0  # how much denser than the whole a cross has to be to be worth choosing


@dataclass(frozen=True, eq=False, repr=False)
class CompletedTable(Summarised):
    """The result of `complete`: tables of the kind that was given, with its labels.

    Attributes
    ----------
    result : Result
        All that is known of the solve, by number of row and column.
    given : Wide or Long
        What was given, and its labels.
    replace : {"missing", "outliers", "all"}
        What `table` has from the model.
    sigma : float array (n1, n2) or None
        What a wide table was given with, as the noise of each entry.
    """

    result: Result
    given: Wide | Long
    replace: str = "outliers"
    sigma: Any = None

    @property
    def converged(self) -> bool:
        """Whether held-out entries confirm the result."""
        return self.result.converged

    @property
    def message(self) -> str:
        """How good it is, or what is wrong and what to try."""
        return self.result.message

    def _summary(self) -> Summary:
        known = self.result._summary()
        labels = f"{len(self.given.rows):,} labels of {self.given.rows.name!r}, {len(self.given.columns):,} of "
        more = {"table": f"{labels}{self.given.columns.name!r}", "next": "table, outliers, predict(pairs), interval()"}
        return Summary({**more, **known.facts}, known.message, known.good)

    @cached_property
    def _completion(self) -> Completion:
        return Completion.of(self.result)

    @cached_property
    def _outliers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, column and observed value of the outliers."""
        if isinstance(self.given, Long):
            o = self._completion.outliers
            return o.i, o.j, o.observed
        i, j = self.result.outliers_of(self.given.values, sigma=self._usable_sigma).nonzero()
        judged = (self.result.rows.status[i] == OK) & (self.result.columns.status[j] == OK)
        i, j = i[judged], j[judged]  # what is not determined contradicts no observation
        return i, j, self.given.values[i, j].astype(np.float64)

    @property
    def _usable_sigma(self) -> Any:
        """`sigma`, unless what it is compared with was not kept (``intervals=False``); then outliers go by the threshold."""
        return None if self.result.has_noise_model and self.result.cur.uncertainty is None else self.sigma

    @cached_property
    def table(self) -> Any:
        """The whole table, wide, with the labels of what was given.

        Holes are filled and outliers replaced; other observations stay as they are (see `replace`). Of a long table all
        values are those of the model.
        """
        fitted = np.asarray(self.result.cur)
        if isinstance(self.given, Long) or self.replace == "all":
            return self.given.filled(fitted)
        wanted = np.isnan(self.given.values)
        if self.replace == "outliers":
            i, j, _ = self._outliers
            wanted[i, j] = True
        return self.given.filled(np.where(wanted, fitted, self.given.values))

    def interval(self, level: float = 0.95, *, new: bool = True) -> tuple[Any, Any]:
        """Where each entry is with probability `level`, as two wide tables.

        Parameters
        ----------
        level : float in (0, 1)
        new : bool
            Whether of a new observation, noise included, or of the matrix itself.

        Returns
        -------
        lower, upper : tables
        """
        n1, n2 = self.result.cur.shape
        i, j = np.indices((n1, n2)).reshape(2, -1)
        found = self._completion.interval(i, j, level, new=new)
        lower, upper = (self.given.filled(x.reshape(n1, n2)) for x in found)
        return lower, upper

    @cached_property
    def outliers(self) -> Any:
        """Observations that do not fit, as a frame: row and column by their labels, observed and recovered value, and the
        size of their difference over that from which on it is an outlier, the largest first."""
        i, j, observed = self._outliers
        recovered = np.asarray(self.result.cur.entries(i, j), dtype=np.float64)
        score = np.abs(observed - recovered) / self.result.threshold
        order = np.argsort(-score, kind="stable")
        rows, columns = self.given.rows, self.given.columns
        labels = {rows.name: rows.at(i[order]), columns.name: columns.at(j[order])}
        found = {"observed": observed, "recovered": recovered, "score": score}
        return frame_of(self.given.source, labels | {name: x[order] for name, x in found.items()})

    def predict(self, pairs: Any, level: float = 0.95) -> Any:
        """Entries by their labels.

        Parameters
        ----------
        pairs : frame
            With a column of labels of rows and one of labels of columns, called as in the table that was given; a frame of
            two columns may call them otherwise.
        level : float in (0, 1)
            Of the intervals.

        Returns
        -------
        frame
            Of the kind of `pairs`, in its order: both labels, the value, its expected error, and the interval of a new
            observation. NaN where a label is not known.
        """
        if not is_frame(pairs):
            raise ArgumentError("pairs", f"must be a data frame with two columns of labels, got {no_table('pairs', pairs)}")
        rows, columns = self.given.rows, self.given.columns
        names, there = [rows.name, columns.name], column_names(pairs)
        if not all(there.count(name) == 1 for name in names):
            if len(there) != 2:
                raise ArgumentError("pairs", f"must have the columns {names[0]!r} and {names[1]!r}, got {there}")
            names = there
        labels = [vector_of(pairs[name]) for name in names]
        found = self._completion.predict_at(rows.find(labels[0], names[0]), columns.find(labels[1], names[1]), level)
        numbers = {self.given.value_name: found.value, "expected_error": found.expected_error}
        if found.lower is not None and found.upper is not None:
            numbers |= {"lower": found.lower, "upper": found.upper}
        index = pairs.index if library_of(pairs) == "pandas" else None
        return frame_of(pairs, {name: pairs[name] for name in names} | numbers, index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        wide = isinstance(self.given, Wide)
        found = Wide.of(self.table).values if wide else np.asarray(self.result.cur)
        return found if dtype is None else found.astype(dtype)


@documented
def complete(
    data: Any,
    rank: int | str = Asked.rank,
    *,
    rows: Any = None,
    columns: Any = None,
    values: Any = None,
    sigma: Any = None,
    replace: str = "outliers",
    duplicates: str = "error",
    seed: Any = Settings.seed,
    **options: Any,
) -> CompletedTable:
    """Complete a table: fill its holes, find what is wrong in it, and keep its labels.

    Parameters
    ----------
    data : DataFrame (pandas, polars), pyarrow Table, xarray DataArray, array, masked array or nested lists
        A wide table: a row for each row of the matrix, and a column for each column. NaN, None, null and what is masked was
        not observed. Rows have the labels of pandas' index, of xarray's coordinates, or of a first column of text in polars
        and pyarrow. With `rows`, `columns` and `values`, a long table: a line for each observation.
    rows, columns, values : str, optional
        The columns of a long table with the label of the row, the label of the column, and the value.
    sigma : str or array, optional
        Standard deviation of the noise of each observation, in any unit: the column of a long table, or an array that
        broadcasts to the shape of a wide one.
    replace : {"missing", "outliers", "all"}
        What `CompletedTable.table` has from the model: missing entries; also observations that are outliers; or everything,
        which also takes out the noise.
    duplicates : {"error", "mean", "median"}
        What to do with lines of a long table that disagree on an entry.

    Returns
    -------
    CompletedTable
        With `table`, `predict`, `interval` and `outliers`, all with labels.

    Warns
    -----
    ConvergenceWarning
        If the result is not confirmed; `message` says why.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> import rcurc_gpu as rg
    >>> truth = np.outer(np.arange(1.0, 41.0), np.arange(1.0, 11.0))
    >>> levels = pd.DataFrame(truth, columns=list("abcdefghij"))
    >>> levels.loc[3, "e"] = None  # a hole
    >>> levels.loc[0, "a"] = 1e6  # a glitch
    >>> done = rg.complete(levels)
    >>> bool(np.allclose(done.table, truth))
    True
    >>> done.outliers[["row", "column", "observed"]].values.tolist()
    [[0, 'a', 1000000.0]]
    """
    check_choice("replace", replace, REPLACE)
    named = {"rows": rows, "columns": columns, "values": values}
    number = seed_to_int(last_seed(options.get("checkpoint"), options.get("output")) if seed is None else seed)
    given: Wide | Long
    whole = None
    if any(name is not None for name in named.values()):
        given = Long.of(data, named, sigma)
        entries = (given.i, given.j, given.values)
        try:
            samples = CrossSamples.from_triplets(*entries, given.shape, duplicates=duplicates, sigma=given.sigma)
        except DisagreementError as error:
            raise error.in_labels("data", place_in(given, *error.entry)) from error
    else:
        given = Wide.of(data)
        _check_finite(given)
        i, j = np.nonzero(~np.isnan(given.values))
        if len(i) == 0:
            raise ArgumentError("data", "has no observation: all of it is missing")
        whole = None if sigma is None else np.array(sigma_matrix(sigma, given.values, given.values.shape, "data"))
        noise = None if whole is None else whole[i, j]
        samples = cross_of_table((i, j, given.values[i, j]), given.values.shape, rank, number, sigma=noise)
    return CompletedTable(rcurc(samples, rank, seed=number, **options), given, replace, whole)


def _check_finite(given: Wide) -> None:
    """Name the labels of a value that is infinite."""
    where = np.argwhere(np.isinf(given.values))
    if len(where):
        i, j = where[0].tolist()
        value = given.values[i, j]
        raise ArgumentError("data", f"must be finite where it is not missing, got {value} at {place_in(given, i, j)}")


def cross_of_table(
    entries: tuple[np.ndarray, np.ndarray, np.ndarray],
    shape: tuple[int, ...],
    rank: int | str,
    seed: int,
    counts: tuple[int | None, int | None] = (None, None),
    sigma: np.ndarray | None = None,
) -> CrossSamples:
    """The cross of a table to solve: rows and columns on which observations concentrate, or random ones.

    Parameters
    ----------
    entries : tuple of arrays (n,)
        Row, column and value of the observations; at least one.
    shape : (int, int)
    rank : int or "auto"
    seed : int
    counts : pair of int or None
        Rows and columns to take; by default as many as are needed.
    sigma : float array (n,), optional
        As in `CrossSamples.from_triplets`.
    """
    (i, j, _), (n1, n2) = entries, shape
    rank = check_rank(rank, min(n1, n2), "the smaller side of the table")
    share = len(i) / (n1 * n2)
    chosen = choose_cross(i, j, (n1, n2))
    inside = [np.isin(k, c) for k, c in zip((i, j), chosen, strict=True)]
    density = float((inside[0] & inside[1]).sum()) / (len(chosen[0]) * len(chosen[1]))
    cross, rng = [], generator(seed, Stream.ESTIMATOR)
    for name, count, busiest, n in zip(("n_rows", "n_cols"), counts, chosen, (n1, n2), strict=True):
        if count is not None:
            size, among = check_count(name, count, 1, n), np.arange(n)
        else:
            among = busiest if density >= _CONCENTRATED * share else np.arange(n)
            size = min(max(math.ceil(cross_size(rank, n) / max(share, density)), _PLENTY), len(among))
        cross.append(np.sort(rng.choice(among, size, replace=False)))
    return CrossSamples.from_triplets(*entries, (n1, n2), *cross, sigma=sigma)
