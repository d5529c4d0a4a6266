"""Observations from any file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..errors import Argument, ArgumentError, DisagreementError, InputError
from ..samples.cross import CrossSamples
from .arrow import parquet_names, read_parquet, read_text_fast
from .labels import LabelledSamples, Labels
from .matrices import MaskedMatrix, read_matrix
from .text import Columns, Table, file_size, look_at, read_text

TEXT = (".csv", ".tsv", ".tab", ".txt", ".data", ".dat")
PARQUET = (".parquet", ".pq")
MATRIX = (".npy", ".npz", ".mtx", ".mtx.gz")
MOST_DENSE = 100_000_000  # observations taken out of a dense matrix; as triplets they take 24 bytes each
_AT_ONCE = 4 << 20  # entries of a dense matrix


def read_observations(
    path: str | os.PathLike[str],
    *,
    row_column: str | None = None,
    column_column: str | None = None,
    value_column: str | None = None,
    header: bool | None = None,
    duplicates: str = "error",
    progress: bool = False,
) -> LabelledSamples:
    """Read observations from a file, by the ending of its name.

    Parameters
    ----------
    path : path
        Triplets (row, column, value) as text (.csv, .tsv, .tab, .txt, .data, .dat, and these with .gz) or Parquet
        (.parquet, .pq), where rows and columns have any labels; a matrix (.npy and .npz with NaN or a mask, sparse .npz,
        .mtx, .mtx.gz); or what `CrossSamples.save` wrote. A matrix has no labels: rows and columns are numbers from 0.
    row_column, column_column, value_column : str, optional
        Which columns of a table to take, by its header. By default the first, the second and the third.
    header : bool, optional
        Whether the first line of a text file names the columns. By default it does if its value is no number.
    duplicates : {"error", "mean", "median"}
        What to do with repeated observations of an entry that disagree.
    progress : bool
        Show a bar on standard error if it takes longer than a second.

    Returns
    -------
    LabelledSamples

    Raises
    ------
    ValueError
        If the file is not what it should be: one line that names it.
    OSError
        If it cannot be opened.
    ImportError
        If it is a Parquet file and pyarrow is not installed.
    """
    name = os.fspath(path)
    kind = kind_of(name)
    if kind in ("text", "parquet"):
        table = read_table(name, Columns(row_column, column_column, value_column, header=header), progress=progress)
        return _from_table(name, table, kind, duplicates)
    for option, given in (("row_column", row_column), ("column_column", column_column), ("value_column", value_column)):
        if given is not None:
            raise ArgumentError(option, f"is for tables, got {given!r} for {name!r}, which has no columns with names", given)
    if header is not None:
        raise ArgumentError("header", f"is for text files, got {header!r} for {name!r}", header)
    if name.lower().endswith(".npz") and (said := files.npz_header(name)):
        if "CrossSamples" not in said:
            raise ValueError(f"{name!r} is a result, not observations (it says {said!r})")
        return _from_samples_file(name)
    matrix = read_matrix(name)
    if isinstance(matrix, MaskedMatrix):
        i, j, values = _observed(name, matrix, progress)
        return LabelledSamples(_cross(name, i, j, values, matrix.shape, duplicates, Labels()), Labels(), "a dense matrix")
    values = matrix.data.astype(np.float64) if matrix.data.dtype.kind in "iub" else matrix.data
    place = (matrix.row.astype(np.int64), matrix.col.astype(np.int64))
    samples = _cross(name, *place, values, matrix.shape, duplicates, Labels())
    return LabelledSamples(samples, Labels(), "a sparse matrix")


def kind_of(path: str) -> str:
    """By the ending of the name: "text", "parquet" or "matrix"."""
    name = path.lower()
    if os.path.isdir(path):
        raise IsADirectoryError(21, "Is a directory", path)
    for kind, endings in (("text", TEXT), ("parquet", PARQUET), ("matrix", MATRIX)):
        if name.endswith(endings) or (kind == "text" and name.endswith(tuple(f"{ending}.gz" for ending in endings))):
            return kind
    os.stat(path)  # a file that is not there is the first thing to know
    known = ", ".join((*TEXT, *PARQUET, *MATRIX))
    raise ValueError(f"{path!r} has an ending that is not known ({Path(path).suffix or 'none'}); known are {known}")


def read_table(path: str, columns: Columns, progress: bool = False) -> Table:
    """Triplets or pairs of a text or Parquet file."""
    if not file_size(path):
        raise ValueError(f"{path!r} is empty (0 bytes)")
    if kind_of(path) == "parquet":
        with bar(f"reading {Path(path).name}", file_size(path), progress) as shown:
            return read_parquet(path, columns, shown)
    layout = look_at(path, columns)
    for read in (read_text_fast, read_text):
        with bar(f"reading {Path(path).name}", file_size(path), progress) as shown:
            table = read(path, layout, shown)
        if table is not None:
            return table if layout.header is None else replace(table, names=tuple(layout.header[k] for k in layout.taken))
    raise AssertionError("read_text gives a table or an error")


def column_names(path: str) -> list[str]:
    """The first line of a text file, or the names of the columns of a Parquet file."""
    if kind_of(path) == "parquet":
        return parquet_names(path)
    return list(look_at(path, Columns(with_value=False, header=True)).header or ()) if file_size(path) else []


@contextmanager
def bar(name: str, total: int | None, visible: bool, unit: str = "B") -> Iterator[Any]:
    """A progress bar that shows itself after a second; None if it is not to be seen."""
    if not visible:
        yield None
        return
    from tqdm.auto import tqdm

    with tqdm(total=total, desc=name, unit=unit, unit_scale=True, delay=1) as shown:
        yield shown


def _from_samples_file(path: str) -> LabelledSamples:
    samples = CrossSamples.load(path)
    with np.load(path, allow_pickle=False) as file:  # read whole just now
        arrays = {name: file[name] for name in ("row_labels", "col_labels") if name in file.files}
    return LabelledSamples(samples, Labels.from_arrays(arrays, samples.shape, path), "a samples file")


def _from_table(path: str, table: Table, kind: str, duplicates: str) -> LabelledSamples:
    labels = Labels(table.rows.names, table.cols.names)
    shape = (len(table.rows.names), len(table.cols.names))
    i, j, values = table.rows.codes, table.cols.codes, np.asarray(table.values)
    missing = np.isnan(values)
    n_missing = int(missing.sum())
    if n_missing == len(values):
        raise ValueError(f"{path!r} has no values: there are no observations")
    if n_missing:
        i, j, values = i[~missing], j[~missing], values[~missing]
    samples = _cross(path, i, j, values, shape, duplicates, labels)
    # said, because a first line with a misprint for its value passes for a header
    columns = "without a header" if table.names is None else f"with the columns {', '.join(map(repr, table.names))}"
    source = f"triplets in {'Parquet' if kind == 'parquet' else 'text'} {columns}"
    return LabelledSamples(samples, labels, source, n_missing, table.names)


def _observed(path: str, matrix: MaskedMatrix, progress: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, column and value of what is observed of a dense matrix, some rows at a time."""
    n1, n2 = matrix.shape
    step = max(_AT_ONCE // n2, 1)
    parts, count = [], 0
    with bar(f"reading {Path(path).name}", n1, progress, unit=" rows") as shown:
        for start in range(0, n1, step):
            part, seen = matrix.rows(start, min(start + step, n1))
            i, j = np.nonzero(seen)
            parts.append((i + start, j, part[seen]))
            count += len(i)
            if count > MOST_DENSE:
                raise ValueError(
                    f"{path!r} is a matrix of {n1:,} x {n2:,} with more than {MOST_DENSE:,} observed entries: far more than "
                    "are needed; draw some of them with 'rcurc-gpu sample' (rcurc_gpu.ccs_sample) first"
                )
            if shown is not None:
                shown.update(len(part))
    if not count:
        raise ValueError(f"{path!r} has no entry that is not NaN: there are no observations")
    i, j, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return i, j, values


def _cross(
    path: str, i: np.ndarray, j: np.ndarray, values: np.ndarray, shape: tuple[int, int], duplicates: str, labels: Labels
) -> CrossSamples:
    """Samples of observations, with errors in the user's labels."""
    finite = np.isfinite(values)
    if not finite.all():
        k = int(np.argmin(finite))
        raise ValueError(f"{path!r}: the value of {place(labels, int(i[k]), int(j[k]))} is not finite, got {values[k]}")
    with errors_in_labels(repr(path), labels):
        return CrossSamples.from_triplets(i, j, values, shape, duplicates=duplicates)


def place(labels: Labels, row: int, column: int) -> str:
    """An entry in the user's labels."""
    names = labels.row_names(np.asarray([row]))[0], labels.col_names(np.asarray([column]))[0]
    return f"row {str(names[0])!r} and column {str(names[1])!r}"


@contextmanager
def errors_in_labels(where: str, labels: Labels) -> Iterator[None]:
    """Let what is said of an entry that disagrees name its labels, and every error what was read."""
    try:
        yield
    except DisagreementError as error:
        what = f"{where}: the entry of {place(labels, *error.entry)} was observed with different values, {error.seen}; "
        raise InputError(what, Argument("duplicates", "mean", "median"), " combines them") from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
