"""Soft thresholding of singular values that computes only those above the threshold, for packages that compute all.

At d = 3000 tensorly and qolmat's RpcaPcp spend hours in full SVDs of matrices of which few singular values survive. With
these exchanged for partial ones their iterates are the same to rounding, and where they end can be seen in half an hour.
Their seconds are then not their own, but fewer.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import svds

_MORE = 10  # singular values beyond those that the last matrix had above the threshold
_MOST = 0.1  # of all singular values, from which the full SVD is as fast


class Shrinkage:
    """``U max(s - threshold, 0) V^T`` of one matrix after another, each much like the one before."""

    def __init__(self) -> None:
        self._rank: int | None = None  # of the last result

    def __call__(self, X: np.ndarray, threshold: float) -> np.ndarray:
        """The result for one matrix."""
        X = np.asarray(X)
        U, s, Vt = self._svd(X, threshold)
        kept = s > threshold
        self._rank = int(np.count_nonzero(kept))
        return (U[:, kept] * (s[kept] - threshold)) @ Vt[kept]

    def _svd(self, X: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        size = min(X.shape)
        if self._rank is not None and X.any():
            start = np.random.default_rng(0).standard_normal(size)
            wanted = self._rank + _MORE
            while wanted <= _MOST * size:
                found = svds(X, k=wanted, v0=start)
                if found[1].min() <= threshold:  # so the others are below it, too
                    return found
                wanted *= 2
        return np.linalg.svd(X, full_matrices=False)


def exchange_tensorly() -> None:
    """In this process, let tensorly's robust PCA compute partial SVDs."""
    from tensorly.decomposition import robust_decomposition

    robust_decomposition.svd_thresholding = Shrinkage()


def exchange_qolmat() -> None:
    """In this process, let qolmat's RpcaPcp compute partial SVDs, and leave out two more full ones of its last check."""
    from qolmat.imputations.rpca import rpca_utils
    from qolmat.imputations.rpca.rpca_pcp import RpcaPcp

    rpca_utils.svd_thresholding = Shrinkage()
    RpcaPcp._check_cost_function_minimized = lambda *_: None
