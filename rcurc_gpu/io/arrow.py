"""Tables parsed with pyarrow (the extra ``files``, imported here only): text, faster than in `text.py`, and Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ..files import check_unpacked
from ..samples.building import observed
from .labels import wrong_with_label
from .numbering import LabelColumn
from .text import MISSING, Columns, Layout, find_columns

_ROWS = 1 << 18  # of Parquet at a time; as text they are about as large as a block of text
_PAGE = 64 << 20  # bytes of a column of a row group that are taken from however few
_LEAST_ROWS = 16
# bytes of text for each thread: two of them for a block of `text.py`; smaller parts each have their own labels to unify,
# which with 1 MB took more time than two threads save (a million lines, 20,000 labels)
_PARSE = 4 << 20


def parse_block(block: bytes, layout: Layout, n_skipped: int) -> tuple[LabelColumn, LabelColumn, np.ndarray] | None:
    """Whole lines of a text file as rows, columns and values (NaN where there is none), with sigmas if they are wanted.

    None if pyarrow is not there or finds anything odd, which `parse_lines` then takes or names.

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
    label = pa.dictionary(pa.int32(), pa.string())
    names = [str(k) for k in range(layout.n_columns)]  # numbers for names: a header may name two columns alike
    taken = [names[k] for k in layout.taken]
    types = dict(zip(taken, (label, label, pa.float64(), pa.float64()), strict=False))
    missing = {"null_values": list(MISSING), "strings_can_be_null": False}
    options = (
        csv.ReadOptions(block_size=_PARSE, column_names=names, skip_rows=n_skipped),
        csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=True),
        csv.ConvertOptions(column_types=types, include_columns=taken, **missing),
    )
    try:
        table = csv.read_csv(pa.BufferReader(block), *options)
    except (pa.ArrowException, OSError):
        return None
    values, sigma = (numbers_in(table.column(k).chunks) if len(layout.taken) > k else None for k in (2, 3))
    if not table.num_rows or any(np.isinf(x).any() for x in (values, sigma) if x is not None):
        return None
    values = np.full(table.num_rows, np.nan) if values is None else values
    return _text_column(table.column(0)), _text_column(table.column(1)), observed(values, sigma)


def numbers_in(parts: Sequence[Any], dtype: Any = np.float64) -> np.ndarray:
    """Arrays of pyarrow, of numbers of a dtype, as one of NumPy; null is NaN.

    Their own ``to_numpy`` imports pandas wherever that is installed, which takes half a second of CPU.
    """
    found = []
    for part in parts:
        valid, data = part.buffers()
        stop = part.offset + len(part)
        x = np.frombuffer(data, dtype)[part.offset : stop] if len(part) else np.empty(0, dtype)
        if part.null_count:
            seen = np.unpackbits(np.frombuffer(valid, np.uint8), count=stop, bitorder="little")[part.offset :]
            x = np.where(seen, x, np.nan)
        found.append(x)
    return np.concatenate(found) if len(found) != 1 else found[0]


def _text_column(column: Any) -> LabelColumn:
    parts = column.unify_dictionaries().chunks
    labels = parts[0].dictionary
    codes = numbers_in([part.indices for part in parts], np.int32)
    return LabelColumn(codes, partial(_whole, labels), labels.to_pylist)


