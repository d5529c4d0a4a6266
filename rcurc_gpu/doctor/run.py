"""The examination from beginning to end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from ..api import rcurc
from ..errors import without_warning
from ..testing import synthetic
from . import report
from .checks import QUICK_RANKS, RANKS, cpu_checks, cuda_checks, device_compile_checks, nvrtc_compile_checks, plain_checks
from .findings import device_number, findings, gpu_is_usable
from .probes import Machine, examine
from .selftest import Check, Outcome, Place, Trial, run_checks


def diagnose(device: str, quick: bool, say: Callable[[str], None], visible: bool = False) -> dict[str, Any]:
    """Examine, test, and report.

    Parameters
    ----------
    device : str
        ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
    quick : bool
        Leave out all ranks but one, and the larger problems, which are there for the throughput.
    say : callable
        Gets the report in words, part by part.
    visible : bool
        Show a progress bar.
    """
    machine = examine()
    found = findings(machine, device)
    say(f"rcurc-gpu {machine.packages.get('rcurc-gpu')}: doctor\n\n{report.machine_words(machine)}\n")
    say(f"{report.findings_words(found)}\n")
    place = choose_place(machine, device)
    outcomes: list[Outcome] = []
    if place is not None:
        say(f"Self-test on {place.name}, against NumPy: largest difference, throughput, time")
        current = place.xp.cuda.Device(device_number(place.name)) if place.on_gpu else nullcontext()
        with current, tqdm(desc="self-test", unit="check", leave=False, disable=not visible) as bar:
            checks = all_checks(place, machine, quick)
            bar.reset(total=len(checks))
            for outcome in run_checks(place, checks, quick, bar.set_postfix_str):
                outcomes.append(outcome)
                bar.clear()
                say(report.outcome_words(outcome))
                bar.update(1)
        say("")
    result = report.make_report(machine, found, place, outcomes, quick)
    say(report.verdict_words(result))
    return result


def choose_place(machine: Machine, device: str) -> Place | None:
    """Where to test: on the CPU if there is no GPU, unless that was asked for."""
    if machine.cupy is not None and device != "cpu" and gpu_is_usable(machine, device):
        import cupy

        number = device_number(device)
        return Place(cupy, f"cuda:{number}", f"cuda:{number} ({machine.cupy.devices[number].name})")
    return Place(np, "cpu") if device in ("auto", "cpu") else None


def all_checks(place: Place, machine: Machine, quick: bool = False) -> list[Check]:
    """Everything there is to check on a place."""
    ranks = QUICK_RANKS if quick else RANKS
    if place.on_gpu:
        return [*device_compile_checks(ranks), *plain_checks(), *cuda_checks(ranks), *solve_checks(place)]
    # NVRTC looks at the driver, too, and may crash with one that does not work.
    cuda = nvrtc_compile_checks(machine.cupy) if machine.driver.version is None else []
    return [*cuda, *plain_checks(), *cpu_checks(ranks), *solve_checks(place)]


def solve_checks(place: Place) -> list[Check]:
    """Whole solves, against the truth of a synthetic problem: compiled, plain, and streamed to a device."""
    ways: dict[str, dict[str, Any]] = {"auto": {}, "plain": {"kernels": "xp"}}
    if place.on_gpu:
        ways["from the host"] = {"device": place.name}
    checks = []
    for method, tolerance, large, larger in (("fast", 1e-8, 2000, 4000), ("paper", 1e-4, 1000, 2000)):
        parts = {name: partial(_solve, method, tolerance, way) for name, way in ways.items()}
        checks.append(Check("solve", f"rcurc, method {method}", parts, 120, large, larger))
    return checks


def _solve(method: str, tolerance: float, way: dict[str, Any], place: Place, size: int) -> Trial:
    """The largest problem is chosen so that it takes a second or two without compiled kernels."""
    share, rate = (0.5, 0.6) if size < 500 else (0.3, 0.3)
    chosen = round(share * size)
    problem = synthetic((size, size), 2, alpha=0.1, n_rows=chosen, n_cols=chosen, rate=rate, seed=5)
    there = place.on_gpu and "device" not in way
    samples = problem.samples.to_namespace(place.xp) if there else problem.samples

    def run() -> Any:
        with without_warning():
            return rcurc(samples, 2, method=method, seed=5, progress=False, **way)

    return Trial(run, lambda result: float(problem.relative_error(result.cur)), tolerance, float(problem.samples.n_obs))
