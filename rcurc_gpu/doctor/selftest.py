"""The self-test: every kernel and path on the device against NumPy, on small seeded data.

A `Check` makes a `Trial` of a given size. The small one is compared with the truth, the large one is timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from ..backends import to_numpy
from .probes import Ask, attempt, one_line

_PATIENCE = 30.0  # seconds after which a kernel is thought to hang
_ENOUGH, _REPEATS = 0.25, 5  # seconds of timing, and runs that are timed if all of them take less
_REASONS = 3  # that are told of a failed check


@dataclass(frozen=True, eq=False)
class Place:
    """Where to compute: the namespace ``numpy`` or ``cupy``, a name such as ``"cuda:0"``, and what to call it in words."""

    xp: Any
    name: str
    words: str = "the CPU"

    @property
    def on_gpu(self) -> bool:
        """Whether this is CuPy."""
        return self.xp is not np

    def put(self, x: Any) -> Any:
        """A copy of an array here, or of all arrays in a tuple, a dictionary or a dataclass."""
        if isinstance(x, tuple):
            return tuple(map(self.put, x))
        if isinstance(x, dict):
            return {name: self.put(value) for name, value in x.items()}
        if is_dataclass(x) and not isinstance(x, type):
            return replace(x, **{f.name: self.put(getattr(x, f.name)) for f in fields(x)})
        return self.xp.array(x) if isinstance(x, np.ndarray) else x

    def wait(self, patience: float = _PATIENCE) -> None:
        """Until the device has done all that it was asked for."""
        if self.on_gpu:
            event, end = self.xp.cuda.Event(), time.perf_counter() + patience
            event.record()
            while not event.done:  # not `synchronize`, which would wait for a hanging kernel forever
                if time.perf_counter() > end:
                    raise TimeoutError(f"a kernel did not end within {patience:.0f} s")

    def answers(self) -> bool:
        """Whether the device still computes: after some errors it does not, until the process ends."""
        ones, problem = attempt(lambda: self.put(np.zeros(3)) + 1)
        return not (problem or attempt(self.wait, 5.0)[1]) and attempt(largest_difference, ones, np.ones(3))[0] == 0


@dataclass(frozen=True, eq=False)
class Trial:
    """One thing to run on the device.

    `difference` says how far what it returned is from the truth, None if it only has to run, and `tolerance` what of that
    is rounding. `work` is done in a run, in observations ("obs") or bytes of memory that are read and written ("B").
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

    Each of `parts` makes the trial of a size on a place: all are compared at `small`, the first is timed at `large` on a
    CPU and `larger` on a GPU; 0 for what is not timed.
    """

    group: str
    name: str
    parts: Make | Mapping[str, Make]
    small: int
    large: int = 0
    larger: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a check ended. Numbers are None where it did not come to that; `reason` says why it failed, or was not timed."""

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


def largest_difference(got: Any, want: Any) -> float:
    """The largest difference between arrays, in units of the largest entry of the truth; over several, the worst."""
    got, want = (x if isinstance(x, (tuple, list)) else (x,) for x in (got, want))
    differences = [0.0]
    for pair in zip(got, want, strict=True):
        g, w = (np.asarray(x if np.isscalar(x) else to_numpy(x), dtype=np.float64) for x in pair)
        if g.shape != w.shape:
            raise AssertionError(f"shape {g.shape} instead of {w.shape}")
        differences.append(float(np.max(np.abs(g - w), initial=0.0) / (np.max(np.abs(w), initial=0.0) or 1.0)))
    return float(np.max(differences))  # NaN, if there is one


def run_checks(place: Place, checks: Iterable[Check], quick: bool = False, announce: Ask = str) -> Iterator[Outcome]:
    """Run checks, each announced by name. A failed one does not stop the others, unless the device is lost with it."""
    lost = ""
    for check in checks:
        announce(check.name)
        if lost:
            yield Outcome(check.group, check.name, False, reason=f"not run: {lost}", skipped=True)
            continue
        outcome = run_check(place, check, quick)
        if not outcome.passed and not place.answers():
            lost = f"the device does not answer since '{check.name}'"
        yield outcome


def run_check(place: Place, check: Check, quick: bool = False) -> Outcome:
    """Run one check; whatever it raises is its reason to fail."""
    begin = time.perf_counter()
    parts = check.parts if isinstance(check.parts, Mapping) else {"": check.parts}
    compared: list[tuple[float, float]] = []
    wrong: list[str] = []
    for name, make in parts.items():
        found, problem = attempt(_compare, place, make, check.small)
        if found is not None:
            compared.append(found)
            problem = "" if found[0] <= found[1] else "differs by {:.2g}, more than {:.2g}".format(*found)
        if problem:
            wrong.append(f"{name}: {problem}" if name else problem)
            if not place.answers():
                break
    # The one that takes most of its tolerance; NaN is more than everything.
    difference, tolerance = max(compared, key=lambda c: (c[0] != c[0], c[0] / (c[1] or math.ulp(0.0))), default=(None, None))
    reason = "; ".join(wrong[:_REASONS]) + (f"; and {len(wrong) - _REASONS} more" if len(wrong) > _REASONS else "")
    outcome = Outcome(check.group, check.name, not wrong, difference, tolerance, reason=reason)
    size = check.larger if place.on_gpu else check.large
    if size and not quick and not wrong:
        try:
            outcome = replace(outcome, **_timed(place, next(iter(parts.values())), size))
        except Exception as error:
            full = isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__
            reason = "not timed: not enough memory" if full else f"right, but fails with more data: {one_line(error)}"
            outcome = replace(outcome, passed=full, reason=reason)
    return replace(outcome, seconds=time.perf_counter() - begin)


def _compare(place: Place, make: Make, size: int) -> tuple[float, float] | None:
    """The difference and its tolerance; None if there is nothing to compare."""
    trial = make(place, size)
    got = trial.run()
    place.wait()
    return (float(trial.difference(got)), trial.tolerance) if trial.difference else None


def _timed(place: Place, make: Make, size: int) -> dict[str, Any]:
    """The throughput of the fastest of a few runs, after one that does not count unless it takes long."""
    trial = make(place, size)
    times: list[float] = []
    while len(times) <= _REPEATS and sum(times) <= _ENOUGH:
        place.wait()
        begin = time.perf_counter()
        trial.run()
        place.wait()
        times.append(time.perf_counter() - begin)
    return {"throughput": trial.work / max(min(times[1:] or times), 1e-9), "unit": trial.unit}
