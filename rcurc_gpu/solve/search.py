"""The search for the core: which attempts are made, in which order, and which one is believed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..backends.arrays import asarray_on
from ..core.gauss_newton import most_components
from ..core.history import RankCurve
from ..core.iteration import Core
from ..judge.causes import Cause, Evidence
from ..judge.faults import Untied
from ..judge.groups import groups_apart
from ..judge.rank import WORTH, choose_rank
from ..judge.words import Verdict
from ..noise.estimate import diagnosed
from ..noise.model import outlier_threshold
from .attempts import EXTENSION_GAMMA, CoreAttempts
from .glimpse import Glimpse, glimpse_of, quick_rank
from .solved import NOISELESS, SolvedCore, is_exact, resigned

log = logging.getLogger("rcurc_gpu")

_STAGED = 8  # largest rank for which the choice of the rank tries stages: each stage is a core of its own
# Noise that a core leaves over that of the first look, below which data may be exact after all: with 30 % outliers hardly
# larger than the entries the model takes some of them for noise.
_CLEANER = 0.1
_LOWER_QUARTILE = 0.32  # of the size of a normal number of standard deviation 1
# Noise of the first look, over a typical entry, from which it may be exact data that are hard to recover. Those near the
# edge show 0.46 to 1.8.
_DEAFENING = 0.3
# The same, and the most degrees of freedom, of noise behind which Gauss-Newton steps look for an exact core: 0.15 to 1.2 and
# 4 to 10 in 18 exact problems that were called noisy.
_AUDIBLE, _HEAVY = 0.1, 10.0
_MOST_HIDDEN = 0.45  # share of outliers with which such a core is looked for: it was 0.41 at most
_GLIMPSED = 40  # iterations of a core that the noise model takes over from


class CoreSearch(CoreAttempts):
    """The first half of a solve: which attempts at the core are made, and which one is believed.

    Parameters
    ----------
    view : CoreView
    settings : Settings
    run : RunContext
    """

    def find(self, rank: int | str) -> SolvedCore:
        """Find the core at a rank, or at one that is chosen."""
        return self.with_groups(self._found(rank))

    def with_groups(self, solved: SolvedCore) -> SolvedCore:
        """A core and, if it is not confirmed, groups of rows and columns that hardly met: they may be why."""
        if solved.verdict.ok or solved.groups is not None or solved.verdict.cause is Cause.DIVERGED:
            return solved
        groups = groups_apart(self.data.block, self.run.kernels, self.settings.seed)
        if groups is None:
            return solved
        faults = (Untied(tuple(groups.sizes())), *solved.verdict.faults)
        return replace(solved, groups=groups, verdict=replace(solved.verdict, faults=faults))

    def _found(self, rank: int | str) -> SolvedCore:
        if isinstance(rank, str):
            if (quick := self._quick_core()) is not None:
                return replace(quick, chosen=True)
            if self.glimpse is not None:
                return replace(self._core_of(self.glimpse), chosen=True)
        asked, curve = self.asked_rank(rank)
        solved = self._core(asked)
        # a rank too large fits noise exactly, and then there seems to be none; held-out entries see it
        too_close = not solved.noisy and solved.evidence.unexplained > NOISELESS
        if curve is None and not solved.verdict.ok and (too_close or self._fits_anything(asked)):
            # with noise a rank is only the most to be taken: what there is may still be found
            glimpse = self.glimpse
            if glimpse is not None and glimpse.noisy and glimpse.rank <= asked - too_close:
                return replace(self._core_of(glimpse), asked=asked)
        return replace(solved, curve=curve, asked=asked, chosen=curve is not None)

    def _quick_core(self) -> SolvedCore | None:
        """The core at the rank of a piece of a large intersection, if that is confirmed and exact; None if not."""
        rank = quick_rank(self.view, self.settings) if self._may_glimpse() else None
        if rank is None:
            return None
        log.info("rank %d, without noise, by a quick look at a piece", rank)
        tries = self._head_start(rank) if self._may_start_ahead(rank) else []
        solved = tries[0] if tries and tries[0].verdict.ok else self._attempt(rank, *self._schedules()[0])
        return replace(solved, asked=rank) if solved.verdict.ok and not solved.noisy else None

    def _fits_anything(self, rank: int) -> bool:
        """Whether a usual row or column of the intersection has hardly more observations than unknowns."""
        inside = self.view.intersection.block
        return (1 - self.settings.holdout) * inside.n_obs < (rank + 2) * max(inside.n_units, inside.length)

    def _core_of(self, glimpse: Glimpse) -> SolvedCore:
        """The core at the rank that a first look at the data gives, or, if that is not confirmed, at one that is sought."""
        rank = max(glimpse.rank, 1)
        log.info("rank %d, %s, by a first look", rank, "with noise" if glimpse.noisy else "without noise")
        if glimpse.noisy and (hidden := self._behind_noise(glimpse)) is not None:
            return hidden
        if glimpse.clear and glimpse.noise < _DEAFENING * self.typical_size:
            return self._left_to(glimpse)
        if glimpse.noisy:  # the noise model does the rest: one attempt, to see how an exact core would do
            zeta0, gamma, max_iter = self._schedules()[0]
            attempt = self._attempt(rank, zeta0, gamma, min(max_iter, _GLIMPSED))
            attempt = replace(attempt, asked=rank, glimpsed=True, model=glimpse.model if glimpse.whole else None)
            if attempt.core.sigma < _CLEANER * glimpse.noise and self._is_believed(attempt, glimpse.noise):
                for schedule in self._schedules()[:2]:
                    solved = self._attempt(rank, *schedule)
                    if solved.verdict.ok and not solved.noisy:
                        return replace(solved, asked=rank)
            return self._hidden_core(glimpse, attempt) or attempt
        solved = self._core(rank)
        if solved.verdict.ok:
            return replace(solved, asked=rank)
        curve = self.choose_rank()
        found = self._core(curve.chosen)
        best = min(solved, found, key=SolvedCore.score)
        return replace(best, curve=curve, asked=best.core.rank)

    def _left_to(self, glimpse: Glimpse) -> SolvedCore:
        """What a first look saw, in place of a core: the noise model does everything."""
        model = glimpse.model
        W, s, V = (asarray_on(x, self.data.sample[2], self.data.sample[2].dtype) for x in glimpse.factors())
        core = Core(W, s, V, True, [], glimpse.noise, outlier_threshold(model.typical_noise))
        K = len(model.row_precision)
        rows, cols = (diagnosed(table, K, np.zeros(len(table))) for table in (model.row_table, model.col_table))
        schedule = self.schedule(core.sigma, self.zeta0)
        evidence = Evidence(0.0, 1.0, 1.0, core.rank, 0.0, 1.0, 0)
        found = self._solved((core, rows, cols), schedule, None, evidence, Verdict(), EXTENSION_GAMMA, None)
        return replace(found, asked=max(glimpse.rank, 1), glimpsed=True, model=model if glimpse.whole else None)

    def _is_believed(self, attempt: SolvedCore, noise: float) -> bool:
        """Whether held-out entries are nearer to an attempt than such noise lets them be: a large rank may fit the noise."""
        quartile = self.data.sizes.quartile
        return attempt.evidence.unexplained * quartile < _LOWER_QUARTILE * noise

    def _behind_noise(self, glimpse: Glimpse) -> SolvedCore | None:
        """An exact core that Gauss-Newton steps find from a first look that saw much noise; None if there is none.

        With few observations, or with outliers hardly larger than the entries, that is how exact data look. On noisy data
        the steps are held up at once.
        """
        rank, loud = glimpse.rank, glimpse.noise > _AUDIBLE * self.typical_size
        like_outliers = loud and glimpse.model.noise.tail <= _HEAVY
        if not (like_outliers and 0 < rank <= most_components(self.data) and self._steps_are_suited()):
            return None
        core = self._steps_from(rank, self._left_to(glimpse).core, "a first look", _MOST_HIDDEN)
        if core.sigma > NOISELESS * self.typical_size:
            return None
        found = self._judged_steps(core)
        return replace(found, asked=rank) if is_exact(found) else None

    def _hidden_core(self, glimpse: Glimpse, attempt: SolvedCore) -> SolvedCore | None:
        """An exact core where a first look saw noise as large as the entries; None if there is none.

        With few observations that is how exact data look. Gauss-Newton steps find the rank themselves: components that are
        too many vanish.
        """
        rank = most_components(self.data)
        if glimpse.noise < _DEAFENING * self.typical_size or rank <= glimpse.rank or not self._may_take_steps(attempt):
            return None
        found = self._gauss_newton(rank)
        if not is_exact(found):
            return None
        if not found.verdict.ok and 0 < found.evidence.supported < rank:
            found = self._core(found.evidence.supported)
        return replace(found, asked=found.core.rank) if is_exact(found) else None

    @cached_property
    def glimpse(self) -> Glimpse | None:
        """A first look by the noise model, at the intersection alone; None where it has nothing to say.

        A `resolution` is for outliers that move together, as in videos: these would be components of the model.
        """
        return glimpse_of(self.view, self.settings) if self._may_glimpse() else None

    def _may_glimpse(self) -> bool:
        s = self.settings
        return s.sweeps != 0 and s.method == "fast" and s.max_iter is None and s.resolution == 0

    def asked_rank(self, rank: int | str) -> tuple[int, RankCurve | None]:
        """The rank to try, and how it was chosen."""
        if isinstance(rank, int):
            return rank, None
        curve = self.choose_rank()
        log.info("rank %d chosen, of %s", curve.chosen, ", ".join(map(str, curve.ranks)))
        return curve.chosen, curve

    def _core(self, rank: int) -> SolvedCore:
        """Solve the core: fast first, slower while the held-out entries disagree, smaller if they confirm less."""
        # First a core that the choice of the rank has confirmed already, then the cheapest attempt.
        for known in (self.tried.get((rank, *self._schedules()[0])), self.staged.get(rank)):  # when the rank was chosen
            if known is not None and known.verdict.ok:
                return known
        attempts: list[SolvedCore] = []
        if self._may_start_ahead(rank):
            attempts += self._head_start(rank)
            if attempts and attempts[0].verdict.ok:
                return attempts[0]
        for attempt in self._tries(rank):
            attempts.append(attempt)
            if attempts[-1].verdict.ok or self.run.progress.ended or resigned(attempts[-2:]):
                break
            if any(attempt is found and is_exact(found) for found in self.by_steps.values()):
                break  # what is wrong with it, a rank that is too large or single rows, no other schedule would mend
        if attempts[-1].verdict.ok and not attempts[-1].noisy:
            return attempts[-1]
        best = min(attempts, key=SolvedCore.score)
        if is_exact(best) and best.verdict.cause is Cause.UNDETERMINED:
            return best  # all of its components are there, to rounding: a smaller rank would call one of them noise
        # A smaller rank is for when no attempt confirms the one asked for, or when it explains as much.
        too_large = [attempt for attempt in attempts if attempt.verdict.cause is Cause.RANK_TOO_LARGE]
        while too_large and not self.run.progress.ended:
            larger = too_large.pop()
            supported = larger.evidence.supported
            smaller = self._attempt(supported, self.zeta0, *self._decays()[0])
            if not smaller.verdict.ok and self._may_take_steps(smaller):
                smaller = min(smaller, self._gauss_newton(supported), key=SolvedCore.score)
                if not smaller.verdict.ok and is_exact(larger):  # it has the right one within
                    within = self._gauss_newton(supported, larger.core, f"rank {larger.core.rank}")
                    smaller = min(smaller, within, key=SolvedCore.score)
            if not smaller.verdict.ok and self._may_go_in_stages(supported):
                smaller = min(smaller, self._in_stages(supported), key=SolvedCore.score)
            # 2 % of the held-out entries: the larger rank may have explained as many by chance
            if smaller.verdict.ok and smaller.evidence.held_share >= attempts[-1].evidence.held_share - 0.02:
                return smaller
            too_large = [smaller] if smaller.verdict.cause is Cause.RANK_TOO_LARGE else []
        return best  # none is confirmed: the best of them, with its verdict

    def _tries(self, rank: int) -> Iterator[SolvedCore]:
        """Attempts at a rank, each made when the caller asks for it."""
        for number, schedule in enumerate(self._schedules()):
            attempt = self._attempt(rank, *schedule)
            yield attempt
            if number == 0 and self._may_take_steps(attempt):
                yield self._gauss_newton(rank)
            # After two schedules: stages cost several cores. Where observations are too few, stages do not help.
            if number == 1 and attempt.verdict.cause is not Cause.TOO_FEW_OBSERVATIONS and self._may_go_in_stages(rank):
                staged = self._in_stages(rank)
                yield staged
                if self._may_take_steps(staged):  # to finish a core that does not settle
                    yield self._gauss_newton(rank, staged.core, "stages")

    def choose_rank(self) -> RankCurve:
        """Find the rank that held-out entries of the core confirm."""
        # Recovery needs 4 observations per row and component even with few outliers; 128 bounds the cost.
        largest = max(min(int(np.median(self.view.intersection.block.counts)) // 4, *self.data.grid.shape, 128), 1)

        def evaluate(rank: int) -> Evidence:
            zeta0, gamma, max_iter = self._schedules()[0]
            attempt = self._attempt(rank, zeta0, gamma, max_iter)
            known = [*self.tried.values(), *self.staged.values()]
            smaller = [a.evidence.unexplained for a in known if a.verdict.ok and a.core.rank < rank]
            if smaller and attempt.evidence.unexplained > WORTH * min(smaller):  # a smaller rank explains as much
                return attempt.evidence
            near = (Cause.OVERFIT, Cause.NOT_SETTLED, Cause.UNDETERMINED)
            if attempt.verdict.cause in near and len(self._decays()) > 1:
                attempt = min(attempt, self._attempt(rank, zeta0, *self._decays()[1]), key=SolvedCore.score)
            if not attempt.verdict.ok and rank <= _STAGED and self._may_go_in_stages(rank):
                attempt = min(attempt, self._in_stages(rank), key=SolvedCore.score)
            return attempt.evidence

        # held-out errors of half the resolution, relative to a small entry (lower quartile), count as none
        quartile = self.data.sizes.quartile
        zero = 0.5 * self.settings.resolution / quartile if quartile > 0 else 0.0
        return choose_rank(evaluate, largest, self._structure, zero)
