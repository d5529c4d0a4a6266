"""Which rows and columns to take for I and J, where the user has only a list of observations."""

from __future__ import annotations

import math

import numpy as np

from .describe import CORE_PER_RANK

_CLEAR = 2.0  # a cross is clear if its rows have this many times the observations of the next ones
_UNUSED = 0.05  # share of the observations that may fall outside a cross that is not clear
_GROWTH = 1.25  # from one number of observations per row and column to the next that is tried


def choose_cross(i: np.ndarray, j: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The rows and columns on which observations concentrate.

    If there is a clear cross, as cross-concentrated sampling leaves it, that is taken. If not (ratings: few rows have
    very many observations, many have few, and all between), the intersection is the densest one whose cross leaves out
    few observations: every row and column of it has at least m observations inside it, with m as large as possible while
    no more than 5 % of all observations are unused, but enough for rank 1 if there is such an intersection at all.

    Parameters
    ----------
    i, j : int64 arrays (n,)
        Row and column of each observation.
    shape : (int, int)

    Returns
    -------
    rows, cols : int64 arrays
        Ascending.
    """
    rows, cols = _by_contrast(i, j, shape)
    if _is_clear(i, j, rows, cols, shape):
        return rows, cols
    return _densest_core(i, j, shape)


def _by_contrast(i: np.ndarray, j: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The number of rows (columns) is where the sorted counts split best into a high and a low group (Otsu's criterion);
    which ones is then improved by alternation: a row is worth the observations it has outside the chosen columns, since
    those inside are covered already."""
    n1, n2 = shape
    per_row, per_col = np.bincount(i, minlength=n1), np.bincount(j, minlength=n2)
    rows, cols = _busiest(per_row), _busiest(per_col)
    for _ in range(5):
        new_rows = _top(np.bincount(i[~_marked(cols, n2)[j]], minlength=n1), per_row, len(rows))
        new_cols = _top(np.bincount(j[~_marked(new_rows, n1)[i]], minlength=n2), per_col, len(cols))
        if np.array_equal(new_rows, rows) and np.array_equal(new_cols, cols):
            break
        rows, cols = new_rows, new_cols
    return rows, cols


def _busiest(counts: np.ndarray) -> np.ndarray:
    descending = np.sort(counts)[::-1].astype(float)
    n = len(descending)
    if n == 1:
        return np.arange(1)
    k = np.arange(1, n)
    total = np.cumsum(descending)
    gap = total[:-1] / k - (total[-1] - total[:-1]) / (n - k)
    contrast = k * (n - k) * gap**2
    size = int(np.argmax(contrast)) + 1 if contrast.max() > 0 else n  # equal counts: nothing tells one from another
    return _top(counts, counts, size)


def _top(worth: np.ndarray, tie: np.ndarray, size: int) -> np.ndarray:
    return np.sort(np.lexsort((-tie, -worth))[:size])


def _marked(numbers: np.ndarray, size: int) -> np.ndarray:
    marked = np.zeros(size, dtype=bool)
    marked[numbers] = True
    return marked


def _is_clear(i: np.ndarray, j: np.ndarray, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> bool:
    """Whether the observations outside the chosen columns drop from the chosen rows to the others, and the same for the
    columns."""
    n1, n2 = shape
    in_rows, in_cols = _marked(rows, n1), _marked(cols, n2)
    per_row, per_col = np.bincount(i[~in_cols[j]], minlength=n1), np.bincount(j[~in_rows[i]], minlength=n2)
    return _drops(per_row, len(rows)) and _drops(per_col, len(cols))


def _drops(counts: np.ndarray, size: int) -> bool:
    """Whether the sorted counts drop about the place `size`: a little before it they are far above those a little after.
    A power law of counts does not, whatever is taken for its head."""
    descending = np.sort(counts)[::-1]
    after = math.ceil(1.25 * size)
    return after >= len(counts) or bool(descending[math.ceil(0.9 * size) - 1] > _CLEAR * descending[after])


def _densest_core(i: np.ndarray, j: np.ndarray, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The last of ever denser intersections whose cross leaves out few observations, or the first that is enough for
    rank 1, or the densest there is."""
    n1, n2 = shape
    least = CORE_PER_RANK
    core = _peel(i, j, shape, least)
    while len(core[0]) == 0:
        least -= 1
        core = _peel(i, j, shape, least)
    while True:
        rows, cols = _present(core[0], n1), _present(core[1], n2)
        least = max(least + 1, int(_GROWTH * least))
        core = _peel(*core, shape, least)
        unused = ~_marked(_present(core[0], n1), n1)[i] & ~_marked(_present(core[1], n2), n2)[j]
        if np.count_nonzero(unused) > _UNUSED * len(i):
            return rows, cols


def _present(index: np.ndarray, size: int) -> np.ndarray:
    return np.flatnonzero(np.bincount(index, minlength=size))


def _peel(i: np.ndarray, j: np.ndarray, shape: tuple[int, int], least: int) -> tuple[np.ndarray, np.ndarray]:
    """The observations of the largest intersection of which every row and column has at least `least` of them."""
    while len(i):
        keep = (np.bincount(i, minlength=shape[0]) >= least)[i] & (np.bincount(j, minlength=shape[1]) >= least)[j]
        if keep.all():
            break
        i, j = i[keep], j[keep]
    return i, j
