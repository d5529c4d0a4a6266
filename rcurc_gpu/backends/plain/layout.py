"""The intersection laid out for the core: who is held out, what takes part in the fit, and from what medians are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..arrays import Array, array_namespace, asarray_on, gather
from ..blocks import Block
from .loop import Entries, Grid

Drawn = Callable[[int], np.ndarray | None]


class Layout(NamedTuple):
    """The intersection, ready to iterate.

    Attributes
    ----------
    weight : float array (n_obs,)
        The step of each entry; 0 for those held out of the fit.
    grid : Grid
        Of the entries of the fit.
    total : float
        The sum of their squares.
    n_fit : int
        How many they are.
    held, sample : (i, j, y)
        Places and values of the entries held out of it, and of some of those of the fit, for medians.
    """

    weight: Array
    grid: Grid
    total: float
    n_fit: int
    held: Entries
    sample: Entries


def lay_out(
    kernels: tuple[Callable[..., Array], Callable[..., Grid]],
    block: Block,
    seen_by: Array,
    ids: tuple[Array, Array],
    held: tuple[int, float],
    steps_for: Callable[[int], tuple[float, float, float]],
    drawn: Drawn,
    chunk_bytes: int | None = None,
) -> Layout:
    """Lay out the intersection.

    Parameters
    ----------
    kernels : (callable, callable)
        `held_out` and `make_grid`.
    block : Block
        Its observations, by rows.
    seen_by : int8 array (n_obs,)
        1, 2 or 3: see `Intersection`.
    ids : (int64 array (m,), int64 array (n,))
        Numbers of its rows and columns, by which entries are held out.
    held : (int, float)
        The seed by which, and what share of them.
    steps_for : callable
        From how many entries take part in the fit to the steps of those that are seen by 1, 2 and 3.
    drawn : callable
        From how many entries there are for the sample to the numbers of those to take, ascending; None for all.
    chunk_bytes : int, optional
    """
    xp, dtype = array_namespace(block.value), block.value.dtype
    held_out, make_grid = kernels
    is_held = held_out(block, *ids, *held)
    held_entries = block.triplets(is_held)
    count = block.n_obs - int(held_entries[2].shape[0])
    fit = xp.astype(~is_held, dtype)
    table = asarray_on(np.asarray([0.0, *steps_for(count)]), seen_by, dtype)
    weight = gather(table, xp.astype(seen_by, xp.int64)) * fit
    grid = make_grid(block, weight, chunk_bytes)
    total = float(xp.sum((block.value * fit) ** 2))
    return Layout(weight, grid, total, count, held_entries, sample_of(block, drawn, ~is_held))


def sample_of(block: Block, drawn: Drawn, taken: Array | None = None) -> Entries:
    """Draw some of the entries that are `taken` (bool), for medians.

    An entry that is exactly 0 in a matrix of many zeros fits anything, so only others are drawn, if there are any.
    """
    xp = array_namespace(block.value)
    informative = block.value != 0
    entries = block.triplets(informative if taken is None else informative & taken, drawn)
    if entries[2].shape[0] == 0:
        entries = block.triplets(xp.ones_like(informative) if taken is None else taken, drawn)
    return entries
