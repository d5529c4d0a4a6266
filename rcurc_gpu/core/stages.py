"""The core one component after the other.

Where singular values differ by much, or outliers move together, the first thresholds let in outliers that are larger than
the smaller components, and the core settles on them. So the largest component is found first, to its own residuals; what
is beyond them are outliers, which the next component then does not see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..backends.arrays import Array, array_namespace, device_of, qr
from ..backends.operators import random_start
from .iteration import Core, Factors

WIDER = 5.0  # first threshold of a stage over the last one before it: the larger rank explains more
GAMMA = 0.9


def solve_in_stages(
    rank: int, known: dict[int, Core], solve: Callable[[int, Core | None, Factors | None], Core], ended: Callable[[], bool]
) -> Core:
    """The core at `rank`, by way of smaller ranks.

    Parameters
    ----------
    rank : int
    known : dict of Core
        Cores by rank that were found in this way; more are added.
    solve : callable
        ``solve(rank, before, start)`` solves the core at a rank from the factors `start`, which were made of the core
        `before`; both are None for the first.
    ended : callable
        Whether the user wants no more.
    """
    done = max((k for k in known if k <= rank), default=0)
    core = known.get(done)
    while done < rank and not (core is not None and ended()):
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
    """Factors of the same matrix with room for `rank` components."""
    xp = array_namespace(core.s)
    more = rank - core.rank
    zero = xp.zeros((more,), dtype=core.s.dtype, device=device_of(core.s))
    return _more(core.W, more, seed), xp.concat([core.s, zero]), _more(core.V, more, seed)


def _more(factor: Array, more: int, seed: int) -> Array:
    """`factor` with random orthonormal columns beside its own."""
    extra = random_start(factor.shape[0], more, factor, seed)
    extra = extra - factor @ (factor.T @ extra)
    return array_namespace(factor).concat([factor, qr(extra)[0]], axis=1)
