"""The core's iteration: what it needs of the intersection (`Grid`), and its iterations in groups (`Loop`).

A group is one call, so that a backend can make one compiled function or one CUDA graph of it. `PlainLoop` is the general
code, of one call for each operation; others have to agree with it to rounding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ..arrays import Array, array_namespace, asarray_on, device_of, dots, quantile_abs, to_numpy
from ..linalg import subspace_svd

Entries = tuple[Array, Array, Array]  # rows, columns, values
Factors = tuple[Array, Array, Array]  # W, s, V
NUMBERS = 5  # of an iteration, before its singular values; see `Group`
_MOST_STEPS = 200  # of an SVD to an accuracy; only a bound, the accuracy ends it
# The first matrices are far from low rank and from each other; later one step of the SVD keeps up with the iteration.
_FIRST, _FIRST_STEPS = 3, 3


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a core iterates; the symbols are the paper's.

    Attributes
    ----------
    rank : int
    zeta0, gamma : float
        The threshold after iteration k is ``zeta0 * gamma**k``, ...
    floor : float
        ... but no less than this many median residuals of the sample. 0 is for none.
    sample : Entries
    svd_tol : float
        Accuracy of each truncated SVD; 0 takes one warm-started step.
    warm : bool
        Whether the first iterate is near the solution, so that its SVDs need no more steps than others.
    """

    rank: int
    zeta0: float
    gamma: float
    floor: float
    sample: Entries
    svd_tol: float = 0.0
    warm: bool = False

    def zeta(self, k: int) -> float:
        """The threshold after iteration `k`, before the residuals hold it up."""
        return self.zeta0 * self.gamma**k

    def steps(self, k: int) -> int:
        """Steps of the truncated SVD of iteration `k`, at the most if there is an accuracy to reach."""
        if self.svd_tol > 0:
            return _MOST_STEPS
        return _FIRST_STEPS if k <= _FIRST and not self.warm else 1


@dataclass(frozen=True, eq=False)
class Begin:
    """The iterate U_k to go on from, and `zeta`, the threshold after it; None takes that of the recipe.

    `whole` is (P, s, Q), as in `Group`; `s` and `P` may be 0.
    """

    k: int
    whole: Factors
    zeta: float | None = None


@dataclass(frozen=True, eq=False)
class Group:
    """Some iterations in a row.

    Attributes
    ----------
    k : int
        The last of them.
    numbers : float array (n, 5 + width)
        Of each: ``||P_Omega(S_k + U_k - Y)||^2``, the numerator of e_k; the number of outliers in S_k; zeta_k; the relative
        change from U_{k-1}; the next threshold; singular values, 0 beyond the rank. On the device, or on the host already.
    whole : (P (m, width), s (width,), Q (n, width))
        U_k = P diag(s) Q^T with a few columns more than the rank, the iteration can resume from them. The next group may
        overwrite them.
    each : (float array (n + 1, m, r), float array (n + 1, n, r)) or None
        If they were asked for: W and V before the first iteration and after each.
    """

    k: int
    numbers: Array
    whole: Factors
    each: tuple[Array, Array] | None = None

    def table(self) -> np.ndarray:
        """`numbers` on the host, in one transfer."""
        return to_numpy(self.numbers).astype(np.float64)

    def factors(self, rank: int) -> Factors:
        """(W, s, V) of U_k."""
        P, s, Q = self.whole
        return P[:, :rank], s[:rank], Q[:, :rank]


class Loop(ABC):
    """The iterations of one core; `k` is the last that was done.

    Memory is taken once. Nothing waits for the device: the numbers of a group stay there until they are looked at. How
    iterations are grouped does not change the iterates.
    """

    k: int

    @abstractmethod
    def advance(self, n: int, each: bool = False) -> Group:
        """Iterate `n` times; keep what comes after each, too, if asked for."""


