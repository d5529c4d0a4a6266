"""The observations of the intersection I x J, ready to iterate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, bring, gather
from ..backends.blocks import Block
from ..backends.kernels import RunContext
from ..backends.plain.grid import Entries, Grid
from ..backends.random import Stream, generator
from ..samples.view import CoreView

_SAMPLE = 16384  # entries from which medians are taken


@dataclass(frozen=True, eq=False)
class CoreProblem:
    """The intersection, ready to iterate.

    Attributes
    ----------
    block : Block
        Its observations, by rows.
    weight : float array (n_obs,)
        The step size of each of them, 0 for those held out of the fit.
    grid : Grid
    rate : float
        Share of the intersection that takes part in the fit.
    total : float
        ``||P_Omega Y||^2`` there.
    count : int
        Entries that take part.
    sample, held : (i, j, y)
        Places and values of some entries of the fit that are not 0, and of the entries held out of it.
    """

    block: Block
    weight: Array
    grid: Grid
    rate: float
    total: float
    count: int
    sample: tuple[Array, Array, Array]
    held: tuple[Array, Array, Array]

    @cached_property
    def by_cols(self) -> Block:
        """Its observations, by columns."""
        return self.block.transpose()


@dataclass(frozen=True)
class Steps:
    """The steps of the iteration: eta_R, eta_C and, if it is the same for the whole intersection, eta_U; None where they
    are to be found."""

    rows: float | None
    cols: float | None
    core: float | None = None

    def weights(self, seen_by: Array, dtype: Any) -> Array:
        """The step of each entry of the intersection: eta_R, eta_C, or their harmonic mean where both blocks see it; or
        eta_U for all."""
        xp = array_namespace(seen_by)
        assert self.rows is not None
        assert self.cols is not None
        steps = (self.rows, self.cols, 2 * self.rows * self.cols / (self.rows + self.cols))
        table = asarray_on(np.asarray([0.0, *(steps if self.core is None else [self.core] * 3)]), seen_by, dtype)
        return gather(table, xp.astype(seen_by, xp.int64))


def prepare(view: CoreView, steps: Steps, run: RunContext) -> tuple[CoreProblem, Steps]:
    """Lay out the intersection where the run computes; steps that are None become 1 / p_u, p_u its observed share."""
    block, seen_by = view.intersection.block.to(run.like), bring(view.intersection.seen_by, run.like)
    xp = array_namespace(block.value)
    rows, cols = asarray_on(view.rows, block.value), asarray_on(view.cols, block.value)
    held = run.kernels.held_out(block, rows, cols, run.seed, run.holdout)
    held_places = xp.nonzero(held)[0]
    count = block.n_obs - int(held_places.shape[0])
    if count == 0:
        raise ValueError("no observation lies in the intersection of rows and cols: the core cannot be found")
    rate = count / (len(view.rows) * len(view.cols))
    steps = replace(
        steps,
        rows=1 / rate if steps.rows is None else steps.rows,
        cols=1 / rate if steps.cols is None else steps.cols,
    )
    fit = xp.astype(~held, block.value.dtype)
    weight = steps.weights(seen_by, block.value.dtype) * fit
    grid = run.kernels.make_grid(block, weight, run.chunk_bytes)
    total = float(xp.sum((block.value * fit) ** 2))
    sample = draw_sample(block, generator(run.seed, Stream.SAMPLE), ~held)
    return CoreProblem(block, weight, grid, rate, total, count, sample, _entries_at(block, held_places)), steps


def draw_sample(block: Block, rng: np.random.Generator, taken: Array | None = None) -> Entries:
    """Some entries of those that are `taken` (bool), from which medians are taken.

    An entry that is exactly 0 in a matrix of many zeros fits anything, so the others are drawn, if there are any.
    """
    xp = array_namespace(block.value)
    informative = block.value != 0
    places = xp.nonzero(informative if taken is None else informative & taken)[0]
    if places.shape[0] == 0:
        places = xp.nonzero(xp.ones_like(informative) if taken is None else taken)[0]
    if places.shape[0] > _SAMPLE:
        drawn = np.sort(rng.integers(int(places.shape[0]), size=_SAMPLE))  # a few come twice, which does no harm
        places = gather(places, asarray_on(drawn, block.value))
    return _entries_at(block, places)


def _entries_at(block: Block, places: Array) -> Entries:
    xp = array_namespace(block.value)
    unit = xp.astype(xp.searchsorted(block.indptr, places, side="right"), xp.int64) - 1
    return unit, xp.astype(gather(block.index, places), xp.int64), gather(block.value, places)


def dof_share(data: CoreProblem, rank: int) -> float:
    """Unknowns of a rank-r core over its entries."""
    m, n = data.grid.shape
    return rank * (m + n - rank) / data.count
