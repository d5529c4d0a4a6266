"""A fully observed matrix, read by rows and columns: NumPy, CuPy, any array-API array, a memory map, HDF5, Zarr."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, bring, is_array, is_foreign, to_numpy
from ..errors import ArgumentTypeError, check_shape
from .building import READ_BYTES, float_values, host_array, sigma_matrix, taken
from .cross import CrossSamples, samples_of_pieces
from .foreign import DaskMatrix, as_source, check_kind, library_of, plain_array

# Rows (columns) over r log(n), as in IRCUR. At 3000 x 3000 and rank 5 that is 161 of them, and an error of 7e-12. More cost
# more, and average more noise.
OVERSAMPLING = 4.0
_LEAST = 128  # rows (columns) of a cross, if there are as many: with fewer, small ranks have too little to be judged by
_UNKNOWN_RANK = 10  # assumed for the size of a cross when the rank is to be found; a larger one may then not be confirmed


def known_matrix(Y: Any, instead: str) -> Any:
    """`Y` as something with a shape and entries by index; lists and data frames become arrays. `instead` says what to do
    with a sparse matrix."""
    if hasattr(Y, "tocoo"):
        raise TypeError(f"Y must know all its entries, got a sparse matrix; use CrossSamples.from_sparse {instead}")
    Y = as_source(plain_array("Y", Y))
    # data frames, those of other libraries too (modin, cuDF), are indexed by column
    if library_of(Y) is not None or hasattr(Y, "iloc") or not (is_array(Y) or hasattr(Y, "shape")):
        return host_array("Y", Y)
    return Y


def dense_source(Y: Any) -> Any:
    """`Y` as something with a shape and rows and columns by index."""
    if Y is None or isinstance(Y, (str, PathLike, dict)):
        raise ArgumentTypeError("Y", f"must be a matrix, got {'a dict' if isinstance(Y, dict) else repr(Y)}")
    Y = known_matrix(Y, "and rcurc")
    check_kind("Y", Y)
    if len(Y.shape) != 2:
        raise ValueError(f"Y must be two-dimensional, got shape {tuple(Y.shape)}")
    check_shape("Y.shape", Y.shape)
    return Y


@dataclass(frozen=True, eq=False)
class DenseReader:
    """Rows and columns of a matrix, as floats divided by `scale`, where `like` is.

    Attributes
    ----------
    Y : array or the like (n1, n2)
    like : array
    scale : float
    """

    Y: Any
    like: Array
    scale: float = 1.0

    def rows(self, chosen: np.ndarray) -> Array:
        """``Y[chosen, :]`` (k, n2)"""
        return self._floats(self._taken(chosen, 0))

    def cols(self, chosen: np.ndarray) -> Array:
        """``Y[:, chosen]`` (n1, k)"""
        return self._floats(self._taken(chosen, 1))

    @cached_property
    def largest(self) -> float:
        """max|Y|; an error if an entry is missing or infinite."""
        most = 0.0
        for start, part in self._pieces():
            part = float_values("Y", part)
            xp = array_namespace(part)
            size = float(xp.max(xp.abs(part)))
            if not np.isfinite(size):
                place = np.argwhere(~np.isfinite(to_numpy(part)))[0]
                i, j = int(start + place[0]), int(place[1])
                raise ValueError(
                    f"Y must be known everywhere, got {float(part[place[0], place[1]])} at ({i}, {j}); robust_pca takes "
                    "matrices with holes (NaN)"
                )
            most = max(most, size)
        return most

    def pieces(self) -> Iterator[tuple[int, Array]]:
        """The number of the first row of some rows, and these rows; all of them one after the other."""
        return ((start, self._floats(part)) for start, part in self._pieces())

    def cross(self, rows: np.ndarray, cols: np.ndarray, sigma: Any = None) -> CrossSamples:
        """All entries of a cross that are not NaN, as samples of the kind of `Y`."""
        if is_array(self.Y) or is_foreign(self.Y):
            samples = CrossSamples.from_dense(self.Y, rows, cols, sigma=sigma)
        else:
            sigma = None if sigma is None else sigma_matrix(sigma, np.empty(0), self.Y.shape)
            R, C = self._taken(rows, 0).T, self._taken(cols, 1)
            read_r, read_c = (lambda a, b, units=units: (units[a:b], None) for units in (R, C))
            samples = samples_of_pieces(read_r, read_c, self.Y.shape, rows, cols, sigma)
        return samples if self.scale == 1 else samples.scaled(1 / self.scale)

    def _taken(self, chosen: np.ndarray, axis: int) -> Any:
        if is_array(self.Y):
            return taken(self.Y, chosen, axis)
        if isinstance(self.Y, DaskMatrix):
            return self.Y.taken(chosen, axis)
        if axis == 0:
            return np.stack([np.asarray(self.Y[int(i)]) for i in chosen])
        return np.concatenate([part[:, chosen] for _, part in self._pieces()])

    def _pieces(self) -> Iterator[tuple[int, Any]]:
        """The number of the first row of some rows, and these rows as they are; all of them one after the other."""
        n1, n2 = self.Y.shape
        step = max(READ_BYTES // (8 * n2), 1)
        for start in range(0, n1, step):
            part = self.Y[start : min(start + step, n1), :]
            yield start, part if is_array(part) else np.asarray(part)

    def _floats(self, part: Array) -> Array:
        part = bring(float_values("Y", part), self.like)
        return part if self.scale == 1 else part / self.scale


# Entries up to which a matrix is solved whole: with noise every row helps, and without it this costs some 0.1 s.
SMALL_MATRIX = 250_000


def cross_size(rank: int | str, n: int) -> int:
    """How many of `n` rows are enough for a rank."""
    known = _UNKNOWN_RANK if isinstance(rank, str) else rank
    return min(max(math.ceil(OVERSAMPLING * known * math.log(n)), _LEAST), n)
