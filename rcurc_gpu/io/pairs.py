"""Tables that people read: the entries they ask for, what was predicted, which observations are wrong."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from typing import BinaryIO

import numpy as np

from .. import files
from .arrow import parquet_names
from .completion import Completion, Outliers, Predictions
from .labels import Labels
from .tables import Table, kind_of, read_table
from .text import Columns, find_layout

PREDICTION_HEADER = ("row", "column", "value", "expected_error")
INTERVAL_HEADER = (*PREDICTION_HEADER, "lower", "upper")
OUTLIER_HEADER = ("row", "column", "observed", "recovered", "score")


class WantedEntries(Table):
    """Entries that somebody asks for, by label, in the order given."""

    def predicted(self, completion: Completion) -> Predictions:
        """These entries; each label is looked up once."""
        n1, n2 = completion.shape
        i = completion.labels.find_rows(self.rows.names, n1)[self.rows.codes]
        j = completion.labels.find_cols(self.cols.names, n2)[self.cols.codes]
        return completion.predict_at(i, j)


def read_pairs(
    path: str | os.PathLike[str],
    *,
    row_column: str | None = None,
    column_column: str | None = None,
    header: bool | None = None,
    usual: tuple[str, str] | None = None,
    progress: bool = False,
) -> WantedEntries:
    """Read pairs (row, column) of labels from a text or Parquet file; further columns are ignored.

    Parameters
    ----------
    path : path
    row_column, column_column, header, progress :
        As in `read_observations`. By default the first line is a header if one of its first two words is a usual one: row,
        column, user, item, movie, customer, product, with or without "id", i or j.
    usual : tuple of two str, optional
        What the file of observations calls its rows and columns. Where these pairs have columns of both names they are
        taken; a first line with one of them is a header.
    """
    name = os.fspath(path)
    columns = Columns(row_column, column_column, None, False, header, usual or ())
    if usual is not None and header is not False and columns.wanted == (None, None) and _has_columns(name, usual):
        columns = Columns(*usual, None, False, header)
    return WantedEntries(**vars(read_table(name, columns, progress=progress)))


def _has_columns(path: str, names: tuple[str, str]) -> bool:
    if kind_of(path) == "parquet":
        there: Sequence[str] = parquet_names(path)
    else:
        there = find_layout(path, Columns(with_value=False, header=True)).header or () if os.path.getsize(path) else ()
    return names[0] != names[1] and all(there.count(name) == 1 for name in names)


def write_predictions(path: str | os.PathLike[str], pairs: WantedEntries, predictions: Predictions) -> None:
    """Write ``row,column,value,expected_error,lower,upper`` as CSV, in the order of the pairs; empty where a value is not
    known. Without intervals, there are no columns ``lower`` and ``upper``."""
    columns = [numbers_as_text(predictions.value), numbers_as_text(predictions.expected_error, "%.3g")]
    if predictions.lower is not None and predictions.upper is not None:
        columns += [numbers_as_text(predictions.lower), numbers_as_text(predictions.upper)]
    header = INTERVAL_HEADER if len(columns) > 2 else PREDICTION_HEADER
    write_table(path, header, zip(pairs.row_names, pairs.col_names, *columns, strict=True))


def write_outliers(path: str | os.PathLike[str], outliers: Outliers, labels: Labels) -> None:
    """Write ``row,column,observed,recovered,score`` as CSV, the most suspicious observation first."""
    columns = (
        labels.row_names(outliers.i),
        labels.col_names(outliers.j),
        numbers_as_text(outliers.observed),
        numbers_as_text(outliers.recovered),
        numbers_as_text(outliers.score, "%.4g"),
    )
    write_table(path, OUTLIER_HEADER, zip(*columns, strict=True))


def numbers_as_text(values: np.ndarray, form: str = "%.10g") -> Iterable[str]:
    """Numbers for a table; empty for NaN."""
    return ("" if np.isnan(value) else form % value for value in values.tolist())


def delimiter_of(path: str | os.PathLike[str]) -> str:
    """What stands between the fields of a table that is written there."""
    return "\t" if os.fspath(path).lower().endswith(".tsv") else ","


def write_table(path: str | os.PathLike[str], header: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> None:
    """Write a table in text, with tabs if its name ends in .tsv and commas if not, whole or not at all."""

    def write(file: BinaryIO) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, delimiter=delimiter_of(path), lineterminator="\n")
        writer.writerow(header)
        writer.writerows(lines)
        text.flush()
        text.detach()  # the file is closed by the one who opened it

    files.write_whole(path, write)
