"""What people have instead of plain arrays: data frames, tables, masked arrays, Dask arrays, lists with None.

None of their libraries is imported here: an object says by its type where it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
from array_api_compat import is_dask_array

from ..errors import ArgumentTypeError

_LIBRARIES = ("pandas", "polars", "pyarrow", "xarray")
_MISSING = ("NoneType", "NAType", "NaTType", "MaskedConstant")  # types of what stands for a missing value


def library_of(x: Any) -> str | None:
    """Which of pandas, polars, pyarrow and xarray `x` is of; None if it is of no one of them."""
    roots = (cls.__module__.partition(".")[0] for cls in type(x).__mro__)
    return next((root for root in roots if root in _LIBRARIES), None)


def is_frame(x: Any) -> bool:
    """Whether `x` is a table of named columns of pandas, polars or pyarrow."""
    return library_of(x) in ("pandas", "polars", "pyarrow") and type(x).__name__ in ("DataFrame", "Table", "RecordBatch")


def check_kind(name: str, found: Any, taken: str = "iuf") -> None:
    """Refuse a table of a dtype that holds no real numbers, and say what helps; `taken` has the kinds that pass."""
    kind = getattr(getattr(found, "dtype", None), "kind", "f")
    if kind == "b":
        raise ArgumentTypeError(
            name,
            "is a table of True and False, which cannot say what is missing: a comparison such as df > 0 gives False there. "
            f"If these are your values, pass {name}.astype(float), with NaN where nothing was observed",
        )
    if kind not in taken:
        dtype = "records" if kind == "V" else f"dtype {found.dtype}"
        raise ArgumentTypeError(name, f"must be real numbers, got {dtype}{advice_on(found)}")


def advice_on(found: Any) -> str:
    """What to do with values that are no real numbers (an array or a list of some), as the end of a sentence."""
    if not isinstance(found, (np.ndarray, list)):
        return ""
    some = np.asarray(found).ravel()[:1]
    kind, text = some.dtype.kind, next(iter(some.tolist()), "")
    if kind == "c" or isinstance(text, complex):
        return "; take the real part, or the absolute value"
    if kind == "m" or isinstance(text, timedelta):
        return "; divide durations by one of them, such as numpy.timedelta64(1, 's')"
    if kind == "M" or isinstance(text, date):
        return "; dates can be labels of rows or columns, not values"
    if kind == "V":
        return "; pandas.DataFrame(...) makes a table of records"
    if isinstance(text, str) and "," in text and _is_number(text.replace(".", "").replace(",", ".", 1)):
        return "; decimal commas are not read: pandas.read_csv(..., decimal=',') reads them"
    if kind in "US" and _is_number(text):
        return "; .astype(float) makes numbers of texts"
    return ""


def no_table(name: str, x: Any) -> str:
    """What `x` is, which is no table in memory, and what makes one of it if that is known: the end of a sentence."""
    library, kind = type(x).__module__.partition(".")[0], type(x).__name__
    what = kind if library in ("builtins", "numpy") else f"a {kind} of {library}"
    if isinstance(x, Iterator):
        return f"{what}; list({name}) makes a list of it"
    if isinstance(x, (list, Mapping, np.ndarray)) and library_of(x) is None:
        return f"{what}; pandas.DataFrame({name}) makes one"
    # of polars' lazy frames, xarray's data sets, Dask's frames, other libraries' frames
    ways = ("collect", "to_dataframe", "compute", "to_pandas")
    way = next((way for way in ways if callable(getattr(x, way, None))), None)
    return what if way is None else f"{what}; {name}.{way}() makes one"


def plain_array(name: str, x: Any) -> Any:
    """A masked array with NaN under its mask, xarray's array as what is in it, numbers of an array of objects; anything
    else as it is."""
    if library_of(x) == "xarray":
        if not hasattr(x, "data"):
            raise TypeError(
                f"{name} must be an array, got a {type(x).__name__} of several; choose one, as in {name}['name']"
            )
        x = x.data
    masked: Any = x
    if not isinstance(x, np.ma.MaskedArray):
        return _numbers(name, x) if isinstance(x, np.ndarray) and x.dtype == object else x
    if x.dtype.kind not in "iufb":
        raise TypeError(f"{name} must be real numbers, got a masked array of {x.dtype}")
    if not np.ma.is_masked(x):
        return masked.filled()
    return masked.astype(x.dtype if x.dtype.kind == "f" else np.float64).filled(np.nan)


def to_host(name: str, x: Any) -> np.ndarray:
    """Lists, data frames, series, tables and the like as a NumPy array; what is missing is NaN."""
    x = plain_array(name, x)
    if isinstance(x, np.ndarray):
        return np.asarray(x)
    if is_frame(x):
        return _frame_values(name, x)
    if (library_of(x) is not None and not hasattr(x, "to_numpy")) or isinstance(x, Iterator):
        raise TypeError(f"{name} must be an array or a table, got {no_table(name, x)}")
    try:
        found = vector_of(x) if library_of(x) is not None else np.asarray(x)
    except ValueError as error:
        raise ValueError(f"{name} must be an array or nested lists of equal lengths: {error}") from None
    return _numbers(name, found) if found.dtype == object and found.ndim else found


def column_names(frame: Any) -> list[Any]:
    """The names of the columns of a frame."""
    return list(frame.column_names if library_of(frame) == "pyarrow" else frame.columns)


def vector_of(column: Any) -> np.ndarray:
    """A column of a frame, or a series, as NumPy has it; whole numbers with gaps become floats with NaN."""
    library = library_of(column)
    if library == "pyarrow":
        return np.asarray(column.to_numpy(zero_copy_only=False))
    if library == "pandas" and not isinstance(column.dtype, np.dtype) and column.isna().any():
        numeric = getattr(column.dtype, "kind", "O") in "iufb"
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan) if numeric else column.to_numpy(dtype=object))
    return np.asarray(column.to_numpy())


def _frame_values(name: str, frame: Any) -> np.ndarray:
    """The numbers of a frame (n, columns); a column of something else is an error that names it."""
    kinds = {t.kind if isinstance(t, np.dtype) else "O" for t in frame.dtypes} if library_of(frame) == "pandas" else {"O"}
    if kinds <= set("iuf") or kinds == {"b"}:
        return np.asarray(frame.to_numpy())
    names = column_names(frame)
    by_number = library_of(frame) == "pandas"  # names may repeat there
    vectors = [frame.iloc[:, k] if by_number else frame[column] for k, column in enumerate(names)]
    columns = [_column_numbers(name, column, x) for column, x in zip(names, vectors, strict=True)]
    return np.column_stack(columns) if columns else np.empty((len(frame), 0))


def _column_numbers(name: str, column: Any, x: Any) -> np.ndarray:
    found = vector_of(x)
    if found.dtype.kind in "iufb":
        return found
    try:
        if found.dtype != object:
            raise TypeError
        return _numbers(name, found)
    except TypeError:
        known = [v for v in found[:1000].tolist() if type(v).__name__ not in _MISSING]
        known = [v for v in known if not isinstance(v, (int, float))] or known  # what is no number, if one can tell
        example = known[0] if known else None
        advice = advice_on(found if found.dtype != object else known[:1])
        index = f", or make it the index: {name}.set_index({column!r})" if library_of(x) == "pandas" else ""
        if found.dtype.kind == "c" or isinstance(example, complex) or "decimal" in advice:
            index = ""  # such values are no labels
        # only `complete` calls it so, and takes lists of readings, too
        listed = "; of a list of readings name the columns, with rows=, columns= and values=" if name == "data" else ""
        raise TypeError(
            f"{name} must hold numbers, but its column {column!r} has {_shown(example)}{advice}; leave the column "
            f"out{index}{listed}"
        ) from None


def _shown(value: Any) -> str:
    """A value in an error: dates and durations as people write them."""
    return str(value) if isinstance(value, (date, timedelta)) else repr(value)


def _numbers(name: str, found: np.ndarray) -> np.ndarray:
    """An array of Python objects as numbers; None and the like are NaN."""
    flat = found.ravel().tolist()
    missing = [type(v).__name__ in _MISSING for v in flat]
    kinds = {type(v) for v, gone in zip(flat, missing, strict=True) if not gone}
    if not any(missing) and kinds and all(issubclass(kind, (bool, np.bool_)) for kind in kinds):
        return found.astype(bool)
    if not any(missing) and kinds and all(issubclass(kind, (int, np.integer)) for kind in kinds):
        try:
            return found.astype(np.int64)
        except OverflowError:
            pass
    try:
        numbers = [np.nan if gone else float(v) for v, gone in zip(flat, missing, strict=True)]
    except (TypeError, ValueError):
        bad = next(v for v, gone in zip(flat, missing, strict=True) if not gone and not _is_number(v))
        raise TypeError(f"{name} must be real numbers, got {bad!r}{advice_on([bad])}") from None
    return np.asarray(numbers, dtype=np.float64).reshape(found.shape)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


@dataclass(frozen=True, eq=False)
class DaskMatrix:
    """A Dask array that is computed where it is looked at, never as a whole.

    Attributes
    ----------
    array : dask.array.Array (n1, n2)
    """

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """(n1, n2)"""
        return tuple(self.array.shape)

    def __getitem__(self, key: Any) -> np.ndarray:
        return np.asarray(self.array[key])

    def taken(self, chosen: np.ndarray, axis: int) -> np.ndarray:
        """Some rows (`axis` 0) or columns; Dask reads its chunks one after the other and keeps these only."""
        return np.asarray(self.array[chosen, :] if axis == 0 else self.array[:, chosen])

    def entries(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """The entries (i[k], j[k])."""
        return np.asarray(self.array.vindex[i, j])


def as_source(Y: Any) -> Any:
    """A Dask array as what is read in parts; anything else as it is."""
    if not is_dask_array(Y):
        return Y
    if any(n != n for n in Y.shape):
        raise ValueError(
            "Y must be a Dask array of known shape, got unknown chunk sizes; call Y.compute_chunk_sizes() first"
        )
    return DaskMatrix(Y)
