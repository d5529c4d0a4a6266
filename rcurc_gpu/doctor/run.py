"""The examination from beginning to end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from . import report
from .checks import all_checks
from .findings import device_number, findings, gpu_is_usable
from .probes import Machine, examine
from .selftest import Outcome, Place, run_checks


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
