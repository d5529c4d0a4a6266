"""A group of the core's iterations as one call: `plain.loop.PlainLoop` over again, compiled as a whole.

Factors are transposed, (k, m) and (k, n): rows are what loops run along. One thread does everything without coming back
to Python. Where the intersection is so large that several threads pay, the same function comes back where there are pieces
of work for all cores, and does these pieces, too. Pieces depend on the data alone and are added up in their order, so the
number of threads does not change a bit.
"""

# The compiler reads types from arguments; annotations would not help it.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from .core_kernels import add_parts, add_product, back_product, change, floor_threshold, lay_out, split_rows
from .functions import compact
from .parts import kernel
from .small_kernels import combine, copy, inner, orthonormal, small_svd, turn_between

# What to do: all iterations, as far as the next pieces, or some pieces of one of three kinds
ALL, ON, PRODUCT, BACK, SPLIT = range(5)
_BEGIN, _AGAIN, _ROWS, _COLUMNS, _CUT, _END = range(6)  # stages of an iteration


@kernel
def iterate(
    task, first, last, at, entries, full, sample, factors, before, work, small, steps, zetas, limits, held, numbers, trail
) -> int:
    """`PlainLoop.advance`.

    Parameters
    ----------
    task : ALL, ON, PRODUCT, BACK or SPLIT
        One of the last three for the pieces `first` to `last`.
    at : int64 array (3,)
        The iteration, the step of its SVD and the stage that come next; 0 at first.
    entries : (indptr, index, value, weight, edges)
    full : bool
        Whether products take the zeros of a row along.
    sample : (i, j, y)
    factors : (PT (k, m), s (k,), QT (k, n), left (k, m))
        U = left^T QT, here and at the end.
    before : (left, s, QT)
        Memory for those of the iteration before.
    work : (Z (k, m), C (k, n), G, S, parts (n_pieces, k, n), sums (n_pieces, 2), sizes, rest, lines (n, width))
        (U + G) Q transposed, inliers and outliers of the last iterate; memory, `lines` full of zeros.
    small : (R, M, U, V, T), each float64 (k, k)
    steps, zetas : arrays (n,)
        Of each iteration: steps of the SVD, and the threshold after it if the floor does not hold it up.
    limits : (rank, floor, svd_tol)
    held : float64 array (3,)
        The threshold and the number of outliers of the last iterate, and the change to the next.
    numbers : float64 array (n, 5 + k)
        As in `Group`.
    trail : (float array (n, r, m), float array (n, r, n))
        For the factors after each iteration; empty if they are not asked for.

    Returns
    -------
    int
        What has to be done with all pieces before the next call; 0 at the end.
    """
    compact()
    indptr, index, value, weight, edges = entries
    n_pieces = edges.shape[0] - 1
    PT, s, QT, left = factors
    old_left, old_s, old_QT = before
    Z, C, G, S, parts, sums, sizes, rest, lines = work
    R, M, U, V, T = small
    rank, floor, svd_tol = limits
    K = s.shape[0]
    k, step, stage = at[0], at[1], at[2]
    pieces = task if task > ON else 0
    while pieces > 0 or k < steps.shape[0]:
        if pieces > 0:
            if task == ON:
                at[0], at[1], at[2] = k, step, stage
                return pieces
            if task == ALL:
                first, last = 0, n_pieces
            if pieces == PRODUCT:
                add_product(indptr, index, edges, first, last, G, lines, Z)
            elif pieces == BACK:
                back_product(indptr, index, edges, first, last, G, Z, parts, full)
            else:
                split_rows(indptr, index, value, weight, edges, first, last, left, lines, rank, held[0], S, G, Z, sums)
            if task != ALL:
                return 0
            pieces = 0
        elif stage == _BEGIN:
            copy(left, old_left)
            copy(QT, old_QT)
            for q in range(K):
                old_s[q] = s[q]
            step = 0
            stage = _ROWS if steps[k] > 0 else _CUT
        elif stage == _AGAIN:
            inner(C, old_QT, M)
            combine(M, old_left, Z, rank, T[0])
            lay_out(C, lines)
            stage, pieces = _ROWS, PRODUCT
        elif stage == _ROWS:
            orthonormal(Z, R, T[0])
            inner(Z, old_left, M)
            combine(M, old_QT, C, rank, T[0])
            stage, pieces = _COLUMNS, BACK
        elif stage == _COLUMNS:
            add_parts(parts, C)
            orthonormal(C, R, T[0])
            step += 1
            stage = _CUT if step == steps[k] else _AGAIN
            if svd_tol > 0 or stage == _CUT:
                small_svd(R, U, s, V)
                if svd_tol > 0:
                    copy(PT, left)
                combine(U, Z, PT, K, T[0])
                combine(V, C, QT, K, T[0])
                if svd_tol > 0:
                    copy(QT, C)
                    if step > 1 and turn_between(PT, left, rank, rest, T[0]) <= svd_tol:
                        stage = _CUT
        elif stage == _CUT:
            for q in range(K):
                s[q] = s[q] if q < rank else 0.0
                for t in range(left.shape[1]):
                    left[q, t] = s[q] * PT[q, t]
            numbers[k, 1], numbers[k, 2] = held[1], held[0]
            numbers[k, 3] = change(left, QT, old_left, old_QT, old_s, M, T, rest)
            lay_out(QT, lines)
            held[0] = floor_threshold(sample[0], sample[1], sample[2], left, lines, rank, zetas[k], floor, sizes)
            stage, pieces = _END, SPLIT
        else:
            numbers[k, 0], held[1] = 0.0, 0.0
            for p in range(n_pieces):
                numbers[k, 0] += sums[p, 0]
                held[1] += sums[p, 1]
            numbers[k, 4] = held[0]
            for q in range(K):
                numbers[k, 5 + q] = s[q]
            if trail[0].shape[0] > 0:
                copy(PT, trail[0][k])
                copy(QT, trail[1][k])
            k += 1
            stage = _BEGIN
    return 0
