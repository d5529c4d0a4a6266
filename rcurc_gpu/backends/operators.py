"""The three operators of the paper: hard threshold, union sum, truncated SVD.

Plain array-API code: the reference that compiled kernels have to agree with. On CuPy arrays each of the first two is one
kernel.
"""

from __future__ import annotations

import math

import numpy as np
from array_api_compat import is_cupy_array

from ..errors import ArgumentError, check_count, check_number
from .arrays import Array, array_namespace, asarray_on, to_numpy
from .linalg import qr, small_svd, subspace_svd
from .random import Stream, generator


def hard_threshold(M: Array, zeta: Array | float) -> Array:
    """T_zeta: entries of absolute value below `zeta` become 0, the others stay.

    Parameters
    ----------
    M : float array
    zeta : float or array that broadcasts against `M`

    Returns
    -------
    array like `M`

    Examples
    --------
    >>> import numpy as np
    >>> import rcurc_gpu as rg
    >>> rg.hard_threshold(np.array([-3.0, 0.5, 2.0]), 1.0).tolist()
    [-3.0, 0.0, 2.0]
    """
    if is_cupy_array(M):
        from .cuda import elementwise

        out = elementwise.hard_threshold(M, zeta)
        if out is not None:
            return out
    xp = array_namespace(M)
    return xp.where(xp.abs(M) < zeta, xp.zeros_like(M), M)


def union_sum(
    R_inter: Array, C_inter: Array, seen_R: Array, seen_C: Array, step_rows: float, step_cols: float, X: Array | None = None
) -> Array:
    """Join the two updates of the intersection ([R]_{:,J} and [C]_{I,:} of the paper).

    Parameters
    ----------
    R_inter, C_inter : float arrays (|I|, |J|)
        The intersection as updated in R and in C.
    seen_R, seen_C : bool arrays (|I|, |J|)
        Omega_R and Omega_C there.
    step_rows, step_cols : float
        eta_R and eta_C: an entry that both see is the mean of the two, weighted by 1 / eta.
    X : float array (|I|, |J|), optional
        What stays where neither sees the entry: the current iterate. Without it such entries become 0, as the paper
        prints; then the truth is not a fixed point and the iteration fails.

    Returns
    -------
    float array (|I|, |J|)

    Examples
    --------
    >>> import numpy as np
    >>> import rcurc_gpu as rg
    >>> R, C = np.array([[2.0, 2.0, 2.0]]), np.array([[4.0, 4.0, 4.0]])
    >>> in_R, in_C = np.array([[True, True, False]]), np.array([[True, False, False]])
    >>> rg.union_sum(R, C, in_R, in_C, 1.0, 1.0, X=np.array([[7.0, 7.0, 7.0]])).tolist()
    [[3.0, 2.0, 7.0]]
    """
    xp = array_namespace(R_inter, C_inter, seen_R, seen_C)
    if is_cupy_array(R_inter):
        from .cuda import elementwise

        out = elementwise.union_sum(R_inter, C_inter, seen_R, seen_C, step_rows, step_cols, X)
        if out is not None:
            return out
    both = (step_cols * R_inter + step_rows * C_inter) / (step_rows + step_cols)
    neither = xp.zeros_like(R_inter) if X is None else X
    one = xp.where(seen_R, R_inter, xp.where(seen_C, C_inter, neither))
    return xp.where(seen_R & seen_C, both, one)


def truncated_svd(
    M: Array, rank: int, *, start: Array | None = None, steps: int = 100, tol: float = 1e-10, seed: int = 0
) -> tuple[Array, Array, Array]:
    """D_r: the leading singular triplets of a matrix, by block subspace iteration.

    A few columns more than `rank` are iterated, so only tall thin matrices are orthogonalised; the full SVD is never
    taken. On CuPy these go to cuSOLVER.

    Parameters
    ----------
    M : float array (m, n)
    rank : int
    start : float array (n, k), optional
        Where to start, k >= rank: the right singular vectors of a matrix close to `M`.
    steps : int
        Iterations at the most.
    tol : float
        Stop when a step turns the leading left singular vectors by less than this (sine of the angle); 0 takes all steps.
    seed : int
        For the random start.

    Returns
    -------
    W : (m, rank), s : (rank,), V : (n, rank)
        ``(W * s) @ V.T`` approximates `M`.

    Examples
    --------
    >>> import numpy as np
    >>> import rcurc_gpu as rg
    >>> M = np.outer(np.arange(1.0, 7.0), np.ones(4)) + np.outer(np.ones(6), np.arange(4.0))
    >>> W, s, V = rg.truncated_svd(M, rank=2)
    >>> bool(np.allclose((W * s) @ V.T, M))
    True
    """
    if M.ndim != 2:
        raise ValueError(f"M must be two-dimensional, got shape {tuple(M.shape)}")
    rank, steps = check_count("rank", rank, 1, min(M.shape)), check_count("steps", steps)
    tol = check_number("tol", tol)
    if start is not None and (start.ndim != 2 or start.shape[0] != M.shape[1] or start.shape[1] < rank):
        wanted = f"a matrix with {M.shape[1]} rows and at least {rank} columns"
        raise ArgumentError("start", f"must be {wanted}, got shape {tuple(start.shape)}")
    if start is None:
        start = random_start(M.shape[1], sketch_width(rank, M.shape), M, seed)
    P, s, Q = subspace_svd(lambda X: M @ X, lambda X: M.T @ X, start, rank, steps, tol, library=True)
    return P[:, :rank], s[:rank], Q[:, :rank]


def sketch_width(rank: int, shape: tuple[int, int]) -> int:
    """Columns to iterate for `rank` singular vectors: some more, which is what makes the leading ones converge fast."""
    # More columns cost products and orthogonalisation; with fewer the last singular vectors converge slowly where the next
    # singular value is close to theirs.
    return min(rank + max(3, math.ceil(rank / 4)), *shape)


def random_start(n: int, k: int, like: Array, seed: int) -> Array:
    """A Gaussian (n, k) matrix, drawn on the host so that every device starts alike."""
    xp = array_namespace(like)
    return asarray_on(generator(seed, Stream.START).standard_normal((n, k)), like, xp.asarray(like).dtype)


def product_svd(left: Array, right: Array) -> tuple[Array, Array, Array]:
    """W, s, V of ``left @ right.T``, without forming it."""
    P, S = qr(left)
    Q, T = qr(right)
    u, s, vt = small_svd(S @ T.T)
    return P @ u, s, Q @ vt.T


def invert(s: Array) -> Array:
    """1 / s, and 0 for singular values that are rounding: 1 / s of those would blow the result up."""
    values = to_numpy(s)  # they are few
    least = (
        100 * float(np.finfo(values.dtype).eps) * float(np.max(values))
    )  # what an SVD leaves of 0, with two digits to spare
    real = values > least
    return asarray_on(np.where(real, 1 / np.where(real, values, 1), 0).astype(values.dtype), s)
