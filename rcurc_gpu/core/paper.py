"""The paper's own iteration (Algorithm 1) on the whole cross of R and C, in one pass over the observations.

The iterates U_k = W_k diag(s_k) V_k^T need nothing but the intersection I x J. Once they are known, each column j outside
of J has its own recursion: with [X_k]_{I,j} = W_k a_j and g_j its residual without what exceeds zeta_{k+1},

    a_j <- W_{k+1}^T (W_k a_j + eta_R g_j)

and each row outside of I has the same with V and eta_C (`passes.advance`). These are the iterates of the coupled, dense
algorithm, to the error of the truncated SVD.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, bring, device_of, quantile_abs, to_numpy
from ..backends.kernels import RunContext
from ..backends.plain.loop import NUMBERS, Factors, Group, residuals
from ..backends.plain.passes import Iterates
from ..backends.random import Stream, generator
from ..extend.tasks import Task
from .history import IterationState
from .iteration import BEYOND, Core, CoreOptions, group_size, iterate_core, note, robust_sigma
from .problem import CoreProblem, dof_share

# Columns (rows) that run along with the core to tell when e_k is small enough. A mean over 4096 of them is known to 1.6 % of
# their spread, so the tenth to spare in `solve_paper` is safe. Documented with `IterationState.cur`.
_PILOT = 4096
_TRAIL_BYTES = 64 << 20  # bases W_k of one launch: more cost memory of the device, fewer cost launches

Places = list[list[tuple[np.ndarray, Array]]]  # units and coefficients of the chunks of both sides
Assemble = Callable[[Factors, tuple[Array, Array]], Any]  # a matrix of a core and the coefficients of both sides


@dataclass(frozen=True, eq=False)
class PaperSide:
    """One block of the cross in the paper's recursion.

    Attributes
    ----------
    task : Task
    units : integer array
        The units to extend, ascending: those outside of J (of I).
    step_size : float
        eta_R or eta_C.
    factor : int
        Which of (W, s, V) is the basis: 0 for columns, 2 for rows.
    """

    task: Task
    units: np.ndarray
    step_size: float
    factor: int


@dataclass(frozen=True, eq=False)
class _Step:
    """The factors of U_k and U_{k-1}, and zeta_k, the threshold between them."""

    factors: Factors
    previous: Factors
    threshold: float


def _steps_of(group: Group, table: np.ndarray, rank: int) -> list[_Step]:
    """The iterations of a group, of which `table` has the numbers."""
    assert group.each is not None
    W, V = group.each
    s = [asarray_on(row[NUMBERS : NUMBERS + rank], W, W.dtype) for row in table]
    # nobody asks for the singular values before the first of them
    factors = [(W[k, ...], s[max(k - 1, 0)], V[k, ...]) for k in range(len(table) + 1)]
    return [_Step(factors[k + 1], factors[k], float(row[2])) for k, row in enumerate(table)]


class _Runner:
    """A chunk of columns (rows) in the recursion; `a` has their coefficients."""

    def __init__(self, side: PaperSide, units: np.ndarray) -> None:
        self.side, self.units = side, units
        self.part: Any = side.task.resident(units)
        basis = side.task.basis
        self.a: Array = array_namespace(basis).zeros(
            (len(units), basis.shape[1]), dtype=basis.dtype, device=device_of(basis)
        )

    def size(self) -> np.ndarray:
        """Squared norm and number of the observations (2,)."""
        basis = self.side.task.basis
        xp = array_namespace(basis)
        nothing = xp.zeros((3, *basis.shape), dtype=basis.dtype, device=device_of(basis))
        # Nothing is an outlier, then everything: the first sums are the norm, the second ones count.
        zetas = asarray_on(np.asarray([np.inf, 0.0]), basis, basis.dtype)
        sums = to_numpy(self._advance(nothing, xp.zeros_like(nothing[:2, : basis.shape[1], :]), zetas)[1])
        return np.asarray([sums[0, 0], sums[1, 1]], dtype=np.float64)

    def advance(self, steps: list[_Step]) -> np.ndarray:
        """Advance through `steps`; squared residuals of e_k and numbers of outliers after each of them (K, 2)."""
        xp = array_namespace(self.a)
        factor = self.side.factor
        bytes_of_one = 8 * steps[0].factors[factor].shape[0] * self.a.shape[1]
        at_once = max(_TRAIL_BYTES // bytes_of_one, 1)
        sums = []
        for first in range(0, len(steps), at_once):
            part = steps[first : first + at_once]
            bases = xp.stack([part[0].previous[factor], *(step.factors[factor] for step in part)])
            # W_k^T W_{k+1}, which turns coefficients from one basis to the next
            turns = xp.matrix_transpose(bases[:-1, ...]) @ bases[1:, ...]
            zetas = asarray_on(np.asarray([step.threshold for step in part]), bases, bases.dtype)
            self.a, found = self._advance(bases, turns, zetas)
            sums.append(to_numpy(found).astype(np.float64))
        return np.concatenate(sums)

    def _advance(self, bases: Array, turns: Array, zetas: Array) -> tuple[Array, Array]:
        (block, units, ids), task = self.part, self.side.task
        iterates = Iterates(bases, turns, zetas, self.side.step_size)
        return task.run.kernels.advance(block, units, task.usable, ids, iterates, self.a)


def solve_paper(
    data: CoreProblem,
    sides: tuple[PaperSide, PaperSide],
    rank: int,
    options: CoreOptions,
    run: RunContext,
    assemble: Assemble,
) -> tuple[Core, tuple[Array, Array]]:
    """Run Algorithm 1; return the core and the coefficients of the units of both sides.

    `assemble` makes a matrix of the two, for a callback that asks for the iterate X_k.

    Notes
    -----
    A random pilot of the units runs along with the core and tells when e_k <= tol. If the pilot is all units, that is exact.
    Otherwise all units follow to the same iteration afterwards, and e_k is summed over all of them. The pilot has to meet
    the rule with a tenth to spare, so that the last iterate meets it too.
    """
    callback = run.progress.iteration
    rng = generator(run.seed, Stream.PILOT)
    pilots = [np.sort(rng.choice(side.units, min(len(side.units), _PILOT), replace=False)) for side in sides]
    runners = [[_Runner(side, units) for units in side.task.plan(pilot)] for side, pilot in zip(sides, pilots, strict=True)]
    scale = [len(side.units) / max(len(pilot), 1) for side, pilot in zip(sides, pilots, strict=True)]
    whole = max(scale) <= 1
    target = options.tol if whole else 0.9 * options.tol
    core_size = np.asarray([data.total, data.count])
    size = core_size + _scaled_sum([[runner.size() for runner in group] for group in runners], scale, (2,))
    trail: list[_Step] = []
    core_sums = np.zeros((0, 2))
    history: list[IterationState] = []
    loop = iterate_core(data, rank, options, run.seed)
    # Groups of iterations: the core runs ahead, the pilot follows, and the rule is applied to each iterate afterwards.
    while loop.k < options.max_iter:
        first = loop.k + 1
        group = loop.advance(group_size(loop.k, options, callback is not None), each=True)
        numbers = group.table()
        steps = _steps_of(group, numbers, rank)
        before = [[runner.a for runner in chunks] for chunks in runners]
        sums = numbers[:, :2] + _advance_all(runners, scale, steps)
        errors = sums[:, 0] / size[0]
        ends = np.flatnonzero((errors <= target) | ~(errors <= BEYOND))
        if ends.size and ends[0] + 1 < len(steps):  # go back to the first iterate that meets the rule
            steps = steps[: ends[0] + 1]
            for chunks, starts in zip(runners, before, strict=True):
                for runner, a in zip(chunks, starts, strict=True):
                    runner.a = a
            _advance_all(runners, scale, steps)
        seconds = np.linspace(history[-1].seconds if history else 0.0, run.clock(), len(steps) + 1)[1:].tolist()
        for k, ((error, share), (zeta, change), at) in enumerate(zip(sums / size, numbers[:, 2:4], seconds, strict=False)):
            history.append(IterationState(first + k, float(error), float(zeta), float(share), float(change), at))
            note(history[-1])
        if not whole:
            trail += steps
            core_sums = np.concatenate([core_sums, numbers[: len(steps), :2]])
        if callback is not None:
            make = partial(_iterate, assemble, steps[-1].factors, sides, _places(runners)) if whole else None
            if callback(replace(history[-1], make=make)) is True:
                break
        if ends.size:
            break
    if not whole:
        history = _follow(sides, runners, trail, history, core_size, core_sums)
    W, s, V = steps[-1].factors
    sample = residuals(W * s, V, data.sample)
    # The paper's zeta falls to 0 and cannot tell inliers here; five medians (3.4 standard deviations) can.
    sigma = robust_sigma(sample, 5 * quantile_abs(sample), dof_share(data, rank))
    core = Core(W, s, V, history[-1].error <= options.tol, history, sigma, history[-1].threshold)
    return core, _coefficients(sides, _places(runners))


def _advance_all(runners: list[list[_Runner]], scale: list[float], steps: list[_Step]) -> np.ndarray:
    return _scaled_sum([[runner.advance(steps) for runner in group] for group in runners], scale, (len(steps), 2))


def _scaled_sum(parts: list[list[np.ndarray]], scale: list[float], shape: tuple[int, ...]) -> np.ndarray:
    zero = np.zeros(shape)
    return sum((f * sum(group, zero) for group, f in zip(parts, scale, strict=True)), zero)


def _follow(
    sides: tuple[PaperSide, PaperSide],
    runners: list[list[_Runner]],
    trail: list[_Step],
    history: list[IterationState],
    core_size: np.ndarray,
    sums: np.ndarray,
) -> list[IterationState]:
    """Bring all units to the last iterate, chunk by chunk, and sum e_k over them; the pilot's units run again."""
    size = core_size
    for group, side in zip(runners, sides, strict=True):
        group.clear()
        for units in side.task.plan(side.units):
            runner = _Runner(side, units)
            size = size + runner.size()
            sums = sums + runner.advance(trail)
            runner.part = None  # free all but the result
            group.append(runner)
            side.task.run.progress.advance(len(units))
    return [
        replace(state, error=e / size[0], outlier_share=n / size[1]) for state, (e, n) in zip(history, sums, strict=True)
    ]


def _places(runners: list[list[_Runner]]) -> Places:
    """Units and coefficients of both sides as they are now; runners replace these arrays and do not write into them."""
    return [[(runner.units, runner.a) for runner in group] for group in runners]


def _coefficients(sides: tuple[PaperSide, PaperSide], places: Places) -> tuple[Array, Array]:
    return _gather(sides[0], places[0]), _gather(sides[1], places[1])


def _iterate(assemble: Assemble, factors: Factors, sides: tuple[PaperSide, PaperSide], places: Places) -> Any:
    return assemble(factors, _coefficients(sides, places))


def _gather(side: PaperSide, places: list[tuple[np.ndarray, Array]]) -> Array:
    if not places:
        return bring(side.task.basis[:0, :], side.task.block.value)
    like = places[0][1]
    xp = array_namespace(like)
    order = np.argsort(np.concatenate([units for units, _ in places]), kind="stable")
    return bring(xp.take(xp.concat([a for _, a in places]), asarray_on(order, like), axis=0), side.task.block.value)
