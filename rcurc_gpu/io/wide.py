"""Matrices in tables: a column for each column of the matrix, and a first column with the labels of its rows.

Whether a table is such a matrix, or a list of observations, is found out: both begin with a line of names, and narrow
matrices look like lists.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import Argument, InputError
from .labels import Labels, wrong_with_label
from .text import (
    HEADER_WORDS,
    LONGEST_FIRST,
    MISSING,
    Columns,
    delimiter_in,
    first_record,
    number_of,
    opened,
    value_of,
    word_of,
)

LAYOUTS = ("auto", "triplets", "matrix")
_SOME = 100  # lines that are looked at first
_FEWEST = 2  # rows of a matrix, beside the line with the names of its columns
_INDEX = "__index_level_0__"  # what pandas calls an index without a name, in Parquet


@dataclass(frozen=True, eq=False)
class WideTable:
    """A matrix with labels, as it was read.

    Attributes
    ----------
    values : float64 array (n1, n2)
        NaN where the table has no value.
    labels : Labels
    corner : str
        What the table calls its rows; "row" if it does not say.
    source : str
        What kind of file it was, in words.
    """

    values: np.ndarray
    labels: Labels
    corner: str
    source: str


def looks_wide(path: str, kind: str, columns: Columns) -> bool:
    """Whether a table is a matrix with labels rather than a list of observations.

    A list has a label in its second column, and names of rows that come again. So a matrix is a table with numbers in all
    columns but the first, and a first column in which no label stands twice; a header that speaks of users or rows is one of
    a list.
    """
    known = columns.listed or columns.header is False or any(name is not None for name in columns.wanted)
    if known or not columns.with_value or not os.path.getsize(path):
        return False
    try:
        return _parquet_is_wide(path) if kind == "parquet" else _text_is_wide(path)
    except ValueError:  # who reads it says what is wrong
        return False


def _text_is_wide(path: str) -> bool:
    records = _records(path)
    header = next(records, None)
    some = list(itertools.islice(records, _SOME))
    if header is None or len(header) < 2 or len(some) < _FEWEST or any(len(record) != len(header) for record in some):
        return False
    names = header[1:]
    if number_of(header[0]) is not None or any(word_of(name) in HEADER_WORDS for name in header if name):
        return False
    if not all(field in MISSING or number_of(field) is not None for record in some for field in record[1:]):
        return False
    second = [record[1] for record in some if record[1] not in MISSING]
    whole = all(text.removeprefix("-").isdecimal() for text in second)
    if header[0] and whole and len(names) == 2 and number_of(names[1]) is not None:
        return False  # alice,7,5: an observation, not a line of names
    labels = (record[0] for record in itertools.chain(some, records))
    seen: set[str] = set()
    return not any(label in seen or seen.add(label) for label in labels)  # type: ignore[func-returns-value]


def _parquet_is_wide(path: str) -> bool:
    from .arrow import opened_parquet  # here, and not above: text does not need it

    with opened_parquet(path) as file:
        import pyarrow as pa

        schema, n = file.schema_arrow, file.metadata.num_rows
        corner, names = _corner(schema)
        if (
            n < _FEWEST
            or len({corner, *names}) < max(len(schema.names), 2)
            or any(word_of(name) in HEADER_WORDS for name in (corner, *names))
        ):
            return False
        if not all(_is_number(pa, schema.field(name).type) for name in names):
            return False
        if pa.types.is_floating(schema.field(names[0]).type):
            return True  # no list: labels are not fractions
        labels = file.read([corner]).column(0)
    return len(labels.unique()) == len(labels)


def _corner(schema: Any) -> tuple[str, list[str]]:
    """The column with the labels of the rows, and the others; pandas writes an index last, and says so."""
    names = list(schema.names)
    try:
        said = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
        index = [name for name in said if isinstance(name, str) and name in names]
    except (ValueError, TypeError, AttributeError, RecursionError):  # a stranger's words: of no use, and no harm
        index = []
    corner = index[0] if len(index) == 1 else names[0] if names else ""
    return corner, [name for name in names if name != corner]


def _is_number(pa: Any, kind: Any) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    )


def read_wide(path: str, kind: str) -> WideTable:
    """The matrix of a table."""
    corner, rows, cols, values = _read_parquet(path) if kind == "parquet" else _read_text(path)
    for what, names in (("row", rows), ("column", cols)):
        if problem := next(filter(None, map(wrong_with_label, names)), None):
            where = "; the first line of a matrix names its columns" if what == "column" else ""
            raise ValueError(f"{path!r}: the label of a {what} {problem}{where}")
        if len(set(names)) < len(names):
            twice = next(name for k, name in enumerate(names) if name in names[:k])
            raise InputError(
                f"{path!r}: two {what}s of the matrix are called {twice!r}; if it is a list of observations, say ",
                Argument("layout", "triplets"),
            )
    labels = Labels(np.asarray(rows, dtype=str), np.asarray(cols, dtype=str))
    words = (
        f"a matrix in {'Parquet' if kind == 'parquet' else 'text'} with labels of rows ({corner or 'no name'!r}) and columns"
    )
    return WideTable(values, labels, corner or "row", words)


def _read_parquet(path: str) -> tuple[str, list[str], list[str], np.ndarray]:
    from .arrow import opened_parquet

    with opened_parquet(path) as file:
        import pyarrow as pa

        table = file.read()
    corner, names = _corner(table.schema)
    if not names or len({corner, *names}) < table.num_columns:
        raise ValueError(f"{path!r} is not a matrix: it must have a column of labels and others, each with its own name")
    for name in names:
        if not _is_number(pa, table.schema.field(name).type):
            kind = table.schema.field(name).type
            raise ValueError(f"{path!r}, column {name!r}: a matrix has numbers in all columns but the first, got {kind}")
    columns = [table.column(name).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for name in names]
    rows = [str(label) for label in table.column(corner).cast(pa.string()).to_pylist()]
    return "" if corner == _INDEX else corner, rows, names, np.column_stack(columns)


def _read_text(path: str) -> tuple[str, list[str], list[str], np.ndarray]:
    records = _records(path)
    header = next(records, None)
    if header is None or len(header) < 2:
        raise ValueError(f"{path!r} is not a matrix: its first line must name its columns")
    found = _parsed(path, header)
    if found is not None:
        return header[0], found[0], header[1:], found[1]
    rows: list[str] = []
    values: list[list[float]] = []
    for record in records:
        line = len(rows) + 2  # where no record goes over several lines
        if len(record) != len(header):
            raise ValueError(f"{path!r}, line {line}: {len(record)} columns, but the first line has {len(header)}")
        try:
            values.append([value_of(field, "value") for field in record[1:]])
        except ValueError as error:
            raise ValueError(f"{path!r}, line {line}: {error}; a matrix has numbers in all columns but the first") from None
        rows.append(record[0])
    if not rows:
        raise ValueError(f"{path!r} has a header only: there are no observations")
    return header[0], rows, header[1:], np.asarray(values)


def _parsed(path: str, header: list[str]) -> tuple[list[str], np.ndarray] | None:
    """Labels and values by pyarrow; None if it is not there or stumbles over something, for the slow way to take or name."""
    try:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        from .arrow import numbers_in
    except ImportError:
        return None
    names = [str(k) for k in range(len(header))]
    with opened(path, bounded=True) as (text, _):
        delimiter, data = delimiter_in(path, first_record(path, text)[1]), text.read().encode()
    types = dict.fromkeys(names[1:], pa.float64()) | {"0": pa.string()}
    options = (
        arrow_csv.ReadOptions(column_names=names),
        arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        arrow_csv.ConvertOptions(column_types=types, null_values=list(MISSING), strings_can_be_null=False),
    )
    try:
        table = arrow_csv.read_csv(pa.BufferReader(data), *options)
    except (pa.ArrowException, OSError):
        return None
    values = np.column_stack([numbers_in(column.chunks) for column in table.columns[1:]])
    if not table.num_rows or np.isinf(values).any():
        return None
    return [label.strip() for label in table.column(0).to_pylist()], values


def _records(path: str) -> Iterator[list[str]]:
    """The lines of a text file as fields, without the blanks around them."""
    with opened(path, bounded=True) as (text, _):
        _, line = first_record(path, text)
        rest = iter(lambda: text.readline(LONGEST_FIRST), "")  # a longer line is none of a table
        reader = csv.reader(itertools.chain([line], rest), delimiter=delimiter_in(path, line), strict=True)
        for record in reader:
            if record:
                yield [field.strip() for field in record]
