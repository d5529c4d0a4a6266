"""The self-test: every kernel and path on the device against NumPy, on small seeded data.

A `Check` makes a `Trial` of a given size. The small one is compared with the truth, the large one is timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends.arrays import to_numpy
from .probes import one_line

_PATIENCE = 30.0  # seconds after which a kernel is thought to hang
_ENOUGH = 0.25  # seconds of timing
_REPEATS = 5
_REASONS = 3  # that are told of a failed check


@dataclass(frozen=True, eq=False)
class Place:
    """Where to compute: the namespace ``numpy`` or ``cupy``, and a name such as ``"cpu"`` or ``"cuda:0"``."""

    xp: Any
    name: str

    @property
    def on_gpu(self) -> bool:
        """Whether this is CuPy."""
        return self.xp is not np

    def array(self, x: np.ndarray) -> Any:
        """A copy of `x` here."""
        return self.xp.array(x)

    def wait(self, patience: float = _PATIENCE) -> None:
        """Until the device has done all that it was asked for."""
        if not self.on_gpu:
            return
        event = self.xp.cuda.Event()
        event.record()
        begin = time.perf_counter()
        while not event.done:  # not `synchronize`, which would wait for a hanging kernel forever
            elapsed = time.perf_counter() - begin
            if elapsed > patience:
                raise TimeoutError(f"a kernel did not end within {patience:.0f} s")
            if elapsed > 0.01:
                time.sleep(0.001)


@dataclass(frozen=True, eq=False)
class Trial:
    """One thing to run.

    Attributes
    ----------
    run : callable
        Does it on the device; what it returns goes to `difference`.
    difference : callable, optional
        How far that is from the truth, relative to its size; None if it only has to run.
    tolerance : float
        The largest difference that is rounding.
    work : float
        How much is done in a run, in `unit`.
    unit : {"obs", "B"}
        Observations, or bytes of memory that have to be read and written.
    """

    run: Callable[[], Any]
    difference: Callable[[Any], float] | None = None
    tolerance: float = 0.0
    work: float = 0.0
    unit: str = "obs"


Make = Callable[[Place, int], Trial]


@dataclass(frozen=True, eq=False)
class Check:
    """A named test.

    Attributes
    ----------
    group, name : str
    parts : callable, or a mapping of names to callables
        Each gives the trial of a size on a place. All are compared, the first is timed.
    small, large, larger : int
        The size that is compared, and those that are timed on a CPU and on a GPU; 0 for what is not timed.
    """

    group: str
    name: str
    parts: Make | Mapping[str, Make]
    small: int
    large: int = 0
    larger: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a check ended. Numbers are None where it did not come to that; `reason` says in one line why it failed,
    or was not timed."""

    group: str
    name: str
    passed: bool
    difference: float | None = None
    tolerance: float | None = None
    throughput: float | None = None
    unit: str = ""
    seconds: float = 0.0
    reason: str = ""
    skipped: bool = False


def run_checks(place: Place, checks: Iterable[Check], quick: bool = False) -> Iterator[Outcome]:
    """Run checks one by one. A failed one does not stop the others, unless the device is lost with it."""
    lost = ""
    for check in checks:
        if lost:
            yield Outcome(check.group, check.name, False, reason=f"not run: {lost}", skipped=True)
            continue
        outcome = run_check(place, check, quick)
        if not outcome.passed and not _alive(place):
            lost = f"the device does not answer since '{check.name}'"
        yield outcome


def run_check(place: Place, check: Check, quick: bool = False) -> Outcome:
    """Run one check; whatever it raises is its reason to fail."""
    begin = time.perf_counter()

    def ended(passed: bool, **more: Any) -> Outcome:
        return Outcome(check.group, check.name, passed, seconds=time.perf_counter() - begin, **more)

    parts = check.parts if isinstance(check.parts, Mapping) else {"": check.parts}
    worst: dict[str, float] = {}
    closest = -1.0  # to the tolerance, or beyond it
    wrong: list[str] = []
    for name, make in parts.items():
        label = f"{name}: " if name else ""
        try:
            trial = make(place, check.small)
            got = trial.run()
            place.wait()
            if trial.difference is None:
                continue
            difference = float(trial.difference(got))
        except Exception as error:
            wrong.append(label + one_line(error))
            if not _alive(place):
                break
            continue
        share = difference / (trial.tolerance or math.ulp(0.0))
        if not share <= closest:  # the first NaN stays
            closest = share if share == share else math.inf
            worst = {"difference": difference, "tolerance": trial.tolerance}
        if not difference <= trial.tolerance:
            wrong.append(f"{label}differs by {difference:.2g}, more than {trial.tolerance:.2g}")
    if wrong:
        more = f"; and {len(wrong) - _REASONS} more" if len(wrong) > _REASONS else ""
        return ended(False, **worst, reason="; ".join(wrong[:_REASONS]) + more)
    size = check.larger if place.on_gpu else check.large
    if quick or size == 0:
        return ended(True, **worst)
    try:
        trial = next(iter(parts.values()))(place, size)
        throughput = trial.work / _best_time(place, trial.run)
    except Exception as error:
        if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
            return ended(True, **worst, reason="not timed: not enough memory")
        return ended(False, **worst, reason=f"right, but fails with more data: {one_line(error)}")
    return ended(True, **worst, throughput=throughput, unit=trial.unit)


def _best_time(place: Place, run: Callable[[], Any]) -> float:
    """Seconds of the fastest of a few runs, after one that does not count."""
    best, total = math.inf, 0.0
    for k in range(_REPEATS + 1):
        place.wait()
        begin = time.perf_counter()
        run()
        place.wait()
        seconds = time.perf_counter() - begin
        total += seconds
        if k > 0 or seconds > _ENOUGH:
            best = min(best, seconds)
        if total > _ENOUGH and best < math.inf:
            break
    return max(best, 1e-9)


def _alive(place: Place) -> bool:
    """Whether the device still computes: after some errors it does not, until the process ends."""
    try:
        x = place.array(np.arange(3.0)) + 1
        place.wait(5.0)
        return bool((to_numpy(x) == [1, 2, 3]).all())
    except Exception:
        return False


def largest_difference(got: Any, want: Any) -> float:
    """The largest difference between arrays, in units of the largest entry of the truth; over several, the worst."""
    got, want = ((x,) if not isinstance(x, (tuple, list)) else x for x in (got, want))
    differences = [0.0]
    for g, w in zip(got, want, strict=True):
        g, w = to_numpy(g) if not np.isscalar(g) else np.asarray(g), np.asarray(w)
        if g.shape != w.shape:
            raise AssertionError(f"shape {g.shape} instead of {w.shape}")
        if w.size > 0:
            size = float(np.max(np.abs(w))) or 1.0
            differences.append(float(np.max(np.abs(g.astype(np.float64) - w.astype(np.float64)))) / size)
    return float(np.max(differences))  # NaN, if there is one
