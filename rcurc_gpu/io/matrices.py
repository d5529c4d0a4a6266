"""Matrices in files: NumPy's ``.npy`` and ``.npz``, SciPy's sparse ``.npz``, and Matrix Market."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..files import MALFORMED, Gunzipped, check_unpacked, line_of, load_npy, load_npz

_ENTRY_BYTES = 48  # of an entry of a Matrix Market file in memory, while it is read
_SPARSE_NAMES = {"format", "shape", "data"}


@dataclass(frozen=True, eq=False)
class MaskedMatrix:
    """A dense matrix with a mask of what was observed, read where it is looked at.

    Attributes
    ----------
    values : array (n1, n2)
        May be a memory map. NaN means not observed.
    mask : bool array (n1, n2) or None
    """

    values: np.ndarray
    mask: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)"""
        return int(self.values.shape[0]), int(self.values.shape[1])

    def entries(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """The entries (i[k], j[k]), NaN where not observed."""
        found = np.asarray(self.values[i, j])
        return found if self.mask is None else np.where(self.mask[i, j], found, np.nan)

    def rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Some rows, and what of them was observed."""
        part = np.asarray(self.values[start:stop])
        seen = np.ones(part.shape, dtype=bool) if part.dtype.kind in "iub" else ~np.isnan(part)
        return part, seen if self.mask is None else seen & self.mask[start:stop]


def read_matrix(path: str) -> Any:
    """The matrix of a file: a `MaskedMatrix`, or a sparse array whose stored entries are the observations.

    A ``.npy`` file is memory-mapped. A ``.npz`` file holds one matrix, and perhaps a boolean array ``mask`` of its shape,
    or what `scipy.sparse.save_npz` wrote.
    """
    name = path.lower()
    with open(path, "rb") as file:  # what the system says of a missing or unreadable file is clear
        start = file.read(6)
    if not start:
        raise ValueError(f"{path!r} is empty (0 bytes)")
    for ending, magic in ((".npy", b"\x93NUMPY"), (".npz", b"PK")):  # NumPy would take anything else for a pickle
        if name.endswith(ending) and not start.startswith(magic):
            raise ValueError(f"{path!r} is not a {ending} file (it does not begin like one)")
    if name.endswith(".npy"):
        with _damaged(path, ".npy"):
            matrix = load_npy(path, mmap_mode="r")
        return MaskedMatrix(_checked(path, matrix))
    if name.endswith(".npz"):
        return _read_npz(path)
    return _read_market(path)


@contextmanager
def _damaged(path: str, kind: str) -> Iterator[None]:
    """What goes wrong in reading is said in a line."""
    try:
        yield
    except (*MALFORMED, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        reason = line_of(error)
        if kind == ".npy" and "bject" in reason:
            reason = "it holds Python objects, not numbers"
        raise ValueError(f"{path!r} is not a {kind} file, or is damaged ({reason})") from error


def _read_npz(path: str) -> Any:
    with _damaged(path, ".npz"), open(path, "rb") as handle:
        file = load_npz(handle)
        if set(file.files) >= _SPARSE_NAMES:
            handle.seek(0)
            sparse, arrays = _read_sparse(handle), {}
        else:
            sparse, arrays = None, {name: file[name] for name in file.files}
    if sparse is not None:
        return _checked_sparse(path, sparse)
    mask = arrays.pop("mask", None)
    found = [name for name, array in arrays.items() if array.ndim == 2]
    if len(found) != 1:
        there = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        raise ValueError(f"{path!r} must hold one matrix, and perhaps a mask; it holds {there}")
    values = _checked(path, arrays[found[0]])
    if mask is not None and (mask.shape != values.shape or mask.dtype != bool):
        raise ValueError(f"{path!r}: mask must be boolean of shape {values.shape}, got {mask.dtype} of shape {mask.shape}")
    return MaskedMatrix(values, mask)


def _read_sparse(handle: Any) -> Any:
    import scipy.sparse

    matrix: Any = scipy.sparse.load_npz(handle)
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return matrix.tocoo()


def _read_market(path: str) -> Any:
    """Matrix Market. Its header is compared with the size of the file first: memory is taken for what it declares."""
    import scipy.io

    with _damaged(path, "Matrix Market"):
        packed = size = os.stat(path).st_size
        if path.lower().endswith(".gz"):
            size = _unpacked_size(path)
        n1, n2, entries, form, field, _ = scipy.io.mminfo(path)
        if entries * 2 > size:  # an entry takes a digit and the end of the line at least
            raise ValueError(f"its header declares {n1} x {n2} with {entries} entries, more than the file can hold")
        check_unpacked(packed, entries * _ENTRY_BYTES)
        if field == "pattern":
            raise ValueError("it is a pattern without values")
        matrix: Any = scipy.io.mmread(path)
    if form == "array":
        return MaskedMatrix(_checked(path, np.asarray(matrix)))
    return _checked_sparse(path, matrix.tocoo())


def _unpacked_size(path: str) -> int:
    """Bytes in a gzip file that is whole, and no larger than it should be; SciPy's reader ends the process if it is not."""
    with open(path, "rb") as raw, Gunzipped(raw) as file:
        return sum(map(len, iter(lambda: file.read(1 << 20), b"")))


def _check_real(path: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "iufb":
        raise ValueError(f"{path!r} must hold real numbers, got {'Python objects' if dtype.kind == 'O' else dtype}")


def _checked(path: str, values: np.ndarray) -> np.ndarray:
    _check_real(path, values.dtype)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"{path!r} must hold a matrix, got an array of shape {values.shape}")
    return values


def _checked_sparse(path: str, matrix: Any) -> Any:
    n1, n2 = matrix.shape
    _check_real(path, matrix.data.dtype)
    if matrix.nnz == 0:
        raise ValueError(f"{path!r} has no entries: there are no observations")
    if n1 + n2 > 1_000_000 + 100 * matrix.nnz:  # memory goes with the rows and columns, nearly all of them empty
        raise ValueError(f"{path!r} declares {n1:,} x {n2:,}, but has only {matrix.nnz:,} entries; leave empty rows out")
    return matrix
