"""Attempts at a core: how each is made, checked and judged."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ..backends.arrays import array_namespace, device_name, free_memory, profiled
from ..backends.kernels import XP, RunContext
from ..backends.plain.loop import Factors
from ..backends.plain.regression import Schedule
from ..backends.plain.verdicts import FLOOR_SIGMAS
from ..core.gauss_newton import GAMMA as GAUSS_NEWTON_GAMMA
from ..core.gauss_newton import is_suited, solve_gauss_newton
from ..core.head_start import is_rich, solve_with_head_start
from ..core.history import RankCurve
from ..core.iteration import Checked, Core, CoreOptions, solve_core
from ..core.problem import CoreProblem, Steps, prepare
from ..core.recheck import recheck, without_contested
from ..core.stages import GAMMA, WIDER, solve_in_stages
from ..errors import ArgumentError
from ..judge.causes import Cause, Evidence
from ..judge.expected_error import core_facts
from ..judge.groups import Groups
from ..judge.identified import core_ties
from ..judge.verdict import ENOUGH_HELD, examine, is_certain, judge_core, judge_ties
from ..judge.words import Verdict
from ..options import Settings
from ..samples.view import CoreView
from .solved import SolvedCore

log = logging.getLogger("rcurc_gpu")

# gamma of the core and its iterations, after which zeta is near rounding (1e-14 to 1e-11 zeta_0). 0.8 is enough for easy
# problems and a third of the work; r = 20 with 30 % outliers needs 0.9; at the edge (10 observations per row and component)
# only slower ones recover. Held-out entries tell when an attempt was too fast.
_SCHEDULES = ((0.8, 150), (0.9, 300), (0.95, 500))
# gamma of the extension's regressions: about 14 steps, 25 of 27 cells at 1.5e-7 or better. Columns that it leaves wrong get
# slower passes (`extend.extension`).
EXTENSION_GAMMA = 0.4
# Share of the observations that is held out at most, unless the user wants more: a small core needs the rest for its fit.
_MOST_HELD = 0.1
_ACCURACY = 1e-2  # relative error below which structure in the residuals is no reason to doubt a core, if none is asked for
_FAR_APART = 1e3  # sums of squares may be some digits short: exact data with a value at 1e20 came out right in float32
_BEYOND = 1e6  # over the largest observation: a threshold that no residual exceeds unless the iteration diverges


def with_enough_held(settings: Settings, view: CoreView) -> Settings:
    """The settings, with a larger share held out of a small core: otherwise only its own fit would judge it.

    Small cores: 52 confirmed and none wrong, where it was 50 and 4 wrong without this.
    """
    if settings.holdout == 0:
        return settings
    enough = ENOUGH_HELD / max(view.intersection.block.n_obs, 1)
    return replace(settings, holdout=max(settings.holdout, min(enough, _MOST_HELD)))


def _check_range(largest: float, typical: float, dtype: Any) -> None:
    """Refuse observations so far apart that squares of both, in whatever unit, are no numbers."""
    name = "float32" if "32" in str(dtype) else "float64"
    most = _FAR_APART * float(np.finfo(name).tiny) ** -0.5
    if largest > most * typical:
        raise ArgumentError(
            "samples",
            f"must not have a value that is {largest / typical:.0e} times as large as the usual one: with {name}, at most "
            f"{most:.0e} times; if it stands for a missing one, leave it out (NaN, or a mask)",
        )


class CoreAttempts:
    """Attempts at the core of one solve, and the data they are made on.

    Parameters
    ----------
    view : CoreView
    settings : Settings
    run : RunContext
    """

    def __init__(self, view: CoreView, settings: Settings, run: RunContext) -> None:
        self.settings = s = with_enough_held(settings, view)
        self.view, self.run = view, replace(run, holdout=s.holdout)
        self.tried: dict[tuple[int, float, float, int], SolvedCore] = {}
        self.stages: dict[int, Core] = {}  # cores found one component after the other, by rank
        self.staged: dict[int, SolvedCore] = {}  # those of them that were judged
        self.by_steps: dict[tuple[int, str], SolvedCore] = {}  # by Gauss-Newton: rank, and after what
        steps = Steps(s.step_rows or 0.0, s.step_cols or 0.0, s.step_core or 0.0)
        if s.method == "paper":
            # eta = 0.75 / p: with the paper's 1 / p the iteration is slower or stalls
            steps = replace(steps, rows=steps.rows or 0.75 / view.rate_rows, cols=steps.cols or 0.75 / view.rate_cols)
        self.data, self.steps = prepare(view, steps, self.run)
        self.typical_size = self.data.sizes.median  # of entries that are not 0, if there are any
        if self.typical_size == 0:
            raise ValueError("all observations of the intersection are 0: there is nothing to recover")
        _check_range(max(view.largest), self.typical_size, self.data.sample[2].dtype)
        # zeta_0 = 5 medians: with 10, r = 20 and 20 % outliers of size 10 fail; with max|Y|, all outliers of size 100 do;
        # with 2, a real video does (19 dB instead of 51 to 53).
        self.zeta0 = 5 * self.typical_size if s.zeta0 is None else s.zeta0
        # Entries of very different size (dark and bright pixels, few large singular values): the median may be too small
        # to begin with. Larger thresholds let outliers in, so they come later.
        self.other_zeta0 = [] if s.zeta0 is not None else [5 * self.data.sizes.mean, 20 * self.typical_size]
        self.no_threshold = 0.0 if s.outliers else _BEYOND * max(view.largest)

    def options(self, zeta0: float, gamma: float, max_iter: int) -> CoreOptions:
        """How the core iterates."""
        return CoreOptions(zeta0, gamma, self.steps.rows, self.steps.cols, self.settings.tol, max_iter)

    @cached_property
    def _plain_data(self) -> CoreProblem:
        """The intersection for plain code."""
        return replace(self.data, grid=XP.make_grid(self.data.block, self.data.weight, self.run.chunk_bytes))

    def data_at(self, rank: int) -> CoreProblem:
        """The intersection in the layout of the kernels for `rank`."""
        return self.data if self.run.at(rank) is self.run else self._plain_data

    def _attempt(self, rank: int, zeta0: float, gamma: float, max_iter: int) -> SolvedCore:
        key = (rank, zeta0, gamma, max_iter)
        if key not in self.tried:  # the choice of the rank may have tried it
            core = self._solve_core(rank, zeta0, gamma, max_iter)
            self.tried[key] = self.judged(core, self.schedule(core.sigma, zeta0), gamma)
        return self.tried[key]

    def _solve_core(self, rank: int, zeta0: float, gamma: float, max_iter: int, start: Factors | None = None) -> Core:
        options = replace(self.options(zeta0, gamma, max_iter), rests=self.settings.resolution > 0)
        self.run.progress.stage(f"core, rank {rank}")
        step = self.run.step(f"core, rank {rank}, zeta0 {zeta0!r}, gamma {gamma!r}")
        with profiled(f"core, rank {rank}", self.run.like):
            return solve_core(self.data_at(rank), rank, options, self.run, start, step)

    def _may_start_ahead(self, rank: int) -> bool:
        # a user who limits or watches the iterations means those of the whole intersection
        return self.settings.max_iter is None and self.settings.callback is None and is_rich(self.data, rank)

    def _head_start(self, rank: int) -> list[SolvedCore]:
        """An attempt that begins with a part of the intersection; none if the part does not settle."""
        zeta0, gamma, max_iter = self._schedules()[0]
        run, options = self.run.at(rank), self.options(zeta0, gamma, max_iter)
        run.progress.stage(f"core, rank {rank}")
        try:
            with profiled(f"core, rank {rank}", run.like):
                core = solve_with_head_start(
                    self.data_at(rank), rank, options, lambda sigma: self.schedule(sigma, zeta0), run
                )
        except MemoryError:  # it takes more than the core alone, which may still fit
            free_memory(run.like)
            return []
        return [] if core is None else [self.judged(core, self.schedule(core.sigma, zeta0), gamma)]

    def _may_go_in_stages(self, rank: int) -> bool:
        return rank > 1 and self._is_free()

    def _is_free(self) -> bool:
        """Whether the user left it to the solver how the core is found."""
        s = self.settings
        return s.outliers and s.gamma is None and s.zeta0 is None and s.max_iter is None

    def _may_take_steps(self, attempt: SolvedCore) -> bool:
        """Whether Gauss-Newton steps may do better than an attempt: not where only noise leaves rows undetermined."""
        if attempt.verdict.ok or (attempt.verdict.cause is Cause.UNDETERMINED and attempt.noisy):
            return False
        return self._steps_are_suited()

    def _steps_are_suited(self) -> bool:
        """Whether Gauss-Newton steps are for these data, and the user leaves it to the solver how the core is found."""
        s = self.settings
        # a resolution is for videos, which are never exact; whoever gives step sizes wants gradients
        gradients = s.resolution > 0 or s.step_rows or s.step_cols or s.step_core
        return self._is_free() and not gradients and is_suited(self.data) and not self.run.progress.ended

    def _gauss_newton(self, rank: int, start: Core | None = None, after: str = "") -> SolvedCore:
        """An attempt by Gauss-Newton steps, from a spectral guess or from a core, or a part of it, found `after` what."""
        key = (rank, after)
        if key not in self.by_steps:
            self.by_steps[key] = self._judged_steps(self._steps_from(rank, start, after))
        return self.by_steps[key]

    def _steps_from(self, rank: int, start: Core | None, after: str, most_outliers: float = 1.0) -> Core:
        self.run.progress.stage(f"core, rank {rank}")
        step = self.run.step(f"core, rank {rank}, Gauss-Newton{after and f' after {after}'}")
        begin = None if start is None else (start.W[:, :rank], start.s[:rank], start.V[:, :rank])
        with profiled(f"core, rank {rank}", self.run.like):
            return solve_gauss_newton(self.data_at(rank), rank, self.run.at(rank), begin, step, most_outliers)

    def _judged_steps(self, core: Core) -> SolvedCore:
        return self.judged(core, self.schedule(core.sigma, self.zeta0), GAUSS_NEWTON_GAMMA)

    def _in_stages(self, rank: int) -> SolvedCore:
        """An attempt one component after the other."""

        def solve(rank: int, before: Core | None, start: Factors | None) -> Core:
            if before is None:  # the first stage begins as any other attempt
                return self._solve_core(rank, *self._schedules()[0])
            return self._solve_core(rank, WIDER * before.threshold, GAMMA, _SCHEDULES[0][1], start)

        if rank not in self.staged:
            core = solve_in_stages(rank, self.stages, solve, lambda: self.run.progress.ended)
            self.staged[rank] = self.judged(core, self.schedule(core.sigma, self.zeta0), GAMMA)
        return self.staged[rank]

    def _schedules(self) -> list[tuple[float, float, int]]:
        """(zeta0, gamma, max_iter) to try, in this order."""
        decays = self._decays()
        first = [(self.zeta0, gamma, max_iter) for gamma, max_iter in decays]
        if not self.settings.outliers:  # first without a threshold; if that overshoots, with one, as if there were outliers
            first.insert(0, (self.no_threshold, 1.0, decays[0][1]))
        return first + [(zeta0, *decays[min(1, len(decays) - 1)]) for zeta0 in self.other_zeta0]

    def _decays(self) -> list[tuple[float, int]]:
        """(gamma, max_iter) to try, in this order."""
        s = self.settings
        return [
            (gamma, s.max_iter or max_iter) for gamma, max_iter in (_SCHEDULES if s.gamma is None else ((s.gamma, 500),))
        ]

    def judged(self, core: Core, schedule: Schedule, gamma: float, mend: bool = True) -> SolvedCore:
        """Check the rows and columns of a core, `mend` those that are wrong if asked to, and give a verdict."""
        s, data, run = self.settings, self.data_at(core.rank), self.run.at(core.rank)
        # Mend before rivals are counted: a row that is wrong in the core rejects most of its entries.
        checked = recheck(self.view, data, core, schedule, run, mend and s.outliers)
        consensus = None
        if s.outliers:
            checked, consensus = without_contested(data, checked, schedule, run)
        evidence = examine(data, checked[0], schedule, s.seed, self._structure)
        cut_short = s.max_iter is not None or run.progress.ended
        verdict = judge_core(checked, evidence, self._structure, gamma, cut_short)
        groups = None
        if verdict.cause in (Cause.RANK_TOO_LARGE, Cause.UNEXPLAINED) and is_certain(evidence, checked[0]):
            evidence = self._with_single_rows(evidence, checked, schedule)
            verdict = judge_core(checked, evidence, self._structure, gamma, cut_short)
        if verdict.cause in (Cause.NONE, Cause.UNDETERMINED):  # else it is not believed anyway
            ties, checked = core_ties(data, checked, schedule.floor, run)
            verdict = judge_core(checked, evidence, self._structure, gamma, cut_short)
            verdict, groups = judge_ties(ties, checked[0], self.typical_size) or (verdict, None)
        text = "rank %d: %s after %d iterations with gamma %g; %d components confirmed, %.1e of held-out entries unexplained"
        facts = (core.rank, verdict.cause or "settled", len(core.history), gamma, evidence.supported, evidence.unexplained)
        log.info(text, *facts)
        return self._solved(checked, schedule, consensus, evidence, verdict, gamma, groups)

    def _solved(
        self,
        checked: Checked,
        schedule: Schedule,
        consensus: float | None,
        evidence: Evidence,
        verdict: Verdict,
        gamma: float,
        groups: Groups | None,
    ) -> SolvedCore:
        """A core with all that is known of it."""
        facts = core_facts(self.data, checked[0], evidence.near_square)
        s, run = self.settings, self.run.at(checked[0].rank)
        return SolvedCore(
            *checked,
            schedule,
            consensus,
            evidence,
            verdict,
            gamma,
            facts,
            s,
            self.typical_size,
            self.no_threshold,
            device_name(run.like),
            run.kernels.name,
            groups=groups,
        )

    def _with_single_rows(self, evidence: Evidence, checked: Checked, schedule: Schedule) -> Evidence:
        """Components that live in one row or column, where few entries are held out, count if others agree with them.

        One that was made by the outliers of a row would rest on these alone, each column's share in it on one of them.
        """
        rank = checked[0].rank
        ties, again = core_ties(self.data_at(rank), checked, schedule.floor, self.run.at(rank))
        alone = any(np.any(new.status != old.status) for new, old in zip(again[1:], checked[1:], strict=True))
        return evidence if ties.free or alone else replace(evidence, supported=rank)

    def judged_given(self, core: Core, gamma: float, curve: RankCurve | None, asked: int) -> SolvedCore:
        """Judge a core of another method as it is: nothing is mended."""
        schedule = self.schedule(core.sigma, self.zeta0)
        # An entry agrees if its residual is below the last threshold of the iteration. Where there is none, below three
        # times what e_k allows if all of it sits in one row or column.
        near = core.threshold
        if not self.settings.outliers:
            worst = 3 * (max(self.view.shape) * core.history[-1].error) ** 0.5
            near = min(worst, self.accuracy) * self.typical_size
        schedule = replace(schedule, floor=max(schedule.floor, near))
        return replace(self.judged(core, schedule, gamma, mend=False), curve=curve, asked=asked)

    def schedule(self, sigma: float, zeta0: float) -> Schedule:
        """Thresholds zeta of the extension: down to the noise, or to what rounding leaves."""
        eps = float(array_namespace(self.data.sample[2]).finfo(self.data.sample[2].dtype).eps)
        # half of the digits: a regression of ill-conditioned columns loses as many
        floor = max(FLOOR_SIGMAS * sigma, eps**0.5 * self.typical_size)
        if zeta0 == self.no_threshold:  # the core used no threshold; here it only judges
            zeta0 = self.zeta0
        return Schedule(max(zeta0, floor), floor, EXTENSION_GAMMA)

    @property
    def accuracy(self) -> float:
        """Relative error that is good enough for a core without noise."""
        return _ACCURACY if self.settings.accuracy is None else self.settings.accuracy

    @cached_property
    def _structure(self) -> float:
        """Structure that may be left in the residuals, relative to X.

        A tenth of the accuracy: thresholds clip the residuals, so ten times as much may be there.
        """
        return max(0.1 * self.accuracy, self.settings.resolution / self.data.sizes.square**0.5)
