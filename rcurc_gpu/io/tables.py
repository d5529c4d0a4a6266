"""Tables in text or Parquet, read a piece at a time: of files larger than memory, or collected into one table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Argument, InputError
from ..files import JUSTIFIED, ROOM, UnpackedError, check_unpacked, size_of
from ..progress import progress_bar
from ..summary import Fields
from .arrow import parquet_columns, parquet_parts, parse_block
from .lines import count_lines, lines_are_records, parse_lines, split_lines
from .numbering import Encoded, LabelNumbers, Piece, TableNumbers
from .text import Columns, Layout, TextBlocks, find_layout, opened
from .wide import looks_wide

TEXT = (".csv", ".tsv", ".tab", ".txt", ".data", ".dat")
PARQUET = (".parquet", ".pq")
MATRIX = (".npy", ".npz", ".mtx", ".mtx.gz")
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")

_OBSERVATION_BYTES = 48  # of an observation in memory, with its labels' numbers, while tables are put together
# Labels that any file may have; a larger one has at least a byte for each. They take some 200 bytes of memory each.
_LABELS = 200_000


def kind_of(path: str) -> str:
    """By the ending of the name: "text", "parquet" or "matrix"."""
    name = path.lower()
    os.stat(path)  # a file that is not there is the first thing to know
    if os.path.isdir(path):
        raise IsADirectoryError(21, "Is a directory", path)
    for kind, endings in (("text", TEXT), ("parquet", PARQUET), ("matrix", MATRIX)):
        if name.endswith(endings) or (kind == "text" and name.endswith(tuple(f"{ending}.gz" for ending in endings))):
            return kind
    known = ", ".join((*TEXT, *PARQUET, *MATRIX))
    sheet = "; save a spreadsheet as CSV" if name.endswith(_SPREADSHEETS) else ""
    raise ValueError(f"{path!r} has an ending that is not known ({Path(path).suffix or 'none'}); known are {known}{sheet}")


@dataclass(frozen=True, eq=False)
class TableFile:
    """A text or Parquet file that is read a piece at a time.

    Attributes
    ----------
    path : str
    layout : Layout or None
        How a text file is laid out; None for Parquet.
    columns : tuple of str or None
        What the file calls row, column and (if they are wanted) value and sigma, if it does.
    """

    path: str
    layout: Layout | None
    columns: tuple[str, ...] | None

    @classmethod
    def open(cls, path: str, columns: Columns) -> TableFile:
        """Find out how a file is laid out, and where the wanted columns are."""
        kind = kind_of(path)
        if looks_wide(path, kind, columns):
            raise InputError(
                f"{path!r} is a matrix with labels, not a list of observations (row, column, value): 'rcurc-gpu complete' "
                "and read_observations take it; if it is a list, name its columns with ",
                *(Argument("row_column"), ", ", Argument("column_column"), ", ", Argument("value_column")),
            )
        if kind == "parquet":
            return cls(path, None, parquet_columns(path, columns))
        layout = find_layout(path, columns)
        return cls(path, layout, None if layout.header is None else tuple(layout.header[k] for k in layout.taken))

    @property
    def nothing(self) -> str:
        """What a file without observations has, in words."""
        return "no rows" if self.layout is None else "a header only"

    def pieces(self, numbers: TableNumbers, bar: Any, justified: Justified) -> Iterator[Piece]:
        """All observations; `bar` counts bytes of the file, and more than is `justified` is refused."""
        justified.packed += os.path.getsize(self.path)
        try:
            for piece in self._pieces(numbers, bar):
                justified.check(len(piece[0]), len(numbers.rows) + len(numbers.cols))
                yield piece
        except UnpackedError as error:
            raise ValueError(f"{self.path!r}: {error}") from error

    def _pieces(self, numbers: TableNumbers, bar: Any) -> Iterator[Piece]:
        if self.layout is not None:
            yield from _text_pieces(self.path, self.layout, numbers, bar)
            return
        for part in parquet_parts(self.path, self.columns or (), bar):
            piece = numbers.piece(*part)
            assert piece is not None  # what cannot be a label is an error already
            yield piece


@dataclass
class Justified:
    """Observations and labels so far, and how many the files so far may have.

    Attributes
    ----------
    room, times : int
        Bytes that observations may take, and times the size of the files, whichever is more.
    packed : int
        Size of the files, in bytes.
    """

    room: int = ROOM
    times: int = JUSTIFIED
    packed: int = 0
    n_obs: int = 0

    def check(self, n_obs: int, n_labels: int) -> None:
        """Count `n_obs` more observations; refuse what files of this size cannot have in good faith."""
        self.n_obs += n_obs
        check_unpacked(self.packed, self.n_obs * _OBSERVATION_BYTES, self.room, self.times)
        if n_labels > _LABELS + self.packed:
            raise UnpackedError(f"its {self.packed:,} bytes have {n_labels:,} different labels or more: far too many")


def _text_pieces(path: str, layout: Layout, numbers: TableNumbers, bar: Any) -> Iterator[Piece]:
    """Blocks of lines: what neither pyarrow nor `split_lines` takes is read line by line, to be named or taken."""
    with opened(path) as (text, raw):
        blocks, first, done = TextBlocks(path, text.buffer), True, 0
        while block := blocks.take():
            what = (block, layout, layout.n_skipped if first else 0)
            found = (parse_block(*what) or split_lines(*what)) if lines_are_records(block) else None
            piece = None if found is None else numbers.piece(*found)
            if piece is None:
                piece = parse_lines(path, layout, blocks, block, numbers, first and layout.header is not None)
            else:
                blocks.n_lines += count_lines(block)
            yield piece
            first = False
            bar.update(raw.tell() - done)
            done = raw.tell()


def source_words(tables: Sequence[TableFile]) -> str:
    """What kind of files they are. Their columns are named, since a first line with a misprint passes for a header."""
    columns = tables[0].columns
    header = "without a header" if columns is None else f"with the columns {', '.join(map(repr, columns))}"
    parts = "" if len(tables) == 1 else f" in {len(tables):,} files"
    kinds = sorted({"Parquet" if table.layout is None else "text" for table in tables})
    return f"a list in {' and '.join(kinds)} {header}{parts}"


@dataclass(frozen=True, eq=False, repr=False)
class Table(Fields):
    """The triplets, or pairs, of a file, by label, in the order given.

    Attributes
    ----------
    rows, cols : Encoded
        Labels, each once; whole numbers ascend, others stand in the order in which they come.
    values : float64 array (n,) or None
        NaN where the file has none; None for pairs. With sigmas, if they are wanted: of the type `observed_dtype`.
    columns : tuple of str or None
        What the file calls the columns that were taken, if it does.
    source : str
        What kind of file it was, in words.
    """

    rows: Encoded
    cols: Encoded
    values: np.ndarray | None
    columns: tuple[str, ...] | None
    source: str

    def __len__(self) -> int:
        return len(self.rows.codes)

    @cached_property
    def row_names(self) -> np.ndarray:
        """The label of each one's row (n,)."""
        return self.rows.names[self.rows.codes]

    @cached_property
    def col_names(self) -> np.ndarray:
        """The label of each one's column (n,)."""
        return self.cols.names[self.cols.codes]


def read_table(path: str, columns: Columns, progress: bool = False) -> Table:
    """Triplets or pairs of a text or Parquet file."""
    if not (size := size_of(path)):
        raise ValueError(f"{path!r} is empty (0 bytes)")
    table, numbers = TableFile.open(path, columns), TableNumbers()
    with progress_bar(f"reading {Path(path).name}", size, progress) as shown:
        pieces = list(table.pieces(numbers, shown, Justified()))
    i, j, values = ([piece[k] for piece in pieces] for k in range(3))
    del pieces
    if not any(map(len, i)):
        raise ValueError(f"{path!r} has {table.nothing}: there are no observations")
    rows, cols = _collected(i, numbers.rows), _collected(j, numbers.cols)
    return Table(rows, cols, np.concatenate(values) if columns.with_value else None, table.columns, source_words([table]))


def _collected(parts: list[np.ndarray], numbers: LabelNumbers) -> Encoded:
    """The pieces of a column put together; they are used up."""
    place, names = numbers.final()
    codes = np.concatenate(parts)
    parts.clear()
    return Encoded(place[codes], names)
