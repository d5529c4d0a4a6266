"""Tables that people read: the entries they ask for, what was predicted, which observations are wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np

from .. import files
from .arrow import parquet_names
from .completion import Completion, Outliers, Predictions
from .labels import Labels
from .numbering import Encoded
from .tables import Table, kind_of, read_table
from .text import Columns, find_layout

PREDICTION_HEADER = ("row", "column", "value", "expected_error")
INTERVAL_HEADER = (*PREDICTION_HEADER, "lower", "upper")
OUTLIER_HEADER = ("row", "column", "observed", "recovered", "score")
_LINES = 1 << 16  # of a table that are in memory as text at a time


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
    r"""Read pairs (row, column) of labels from a text or Parquet file; further columns are ignored.

    Parameters
    ----------
    path : path
    row_column, column_column, header, progress :
        As in `read_observations`. By default the first line is a header if one of its first two words is a usual one: row,
        column, user, item, movie, customer, product, with or without "id", i or j.
    usual : tuple of two str, optional
        What the file of observations calls its rows and columns. Where these pairs have columns of both names they are
        taken; a first line with one of them is a header.

    Examples
    --------
    >>> from pathlib import Path
    >>> import rcurc_gpu as rg
    >>> _ = Path("pairs.csv").write_text("row,column\nhut 3,day 5\nhut 4,day 1\n")
    >>> wanted = rg.io.read_pairs("pairs.csv")
    >>> wanted.rows.names.tolist(), wanted.cols.names.tolist()
    (['hut 3', 'hut 4'], ['day 5', 'day 1'])
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


def write_predictions(
    path: str | os.PathLike[str], pairs: WantedEntries, predictions: Predictions, columns: Sequence[str] | None = None
) -> None:
    r"""Write ``row,column,value,expected_error,lower,upper`` as CSV, in the order of the pairs; empty where a value is not
    known. Without intervals, there are no columns ``lower`` and ``upper``.

    The first three are called as in `columns`, the names of row, column and value in the file of the observations.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import rcurc_gpu as rg
    >>> Y = np.outer(np.arange(1.0, 31.0), np.arange(1.0, 21.0))
    >>> kept = rg.io.Completion.of(rg.robust_pca(Y, rank=1))
    >>> _ = Path("pairs.csv").write_text("row,column\n3,5\n4,1\n")
    >>> wanted = rg.io.read_pairs("pairs.csv")
    >>> rg.io.write_predictions("wanted.csv", wanted, wanted.predicted(kept))
    >>> print(Path("wanted.csv").read_text().splitlines()[0])
    row,column,value,expected_error,lower,upper
    """
    numbers = [(predictions.value, "%.10g"), (predictions.expected_error, "%.3g")]
    if predictions.lower is not None and predictions.upper is not None:
        numbers += [(predictions.lower, "%.10g"), (predictions.upper, "%.10g")]
    header = INTERVAL_HEADER if len(numbers) > 2 else PREDICTION_HEADER
    write_table(path, named(header, columns, 3), (pairs.rows, pairs.cols), numbers)


def write_outliers(
    path: str | os.PathLike[str], outliers: Outliers, labels: Labels, columns: Sequence[str] | None = None
) -> None:
    """Write ``row,column,observed,recovered,score`` as CSV, the most suspicious observation first; the first two are called
    as in `columns`.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import rcurc_gpu as rg
    >>> Y = np.outer(np.arange(1.0, 31.0), np.arange(1.0, 21.0))
    >>> Y[3, 5] = -99
    >>> kept = rg.io.Completion.of(rg.robust_pca(Y, rank=1))
    >>> rg.io.write_outliers("wrong.csv", kept.outliers, kept.labels)
    >>> print(Path("wrong.csv").read_text().splitlines()[1][:7])
    3,5,-99
    """
    places = [
        Encoded(np.arange(len(outliers)), names) for names in (labels.row_names(outliers.i), labels.col_names(outliers.j))
    ]
    numbers = [(outliers.observed, "%.10g"), (outliers.recovered, "%.10g"), (outliers.score, "%.4g")]
    write_table(path, named(OUTLIER_HEADER, columns, 2), (places[0], places[1]), numbers)


def named(header: tuple[str, ...], columns: Sequence[str] | None, k: int) -> tuple[str, ...]:
    """A header, its first `k` columns called as in `columns`, if that is given."""
    return header if columns is None else (*columns[:k], *header[k:])


def delimiter_of(path: str | os.PathLike[str]) -> str:
    """What stands between the fields of a table that is written there."""
    return "\t" if os.fspath(path).lower().endswith(".tsv") else ","


def write_table(
    path: str | os.PathLike[str],
    header: tuple[str, ...],
    places: tuple[Encoded, Encoded],
    numbers: Sequence[tuple[np.ndarray, str]],
) -> None:
    """Write a table in text, with tabs if its name ends in .tsv and commas if not, whole or not at all.

    Parameters
    ----------
    path : path
    header : tuple of str
    places : pair of Encoded
        Labels of row and column of each line.
    numbers : sequence of pairs
        Arrays (n,), and how to write them ("%.10g"); NaN is left empty.
    """
    delimiter = delimiter_of(path)
    labels = [np.asarray([_quoted(str(x), delimiter) for x in side.names], dtype=object)[side.codes] for side in places]
    form = delimiter.join(["%s", "%s", *(how for _, how in numbers)]) + "\n"

    def write(file: BinaryIO) -> None:
        file.write((delimiter.join(_quoted(name, delimiter) for name in header) + "\n").encode())
        for start in range(0, len(labels[0]), _LINES):
            part = slice(start, start + _LINES)
            numbers_here = [x[part] for x, _ in numbers]
            columns = [x.tolist() for x in (*(x[part] for x in labels), *numbers_here)]
            # one format for a line takes a third of the time of one for each number
            lines = list(map(form.__mod__, zip(*columns, strict=True)))
            for k in np.flatnonzero(np.any([np.isnan(x) for x in numbers_here], axis=0)):
                cells = [column[k] for column in columns]
                cells[2:] = ["" if v != v else how % v for v, (_, how) in zip(cells[2:], numbers, strict=True)]
                lines[k] = delimiter.join(cells) + "\n"
            text = "".join(lines)
            file.write(text.encode())

    files.write_whole(path, write)


def _quoted(text: str, delimiter: str) -> str:
    """A field as CSV has it: in quotation marks if there is something in it that would end it."""
    if any(sign in text for sign in (delimiter, '"', "\n", "\r")):
        return '"' + text.replace('"', '""') + '"'
    return text
