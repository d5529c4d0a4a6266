"""The result as a matrix: factors, entries on demand, save and load."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import is_dask_array

from .. import files
from ..backends.arrays import Array, array_namespace, asarray_on, default_chunk_bytes, is_array, take_rows, to_numpy
from ..backends.plain.posterior import packed_size
from ..samples.building import check_same_place, index_vector
from .uncertainty import Uncertainty, uncertainty_arrays, uncertainty_from

FACTORS = ("left", "right", "rows", "cols")  # names in files
_NUMBERS_AT_ONCE = 1 << 21  # of covariances, for standard deviations: half a dozen arrays of 16 MB


class LowRankMatrix:
    """An n1 x n2 matrix ``left @ right.T`` that is never formed.

    Parameters
    ----------
    left : float array (n1, r)
    right : float array (n2, r)
        NaN rows of a factor are rows (columns) of the matrix that could not be determined.
    uncertainty : Uncertainty, optional
        What standard deviations are made of, if there is noise.
    """

    def __init__(self, left: Array, right: Array, uncertainty: Uncertainty | None = None) -> None:
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1]:
            raise ValueError(
                "left and right must be matrices with the same number of columns, "
                f"got {tuple(left.shape)} and {tuple(right.shape)}"
            )
        self.left, self.right, self.uncertainty = left, right, uncertainty

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)"""
        return int(self.left.shape[0]), int(self.right.shape[0])

    @property
    def rank(self) -> int:
        """Columns of the factors."""
        return int(self.left.shape[1])

    @property
    def dtype(self) -> Any:
        """float32 or float64."""
        return self.left.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the two factors."""
        xp = array_namespace(self.left)
        return (self.left.shape[0] + self.right.shape[0]) * self.rank * (xp.finfo(self.dtype).bits // 8)

    @property
    def T(self) -> LowRankMatrix:
        """The transpose, sharing memory."""
        return LowRankMatrix(self.right, self.left, None if self.uncertainty is None else self.uncertainty.T)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, rank={self.rank}, dtype={self.dtype})"

    def entries(self, i: Any, j: Any, return_std: bool = False) -> Any:
        """The entries (i[k], j[k]); `i` and `j` are broadcast against each other.

        Parameters
        ----------
        i, j : integers or integer arrays
        return_std : bool
            Also return the standard deviation of each entry (of the matrix, not of a new observation of it).

        Returns
        -------
        values : float array
        std : float array
            With `return_std`.
        """
        xp = array_namespace(self.left)
        rows, cols = xp.broadcast_arrays(self._index("i", i, 0), self._index("j", j, 1))
        values = xp.sum(take_rows(self.left, rows) * take_rows(self.right, cols), axis=-1)
        return (values, self.variances(i, j)[0] ** 0.5) if return_std else values

    def variances(self, i: Any, j: Any) -> tuple[Array, Array]:
        """Squared standard deviation of the entries (i[k], j[k]), and squared scale of the noise of an observation there."""
        if self.uncertainty is None:
            raise ValueError(
                "standard deviations of single entries are known only with noise and intervals=True; Result.interval and "
                "Result.expected_error speak of exact data too"
            )
        xp = array_namespace(self.left)
        i, j = xp.broadcast_arrays(self._index("i", i, 0), self._index("j", j, 1))
        i_flat, j_flat = xp.reshape(i, (-1,)), xp.reshape(j, (-1,))
        size, step = int(i_flat.shape[0]), max(_NUMBERS_AT_ONCE // max(int(self.uncertainty.left.shape[1]), 1), 1)
        parts = (slice(k, min(k + step, size)) for k in range(0, max(size, 1), step))
        pieces = [self.uncertainty.variances(self.left, self.right, i_flat[part], j_flat[part]) for part in parts]
        matrix, noise = (xp.concat(list(x)) for x in zip(*pieces, strict=True))
        factor = self.uncertainty.factor**2
        return xp.reshape(self.uncertainty.widening * factor * matrix, i.shape), xp.reshape(factor * noise, i.shape)

    def __getitem__(self, key: Any) -> Array:
        """``cur[i, j]`` with ints, slices, index or boolean vectors; two vectors give the block of their crossing
        (as `numpy.ix_` does), `entries` the pairs."""
        if not isinstance(key, tuple) or len(key) != 2:
            raise IndexError("a matrix takes two indices, cur[i, j]; use ':' for a whole row or column")
        left, drop_i = self._rows(key[0], 0)
        right, drop_j = self._rows(key[1], 1)
        block = left @ right.T
        if drop_i and drop_j:
            return block[0, 0]
        return block[0, :] if drop_i else block[:, 0] if drop_j else block

    def __matmul__(self, x: Array) -> Array:
        xp = array_namespace(self.left)
        if not is_array(x) or (is_dask_array(self.left) and not is_dask_array(x)):
            x = asarray_on(np.asarray(x), self.left)
        check_same_place("the array to multiply with", x, "the matrix", self.left)
        if x.ndim not in (1, 2) or x.shape[0] != self.shape[1]:
            raise ValueError(f"cannot multiply a {self.shape} matrix with an array of shape {tuple(x.shape)}")
        if xp.isdtype(x.dtype, ("integral", "bool")):
            x = xp.astype(x, self.dtype)
        return self.left @ (self.right.T @ x)

    # NumPy would otherwise take ``x @ cur`` for a product with an array of objects.
    __array_ufunc__ = None

    def __rmatmul__(self, x: Array) -> Array:
        return (self.T @ (x.T if getattr(x, "ndim", 1) == 2 else x)).T

    def to_dense(self, out: Any = None) -> Any:
        """Form the whole matrix, in chunks of rows; into `out` (also a `numpy.memmap`) if given."""
        n1, n2 = self.shape
        if out is None:
            return self.left @ self.right.T
        if tuple(out.shape) != (n1, n2):
            raise ValueError(f"out must have shape {(n1, n2)}, got {tuple(out.shape)}")
        step = max(default_chunk_bytes(self.left) // (8 * n2), 1)
        here = is_array(out) and not isinstance(out, np.ndarray)  # else the host: NumPy, a memmap, HDF5, Zarr
        if here:
            check_same_place("out", out, "the matrix", self.left)
        for start in range(0, n1, step):
            stop = min(start + step, n1)
            part = self.left[start:stop, :] @ self.right.T
            out[start:stop, :] = part if here else to_numpy(part)
        return out

    def singular_values(self) -> np.ndarray:
        """Its singular values (at most r), largest first, on the host; rows and columns that could not be determined are
        left out."""
        factors = (np.asarray(to_numpy(f), dtype=float) for f in (self.left, self.right))
        left, right = (f[np.isfinite(f).all(axis=1)] for f in factors)
        if 0 in (len(left), len(right)):
            return np.zeros(0)
        return np.linalg.svdvals(np.linalg.qr(left).R @ np.linalg.qr(right).R.T)

    def as_linear_operator(self) -> Any:
        """A `scipy.sparse.linalg.LinearOperator` (factors are copied to the host if they are elsewhere)."""
        from scipy.sparse.linalg import LinearOperator

        left, right = to_numpy(self.left), to_numpy(self.right)

        def times(x: np.ndarray) -> np.ndarray:
            return left @ (right.T @ x)

        def transposed_times(x: np.ndarray) -> np.ndarray:
            return right @ (left.T @ x)

        single = {"matvec": times, "rmatvec": transposed_times}
        return LinearOperator(self.shape, **single, matmat=times, rmatmat=transposed_times, dtype=left.dtype)

    def _rows(self, key: Any, axis: int) -> tuple[Array, bool]:
        """Rows of a factor for one index, and whether the axis is dropped (an int was given)."""
        factor = (self.left, self.right)[axis]
        if isinstance(key, slice):
            chosen = range(*key.indices(factor.shape[0]))
            if chosen.step == 1:
                return factor[chosen.start : chosen.stop, :], False
            return take_rows(factor, self._index("index", chosen, axis)), False
        if isinstance(key, bool):
            raise IndexError(f"an index must be an int, a slice or a vector, got {key}")
        try:
            number = operator.index(key)
        except TypeError:
            index = self._index("index", key, axis)
            if index.ndim != 1:
                raise IndexError(f"an index must be an int, a slice or a vector, got shape {tuple(index.shape)}") from None
            return take_rows(factor, index), False
        return take_rows(factor, self._index("index", [number], axis)), True

    def _index(self, name: str, key: Any, axis: int) -> Array:
        """Checked, wrapped index array on the factors' device."""
        size = self.shape[axis]
        host = to_numpy(key) if is_array(key) else np.asarray(key)
        if host.dtype == bool:
            if host.shape != (size,):
                raise IndexError(f"a boolean {name} for axis {axis} must have {size} entries, got shape {host.shape}")
            host = np.flatnonzero(host)
        if host.size == 0:
            host = host.astype(np.int64)
        if host.dtype.kind not in "iu":
            raise IndexError(f"{name} must be integers, got dtype {host.dtype}")
        if host.size and (host.min() < -size or host.max() >= size):
            bad = host.min() if host.min() < -size else host.max()
            raise IndexError(f"{name} {bad} is out of bounds for axis {axis} with size {size}")
        host = host.astype(np.int64)
        return asarray_on(np.where(host < 0, host + size, host), self.left)


