"""A matrix of two factors that behaves like a NumPy array: indices, arithmetic, conversion."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, is_array, take_rows, to_numpy
from ..errors import warn_caller

# What is formed without being asked for in so many words (np.asarray, arithmetic, slices): 1 GiB, 11,500 x 11,500 numbers,
# which any laptop has free. `to_dense` and `block` say what they do and have no limit.
MOST_FORMED = 1 << 30
_PARTS = "cur[i, j], cur.block(i, j) and cur.entries(i, j) give parts, cur @ x products, cur.to_dense(out=...) all of it"


class ArrayLike:
    """What `LowRankMatrix` has of an array; a result of more than 1 GiB is refused, with what to use instead."""

    left: Array
    right: Array
    __array_priority__ = 1000.0  # CuPy and scipy.sparse leave arithmetic with such objects to them
    __pandas_priority__ = 5000  # so does pandas: that of a DataFrame is 4000

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(n1, n2)"""

    @property
    @abstractmethod
    def dtype(self) -> Any:
        """float32 or float64."""

    @abstractmethod
    def entries(self, i: Any, j: Any) -> Any:
        """The entries (i[k], j[k])."""

    @abstractmethod
    def _of(self, left: Array, right: Array, factor: float | None = None) -> Any:
        """A matrix of other factors, or (if it is given) the same matrix times `factor`."""

    @property
    def ndim(self) -> int:
        """2"""
        return 2

    @property
    def size(self) -> int:
        """n1 * n2"""
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        self._check_rows()
        return (self[k] for k in range(len(self)))

    def __reversed__(self) -> Iterator[Array]:
        self._check_rows()
        return (self[k] for k in reversed(range(len(self))))

    def _check_rows(self) -> None:
        """Refuse to go through all rows of a large matrix: list(cur) and sorted(cur) would form it row by row."""
        self._check_size("going through all rows of cur", *self.shape, "cur[k] gives a row; ")

    def __contains__(self, value: Any) -> bool:
        return bool((self._formed("x in cur") == value).any())

    # ---------------------------------------------------------------- parts

    def block(self, i: Any, j: Any) -> Array:
        """The crossing of some rows and columns, ``X[i, :][:, j]``, as `numpy.ix_` selects it.

        Parameters
        ----------
        i, j : int, slice, index vector or boolean vector

        Returns
        -------
        float array
            Without the axis of an int.
        """
        (left, drop_i), (right, drop_j) = self._rows(i, 0), self._rows(j, 1)
        block = left @ right.T
        if drop_i and drop_j:
            return block[0, 0]
        return block[0, :] if drop_i else block[:, 0] if drop_j else block

    def __getitem__(self, key: Any) -> Array:
        """Parts, as NumPy gives them: ``cur[0]``, ``cur[:5]``, ``cur[2:4, [1, 7]]``, ``cur[i, j]``, ``cur[mask]``.

        Two index vectors give the entries (i[k], j[k]); `block` gives the crossing of some rows and columns.
        """
        if _is_mask(key):
            mask = _host(key)
            if mask.shape != self.shape:
                raise IndexError(f"a boolean index of two axes must have shape {self.shape}, got {mask.shape}")
            return self.entries(*np.nonzero(mask))
        i, j = self._two(key)
        if isinstance(i, bool) or isinstance(j, bool):
            raise IndexError(f"an index must be an int, a slice or a vector, got {i if isinstance(i, bool) else j}")
        if not isinstance(i, slice) and not isinstance(j, slice) and (_is_vector(i) or _is_vector(j)):
            return self._pairs(i, j)
        n1, n2 = (_count(x, n) for x, n in zip((i, j), self.shape, strict=True))
        self._check_size("cur[...]", n1, n2)
        return self.block(i, j)

    def _two(self, key: Any) -> tuple[Any, Any]:
        """An index for each axis."""
        given = list(key) if isinstance(key, tuple) else [key]
        where = [k for k, x in enumerate(given) if x is Ellipsis]
        if where:
            given[where[0] : where[0] + 1] = [slice(None)] * (3 - len(given))
        if len(given) > 2 or any(x is None or x is Ellipsis for x in given):
            raise IndexError(f"a matrix takes at most two indices, cur[i, j], got {len(given)} or a new axis")
        i, j = [*given, slice(None), slice(None)][:2]
        return i, j

    def _pairs(self, i: Any, j: Any) -> Array:
        """The entries (i[k], j[k]), with a warning where this was the crossing of rows and columns."""
        a, b = self._index("index", i, 0), self._index("index", j, 1)
        if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] == 1:  # what numpy.ix_ gives
            return self.block(a[:, 0], b[0, :])
        if a.ndim == b.ndim == 1:
            warn_caller(
                "cur[i, j] with two index vectors gives the entries (i[k], j[k]), as in NumPy. It gave the crossing of "
                "rows and columns before: that is now cur.block(i, j). cur.entries(i, j) gives entries without a warning",
                FutureWarning,
            )
        try:
            np.broadcast_shapes(tuple(a.shape), tuple(b.shape))
        except ValueError:
            raise IndexError(
                f"index vectors of shapes {tuple(a.shape)} and {tuple(b.shape)} do not pair; cur.block(i, j) gives the "
                "crossing of rows and columns"
            ) from None
        return self.entries(a, b)

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
        if _is_vector(key):
            index = self._index("index", key, axis)
            if index.ndim != 1:
                raise IndexError(f"an index must be an int, a slice or a vector, got shape {tuple(index.shape)}")
            return take_rows(factor, index), False
        return take_rows(factor, self._index("index", [operator.index(key)], axis)), True

    def _index(self, name: str, key: Any, axis: int) -> Array:
        """Checked, wrapped index array on the factors' device."""
        size = self.shape[axis]
        host = _host(key)
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

    # ---------------------------------------------------------------- all of it

    def _check_size(self, what: str, n1: int, n2: int, instead: str = "") -> None:
        size = n1 * n2 * array_namespace(self.left).finfo(self.dtype).bits // 8
        if size > MOST_FORMED:
            raise ValueError(
                f"{what} would form {n1:,} x {n2:,} numbers ({size / 2**30:,.1f} GiB); at most {MOST_FORMED >> 30} GiB is "
                f"formed: {instead}{_PARTS}"
            )

    def _formed(self, what: str) -> Array:
        self._check_size(what, *self.shape)
        return self.left @ self.right.T

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the matrix is kept as factors: an array of it is always a copy")
        self._check_size("np.asarray(cur)", *self.shape)
        try:
            np.asarray(self.left[:1, :])
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                "the matrix is on a device: np.asarray(cur) does not copy it to the host; use cur.to_dense()"
            ) from error
        return np.asarray(self.left @ self.right.T, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's functions: products and factors stay with the matrix, all others take it as an array."""
        if method == "__call__" and not options and len(inputs) == 2:
            a, b = inputs
            if ufunc is np.matmul:
                return b.__rmatmul__(a) if isinstance(b, ArrayLike) else a.__matmul__(b)  # type: ignore[attr-defined]
            if ufunc is np.multiply and isinstance(b, ArrayLike) and _is_number(a):
                return b * a
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, ArrayLike) else x for x in inputs), **options)

    # ---------------------------------------------------------------- arithmetic

    def _with(self, operation: Callable[[Any, Any], Any], sign: str, other: Any, reflected: bool = False) -> Any:
        """The matrix and an array or a number, entry by entry."""
        if isinstance(other, ArrayLike):
            other = other._formed(f"{sign} of two matrices")
        what = f"X {sign} cur" if reflected else f"cur {sign} X"
        dense = self._formed(what)
        return operation(other, dense) if reflected else operation(dense, other)

    def _sum(self, other: ArrayLike, sign: float) -> Any:
        """The sum of two matrices, as factors."""
        if self.shape != other.shape:
            raise ValueError(f"matrices of shapes {self.shape} and {other.shape} cannot be added")
        xp = array_namespace(self.left, other.left)
        left = xp.concat([self.left, sign * other.left], axis=1)
        return self._of(left, xp.concat([self.right, other.right], axis=1))

    def __neg__(self) -> Any:
        return self._of(self.left, self.right, -1.0)

    def __abs__(self) -> Array:
        return abs(self._formed("abs(cur)"))

    def __mul__(self, other: Any) -> Any:
        """With a number a matrix of the same kind, which is not formed; with an array, entry by entry, an array."""
        if _is_number(other):
            return self._of(self.left, self.right, float(other))
        return self._with(operator.mul, "*", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        """By a number, a matrix of the same kind; by an array, entry by entry, an array."""
        return self * (1 / float(other)) if _is_number(other) else self._with(operator.truediv, "/", other)

    def __rtruediv__(self, other: Any) -> Array:
        return self._with(operator.truediv, "/", other, True)

    def __add__(self, other: Any) -> Any:
        """With a matrix of factors such a matrix, which is not formed; with an array or a number, an array."""
        return self._sum(other, 1.0) if isinstance(other, ArrayLike) else self._with(operator.add, "+", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        """As for sums."""
        return self._sum(other, -1.0) if isinstance(other, ArrayLike) else self._with(operator.sub, "-", other)

    def __rsub__(self, other: Any) -> Array:
        return self._with(operator.sub, "-", other, True)

    def __pow__(self, other: Any) -> Array:
        return self._with(operator.pow, "**", other)

    def __lt__(self, other: Any) -> Array:
        return self._with(operator.lt, "<", other)

    def __le__(self, other: Any) -> Array:
        return self._with(operator.le, "<=", other)

    def __gt__(self, other: Any) -> Array:
        return self._with(operator.gt, ">", other)

    def __ge__(self, other: Any) -> Array:
        return self._with(operator.ge, ">=", other)


def _host(index: Any) -> np.ndarray:
    return to_numpy(index) if is_array(index) else np.asarray(index)


def _is_mask(key: Any) -> bool:
    """Whether an index is boolean, of two axes."""
    return getattr(key, "ndim", 0) == 2 and _host(key).dtype == bool


def _is_vector(key: Any) -> bool:
    """Whether an index is neither an int nor a slice."""
    if isinstance(key, (slice, bool)):
        return False
    try:
        operator.index(key)
    except TypeError:
        return True
    return False


def _count(key: Any, size: int) -> int:
    """How many rows (columns) an index takes."""
    if isinstance(key, slice):
        return len(range(*key.indices(size)))
    if not _is_vector(key):
        return 1
    host = _host(key)
    return int(host.sum()) if host.dtype == bool else host.size


def _is_number(x: Any) -> bool:
    """Whether `x` is one real number, not an array."""
    return isinstance(x, Real) and not isinstance(x, (bool, np.bool_))
