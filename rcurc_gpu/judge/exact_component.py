"""Whether rejected observations agree exactly: on a further component, or on the recovered values with the other sign.

Signs need some hundred rejected entries to tell a component from outliers. Without noise the values say it with a dozen:
residuals of one component are products a_i b_j, so that those of two rows have the same ratio in all columns. Outliers at
random never have, and those of a faulty sensor have it for a reason that can be seen: they are all equal, or in proportion
to the recovered values (zeros for what is missing, another unit).
"""

from __future__ import annotations

import numpy as np

_ROWS = 16  # with the most rejected entries, and as many more at random, that are compared in pairs
FEWEST_EXACT = 8  # entries that agree; of a rank-1 matrix of 2 x 4 three ratios do so
_OFF = 2.0  # times the residuals of inliers (the largest tenth left out), that a residual may be off
_ROUNDING = 1e-7  # relative, at least
_NEAR = 10.0  # as _OFF, of a value with the other sign: rounding has tails, and nothing else is there
_FINE = 0.1  # relative accuracy of residuals, at least: ratios of coarser ones say nothing
_TRIVIAL = 1e-3  # relative difference of ratios that explain themselves, beyond rounding
_MOSTLY = 0.9  # share of one side of 0 that is rejected, and of what is rejected there that has the other sign
# Pairs of ratios that agree: times as many as when residuals change places (whole numbers agree by chance, and so do ratios
# that noise makes uncertain), how often that is tried, and how many more.
_BEYOND_CHANCE, _MIXED, _FEWEST_PAIRS = 3.0, 3, 3
_OFTEN = 0.25  # of how often entries of the component agree with others, from which an entry belongs to it


def agreeing_exactly(
    i: np.ndarray, j: np.ndarray, fitted: np.ndarray, residual: np.ndarray, rejected: np.ndarray, rng: np.random.Generator
) -> tuple[int, float, float]:
    """How many rejected entries agree on a component, their share where it is, and their median residual.

    Parameters
    ----------
    i, j : int64 arrays (n,)
        Rows and columns of the observations.
    fitted, residual : float64 arrays (n,)
    rejected : bool array (n,)
    rng : numpy.random.Generator

    Returns
    -------
    (int, float, float)
        Entries of a matrix of rank 1, beyond what chance gives; of the observations between their rows and columns, the
        share that is rejected; median of their absolute residuals.
    """
    none = 0, 0.0, 0.0
    unit = float(np.max(np.abs(residual[rejected]), initial=0.0))
    if np.count_nonzero(rejected) < FEWEST_EXACT or not 0 < unit < np.inf:
        return none
    fitted, residual = fitted / unit, residual / unit  # inverses of tiny numbers have no place
    inside = np.abs(residual[~rejected])
    off = _OFF * float(np.quantile(inside, 0.9)) if len(inside) else 0.0
    clear = np.flatnonzero(rejected & (np.abs(residual) * _FINE > off))
    if len(clear) < FEWEST_EXACT:
        return none
    # a component in few columns is seen best in pairs of these, one in few rows in pairs of rows
    for rows, cols in ((i, j), (j, i)):
        found = _in_pairs(rows, cols, fitted, residual, rejected, clear, off, rng)
        if found is not None:
            return found[0], found[1], unit * found[2]
    return none


def _in_pairs(
    i: np.ndarray,
    j: np.ndarray,
    fitted: np.ndarray,
    residual: np.ndarray,
    rejected: np.ndarray,
    clear: np.ndarray,
    off: float,
    rng: np.random.Generator,
) -> tuple[int, float, float] | None:
    """What `agreeing_exactly` gives, by pairs of rows, of the entries that are `clear`; None if they do not agree."""
    count = np.bincount(i[clear])
    crowd = np.argsort(-count, kind="stable")
    crowd, others = crowd[:_ROWS], crowd[_ROWS : np.count_nonzero(count)]
    rows = np.concatenate([crowd[count[crowd] > 0], rng.permutation(others)[:_ROWS]])
    shape = len(rows), int(j.max()) + 1
    R, F = np.zeros(shape), np.zeros(shape)
    place = np.full(int(i.max()) + 1, -1)
    place[rows] = np.arange(len(rows))
    some = clear[place[i[clear]] >= 0]
    R[place[i[some]], j[some]], F[place[i[some]], j[some]] = residual[some], fitted[some]
    found = _in_proportion(R, F, off)
    if not found.sum() > _FEWEST_PAIRS:
        return None
    mixed = np.zeros_like(R)
    by_chance = 0.0
    for _ in range(_MIXED):
        mixed[R != 0] = rng.permutation(R[R != 0])
        by_chance += float(_in_proportion(mixed, F, off).sum()) / _MIXED
    if not found.sum() > _BEYOND_CHANCE * by_chance + _FEWEST_PAIRS:
        return None
    often = found >= _OFTEN * np.quantile(found[found > 0], 0.9)  # the others may agree by chance
    theirs = np.isin(i, rows[often.any(axis=1)]) & often.any(axis=0)[j]
    if np.count_nonzero(often) < FEWEST_EXACT:
        return None
    return int(np.count_nonzero(often)), float(np.mean(rejected[theirs])), float(np.median(np.abs(R[often])))


