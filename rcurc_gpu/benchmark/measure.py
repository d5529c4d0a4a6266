"""Times of one case in one place: whole solves, the core, a fit pass over all columns, and the copy it is compared with."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from ..api import rcurc
from ..backends import FitPass, Schedule, choose, to_numpy
from ..doctor import Place
from ..errors import without_warning
from ..result import Result
from .cases import Case

REPEATS = 3  # solves that count, after one that does not
_PATIENCE = 600.0  # seconds for a kernel: a slow device is no broken one
_COPIED = 256 << 20  # bytes: beyond most caches
_STEPS = 4  # copies that are timed
CPU, DEVICE, STREAMED = "CPU", "GPU", "GPU, streamed"


@dataclass(frozen=True)
class Timing:
    """A case in a place. Seconds are medians.

    Attributes
    ----------
    case, place : str
    size, rank, n_obs : int
    kernels : str
        What computed.
    seconds : float
        A whole solve, from samples in memory to the result.
    first_seconds : float
        The first one of this case: it may compile, and nothing of the data is in a cache yet.
    repeats : int
        Solves that count.
    iterations : int
        Of the core.
    core_seconds : float or None
        An iteration of the core.
    pass_ns : float or None
        A fit pass over all columns of R: nanoseconds per observation. None where observations are streamed.
    pass_gb_per_s : float or None
        Observations that this pass reads, in GB per second.
    pass_error : float or None
        Largest error of a coefficient of that pass over the largest coefficient.
    error : float
        True relative error of the whole matrix, but undetermined rows and columns.
    converged : bool
    """

    case: str
    place: str
    size: int
    rank: int
    n_obs: int
    kernels: str
    seconds: float
    first_seconds: float
    repeats: int
    iterations: int
    core_seconds: float | None
    pass_ns: float | None
    pass_gb_per_s: float | None
    pass_error: float | None
    error: float
    converged: bool


def measure(case: Case, kind: str, place: Place, left: Callable[[], float]) -> Timing:
    """Solve a case once, and then some times that count: fewer if `left()` seconds are not enough for them.

    Parameters
    ----------
    case : Case
    kind : {"CPU", "GPU", "GPU, streamed"}
        Samples are on the host for the first and the last.
    place : Place
        Where to compute.
    left : callable
    """
    problem = case.problem
    there = kind == DEVICE
    samples = problem.samples.to_namespace(place.xp) if there else problem.samples
    device = place.name if kind == STREAMED else "auto"

    def solve() -> Result:
        with without_warning():
            return rcurc(samples, case.rank, device=device, seed=0)

    first, result = _timed(solve, place)
    times: list[float] = []
    while not times or (len(times) < REPEATS and left() > times[-1]):  # the first may have compiled: at least one more
        seconds, result = _timed(solve, place)
        times.append(seconds)
    passed = (None, None, None) if kind == STREAMED else _fit_pass(case, place)
    return Timing(
        case=case.name,
        place=kind,
        size=case.size,
        rank=case.rank,
        n_obs=samples.n_obs,
        kernels=result.kernels,
        seconds=median(times),
        first_seconds=first,
        repeats=len(times),
        iterations=result.n_iter,
        core_seconds=_core_seconds(result),
        pass_ns=passed[0],
        pass_gb_per_s=passed[1],
        pass_error=passed[2],
        error=problem.relative_error(result.cur, undetermined="skip"),
        converged=result.converged,
    )


def _timed(work: Callable[[], Any], place: Place) -> tuple[float, Any]:
    """Seconds until the device is done, and the result."""
    place.wait(_PATIENCE)
    begin = time.perf_counter()
    found = work()
    place.wait(_PATIENCE)
    return time.perf_counter() - begin, found


def _core_seconds(result: Result) -> float | None:
    """Seconds of an iteration: the median, since what comes before the first is counted with it."""
    times = np.diff([state.seconds for state in result.history])
    return float(np.median(times)) if len(times) else None


def _fit_pass(case: Case, place: Place) -> tuple[float, float, float]:
    """One fit pass over all columns of R on the true column space: ns per observation, GB/s, and the largest error."""
    problem, block = case.problem, case.problem.samples.r_block
    orthonormal, turn = np.linalg.qr(problem.W[problem.samples.rows].astype(np.float64))
    basis, block = place.put(orthonormal.astype(case.dtype)), place.put(block)
    # the thresholds of a solve: from above the outliers down to half of the digits of an entry
    typical = float(np.median(np.abs(to_numpy(block.value[: 1 << 20]))))
    floor = float(np.finfo(case.dtype).eps) ** 0.5 * typical
    fit_pass = FitPass(Schedule(5 * typical, floor, 0.4), floor)
    kernels = choose("auto", basis).at(case.rank)
    runs = [_timed(lambda: kernels.regress_all(block, basis, fit_pass, None)[0], place) for _ in range(REPEATS + 1)]
    seconds = median(run[0] for run in runs[1:])
    truth = problem.V @ turn.T
    # a column in a thousand may need more than one pass; what is typical shows whether the pass is right
    errors = np.abs(to_numpy(runs[-1][1]) - truth).max(axis=1) / np.abs(truth).max()
    return seconds / block.n_obs * 1e9, block.nbytes / seconds / 1e9, float(np.median(errors))


def copy_gb_per_s(place: Place, cores: int = 1) -> float:
    """GB that a copy reads and writes in a second: what this machine's memory gives, measured and not read in a table.

    On a CPU each core copies a part.
    """
    source = place.put(np.zeros(_COPIED, dtype=np.uint8))
    target = place.put(np.ones(_COPIED, dtype=np.uint8))  # written once, so that its pages are there
    if place.on_gpu:
        times = [_timed(lambda: place.xp.copyto(target, source), place)[0] for _ in range(_STEPS + 1)]
    else:
        edges = np.linspace(0, _COPIED, cores + 1).astype(int)
        parts = [slice(a, b) for a, b in pairwise(edges)]
        with ThreadPoolExecutor(cores) as pool:
            copy = lambda part: np.copyto(target[part], source[part])  # noqa: E731
            times = [_timed(lambda: list(pool.map(copy, parts)), place)[0] for _ in range(_STEPS + 1)]
    return 2 * _COPIED / min(times[1:]) / 1e9


def stated_gb_per_s(place: Place) -> float | None:
    """GB per second that a GPU's memory has by its clock and the width of its bus; None if it does not say."""
    attributes = place.xp.cuda.Device().attributes
    kilohertz, bits = (attributes.get(name, 0) for name in ("MemoryClockRate", "GlobalMemoryBusWidth"))
    return 2 * kilohertz * 1e3 * bits / 8 / 1e9 or None  # two transfers in a cycle
