"""The examination from beginning to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from ..backends.kernels import XP, Kernels, choose
from . import report
from .checks import operator_checks, plain_checks, solve_checks
from .compiling import device_compile_checks, nvrtc_compile_checks
from .findings import device_number, findings, gpu_is_usable
from .kernel_checks import QUICK_RANKS, RANKS, kernel_checks
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
        with _current(place), _bar(visible) as bar:
            for outcome in _watched(place, all_checks(place, machine, quick), quick, bar):
                outcomes.append(outcome)
                bar.clear()
                say(report.outcome_words(outcome))
        say("")
    result = report.make_report(machine, found, place, outcomes, quick)
    say(report.verdict_words(result))
    return result


def all_checks(place: Place, machine: Machine, quick: bool = False) -> list[Check]:
    """Everything there is to check on a place; the plain code on NumPy is what is compared with."""
    ranks = QUICK_RANKS if quick else RANKS
    if place.on_gpu:
        return [*device_compile_checks(ranks), *plain_checks(), *cuda_checks(ranks), *solve_checks(place)]
    kernels = choose("auto", np.zeros(1))
    compiled = kernel_checks(kernels, ranks) if kernels.name != "xp" else []
    # NVRTC looks at the driver, too, and may crash with one that does not work.
    cuda = nvrtc_compile_checks(machine.cupy) if machine.driver.version is None else []
    return [*cuda, *plain_checks(), *compiled, *solve_checks(place)]


def cuda_checks(ranks: tuple[int, ...] = RANKS) -> list[Check]:
    """The CUDA kernels themselves, whatever the solver chooses to use."""
    try:
        from ..backends.cuda import calls as cuda
        from ..backends.cuda import elementwise
    except Exception as error:
        return [Check("cuda", "load the kernels", partial(_cannot_load, error), 0)]
    kernels = Kernels("cuda", cuda.regress, cuda.advance, cuda.make_grid, XP.plan)
    return [*operator_checks("cuda", elementwise), *kernel_checks(kernels, ranks)]


def _cannot_load(error: Exception, place: Place, size: int) -> Trial:
    raise error


def choose_place(machine: Machine, device: str) -> Place | None:
    """Where to test: on the CPU if there is no GPU, unless that was asked for."""
    if device != "cpu" and gpu_is_usable(machine, device):
        import cupy

        return Place(cupy, f"cuda:{device_number(device)}")
    return Place(np, "cpu") if device in ("auto", "cpu") else None


def _current(place: Place) -> AbstractContextManager[Any]:
    """The device of `place` as CuPy's current one."""
    return place.xp.cuda.Device(device_number(place.name)) if place.on_gpu else nullcontext()


def _watched(place: Place, checks: Sequence[Check], quick: bool, bar: Any) -> Iterator[Outcome]:
    """Run checks, with the one at work beside the bar."""
    bar.reset(total=len(checks))

    def announced() -> Iterator[Check]:
        for check in checks:
            bar.set_postfix_str(check.name)
            yield check

    for outcome in run_checks(place, announced(), quick):
        yield outcome
        bar.update(1)


@contextmanager
def _bar(visible: bool) -> Iterator[Any]:
    from tqdm.auto import tqdm

    with tqdm(desc="self-test", unit="check", leave=False, disable=not visible) as bar:
        yield bar
