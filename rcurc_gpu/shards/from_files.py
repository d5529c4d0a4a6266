"""Shards from tables in files that are larger than memory."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..files import size_of
from ..io.labels import Labels
from ..io.numbering import TableNumbers
from ..io.read import check_sigma, errors_in_labels
from ..io.tables import PARQUET, TEXT, Justified, TableFile, kind_of, source_words
from ..io.text import Columns
from ..progress import progress_bar
from ..samples.building import observed
from .build import MEMORY_BYTES, BuildOptions, build
from .folder import workspace
from .labels import LABELS, LabelledShards, write_labels
from .samples import SHARD_BYTES
from .spool import Spool

# Observations of files may take so many bytes, or so many times the size of the files, here where they are on disk; of
# gzip, 1,030 times is the most there is.
_ROOM = 8 << 30
_TIMES = 4000

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def shard_file(
    path: Paths,
    folder: str | os.PathLike[str],
    *,
    row_column: str | None = None,
    column_column: str | None = None,
    value_column: str | None = None,
    sigma_column: str | None = None,
    header: bool | None = None,
    rows: Sequence[Any] | None = None,
    cols: Sequence[Any] | None = None,
    duplicates: str = "error",
    dtype: Any = "float64",
    shard_bytes: int = SHARD_BYTES,
    memory_bytes: int = MEMORY_BYTES,
    progress: bool = False,
) -> LabelledShards:
    r"""Write the observations of a table, or of a table in several files, into a directory of shards.

    Nothing needs to fit into memory but the labels and the intersection. Files are read once, from front to back. The
    samples are those that `io.read_observations` makes of the same table.

    Parameters
    ----------
    path : path, or sequence of paths
        Triplets (row, column, value) as text (.csv, .tsv, .tab, .txt, .data, .dat, and these with .gz) or Parquet
        (.parquet, .pq). Several files are parts of one table; those without observations are passed over. A directory
        stands for the tables in it and below, a pattern such as ``"part-*.csv"`` for the files that match, in the order
        of their names.
    folder : path
        A directory that is empty or does not exist yet. After an error, or Ctrl-C, nothing is left in it.
    row_column, column_column, value_column : str, optional
        Which columns of a table to take, by its header. By default the first, the second and the third.
    sigma_column : str, optional
        The column with the standard deviation of the noise of each value, as in `io.read_observations`.
    header : bool, optional
        Whether the first line of a text file names the columns. By default it does if its value is no number.
    rows, cols : sequences of labels, optional
        I and J. What is not given is chosen as `CrossSamples.from_triplets` does.
    duplicates, dtype, shard_bytes, memory_bytes, progress
        As in `shard_triplets`. Labels take memory of their own, some 200 bytes for each row and column.

    Returns
    -------
    LabelledShards
        What `LabelledShards.open` gives for `folder`.

    Raises
    ------
    ValueError
        If a file is not what it should be: one line that names it, and the line in it.
    OSError
        If a file cannot be opened, or `folder` not be made.
    ImportError
        If there is a Parquet file and pyarrow is not installed.

    Examples
    --------
    >>> from pathlib import Path
    >>> import rcurc_gpu as rg
    >>> lines = [f"user{i},item{j},{(i + 1) * (j + 2)}" for i in range(30) for j in range(20)]
    >>> _ = Path("table.csv").write_text("\n".join(["user,item,amount", *lines]))
    >>> shards = rg.shard_file("table.csv", "shards")
    >>> shards.samples.shape
    (30, 20)
    >>> rg.rcurc(shards.samples, rank=1).converged
    True
    """
    options = BuildOptions.checked(duplicates, dtype, shard_bytes, memory_bytes, progress, sigma_column is not None)
    columns = Columns(row_column, column_column, value_column, header=header, sigma=sigma_column)
    paths = table_paths(path)
    tables = [_opened(name, columns) for name in paths if size_of(name)]
    where = repr(paths[0]) if len(paths) == 1 else f"{paths[0]!r} and {len(paths) - 1} more"
    if not tables:
        raise ValueError(
            f"{where}: there is nothing but empty files (0 bytes)" if len(paths) > 1 else f"{where} is empty (0 bytes)"
        )
    with workspace(folder) as work, closing(Spool(work, np.int32, options.observed)) as spool:
        numbers = TableNumbers()
        n_missing = _spooled(tables, numbers, spool, options)
        if not len(spool):
            raise ValueError(f"{where} has {'no values' if n_missing else tables[0].nothing}: there are no observations")
        (new_rows, row_labels), (new_cols, col_labels) = numbers.rows.final(), numbers.cols.final()
        labels, shape = Labels(row_labels, col_labels), (len(row_labels), len(col_labels))
        spool.renumber(new_rows, new_cols, options.at_once)
        chosen = _numbers("rows", rows, labels.find_rows, shape[0]), _numbers("cols", cols, labels.find_cols, shape[1])
        said = {
            "crc32": write_labels(Path(folder) / LABELS, labels),
            "source": source_words(tables),
            "n_missing": n_missing,
            "columns": tables[0].columns,
        }
        with errors_in_labels(where, labels):
            build(spool, folder, shape, *chosen, options, labels=said)
    return LabelledShards.open(folder)


def table_paths(path: Paths) -> list[str]:
    """The files that a path, a directory, a pattern, or several of them stand for."""
    if isinstance(path, (str, os.PathLike)):
        return _expanded(os.fspath(path))
    found = [name for one in path for name in _expanded(os.fspath(one))]
    if not found:
        raise ArgumentError("path", "is empty: at least one file is needed")
    return found


def _expanded(path: str) -> list[str]:
    if os.path.isdir(path):
        endings = (*TEXT, *(f"{ending}.gz" for ending in TEXT), *PARQUET)
        # names with _ or . are notes of the program that wrote the parts
        inside = (
            name for name in Path(path).rglob("*") if not any(part[0] in "_." for part in name.relative_to(path).parts)
        )
        found = sorted(str(name) for name in inside if name.name.lower().endswith(endings) and name.is_file())
        if not found:
            raise ValueError(f"{path!r} is a directory without tables ({', '.join((*TEXT, *PARQUET))})")
        return found
    if not os.path.exists(path) and glob.has_magic(path):
        found = sorted(glob.glob(path, recursive=True))
        if not found:
            raise FileNotFoundError(2, "no file matches", path)
        return found
    return [path]


def _opened(path: str, columns: Columns) -> TableFile:
    if kind_of(path) == "matrix":
        raise ValueError(f"{path!r} must be a table in text or Parquet, got a matrix: use 'rcurc-gpu complete'")
    return TableFile.open(path, columns)


def _spooled(tables: list[TableFile], numbers: TableNumbers, spool: Spool, options: BuildOptions) -> int:
    """Put all observations into the spool; returns how many lines have no value."""
    n_missing, justified = 0, Justified(_ROOM, _TIMES)
    name = Path(tables[0].path).name if len(tables) == 1 else f"{len(tables)} files"
    with progress_bar(f"reading {name}", sum(os.path.getsize(table.path) for table in tables), options.progress) as shown:
        for table in tables:
            for i, j, values in table.pieces(numbers, shown, justified):
                there = ~np.isnan(values["value"] if options.sigma else values)
                n_missing += len(values) - int(np.count_nonzero(there))
                if not there.all():
                    i, j, values = i[there], j[there], values[there]
                words = partial(_value_words, table.path, numbers, i, j)
                if options.sigma:
                    with np.errstate(over="ignore"):  # what is too large is named just below
                        sigma = values["sigma"].astype(options.dtype)
                    check_sigma(table.path, sigma, partial(_place_words, numbers, i, j))
                    spool.append(i, j, observed(options.as_dtype(values["value"], words), sigma))
                else:
                    spool.append(i, j, options.as_dtype(values, words))
    return n_missing


def _value_words(path: str, numbers: TableNumbers, i: np.ndarray, j: np.ndarray, k: int, problem: str) -> str:
    return f"{path!r}: the value of {_place_words(numbers, i, j, k)} {problem}"


def _place_words(numbers: TableNumbers, i: np.ndarray, j: np.ndarray, k: int) -> str:
    return f"row {numbers.rows.label(int(i[k]))!r} and column {numbers.cols.label(int(j[k]))!r}"


def _numbers(name: str, wanted: Sequence[Any] | None, find: Any, size: int) -> np.ndarray | None:
    """The numbers of labels that a user gave for rows or columns."""
    if wanted is None:
        return None
    texts = [str(label).strip() for label in wanted]
    if not texts:
        raise ArgumentError(name, "is empty: at least one label is needed")
    numbers: np.ndarray = find(texts, size)
    if (numbers < 0).any():
        k = int(np.argmax(numbers < 0))
        raise ArgumentError(name, f"has the label {texts[k]!r}, which is not in the table")
    if len(set(texts)) < len(texts):
        again = next(text for text in texts if texts.count(text) > 1)
        raise ArgumentError(name, f"must not repeat a label, got {again!r} ({texts.count(again)} times)")
    return numbers
