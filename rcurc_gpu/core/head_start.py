"""A head start: a quarter of the intersection I x J first.

Where the rows and columns of the core have many more observations than they need, half of the rows and half of the columns
are solved alone, at a quarter of the cost. The others follow as robust regressions, like any column outside of J. From there
a few iterations on all of I x J are enough.
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

# Observations of a row (column) for each component from which half of them is plenty: 32 are left, and about 10 are the
# least that recovers a core. bench.speed at d = 3000, r = 5: 0.194 s with the head start, 0.251 s without.
_RICH = 64
_ZEROS = 0.05  # share of zeros up to which half of the rows is a fair sample of what is not 0


def is_rich(data: CoreProblem, rank: int) -> bool:
    """Whether a quarter of the intersection is enough to begin with."""
    # where most is 0, half of the rows may miss the rest
    return data.count >= _RICH * rank * max(data.grid.shape) and data.zeros <= _ZEROS


def solve_with_head_start(
    data: CoreProblem, rank: int, options: CoreOptions, schedule: Callable[[float], Schedule], run: RunContext
) -> Core | None:
    """`iteration.solve_core`, beginning with a quarter of the intersection; None if the quarter did not settle.

    Parameters
    ----------
    schedule : callable
        Thresholds of a regression from the standard deviation of the noise.
    run : RunContext
    """
    xp = array_namespace(data.weight)
    rng = generator(run.seed, Stream.HEAD_START)
    halves = [np.sort(rng.choice(size, (size + 1) // 2, replace=False)) for size in data.grid.shape]
    # entries held out of the fit (weight 0) stay out of the quarter, too
    fitted = _select(data.block, data.weight, xp.nonzero(data.weight > 0)[0])
    in_cols = _restrict(*fitted, halves[1])  # all rows, half of the columns
    by_col = fitted[0].take_units(halves[0]).transpose()  # all columns, half of the rows
    weight = Block(in_cols[0].indptr, in_cols[0].index, in_cols[1], in_cols[0].length).take_units(halves[0])
    block = in_cols[0].take_units(halves[0])
    if block.n_obs == 0:
        return None
    quarter = replace(
        data,
        block=block,
        weight=weight.value,
        grid=run.kernels.make_grid(block, weight.value, run.chunk_bytes),
        total=float(xp.sum(block.value**2)),
        count=block.n_obs,
        sample=draw_sample(block, rng),
    )
    head = solve_core(quarter, rank, options, run, step=run.step("quarter of the core"))
    if not head.stopped:
        return None
    fit_pass = FitPass(schedule(head.sigma), 0.0)
    left, _ = run.kernels.regress_all(in_cols[0], head.V, fit_pass, run.chunk_bytes)
    right, _ = run.kernels.regress_all(by_col, head.W, fit_pass, run.chunk_bytes)
    # [X]_{:,half of J} = left V^T and [X]_{half of I,:} = W right^T, so U = left diag(1/s) right^T
    start = product_svd(left * invert(head.s), right)
    before = head.history[-1].iteration
    # The start is near the solution, so zeta begins a little above the noise and soon meets it.
    rest = replace(options, zeta0=2 * head.threshold, max_iter=max(options.max_iter - before, 1))
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
