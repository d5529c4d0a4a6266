"""Tables with labels: what a frame calls its rows and columns on the way in, and frames of the same kind on the way out.

pandas, polars, pyarrow and xarray each have a constructor and a way to NumPy, and nothing else is needed of them. So
narwhals, which makes frames alike, is no dependency: it knows neither the index of pandas nor xarray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from array_api_compat import is_dask_array

from ..errors import ArgumentError, ArgumentTypeError
from ..samples import (
    advice_on,
    check_kind,
    column_names,
    host_array,
    is_frame,
    library_of,
    no_table,
    plain_array,
    vector_of,
)


class AxisLabels:
    """The labels of rows or columns.

    Parameters
    ----------
    labels : array (n,)
    name : str
        What the user calls the axis.
    """

    def __init__(self, labels: Any, name: str) -> None:
        self.labels, self.name = labels, name
        self._numbers: dict[Any, int] | None = None
        self._several: set[Any] = set()

    def __len__(self) -> int:
        return len(self.labels)

    def at(self, numbers: np.ndarray) -> Any:
        """The labels of some rows (columns), by number."""
        return self.labels[numbers]

    def find(self, wanted: np.ndarray, called: str) -> np.ndarray:
        """The numbers of labels, int64 (k,), of the column `called` so; -1 where there is none."""
        if self._numbers is None:
            keys = _keys(np.asarray(self.labels))
            self._numbers = {label: k for k, label in enumerate(keys)}
            if len(self._numbers) < len(keys):
                self._several = {label for label, count in Counter(keys).items() if count > 1}
        known = self._numbers
        if self._several and (asked := next((label for label in _keys(wanted) if label in self._several), None)) is not None:
            raise ArgumentError(
                "pairs",
                f"must name one of {self.name!r} in each line of its column {called!r}, got {asked!r}, which stands in the "
                "table several times; make the labels of the table different",
            )
        found = np.fromiter((known.get(label, -1) for label in _keys(wanted)), np.int64, len(wanted))
        if len(found) and (found < 0).all():
            example, other = (_shown(x) for x in (wanted, np.asarray(self.labels)))
            raise ArgumentError(
                "pairs",
                f"must have labels of {self.name!r} in its column {called!r}, and none of them is one: got {example}, "
                f"where the table has {other}",
            )
        return found


def _shown(labels: np.ndarray) -> str:
    """The first of some labels in an error: times as people write them."""
    return str(labels[0].astype("M8[s]")) if labels.dtype.kind == "M" else repr(labels[:1].tolist()[0])


def _keys(labels: np.ndarray) -> list[Any]:
    """Labels as what can be looked up: times of any unit alike."""
    if labels.dtype.kind == "M":
        return labels.astype("datetime64[ns]").astype(np.int64).tolist()
    return labels.tolist()


@dataclass(frozen=True, eq=False)
class Wide:
    """A table of one column for each column of the matrix.

    Attributes
    ----------
    source : object
        What the user gave.
    values : float array (n1, n2)
        NaN where nothing was observed.
    rows, columns : AxisLabels
    value_name : str
        What to call values in long tables.
    """

    source: Any
    values: np.ndarray
    rows: AxisLabels
    columns: AxisLabels
    value_name: str = "value"

    @classmethod
    def of(cls, data: Any) -> Wide:
        """The table that the user gave."""
        library = library_of(data)
        if library == "xarray":
            return cls._of_xarray(data)
        if library == "pandas" and is_frame(data):
            rows = AxisLabels(data.index, str(data.index.name or "row"))
            return cls(data, _matrix(data), rows, AxisLabels(data.columns, str(data.columns.name or "column")))
        if is_frame(data):  # polars and pyarrow have no index: a first column of text is one
            data = _index_first(data)
            names = column_names(data)
            first = vector_of(data[names[0]])
            if first.dtype.kind in "iufb":
                return cls(data, _matrix(data), *_numbered(data.shape, names))
            rest = data.select(names[1:])
            return cls(data, _matrix(rest), AxisLabels(first, names[0]), AxisLabels(np.asarray(names[1:]), "column"))
        values = _matrix(data)
        return cls(values, values, *_numbered(values.shape))

    @classmethod
    def _of_xarray(cls, data: Any) -> Wide:
        values = _matrix(data)
        known = [
            AxisLabels(data.coords[dim].values if dim in data.coords else np.arange(n), str(dim))
            for dim, n in zip(data.dims, data.shape, strict=True)
        ]
        return cls(data, values, known[0], known[1], str(data.name or "value"))

    def filled(self, values: np.ndarray) -> Any:
        """A table of the same kind with the same labels and other values (n1, n2)."""
        library = library_of(self.source)
        if library == "pandas":
            return type(self.source)(values, index=self.source.index, columns=self.source.columns)
        if library == "xarray":
            return self.source.copy(data=values)
        if library is None:
            return values
        names = column_names(self.source)
        more = {names[0]: self.source[names[0]]} if len(names) > values.shape[1] else {}
        columns = dict(zip(names[len(more) :], np.ascontiguousarray(values.T), strict=True))
        return frame_of(self.source, more | columns)


def _numbered(shape: tuple[int, ...], names: Sequence[str] | None = None) -> tuple[AxisLabels, AxisLabels]:
    """Rows by number, and columns by name or number."""
    columns = np.arange(shape[1]) if names is None else np.asarray(names)
    return AxisLabels(np.arange(shape[0]), "row"), AxisLabels(columns, "column")


def _index_first(data: Any) -> Any:
    """A table of pyarrow that was made of a pandas frame has the index as its last column: put it first."""
    names = column_names(data)
    known = (getattr(getattr(data, "schema", None), "pandas_metadata", None) or {}).get("index_columns", [])
    index = [name for name in known if isinstance(name, str) and name in names]  # a range of numbers is no column
    return data.select([*index, *(name for name in names if name not in index)]) if len(index) == 1 else data


def _matrix(data: Any) -> np.ndarray:
    """The numbers of a wide table, float32 or float64 (n1, n2); a copy, since they are looked at again after the solve."""
    if is_dask_array(data):
        raise ArgumentTypeError("data", "must fit into memory, got a Dask array; robust_pca(data) reads the part it needs")
    if hasattr(data, "compute") and library_of(data) is None:
        raise ArgumentTypeError("data", f"must be a table in memory, got {no_table('data', data)}")
    if hasattr(data, "tocoo"):
        raise ArgumentTypeError("data", "must be a table, got a sparse matrix; use rcurc(CrossSamples.from_sparse(data))")
    if data is None or isinstance(data, (str, PathLike)):
        reads = "" if data is None else "; rg.io.read_observations and pandas.read_csv read files"
        raise ArgumentTypeError("data", f"must be a table, got {data!r}{reads}")
    if isinstance(data, Mapping) and library_of(data) is None:
        raise ArgumentTypeError("data", f"must be a table, got {no_table('data', data)}")
    found = host_array("data", plain_array("data", data))
    check_kind("data", found)
    if found.ndim != 2 or 0 in found.shape:
        two_labels = getattr(getattr(data, "index", None), "nlevels", 1) == 2
        fix = "; data.unstack() makes one of readings with two labels" if two_labels else ""
        raise ArgumentError("data", f"must be a table of rows and columns, got shape {found.shape}{fix}")
    return found.astype(found.dtype if found.dtype in (np.float32, np.float64) else np.float64)


@dataclass(frozen=True, eq=False)
class Long:
    """A table of one line for each observation.

    Attributes
    ----------
    source : frame
    i, j : int64 arrays (n,)
        Row and column of each observation.
    values : float array (n,)
    sigma : float array (n,) or None
    rows, columns : AxisLabels
    value_name : str
    """

    source: Any
    i: np.ndarray
    j: np.ndarray
    values: np.ndarray
    sigma: np.ndarray | None
    rows: AxisLabels
    columns: AxisLabels
    value_name: str

    @classmethod
    def of(cls, data: Any, named: Mapping[str, Any], sigma: Any) -> Long:
        """The table that the user gave; `named` has the columns ``rows``, ``columns`` and ``values``."""
        if not is_frame(data):
            raise ArgumentTypeError("data", f"must be a data frame if its columns are named, got {no_table('data', data)}")
        missing = [option for option, name in named.items() if name is None]
        if missing:
            raise ArgumentError(missing[0], "must be named, too: a long table needs rows=, columns= and values=")
        found = {option: _column(data, option, name) for option, name in named.items()}
        values = host_array(str(named["values"]), found["values"])
        if values.dtype.kind not in "iufb":
            raise ArgumentTypeError(
                "values", f"must name a column of numbers, got {named['values']!r} of {values.dtype}{advice_on(values)}"
            )
        values = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
        seen = ~np.isnan(values)
        if not seen.any():
            raise ArgumentError("values", f"must name a column with numbers, but {named['values']!r} is empty")
        noise = None if sigma is None else host_array("sigma", _column(data, "sigma", sigma))[seen]
        axes = [_encoded(found[option], option, named[option]) for option in ("rows", "columns")]
        (i, rows), (j, columns) = axes
        return cls(data, i[seen], j[seen], values[seen], noise, rows, columns, str(named["values"]))

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)"""
        return len(self.rows), len(self.columns)

    def filled(self, values: np.ndarray) -> Any:
        """A wide table of the same library."""
        names = [str(label) for label in np.asarray(self.columns.labels).tolist()]
        if library_of(self.source) == "pandas":
            import pandas as pd

            index, columns = (pd.Index(x.labels, name=x.name) for x in (self.rows, self.columns))
            return pd.DataFrame(values, index=index, columns=columns)
        columns = dict(zip(names, np.ascontiguousarray(values.T), strict=True))
        return frame_of(self.source, {self.rows.name: self.rows.labels} | columns)


