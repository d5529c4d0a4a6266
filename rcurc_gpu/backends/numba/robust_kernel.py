"""`plain.robust.robust_fit`, compiled."""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ..plain import robust as plain
from .parts import kernel, part
from .threads import THREADS, fixed, run

_PIECE = 32  # numbers that loops take at once; what is left over of a row takes as long, one by one
_RIDGE = plain.RIDGE


def robust_fit(
    values: np.ndarray,
    design: np.ndarray,
    noise: float,
    start: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    group: np.ndarray | None = None,
    widest: float = plain.WIDEST,
    shrink: float = plain.SHRINK,
) -> tuple[np.ndarray, np.ndarray]:
    """`robust.robust_fit`."""
    (n, m), k = values.shape, design.shape[1]
    found, agree = np.empty((n, k), dtype=np.float32), np.empty(n, dtype=np.float32)
    beyond = ((0, 0), (0, -m % _PIECE))  # entries without weight, so that all rows are whole vectors
    own = fixed(np.pad(np.ones((1, m), dtype=np.float32) if weights is None else weights.astype(np.float32), beyond))
    which = fixed(np.zeros(n, dtype=np.int32) if group is None else group.astype(np.int32))
    begin = fixed(np.empty((0, k), dtype=np.float32) if start is None else start.astype(np.float32))
    values, columns = fixed(values), fixed(np.pad(design.T.astype(np.float32), beyond))
    scales: tuple[Any, ...] = (np.float32(widest), np.float32(plain.AGREES * noise), np.float32(shrink))
    parts = [slice(*pair) for pair in pairwise(np.linspace(0, n, min(4 * THREADS, max(n, 1)) + 1).astype(int).tolist())]
    run(
        _fit,
        [
            (values[p], columns, begin if start is None else begin[p], own, which[p], *scales, found[p], agree[p])
            for p in parts
        ],
    )
    return found, agree


@kernel
def _fit(values, columns, start, own, group, widest, last, shrink, found, agree):
    """Rows one after the other; the inner loops run along a row."""
    m, (k, whole) = values.shape[1], columns.shape
    y, w, res = np.zeros(whole, np.float32), np.empty(whole, np.float32), np.empty(whole, np.float32)
    gram, right, c = np.empty((k, k + 3)), np.empty(k), np.empty(k, np.float32)
    for u in range(values.shape[0]):
        weight = own[group[u]]
        for t in range(m):
            y[t] = values[u, t]
        if start.shape[0] > 0:
            for q in range(k):
                c[q] = start[u, q]
        else:
            for t in range(whole):
                w[t] = weight[t]
            _solve(w, y, columns, res, gram, right, c)
        scale = widest
        while True:
            scale = max(scale, last)
            by = np.float32(1) / (scale * scale)
            if k == 1:
                c[0] = _single(weight, y, columns[0], c[0], by)
            else:
                _residual(y, columns, c, res)
                for t in range(whole):
                    z = np.float32(1) + res[t] * res[t] * by
                    w[t] = weight[t] / (z * z)
                _solve(w, y, columns, res, gram, right, c)
            if scale == last:
                break
            scale *= shrink
        _residual(y, columns, c, res)
        count = 0
        for t in range(m):
            count += np.abs(res[t]) < last
        agree[u] = np.float32(count) / np.float32(m)
        for q in range(k):
            found[u, q] = c[q]


@part
def _single(weight, y, column, c, by):
    """A step of a fit by one column, in one pass."""
    right, gram = np.float32(0), np.float32(0)
    for t in range(len(y)):
        left = y[t] - c * column[t]
        z = np.float32(1) + left * left * by
        own = weight[t] / (z * z) * column[t]
        right += own * y[t]
        gram += own * column[t]
    return right / np.float32(max(gram * (np.float32(1) + _RIDGE), np.float32(1e-6)))


@part
def _residual(y, columns, c, res):
    for t in range(len(y)):
        res[t] = y[t]
    for q in range(len(c)):
        column, by = columns[q], c[q]
        for t in range(len(y)):
            res[t] -= by * column[t]


@part
def _solve(w, y, columns, own, gram, right, c):
    """Weighted least squares by Cholesky's method; `own`, `gram` and `right` are overwritten."""
    k = len(c)
    for q in range(k):
        column = columns[q]
        total = np.float32(0)
        for t in range(len(y)):
            own[t] = w[t] * column[t]
            total += own[t] * y[t]
        right[q] = total
        for p in range(0, q + 1, 4):  # four sums at once: a row is short, and the end of a sum takes as long as the sum
            a, b, c_, d = columns[p], columns[min(p + 1, q)], columns[min(p + 2, q)], columns[min(p + 3, q)]
            s0, s1, s2, s3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for t in range(len(y)):
                s0 += own[t] * a[t]
                s1 += own[t] * b[t]
                s2 += own[t] * c_[t]
                s3 += own[t] * d[t]
            gram[q, p], gram[q, p + 1], gram[q, p + 2], gram[q, p + 3] = s0, s1, s2, s3
    for i in range(k):  # sums stay in registers, and what is kept of the diagonal divides: both for speed
        size = left = gram[i, i]
        rest = right[i]
        for j in range(i):
            entry = gram[i, j]
            for p in range(j):
                entry -= gram[i, p] * gram[j, p]
            entry *= gram[j, j]
            gram[i, j] = entry
            left -= entry * entry
            rest -= entry * right[j]
        gram[i, i] = 1 / np.sqrt(max(left, _RIDGE * size + 1e-12))
        right[i] = rest * gram[i, i]
    for i in range(k - 1, -1, -1):
        rest = right[i]
        for p in range(i + 1, k):
            rest -= gram[p, i] * right[p]
        right[i] = rest * gram[i, i]
        c[i] = right[i]
