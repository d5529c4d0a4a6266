"""Matrices in files: NumPy's ``.npy`` and ``.npz``, SciPy's sparse ``.npz``, and Matrix Market."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..files import MALFORMED, Gunzipped, check_unpacked, line_of, load_npy, load_npz, open_file

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
    with open_file(path) as file:  # what the system says of a missing or unreadable file is clear
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
    with _damaged(path, ".npz"), open_file(path) as handle:
        file = load_npz(handle)
        arrays = {name: file[name] for name in file.files}
        sparse = _read_sparse(arrays) if set(arrays) >= _SPARSE_NAMES else None
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


def _read_sparse(arrays: dict[str, np.ndarray]) -> Any:
    """What `scipy.sparse.save_npz` wrote, in coordinates; SciPy's own classes trust indices, and end the process on some."""
    import scipy.sparse

    form, shape, data = (arrays[name] for name in ("format", "shape", "data"))
    form = form.item() if form.shape == () else form
    kind = form.decode("latin-1") if isinstance(form, bytes) else str(form)
    names = {"coo": ("row", "col"), "csr": ("indptr", "indices"), "csc": ("indptr", "indices")}.get(kind)
    if names is None:
        raise ValueError(f"its format is {kind[:20]!r}; save it as csr, csc or coo")
    first, second = (arrays[name] for name in names)
    for name, x in (("shape", shape), (names[0], first), (names[1], second)):
        if x.dtype.kind not in "iu" or x.ndim != 1:
            raise ValueError(f"{name} is not a vector of integers")
    if shape.shape != (2,) or shape.min() < 1 or int(shape.max()) >= 1 << 62 or data.shape != second.shape:
        raise ValueError("data do not fit their places, or the shape")
    n1, n2 = map(int, shape)
    if kind != "coo":
        n_units = n1 if kind == "csr" else n2
        first = first.astype(np.int64)
        if len(first) != n_units + 1 or first[0] != 0 or first[-1] != len(second) or (np.diff(first) < 0).any():
            raise ValueError("indptr does not fit the shape or the data")
        first = np.repeat(np.arange(n_units), np.diff(first))
    row, col = (second, first) if kind == "csc" else (first, second)
    if row.shape != data.shape:
        raise ValueError("row does not fit the data")
    for name, x, n in (("row", row, n1), ("column", col, n2)):
        if len(x) and (int(x.min()) < 0 or int(x.max()) >= n):
            raise ValueError(f"a {name} is negative, or does not lie in 0..{n - 1}")
    return scipy.sparse.coo_array((data, (row.astype(np.int64), col.astype(np.int64))), shape=(n1, n2))


