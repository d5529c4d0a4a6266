"""Observations from any file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from .. import files
from ..errors import Argument, ArgumentError, DisagreementError, InputError, check_choice
from ..progress import progress_bar
from ..samples.cross import CrossSamples
from .labels import LabelledSamples, Labels
from .matrices import MaskedMatrix, read_matrix
from .tables import Table, kind_of, read_table
from .text import Columns
from .wide import LAYOUTS, looks_wide, read_wide

MOST_DENSE = 100_000_000  # observations taken out of a dense matrix; as triplets they take 24 bytes each
_AT_ONCE = 4 << 20  # entries of a dense matrix: 32 MB, and as much for what was observed of them


def read_observations(
    path: str | os.PathLike[str],
    *,
    row_column: str | None = None,
    column_column: str | None = None,
    value_column: str | None = None,
    sigma_column: str | None = None,
    header: bool | None = None,
    duplicates: str = "error",
    layout: str = "auto",
    progress: bool = False,
) -> LabelledSamples:
    r"""Read observations from a file, by the ending of its name.

    Parameters
    ----------
    path : path
        Triplets (row, column, value) as text (.csv, .tsv, .tab, .txt, .data, .dat, and these with .gz) or Parquet
        (.parquet, .pq), where rows and columns have any labels; a matrix (.npy and .npz with NaN or a mask, sparse .npz,
        .mtx, .mtx.gz); or what `CrossSamples.save` wrote. A matrix has no labels: rows and columns are numbers from 0.
    row_column, column_column, value_column : str, optional
        Which columns of a table to take, by its header. By default the first, the second and the third.
    sigma_column : str, optional
        The column of a table with the standard deviation of the noise of each value, as `CrossSamples.from_triplets` takes
        it. By default nothing is known of that.
    header : bool, optional
        Whether the first line of a text file names the columns. By default it does if its value is no number.
    duplicates : {"error", "mean", "median"}
        What to do with repeated observations of an entry that disagree.
    layout : {"auto", "triplets", "matrix"}
        Whether a table lists observations (row, column, value), or is a matrix: the first line names its columns, the first
        column its rows, and an empty field is a hole. "auto" takes a table for a matrix if no name in its first column
        stands twice and all other columns hold numbers.
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

    Examples
    --------
    >>> from pathlib import Path
    >>> import rcurc_gpu as rg
    >>> lines = [f"hut {i},day {j},{(i + 1) * (j + 2)}" for i in range(30) for j in range(20)]
    >>> _ = Path("levels.csv").write_text("\n".join(["hut,day,level", *lines]))
    >>> table = rg.io.read_observations("levels.csv")
    >>> table.samples.shape, str(table.labels.rows[3])
    ((30, 20), 'hut 3')
    >>> rg.rcurc(table.samples).rank
    1
    """
    name = os.fspath(path)
    if kind_of(name) != "matrix":
        columns = Columns(row_column, column_column, value_column, header=header, sigma=sigma_column)
        check_choice("layout", layout, LAYOUTS)
        if layout == "matrix" or (layout == "auto" and looks_wide(name, kind_of(name), columns)):
            return _from_wide(name, columns, duplicates)
        columns = replace(columns, listed=True)
        table = read_table(name, columns, progress=progress)
        return _from_table(name, table, duplicates)
    named = {"row_column": row_column, "column_column": column_column, "value_column": value_column}
    for option, given in (named | {"sigma_column": sigma_column}).items():
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


def _from_wide(path: str, columns: Columns, duplicates: str) -> LabelledSamples:
    named = [name for name in columns.wanted if name is not None]
    if named or columns.header is False:
        what = f"the column {named[0]!r}" if named else "no header"
        raise ArgumentError("layout", f"must be 'triplets' or 'auto' for a table with {what}, got 'matrix'")
    found = read_wide(path, kind_of(path))
    i, j = np.nonzero(~np.isnan(found.values))
    if len(i) == 0:
        raise ValueError(f"{path!r} has no values: there are no observations")
    samples = _cross(path, i, j, found.values[i, j], found.values.shape, duplicates, found.labels)
    return LabelledSamples(samples, found.labels, found.source, columns=(found.corner, "column", "value"))


def _from_samples_file(path: str) -> LabelledSamples:
    samples = CrossSamples.load(path)
    with files.open_file(path) as handle, files.load_npz(handle) as file:  # read whole just now
        arrays = {name: file[name] for name in ("row_labels", "col_labels") if name in file.files}
    return LabelledSamples(samples, Labels.from_arrays(arrays, samples.shape, path), "a samples file")


def _from_table(path: str, table: Table, duplicates: str) -> LabelledSamples:
    labels = Labels(table.rows.names, table.cols.names)
    i, j, values = table.rows.codes, table.cols.codes, np.asarray(table.values)
    values, sigma = (values, None) if values.dtype.names is None else (values["value"], values["sigma"])
    missing = np.isnan(values)
    n_missing = int(missing.sum())
    if n_missing == len(values):
        raise ValueError(f"{path!r} has no values: there are no observations")
    if n_missing:
        i, j, values = i[~missing], j[~missing], values[~missing]
        sigma = None if sigma is None else sigma[~missing]
    samples = _cross(path, i, j, values, (len(table.rows.names), len(table.cols.names)), duplicates, labels, sigma)
    return LabelledSamples(samples, labels, table.source, n_missing, table.columns)


def _observed(path: str, matrix: MaskedMatrix, progress: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, column and value of what is observed of a dense matrix, some rows at a time."""
    n1, n2 = matrix.shape
    step = max(_AT_ONCE // n2, 1)
    parts, count = [], 0
    with progress_bar(f"reading {Path(path).name}", n1, progress, unit=" rows") as shown:
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
            shown.update(len(part))
    if not count:
        raise ValueError(f"{path!r} has no entry that is not NaN: there are no observations")
    i, j, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return i, j, values


def _cross(
    path: str,
    i: np.ndarray,
    j: np.ndarray,
    values: np.ndarray,
    shape: tuple[int, int],
    duplicates: str,
    labels: Labels,
    sigma: np.ndarray | None = None,
) -> CrossSamples:
    """Samples of observations, with errors in the user's labels."""
    finite = np.isfinite(values)
    if not finite.all():
        k = int(np.argmin(finite))
        raise ValueError(f"{path!r}: the value of {place(labels, int(i[k]), int(j[k]))} is not finite, got {values[k]}")
    if sigma is not None:
        check_sigma(path, sigma, lambda k: place(labels, int(i[k]), int(j[k])))
    with errors_in_labels(repr(path), labels):
        return CrossSamples.from_triplets(i, j, values, shape, duplicates=duplicates, sigma=sigma)


def check_sigma(path: str, sigma: np.ndarray, where: Callable[[int], str]) -> None:
    """Refuse noise that is missing or not positive, of observations of a file; ``where(k)`` names number k of them."""
    fine = np.isfinite(sigma) & (sigma > 0)
    if not fine.all():
        k = int(np.argmin(fine))
        got = "none" if np.isnan(sigma[k]) else f"{sigma[k]:g}"
        raise InputError(f"{path!r}: ", Argument("sigma_column"), f" must have a positive number for {where(k)}, got {got}")


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
        raise error.in_labels(where, place(labels, *error.entry)) from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