class InlierTally(NamedTuple):
    """How many entries of the fit agree with a core, on the host.

    Attributes
    ----------
    square : float
        Sum of the squared residuals of these.
    in_rows, of_rows, in_cols, of_cols : int64 arrays (m,), (m,), (n,), (n,)
        Of each row and each column: those that agree, and all.
    """

    square: float
    in_rows: np.ndarray
    of_rows: np.ndarray
    in_cols: np.ndarray
    of_cols: np.ndarray


class Grid(ABC):
    """What the core needs to know of the intersection.

    Attributes
    ----------
    shape : (int, int)
    library : bool
        Whether SVDs are those of the array library, even where there are kernels for them.

    Notes
    -----
    `G` and `S` below are lists of arrays in the layout's own form.
    """

    shape: tuple[int, int]
    library = False

    def loop(self, recipe: Recipe, begin: Begin) -> Loop:
        """Iterate as `recipe` says; layouts with a faster way than one call for each operation take it here."""
        return PlainLoop(self, recipe, begin)

    @abstractmethod
    def threshold(
        self, left: Array, Q: Array, zeta: Array, S: list[Array] | None
    ) -> tuple[list[Array], list[Array], Array, Array, Array]:
        """Split the residual of ``U = left @ Q.T`` at `zeta`, and multiply the next iterate with `Q`.

        Parameters
        ----------
        left : float array (m, k)
        Q : float array (n, k)
            Orthonormal.
        zeta : 0-d array
        S : list of arrays or None
            The former outliers, None at first; may be overwritten.

        Returns
        -------
        G, S : lists of arrays
            The weighted inliers and the outliers; the next call may overwrite them.
        Z : float array (m, k)
            ``(U + G) @ Q``.
        square, count : 0-d arrays
            The squared norm of the residual with the former outliers taken out (the numerator of e_k), and the number of
            outliers.
        """

    @abstractmethod
    def mul(self, G: list[Array], X: Array, base: Array | None = None) -> Array:
        """base + G @ X; may overwrite `base`."""

    @abstractmethod
    def rmul(self, G: list[Array], P: Array, base: Array | None = None) -> Array:
        """base + G.T @ P; may overwrite `base`."""

    @abstractmethod
    def inlying(self, left: Array, Q: Array, zeta: float) -> tuple[list[Array], Array, Array]:
        """Unweighted inlying residuals of ``left @ Q.T``, and the number of inliers of each row and each column."""

    def counts(self, left: Array, Q: Array) -> tuple[Array, Array]:
        """The number of entries of the fit in each row and each column; `left` and `Q` as in `inlying`."""
        return self.inlying(left, Q, float("inf"))[1:]

    def tally(self, left: Array, Q: Array, zeta: float) -> InlierTally:
        """Count the inliers of ``left @ Q.T``."""
        kept, *inside = self.inlying(left, Q, zeta)
        xp = array_namespace(left)
        square = sum(float(xp.sum(panel * panel)) for panel in kept)
        counts = (to_numpy(x).astype(np.int64) for pair in zip(inside, self.counts(left, Q), strict=True) for x in pair)
        return InlierTally(square, *counts)

    def floor_threshold(self, left: Array, Q: Array, sample: Entries, zeta: float, floor: float) -> Array:
        """`zeta`, but no less than `floor` times the median residual of ``left @ Q.T`` at some entries; a 0-d array."""
        xp = array_namespace(left)
        lowest = xp.asarray(zeta, dtype=left.dtype, device=device_of(left))
        return lowest if floor == 0 else xp.maximum(lowest, floor * quantile_abs(residuals(left, Q, sample)))

    def change(self, left: Array, Q: Array, old_left: Array, old_Q: Array, old_s: Array) -> Array:
        """``||U - old U||_F / ||U||_F`` of ``U = left @ Q.T``, a 0-d array.

        Notes
        -----
        Not from the inner products of the factors, which cancel when the change is small: the difference is split into its
        part in the span of Q and the rest. `old_s` are the norms of the (orthogonal) columns of `old_left`.
        """
        xp = array_namespace(left)
        turn = old_Q.T @ Q
        inside = xp.linalg.vector_norm(left - old_left @ turn)
        outside = xp.linalg.vector_norm((old_Q - Q @ turn.T) * old_s)
        return xp.sqrt(inside * inside + outside * outside) / xp.linalg.vector_norm(left)

    def scale(self, P: Array, s: Array, rank: int) -> tuple[Array, Array]:
        """``P * s`` and `s`, where singular values from `rank` on are taken for 0."""
        s = s * asarray_on(np.arange(s.shape[0]) < rank, s, s.dtype)
        return P * s, s

    def record(self, before: Array | None, numbers: list[Array], s: Array) -> Array:
        """Five 0-d arrays and the singular values of an iteration, after those of the iterations before it."""
        xp = array_namespace(s)
        row = [xp.stack(numbers), s]
        return xp.concat(row if before is None else [before, *row])


