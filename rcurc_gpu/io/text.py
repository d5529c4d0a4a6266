"""Tables in text (CSV, TSV and the like), with nothing but the standard library: how they are laid out, and their bytes."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import Argument, InputError
from ..files import Gunzipped, open_file

MISSING = ("", "NA", "N/A", "nan", "NaN", "null", "NULL", "None")  # values that say there is none
NUMBERS = ("value", "sigma")  # what follows row and column
_NAMES = {"row", "column", "col", "user", "item", "movie", "customer", "product"}
HEADER_WORDS = _NAMES | {f"{name}id" for name in _NAMES} | {"rows", "columns", "i", "j"}
DELIMITERS = (",", "\t", ";", "|")
_BLOCK = 8 << 20  # bytes that are parsed at a time: enough for pyarrow to use all threads, little memory
_SOME = 64 << 10  # bytes to read on, where a record goes on behind its block
_LONGEST_LINE = 8 << 20  # bytes; a file with a longer line is not a table, and its fields would take 30 times as much
LONGEST_FIRST = 1 << 20  # characters of the first line; if all were commas its fields would take 60 MB
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")
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
    sigma : str or None
        The column with the noise of each value; None if there is none.
    listed : bool
        Whether the table is known to list observations, and not to be a matrix.
    """

    row: str | None = None
    column: str | None = None
    value: str | None = None
    with_value: bool = True
    header: bool | None = None
    usual: tuple[str, ...] = ()
    sigma: str | None = None
    listed: bool = False

    @property
    def wanted(self) -> tuple[str | None, ...]:
        """The names asked for, as many as columns are taken."""
        more = (self.value,) if self.with_value else ()
        return (self.row, self.column, *more) if self.sigma is None else (self.row, self.column, *more, self.sigma)


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
        Positions of row, column and (if they are wanted) value and sigma.
    """

    delimiter: str
    n_columns: int
    header: tuple[str, ...] | None
    n_skipped: int
    taken: tuple[int, ...]


@contextmanager
def opened(path: str, *, bounded: bool = False) -> Iterator[tuple[io.TextIOWrapper, io.FileIO]]:
    """A text file, compressed or not, and the file under it; what goes wrong in reading is said in a line.

    With `bounded` one that unpacks to far more than it should is refused.
    """
    with open_file(path, buffering=0) as raw:
        stream: Any = Gunzipped(raw, bounded=bounded) if path.lower().endswith(".gz") else raw
        with io.TextIOWrapper(io.BufferedReader(stream, 1 << 20), encoding="utf-8-sig", newline="") as text:
            try:
                yield text, raw
            except UnicodeDecodeError as error:
                byte = error.object[error.start]
                raise ValueError(f"{path!r} is not UTF-8 text (byte 0x{byte:02x}); save it as UTF-8") from error
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ValueError(f"{path!r} is not a gzip file, or is truncated ({error})") from error
            except csv.Error as error:
                raise ValueError(f"{path!r} is not a table in text: {error}; is a quotation mark not closed?") from error


def first_record(path: str, text: io.TextIOWrapper) -> tuple[int, str]:
    """How many empty lines a file begins with, and the first line that is not empty; `text` is behind it."""
    before, line = 0, ""
    while line := text.readline(LONGEST_FIRST):
        if len(line) == LONGEST_FIRST:
            raise ValueError(f"{path!r} is not a table in text: its first line has {len(line):,} characters or more")
        if line.strip():
            return before, line
        before += 1
    raise ValueError(f"{path!r} is empty: there are no observations")


def delimiter_in(path: str, line: str) -> str:
    """What stands between the fields of a file, by the ending of its name and its first line."""
    name = path.lower().removesuffix(".gz")
    return "\t" if name.endswith((".tsv", ".tab")) else max(DELIMITERS, key=line.count)


def word_of(field: str) -> str:
    """A name without case and signs, as `HEADER_WORDS` has them."""
    return "".join(filter(str.isalnum, field.lower()))


def find_layout(path: str, columns: Columns) -> Layout:
    """The layout of a file, from its first line."""
    with opened(path) as (text, _):
        before, line = first_record(path, text)
        delimiter = delimiter_in(path, line)
        rest = iter(lambda: text.readline(LONGEST_FIRST), "")
        reader = csv.reader(itertools.chain([line], rest), delimiter=delimiter, strict=True)
        first = next(reader)
        lines = before + reader.line_num
        second = next(reader, []) if len(first) > _WIDEST else []
    first = [field.strip() for field in first]
    needed = len(columns.wanted)
    if len(first) < needed:
        wanted = ", ".join(("row", "column", *NUMBERS)[:needed])
        raise ValueError(
            f"{path!r} must have at least {needed} columns ({wanted}), separated by one of , ; | or tab; "
            f"its first line has {len(first)}: {_short(line.strip())}"
        )
    named = any(name is not None for name in columns.wanted)
    if columns.with_value and len(first) > _WIDEST and not named:
        raise InputError(
            f"{path!r} has {len(first)} columns, too many for a list, and is not a matrix with labels (the first line "
            f"names columns, the first column rows, all others hold numbers{_why_no_matrix(first, second)}); of a list, "
            "name the columns with ",
            *(Argument("row_column"), ", ", Argument("column_column"), ", ", Argument("value_column")),
        )
    header = columns.header
    if header is None:
        header = named or not _begins_with_data(first, columns)
    if named and not header:
        raise ValueError("columns can be named only where the first line is a header")
    if header and not named and not first[0]:
        raise InputError(
            f"{path!r} has a first column without a name, which looks like line numbers; name the columns to take with ",
            *(Argument("row_column"), " and ", Argument("column_column")),
        )
    taken = find_columns(path, first, columns.wanted, f"its first line is {_short(', '.join(first))}")
    return Layout(delimiter, len(first), tuple(first) if header else None, lines if header else 0, taken)


def _why_no_matrix(first: list[str], second: list[str]) -> str:
    """What keeps a table from being a matrix, by its first two lines; empty if they do not say."""
    for field in second[1:]:
        try:
            value_of(field, "value")
        except ValueError as error:
            return f", but {error}"
    if number_of(first[0]) is not None:
        return ", but the first line holds numbers: put a line with names before it"
    if second and (second[0] in MISSING or number_of(second[0]) is not None):
        return ", but numbers of the first column come again or are missing: put a column that numbers the rows before it"
    return ""


def _begins_with_data(first: list[str], columns: Columns) -> bool:
    if columns.with_value:
        return first[2] in MISSING or number_of(first[2]) is not None
    # pairs: nothing tells a header from labels but its words
    if set(first[:2]) & set(columns.usual):
        return False
    return not {word_of(field) for field in first[:2]} & HEADER_WORDS


def find_columns(path: str, header: Sequence[str], wanted: Sequence[str | None], listing: str) -> tuple[int, ...]:
    """Positions of the wanted columns, the first ones where no name is given; `listing` says which there are."""
    taken = []
    for k, name in enumerate(wanted):
        if name is not None and header.count(name) != 1:
            problem = "has no column" if name not in header else "has more than one column"
            raise ValueError(f"{path!r} {problem} {name!r}; {listing}")
        taken.append(k if name is None else header.index(name))
    if len(set(taken)) < len(taken):
        *most, last = ("row", "column", *NUMBERS)[: len(taken)]
        words = f"{', '.join(most)} and {last}"
        raise ValueError(f"{words} must be different columns of {path!r}, got {[header[k] for k in taken]}")
    return tuple(taken)


class TextBlocks:
    """The bytes of a text file in blocks that end where a line does.

    Attributes
    ----------
    n_lines : int
        Lines before the block; who takes blocks counts them.
    """

    def __init__(self, path: str, file: Any) -> None:
        self.path, self.file, self.n_lines = path, file, 0
        self._rest = file.read(len(_BOM)).removeprefix(_BOM)

    def take(self) -> bytes:
        """The next lines; nothing at the end."""
        data, cut = self._rest, 0
        while not cut:
            more = self.file.read(_BLOCK)
            data += more
            if len(more) < _BLOCK:
                cut = len(data)
                break
            cut = data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1
            if not cut:
                self._check_length(data)
        self._rest = data[cut:]
        return data[:cut]

    def _check_length(self, line: bytes) -> None:
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"{self.path!r} is not a table in text: a line has more than {_LONGEST_LINE:,} bytes")

    def take_line(self) -> bytes:
        """The next line alone."""
        found = _LINE_END.search(self._rest)
        while found is None or found.end() == len(self._rest):  # perhaps the first half of a line end
            more = self.file.read(_SOME)
            if not more:
                break
            self._rest += more
            self._check_length(self._rest[:1] if found else self._rest)
            found = _LINE_END.search(self._rest)
        cut = len(self._rest) if found is None else found.end()
        line, self._rest = self._rest[:cut], self._rest[cut:]
        return line


def value_of(field: str, what: str) -> float:
    """A value (or a sigma), NaN if it is missing; what is wrong with it is the error."""
    text = field.strip()
    if text in MISSING:
        return math.nan
    value = number_of(text)
    if value is None:
        comma = ": decimal commas are not read, write a point" if re.fullmatch(r"[+-]?[\d.]*,\d+", text) else ""
        raise ValueError(f"the {what} {_short(text)} is not a number{comma}")
    if math.isinf(value):
        raise ValueError(f"the {what} {text} is not finite")
    return value


def number_of(text: str) -> float | None:
    """`text` as a number, as other programs read it: no underscores, no other scripts."""
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