def _read_market(path: str) -> Any:
    """Matrix Market. Its header is compared with the size of the file first: memory is taken for what it declares.

    SciPy's reader is faster, but some damaged files end the process in it.
    """
    import scipy.sparse

    with _damaged(path, "Matrix Market"), open_file(path) as raw:
        packed = size = os.fstat(raw.fileno()).st_size
        stream: Any = raw
        if path.lower().endswith(".gz"):
            with Gunzipped(raw) as whole:  # to the end: it is whole, and no larger than it should be
                size = sum(map(len, iter(lambda: whole.read(1 << 20), b"")))
            raw.seek(0)
            stream = Gunzipped(raw)
        text = io.TextIOWrapper(stream, encoding="latin-1")
        form, field, symmetry, (n1, n2, entries) = _market_header(text)
        if entries * 2 > size:  # an entry takes a digit and the end of the line at least
            raise ValueError(f"its header declares {n1} x {n2} with {entries} entries, more than the file can hold")
        check_unpacked(packed, entries * _ENTRY_BYTES)
        if field in ("pattern", "complex"):
            raise ValueError(f"it is {field}: it must hold real numbers, not a pattern without values")
        table = np.zeros((0, 1))
        if entries:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there is no data is said below
                table = np.loadtxt(text, comments="%", ndmin=2)
        wanted = (entries, 1 if form == "array" else 3)
        if entries and table.shape != wanted:
            raise ValueError(f"its header declares {entries} entries of {wanted[1]} numbers, it has {table.shape}")
        if form == "array":
            return MaskedMatrix(_checked(path, _market_dense(table[:, 0], n1, n2, symmetry)))
        if not entries:
            return _checked_sparse(
                path, scipy.sparse.coo_array((np.zeros(0), (np.zeros(0, int), np.zeros(0, int))), shape=(1, 1))
            )
        i, j, values = (np.asarray(column) for column in table.T)
        if not ((i >= 1) & (i <= n1) & (j >= 1) & (j <= n2) & (i % 1 == 0) & (j % 1 == 0)).all():
            raise ValueError(f"a row or column does not lie in 1..{n1} or 1..{n2}")
        row, col = i.astype(np.int64) - 1, j.astype(np.int64) - 1
        if symmetry != "general":
            other = row != col
            values = np.concatenate([values, -values[other] if symmetry == "skew-symmetric" else values[other]])
            row, col = np.concatenate([row, col[other]]), np.concatenate([col, row[other]])
        if max(n1, n2) >= 1 << 62:
            raise ValueError(f"its header declares {n1} x {n2}")
    return _checked_sparse(path, scipy.sparse.coo_array((values, (row, col)), shape=(n1, n2)))


_MARKET = (("matrix",), ("coordinate", "array"), ("real", "double", "integer", "unsigned-integer", "complex", "pattern"))
_SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")


def _market_header(text: Any) -> tuple[str, str, str, tuple[int, int, int]]:
    """Form, field and symmetry of a Matrix Market file, and its rows, columns and stored entries; `text` is behind them."""
    first = text.readline(1000).lower().split()
    if len(first) != 5 or first[0] != "%%matrixmarket":
        raise ValueError("it does not begin with %%MatrixMarket and four words")
    for word, known in zip(first[1:], (*_MARKET, _SYMMETRIES), strict=True):
        if word not in known:
            raise ValueError(f"{word[:20]!r} is none of {', '.join(known)}")
    _, _, form, field, symmetry = first
    line = "%"
    while line and (line.startswith("%") or not line.strip()):
        line = text.readline(1 << 20)
    found = line.split()
    if len(found) != (2 if form == "array" else 3) or not all(word.isascii() and word.isdecimal() for word in found):
        raise ValueError("it has no line with its size")
    n1, n2, *stored = map(int, found)
    if n1 < 1 or n2 < 1 or (symmetry != "general" and n1 != n2):
        raise ValueError(f"its header declares {n1} x {n2}")
    triangle = n1 * (n1 - 1) // 2 if symmetry == "skew-symmetric" else n1 * (n1 + 1) // 2
    return form, field, symmetry, (n1, n2, stored[0] if stored else n1 * n2 if symmetry == "general" else triangle)


def _market_dense(values: np.ndarray, n1: int, n2: int, symmetry: str) -> np.ndarray:
    """A dense matrix from its columns, or from those of its lower triangle."""
    if symmetry == "general":
        return values.reshape(n2, n1).T
    matrix = np.zeros((n1, n2))
    j, i = np.triu_indices(n1, 1 if symmetry == "skew-symmetric" else 0)
    matrix[i, j], matrix[j, i] = values, -values if symmetry == "skew-symmetric" else values
    return matrix


def _check_real(path: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "iufb":
        raise ValueError(f"{path!r} must hold real numbers, got {'Python objects' if dtype.kind == 'O' else dtype}")


def _checked(path: str, values: np.ndarray) -> np.ndarray:
    _check_real(path, values.dtype)
    if values.dtype.kind == "b":
        raise ValueError(
            f"{path!r} is a table of True and False, which cannot say what is missing; save it as float, with NaN there"
        )
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
