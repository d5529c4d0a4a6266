"""QR of tall matrices with few columns, and SVDs of small ones (sketch.cu, svd.cu): nothing waits for the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array, takes_kernels
from .launch import dense, kernel, launch, pointer
from .sources import MOST_WIDTH, PANEL_BYTES

_THREADS = 256  # of a block, as in both
_MOST_PANELS = 64  # their triangles are left to one block; panels too long for shared memory are worked on where they are
_MOST_BLOCKS = 1024  # of an elementwise kernel: enough for any GPU


@dataclass(eq=False)
class Tall:
    """The memory of a QR of a matrix with `rows` rows and `width` columns, taken once for many calls.

    Attributes
    ----------
    Q : float array (rows, width)
    R, turn : float arrays (width, width)
        The triangle, and ``Y.T @ Q``.
    """

    rows: int
    width: int
    dtype: Any
    Q: Array = field(init=False)
    R: Array = field(init=False)
    turn: Array = field(init=False)

    def __post_init__(self) -> None:
        fits = PANEL_BYTES // (self.width * self.dtype.itemsize)
        self._panels = min(-(-self.rows // fits), _MOST_PANELS)
        squares = (self._panels, self.width, self.width)
        self.Q = cupy.empty((self.rows, self.width), self.dtype)
        self.R, self.turn = cupy.empty((2, *squares[1:]), self.dtype)
        self._parts = cupy.empty_like(self.Q) if self._panels > 1 else self.Q
        self._work = [cupy.empty(squares if self._panels > 1 else 0, self.dtype) for _ in range(4)]
        self._arrived = cupy.zeros(1, np.uint32)

    def orthonormalise(self, X: Array, Y: Array | None) -> None:
        """Set Q, R and `turn` for ``X = Q @ R``; `X`, in C order, is overwritten."""
        name, rows = self.dtype.name, np.int64(self.rows)
        arguments = (rows, X, pointer(Y), self._parts, *self._work, self._arrived, self.R, self.turn)
        launch(kernel("sketch.cu", "orthonormalise", name, self.width), self._panels, _THREADS, arguments)
        if self._panels > 1:
            blocks = min(-(-self.rows * self.width // _THREADS), _MOST_BLOCKS)
            arguments = (rows, np.int32(self._panels), self._parts, self._work[3], self.Q)
            launch(kernel("sketch.cu", "combine", name, self.width), blocks, _THREADS, arguments)


@dataclass(eq=False)
class Small:
    """The memory of an SVD ``T.T = u @ diag(s) @ v.T`` of a (width, width) matrix."""

    width: int
    dtype: Any

    def __post_init__(self) -> None:
        self.u, self.v = cupy.empty((2, self.width, self.width), self.dtype)
        self.s = cupy.empty(self.width, self.dtype)

    def decompose(self, T: Array) -> None:
        """Set u, s and v."""
        arguments = (T, self.u, self.s, self.v)
        launch(kernel("svd.cu", "small_svd", self.dtype.name, self.width), 1, _THREADS, arguments)


def serves(x: Array) -> bool:
    """Whether the kernels do the QR of `x`."""
    fits = x.ndim == 2 and 0 < x.shape[1] <= min(x.shape[0], MOST_WIDTH)
    return fits and x.dtype.kind == "f" and x.dtype.itemsize >= 4 and takes_kernels(x)


def qr(x: Array) -> tuple[Array, Array]:
    """Q (m, k) and R (k, k) of a matrix that they serve."""
    with x.device:
        tall = Tall(x.shape[0], x.shape[1], x.dtype)
        tall.orthonormalise(dense(x).copy(), None)
    return tall.Q, tall.R


def svd(x: Array) -> tuple[Array, Array, Array]:
    """u, s, vt of a square matrix with at most `MOST_WIDTH` columns."""
    with x.device:
        small = Small(x.shape[0], x.dtype)
        small.decompose(dense(x.T))
    return small.u, small.s, small.v.T


def library_svd(x: Array) -> tuple[Array, Array, Array]:
    """u, s, vt of any matrix, thin, by cuSOLVER's Jacobi method, which is the faster of its two for small matrices."""
    from cupyx.cusolver import gesvdj  # type: ignore[import-not-found]

    with x.device:
        u, s, v = gesvdj(x, full_matrices=False)
    return u, s, v.T


def of_product(left: Array, Q: Array) -> tuple[Array, Array, Array]:
    """W, s, V of ``left @ Q.T`` for an orthonormal `Q`, by cuSOLVER."""
    W, s, vt = library_svd(left)
    return dense(W), s, dense(Q @ vt.T)  # rows in one piece: all kernels that follow want them so
