"""What the doctor says: as a dictionary for JSON, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from .findings import FAIL, OK, WARN, Finding, dotted
from .probes import Device, Machine
from .selftest import Outcome, Place

_COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}
_NAME, _CHECK, _DIFFERENCE, _SPEED = 18, 42, 32, 14  # widths of columns


def machine_words(machine: Machine) -> str:
    """What is installed, and which devices there are."""
    usable = machine.cupy.devices if machine.cupy else ()
    rows = [
        ("Installed", ""),
        ("Python", f"{machine.python}, {machine.system}"),
        *((name, version or "not installed") for name, version in machine.packages.items()),
        ("CuPy", _cupy_words(machine)),
        ("NVIDIA driver", _driver_words(machine)),
        *([("CUDA_VISIBLE_DEVICES", repr(machine.visible))] if machine.visible is not None else []),
        ("\nDevices", ""),
        ("cpu", f"{machine.cpus} core{'s' if machine.cpus > 1 else ''}"),
        *((f"cuda:{k}", _device_words(device)) for k, device in enumerate(usable)),
        *(("not usable", _device_words(device)) for device in machine.driver.devices[len(usable) :]),
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


def _driver_words(machine: Machine) -> str:
    version = machine.driver.version or (machine.cupy.driver if machine.cupy else None)
    words = [machine.smi.driver if machine.smi else ""]
    if version is not None:
        words += [f"CUDA {dotted(version)}", machine.driver.problem if machine.driver.code else ""]
    return ", ".join(filter(None, words)) or "none"


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


def verdict_words(report: dict[str, Any]) -> str:
    """The verdict and what to do, and a request to those with a GPU."""
    verdict = click.style(report["verdict"], fg=_COLOURS[OK if report["passed"] else FAIL], bold=True)
    steps = "\n         ".join(report["next"])
    request = "Do you have a GPU? Please paste this output into an issue: whatever it says, it helps."
    return f"Verdict: {verdict}\nNext:    {steps}\n\n{request}"
