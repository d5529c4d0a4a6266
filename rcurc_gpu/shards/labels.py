"""Shards with the user's names of rows and columns, which stand in the same directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..io.labels import Labelled, Labels
from .folder import read_manifest
from .on_disk import checksum
from .samples import ShardedSamples

LABELS = "labels.npz"
_KIND = "Labels"
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
        labels = read_labels(Path(folder) / LABELS, said["crc32"], samples.shape)
        columns = said["columns"]
        return cls(samples, labels, said["source"], said["n_missing"], None if columns is None else tuple(columns))


def write_labels(path: str | os.PathLike[str], labels: Labels) -> str:
    """Write the labels of rows and columns, and give their checksum."""
    arrays = dict(zip(_PARTS, (part for names in (labels.rows, labels.cols) for part in _packed(names)), strict=True))
    files.write_npz(path, _KIND, arrays)
    return checksum([arrays[name] for name in _PARTS])


def read_labels(path: str | os.PathLike[str], crc32: str, shape: tuple[int, int]) -> Labels:
    """Read what `write_labels` wrote for a matrix of this shape."""
    arrays = files.read_npz(path, _KIND, _PARTS)
    row_text, row_ends, col_text, col_ends = parts = [arrays[name] for name in _PARTS]
    if checksum(parts) != crc32 or (len(row_ends), len(col_ends)) != tuple(shape):
        raise ValueError(f"{os.fspath(path)!r} is damaged: it does not have the labels that the manifest says")
    return Labels(_unpacked(row_text, row_ends), _unpacked(col_text, col_ends))


def _packed(names: Any) -> tuple[np.ndarray, np.ndarray]:
    """Labels as UTF-8 one after the other, and where each ends: an array of strings is as wide as the longest."""
    encoded = [str(name).encode() for name in names]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), ends


def _unpacked(text: np.ndarray, ends: np.ndarray) -> np.ndarray:
    data, starts = text.tobytes(), np.append(0, ends[:-1])
    return np.asarray([data[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)], dtype=str)
