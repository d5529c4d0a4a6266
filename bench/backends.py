"""What computes: the library's backends that this machine has, and the authors' style as the baseline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import rcurc_gpu as rg
from bench import authors_style
from bench.speed import fresh
from rcurc_gpu.benchmark import Case
from rcurc_gpu.errors import without_warning

BASELINE = "authors"
ENOUGH = 1e-12  # e_k of the baseline, a squared relative error


@dataclass(frozen=True)
class Solved:
    """A matrix, and after how many iterations (of the core)."""

    matrix: rg.LowRankMatrix
    n_iter: int


@dataclass(frozen=True)
class Backend:
    """One way to solve.

    Attributes
    ----------
    name : str
    solve : callable
        ``solve(samples, rank)`` gives a `Solved`.
    accuracy : float
        What the true error has to stay below. The paper's recursion gains digits slowly, does not find every matrix, and is
        not made to run longer for the sake of the comparison: its error is reported, and not held to anything.
    place : callable
        Brings samples to where they are solved.
    most : float
        Entries of R and C, seen or not, of the largest problem that it is given: a larger one would take minutes.
    """

    name: str
    solve: Callable[[rg.CrossSamples, int], Solved]
    accuracy: float = 1e-8
    place: Callable[[rg.CrossSamples], rg.CrossSamples] = fresh
    most: float = math.inf

    def takes(self, case: Case) -> bool:
        """Whether it is given a problem."""
        return 2 * case.size * case.chosen <= self.most

    @cache  # noqa: B019  # there is a handful of them, for the whole process
    def first_call_seconds(self) -> float:
        """Solve something small for the first time, which compiles whatever is compiled."""
        problem = rg.synthetic((400, 400), 5, rate=0.5, seed=0)
        start = time.perf_counter()
        self.solve(self.place(problem.samples), 5)
        return time.perf_counter() - start


def _ours(**options: Any) -> Callable[[rg.CrossSamples, int], Solved]:
    def solve(samples: rg.CrossSamples, rank: int) -> Solved:
        with without_warning():  # the error tells
            result = rg.rcurc(samples, rank, **options)
        return Solved(result.cur, result.n_iter)

    return solve


def _authors(samples: rg.CrossSamples, rank: int) -> Solved:
    """Until e_k is small: it has to find the matrix too."""
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1

    matrix = authors_style.solve(samples, rank, 400, tol=ENOUGH, callback=tick)
    return Solved(matrix, count)


def _cupy() -> Backend | None:
    """Samples and result stay on the GPU."""
    try:
        import cupy
    except ImportError:
        return None
    if not cupy.is_available():
        return None
    ours = _ours()

    def solve(samples: rg.CrossSamples, rank: int) -> Solved:
        solved = ours(samples, rank)
        cupy.cuda.get_current_stream().synchronize()
        return solved

    return Backend("cupy", solve, place=lambda samples: fresh(samples).to_namespace(cupy))


def backends(full: bool = False) -> list[Backend]:
    """Those of this machine, the baseline last; `full` gives it problems up to the paper's, d = 3000."""
    found = [Backend("numpy", _ours(kernels="xp"), most=1e8)]
    try:
        import numba  # noqa: F401
    except ImportError:
        pass
    else:
        found.append(Backend("numba", _ours(kernels="fused")))
        found.append(Backend("numba, paper's method", _ours(kernels="fused", method="paper"), math.inf, most=1e8))
    if gpu := _cupy():
        found.append(gpu)
    return [*found, Backend(BASELINE, _authors, math.inf, most=6e6 if full else 1e6)]
