"""Shards with the user's names of rows and columns, which stand in the same directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..files import line_of
from ..io.labels import LONGEST, Labelled, Labels
from .folder import Fields, check_fields, inside, is_count, is_text, read_manifest
from .on_disk import checksum
from .samples import ShardedSamples

LABELS = "labels.npz"
_KIND = "Labels"
_FIELDS: Fields = {  # what the manifest says of labels
    "crc32": is_text,
    "source": is_text,
    "n_missing": is_count,
    "columns": lambda x: x is None or (isinstance(x, list) and all(map(is_text, x))),
}
_PARTS = tuple(f"{side}_{part}" for side in ("row", "col") for part in ("text", "ends"))


class LabelledShards(Labelled[ShardedSamples]):
    """Observations in shards, with labels."""

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> LabelledShards:
        """The shards in a directory, with labels if there are any."""
        samples, manifest = ShardedSamples.open(folder), read_manifest(folder)
        said = manifest.get("labels")
        if said is None:
            return cls(samples, Labels(), "shards")
        try:
            check_fields("the labels", said, _FIELDS)
            path = inside(Path(folder), LABELS)
        except (ValueError, KeyError, TypeError) as error:
            what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"the manifest of {os.fspath(folder)!r} is damaged: {what}") from error
        columns = None if said["columns"] is None else tuple(said["columns"])
        return cls(samples, read_labels(path, said["crc32"], samples.shape), said["source"], said["n_missing"], columns)


def write_labels(path: str | os.PathLike[str], labels: Labels) -> str:
    """Write the labels of rows and columns, and give their checksum."""
    arrays = dict(zip(_PARTS, (part for names in (labels.rows, labels.cols) for part in _packed(names)), strict=True))
    files.write_npz(path, _KIND, arrays)
    return checksum([arrays[name] for name in _PARTS])


def read_labels(path: str | os.PathLike[str], crc32: str, shape: tuple[int, int]) -> Labels:
    """Read what `write_labels` wrote for a matrix of this shape."""
    arrays = files.read_npz(path, _KIND, _PARTS)
    row_text, row_ends, col_text, col_ends = parts = [arrays[name] for name in _PARTS]
    if checksum(parts) != crc32 or (row_ends.shape, col_ends.shape) != ((shape[0],), (shape[1],)):
        raise ValueError(f"{os.fspath(path)!r} is damaged: it does not have the labels that the manifest says")
    try:
        return Labels(_unpacked(row_text, row_ends), _unpacked(col_text, col_ends))
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r} is damaged: {line_of(error)}") from error


def _packed(names: Any) -> tuple[np.ndarray, np.ndarray]:
    """Labels as UTF-8 one after the other, and where each ends: an array of strings is as wide as the longest."""
    encoded = [str(name).encode() for name in names]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def _unpacked(text: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """What `_packed` took. A label is at most `LONGEST` characters long: all get as much memory as the longest."""
    lengths = np.diff(ends, prepend=0) if ends.dtype == np.int64 else np.zeros(0)
    if text.dtype != np.uint8 or text.ndim != 1 or not len(lengths) or ends[-1] != len(text):
        raise ValueError("labels do not fit their lengths")
    if lengths.min() < 0 or lengths.max() > 4 * LONGEST:  # a character takes at most 4 bytes
        raise ValueError(f"a label has {lengths.min()} or {lengths.max()} bytes")
    data, starts = text.tobytes(), np.append(0, ends[:-1])
    return np.asarray([data[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)], dtype=str)
