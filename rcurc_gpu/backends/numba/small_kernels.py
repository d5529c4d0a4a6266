"""Small linear algebra of the core's loop that Numba compiles for the CPU: a few long vectors, and matrices of their size.

Vectors are rows: a factor (n, k) of the plain code is an array (k, n) here, and loops run along it.
"""

# Numba looks at the age of this file alone: after a change of `entries`, touch it, or what was compiled before is used.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

import numpy as np
from numba import njit

from .entries import OPTIONS, WITHIN, products

_LEAST = 1e-290  # squared norms below it have lost their digits
_ORTHOGONAL = 1e-15  # cosine that counts as 0
_MOST_SWEEPS = 30  # of rotations; 2 to 8 are usual, more only where numbers are not finite


@njit(**OPTIONS)
def orthonormal(A, R):
    """Make the rows of A (k, n), k <= n, orthonormal: the QR factorisation by reflections, signs as LAPACK's.

    The rows were ``R.T @ A``, R upper triangular. Rows that depend on others, or are 0, do no harm.
    """
    K = A.shape[0]
    factor = np.zeros(K)
    R[:] = 0
    for k in range(K):
        first, v = np.float64(A[k, k]), A[k, k + 1 :]  # slices: loops that begin at 0 need no check for a negative place
        for j in range(k):
            R[j, k] = A[k, j]
        R[k, k] = first
        square = _dot(v, v)
        if not square < _LEAST:  # a NaN goes on as one
            length = np.sqrt(first * first + square)
            R[k, k] = -length if first > 0 else length
            factor[k] = (R[k, k] - first) / R[k, k]
            _multiply(v, 1 / (first - R[k, k]))
            for j in range(k + 1, K):
                A[j, k] = _reflect(v, A[j, k], A[j, k + 1 :], factor[k])
    for k in range(K - 1, -1, -1):
        v = A[k, k + 1 :]
        for j in range(k + 1, K):
            A[j, k] = _reflect(v, 0.0, A[j, k + 1 :], factor[k])
        _multiply(v, -factor[k])
        A[k, :k] = 0
        A[k, k] = 1 - factor[k]


@njit(**WITHIN)
def _multiply(v, by):
    by = v.dtype.type(by)
    for t in range(v.shape[0]):
        v[t] *= by


@njit(**WITHIN)
def _reflect(v, first, w, factor):
    """(first, w) less factor (v . w) v, where v begins with a 1: what `first` becomes."""
    along = factor * (np.float64(first) + _dot(v, w))
    _subtract(w, along, v)
    return first - along


@njit(**OPTIONS)
def small_svd(T, U, s, V):
    """Singular values of T.T (k, k), descending, with the left vectors in the rows of U and the right ones in those of V.

    Rotations of pairs of columns (Jacobi): next to nothing where T is nearly diagonal, as it is from iteration to iteration.
    """
    K = T.shape[0]
    copy(T, U)
    V[:] = 0
    for k in range(K):
        V[k, k] = 1
    for _ in range(_MOST_SWEEPS):
        turned = False
        for p in range(K - 1):
            for q in range(p + 1, K):
                turned |= _rotate(U[p], U[q], V[p], V[q])
        if not turned:
            break
    for k in range(K):
        s[k] = np.sqrt(_dot(U[k], U[k]))
    for k in range(K):  # few: the simplest way to sort
        best = k
        for j in range(k + 1, K):
            if s[j] > s[best]:
                best = j
        if best != k:
            s[k], s[best] = s[best], s[k]
            for i in range(K):
                U[k, i], U[best, i] = U[best, i], U[k, i]
                V[k, i], V[best, i] = V[best, i], V[k, i]
        if s[k] * s[k] < _LEAST:
            _complete(U, k)
        else:
            _multiply(U[k], 1 / s[k])


@njit(**WITHIN)
def _rotate(a, b, v, w):
    """Turn the vectors a and b, and with them v and w, until a and b are orthogonal; whether there was anything to do."""
    aa = bb = ab = 0.0
    for i in range(a.shape[0]):
        aa += a[i] * a[i]
        bb += b[i] * b[i]
        ab += a[i] * b[i]
    if not abs(ab) > _ORTHOGONAL * np.sqrt(aa * bb):
        return False
    slope = (bb - aa) / (2 * ab)
    tangent = 1 / (abs(slope) + np.sqrt(1 + slope * slope))
    if slope < 0:
        tangent = -tangent
    cosine = 1 / np.sqrt(1 + tangent * tangent)
    sine = cosine * tangent
    for i in range(a.shape[0]):
        a[i], b[i] = cosine * a[i] - sine * b[i], sine * a[i] + cosine * b[i]
        v[i], w[i] = cosine * v[i] - sine * w[i], sine * v[i] + cosine * w[i]
    return True


@njit(**WITHIN)
def _complete(U, k):
    """Let row k be a unit vector orthogonal to the orthonormal rows before it."""
    K = U.shape[1]
    place, least = 0, np.inf
    for i in range(K):  # the axis that has least in common with them
        common = 0.0
        for j in range(k):
            common += U[j, i] * U[j, i]
        if common < least:
            place, least = i, common
    U[k] = 0
    U[k, place] = 1
    for _ in range(2):  # once more for the rounding of the first time
        for j in range(k):
            _subtract(U[k], _dot(U[j], U[k]), U[j])
    _multiply(U[k], 1 / np.sqrt(_dot(U[k], U[k])))


@njit(**WITHIN)
def _dot(a, b):
    total = 0.0
    for i in range(a.shape[0]):
        total += np.float64(a[i]) * b[i]
    return total


@njit(**WITHIN)
def _subtract(a, by, b):
    by = a.dtype.type(by)
    for i in range(a.shape[0]):
        a[i] -= by * b[i]


@njit(**OPTIONS)
def copy(A, out):
    """out = A, of two axes. To write it like this takes Numba a second to compile, for the words of its errors."""
    for p in range(A.shape[0]):
        source, target = A[p], out[p]
        for t in range(source.shape[0]):
            target[t] = source[t]


@njit(**OPTIONS)
def inner(A, B, out):
    """out[p, q] = A[p] . B[q]"""
    for p in range(A.shape[0]):
        products(B, A[p], out[p], B.shape[1], B.shape[0])


@njit(**OPTIONS)
def combine(M, A, out, used):
    """out[p] = sum_q M[p, q] A[q] over the leading `used` rows of A."""
    n = A.shape[1]
    for p in range(M.shape[0]):
        target = out[p]
        for t in range(n):
            target[t] = 0
        for q in range(used):
            _subtract(target, -M[p, q], A[q])


@njit(**OPTIONS)
def turn_between(new, old, rank):
    """The largest entry of what the leading rows of `new` have outside of the span of those of `old`, both orthonormal."""
    largest = 0.0
    rest = np.empty(new.shape[1], new.dtype)
    part = np.empty(rank)
    for p in range(rank):
        products(old, new[p], part, new.shape[1], rank)
        for t in range(rest.shape[0]):
            rest[t] = new[p, t]
        for q in range(rank):
            _subtract(rest, part[q], old[q])
        for t in range(rest.shape[0]):
            largest = max(largest, abs(rest[t]))
    return largest
