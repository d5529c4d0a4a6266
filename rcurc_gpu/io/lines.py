"""The lines of a table in text as observations: split where they are plain, one by one where they are not.

What `parse_lines` says of a file holds: `split_lines` and `arrow.parse_block` read the same lines faster, and leave to it
whatever they stumble over, so that all give the same observations and the same errors, with the number of the line.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator

import numpy as np

from ..errors import Argument, InputError
from ..samples.building import observed
from .fields import Fields
from .labels import wrong_with_label
from .numbering import LabelColumn, Piece, TableNumbers
from .text import NUMBERS, Layout, TextBlocks, value_of


def lines_are_records(block: bytes) -> bool:
    """Whether no record goes over the end of a line: there is an even number of quotation marks in each."""
    if b'"' not in block:
        return True
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == ord("\n")) if b"\n" in block else np.flatnonzero(data == ord("\r"))
    return not bool((np.searchsorted(np.flatnonzero(data == ord('"')), ends) % 2).any())


def count_lines(block: bytes) -> int:
    """How many lines end in a block."""
    carriage = block.count(b"\r")
    return block.count(b"\n") + (carriage - block.count(b"\r\n") if carriage else 0)


def split_lines(block: bytes, layout: Layout, n_skipped: int) -> tuple[LabelColumn, LabelColumn, np.ndarray] | None:
    """Whole lines as `arrow.parse_block` gives them, without a Python object for each field.

    None if not every line is plain fields with a number for each value, which `parse_lines` then takes or names.

    Parameters
    ----------
    block : bytes
    layout : Layout
    n_skipped : int
        Lines of the block before its first observation.
    """
    text = b"".join(block.split(b"\n", n_skipped)[n_skipped:]).replace(b"\r\n", b"\n")
    if not text or b'"' in text or b"\r" in text:
        return None
    text += b"" if text.endswith(b"\n") else b"\n"
    if not text.isascii():
        text.decode("utf-8")  # what is no text is an error
    columns = _columns_of(text, layout)
    if columns is None:
        return None
    rows, cols = (_labels_in(fields) for fields in columns[:2])
    value, sigma = (*map(_numbers_in, columns[2:]), None, None)[:2]
    if rows is None or cols is None or any(x is None for x in (value, sigma)[: len(columns) - 2]):
        return None
    return rows, cols, observed(np.full(len(columns[0]), np.nan) if value is None else value, sigma)


def _columns_of(text: bytes, layout: Layout) -> list[Fields] | None:
    """The columns that are taken of whole lines; None if not every line has as many fields."""
    data, sign = np.frombuffer(text, np.uint8), ord(layout.delimiter)
    stops = np.flatnonzero((data == sign) | (data == ord("\n")))
    pattern = np.full(layout.n_columns, sign, np.uint8)
    pattern[-1] = ord("\n")
    if len(stops) % layout.n_columns or (data[stops].reshape(-1, layout.n_columns) != pattern).any():
        return None
    starts = np.append(0, stops[:-1] + 1)
    return [Fields(text, starts[k :: layout.n_columns], stops[k :: layout.n_columns]) for k in layout.taken]


def _labels_in(fields: Fields) -> LabelColumn | None:
    if (found := fields.numbered()) is None:
        return None
    codes, labels = found
    return LabelColumn(codes, lambda: None, lambda: [label.decode("utf-8") for label in labels])


def _numbers_in(fields: Fields) -> np.ndarray | None:
    """Fields as numbers, if all of them are; in many tables the same ones come again and again."""
    if (found := fields.numbered()) is None:
        return None
    codes, texts = found
    together = b"".join(texts)
    if b"_" in together or not together.isascii():  # as in `number_of`
        return None
    try:
        values = np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return None
    return None if np.isinf(values).any() else values[codes]


def parse_lines(path: str, layout: Layout, blocks: TextBlocks, block: bytes, numbers: TableNumbers, skip: bool) -> Piece:
    """The records that begin in a block, one by one; what is wrong with one is the error.

    Parameters
    ----------
    path : str
        For errors.
    layout : Layout
    blocks : TextBlocks
        Where the block comes from: its last record may take lines that come after.
    block : bytes
    numbers : TableNumbers
    skip : bool
        Whether the first record is a header.
    """
    text = block.decode("utf-8")
    here = io.StringIO(text, newline="")

    def lines() -> Iterator[str]:
        yield from here
        while line := blocks.take_line():
            yield line.decode("utf-8")

    rows, cols = numbers.rows.text, numbers.cols.text
    i, j, parsed = array("i"), array("i"), (array("d"), array("d"))  # values, and if they are wanted sigmas
    reader = csv.reader(lines(), delimiter=layout.delimiter, strict=True)
    a, b, *c = layout.taken
    while here.tell() < len(text) and (record := next(reader, None)) is not None:
        if not record:
            continue
        if skip:
            skip = False
            continue
        line = blocks.n_lines + reader.line_num
        if len(record) != layout.n_columns:
            raise ValueError(f"{path!r}, line {line}: {len(record)} columns, but the first line has {layout.n_columns}")
        for what, column, into in zip(NUMBERS, c, parsed, strict=False):
            try:
                into.append(value_of(record[column], what))
            except ValueError as error:
                advice = (Argument(f"{what}_column"), ", leave the field empty if the value is missing)")
                named = repr(layout.header[column]) if layout.header else str(column + 1)
                where = f"{path!r}, line {line}: {error} (column {named}; choose another with "
                raise InputError(where, *advice) from None
        try:
            i.append(_number_of("row", record[a], rows))
            j.append(_number_of("column", record[b], cols))
        except ValueError as error:
            raise ValueError(f"{path!r}, line {line}: {error}") from None
    blocks.n_lines += reader.line_num
    values, sigma = (np.frombuffer(x, np.float64) for x in parsed)
    values = values if c else np.full(len(i), np.nan)
    return np.frombuffer(i, np.int32), np.frombuffer(j, np.int32), observed(values, sigma if len(c) > 1 else None)


def _number_of(what: str, text: str, known: dict[str, int]) -> int:
    """The number of the label of a row or column, a new one if it is not known; what is wrong with it is the error."""
    number = known.get(text)
    if number is None:
        if problem := wrong_with_label(text):
            raise ValueError(f"the label of the {what} {problem}")
        number = known.setdefault(text.strip(), len(known))
    return number
