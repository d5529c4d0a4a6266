"""Observations on disk, in the order in which they came, to be gone through again and again a piece at a time.

Files are read, not mapped: pages of a mapped file count as memory of the process, and fill it on machines that limit it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..files import naming
from ..samples.choosing import Pairs, at_once_for, collected

_PARTS = ("i", "j", "value")


class ScratchFile:
    """A temporary file of numbers or records, which `close` deletes.

    Parameters
    ----------
    path : Path
    dtype : dtype
        Of what stands in it.
    buffering : int
        As `open` takes it.
    """

    def __init__(self, path: Path, dtype: Any, buffering: int = -1) -> None:
        self.path, self.dtype = path, np.dtype(dtype)
        self._file: Any = open(path, "w+b", buffering=buffering)  # noqa: SIM115

    def write(self, first: int, array: np.ndarray) -> None:
        """Write numbers from number `first` on."""
        view, done = np.ascontiguousarray(array, self.dtype).view(np.uint8).data, 0
        with naming(self.path):
            self._file.seek(first * self.dtype.itemsize)
            while done < len(view):  # an unbuffered file may take a part only
                done += self._file.write(view[done:]) or 0

    def read(self, first: int, count: int) -> np.ndarray:
        """The `count` numbers from number `first` on."""
        array = np.empty(count, self.dtype)
        view, got = array.view(np.uint8).data, 0
        self._file.seek(first * self.dtype.itemsize)
        while got < len(view):
            more = self._file.readinto(view[got:])
            if not more:
                whole = f"{got:,} of {len(view):,} bytes"
                raise OSError(f"a temporary file of shards ended after {whole}: did somebody change it?")
            got += more
        return array

    def close(self) -> None:
        """Close and delete the file."""
        self._file.close()
        self.path.unlink(missing_ok=True)


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
        dtypes = (index_dtype, index_dtype, dtype)
        self._files = [ScratchFile(folder / f"spool-{part}", kind) for part, kind in zip(_PARTS, dtypes, strict=True)]
        self.index_dtype, self._length = np.dtype(index_dtype), 0

    def __len__(self) -> int:
        return self._length

    @property
    def bytes_each(self) -> int:
        """Bytes of an observation."""
        return sum(file.dtype.itemsize for file in self._files)

    def append(self, i: np.ndarray, j: np.ndarray, values: np.ndarray) -> None:
        """Add observations after those that are there."""
        for file, array in zip(self._files, (i, j, values), strict=True):
            file.write(self._length, array)
        self._length += len(i)

    def triplets(self, at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Rows, columns and values of all, at most `at_once` at a time."""
        for start, count in self._pieces(at_once):
            i, j, values = (file.read(start, count) for file in self._files)
            yield i, j, values

    def places(self, at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows and columns only."""
        for start, count in self._pieces(at_once):
            yield self._files[0].read(start, count), self._files[1].read(start, count)

    def renumber(self, new_rows: np.ndarray, new_cols: np.ndarray, at_once: int) -> None:
        """Give row k the number ``new_rows[k]``, and the same for columns."""
        for file, new in zip(self._files[:2], (new_rows, new_cols), strict=True):
            if not np.array_equal(new, np.arange(len(new))):
                for start, count in self._pieces(at_once):
                    file.write(start, new[file.read(start, count)])

    def close(self) -> None:
        """Close and delete the files."""
        for file in self._files:
            file.close()

    def _pieces(self, at_once: int) -> Iterator[tuple[int, int]]:
        """Where each piece begins, and how many observations it has."""
        return ((start, min(at_once, self._length - start)) for start in range(0, self._length, at_once))


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
        if 3 * count * self.spool.index_dtype.itemsize > self.memory_bytes:  # two arrays, and a third for what is under way
            return self
        return collected(self, rows, cols, count, self.spool.index_dtype, self.at_once)
