"""The core's iterations, compiled: one call for a group of them."""

from __future__ import annotations

import numpy as np

from ..plain.loop import NUMBERS, Begin, Group, Loop, Recipe
from .loop_kernel import ALL, ON, iterate
from .threads import lines, run
from .values import LANES

# Columns of the factors up to which the loop is compiled: those of rank 32. Beyond, LAPACK and BLAS, which work in blocks,
# are faster than the loops here, and what Python costs is lost among them.
MOST_WIDTH = 40
# Entries from which several threads pay: an iteration then takes most of a millisecond, and to wake the others twice takes
# about a tenth of one.
_SHARED = 1 << 18


def lines_of(QT: np.ndarray, filled: bool = True) -> np.ndarray:
    """Memory for `core_kernels.lay_out` of QT (k, n), in lines of the cache; `filled` with it or with zeros."""
    k, n = QT.shape
    out = lines(n, k + -k % LANES)
    if filled:
        out[:, :k] = QT.T
    return out


class CompiledLoop(Loop):
    """See `loop_kernel.iterate`, also for `entries`, `edges` and `full`, which are those of a `CompiledGrid`."""

    def __init__(self, entries: tuple[np.ndarray, ...], edges: np.ndarray, full: bool, recipe: Recipe, begin: Begin) -> None:
        value, n_pieces = entries[2], len(edges) - 1
        P, s, Q = begin.whole
        width, dtype = Q.shape[1], value.dtype
        PT, QT = (np.array(x.T, dtype=dtype, order="C") for x in (P, Q))
        s = np.array(s, dtype=np.float64)
        self.recipe, self.k = recipe, begin.k - 1
        i, j, y = recipe.sample
        # compiled once for all: positions as in blocks, and nothing read-only
        sample = (i, j.astype(entries[1].dtype), y)
        self._given = ((*entries, edges), full, tuple(np.require(x, requirements=("C", "W")) for x in sample))
        self._factors = (PT, s, QT, np.empty_like(PT))
        parts, sums = np.empty((n_pieces, *QT.shape), dtype), np.zeros((n_pieces, 2))
        sizes, rest = np.empty(len(recipe.sample[2]), dtype), np.empty(max(PT.shape[1], QT.shape[1]), dtype)
        inliers, outliers = np.empty_like(value), np.zeros_like(value)
        of_iterate = (np.empty_like(PT), np.empty_like(QT), inliers, outliers, parts, sums, sizes, rest)
        memory = (*of_iterate, lines_of(QT, False))
        small = tuple(np.empty((5, width, width)))
        self._memory = ((np.empty_like(PT), np.empty_like(s), np.empty_like(QT)), memory, small)
        self._held = np.zeros(2)
        self._n_pieces, self._shared = n_pieces, len(value) >= _SHARED  # whatever the machine: the same bits on all
        # no step of the SVD: the first iterate is that which was given, and only its residual is split
        if begin.zeta is None:
            self._run([0], [recipe.zeta(begin.k)], recipe.floor, False)
        else:
            self._run([0], [begin.zeta], 0.0, False)

    def advance(self, n: int, each: bool = False) -> Group:
        """Iterate `n` times."""
        PT, s, QT, _ = self._factors
        first = [x[None, : self.recipe.rank].copy() for x in (PT, QT)] if each else []
        ks = range(self.k + 1, self.k + n + 1)
        numbers, trail = self._run([*map(self.recipe.steps, ks)], [*map(self.recipe.zeta, ks)], self.recipe.floor, each)
        kept = None
        if each:
            W, V = (np.concatenate(pair).transpose(0, 2, 1) for pair in zip(first, trail, strict=True))
            kept = (W, V)
        return Group(self.k, numbers, (PT.T, s.astype(PT.dtype), QT.T), kept)

    def _run(
        self, steps: list[int], zetas: list[float], floor: float, each: bool
    ) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """Iterate once for each of `steps`; the numbers, and the factors after each (none if not asked for)."""
        PT, s, QT, _ = self._factors
        rank, n = self.recipe.rank, len(steps)
        numbers = np.empty((n, NUMBERS + len(s)))
        kept = n if each else 0
        trail = (np.empty((kept, rank, PT.shape[1]), PT.dtype), np.empty((kept, rank, QT.shape[1]), QT.dtype))
        plan = (np.asarray(steps), np.asarray(zetas, dtype=np.float64), (rank, float(floor), float(self.recipe.svd_tol)))
        common = (np.zeros(3, np.int64), *self._given, self._factors, *self._memory, *plan, self._held, numbers, trail)
        if self._shared:
            while (task := iterate(ON, 0, 0, *common)) != 0:
                run(iterate, [(task, p, p + 1, *common) for p in range(self._n_pieces)])
        else:
            iterate(ALL, 0, 0, *common)
        self.k += n
        return numbers, trail
