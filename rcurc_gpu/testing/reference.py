"""The paper's Algorithm 1 on dense masked blocks, to be read beside the paper. The oracle of the tests.

It holds R and C as dense arrays and is meant for small problems; `rcurc` gives the same iterates for large ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..backends.arrays import Array, array_namespace, device_of
from ..backends.operators import hard_threshold, truncated_svd, union_sum
from ..summary import Fields


@dataclass(frozen=True, eq=False, repr=False)
class ReferenceState(Fields):
    """One iterate: ``X_k[I, :] = C[I, :] U^+ R`` and so on, with U = W diag(s) V^T.

    Attributes
    ----------
    k : int
    X_rows : (|I|, n2), X_cols : (n1, |J|)
        X_k on the chosen rows and columns.
    W : (|I|, r), s : (r,), V : (|J|, r)
        The SVD of U_k.
    error : float
        e_k of the paper.
    """

    k: int
    X_rows: Array
    X_cols: Array
    W: Array
    s: Array
    V: Array
    error: float


def rcurc_reference(
    Y_rows: Array,
    Y_cols: Array,
    seen_rows: Array,
    seen_cols: Array,
    I: Array,  # noqa: E741
    J: Array,
    rank: int,
    *,
    zeta0: float,
    gamma: float,
    step_rows: float,
    step_cols: float,
    tol: float = 0.0,
    max_iter: int = 100,
    literal: bool = False,
    callback: Callable[[ReferenceState], None] | None = None,
) -> ReferenceState:
    """Run Algorithm 1.

    Parameters
    ----------
    Y_rows : (|I|, n2), Y_cols : (n1, |J|)
        ``Y[I, :]`` and ``Y[:, J]``; what is not seen may hold anything finite.
    seen_rows, seen_cols : bool arrays of the same shapes
        Omega_R and Omega_C.
    I, J : integer vectors
    rank : int
    zeta0, gamma, step_rows, step_cols : float
        zeta_0, gamma, eta_R, eta_C.
    tol, max_iter : stop when e_k <= tol, or after max_iter iterations
    literal : bool
        Take the union sum as printed, with 0 where neither block sees an entry. It does not converge to the truth.
    callback : called with every iterate

    Returns
    -------
    ReferenceState

    Examples
    --------
    >>> import numpy as np
    >>> import rcurc_gpu as rg
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50))
    >>> I, J = np.arange(0, 60, 2), np.arange(0, 50, 2)
    >>> Y = np.where(rng.random(X.shape) < 0.05, 30.0, X)
    >>> all_rows, all_cols = np.ones((30, 50), bool), np.ones((60, 25), bool)
    >>> state = rg.rcurc_reference(
    ...     Y[I], Y[:, J], all_rows, all_cols, I, J, 2,
    ...     zeta0=5.0, gamma=0.9, step_rows=1.0, step_cols=1.0, max_iter=100,
    ... )
    >>> bool(np.allclose((state.W * state.s) @ state.V.T, X[np.ix_(I, J)], atol=1e-3))
    True
    """
    xp = array_namespace(Y_rows, Y_cols)
    zero = xp.zeros_like(Y_rows[:1, :1])
    Y_rows, Y_cols = xp.where(seen_rows, Y_rows, zero), xp.where(seen_cols, Y_cols, zero)
    seen_R, seen_C = xp.take(seen_rows, J, axis=1), xp.take(seen_cols, I, axis=0)
    counted = seen_cols & ~_put_rows(xp.zeros_like(seen_cols), I, seen_R)  # Omega_C without what Omega_R has counted
    total = _square(Y_rows, seen_rows) + _square(Y_cols, counted)

    X_rows, X_cols = xp.zeros_like(Y_rows), xp.zeros_like(Y_cols)
    state = ReferenceState(0, X_rows, X_cols, zero, zero, zero, 1.0)
    for k in range(max_iter):
        # Updating the sparse component
        zeta = zeta0 * gamma**k
        S_rows = hard_threshold(Y_rows - X_rows, zeta)
        S_cols = hard_threshold(Y_cols - X_cols, zeta)
        # Updating the low-rank component
        R = X_rows + step_rows * xp.where(seen_rows, Y_rows - X_rows - S_rows, zero)
        C = X_cols + step_cols * xp.where(seen_cols, Y_cols - X_cols - S_cols, zero)
        keep = None if literal else xp.take(X_rows, J, axis=1)
        joined = union_sum(xp.take(R, J, axis=1), xp.take(C, I, axis=0), seen_R, seen_C, step_rows, step_cols, keep)
        W, s, V = truncated_svd(joined, rank)
        # X_{k+1} = C U^+ R on the chosen rows and columns: with U = W diag(s) V^T in the place of the intersection,
        # [X]_{I,:} = W W^T R outside of J, U in J; [X]_{:,J} = C V V^T outside of I, U in I.
        U = (W * s) @ V.T
        X_rows = _put_cols(W @ (W.T @ R), J, U)
        X_cols = _put_cols((C @ V @ V.T).T, I, U.T).T
        # e_k takes S_k, made from the iterate before, with the new X_k
        error = _square(S_rows + X_rows - Y_rows, seen_rows) + _square(S_cols + X_cols - Y_cols, counted)
        state = ReferenceState(k + 1, X_rows, X_cols, W, s, V, float(error / total))
        if callback is not None:
            callback(state)
        if state.error <= tol:
            break
    return state


def _square(M: Array, where: Array) -> Array:
    xp = array_namespace(M)
    M = xp.where(where, M, xp.zeros_like(M))
    return xp.sum(M * M)


def _put_rows(M: Array, rows: Array, values: Array) -> Array:
    """`M` with ``M[rows, :] = values``, in the array API, which has no assignment by index arrays."""
    xp = array_namespace(M)
    n = M.shape[0]
    order = xp.argsort(rows)
    ascending = xp.take(rows, order, axis=0)
    everything = xp.astype(xp.arange(n, device=device_of(M)), ascending.dtype)
    place = xp.searchsorted(ascending, everything)
    place = xp.where(place < rows.shape[0], place, xp.zeros_like(place))
    hit = xp.take(ascending, place, axis=0) == everything
    return xp.where(hit[:, None], xp.take(values, xp.take(order, place, axis=0), axis=0), M)


def _put_cols(M: Array, cols: Array, values: Array) -> Array:
    return _put_rows(M.T, cols, values.T).T
