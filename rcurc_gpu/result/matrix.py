"""The result as a matrix: factors, entries on demand, save and load."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from array_api_compat import is_dask_array

from .. import files
from ..backends.arrays import (
    Array,
    array_namespace,
    asarray_on,
    default_chunk_bytes,
    is_array,
    is_foreign,
    native,
    take_rows,
    takes_kernels,
    to_numpy,
)
from ..backends.plain.posterior import packed_size
from ..samples.building import check_same_place, index_vector
from ..summary import Summary, size_words
from .arraylike import ArrayLike
from .uncertainty import Uncertainty, uncertainty_arrays, uncertainty_from

FACTORS = ("left", "right", "rows", "cols")  # names in files

Matrix = TypeVar("Matrix", bound="LowRankMatrix")


class LowRankMatrix(ArrayLike):
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

    def mapped(self: Matrix, change: Callable[[Array], Array]) -> Matrix:
        """The same matrix with all its arrays changed, to another place for example; itself if none of them is."""
        left, right = change(self.left), change(self.right)
        if left is self.left and right is self.right:
            return self
        out = copy(self)
        out.left, out.right = left, right
        out.uncertainty = None if self.uncertainty is None else self.uncertainty.mapped(change)
        return out

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

    def _repr_html_(self) -> str:
        size = f"{self.nbytes / 1e6:,.1f} MB as factors"
        facts = {"matrix": f"{size_words(self.shape)}, factors of {self.rank} columns, {self.dtype}", "memory": size}
        return Summary(facts | {"standard deviations": "no" if self.uncertainty is None else "yes"}).html(
            type(self).__name__
        )

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
        return (values, self.standard_deviations(i, j)) if return_std else values

    def standard_deviations(self, i: Any, j: Any) -> Array:
        """Those of the entries (i[k], j[k]), without the noise of an observation there."""
        known = self._known_uncertainty()
        return abs(known.unit) * self.relative_variances(i, j)[0] ** 0.5

    def variances(self, i: Any, j: Any) -> tuple[Array, Array]:
        """Squared standard deviation of the entries (i[k], j[k]), and squared scale of the noise of an observation there.

        Of numbers beyond 1e-150 and 1e150 (1e-19 and 1e19 in single precision) squares are 0 or infinite.
        """
        unit = self._known_uncertainty().unit
        matrix, noise = self.relative_variances(i, j)
        return unit * (unit * matrix), unit * (unit * noise)

    def _known_uncertainty(self) -> Uncertainty:
        if self.uncertainty is None:
            raise ValueError(
                "standard deviations of single entries are known only with noise and intervals=True; Result.interval and "
                "Result.expected_error speak of exact data too"
            )
        return self.uncertainty

    def relative_variances(self, i: Any, j: Any) -> tuple[Array, Array]:
        """`variances` over the square of the `unit` of the uncertainty, which neither overflow nor vanish."""
        known = self._known_uncertainty()
        xp = array_namespace(self.left)
        i, j = xp.broadcast_arrays(self._index("i", i, 0), self._index("j", j, 1))
        i_flat, j_flat = xp.reshape(i, (-1,)), xp.reshape(j, (-1,))
        matrix, noise = known.variances(self.left, self.right, i_flat, j_flat)
        factor = known.factor**2
        return xp.reshape(known.widening * factor * matrix, i.shape), xp.reshape(factor * noise, i.shape)

    def part(self, rows: np.ndarray, cols: np.ndarray) -> LowRankMatrix:
        """Some rows and columns, by their numbers, in double precision on the host."""
        left, right = rows_of_both(self.left, rows, self.right, cols)
        known = self.uncertainty
        if known is not None:
            known = replace(
                known,
                left=rows_on_host(known.left, rows),
                right=rows_on_host(known.right, cols),
                left_scale=rows_on_host(known.left_scale, rows),
                right_scale=rows_on_host(known.right_scale, cols),
                left_group=None if known.left_group is None else known.left_group[rows],
                right_group=None if known.right_group is None else known.right_group[cols],
            )
        return LowRankMatrix(left.astype(np.float64), right.astype(np.float64), known)

    def __matmul__(self, x: Array) -> Array:
        xp = array_namespace(self.left)
        if is_foreign(x) and not is_foreign(self.left):
            x = native(x)
        if not is_array(x) or (is_dask_array(self.left) and not is_dask_array(x)):
            x = asarray_on(np.asarray(x), self.left)
        check_same_place("the array to multiply with", x, "the matrix", self.left)
        if x.ndim not in (1, 2) or x.shape[0] != self.shape[1]:
            raise ValueError(f"cannot multiply a {self.shape} matrix with an array of shape {tuple(x.shape)}")
        if xp.isdtype(x.dtype, ("integral", "bool")):
            x = xp.astype(x, self.dtype)
        return self.left @ (self.right.T @ x)

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

    def _of(self, left: Array, right: Array, factor: float | None = None) -> LowRankMatrix:
        """A matrix of other factors, or (if it is given) the same matrix times `factor`."""
        if factor is None:
            return LowRankMatrix(left, right)
        return LowRankMatrix(factor * left, right, self._scaled_uncertainty(factor))

    def _scaled_uncertainty(self, factor: float) -> Uncertainty | None:
        known = self.uncertainty
        return None if known is None or not factor else replace(known, left_unit=factor * known.left_unit)


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
        return self.block(slice(None), self.cols)

    @property
    def U(self) -> Array:
        """``X[rows, cols]`` (|I|, |J|)"""
        return self.block(self.rows, self.cols)

    @property
    def R(self) -> Array:
        """``X[rows, :]`` (|I|, n2)"""
        return self.block(self.rows, slice(None))

    @property
    def T(self) -> CURMatrix:
        """The transpose, sharing memory."""
        known = None if self.uncertainty is None else self.uncertainty.T
        return CURMatrix(self.right, self.left, self.cols, self.rows, known)

    def _of(self, left: Array, right: Array, factor: float | None = None) -> LowRankMatrix:
        if factor is None:
            return LowRankMatrix(left, right)
        return CURMatrix(factor * left, right, self.rows, self.cols, self._scaled_uncertainty(factor))

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


def refuse_dask(cur: LowRankMatrix) -> None:
    """What follows works on factors that are here."""
    if is_dask_array(cur.left):
        raise TypeError("the factors are Dask arrays on the workers of a cluster; solve with gather=True or output=...")


def rows_of_both(left: Array, rows: np.ndarray, right: Array, cols: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of two factors, on the host; from a device in one copy."""
    if takes_kernels(left):
        from ..backends.cuda.blocks import join_rows

        both = to_numpy(join_rows(left, right, np.concatenate([rows, -1 - cols])))
        return both[: len(rows)], both[len(rows) :]
    return rows_on_host(left, rows), rows_on_host(right, cols)


def rows_on_host(array: Array, numbers: np.ndarray) -> np.ndarray:
    """Some rows of an array, on the host."""
    if is_dask_array(array):
        return np.asarray(array[numbers])
    if array.ndim == 1 or isinstance(array, np.ndarray):
        return np.asarray(to_numpy(array)[numbers])
    return to_numpy(take_rows(array, asarray_on(numbers, array)))