def _in_proportion(R: np.ndarray, F: np.ndarray, off: float) -> np.ndarray:
    """How often residuals R (m, n; 0: none) are, in two rows and two columns, in proportion for no simple reason (m, n).

    Of two rows, ratios that are next to each other are compared.
    """
    col, row = np.nonzero(R.T)
    # each residual with those after it in its column: there are far fewer of these than pairs of rows times columns
    rest = np.cumsum(np.bincount(col, minlength=1))[col] - np.arange(len(col)) - 1
    first = np.repeat(np.arange(len(col)), rest)
    then = np.arange(len(first)) - np.repeat(np.cumsum(rest) - rest, rest) + first + 1
    a, b, col, value = row[first], row[then], col[first], R[row, col]
    pair, x, y = a * len(R) + b, value[first], value[then]
    ratio = x / y
    order = np.lexsort((ratio, pair))
    first, then = order[:-1], order[1:]

    def same(p: np.ndarray, q: np.ndarray, error: np.ndarray) -> np.ndarray:
        """Whether two ratios are equal but for a relative error."""
        return np.asarray(np.abs(p - q) <= error * np.maximum(np.abs(p), np.abs(q)))

    error = off * np.hypot(1 / x, 1 / y) + _ROUNDING
    agree = (pair[first] == pair[then]) & same(ratio[first], ratio[then], np.hypot(error[first], error[then]))
    first, then = first[agree], then[agree]
    found = np.zeros(R.shape)
    if len(first) == 0:  # as usual
        return found
    near = _TRIVIAL + np.hypot(error[first], error[then])
    simple = np.zeros(len(first), dtype=bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        for row, value in ((a, x), (b, y)):  # values of a row that are equal, or in proportion to those recovered
            along = value[first] / value[then]
            told = F[row[first], col[first]] / F[row[then], col[then]]
            simple |= same(np.abs(along), np.ones_like(along), near) | same(along, told, near)
        for k in (first, then):  # and of a column
            told = F[a[k], col[k]] / F[b[k], col[k]]
            simple |= same(np.abs(ratio[k]), np.ones_like(told), near) | same(ratio[k], told, near)
    first, then = first[~simple], then[~simple]
    for k in (first, then):
        for row in (a, b):
            np.add.at(found, (row[k], col[k]), 0.25)
    return found


def with_other_sign(fitted: np.ndarray, residual: np.ndarray, rejected: np.ndarray) -> tuple[int, float, float]:
    """Rejected entries that are the recovered values with the other sign, if nearly all on one side of 0 are.

    So it is where absolute values of a matrix of low rank were observed: signs that fit most of them are found, and the
    rest, wherever the recovered value is negative for example, is rejected. Signs turned at random are on both sides.

    Returns
    -------
    (int, float, float)
        How many, the share that is rejected on their side, and their median absolute residual; as `agreeing_exactly`.
    """
    inside = np.abs(residual[~rejected])
    if len(inside) == 0:
        return 0, 0.0, 0.0
    near = _NEAR * float(np.quantile(inside, 0.9))
    turned = rejected & (np.abs(fitted + 0.5 * residual) <= 0.5 * near)  # twice the largest numbers is none
    for side in (fitted > near, fitted < -near):
        n, n_rejected, n_turned = (int(np.count_nonzero(side & x)) for x in (side, rejected, turned))
        if n_turned >= FEWEST_EXACT and n_rejected > _MOSTLY * n and n_turned > _MOSTLY * n_rejected:
            return n_turned, n_rejected / n, float(np.median(np.abs(residual[side & turned])))
    return 0, 0.0, 0.0
