"""One solve: samples -> core -> extension -> CUR, in this order."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import cached_property

import numpy as np

from .attempt import NOISELESS, Attempt, beyond_all, resigned
from .backend import (
    Array,
    array_namespace,
    bring,
    device_name,
    device_of,
    free_memory,
    profiled,
    quantile_abs,
)
from .block import others
from .checkpoint import Checkpoint
from .core import Core, CoreOptions, solve_core
from .core import Factors as CoreFactors
from .core_data import CoreData, prepare
from .cur import CURMatrix, blank_rows, join_units
from .diagnostics import join_diagnostics
from .expect import expected_error
from .extend import FLOOR_SIGMAS, Extension, Task, extend, measure
from .fused import XP, choose
from .head_start import is_rich, solve_with_head_start
from .judge import Evidence, examine, judge_core, judge_result
from .operators import invert
from .paper import Side, solve_paper
from .progress import Progress
from .rank import RankCurve, choose_rank
from .refine import Factors, sweep
from .regress import Schedule
from .repair import CheckedCore, check_core
from .result import Result
from .samples import CrossSamples
from .settings import Settings

log = logging.getLogger("rcurc_gpu")

# Decay of the core's threshold and iterations to grant it. The fast one is enough for most problems; the held-out entries
# say when it was not.
_SCHEDULES = ((0.8, 150), (0.9, 300), (0.95, 500))
_EXTENSION_GAMMA = 0.4
PAPER_GAMMA = 0.9  # of method="paper"
_SWEEPS = 1


class Solve:
    """One solve: its data, settings and clock."""

    def __init__(
        self, samples: CrossSamples, settings: Settings, show: Progress, like: Array, checkpoint: Checkpoint | None = None
    ) -> None:
        self.samples, self.settings, self.show, self.like = samples, settings, show, like
        self.checkpoint = checkpoint
        self.started = time.perf_counter() - (checkpoint.elapsed if checkpoint is not None else 0.0)
        self.tried: dict[tuple[int, float, float, int], Attempt] = {}
        s = settings
        steps = (s.step_rows, s.step_cols)
        if s.method == "paper":
            steps = (s.step_rows or 0.75 / samples.rate_rows, s.step_cols or 0.75 / samples.rate_cols)
        self.kernels = choose(s.kernels, like)
        self.data, *self.steps = prepare(
            samples, steps[0], steps[1], s.holdout, s.seed, s.chunk_bytes, self.kernels, like, s.step_core
        )
        y = self.data.sample[2]
        xp = array_namespace(y)
        nonzero = y[y != 0]
        if nonzero.shape[0] == 0:
            raise ValueError("all observations of the intersection are 0: there is nothing to recover")
        self.typical = float(quantile_abs(nonzero))
        self.zeta0 = 5 * self.typical if s.zeta0 is None else s.zeta0
        # Entries of very different size (dark and bright pixels, few large singular values): the median may be too small
        # to begin with. Larger ones let outliers in, so they come later.
        self.other_zeta0 = [] if s.zeta0 is not None else [5 * float(xp.mean(xp.abs(y))), 20 * self.typical]
        self.beyond_all = 0.0 if s.outliers else beyond_all(samples)

    def clock(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.started

    @cached_property
    def _plain_data(self) -> CoreData:
        """The intersection for plain code."""
        return replace(self.data, grid=XP.make_grid(self.data.block, self.data.weight, self.settings.chunk_bytes))

    def _data_at(self, rank: int) -> CoreData:
        """The intersection as the kernels for `rank` want it."""
        return self.data if self.kernels.at(rank) is self.kernels else self._plain_data

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

    # ------------------------------------------------------------ core

    def _core(self, rank: int) -> Attempt:
        """Solve the core: fast first, slower while the held-out entries disagree, smaller if they confirm less."""
        known = self.tried.get((rank, *self._schedules()[0]))
        if known is not None and known.verdict.ok:
            return known
        attempts: list[Attempt] = []
        # Who counts or watches the iterations means those of the whole intersection.
        if self.settings.max_iter is None and self.settings.callback is None and is_rich(self.data, rank):
            attempts += self._head_start(rank)
            if attempts and attempts[0].verdict.ok:
                return attempts[0]
        for zeta0, gamma, max_iter in self._schedules():
            attempts.append(self._attempt(rank, zeta0, gamma, max_iter))
            if attempts[-1].verdict.ok or self.show.ended or resigned(attempts[-2:], self.typical):
                break
        # A smaller rank is for when no attempt confirms the one asked for, or when it explains as much.
        too_large = [attempt for attempt in attempts if attempt.verdict.cause == "rank too large"]
        while too_large and not self.show.ended:
            smaller = self._attempt(too_large.pop().evidence.supported, self.zeta0, *self._decays()[0])
            if smaller.verdict.ok and smaller.evidence.held_share >= attempts[-1].evidence.held_share - 0.02:
                return smaller
            too_large = [smaller] if smaller.verdict.cause == "rank too large" else []
        return min(attempts, key=Attempt.score)

    def _schedules(self) -> list[tuple[float, float, int]]:
        """(zeta0, gamma, max_iter) to try, in this order."""
        decays = self._decays()
        first = [(self.zeta0, gamma, max_iter) for gamma, max_iter in decays]
        if not self.settings.outliers:  # nothing is cut off, unless that overshoots: then early steps are, as with outliers
            first.insert(0, (self.beyond_all, 1.0, decays[0][1]))
        return first + [(zeta0, *decays[min(1, len(decays) - 1)]) for zeta0 in self.other_zeta0]

    def _decays(self) -> list[tuple[float, int]]:
        """(gamma, max_iter) to try, in this order."""
        s = self.settings
        return [
            (gamma, s.max_iter or max_iter) for gamma, max_iter in (_SCHEDULES if s.gamma is None else ((s.gamma, 500),))
        ]

    def _attempt(self, rank: int, zeta0: float, gamma: float, max_iter: int) -> Attempt:
        key = (rank, zeta0, gamma, max_iter)
        if key in self.tried:  # when the rank was chosen
            return self.tried[key]
        s = self.settings
        options = CoreOptions(zeta0, gamma, self.steps[0], self.steps[1], s.tol, max_iter)
        self.show.stage(f"core, rank {rank}")
        with profiled(f"core, rank {rank}", self.like):
            memory = None if self.checkpoint is None else self.checkpoint.step("core")
            core = solve_core(self._data_at(rank), rank, options, s.seed, self.clock, self.show.iteration, memory=memory)
        self.tried[key] = self._judge(core, self._schedule(core.sigma, zeta0), gamma)
        return self.tried[key]

    def _head_start(self, rank: int) -> list[Attempt]:
        """An attempt that begins with a quarter of the intersection, if that settles."""
        zeta0, gamma, max_iter = self._schedules()[0]
        options = CoreOptions(zeta0, gamma, self.steps[0], self.steps[1], self.settings.tol, max_iter)
        self.show.stage(f"core, rank {rank}")
        try:
            with profiled(f"core, rank {rank}", self.like):
                core = solve_with_head_start(
                    self._data_at(rank),
                    rank,
                    options,
                    lambda sigma: self._schedule(sigma, zeta0),
                    self.settings.seed,
                    self.clock,
                    self.show.iteration,
                    self.kernels.at(rank),
                    self.settings.chunk_bytes,
                    self.checkpoint,
                )
        except MemoryError:  # it takes some more than the core alone
            free_memory(self.like)
            return []
        return [] if core is None else [self._judge(core, self._schedule(core.sigma, zeta0), gamma)]

    def _judge(self, core: Core, schedule: Schedule, gamma: float, mend: bool = True) -> Attempt:
        s = self.settings
        data, kernels = self._data_at(core.rank), self.kernels.at(core.rank)
        mend = mend and s.outliers
        checked = check_core(self.samples, data, core, schedule, s.holdout, s.seed, s.chunk_bytes, kernels, mend)
        evidence = examine(data, checked.core, schedule, s.seed)
        cut_short = s.max_iter is not None or self.show.ended
        verdict = judge_core(checked, evidence, self._structure, gamma, cut_short)
        log.info(
            "rank %d: %s after %d iterations with gamma %g; %d components confirmed, %.1e of held-out entries unexplained",
            core.rank,
            verdict.cause or "settled",
            len(core.history),
            gamma,
            evidence.supported,
            evidence.unexplained,
        )
        return Attempt(checked, evidence, verdict, gamma)

    def _schedule(self, sigma: float, zeta0: float) -> Schedule:
        """Thresholds of the extension: down to the noise, or to what rounding leaves of it."""
        eps = float(array_namespace(self.data.sample[2]).finfo(self.data.sample[2].dtype).eps)
        floor = max(FLOOR_SIGMAS * sigma, eps**0.5 * self.typical)
        if zeta0 == self.beyond_all:  # the core cut nothing off, and thresholds only judge
            zeta0 = self.zeta0
        return Schedule(max(zeta0, floor), floor, _EXTENSION_GAMMA)

    def choose_rank(self) -> RankCurve:
        """Find the rank that held-out entries of the core confirm."""
        largest = max(min(int(np.median(self.samples.intersection.block.counts)) // 4, *self.data.grid.shape, 128), 1)

        def evaluate(rank: int) -> Evidence:
            zeta0, gamma, max_iter = self._schedules()[0]
            attempt = self._attempt(rank, zeta0, gamma, max_iter)
            if attempt.verdict.cause in ("overfit", "not settled", "undetermined") and len(self._decays()) > 1:
                attempt = min(attempt, self._attempt(rank, zeta0, *self._decays()[1]), key=Attempt.score)
            return attempt.evidence

        quartile = float(quantile_abs(self.data.sample[2], 0.25))
        zero = 0.5 * self.settings.resolution / quartile if quartile > 0 else 0.0
        return choose_rank(evaluate, largest, self._structure, zero)

    @cached_property
    def _structure(self) -> float:
        """What may be left in the residuals, relative to X: thresholds clip them, so ten times as much may be there."""
        y = self.data.sample[2]
        size = float(array_namespace(y).mean(y * y)) ** 0.5
        return max(0.1 * self.settings.accuracy, self.settings.resolution / size)

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
        everything = replace(task, schedule=Schedule(self.beyond_all, self.beyond_all, _EXTENSION_GAMMA))
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
