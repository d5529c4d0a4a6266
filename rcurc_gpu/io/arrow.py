"""The same tables read with pyarrow, and Parquet. pyarrow (the extra ``files``) is imported only here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from .labels import Encoded, encode, wrong_with_label
from .numbering import LabelColumn, Named
from .text import MISSING, Columns, Layout, Table

_BLOCK = 8 << 20  # bytes of text, or rows of Parquet, at a time
_ROWS = 1 << 20
_PARSE = 1 << 20  # bytes of text for each thread


def read_text_fast(path: str, layout: Layout, bar: Any = None) -> Table | None:
    """All lines of a text file; None if pyarrow is not there or finds anything odd, which `read_text` then names."""
    try:
        import pyarrow as pa
        from pyarrow import csv
    except ImportError:
        return None
    batches = []
    try:
        with pa.OSFile(path) as raw:
            stream = pa.CompressedInputStream(raw, "gzip") if path.lower().endswith(".gz") else raw
            label = pa.dictionary(pa.int32(), pa.string())
            for batch in csv.open_csv(stream, *_csv_options(layout, _BLOCK, layout.n_skipped, label)):
                batches.append(batch)
                if bar is not None:
                    bar.update(raw.tell() - bar.n)
    except (pa.ArrowException, OSError):
        return None
    if not batches:
        return None
    table = pa.Table.from_batches(batches).unify_dictionaries()
    rows, cols = _encoded(table.column(0)), _encoded(table.column(1))
    values = table.column(2).to_numpy() if len(layout.taken) == 3 else None
    if rows is None or cols is None or len(rows.codes) == 0 or (values is not None and np.isinf(values).any()):
        return None
    return Table(rows, cols, values)


def parse_block(block: bytes, layout: Layout, n_skipped: int) -> tuple[LabelColumn, LabelColumn, np.ndarray] | None:
    """Whole lines of a text file as rows, columns and values (NaN where there is none); None as `read_text_fast`.

    Parameters
    ----------
    block : bytes
    layout : Layout
    n_skipped : int
        Lines of the block before its first observation.
    """
    try:
        import pyarrow as pa
        from pyarrow import csv
    except ImportError:
        return None
    try:
        table = csv.read_csv(pa.BufferReader(block), *_csv_options(layout, _PARSE, n_skipped, pa.string()))
    except (pa.ArrowException, OSError):
        return None
    values = table.column(2).to_numpy()
    if not table.num_rows or np.isinf(values).any():
        return None
    row, column = (LabelColumn(_whole(c), partial(_named_text, c)) for c in table.columns[:2])
    return row, column, values


def _whole(column: Any) -> np.ndarray | None:
    """Labels that are all whole numbers, written as they usually are; None if they are not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        numbers = pc.cast(column, pa.int64())
    except pa.ArrowException:
        return None
    if not pa.types.is_integer(column.type) and not pc.all(pc.equal(pc.cast(numbers, column.type), column)).as_py():
        return None  # 07 and 7 are two labels
    return np.asarray(numbers.to_numpy())


def _named_text(column: Any) -> Named:
    return _named(column.dictionary_encode().unify_dictionaries())


def _csv_options(layout: Layout, block_size: int, n_skipped: int, label: Any) -> tuple[Any, Any, Any]:
    import pyarrow as pa
    from pyarrow import csv

    names = [str(k) for k in range(layout.n_columns)]  # numbers for names: a header may name two columns alike
    taken = [names[k] for k in layout.taken]
    return (
        csv.ReadOptions(block_size=block_size, column_names=names, skip_rows=n_skipped),
        csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
        csv.ConvertOptions(
            column_types=dict(zip(taken, (label, label, pa.float64()), strict=False)),
            include_columns=taken,
            null_values=list(MISSING),
            strings_can_be_null=False,
        ),
    )


def _named(column: Any) -> Named:
    """Labels of a dictionary-encoded column whose parts have one dictionary."""
    parts = column.chunks
    return np.concatenate([part.indices.to_numpy() for part in parts]), parts[0].dictionary.to_pylist()


def _encoded(column: Any) -> Encoded | None:
    """Labels of a dictionary-encoded column; None if one of them cannot be a label."""
    codes, names = _named(column)
    return None if any(wrong_with_label(name) for name in names) else encode(codes, names)


# ---------------------------------------------------------------- Parquet


def parquet_names(path: str) -> list[str]:
    """The names of the columns of a Parquet file."""
    with _parquet(path) as file:
        return list(file.schema_arrow.names)


