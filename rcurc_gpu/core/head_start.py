"""A head start: a part of the intersection I x J first.

Where the rows and columns of the core have many more observations than they need, a half or a quarter of the rows and as
many of the columns are solved alone, at a fourth to a sixteenth of the cost. The others follow as robust regressions, like
any column outside of J. From there a few iterations on all of I x J are enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, gather
from ..backends.blocks import Block
from ..backends.kernels import RunContext
from ..backends.operators import invert, product_svd
from ..backends.plain.passes import FitPass
from ..backends.plain.regression import Schedule
from ..backends.random import Stream, generator
from .iteration import Core, CoreOptions, solve_core
from .problem import CoreProblem, draw_sample

# Observations of a row (column) for each component from which half of them is plenty. bench.speed at d = 3000, r = 5: 0.194
# s with the head start, 0.251 s without.
_RICH = 64
# Observations for each component that are left in the part. About 10 are the least that recovers a core. With 14, one part
# of seven did not settle (35 % outliers); with 20 all did, in at most half as many iterations again as with all of them.
_LEFT = 24
_LEAST_SHARE = 0.25  # of the rows and columns: less saves nothing more, as the iterations on all of I x J remain
# Iterations on all of I x J before it is looked whether more are needed: without noise, the first comes from 1e-11 of the
# solution to 1e-12 of it.
_FIRST_CHECK = 2
# Of `tol`, a square: the part settles at a thirtieth of the change that is enough for the whole. At d = 3000, r = 5 this takes
# ten iterations more on the part, a few ms, and the true error falls from 3e-12 to 7e-14. No change need be less than so many
# roundings: it might never be.
_NEARER, _ROUNDINGS = 1e-3, 100
_ZEROS = 0.05  # share of zeros up to which some of the rows are a fair sample of what is not 0


def is_rich(data: CoreProblem, rank: int) -> bool:
    """Whether a part of the intersection is enough to begin with."""
    # where most is 0, some of the rows may miss the rest
    return _richness(data, rank) >= _RICH and data.zeros <= _ZEROS


def _richness(data: CoreProblem, rank: int) -> float:
    """Observations of a row (column) for each component."""
    return data.count / (rank * max(data.grid.shape))


def solve_with_head_start(
    data: CoreProblem, rank: int, options: CoreOptions, schedule: Callable[[float], Schedule], run: RunContext
) -> Core | None:
    """`iteration.solve_core`, beginning with a part of the intersection; None if the part did not settle.

    Parameters
    ----------
    schedule : callable
        Thresholds of a regression from the standard deviation of the noise.
    run : RunContext
    """
    xp = array_namespace(data.weight)
    rng = generator(run.seed, Stream.HEAD_START)
    share = min(max(_LEFT / _richness(data, rank), _LEAST_SHARE), 0.5)
    chosen = [np.sort(rng.choice(size, int(np.ceil(share * size)), replace=False)) for size in data.grid.shape]
    # entries held out of the fit (weight 0) stay out of the part, too
    fitted = _select(data.block, data.weight, xp.nonzero(data.weight > 0)[0])
    in_cols = _restrict(*fitted, chosen[1])  # all rows, some of the columns
    by_col = fitted[0].take_units(chosen[0]).transpose()  # all columns, some of the rows
    weight = Block(in_cols[0].indptr, in_cols[0].index, in_cols[1], in_cols[0].length).take_units(chosen[0])
    block = in_cols[0].take_units(chosen[0])
    if block.n_obs == 0:
        return None
    part = replace(
        data,
        block=block,
        weight=weight.value,
        grid=run.kernels.make_grid(block, weight.value, run.chunk_bytes),
        total=float(xp.sum(block.value**2)),
        count=block.n_obs,
        sample=draw_sample(block, rng),
    )
    # Iterations on the part are cheap, and what is left of its error is left of the whole's.
    eps = float(xp.finfo(data.weight.dtype).eps)
    nearer = min(options.tol, max(_NEARER * options.tol, (_ROUNDINGS * eps) ** 2))
    head = solve_core(part, rank, replace(options, tol=nearer), run, step=run.step("part of the core"))
    if not head.stopped:
        return None
    fit_pass = FitPass(schedule(head.sigma), 0.0)
    left, _ = run.kernels.regress_all(in_cols[0], head.V, fit_pass, run.chunk_bytes)
    right, _ = run.kernels.regress_all(by_col, head.W, fit_pass, run.chunk_bytes)
    # [X]_{:,part of J} = left V^T and [X]_{part of I,:} = W right^T, so U = left diag(1/s) right^T
    start = product_svd(left * invert(head.s), right)
    before = head.history[-1].iteration
    # The start is near the solution, so zeta begins a little above the noise and soon meets it.
    most = max(options.max_iter - before, 1)
    rest = replace(options, zeta0=2 * head.threshold, max_iter=most, first_check=_FIRST_CHECK)
    core = solve_core(data, rank, rest, run, start, run.step("core"))
    later = [replace(state, iteration=state.iteration + before) for state in core.history]
    return replace(core, history=head.history + later)


def _select(block: Block, weight: Array, places: Array) -> tuple[Block, Array]:
    """The entries at some ascending places, and their weights."""
    xp = array_namespace(weight)
    indptr = xp.astype(xp.searchsorted(places, block.indptr), xp.int64)
    return Block(indptr, gather(block.index, places), gather(block.value, places), block.length), gather(weight, places)


def _restrict(block: Block, weight: Array, chosen: np.ndarray) -> tuple[Block, Array]:
    """The entries at some positions of the units; the positions are then numbered from 0."""
    xp = array_namespace(weight)
    number = np.full(block.length, -1, dtype=np.int32)
    number[chosen] = np.arange(len(chosen))
    index = gather(asarray_on(number, weight), block.index)
    part, kept = _select(Block(block.indptr, index, block.value, len(chosen)), weight, xp.nonzero(index >= 0)[0])
    return part, kept
