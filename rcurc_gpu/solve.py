"""One solve: samples -> core -> extension -> CUR, in this order."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from .attempt import NOISELESS, Attempt
from .backend import (
    Array,
    array_namespace,
    bring,
    device_name,
    device_of,
    profiled,
)
from .block import others
from .core import Core, CoreOptions
from .core import Factors as CoreFactors
from .core_solve import EXTENSION_GAMMA, CoreSolve
from .cur import CURMatrix, blank_rows, join_units
from .diagnostics import join_diagnostics
from .expect import expected_error
from .extend import Extension, Task, extend, measure
from .judge import judge_result
from .operators import invert
from .paper import Side, solve_paper
from .rank import RankCurve
from .refine import Factors, sweep
from .regress import Schedule
from .repair import CheckedCore
from .result import Result

log = logging.getLogger("rcurc_gpu")

PAPER_GAMMA = 0.9  # of method="paper"
_SWEEPS = 1


class Solve(CoreSolve):
    """One solve: samples -> core -> extension -> CUR."""

    def run(self, rank: int | str) -> Result:
        """samples -> core -> extension -> CUR."""
        curve = None
        if rank == "auto":
            curve = self.choose_rank()
            rank = curve.chosen
            log.info("rank %d chosen, of %s", rank, ", ".join(map(str, curve.ranks)))
        assert isinstance(rank, int)
        if self.settings.method == "paper":
            return self.conclude_given(*self._paper(rank), curve, rank)
        attempt = self._core(rank)
        factors = self._factors(attempt.checked, *self._extend(attempt.checked))
        return self._conclude(attempt, self._refine(attempt, factors), curve, rank)

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
        return self._conclude(attempt, factors, curve, asked)

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
        return self._tasks(checked.core.W, checked.core.V, usable, checked.schedule)

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
        everything = replace(task, schedule=Schedule(self.beyond_all, self.beyond_all, EXTENSION_GAMMA))
        return measure(task, units, extend(everything, units, report=self.show.advance, once=True).coefficients)

    def _paper(self, rank: int) -> tuple[Core, float, tuple[Array, Array]]:
        s = self.settings
        zeta0, gamma = (self.zeta0, s.gamma or PAPER_GAMMA) if s.outliers else (self.beyond_all, 1.0)
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

    def _refine(self, attempt: Attempt, factors: Factors) -> Factors:
        s, core = self.settings, attempt.checked.core
        noisy = attempt.verdict.cause in ("", "undetermined") and core.sigma > NOISELESS * self.typical
        sweeps = (_SWEEPS if noisy else 0) if s.sweeps is None else s.sweeps
        if sweeps == 0:
            return factors
        flipped = (self.samples.r_block.transpose(), self.samples.c_block.transpose())
        self.show.stage("sweeps", sweeps)
        for _ in range(sweeps):
            rest = (s.holdout, s.seed, s.chunk_bytes, self.kernels.at(core.rank), self.like, self.checkpoint)
            with profiled("sweep", self.like):
                factors = sweep(self.samples, factors, flipped, attempt.checked.schedule, *rest)
            self.show.advance(1)
        return factors

    # ------------------------------------------------------------ verdict

    def _conclude(self, attempt: Attempt, factors: Factors, curve: RankCurve | None, asked: int) -> Result:
        s, checked = self.settings, attempt.checked
        expected = expected_error(self.samples, self.data, checked.core, factors)
        verdict = judge_result(
            attempt.verdict, factors.cols, factors.rows, factors.extensions, checked.schedule, expected, s.accuracy
        )
        message = verdict.message
        if curve is not None:
            curve = replace(curve, chosen=checked.core.rank)
            message = message.replace(" or rank='auto'", "")  # that is what was done
        elif checked.core.rank < asked and verdict.cause in ("", "undetermined", "noise"):
            message = (
                f"Rank {asked} was asked for, but the held-out entries confirm only rank {checked.core.rank}, which was "
                f"used. {message}"
            )
        if not (verdict.ok or s.outliers):
            message += " All observations were taken for right; if some are outliers, use rcurc."
        left, right = factors.left, factors.right
        if s.undetermined == "nan":
            left, right = blank_rows(left, factors.rows.undetermined), blank_rows(right, factors.cols.undetermined)
        return Result(
            cur=CURMatrix(left, right, self.samples.rows, self.samples.cols),
            converged=verdict.ok,
            message=message,
            cause=verdict.cause,
            history=checked.core.history,
            columns=factors.cols,
            rows=factors.rows,
            noise=checked.core.sigma,
            threshold=checked.schedule.floor,
            expected_error=expected,
            rank_curve=curve,
            method=s.method,
            device=device_name(self.like),
            kernels=self.kernels.at(checked.core.rank).name,
            seconds=self.clock(),
            samples=self.samples,
            schedule=checked.schedule,
            chunk_bytes=s.chunk_bytes,
        )
