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
from .findings import FAIL, OK, WARN, Finding, device_number, dotted, findings, gpu_is_usable
from .probes import Cupy, Device, Machine, Smi, examine
from .selftest import Outcome, Place, run_checks

_COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}
_NAME, _CHECK, _DIFFERENCE, _SPEED = 18, 42, 32, 14  # widths of columns


def diagnose(device: str, quick: bool, say: Callable[[str], None], visible: bool = False) -> dict[str, Any]:
    """Examine, test, and report on a device: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.

    `quick` leaves out all ranks but one, and the larger problems, which are there for the throughput. `say` gets the
    report in words, part by part; `visible` shows a progress bar.
    """
    machine = examine()
    found = findings(machine, device)
    say(f"rcurc-gpu {machine.packages.get('rcurc-gpu')}: doctor\n\n{machine_words(machine)}\n")
    say(f"{findings_words(found)}\n")
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
                say(outcome_words(outcome))
                bar.update(1)
        say("")
    report = make_report(machine, found, place, outcomes, quick)
    say(verdict_words(report))
    return report


def choose_place(machine: Machine, device: str) -> Place | None:
    """Where to test: on the CPU if there is no GPU, unless that was asked for."""
    if machine.cupy is not None and device != "cpu" and gpu_is_usable(machine, device):
        import cupy

        number = device_number(device)
        return Place(cupy, f"cuda:{number}", f"cuda:{number} ({machine.cupy.devices[number].name})")
    return Place(np, "cpu") if device in ("auto", "cpu") else None


def make_report(
    machine: Machine, found: Sequence[Finding], place: Place | None, outcomes: Sequence[Outcome], quick: bool
) -> dict[str, Any]:
    """Everything, for JSON; `place` is None if the device that was asked for is not there."""
    failed, count = sum(not o.passed for o in outcomes), len(outcomes)
    broken = any(f.level == FAIL for f in found)
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


# ---------------------------------------------------------------- words


def machine_words(machine: Machine) -> str:
    """What is installed, and which devices there are."""
    cupy, driver = machine.cupy or Cupy(), machine.driver
    version, smi = driver.version or cupy.driver, machine.smi or Smi()
    serves = [f"CUDA {dotted(version)}", driver.problem if driver.code else ""] if version is not None else []
    rows = [
        ("Installed", ""),
        ("Python", f"{machine.python}, {machine.system}"),
        *((name, version or "not installed") for name, version in machine.packages.items()),
        ("CuPy", _cupy_words(machine)),
        ("NVIDIA driver", ", ".join(filter(None, [smi.driver, *serves])) or "none"),
        *([("CUDA_VISIBLE_DEVICES", repr(machine.visible))] if machine.visible is not None else []),
        ("\nDevices", ""),
        ("cpu", f"{machine.cpus} core{'s' if machine.cpus > 1 else ''}"),
        *((f"cuda:{k}", _device_words(device)) for k, device in enumerate(cupy.devices)),
        *(("not usable", _device_words(device)) for device in driver.devices[len(cupy.devices) :]),
    ]
    return "\n".join(f"  {name:<{_NAME}} {words}" if words else name for name, words in rows)


def _device_words(device: Device) -> str:
    return f"{device.name}, compute capability {dotted(device.capability)}, {device.memory / 1e9:.1f} GB"


def _cupy_words(machine: Machine) -> str:
    wheels, cupy = ", ".join(f"{name} {version}" for name, version in machine.wheels.items()), machine.cupy
    if cupy is None:
        return f"{wheels}, but there is no module cupy" if wheels else "not installed"
    name = wheels or f"{cupy.version} (not a wheel)"
    if cupy.error:
        return f"{name}, cannot be imported"
    runtime = f", CUDA runtime {dotted(cupy.runtime)}" if cupy.runtime else ""
    return f"{name}{runtime}, NVRTC {dotted(cupy.nvrtc)}" if cupy.nvrtc else f"{name}{runtime}, no NVRTC"


def findings_words(found: Sequence[Finding]) -> str:
    """Findings, each with what to do on a line of its own."""
    lines = [f"  {_mark(f.level)} {f.what}" + (f"\n       -> {f.advice}" if f.advice else "") for f in found]
    return "\n".join(["Findings", *lines])


def outcome_words(outcome: Outcome) -> str:
    """One line of the self-test."""
    line = f"  {_mark(OK if outcome.passed else FAIL)} {f'{outcome.group}: {outcome.name}':<{_CHECK}}"
    if not outcome.passed:
        return f"{line} {outcome.reason}"
    allowed = f"<= {outcome.tolerance:.0e}" if outcome.tolerance else "exact"
    difference = "" if outcome.difference is None else f"difference {outcome.difference:7.1e} ({allowed})"
    speed = ""
    if outcome.throughput is not None:
        exponent = min(max(int(math.log10(max(outcome.throughput, 1.0)) // 3), 0), 3)
        speed = f"{outcome.throughput / 1000**exponent:6.3g} {('', 'k', 'M', 'G')[exponent]}{outcome.unit}/s"
    return f"{line} {difference:<{_DIFFERENCE}} {speed:<{_SPEED}} {outcome.seconds:6.2f} s {outcome.reason}".rstrip()


def _mark(level: str) -> str:
    return click.style(f"{level:<4}", fg=_COLOURS[level], bold=level == FAIL)


def verdict_words(report: dict[str, Any]) -> str:
    """The verdict and what to do, and a request to those with a GPU."""
    verdict = click.style(report["verdict"], fg=_COLOURS[OK if report["passed"] else FAIL], bold=True)
    request = "Do you have a GPU? Please paste this output into an issue: whatever it says, it helps."
    steps = "\n         ".join(report["next"])
    return f"Verdict: {verdict}\nNext:    {steps}\n\n{request}"
