"""The examination from beginning to end, and what the doctor says: as a dictionary for JSON, and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import click
import numpy as np
from tqdm.auto import tqdm

from .checks import all_checks
from .findings import FAIL, OK, WARN, Finding, dotted, findings, gpu_number
from .probes import Cupy, Machine, Smi, examine
from .selftest import Outcome, Place, run_checks

_COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


def diagnose(device: str, quick: bool, say: Callable[[str], None], visible: bool = False) -> dict[str, Any]:
    """Examine, test, and report on a device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.

    `quick` leaves out all ranks but one, and the larger problems, which are there for the throughput. `say` gets the
    report in words, part by part; `visible` shows a progress bar.
    """
    machine = examine()
    found, place = findings(machine, device), choose_place(machine, device)
    outcomes: list[Outcome] = []
    say(f"rcurc-gpu {machine.packages.get('rcurc-gpu')}: doctor\n\n{machine_words(machine)}\n\n{findings_words(found)}\n")
    if place is not None:
        say(f"Self-test on {place.name}, against NumPy: largest difference, throughput, time")
        with place.xp.cuda.Device(gpu_number(machine, device)) if place.on_gpu else nullcontext():
            checks = all_checks(place, machine, quick)
            with tqdm(checks, "self-test", unit="check", leave=False, disable=not visible) as bar:
                for outcome in run_checks(place, bar, quick, bar.set_postfix_str):
                    outcomes.append(outcome)
                    bar.clear()
                    say(outcome_words(outcome))
        say("")
    report = make_report(machine, found, place, outcomes, quick)
    say(verdict_words(report))
    return report


def choose_place(machine: Machine, device: str) -> Place | None:
    """Where to test: on the CPU if there is no GPU, unless that was asked for."""
    number = gpu_number(machine, device)
    if number is None or machine.cupy is None:
        return Place(np, "cpu") if device in ("auto", "cpu") else None
    import cupy

    return Place(cupy, f"cuda:{number}", f"cuda:{number} ({machine.cupy.devices[number].name})")


def make_report(
    machine: Machine, found: Sequence[Finding], place: Place | None, outcomes: Sequence[Outcome], quick: bool
) -> dict[str, Any]:
    """Everything, for JSON; `place` is None if the device that was asked for is not there."""
    failed, count, broken = sum(not o.passed for o in outcomes), len(outcomes), any(f.level == FAIL for f in found)
    steps = [f.advice for level in (FAIL, WARN) for f in found if f.level == level and f.advice]
    if place is None:
        verdict = "the device that was asked for cannot be used."
    elif failed:
        verdict = f"{failed} of {count} checks failed on {place.words}: do not trust its results."
        steps.append("report the failed checks in an issue, with all of this output")
        steps += ["use the CPU meanwhile (NumPy arrays, or --device cpu)"] if place.on_gpu else []
    else:
        repair = "there is something to repair (fail, above); " if broken else ""
        verdict = f"{repair}all {count} checks passed on {place.words}."
    return {
        "version": machine.packages.get("rcurc-gpu"),
        "machine": asdict(machine),
        "findings": [asdict(f) for f in found],
        "device": place.name if place else None,
        "quick": quick,
        "checks": [asdict(o) for o in outcomes],
        "device_lost": any(o.skipped for o in outcomes),
        "passed": not failed and not broken,
        "verdict": verdict,
        "next": steps or ["rcurc-gpu demo"],
    }


def machine_words(machine: Machine) -> str:
    """What is installed, and which devices there are."""
    cupy, driver, smi = machine.cupy or Cupy(), machine.driver, machine.smi or Smi()
    version = driver.version or cupy.driver
    serves = [f"CUDA {dotted(version)}", driver.problem if driver.code else ""] if version is not None else []
    devices = [(f"cuda:{k}", device) for k, device in enumerate(cupy.devices)]
    devices += [("not usable", device) for device in driver.devices[len(cupy.devices) :]]
    rows = [
        ("Installed", ""),
        ("Python", f"{machine.python}, {machine.system}"),
        *((name, version or "not installed") for name, version in machine.packages.items()),
        ("CuPy", _cupy_words(machine)),
        ("NVIDIA driver", ", ".join(filter(None, [smi.driver, *serves])) or "none"),
        ("CUDA_VISIBLE_DEVICES", None if machine.visible is None else repr(machine.visible)),
        ("\nDevices", ""),
        ("cpu", f"{machine.cpus} core{'s' if machine.cpus > 1 else ''}"),
        *((name, f"{d.name}, compute capability {dotted(d.capability)}, {d.memory / 1e9:.1f} GB") for name, d in devices),
    ]
    return "\n".join(f"  {name:<18} {words}" if words else name for name, words in rows if words is not None)


def _cupy_words(machine: Machine) -> str:
    wheels, cupy = ", ".join(f"{name} {version}" for name, version in machine.wheels.items()), machine.cupy
    if cupy is None:
        return f"{wheels}, but there is no module cupy" if wheels else "not installed"
    name = wheels or f"{cupy.version} (not a wheel)"
    if cupy.error:
        return f"{name}, cannot be imported"
    runtime = f", CUDA runtime {dotted(cupy.runtime)}" if cupy.runtime else ""
    return f"{name}{runtime}, {f'NVRTC {dotted(cupy.nvrtc)}' if cupy.nvrtc else 'no NVRTC'}"


def findings_words(found: Sequence[Finding]) -> str:
    """Findings, each with what to do on a line of its own."""
    lines = [f"  {_mark(f.level)} {f.what}" + (f"\n       -> {f.advice}" if f.advice else "") for f in found]
    return "\n".join(["Findings", *lines])


def outcome_words(outcome: Outcome) -> str:
    """One line of the self-test."""
    line = f"  {_mark(OK if outcome.passed else FAIL)} {f'{outcome.group}: {outcome.name}':<42}"
    if not outcome.passed:
        return f"{line} {outcome.reason}"
    allowed, difference, speed = f"<= {outcome.tolerance:.0e}" if outcome.tolerance else "exact", "", ""
    if outcome.difference is not None:
        difference = f"difference {outcome.difference:7.1e} ({allowed})"
    if outcome.throughput is not None:
        exponent = min(max(int(math.log10(max(outcome.throughput, 1.0)) // 3), 0), 3)
        speed = f"{outcome.throughput / 1000**exponent:6.3g} {('', 'k', 'M', 'G')[exponent]}{outcome.unit}/s"
    return f"{line} {difference:<32} {speed:<14} {outcome.seconds:6.2f} s {outcome.reason}".rstrip()


def _mark(level: str) -> str:
    return click.style(f"{level:<4}", fg=_COLOURS[level], bold=level == FAIL)


def verdict_words(report: dict[str, Any]) -> str:
    """The verdict and what to do, and a request to those with a GPU."""
    verdict = click.style(report["verdict"], fg=_COLOURS[OK if report["passed"] else FAIL], bold=True)
    request = "Do you have a GPU? Please paste this output into an issue: whatever it says, it helps."
    steps = "\n         ".join(report["next"])
    return f"Verdict: {verdict}\nNext:    {steps}\n\n{request}"