def read_parquet(path: str, columns: Columns, bar: Any = None) -> Table:
    """Triplets, or pairs, of a Parquet file; `bar` counts bytes of the file, in proportion to the rows."""
    with _parquet(path) as file:
        taken = _taken(path, file.schema_arrow.names, columns)
        batches, size, total = [], os.stat(path).st_size, max(file.metadata.num_rows, 1)
        for batch in file.iter_batches(_ROWS, columns=taken):
            batches.append(batch)
            if bar is not None:
                bar.update(size * batch.num_rows // total)
    if not batches or not sum(batch.num_rows for batch in batches):
        raise ValueError(f"{path!r} has no rows: there are no observations")
    import pyarrow as pa

    table = pa.Table.from_batches(batches)
    row, column, *value = (table.column(name) for name in taken)
    return Table(
        encode(*_parquet_labels(path, taken[0], row)),
        encode(*_parquet_labels(path, taken[1], column)),
        _parquet_values(path, taken[2], value[0]) if value else None,
        tuple(taken),
    )


def parquet_parts(
    path: str, columns: Columns, rows: int, bar: Any = None
) -> Iterator[tuple[LabelColumn, LabelColumn, np.ndarray]]:
    """Rows, columns and values (NaN where there is none) of a Parquet file, about `rows` lines at a time."""
    import pyarrow as pa

    # with a buffer, pyarrow keeps what it has read until the file is closed
    with _parquet(path, pre_buffer=False) as file:
        taken = _taken(path, file.schema_arrow.names, columns)
        size, total, done = os.stat(path).st_size, max(file.metadata.num_rows, 1), 0
        for batch in file.iter_batches(rows, columns=taken):
            row, column, value = (pa.chunked_array([batch.column(name)]) for name in taken)
            if batch.num_rows:
                labels = _parquet_column(path, taken[0], row), _parquet_column(path, taken[1], column)
                yield *labels, _parquet_values(path, taken[2], value, done)
            if bar is not None:
                bar.update(size * (done + batch.num_rows) // total - size * done // total)
            done += batch.num_rows


def parquet_columns(path: str, columns: Columns) -> tuple[str, ...]:
    """What a Parquet file calls the columns that are taken."""
    with _parquet(path) as file:
        return tuple(_taken(path, file.schema_arrow.names, columns))


@contextmanager
def _parquet(path: str, **how: Any) -> Iterator[Any]:
    """An open Parquet file; what goes wrong in reading is said in a line."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            f"reading {path!r} needs pyarrow, which the extra 'files' brings: pip install 'rcurc-gpu[files]'"
        ) from error
    try:
        with parquet.ParquetFile(path, **how) as file:
            yield file
    except (pa.ArrowException, OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno:
            raise  # what the system says of a missing or unreadable file is clear
        raise ValueError(f"{path!r} is not a Parquet file, or is damaged ({_first_line(error)})") from error


def _taken(path: str, there: list[str], columns: Columns) -> list[str]:
    if len(there) < len(columns.names):
        raise ValueError(f"{path!r} must have at least {len(columns.names)} columns, got {there}")
    taken = [there[k] if name is None else name for k, name in enumerate(columns.names)]
    for name in taken:
        if there.count(name) != 1:
            problem = "has no column" if name not in there else "has more than one column"
            raise ValueError(f"{path!r} {problem} {name!r}; its columns are {', '.join(map(repr, there))}")
    if len(set(taken)) < len(taken):
        raise ValueError(f"row, column and value must be different columns of {path!r}, got {taken}")
    return taken


def _parquet_column(path: str, name: str, column: Any) -> LabelColumn:
    import pyarrow as pa

    kind = column.type
    plain = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    whole = _whole(column) if plain and not column.null_count else None
    return LabelColumn(whole, partial(_parquet_labels, path, name, column))


def _parquet_labels(path: str, name: str, column: Any) -> Named:
    import pyarrow as pa

    where = f"{path!r}, column {name!r}"
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    if not (is_text or is_time or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ValueError(f"{where}: labels must be text, whole numbers, dates or timestamps, got {column.type}")
    if column.null_count:
        raise ValueError(f"{where}: {column.null_count:,} labels are missing")
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    parts = column.unify_dictionaries().chunks
    found = _iso(parts[0].dictionary) if is_time else parts[0].dictionary.to_pylist()
    for label in found:
        if isinstance(label, float) and not label.is_integer():
            raise ValueError(f"{where}: labels must be text or whole numbers, got {label}")
    names = [str(int(label)) if isinstance(label, float) else str(label) for label in found]
    for label in names:
        if problem := wrong_with_label(label):
            raise ValueError(f"{where}: a label {problem}")
    return np.concatenate([part.indices.to_numpy() for part in parts]), names


def _iso(times: Any) -> list[str]:
    """Dates as 2024-05-01, timestamps as 2024-05-01T12:30:00, with a fraction if there is one and Z if there is a zone."""
    import pyarrow as pa

    if pa.types.is_date(times.type):
        return np.datetime_as_string(times.cast(pa.date32()).to_numpy(zero_copy_only=False)).tolist()
    zone = "" if times.type.tz is None else "Z"
    # by way of numpy: to_pylist needs pandas for nanoseconds
    texts = np.datetime_as_string(times.to_numpy(zero_copy_only=False)).tolist()
    return [(text.rstrip("0").rstrip(".") if "." in text else text) + zone for text in texts]


def _parquet_values(path: str, name: str, column: Any, before: int = 0) -> np.ndarray:
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise ValueError(f"{path!r}, column {name!r}: values must be numbers, got {kind}")
    values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy())  # NaN for null
    if np.isinf(values).any():
        k = int(np.argmax(np.isinf(values)))
        raise ValueError(f"{path!r}, column {name!r}: the value {values[k]} in row {before + k} is not finite")
    return values


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