class CURMatrix(LowRankMatrix):
    """The recovered matrix, X = C U^+ R, kept as factors.

    Parameters
    ----------
    left : float array (n1, r)
    right : float array (n2, r)
    rows, cols : int64 vectors
        I and J.
    uncertainty : Uncertainty, optional
        What standard deviations are made of, if there is noise.
    """

    def __init__(
        self, left: Array, right: Array, rows: np.ndarray, cols: np.ndarray, uncertainty: Uncertainty | None = None
    ) -> None:
        super().__init__(left, right, uncertainty)
        self.rows, self.cols = np.asarray(rows), np.asarray(cols)

    def with_uncertainty(self, uncertainty: Uncertainty) -> CURMatrix:
        """The same matrix, as sure as that."""
        return CURMatrix(self.left, self.right, self.rows, self.cols, uncertainty)

    @property
    def C(self) -> Array:
        """``X[:, cols]`` (n1, |J|)"""
        return self[:, self.cols]

    @property
    def U(self) -> Array:
        """``X[rows, cols]`` (|I|, |J|)"""
        return self[self.rows, self.cols]

    @property
    def R(self) -> Array:
        """``X[rows, :]`` (|I|, n2)"""
        return self[self.rows, :]

    @property
    def T(self) -> CURMatrix:
        """The transpose, sharing memory."""
        known = None if self.uncertainty is None else self.uncertainty.T
        return CURMatrix(self.right, self.left, self.cols, self.rows, known)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file (no pickle), atomically."""
        arrays = {"left": to_numpy(self.left), "right": to_numpy(self.right), "rows": self.rows, "cols": self.cols}
        files.write_npz(path, "CURMatrix", arrays | uncertainty_arrays(self.uncertainty))

    @classmethod
    def load(cls, path: str | os.PathLike[str], like: Array | None = None) -> CURMatrix:
        """Read what `save` wrote, as NumPy arrays, or as arrays of the type and device of `like`."""
        found = matrix_from(os.fspath(path), files.read_npz(path, "CURMatrix", FACTORS))
        if like is None:
            return found
        known = None if found.uncertainty is None else found.uncertainty.mapped(lambda x: asarray_on(x, like))
        return cls(asarray_on(found.left, like), asarray_on(found.right, like), found.rows, found.cols, known)


def matrix_from(where: str, arrays: Mapping[str, np.ndarray]) -> CURMatrix:
    """The matrix that arrays of a file make; `where` names the file in errors."""
    left, right, rows, cols = (arrays[name] for name in FACTORS)
    for name, x in (("left", left), ("right", right)):
        if x.ndim != 2 or 0 in x.shape or x.dtype not in (np.float32, np.float64):
            raise ValueError(f"{where!r} is damaged: {name} is not a matrix of numbers")
    try:
        if left.dtype != right.dtype:
            raise ValueError("left and right are of different types")
        known = uncertainty_from(arrays, (len(left), len(right)))
        if known is not None and known.left.shape[1] != packed_size(left.shape[1] - known.offsets):
            raise ValueError(f"covariances do not fit a matrix of rank {left.shape[1]}")
        rows, cols = index_vector("rows", rows, len(left)), index_vector("cols", cols, len(right))
        return CURMatrix(left, right, rows, cols, known)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where!r} is damaged: {error}") from error
