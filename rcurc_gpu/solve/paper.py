"""``method="paper"``: Algorithm 1 of the paper, for the core U and for the coefficients of all other columns and rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..backends.arrays import Array, array_namespace, bring, device_of, device_scope, profiled
from ..backends.blocks import Block, join_units, others
from ..backends.operators import invert
from ..backends.plain.loop import Factors
from ..core.paper import PaperSide, solve_paper
from ..extend.tasks import Task
from ..result.matrix import CURMatrix
from .search import CoreSearch
from .solved import SolvedCore

# gamma of the best fixed rule found, with zeta_0 = 5 medians and eta = 0.75 / p: 26 of 27 cells of rank (5 to 20), outliers
# (10 to 30 %) and their size (1 to 100) at d = 1500 are recovered to 4e-4 on the cross in 40 to 100 iterations.
PAPER_GAMMA = 0.9
_MOST_ITERATIONS = 300  # zeta has then fallen to 2e-14 zeta_0, below rounding


def by_the_paper(search: CoreSearch, blocks: tuple[Block, Block], rank: int | str) -> tuple[SolvedCore, dict[str, Array]]:
    """Run Algorithm 1 on samples in memory, R and C as `blocks`; the judged core, and the coefficients of both sides."""
    with device_scope(search.run.like):
        asked, curve = search.asked_rank(rank)
        s, view, run = search.settings, search.view, search.run.at(asked)
        zeta0, gamma = (search.zeta0, s.gamma or PAPER_GAMMA) if s.outliers else (search.no_threshold, 1.0)
        # as in the paper: zeta decays to nothing, and each D_r is a truncated SVD to (nearly) full accuracy
        options = replace(search.options(zeta0, gamma, s.max_iter or _MOST_ITERATIONS), floor=0.0, svd_tol=1e-10)
        like = search.data.sample[2]
        xp = array_namespace(like)
        schedule = search.schedule(0.0, search.zeta0)
        sides = []
        steps = (search.steps.rows, search.steps.cols)
        at = ((view.rows, view.cols), (view.cols, view.rows))  # positions and chosen units of each side
        for block, (ids, chosen), step, factor in zip(blocks, at, steps, (0, 2), strict=True):
            # only its shape matters: the recursion has a basis W_k (V_k) for each iteration
            basis = xp.zeros((len(ids), asked), dtype=like.dtype, device=device_of(like))
            usable = xp.ones_like(basis[:, 0])
            task = Task(block, basis, usable, np.arange(block.n_units), ids, factor == 0, schedule, run)
            sides.append(PaperSide(task, others(chosen, block.n_units), step, factor))

        def assemble(core: Factors, coefficients: tuple[Array, Array]) -> CURMatrix:
            """X = left right^T with left[I] = W and right[J] = V diag(s); `coefficients` are of columns and of rows."""
            W, s, V = (bring(x, blocks[0].value) for x in core)
            left = join_units(W, coefficients[1] * invert(s), view.rows, view.shape[0])
            right = join_units(V * s, coefficients[0], view.cols, view.shape[1])
            return CURMatrix(left, right, view.rows, view.cols)

        run.progress.stage("Algorithm 1")
        with profiled("Algorithm 1", run.like):
            core, found = solve_paper(search.data_at(asked), (sides[0], sides[1]), asked, options, run, assemble)
        return search.with_groups(search.judged_given(core, gamma, curve, asked)), {"r": found[0], "c": found[1]}
