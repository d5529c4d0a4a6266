"""Tables a piece at a time, for files larger than memory; the same observations and errors as `read_observations`."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .arrow import parquet_columns, parquet_parts, parse_block
from .numbering import LabelColumn, Numbers
from .read import kind_of
from .text import Columns, Layout, check_label, look_at, opened, records

_BLOCK = 8 << 20  # bytes of text
_SOME = 64 << 10
_LONGEST_LINE = 64 << 20
_ROWS = 1 << 18  # of Parquet
_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\n|\r")

Piece = tuple[np.ndarray, np.ndarray, np.ndarray]  # numbers of rows and of columns, values (NaN where there is none)


@dataclass(frozen=True, eq=False)
class Books:
    """The numbers of rows and of columns."""

    rows: Numbers = field(default_factory=Numbers)
    cols: Numbers = field(default_factory=Numbers)

    def piece(self, row: LabelColumn, column: LabelColumn, values: np.ndarray) -> Piece | None:
        """Observations with numbers for labels; None, and no new number, if something cannot be a label."""
        rows, cols = self.rows.prepared(row), self.cols.prepared(column)
        return None if rows is None or cols is None else (self.rows.of(rows), self.cols.of(cols), values)


@dataclass(frozen=True, eq=False)
class TableFile:
    """A text or Parquet file that is read a piece at a time.

    Attributes
    ----------
    path : str
    columns : Columns
        Which to take.
    layout : Layout or None
        How a text file is laid out; None for Parquet.
    """

    path: str
    columns: Columns
    layout: Layout | None

    @classmethod
    def look_at(cls, path: str, columns: Columns) -> TableFile:
        """Find out how a file is laid out."""
        kind = kind_of(path)
        if kind == "matrix":
            raise ValueError(f"{path!r} must be a table in text or Parquet, got a matrix: use 'rcurc-gpu complete'")
        return cls(path, columns, look_at(path, columns) if kind == "text" else None)

    @property
    def kind(self) -> str:
        """In words."""
        return "Parquet" if self.layout is None else "text"

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the file calls row, column and value, if it does."""
        if self.layout is None:
            return parquet_columns(self.path, self.columns)
        header = self.layout.header
        return None if header is None else tuple(header[k] for k in self.layout.taken)

    def pieces(self, books: Books, bar: Any = None) -> Iterator[Piece]:
        """All observations; `bar` counts bytes of the file."""
        if self.layout is not None:
            yield from _text_pieces(self.path, self.layout, books, bar)
            return
        for part in parquet_parts(self.path, self.columns, _ROWS, bar):
            piece = books.piece(*part)
            assert piece is not None  # what cannot be a label is an error already
            yield piece


def _text_pieces(path: str, layout: Layout, books: Books, bar: Any) -> Iterator[Piece]:
    """Blocks of lines: pyarrow parses what it can, and what it stumbles over is read line by line, to be named or taken."""
    with opened(path, bar) as text:
        blocks = _Blocks(path, text.buffer)
        first = True
        while block := blocks.take():
            found = parse_block(block, layout, layout.n_skipped if first else 0) if _lines_are_records(block) else None
            piece = None if found is None else books.piece(*found)
            if piece is None:
                piece = _parsed_slowly(path, layout, blocks, block, books, first and layout.header is not None)
            else:
                blocks.n_lines += _count_lines(block)
            yield piece
            first = False


def _lines_are_records(block: bytes) -> bool:
    """Whether no record goes over the end of a line: there is an even number of quotation marks in each."""
    if b'"' not in block:
        return True
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) if b"\n" in block else np.flatnonzero(data == ord("\r"))
    return not bool((np.searchsorted(np.flatnonzero(data == ord('"')), ends) % 2).any())


def _parsed_slowly(path: str, layout: Layout, blocks: _Blocks, block: bytes, books: Books, skip: bool) -> Piece:
    """Records that begin in a block, with the standard library; the last may take lines that come after."""
    text = block.decode("utf-8")
    here = io.StringIO(text, newline="")

    def lines() -> Iterator[str]:
        yield from here
        while line := blocks.take_line():
            yield line.decode("utf-8")

    i, j, values = array("q"), array("q"), array("d")
    reader = csv.reader(lines(), delimiter=layout.delimiter, strict=True)
    for line, row, column, value in records(path, layout, _Until(reader, here, len(text)), skip, blocks.n_lines):
        for what, name, book, numbers in (("row", row, books.rows, i), ("column", column, books.cols, j)):
            known = book.text
            if name not in known:
                check_label(path, line, what, name)
            numbers.append(known.setdefault(name.strip(), len(known)))
        values.append(value)
    blocks.n_lines += reader.line_num
    return np.frombuffer(i, np.int64), np.frombuffer(j, np.int64), np.frombuffer(values, np.float64)


class _Until:
    """The records of a csv reader that begin in the first `length` characters of its text."""

    def __init__(self, reader: Any, text: io.StringIO, length: int) -> None:
        self.reader, self.text, self.length = reader, text, length

    def __iter__(self) -> Iterator[list[str]]:
        while self.text.tell() < self.length:
            record = next(self.reader, None)
            if record is None:
                return
            yield record

    @property
    def line_num(self) -> int:
        return int(self.reader.line_num)


class _Blocks:
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
            if not cut and len(data) > _LONGEST_LINE:
                raise ValueError(f"{self.path!r} is not a table in text: a line has more than {_LONGEST_LINE:,} bytes")
        self._rest = data[cut:]
        return data[:cut]

    def take_line(self) -> bytes:
        """The next line alone."""
        found = _LINE_END.search(self._rest)
        while found is None or found.end() == len(self._rest):  # perhaps the first half of a line end
            more = self.file.read(_SOME)
            if not more:
                break
            self._rest += more
            found = _LINE_END.search(self._rest)
        cut = len(self._rest) if found is None else found.end()
        line, self._rest = self._rest[:cut], self._rest[cut:]
        return line


def _count_lines(block: bytes) -> int:
    carriage = block.count(b"\r")
    return block.count(b"\n") + (carriage - block.count(b"\r\n") if carriage else 0)