def _whole(labels: Any) -> np.ndarray | None:
    """Labels that are all whole numbers, written as they usually are; None if they are not."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.cast(labels[:1], pa.int64())  # by itself: where all fail, a cast takes longer than all the rest
        numbers = pc.cast(labels, pa.int64())
    except pa.ArrowException:
        return None
    if not pa.types.is_integer(labels.type) and not pc.all(pc.equal(pc.cast(numbers, labels.type), labels)).as_py():
        return None  # 07 and 7 are two labels
    return numbers_in([numbers], np.int64)


# ---------------------------------------------------------------- Parquet


def parquet_names(path: str) -> list[str]:
    """The names of the columns of a Parquet file."""
    with opened_parquet(path) as file:
        return list(file.schema_arrow.names)


def parquet_columns(path: str, columns: Columns) -> tuple[str, ...]:
    """What a Parquet file calls the columns that are taken."""
    there = parquet_names(path)
    if len(there) < len(columns.wanted):
        raise ValueError(f"{path!r} must have at least {len(columns.wanted)} columns, got {there}")
    wanted = [there[k] if name is None else name for k, name in enumerate(columns.wanted)]  # pyarrow takes them by name
    return tuple(there[k] for k in find_columns(path, there, wanted, f"its columns are {', '.join(map(repr, there))}"))


def parquet_parts(path: str, taken: Sequence[str], bar: Any) -> Iterator[tuple[LabelColumn, LabelColumn, np.ndarray]]:
    """Rows, columns and values (NaN where there is none; with sigmas, if wanted) of a Parquet file, some lines at a time.

    Parameters
    ----------
    path : str
    taken : sequence of str
        What the file calls row, column and (if they are wanted) value and sigma.
    bar : progress bar
        Counts bytes of the file, in proportion to the lines.
    """
    with opened_parquet(path) as file:
        if not file.metadata.num_rows:  # its columns may be of no type at all
            return
        kinds = [_checked_kind(path, name, file.schema_arrow, is_label=k < 2) for k, name in enumerate(taken)]
        rows_at_once, chained = _rows_at_once(file.metadata, taken)
    is_text = [str(kind) in ("string", "large_string") for kind in kinds[:2]]
    text = [name for name, fine in zip(taken, is_text, strict=False) if fine and name not in chained]
    # with a buffer, pyarrow keeps what it has read until the file is closed; a dictionary keeps each label once
    with opened_parquet(path, pre_buffer=False, read_dictionary=text) as file:
        size, total, done = os.stat(path).st_size, max(file.metadata.num_rows, 1), 0
        batches = file.iter_batches(rows_at_once, columns=list(taken))
        for batch in batches:
            row, column, *given = (batch.column(name) for name in taken)
            n = batch.num_rows
            if n:
                labels = _parquet_column(path, taken[0], row, batches), _parquet_column(path, taken[1], column, batches)
                parts = [_parquet_values(path, name, x, done) for name, x in zip(taken[2:], given, strict=True)]
                value, sigma, *_ = (*parts, None, None)
                yield *labels, np.full(n, np.nan) if value is None else observed(value, sigma)
            bar.update(size * (done + n) // total - size * done // total)
            done += n


def _rows_at_once(metadata: Any, taken: Sequence[str]) -> tuple[int, set[str]]:
    """How many lines to take at a time, and which columns write labels by what they have beyond the one before.

    What would unpack to far more than it should is refused.

    pyarrow unpacks a page whole, and a page may be all of a column of a row group. A label that is written as what it has
    beyond the one before may be as long as all that is there.
    """
    rows, chained = _ROWS, set()
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in taken:
                packed, unpacked = column.total_compressed_size, column.total_uncompressed_size
                check_unpacked(packed, unpacked, _PAGE)
                if "DELTA_BYTE_ARRAY" in column.encodings:  # which pyarrow does not read as a dictionary
                    chained.add(column.path_in_schema)
                    rows = max(min(rows, _PAGE // max(unpacked, 1)), _LEAST_ROWS)
    return rows, chained


@contextmanager
def opened_parquet(path: str, **how: Any) -> Iterator[Any]:
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
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{path!r} is not a Parquet file, or is damaged ({words[0]})") from error


def _parquet_column(path: str, name: str, column: Any, later: Iterator[Any]) -> LabelColumn:
    """The labels of a batch; if some are missing, those of `later` batches are counted, too."""
    import pyarrow as pa

    where = f"{path!r}, column {name!r}"
    if column.null_count:
        n_missing = column.null_count + sum(batch.column(name).null_count for batch in later)
        raise ValueError(f"{where}: {n_missing:,} labels are missing")
    codes, labels = _encoded(column)
    plain = pa.types.is_integer(labels.type) or pa.types.is_string(labels.type) or pa.types.is_large_string(labels.type)
    whole = partial(_whole, labels) if plain else lambda: None
    return LabelColumn(codes, whole, partial(_parquet_labels, where, labels))


def _encoded(column: Any) -> tuple[np.ndarray, Any]:
    """The labels of a column, each once, in the order in which they come, and their places in it, int (n,)."""
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
        return numbers_in([column.indices], np.int32), column.dictionary
    # the dictionary of a file has labels of other batches, too
    indices = column.indices.to_numpy()
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < len(column.dictionary):
        raise pa.ArrowInvalid("labels are not in their dictionary")
    first = np.full(len(column.dictionary), -1, np.int64)
    first[indices[::-1]] = np.arange(len(indices) - 1, -1, -1)  # of those that are equal the last stays, the first to come
    used = np.flatnonzero(first >= 0)
    used = used[np.argsort(first[used])]
    place = np.empty(len(first), np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    return place[indices], column.dictionary.take(pa.array(used))


def _checked_kind(path: str, name: str, schema: Any, *, is_label: bool) -> Any:
    """The type of a column; one that is none of labels, or of values, is refused before any of it is read."""
    import pyarrow as pa

    t, where = pa.types, f"{path!r}, column {name!r}"
    kind = schema.field(name).type
    if not is_label:
        if not (t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind)):
            raise ValueError(f"{where}: values must be numbers, got {kind}")
        return kind
    inner = kind.value_type if t.is_dictionary(kind) else kind
    checks = (t.is_integer, t.is_string, t.is_large_string, t.is_date, t.is_timestamp, t.is_floating)
    if not any(check(inner) for check in checks):
        raise ValueError(f"{where}: labels must be text, whole numbers, dates or timestamps, got {kind}")
    return kind


def _parquet_labels(where: str, labels: Any) -> list[str]:
    import pyarrow as pa

    found = _iso(labels) if pa.types.is_date(labels.type) or pa.types.is_timestamp(labels.type) else labels.to_pylist()
    if fraction := [label for label in found if isinstance(label, float) and not label.is_integer()]:
        raise ValueError(f"{where}: labels must be text or whole numbers, got {fraction[0]}")
    names = [str(int(label)) if isinstance(label, float) else str(label) for label in found]
    if problem := next(filter(None, map(wrong_with_label, names)), None):
        raise ValueError(f"{where}: a label {problem}")
    return names


def _iso(times: Any) -> list[str]:
    """Dates as 2024-05-01, timestamps as 2024-05-01T12:30:00, with a fraction if there is one and Z if there is a zone."""
    import pyarrow as pa

    if pa.types.is_date(times.type):
        return np.datetime_as_string(times.cast(pa.date32()).to_numpy(zero_copy_only=False)).tolist()
    zone = "" if times.type.tz is None else "Z"
    # by way of numpy: to_pylist needs pandas for nanoseconds
    texts = np.datetime_as_string(times.to_numpy(zero_copy_only=False)).tolist()
    return [(text.rstrip("0").rstrip(".") if "." in text else text) + zone for text in texts]


def _parquet_values(path: str, name: str, column: Any, before: int) -> np.ndarray:
    import pyarrow as pa

    values = numbers_in([column.cast(pa.float64(), safe=False)])
    if np.isinf(values).any():
        k = int(np.argmax(np.isinf(values)))
        raise ValueError(f"{path!r}, column {name!r}: the value {values[k]} in row {before + k} is not finite")
    return values
