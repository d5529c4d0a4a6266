"""Drop what is far from the medians of rows and columns, and complete the rest by shrunken singular values.

After Mazumder, Hastie and Tibshirani (2010): fill in what is missing from the last fit, shrink the singular values, repeat,
with less and less shrinkage. How much is chosen on a tenth of the entries.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import eigh

from bench.robust_bayes import medians

FAR = 3.0  # standard deviations, estimated by the median absolute deviation
STEP, STEPS, PATIENCE = 0.7, 25, 2  # of the path: each time so much less, so often, and worse so often
ROUNDS, STILL = 100, 1e-3


def after_dropping(M: np.ndarray, seed: int = 0) -> np.ndarray:
    """Predict all of `M` (n1, n2), NaN where nothing was observed."""
    base = medians(M)
    rest = M - base
    kept = np.abs(rest) <= FAR * 1.4826 * np.nanmedian(np.abs(rest))  # False for NaN
    held = kept & (np.random.default_rng(seed).random(M.shape) < 0.1)
    errors: list[float] = []
    for X in _path(rest, kept & ~held):
        errors.append(float(np.mean((X - rest)[held] ** 2)))
        best = int(np.argmin(errors))
        if len(errors) > best + PATIENCE:
            break
    return base + next(X for k, X in enumerate(_path(rest, kept)) if k == best)


def _path(rest: np.ndarray, kept: np.ndarray) -> Iterator[np.ndarray]:
    """Fits to what is `kept`, with falling thresholds for the singular values."""
    X, known = np.zeros(rest.shape), np.where(kept, rest, 0.0)
    threshold = float(np.linalg.norm(known, 2))
    for _ in range(STEPS):
        threshold *= STEP
        for _ in range(ROUNDS):
            before, X = X, _shrunk(np.where(kept, rest, X), threshold)
            if np.linalg.norm(X - before) <= STILL * np.linalg.norm(X):
                break
        yield X


def _shrunk(Z: np.ndarray, threshold: float) -> np.ndarray:
    """All singular values lowered by `threshold`, from the eigenvectors of the smaller Gram matrix."""
    if Z.shape[0] < Z.shape[1]:
        return _shrunk(Z.T, threshold).T
    squares, V = eigh(Z.T @ Z, subset_by_value=(threshold**2, np.inf))
    return (Z @ V * (1 - threshold / np.sqrt(squares))) @ V.T
