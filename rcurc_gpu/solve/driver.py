"""One solve: samples -> core -> extension -> CUR, in this order."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from ..backends.arrays import Array, array_namespace, bring, device_of, profiled
from ..backends.blocks import blank_rows, join_units, others
from ..backends.operators import invert
from ..backends.plain.regression import Schedule
from ..core.iteration import Core, CoreOptions
from ..core.iteration import Factors as CoreFactors
from ..core.paper import Side, solve_paper
from ..core.recheck import CheckedCore
from ..extend.diagnostics import Summary, join_diagnostics
from ..extend.sweeps import Factors, sweep
from ..extend.tasks import Extension, Task, extend, measure
from ..judge.rank import RankCurve
from ..result.matrix import CURMatrix
from ..result.result import Result
from ..samples.cross import CrossSamples
from .conclude import conclude
from .found import FoundCore
from .search import EXTENSION_GAMMA, CoreSolve

log = logging.getLogger("rcurc_gpu")

PAPER_GAMMA = 0.9  # of method="paper"


class Solve(CoreSolve):
    """One solve: samples -> core -> extension -> CUR."""

    samples: CrossSamples

    def run(self, rank: int | str) -> Result:
        """samples -> core -> extension -> CUR."""
        if self.settings.method == "paper":
            rank, curve = self._rank(rank)
            return self.conclude_given(*self._paper(rank), curve, rank)
        found = self.find(rank)
        factors = self._factors(found.checked, *self._extend(found.checked))
        return self._conclude(found, self._refine(found, factors))

    def conclude_given(
        self, core: Core, gamma: float, coefficients: tuple[Array, Array], curve: RankCurve | None, asked: int
    ) -> Result:
        """Judge a core, and coefficients of the columns and rows outside of it, that were found otherwise.

        They are looked at as they are: nothing is mended.
        """
        schedule = self._schedule(core.sigma, self.zeta0)
        # Agreement is what the iteration itself went for: a residual below its last threshold. Where it has none, below
        # what e_k allows if all of it sits in one row or column.
        near = core.threshold
        if not self.settings.outliers:
            worst = 3 * (max(self.samples.shape) * core.history[-1].error) ** 0.5
            near = min(worst, self.settings.accuracy) * self.typical
        schedule = replace(schedule, floor=max(schedule.floor, near))
        attempt = self._judge(core, schedule, gamma, mend=False)
        factors = self._factors(attempt.checked, *self._measured(attempt.checked, coefficients))
        return self._conclude(self.found(attempt, curve, asked), factors)

    # ------------------------------------------------------------ extension

    def _tasks(self, W: Array, V: Array, usable: tuple[Array, Array], schedule: Schedule) -> tuple[Task, Task]:
        """Columns of R on W and rows of C on V; `usable` has weights for the rows of W and of V."""
        s, samples = self.settings, self.samples
        rest = (s.holdout, s.seed, schedule, s.chunk_bytes, self.kernels.at(W.shape[1]))
        cols = Task(samples.r_block, W, usable[0], np.arange(samples.shape[1]), samples.rows, True, *rest)
        rows = Task(samples.c_block, V, usable[1], np.arange(samples.shape[0]), samples.cols, False, *rest)
        return replace(cols, checkpoint=self.checkpoint), replace(rows, checkpoint=self.checkpoint)

    def _tasks_of(self, checked: CheckedCore) -> tuple[Task, Task]:
        usable = (checked.usable_rows, checked.usable_cols)
        tasks = self._tasks(checked.core.W, checked.core.V, usable, checked.schedule)
        return replace(tasks[0], agreeing=checked.agreeing), replace(tasks[1], agreeing=checked.agreeing)

    def _others(self) -> tuple[np.ndarray, np.ndarray]:
        """Columns outside of J and rows outside of I."""
        n1, n2 = self.samples.shape
        return others(self.samples.cols, n2), others(self.samples.rows, n1)

    def _extend(self, checked: CheckedCore) -> tuple[Extension, Extension]:
        extensions = []
        for name, task, units in zip(("columns", "rows"), self._tasks_of(checked), self._others(), strict=True):
            self.show.stage(name, len(units))
            with profiled(name, self.like):
                extensions.append(self._extend_one(task, units))
        return extensions[0], extensions[1]

    def _extend_one(self, task: Task, units: np.ndarray) -> Extension:
        if self.settings.outliers:
            return extend(task, units, report=self.show.advance)
        everything = replace(task, schedule=Schedule(self.no_threshold, self.no_threshold, EXTENSION_GAMMA))
        return measure(task, units, extend(everything, units, report=self.show.advance, once=True).coefficients)

    def _paper(self, rank: int) -> tuple[Core, float, tuple[Array, Array]]:
        s = self.settings
        zeta0, gamma = (self.zeta0, s.gamma or PAPER_GAMMA) if s.outliers else (self.no_threshold, 1.0)
        options = CoreOptions(zeta0, gamma, self.steps[0], self.steps[1], s.tol, s.max_iter or 300, floor=0.0, svd_tol=1e-10)
        like = self.data.sample[2]
        xp = array_namespace(like)
        # the recursion brings its own bases, one for each iteration
        bases = [xp.zeros((k, rank), dtype=like.dtype, device=device_of(like)) for k in self.data.grid.shape]
        everything = (xp.ones_like(bases[0][:, 0]), xp.ones_like(bases[1][:, 0]))
        tasks = self._tasks(bases[0], bases[1], everything, self._schedule(0.0, self.zeta0))
        cols, rows = (Side(*parts) for parts in zip(tasks, self._others(), self.steps, (0, 2), strict=True))
        self.show.stage("Algorithm 1")
        with profiled("Algorithm 1", self.like):
            core, coefficients = solve_paper(
                self._data_at(rank),
                (cols, rows),
                rank,
                options,
                s.seed,
                self.clock,
                self._matrix,
                self.show.iteration,
                self.show.advance,
            )
        return core, gamma, coefficients

    def _measured(self, checked: CheckedCore, coefficients: tuple[Array, Array]) -> tuple[Extension, Extension]:
        """Diagnostics of coefficients that were found otherwise."""
        tasks, units = self._tasks_of(checked), self._others()
        return measure(tasks[0], units[0], coefficients[0]), measure(tasks[1], units[1], coefficients[1])

    def _matrix(self, core: CoreFactors, coefficients: tuple[Array, Array]) -> CURMatrix:
        """X = left right^T with left[I] = W and right[J] = V diag(s); `coefficients` are of columns and of rows."""
        samples = self.samples
        n1, n2 = samples.shape
        W, s, V = (bring(x, samples.r_block.value) for x in core)
        left = join_units(W, coefficients[1] * invert(s), samples.rows, n1)
        right = join_units(V * s, coefficients[0], samples.cols, n2)
        return CURMatrix(left, right, samples.rows, samples.cols)

    def _factors(self, checked: CheckedCore, columns: Extension, rows: Extension) -> Factors:
        samples, core = self.samples, checked.core
        n1, n2 = samples.shape
        matrix = self._matrix((core.W, core.s, core.V), (columns.coefficients, rows.coefficients))
        return Factors(
            matrix.left,
            matrix.right,
            join_diagnostics(checked.rows, rows.diagnostics, samples.rows, n1),
            join_diagnostics(checked.cols, columns.diagnostics, samples.cols, n2),
            (columns, rows),
        )

    def _refine(self, found: FoundCore, factors: Factors) -> Factors:
        s, sweeps = self.settings, found.sweeps
        if sweeps == 0:
            return factors
        flipped = (self.samples.r_block.transpose(), self.samples.c_block.transpose())
        self.show.stage("sweeps", sweeps)
        for _ in range(sweeps):
            rest = (s.holdout, s.seed, s.chunk_bytes, self.kernels.at(found.checked.core.rank), self.like, self.checkpoint)
            with profiled("sweep", self.like):
                factors = sweep(self.samples, factors, flipped, found.checked.schedule, *rest)
            self.show.advance(1)
        return factors

    # ------------------------------------------------------------ verdict

    def _conclude(self, found: FoundCore, factors: Factors) -> Result:
        left, right = factors.left, factors.right
        if self.settings.undetermined == "nan":
            left, right = blank_rows(left, factors.rows.undetermined), blank_rows(right, factors.cols.undetermined)
        outside = tuple(Summary.of(e.diagnostics, e.n_held, e.n_consensus) for e in factors.extensions)
        return conclude(
            found,
            (left, right),
            factors.cols,
            factors.rows,
            (Summary.of(factors.cols), Summary.of(factors.rows)),
            (outside[0], outside[1]),
            factors.swept,
            self.samples,
            self.clock(),
        )
