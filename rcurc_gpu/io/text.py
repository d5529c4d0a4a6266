"""Tables in text (CSV, TSV and the like), with nothing but the standard library.

What this module says of a file holds: `arrow.py` reads the same files faster, and leaves to this one whatever it stumbles
over, so that both give the same observations and the same errors, with the number of the line.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import os
import re
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import Argument, InputError
from .labels import Encoded, encode, wrong_with_label

MISSING = ("", "NA", "N/A", "nan", "NaN", "null", "NULL", "None")  # values that say there is none
_NAMES = {"row", "column", "col", "user", "item", "movie", "customer", "product"}
HEADER_WORDS = _NAMES | {f"{name}id" for name in _NAMES} | {"rows", "columns", "i", "j"}
DELIMITERS = (",", "\t", ";", "|")
_WIDEST = 8  # columns of a table whose first three are taken unasked; a wider one may be a matrix


@dataclass(frozen=True)
class Columns:
    """Which columns of a table to take: names from its header, or None for the first ones.

    Attributes
    ----------
    row, column, value : str or None
    with_value : bool
        False if there are only pairs of a row and a column.
    header : bool or None
        Whether the first line names the columns; None to find out.
    usual : tuple of str
        What the row and the column are called elsewhere: such words make the first line of pairs a header, too.
    """

    row: str | None = None
    column: str | None = None
    value: str | None = None
    with_value: bool = True
    header: bool | None = None
    usual: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str | None, ...]:
        """The names, as many as columns are taken."""
        return (self.row, self.column, self.value) if self.with_value else (self.row, self.column)


@dataclass(frozen=True)
class Layout:
    """How a text file is laid out.

    Attributes
    ----------
    delimiter : str
    n_columns : int
    header : tuple of str or None
        The first line, if it names the columns.
    n_skipped : int
        Lines of the file before the first observation.
    taken : tuple of int
        Positions of row, column and (if it is wanted) value.
    """

    delimiter: str
    n_columns: int
    header: tuple[str, ...] | None
    n_skipped: int
    taken: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Table:
    """Triplets, or pairs, of a file.

    Attributes
    ----------
    rows, cols : Encoded
    values : float64 array (n,) or None
        NaN where the file has none.
    names : tuple of str or None
        What the file calls the columns that were taken, if it does.
    """

    rows: Encoded
    cols: Encoded
    values: np.ndarray | None
    names: tuple[str, ...] | None = None


@contextmanager
def opened(path: str, bar: Any = None) -> Iterator[io.TextIOWrapper]:
    """A text file, compressed or not; what goes wrong in reading is said in a line. `bar` counts bytes of the file."""
    with open(path, "rb") as raw:
        counted = _Counted(raw, bar)
        stream: Any = gzip.GzipFile(fileobj=counted) if path.lower().endswith(".gz") else counted
        with io.TextIOWrapper(io.BufferedReader(stream, 1 << 20), encoding="utf-8-sig", newline="") as text:
            try:
                yield text
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise ValueError(f"{path!r} is not UTF-8 text (byte 0x{byte:02x}); save it as UTF-8") from error
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"{path!r} is not a gzip file, or is truncated ({error})") from error
            except csv.Error as error:
                raise ValueError(f"{path!r} is not a table in text: {error}; is a quotation mark not closed?") from error


class _Counted(io.RawIOBase):
    """A file that tells a progress bar what was read of it."""

    def __init__(self, file: Any, bar: Any) -> None:
        self.file, self.bar = file, bar

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self.file.readinto(buffer))
        if self.bar is not None:
            self.bar.update(count)
        return count


def look_at(path: str, columns: Columns) -> Layout:
    """The layout of a file, from its first line."""
    with opened(path) as text:
        before, line = 0, ""
        for line in text:
            if line.strip():
                break
            before += 1
        if not line.strip():
            raise ValueError(f"{path!r} is empty: there are no observations")
        name = path.lower().removesuffix(".gz")
        delimiter = "\t" if name.endswith((".tsv", ".tab")) else max(DELIMITERS, key=line.count)
        reader = csv.reader(itertools.chain([line], text), delimiter=delimiter, strict=True)
        first = next(reader)
        lines = before + reader.line_num
    first = [field.strip() for field in first]
    needed = len(columns.names)
    if len(first) < needed:
        wanted = "row, column, value" if needed == 3 else "row, column"
        raise ValueError(
            f"{path!r} must have at least {needed} columns ({wanted}), separated by one of , ; | or tab; "
            f"its first line has {len(first)}: {_short(line.strip())}"
        )
    named = any(name is not None for name in columns.names)
    if columns.with_value and len(first) > _WIDEST and not named:
        raise InputError(
            f"{path!r} has {len(first)} columns; if it is a matrix, save it as .npy (or .mtx); if it is a table, name its "
            "columns with ",
            *(Argument("row_column"), ", ", Argument("column_column"), ", ", Argument("value_column")),
        )
    header = columns.header
    if header is None:
        header = named or not _begins_with_data(first, columns)
    if named and not header:
        raise ValueError("columns can be named only where the first line is a header")
    taken = tuple(_position(path, first, name, k) for k, name in enumerate(columns.names))
    if len(set(taken)) < needed:
        raise ValueError(f"row, column and value must be different columns of {path!r}, got {[first[k] for k in taken]}")
    return Layout(delimiter, len(first), tuple(first) if header else None, lines if header else 0, taken)


def _begins_with_data(first: list[str], columns: Columns) -> bool:
    if columns.with_value:
        return first[2] in MISSING or _number(first[2]) is not None
    # pairs: nothing tells a header from labels but its words
    if set(first[:2]) & set(columns.usual):
        return False
    return not {"".join(filter(str.isalnum, field.lower())) for field in first[:2]} & HEADER_WORDS


def _position(path: str, header: list[str], name: str | None, k: int) -> int:
    if name is None:
        return k
    if header.count(name) != 1:
        problem = "has no column" if name not in header else "has more than one column"
        raise ValueError(f"{path!r} {problem} {name!r}; its first line is {_short(', '.join(header))}")
    return header.index(name)


def read_text(path: str, layout: Layout, bar: Any = None) -> Table:
    """All lines of a file."""
    rows: dict[str, int] = {}
    cols: dict[str, int] = {}
    i, j, values = array("q"), array("q"), array("d")
    with opened(path, bar) as text:
        reader = csv.reader(text, delimiter=layout.delimiter, strict=True)
        for line, row_text, column_text, value in records(path, layout, reader, skip=layout.header is not None):
            row, column = rows.get(row_text), cols.get(column_text)
            if row is None:
                check_label(path, line, "row", row_text)
                row = rows.setdefault(row_text, len(rows))
            if column is None:
                check_label(path, line, "column", column_text)
                column = cols.setdefault(column_text, len(cols))
            i.append(row)
            j.append(column)
            values.append(value)
    if not i:
        raise ValueError(f"{path!r} has a header only: there are no observations")
    return Table(
        encode(np.frombuffer(i, np.int64), list(rows)),
        encode(np.frombuffer(j, np.int64), list(cols)),
        np.frombuffer(values, np.float64) if len(layout.taken) == 3 else None,
    )


def records(path: str, layout: Layout, reader: Any, skip: bool, before: int = 0) -> Iterator[tuple[int, str, str, float]]:
    """Line, row, column and value of each record, NaN where there is no value; what is wrong with one is the error.

    Parameters
    ----------
    path : str
        For errors.
    layout : Layout
    reader : csv reader
    skip : bool
        Whether the first record is a header.
    before : int
        Lines of the file before the reader's first.
    """
    a, b, *c = layout.taken
    for record in reader:
        if not record:
            continue
        if skip:
            skip = False
            continue
        line = before + reader.line_num
        if len(record) != layout.n_columns:
            raise ValueError(f"{path!r}, line {line}: {len(record)} columns, but the first line has {layout.n_columns}")
        value = math.nan
        if c:
            try:
                value = _value(record[c[0]])
            except ValueError as error:
                column_name = f"column {layout.header[c[0]]!r}" if layout.header else f"column {c[0] + 1}"
                raise InputError(f"{path!r}, line {line}: {error} ({column_name}; choose another with ", *_ADVICE) from None
        yield line, record[a], record[b], value


def check_label(path: str, line: int, what: str, text: str) -> None:
    """Refuse what cannot be the label of a `what`."""
    if problem := wrong_with_label(text):
        raise ValueError(f"{path!r}, line {line}: the label of the {what} {problem}")


_ADVICE = (Argument("value_column"), ", leave the field empty if the value is missing)")


def _value(field: str) -> float:
    """A value, NaN if it is missing; what is wrong with it is the error."""
    text = field.strip()
    if text in MISSING:
        return math.nan
    value = _number(text)
    if value is None:
        comma = ": decimal commas are not read, write a point" if re.fullmatch(r"[+-]?[\d.]*,\d+", text) else ""
        raise ValueError(f"the value {_short(text)} is not a number{comma}")
    if math.isinf(value):
        raise ValueError(f"the value {text} is not finite")
    return value


def _number(text: str) -> float | None:
    """`text` as a number, as other programs read it: no underscores, no other scripts."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def file_size(path: str) -> int:
    """Bytes of a file, for a progress bar."""
    return os.stat(path).st_size
