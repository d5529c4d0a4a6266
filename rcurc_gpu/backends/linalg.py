"""QR of tall matrices, SVDs of small ones and, made of both, the truncated SVD; on CuPy by kernels, where there are some."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from array_api_compat import array_namespace, is_cupy_array, is_numpy_array

if TYPE_CHECKING:
    from .arrays import Array


def qr(x: Array, library: bool = False) -> tuple[Array, Array]:
    """Q (m, k) with orthonormal columns and R (k, k), ``x = Q @ R``, for a tall matrix.

    On CuPy by a kernel, if the matrix has few columns and nobody asks for the `library`: cuSOLVER's takes ten times as long.
    """
    if is_cupy_array(x) and not library:
        from .cuda import sketch

        if sketch.serves(x):
            return sketch.qr(x)
    if is_numpy_array(x) and x.shape[0] >= x.shape[1]:
        # a third of the time of numpy.linalg.qr, most of which is not spent in LAPACK for matrices of a few columns
        from scipy.linalg import lapack

        single = x.dtype == np.float32
        geqrf, orgqr = (lapack.sgeqrf, lapack.sorgqr) if single else (lapack.dgeqrf, lapack.dorgqr)
        a, tau, _, _ = geqrf(np.array(x, order="F"), overwrite_a=1)
        R = np.where(_upper(x.shape[1]), a[: x.shape[1]], x.dtype.type(0))
        Q, _, _ = orgqr(a, tau, overwrite_a=1)
        return Q, R
    found = array_namespace(x).linalg.qr(x)
    return found[0], found[1]


def small_svd(x: Array, library: bool = False) -> tuple[Array, Array, Array]:
    """u, s, vt of a small matrix; `library` as for `qr`."""
    if is_cupy_array(x):
        from .cuda import sketch

        if not library and sketch.serves(x) and x.shape[0] == x.shape[1]:
            return sketch.svd(x)
        return sketch.library_svd(x)
    try:
        u, s, vt = array_namespace(x).linalg.svd(x, full_matrices=False)
    except np.linalg.LinAlgError:  # of a matrix that overflowed: NaN tells the iteration, as it does on a GPU
        nothing = x * float("nan")
        return nothing, nothing[0, :], nothing
    return u, s, vt


def subspace_svd(
    mul: Callable[[Array], Array],
    rmul: Callable[[Array], Array],
    start: Array,
    rank: int,
    steps: int,
    tol: float = 0.0,
    product: Array | None = None,
    library: bool = False,
) -> tuple[Array, Array, Array]:
    """The truncated SVD of a matrix known by its products ``M @ X`` and ``M.T @ X``; k triplets for a start (n, k).

    `product` is ``M @ start``, if it is known already. With ``tol = 0`` exactly `steps` steps are taken and nothing is
    read back from the device. `library` as for `qr`.
    """
    xp = array_namespace(start)
    Q, before = start, None
    for _ in range(steps):
        P = qr(mul(Q) if product is None else product, library)[0]
        product = None
        Q, T = qr(rmul(P), library)
        if tol > 0:
            # rotate to singular vectors, so that the leading ones can be compared
            u, s, vt = small_svd(T.T, library)
            P, Q = P @ u, Q @ vt.T
            lead = P[:, :rank]
            turned = None if before is None else lead - before @ (before.T @ lead)
            before = lead
            if turned is not None and float(xp.max(xp.abs(turned))) <= tol:
                return P, s, Q
    if tol > 0:
        return P, s, Q
    u, s, vt = small_svd(T.T, library)
    return P @ u, s, Q @ vt.T


@cache
def _upper(k: int) -> np.ndarray:
    """Where an upper triangular matrix is not 0; `numpy.triu` would make it anew each time."""
    return ~np.tri(k, k, -1, dtype=bool)