class PlainLoop(Loop):
    """One call of the grid for each operation.

    The iterate is ``left @ Q.T`` with a few columns more than the rank, which are 0 in `left`: `Q` is where the next
    truncated SVD starts.
    """

    def __init__(self, grid: Grid, recipe: Recipe, begin: Begin) -> None:
        P, s, Q = begin.whole
        self.grid, self.recipe, self.k = grid, recipe, begin.k
        self.left, self.s = grid.scale(P, s, recipe.rank)
        self.P, self.Q = P, Q
        if begin.zeta is None:
            self.zeta = grid.floor_threshold(self.left, Q, recipe.sample, recipe.zeta(begin.k), recipe.floor)
        else:
            self.zeta = array_namespace(Q).asarray(begin.zeta, dtype=Q.dtype, device=device_of(Q))
        self.G, self.S, self.Z, _, self.n_out = grid.threshold(self.left, Q, self.zeta, None)

    def advance(self, n: int, each: bool = False) -> Group:
        """Iterate `n` times."""
        xp, rank = array_namespace(self.Q), self.recipe.rank
        numbers, kept = None, [(self.P, self.Q)]
        for _ in range(n):
            numbers = self._iterate(numbers)
            kept.append((self.P, self.Q))
        W, V = ([x[:, :rank] for x in side] for side in zip(*kept, strict=True))
        trail = (xp.stack(W), xp.stack(V)) if each else None
        return Group(self.k, xp.reshape(numbers, (n, -1)), (self.P, self.s, self.Q), trail)

    def _iterate(self, numbers: Array | None) -> Array:
        """One iteration; its numbers after those of the iterations before it."""
        grid, recipe = self.grid, self.recipe
        left, s, Q, zeta, n_out = self.left, self.s, self.Q, self.zeta, self.n_out
        self.k += 1
        self.P, self.s, self.Q = subspace_svd(
            partial(_mul, grid, left, Q, self.G),
            partial(_rmul, grid, left, Q, self.G),
            Q,
            recipe.rank,
            recipe.steps(self.k),
            recipe.svd_tol,
            self.Z,
            grid.library,
        )
        self.left, self.s = grid.scale(self.P, self.s, recipe.rank)
        change = grid.change(self.left, self.Q, left, Q, s)
        self.zeta = grid.floor_threshold(self.left, self.Q, recipe.sample, recipe.zeta(self.k), recipe.floor)
        self.G, self.S, self.Z, square, self.n_out = grid.threshold(self.left, self.Q, self.zeta, self.S)
        return grid.record(numbers, [square, n_out, zeta, change, self.zeta], self.s)


def _mul(grid: Grid, left: Array, Q: Array, G: list[Array], X: Array) -> Array:
    return grid.mul(G, X, left @ (Q.T @ X))


def _rmul(grid: Grid, left: Array, Q: Array, G: list[Array], P: Array) -> Array:
    return grid.rmul(G, P, Q @ (left.T @ P))


def residuals(left: Array, Q: Array, entries: Entries) -> Array:
    """``y - (left Q^T)_ij`` at a list of entries (i, j, y)."""
    i, j, y = entries
    return y - dots(left, i, Q, j)
