"""The observations of the intersection I x J, ready to iterate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, bring, gather
from ..backends.blocks import Block
from ..backends.kernels import Kernels
from ..backends.plain.grid import Entries, Grid
from ..errors import NothingObservedError
from ..samples.cross import CoreView, CrossSamples

_SAMPLE = 16384  # entries from which medians are taken


@dataclass(frozen=True, eq=False)
class CoreData:
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


def step_weights(seen_by: Array, step_rows: float, step_cols: float, dtype: Any, step_core: float | None = None) -> Array:
    """The step of each entry of the intersection: eta_R, eta_C, or their harmonic mean where both blocks see it; or the
    same `step_core` for all."""
    xp = array_namespace(seen_by)
    steps = (step_rows, step_cols, 2 * step_rows * step_cols / (step_rows + step_cols))
    table = asarray_on(np.asarray([0.0, *(steps if step_core is None else [step_core] * 3)]), seen_by, dtype)
    return gather(table, xp.astype(seen_by, xp.int64))


def prepare(
    samples: CrossSamples | CoreView,
    step_rows: float | None,
    step_cols: float | None,
    holdout: float,
    seed: int,
    chunk_bytes: int | None,
    kernels: Kernels,
    like: Array,
    step_core: float | None = None,
) -> tuple[CoreData, float, float]:
    """Lay out the intersection where `like` is; steps that are None become 1 / p_u, p_u its observed share."""
    block, seen_by = samples.intersection.block.to(like), bring(samples.intersection.seen_by, like)
    xp = array_namespace(block.value)
    rows, cols = asarray_on(samples.rows, block.value), asarray_on(samples.cols, block.value)
    held = kernels.held_out(block, rows, cols, seed, holdout)
    held_places = xp.nonzero(held)[0]
    count = block.n_obs - int(held_places.shape[0])
    if count == 0:
        raise NothingObservedError("no observation lies in the intersection of rows and cols: the core cannot be found")
    rate = count / (len(samples.rows) * len(samples.cols))
    step_rows = 1 / rate if step_rows is None else step_rows
    step_cols = 1 / rate if step_cols is None else step_cols
    fit = xp.astype(~held, block.value.dtype)
    weight = step_weights(seen_by, step_rows, step_cols, block.value.dtype, step_core) * fit
    grid = kernels.make_grid(block, weight, chunk_bytes)
    total = float(xp.sum((block.value * fit) ** 2))
    sample = draw_sample(block, np.random.default_rng([seed, 1]), ~held)
    data = CoreData(block, weight, grid, rate, total, count, sample, _entries_at(block, held_places))
    return data, step_rows, step_cols


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


def dof_share(data: CoreData, rank: int) -> float:
    """Unknowns of a rank-r core over its entries."""
    m, n = data.grid.shape
    return rank * (m + n - rank) / data.count
