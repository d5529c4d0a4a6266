"""`plain.robust.robust_fit`, compiled."""

# Numba reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit

from ..plain import robust as plain
from .entries import OPTIONS, WITHIN
from .threads import THREADS, fixed, run

_RIDGE, _SHRINK = plain.RIDGE, np.float32(plain.SHRINK)


def robust_fit(
    values: np.ndarray,
    design: np.ndarray,
    noise: float,
    start: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    group: np.ndarray | None = None,
    widest: float = plain.WIDEST,
) -> tuple[np.ndarray, np.ndarray]:
    """`robust.robust_fit`."""
    (n, m), k = values.shape, design.shape[1]
    found, agree = np.empty((n, k), dtype=np.float32), np.empty(n, dtype=np.float32)
    own = fixed(np.ones((1, m), dtype=np.float32) if weights is None else weights.astype(np.float32))
    which = fixed(np.zeros(n, dtype=np.int32) if group is None else group.astype(np.int32))
    begin = fixed(np.empty((0, k), dtype=np.float32) if start is None else start.astype(np.float32))
    values, columns = fixed(values), fixed(design.T.astype(np.float32))
    scales: tuple[Any, ...] = (np.float32(widest), np.float32(plain.AGREES * noise))
    parts = [slice(*pair) for pair in pairwise(np.linspace(0, n, min(4 * THREADS, max(n, 1)) + 1).astype(int).tolist())]
    run(
        _fit,
        [
            (values[p], columns, begin if start is None else begin[p], own, which[p], *scales, found[p], agree[p])
            for p in parts
        ],
    )
    return found, agree


@njit(**OPTIONS)
def _fit(values, columns, start, own, group, widest, last, found, agree):
    """Rows one after the other; the inner loops run along a row."""
    m, k = values.shape[1], columns.shape[0]
    y, w, res = np.empty(m, np.float32), np.empty(m, np.float32), np.empty(m, np.float32)
    gram, right, c = np.empty((k, k)), np.empty(k), np.empty(k, np.float32)
    for u in range(values.shape[0]):
        weight = own[group[u]]
        for t in range(m):
            y[t] = values[u, t]
        if len(start) > 0:
            c[:] = start[u]
        else:
            w[:] = weight
            _solve(w, y, columns, gram, right, c)
        scale = widest
        while True:
            scale = max(scale, last)
            _residual(y, columns, c, res)
            by = np.float32(1) / (scale * scale)
            for t in range(m):
                z = np.float32(1) + res[t] * res[t] * by
                w[t] = weight[t] / (z * z)
            _solve(w, y, columns, gram, right, c)
            if scale == last:
                break
            scale *= _SHRINK
        _residual(y, columns, c, res)
        count = 0
        for t in range(m):
            count += np.abs(res[t]) < last
        agree[u] = np.float32(count) / np.float32(m)
        found[u] = c


@njit(**WITHIN)
def _residual(y, columns, c, res):
    res[:] = y
    for q in range(len(c)):
        column, by = columns[q], c[q]
        for t in range(len(y)):
            res[t] -= by * column[t]


@njit(**WITHIN)
def _solve(w, y, columns, gram, right, c):
    """Weighted least squares by Cholesky's method; `gram` and `right` are overwritten."""
    k = len(c)
    for q in range(k):
        own = columns[q]
        total = np.float32(0)
        for t in range(len(y)):
            total += w[t] * y[t] * own[t]
        right[q] = total
        for p in range(q + 1):
            other = columns[p]
            total = np.float32(0)
            for t in range(len(y)):
                total += w[t] * own[t] * other[t]
            gram[q, p] = total
    for i in range(k):
        size = gram[i, i]
        for j in range(i):
            for p in range(j):
                gram[i, j] -= gram[i, p] * gram[j, p]
            gram[i, j] /= gram[j, j]
            gram[i, i] -= gram[i, j] * gram[i, j]
            right[i] -= gram[i, j] * right[j]
        gram[i, i] = np.sqrt(max(gram[i, i], _RIDGE * size + 1e-12))
        right[i] /= gram[i, i]
    for i in range(k - 1, -1, -1):
        for p in range(i + 1, k):
            right[i] -= gram[p, i] * right[p]
        right[i] /= gram[i, i]
        c[i] = right[i]