def _column(data: Any, option: str, name: Any) -> Any:
    there = column_names(data)
    if there.count(name) != 1:
        raise ArgumentError(option, f"must name one column of the table, got {name!r}; its columns are {there}", name)
    return data[name]


def _encoded(column: Any, option: str, name: Any) -> tuple[np.ndarray, AxisLabels]:
    """The number of each label, int64 (n,), and the labels: numbers and times ascend, others stand as they first come."""
    found = vector_of(column)
    keys = _keys(found)
    first: dict[Any, int] = {}
    codes = np.fromiter((first.setdefault(key, len(first)) for key in keys), np.int64, len(keys))
    gone = [k for key, k in first.items() if key is None or key != key or type(key).__name__ in ("NAType", "NaTType")]
    if gone:
        where = int(np.argmax(np.isin(codes, gone)))
        raise ArgumentError(option, f"must have a label in each line, but {name!r} has none in line {where} (from 0)")
    _, start = np.unique(codes, return_index=True)
    labels = found[start]
    if labels.dtype.kind in "iufM":
        order = np.argsort(labels, kind="stable")
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        codes, labels = place[codes], labels[order]
    return codes, AxisLabels(labels, str(name))


def place_in(given: Wide | Long, i: int, j: int) -> str:
    """An entry of a table in an error."""
    row, column = (_shown(np.asarray(axis.labels)[k : k + 1]) for axis, k in ((given.rows, i), (given.columns, j)))
    return f"row {row}, column {column}"


def frame_of(like: Any, columns: Mapping[str, Any], index: Any = None) -> Any:
    """A frame of the library of `like` (pandas, if it is none) with these columns; `index` is for pandas."""
    library = library_of(like)
    if library == "polars":
        import polars

        return polars.DataFrame(dict(columns))
    if library == "pyarrow":
        import pyarrow

        return pyarrow.table({name: x if library_of(x) else np.asarray(x) for name, x in columns.items()})
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("tables of arrays need pandas: pip install pandas") from error
    return pd.DataFrame(dict(columns), index=index)
