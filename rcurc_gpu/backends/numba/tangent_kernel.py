"""The sums of `plain.tangent`, compiled for the CPU: one unit after the other."""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from .parts import kernel


@kernel
def weigh(indptr, index, value, fit, left, right, scale, first, stop, weight, gram, gradient):
    """`Side.weigh` of the units from `first` to `stop`."""
    r = left.shape[1]
    for i in range(first, stop):
        for t in range(indptr[i], indptr[i + 1]):
            j = index[t]
            e = value[t]
            for q in range(r):
                e -= left[i, q] * right[j, q]
            x = 1 + (e / scale) * (e / scale)
            w = fit[t] / (x * x)
            weight[t] = w
            for q in range(r):
                v = w * right[j, q]
                gradient[i, q] += v * e
                for p in range(q + 1):
                    gram[i, q, p] += v * right[j, p]
        for q in range(r):
            for p in range(q):
                gram[i, p, q] = gram[i, q, p]


@kernel
def couple(indptr, index, weight, left, right, X, first, stop, out):
    """`Side.couple` of the units from `first` to `stop`."""
    r = left.shape[1]
    for i in range(first, stop):
        for t in range(indptr[i], indptr[i + 1]):
            j = index[t]
            along = 0.0
            for q in range(r):
                along += left[i, q] * X[j, q]
            along *= weight[t]
            for q in range(r):
                out[i, q] += along * right[j, q]


@kernel
def clipped(indptr, index, value, fit, X, most, first, stop, out):
    """`Side.clipped` of the units from `first` to `stop`."""
    k = X.shape[1]
    for i in range(first, stop):
        for t in range(indptr[i], indptr[i + 1]):
            y = fit[t] * min(max(value[t], -most), most)
            for q in range(k):
                out[i, q] += y * X[index[t], q]
