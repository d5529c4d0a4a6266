"""A group of the core's iterations as one call: `plain.loop.PlainLoop` over again, compiled as a whole.

Factors are transposed, (k, m) and (k, n): rows are what loops run along. `iterate` is written once and runs in two ways:
compiled, in one thread, without coming back to Python; or, where the intersection is so large that several threads pay, as
Python that calls the compiled parts and hands the pieces of the large ones to all cores. Pieces depend on the data alone and
are added up in their order, so the number of threads does not change a bit.
"""

# Numba looks at the age of this file alone: after a change of `entries`, touch it, or what was compiled before is used.
# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any

from numba import njit
from numba.extending import overload

from . import core_kernels
from .entries import OPTIONS, WITHIN
from .small_kernels import combine, copy, inner, orthonormal, small_svd, turn_between
from .threads import run

_INSIDE: Any = {name: option for name, option in WITHIN.items() if name != "cache"}


def split_rows(indptr, index, value, weight, edges, first, last, left, QT, used, zeta, S, G, Z, sums):
    """`core_kernels.threshold`; of all pieces, on all cores."""
    there, rest = (indptr, index, value, weight, edges), (left, QT, used, zeta, S, G, Z, sums)
    run(core_kernels.threshold, [(*there, p, p + 1, *rest) for p in range(first, last)])


def add_product(indptr, index, edges, first, last, G, XT, Z):
    """`core_kernels.mul`; of all pieces, on all cores."""
    run(core_kernels.mul, [(indptr, index, edges, p, p + 1, G, XT, Z) for p in range(first, last)])


def back_product(indptr, index, edges, first, last, G, PT, parts):
    """`core_kernels.rmul`; of all pieces, on all cores."""
    run(core_kernels.rmul, [(indptr, index, edges, p, p + 1, G, PT, parts) for p in range(first, last)])


def back_product_full(indptr, index, edges, first, last, G, PT, parts):
    """`core_kernels.rmul_full`; of all pieces, on all cores."""
    run(core_kernels.rmul_full, [(indptr, index, edges, p, p + 1, G, PT, parts) for p in range(first, last)])


# In compiled code these are the kernels themselves, in one call for all pieces.


@overload(split_rows, jit_options=_INSIDE)
def _split_rows(indptr, index, value, weight, edges, first, last, left, QT, used, zeta, S, G, Z, sums):
    return core_kernels.threshold.py_func


@overload(add_product, jit_options=_INSIDE)
def _add_product(indptr, index, edges, first, last, G, XT, Z):
    return core_kernels.mul.py_func


@overload(back_product, jit_options=_INSIDE)
def _back_product(indptr, index, edges, first, last, G, PT, parts):
    return core_kernels.rmul.py_func


@overload(back_product_full, jit_options=_INSIDE)
def _back_product_full(indptr, index, edges, first, last, G, PT, parts):
    return core_kernels.rmul_full.py_func


@njit(**OPTIONS)
def keep(left, s, QT, old_left, old_s, old_QT):
    """Copy the factors of an iterate."""
    copy(left, old_left)
    copy(QT, old_QT)
    for q in range(s.shape[0]):
        old_s[q] = s[q]


def iterate(entries, full, sample, factors, before, work, small, steps, zetas, limits, svd_tol, held, numbers, trail):
    """`PlainLoop.advance`.

    Parameters
    ----------
    entries : (indptr, index, value, weight, edges)
    full : True or None
        Whether products take the zeros of a row along.
    sample : (i, j, y)
    factors : (PT (k, m), s (k,), QT (k, n), left (k, m))
        U = left^T QT, here and at the end.
    before : (left, s, QT)
        Memory for those of the iteration before.
    work : (Z (k, m), C (k, n), G, S, parts (n_pieces, k, n), sums (n_pieces, 2), sizes)
        (U + G) Q transposed, inliers and outliers of the last iterate; memory.
    small : (R, M, U, V), each float64 (k, k)
    steps, zetas : arrays (n,)
        Of each iteration: steps of the SVD, and the threshold after it if the floor does not hold it up.
    limits : (rank, floor)
    svd_tol : float or None
        What is None here and below is not compiled.
    held : float64 array (2,)
        The threshold and the number of outliers of the last iterate.
    numbers : float64 array (n, 5 + k)
        As in `Group`.
    trail : (float array (n, r, m), float array (n, r, n)) or None
        For the factors after each iteration.
    """
    indptr, index, value, weight, edges = entries
    n_pieces = edges.shape[0] - 1
    PT, s, QT, left = factors
    Z, C, G, S, parts, sums, sizes = work
    R, M, U, V = small
    rank, floor = limits
    for k in range(steps.shape[0]):
        keep(left, s, QT, before[0], before[1], before[2])
        last = steps[k] - 1
        for step in range(steps[k]):
            if step > 0:
                inner(C, before[2], M)
                combine(M, before[0], Z, rank)
                add_product(indptr, index, edges, 0, n_pieces, G, C, Z)
            orthonormal(Z, R)
            inner(Z, before[0], M)
            combine(M, before[2], C, rank)
            if full is None:
                back_product(indptr, index, edges, 0, n_pieces, G, Z, parts)
            else:
                back_product_full(indptr, index, edges, 0, n_pieces, G, Z, parts)
            core_kernels.add_parts(parts, C)
            orthonormal(C, R)
            if svd_tol is not None or step == last:
                small_svd(R, U, s, V)
                if svd_tol is not None:
                    copy(PT, left)
                combine(U, Z, PT, PT.shape[0])
                combine(V, C, QT, PT.shape[0])
                if svd_tol is not None:
                    if step > 0 and turn_between(PT, left, rank) <= svd_tol:
                        break
                    copy(QT, C)
        core_kernels.scale(PT, s, rank, left)
        change = core_kernels.change(left, QT, before[0], before[2], before[1])
        zeta = core_kernels.floor_threshold(sample[0], sample[1], sample[2], left, QT, rank, zetas[k], floor, sizes)
        split_rows(indptr, index, value, weight, edges, 0, n_pieces, left, QT, rank, zeta, S, G, Z, sums)
        core_kernels.record(numbers[k], held, sums, change, zeta, s)
        if trail is not None:
            copy(PT[:rank], trail[0][k])
            copy(QT[:rank], trail[1][k])


iterate_compiled = njit(**OPTIONS)(iterate)
