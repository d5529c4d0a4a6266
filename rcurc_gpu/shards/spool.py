"""Observations on disk, in the order in which they came, to be gone through again and again a piece at a time.

Files are read, not mapped: pages of a mapped file count as memory of the process, and fill it on machines that limit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..files import naming
from ..samples.choosing import Pairs, at_once_for, collected

_PARTS = ("i", "j", "value")


class Spool:
    """Triplets in three files of a directory.

    Parameters
    ----------
    folder : Path
    index_dtype : integer dtype
        What rows and columns are written as.
    dtype : float32 or float64
        What values are written as.
    """

    def __init__(self, folder: Path, index_dtype: Any, dtype: Any) -> None:
        self.dtypes = (np.dtype(index_dtype), np.dtype(index_dtype), np.dtype(dtype))
        self._paths = [folder / f"spool-{part}" for part in _PARTS]
        self._files: list[BinaryIO] = [open(path, "w+b") for path in self._paths]  # noqa: SIM115
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def bytes_each(self) -> int:
        """Bytes of an observation."""
        return sum(dtype.itemsize for dtype in self.dtypes)

    def append(self, i: np.ndarray, j: np.ndarray, values: np.ndarray) -> None:
        """Add observations after those that are there."""
        for part, array in enumerate((i, j, values)):
            with naming(self._paths[part]):
                self._files[part].write(np.ascontiguousarray(array, self.dtypes[part]).data)
        self._length += len(i)

    def triplets(self, at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Rows, columns and values of all, at most `at_once` at a time."""
        for start in range(0, self._length, at_once):
            yield self._read(0, start, at_once), self._read(1, start, at_once), self._read(2, start, at_once)

    def places(self, at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows and columns only."""
        for start in range(0, self._length, at_once):
            yield self._read(0, start, at_once), self._read(1, start, at_once)

    def renumber(self, new_rows: np.ndarray, new_cols: np.ndarray, at_once: int) -> None:
        """Give row k the number ``new_rows[k]``, and the same for columns."""
        for part, new in enumerate((new_rows, new_cols)):
            if np.array_equal(new, np.arange(len(new))):
                continue
            for start in range(0, self._length, at_once):
                numbers = new[self._read(part, start, at_once)].astype(self.dtypes[part])
                with naming(self._paths[part]):
                    self._files[part].seek(start * self.dtypes[part].itemsize)
                    self._files[part].write(numbers.data)

    def close(self) -> None:
        """Close and delete the files."""
        for file, path in zip(self._files, self._paths, strict=True):
            file.close()
            path.unlink(missing_ok=True)

    def _read(self, part: int, start: int, count: int) -> np.ndarray:
        file, dtype = self._files[part], self.dtypes[part]
        array = np.empty(min(count, self._length - start), dtype)
        file.seek(start * dtype.itemsize)
        read_all(file, array)
        return array


def read_all(file: Any, array: np.ndarray) -> None:
    """Fill an array with what comes next in a file."""
    view, got = array.view(np.uint8).data, 0
    while got < len(view):
        count = file.readinto(view[got:])
        if not count:
            raise OSError(f"a temporary file of shards ended after {got:,} of {len(view):,} bytes: did somebody change it?")
        got += count


class SpoolPairs:
    """Rows and columns of a spool, as `choose_cross_of` takes them.

    Parameters
    ----------
    spool : Spool
    shape : (int, int)
    memory_bytes : int
        Pairs that fit into this are kept in memory, once the others are not needed any more.
    """

    def __init__(self, spool: Spool, shape: tuple[int, int], memory_bytes: int) -> None:
        self.spool, self.memory_bytes, self.at_once = spool, memory_bytes, at_once_for(shape)

    def __len__(self) -> int:
        return len(self.spool)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return self.spool.places(self.at_once)

    def kept(self, rows: np.ndarray, cols: np.ndarray, count: int) -> Pairs:
        """The marked pairs in memory, if they fit into it; else all as they are."""
        if 3 * count * self.spool.dtypes[0].itemsize > self.memory_bytes:  # two arrays, and a third for what is under way
            return self
        return collected(self, rows, cols, count, self.spool.dtypes[0], self.at_once)
