"""The core of a solve: which attempts are made, in which order, and which one is believed."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..backends.arrays import Array, array_namespace, device_name, free_memory, profiled, quantile_abs
from ..backends.kernels import XP, choose
from ..backends.plain.regression import Schedule
from ..core.head_start import is_rich, solve_with_head_start
from ..core.iteration import Core, CoreOptions, Factors, solve_core
from ..core.problem import CoreData, prepare
from ..core.recheck import check_core, without_contested
from ..core.stages import GAMMA, WIDER, solve_in_stages
from ..extend.typical import FLOOR_SIGMAS
from ..judge.expected_error import core_facts
from ..judge.rank import WORTH, RankCurve, choose_rank
from ..judge.verdict import ENOUGH_HELD, examine, judge_core
from ..judge.words import Evidence
from ..options import Settings
from ..progress import Progress
from ..samples.cross import CoreView, CrossSamples
from .attempts import Attempt, no_threshold, resigned
from .checkpoint import Checkpoint
from .found import FoundCore

log = logging.getLogger("rcurc_gpu")

# Decay of the core's threshold and iterations to grant it. The fast one is enough for most problems; the held-out entries
# say when it was not.
_SCHEDULES = ((0.8, 150), (0.9, 300), (0.95, 500))
EXTENSION_GAMMA = 0.4
_MOST_HELD = 0.1  # share of the observations that is held out at most, unless the user wants more
_STAGED = 8  # largest rank that the choice of the rank tries one component after the other


class CoreSolve:
    """The first half of a solve: its data, settings and clock, and the core."""

    def __init__(
        self,
        samples: CrossSamples | CoreView,
        settings: Settings,
        show: Progress,
        like: Array,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        if settings.holdout > 0:  # a small core needs a larger share of it to be judged by anything but itself
            enough = ENOUGH_HELD / max(samples.intersection.block.n_obs, 1)
            settings = replace(settings, holdout=max(settings.holdout, min(enough, _MOST_HELD)))
        self.samples: CrossSamples | CoreView = samples
        self.settings, self.show, self.like = settings, show, like
        self.checkpoint = checkpoint
        self.started = time.perf_counter() - (checkpoint.elapsed if checkpoint is not None else 0.0)
        self.tried: dict[tuple[int, float, float, int], Attempt] = {}
        self.stages: dict[int, Core] = {}  # cores found one component after the other, by rank,
        self.staged: dict[int, Attempt] = {}  # and those of them that were judged
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
        self.no_threshold = 0.0 if s.outliers else no_threshold(samples)

    def find(self, rank: int | str) -> FoundCore:
        """The core at a rank, or at one that is chosen."""
        asked, curve = self._rank(rank)
        return self.found(self._core(asked), curve, asked)

    def found(self, attempt: Attempt, curve: RankCurve | None, asked: int) -> FoundCore:
        """An attempt with all that the rest of the solve needs."""
        core = attempt.checked.core
        return FoundCore(
            attempt.checked,
            attempt.verdict,
            core_facts(self.data, core),
            curve,
            asked,
            self.settings,
            self.typical,
            self.no_threshold,
            device_name(self.like),
            self.kernels.at(core.rank).name,
        )

    def _rank(self, rank: int | str) -> tuple[int, RankCurve | None]:
        """The rank to try, and how it was chosen."""
        if isinstance(rank, int):
            return rank, None
        curve = self.choose_rank()
        log.info("rank %d chosen, of %s", curve.chosen, ", ".join(map(str, curve.ranks)))
        return curve.chosen, curve

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

    def _core(self, rank: int) -> Attempt:
        """Solve the core: fast first, slower while the held-out entries disagree, smaller if they confirm less."""
        for known in (self.tried.get((rank, *self._schedules()[0])), self.staged.get(rank)):  # when the rank was chosen
            if known is not None and known.verdict.ok:
                return known
        attempts: list[Attempt] = []
        # Who counts or watches the iterations means those of the whole intersection.
        if self.settings.max_iter is None and self.settings.callback is None and is_rich(self.data, rank):
            attempts += self._head_start(rank)
            if attempts and attempts[0].verdict.ok:
                return attempts[0]
        for attempt in self._tries(rank):
            attempts.append(attempt)
            if attempts[-1].verdict.ok or self.show.ended or resigned(attempts[-2:], self.typical):
                break
        # A smaller rank is for when no attempt confirms the one asked for, or when it explains as much.
        too_large = [attempt for attempt in attempts if attempt.verdict.cause == "rank too large"]
        while too_large and not self.show.ended:
            supported = too_large.pop().evidence.supported
            smaller = self._attempt(supported, self.zeta0, *self._decays()[0])
            if not smaller.verdict.ok and self._may_go_in_stages(supported):
                smaller = min(smaller, self._in_stages(supported), key=Attempt.score)
            if smaller.verdict.ok and smaller.evidence.held_share >= attempts[-1].evidence.held_share - 0.02:
                return smaller
            too_large = [smaller] if smaller.verdict.cause == "rank too large" else []
        return min(attempts, key=Attempt.score)

    def _tries(self, rank: int) -> Iterator[Attempt]:
        """Attempts at a rank, made when they are asked for."""
        for number, schedule in enumerate(self._schedules()):
            attempt = self._attempt(rank, *schedule)
            yield attempt
            # where observations are too few, smaller components are out of reach all the more
            if number == 1 and attempt.verdict.cause != "too few observations" and self._may_go_in_stages(rank):
                yield self._in_stages(rank)

    def _may_go_in_stages(self, rank: int) -> bool:
        s = self.settings
        return rank > 1 and s.outliers and s.gamma is None and s.zeta0 is None and s.max_iter is None

    def _in_stages(self, rank: int) -> Attempt:
        """An attempt one component after the other."""

        def solve(rank: int, before: Core | None, start: Factors | None) -> Core:
            if before is None:
                return self._solve_core(rank, *self._schedules()[0])
            return self._solve_core(rank, WIDER * before.threshold, GAMMA, _SCHEDULES[0][1], start)

        if rank not in self.staged:
            core = solve_in_stages(rank, self.stages, solve, lambda: self.show.ended)
            self.staged[rank] = self._judge(core, self._schedule(core.sigma, self.zeta0), GAMMA)
        return self.staged[rank]

    def _schedules(self) -> list[tuple[float, float, int]]:
        """(zeta0, gamma, max_iter) to try, in this order."""
        decays = self._decays()
        first = [(self.zeta0, gamma, max_iter) for gamma, max_iter in decays]
        if not self.settings.outliers:  # nothing is cut off, unless that overshoots: then early steps are, as with outliers
            first.insert(0, (self.no_threshold, 1.0, decays[0][1]))
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
        core = self._solve_core(rank, zeta0, gamma, max_iter)
        self.tried[key] = self._judge(core, self._schedule(core.sigma, zeta0), gamma)
        return self.tried[key]

    def _solve_core(self, rank: int, zeta0: float, gamma: float, max_iter: int, start: Factors | None = None) -> Core:
        s = self.settings
        rests = s.resolution > 0
        options = CoreOptions(zeta0, gamma, self.steps[0], self.steps[1], s.tol, max_iter, rests=rests)
        self.show.stage(f"core, rank {rank}")
        name = f"core, rank {rank}, zeta0 {zeta0!r}, gamma {gamma!r}"
        memory = None if self.checkpoint is None else self.checkpoint.step(name)
        with profiled(f"core, rank {rank}", self.like):
            data = self._data_at(rank)
            return solve_core(data, rank, options, s.seed, self.clock, self.show.iteration, start, memory)

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
        if s.outliers:
            checked = without_contested(checked, data, s.holdout, s.seed, s.chunk_bytes, kernels)
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
        if zeta0 == self.no_threshold:  # the core cut nothing off, and thresholds only judge
            zeta0 = self.zeta0
        return Schedule(max(zeta0, floor), floor, EXTENSION_GAMMA)

    def choose_rank(self) -> RankCurve:
        """Find the rank that held-out entries of the core confirm."""
        largest = max(min(int(np.median(self.samples.intersection.block.counts)) // 4, *self.data.grid.shape, 128), 1)

        def evaluate(rank: int) -> Evidence:
            zeta0, gamma, max_iter = self._schedules()[0]
            attempt = self._attempt(rank, zeta0, gamma, max_iter)
            known = [*self.tried.values(), *self.staged.values()]
            smaller = [a.evidence.unexplained for a in known if a.verdict.ok and a.checked.core.rank < rank]
            if smaller and attempt.evidence.unexplained > WORTH * min(smaller):  # in vain: no need to try harder
                return attempt.evidence
            if attempt.verdict.cause in ("overfit", "not settled", "undetermined") and len(self._decays()) > 1:
                attempt = min(attempt, self._attempt(rank, zeta0, *self._decays()[1]), key=Attempt.score)
            if not attempt.verdict.ok and rank <= _STAGED and self._may_go_in_stages(rank):
                attempt = min(attempt, self._in_stages(rank), key=Attempt.score)
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
