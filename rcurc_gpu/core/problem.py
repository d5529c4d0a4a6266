"""The observations of the intersection I x J, ready to iterate.

In the paper's symbols: Y on Omega_R and Omega_C inside of I x J, and the step sizes eta_R and eta_C of its union sum. R and
C outside of I x J are not needed here (see `iteration`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, bring
from ..backends.blocks import Block
from ..backends.plain.evidence import Sizes
from ..backends.plain.grid import Entries, Grid
from ..backends.plain.layout import Drawn, sample_of
from ..backends.plain.loop import InlierTally
from ..backends.random import Stream, generator
from ..errors import NothingObservedError

if TYPE_CHECKING:
    from ..backends.kernels import Kernels, RunContext
    from ..samples.view import CoreView

_SAMPLE = 16384  # entries from which medians are taken: they are known to about 1 %, and more would cost at each iteration


@dataclass(frozen=True, eq=False)
class CoreProblem:
    """The intersection, ready to iterate.

    Attributes
    ----------
    block : Block
        Its observations Y, by rows.
    weight : float array (n_obs,)
        The step size of each observation (eta_R, eta_C or both, see `Steps`); 0 for those held out of the fit.
    grid : Grid
    rate : float
        p_u, the share of the intersection that takes part in the fit.
    total : float
        ``||P_Omega Y||^2`` there.
    count : int
        Entries that take part.
    sample, held : (i, j, y)
        Places and values of some entries of the fit that are not 0, and of the entries held out of it.
    kernels : Kernels
        What measures it.
    """

    block: Block
    weight: Array
    grid: Grid
    rate: float
    total: float
    count: int
    sample: tuple[Array, Array, Array]
    held: tuple[Array, Array, Array]
    kernels: Kernels

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes of the entries of the sample."""
        return self.kernels.sizes(self.sample[2])

    @property
    def by_cols(self) -> Block:
        """Its observations, by columns."""
        return self.block.across

    def tally(self, left: Array, V: Array, floor: float) -> InlierTally:
        """Count the inliers of ``left @ V.T``; of the same arrays as the last time, that is known."""
        last = self._last
        if not (last and last[0] is left and last[1] is V and last[2] == floor):
            last[:] = (left, V, floor, self.grid.tally(left, V, floor))
        return last[3]

    @cached_property
    def _last(self) -> list[Any]:
        return []

    @cached_property
    def zeros(self) -> float:
        """Share of its observations that are 0."""
        value = self.block.value
        return int(array_namespace(value).count_nonzero(value == 0)) / max(self.block.n_obs, 1)


@dataclass(frozen=True)
class Steps:
    """The step sizes of the iteration: eta_R, eta_C and, if one is for the whole intersection, eta_U.

    0 stands for a step that `prepare` finds; of eta_U, for none of its own.
    """

    rows: float = 0.0
    cols: float = 0.0
    core: float = 0.0

    def of_entries(self) -> tuple[float, float, float]:
        """The steps of an entry that the rows block alone observes, or the columns block alone, or both.

        eta_R or eta_C where one block observes it, their harmonic mean where both do: the paper's union sum of R and C is
        X_k + w g with this w, g the residual without outliers. Or eta_U for all.
        """
        if self.core:
            return (self.core,) * 3
        return self.rows, self.cols, 2 * self.rows * self.cols / (self.rows + self.cols)


def prepare(view: CoreView, steps: Steps, run: RunContext) -> tuple[CoreProblem, Steps]:
    """Lay out the intersection where the run computes; steps that are 0 become 1 / p_u, p_u its observed share.

    The paper recommends 1 / p_R and 1 / p_C. At 25 % observed that is an effective step of 1.75 on the intersection: slow,
    or it stalls. 1 / p_u was the best of the rules tried at d = 1500 (rank 5 to 20, 10 to 30 % outliers of all sizes).
    """
    block, seen_by = view.intersection.block.to(run.like), bring(view.intersection.seen_by, run.like)
    rows, cols = (asarray_on(ids, block.value) for ids in view.held_ids)
    cells = len(view.rows) * len(view.cols)

    def found_steps(count: int) -> Steps:
        if count == 0:
            raise NothingObservedError("no observation lies in the intersection of rows and cols: the core cannot be found")
        rate = count / cells
        return replace(steps, rows=steps.rows or 1 / rate, cols=steps.cols or 1 / rate)

    drawn, held = _drawn(generator(run.seed, Stream.SAMPLE)), (run.seed, run.holdout)
    given = (lambda count: found_steps(count).of_entries(), drawn, run.chunk_bytes)
    laid = run.kernels.lay_out(block, seen_by, (rows, cols), held, *given)
    rest = (laid.grid, laid.n_fit / cells, laid.total, laid.n_fit, laid.sample, laid.held, run.kernels)
    return CoreProblem(block, laid.weight, *rest), found_steps(laid.n_fit)


def _drawn(rng: np.random.Generator) -> Drawn:
    """Which of so many entries are taken for medians."""

    def drawn(n: int) -> np.ndarray | None:  # a few are drawn twice, which does no harm
        return np.sort(rng.integers(n, size=_SAMPLE)) if n > _SAMPLE else None

    return drawn


def draw_sample(block: Block, rng: np.random.Generator) -> Entries:
    """Draw some of the entries of a block, for medians."""
    return sample_of(block, _drawn(rng))


def dof_share(data: CoreProblem, rank: int) -> float:
    """Unknowns of a rank-r core, r (|I| + |J| - r), over its entries."""
    m, n = data.grid.shape
    return rank * (m + n - rank) / data.count
