"""Algorithm 1 the way the authors' related code is written: dense blocks and a full SVD in every iteration.

The yardstick of the speed comparisons: the corrected union sum, otherwise no tricks.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import rcurc_gpu as rg
from rcurc_gpu import LowRankMatrix, hard_threshold, union_sum


def dense_blocks(samples: rg.CrossSamples) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """R, C and their masks as dense arrays."""
    R, C = samples.R.tocoo(), samples.C.tocoo()
    seen_R, seen_C = np.zeros(R.shape, bool), np.zeros(C.shape, bool)
    seen_R[R.row, R.col] = True
    seen_C[C.row, C.col] = True
    return R.toarray(), C.toarray(), seen_R, seen_C


def solve(
    samples: rg.CrossSamples,
    rank: int,
    max_iter: int,
    tol: float = 0.0,
    gamma: float = 0.9,
    callback: Callable[[], None] | None = None,
) -> LowRankMatrix:
    """Run `max_iter` iterations, or until e_k <= tol, with the best fixed parameters known for it.

    `callback` is called after every iteration.
    """
    Y_R, Y_C, seen_R, seen_C = dense_blocks(samples)
    I, J = samples.rows, samples.cols  # noqa: E741
    step_R, step_C = 0.75 / samples.rate_rows, 0.75 / samples.rate_cols
    zeta0 = 5 * np.median(np.abs(Y_R[seen_R]))
    once = seen_C.copy()
    once[I] &= ~seen_R[:, J]
    total = (Y_R[seen_R] ** 2).sum() + (Y_C[once] ** 2).sum()
    X_R, X_C = np.zeros_like(Y_R), np.zeros_like(Y_C)
    for k in range(max_iter):
        zeta = zeta0 * gamma**k
        S_R, S_C = hard_threshold(Y_R - X_R, zeta), hard_threshold(Y_C - X_C, zeta)
        R = X_R + step_R * np.where(seen_R, Y_R - X_R - S_R, 0)
        C = X_C + step_C * np.where(seen_C, Y_C - X_C - S_C, 0)
        joined = union_sum(R[:, J], C[I], seen_R[:, J], seen_C[I], step_R, step_C, X_R[:, J])
        W, s, Vt = np.linalg.svd(joined, full_matrices=False)
        W, s, Vt = W[:, :rank], s[:rank], Vt[:rank]
        U = (W * s) @ Vt
        R[:, J], C[I] = U, U
        X_R, X_C = W @ (W.T @ R), (C @ Vt.T) @ Vt
        if callback is not None:
            callback()
        if tol > 0:
            error = ((S_R + X_R - Y_R)[seen_R] ** 2).sum() + ((S_C + X_C - Y_C)[once] ** 2).sum()
            if error <= tol * total:
                break
    # X = C U^+ R
    return LowRankMatrix(X_C @ (Vt.T / s), (W.T @ X_R).T)
