"""The core one component after the other.

Where singular values differ by much, or outliers move together, the first thresholds let in outliers that are larger than
the smaller components, and the core settles on them. So the largest component is found first, down to its own residuals.
What lies beyond them is taken for outliers, and the next component does not see it.

Singular values 10 to 1000 times apart with 10 to 30 % outliers: mostly lost without stages, all 24 of 24 problems exact with
them (tests/core/test_stages.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..backends.arrays import Array, array_namespace, device_of
from ..backends.linalg import qr
from ..backends.operators import random_start
from ..backends.plain.loop import Factors
from .iteration import Core

# zeta_0 of a stage over the last zeta of the stage before it. With 1, entries of the new component stay outliers; a large
# factor lets the outliers in again that the stage before had found.
WIDER = 5.0
GAMMA = 0.9  # decay in a stage: slower than the first schedule's 0.8, since new components begin among outliers


def solve_in_stages(
    rank: int, known: dict[int, Core], solve: Callable[[int, Core | None, Factors | None], Core], ended: Callable[[], bool]
) -> Core:
    """Solve the core at `rank` by way of smaller ranks.

    Parameters
    ----------
    rank : int
    known : dict of Core
        Cores by rank that earlier calls found in stages; this call adds its own.
    solve : callable
        ``solve(rank, before, start)`` solves the core at a rank from the factors `start`, which were made of the core
        `before`; both are None for the first.
    ended : callable
        Whether the user's callback wants to stop.
    """
    done = max((k for k in known if k <= rank), default=0)
    core = known.get(done)
    while done < rank and not (core is not None and ended()):
        # one component at a time up to rank 8, then a quarter more: the number of stages stays near log(rank)
        done = min(rank, max(done + 1, done * 5 // 4))
        start = None if core is None else _grown(core, done, seed=done)
        found = solve(done, core, start)
        before = [] if core is None else core.history
        last = before[-1].iteration if before else 0
        later = [replace(state, iteration=state.iteration + last) for state in found.history]
        core = known[done] = replace(found, history=before + later)
    assert core is not None
    return core


def _grown(core: Core, rank: int, seed: int) -> Factors:
    """Factors of the same matrix, with singular values of 0 up to `rank` components."""
    xp = array_namespace(core.s)
    more = rank - core.rank
    zero = xp.zeros((more,), dtype=core.s.dtype, device=device_of(core.s))
    return _more(core.W, more, seed), xp.concat([core.s, zero]), _more(core.V, more, seed)


def _more(factor: Array, more: int, seed: int) -> Array:
    """`factor` with random orthonormal columns beside its own."""
    extra = random_start(factor.shape[0], more, factor, seed)
    extra = extra - factor @ (factor.T @ extra)
    return array_namespace(factor).concat([factor, qr(extra)[0]], axis=1)
