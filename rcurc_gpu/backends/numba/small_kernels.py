"""Small linear algebra of the core's loop that Numba compiles for the CPU: a few long vectors, and matrices of their size.

Vectors are rows: a factor (n, k) of the plain code is an array (k, n) here, and loops run along it. These are parts of
`loop_kernel.iterate`. What NumPy would write shorter, as a slice or an array operation, takes Numba far longer to compile.
"""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False

from __future__ import annotations

import math

from .entries import products, residual
from .functions import compact, not_inlined
from .parts import part

_LEAST = 1e-290  # squared norms below it have lost their digits
_ORTHOGONAL = 1e-15  # cosine that counts as 0
_MOST_SWEEPS = 30  # of rotations; 2 to 8 are usual, more only where numbers are not finite


@part
def orthonormal(A, R, factor):
    """Make the rows of A (k, n), k <= n, orthonormal: the QR factorisation by reflections, signs as LAPACK's.

    The rows were ``R.T @ A``, R upper triangular. Rows that depend on others, or are 0, do no harm. `factor` (k,) is memory.
    """
    compact()
    K = A.shape[0]
    for k in range(K):
        first, v = A[k, k] * 1.0, A[k, k + 1 :]  # slices: loops that begin at 0 need no check for a negative place
        for j in range(K):
            R[j, k] = A[k, j] if j < k else 0.0
        R[k, k] = first
        square = dot(v, v)
        factor[k] = 0.0
        if not square < _LEAST:  # a NaN goes on as one
            length = math.sqrt(first * first + square)
            R[k, k] = -length if first > 0 else length
            factor[k] = (R[k, k] - first) / R[k, k]
            multiply(v, 1 / (first - R[k, k]))
            _reflect(A, k, factor[k])
    for k in range(K - 1, -1, -1):
        for j in range(k + 1, K):
            A[j, k] = 0
        _reflect(A, k, factor[k])
        multiply(A[k, k + 1 :], -factor[k])
        for j in range(k):
            A[k, j] = 0
        A[k, k] = 1 - factor[k]


@part
def _reflect(A, k, factor):
    """Take factor (v . w) v from each row w below row k, from place k on; v is row k, but begins with a 1."""
    compact()
    v = A[k, k + 1 :]
    for j in range(k + 1, A.shape[0]):
        w = A[j, k + 1 :]
        along = factor * (A[j, k] + dot(v, w))
        subtract(w, along, v)
        A[j, k] -= along


@part
def small_svd(T, U, s, V):
    """Singular values of T.T (k, k), descending, with the left vectors in the rows of U and the right ones in those of V.

    Rotations of pairs of columns (Jacobi): next to nothing where T is nearly diagonal, as it is from iteration to iteration.
    """
    compact()
    K = T.shape[0]
    for k in range(K):
        for j in range(K):
            U[k, j] = T[k, j]
            V[k, j] = 1.0 if j == k else 0.0
    for _ in range(_MOST_SWEEPS):
        turned = False
        for p in range(K - 1):
            for q in range(p + 1, K):
                aa, bb, ab = dot(U[p], U[p]), dot(U[q], U[q]), dot(U[p], U[q])
                if abs(ab) > _ORTHOGONAL * math.sqrt(aa * bb):
                    slope = (bb - aa) / (2 * ab)
                    tangent = (-1.0 if slope < 0 else 1.0) / (abs(slope) + math.sqrt(1 + slope * slope))
                    cosine = 1 / math.sqrt(1 + tangent * tangent)
                    _turn(U[p], U[q], cosine, cosine * tangent)
                    _turn(V[p], V[q], cosine, cosine * tangent)
                    turned = True
        if not turned:
            break
    for k in range(K):
        s[k] = math.sqrt(dot(U[k], U[k]))
    for k in range(K):  # few: the simplest way to sort
        best = k
        for j in range(k + 1, K):
            if s[j] > s[best]:
                best = j
        if best != k:
            s[k], s[best] = s[best], s[k]
            _turn(U[k], U[best], 0.0, 1.0)
            _turn(V[k], V[best], 0.0, 1.0)
        if s[k] * s[k] < _LEAST:
            _complete(U, k)
        else:
            multiply(U[k], 1 / s[k])


@part
def _turn(a, b, cosine, sine):
    """Turn two vectors in their plane."""
    compact()
    for i in range(a.shape[0]):
        x, y = a[i], b[i]
        a[i] = cosine * x - sine * y
        b[i] = sine * x + cosine * y


@part
def _complete(U, k):
    """Let row k be a unit vector orthogonal to the orthonormal rows before it."""
    compact()
    K = U.shape[1]
    place, least = 0, K * 1.0
    for i in range(K):  # the axis that has least in common with them
        common = 0.0
        for j in range(k):
            common += U[j, i] * U[j, i]
        if common < least:
            place, least = i, common
    for i in range(K):
        U[k, i] = 1.0 if i == place else 0.0
    for _ in range(2):  # once more for the rounding of the first time
        for j in range(k):
            subtract(U[k], dot(U[j], U[k]), U[j])
    multiply(U[k], 1 / math.sqrt(dot(U[k], U[k])))


@part
def dot(a, b):
    """The inner product, in float64."""
    not_inlined()
    total = 0.0
    for i in range(a.shape[0]):
        total += (1.0 * a[i]) * b[i]
    return total


@part
def subtract(a, by, b):
    """a -= by * b"""
    not_inlined()
    factor = a.dtype.type(by)
    for i in range(a.shape[0]):
        a[i] -= factor * b[i]


@part
def multiply(v, by):
    """v *= by"""
    not_inlined()
    factor = v.dtype.type(by)
    for t in range(v.shape[0]):
        v[t] *= factor


@part
def copy(A, out):
    """out = A, of two axes, as many rows as `out` has."""
    compact()
    for p in range(out.shape[0]):
        source, target = A[p], out[p]
        for t in range(target.shape[0]):
            target[t] = source[t]


@part
def inner(A, B, out):
    """out[p, q] = A[p] . B[q]"""
    compact()
    for p in range(A.shape[0]):
        products(B, A[p], out[p], B.shape[1], B.shape[0])


@part
def combine(M, A, out, used, memory):
    """out[p] = sum_q M[p, q] A[q] over the leading `used` rows of A; `memory` has room for a row of M."""
    not_inlined()
    for p in range(M.shape[0]):
        target = out[p]
        for q in range(used):
            memory[q] = -M[p, q]
        for t in range(target.shape[0]):
            target[t] = 0
        residual(A, target, memory, target, target.shape[0], used)


@part
def turn_between(new, old, rank, rest, part):
    """The largest entry of what the leading rows of `new` have outside of the span of those of `old`, both orthonormal.

    `rest`, of the length of a row, and `part`, of a number for each, are memory.
    """
    compact()
    largest = 0.0
    for p in range(rank):
        products(old, new[p], part, new.shape[1], rank)
        residual(old, new[p], part, rest, new.shape[1], rank)
        for t in range(new.shape[1]):
            largest = max(largest, abs(rest[t]))
    return largest
