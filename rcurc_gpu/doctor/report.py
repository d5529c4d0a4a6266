"""What the doctor says: as a dictionary for JSON, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from .findings import FAIL, OK, WARN, Finding
from .probes import Device, Machine
from .selftest import Outcome, Place

_COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}
_NAME, _CHECK, _DIFFERENCE, _SPEED = 18, 42, 32, 14  # widths of columns
NEXT_DEMO = "rcurc-gpu demo"


def machine_words(machine: Machine) -> str:
    """What is installed, and which devices there are."""
    rows = [
        ("Python", f"{machine.python}, {machine.system}"),
        *((name, version or "not installed") for name, version in machine.packages.items()),
        ("CuPy", _cupy_words(machine)),
        ("NVIDIA driver", _driver_words(machine)),
    ]
    if machine.visible is not None:
        rows.append(("CUDA_VISIBLE_DEVICES", repr(machine.visible)))
    devices = [("cpu", f"{machine.cpus} core{'s' if machine.cpus > 1 else ''}")]
    usable = machine.cupy.devices if machine.cupy else ()
    devices += [(f"cuda:{k}", device_words(device)) for k, device in enumerate(usable)]
    devices += [("not usable", device_words(device)) for device in machine.driver.devices[len(usable) :]]
    return f"Installed\n{_columns(rows)}\n\nDevices\n{_columns(devices)}"


def device_words(device: Device) -> str:
    """A GPU in a few words."""
    major, minor = device.capability
    return f"{device.name}, compute capability {major}.{minor}, {device.memory / 1e9:.1f} GB"


def _cupy_words(machine: Machine) -> str:
    wheels = ", ".join(f"{name} {version}" for name, version in machine.wheels.items())
    if machine.cupy is None:
        return f"{wheels}, but there is no module cupy" if wheels else "not installed"
    words = [wheels or f"{machine.cupy.version} (not a wheel)"]
    if machine.cupy.error:
        return f"{words[0]}, cannot be imported"
    if machine.cupy.runtime:
        words.append("CUDA runtime {}.{}".format(*machine.cupy.runtime))
    words.append("NVRTC {}.{}".format(*machine.cupy.nvrtc) if machine.cupy.nvrtc else "no NVRTC")
    return ", ".join(words)


def _driver_words(machine: Machine) -> str:
    number = machine.smi.driver if machine.smi else ""
    version = machine.driver.version or (machine.cupy.driver if machine.cupy else None)
    if version is None:
        return number or "none"
    problem = machine.driver.problem if machine.driver.code else ""
    return ", ".join(filter(None, [number, "CUDA {}.{}".format(*version), problem]))


def findings_words(found: Sequence[Finding]) -> str:
    """Findings, each with what to do on a line of its own."""
    lines = []
    for finding in found:
        lines.append(f"  {_mark(finding.level)} {finding.what}")
        if finding.advice:
            lines.append(f"       -> {finding.advice}")
    return "\n".join(["Findings", *lines])


def outcome_words(outcome: Outcome) -> str:
    """One line of the self-test."""
    name = f"{outcome.group}: {outcome.name}"
    line = f"  {_mark(OK if outcome.passed else FAIL)} {name:<{_CHECK}}"
    if not outcome.passed:
        return f"{line} {outcome.reason}"
    allowed = f"<= {outcome.tolerance:.0e}" if outcome.tolerance else "exact"
    difference = "" if outcome.difference is None else f"difference {outcome.difference:7.1e} ({allowed})"
    return (
        f"{line} {difference:<{_DIFFERENCE}} {_speed(outcome):<{_SPEED}} {outcome.seconds:6.2f} s {outcome.reason}".rstrip()
    )


def _speed(outcome: Outcome) -> str:
    if outcome.throughput is None:
        return ""
    exponent = min(max(int(math.log10(max(outcome.throughput, 1.0)) // 3), 0), 3)
    return f"{outcome.throughput / 1000**exponent:6.3g} {('', 'k', 'M', 'G')[exponent]}{outcome.unit}/s"


def _mark(level: str) -> str:
    return click.style(f"{level:<4}", fg=_COLOURS[level], bold=level == FAIL)


def _columns(rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"  {name:<{_NAME}} {words}" for name, words in rows)


# ---------------------------------------------------------------- the verdict


def make_report(
    machine: Machine, found: Sequence[Finding], place: Place | None, outcomes: Sequence[Outcome], quick: bool
) -> dict[str, Any]:
    """Everything, for JSON; `place` is None if the device that was asked for is not there."""
    failed = [o for o in outcomes if not o.passed]
    passed = not failed and all(f.level != FAIL for f in found)
    return {
        "version": machine.packages.get("rcurc-gpu"),
        "machine": asdict(machine),
        "findings": [asdict(f) for f in found],
        "device": place.name if place else None,
        "quick": quick,
        "checks": [asdict(o) for o in outcomes],
        "device_lost": any(o.skipped for o in outcomes),
        "passed": passed,
        "verdict": _verdict(machine, found, place, outcomes),
        "next": _next_steps(machine, found, place, failed),
    }


def _verdict(machine: Machine, found: Sequence[Finding], place: Place | None, outcomes: Sequence[Outcome]) -> str:
    if place is None:
        return "the device that was asked for cannot be used."
    where = f"{place.name} ({_name(machine, place)})" if place.on_gpu else "the CPU"
    failed = sum(not o.passed for o in outcomes)
    if failed:
        return f"{failed} of {len(outcomes)} checks failed on {where}: do not trust its results."
    works = f"all {len(outcomes)} checks passed on {where}."
    if any(f.level == FAIL for f in found):
        return f"there is something to repair (fail, above); {works}"
    return works


def _name(machine: Machine, place: Place) -> str:
    number = int(place.name.partition(":")[2] or 0)
    devices = machine.cupy.devices if machine.cupy else ()
    return devices[number].name if number < len(devices) else place.name


def _next_steps(machine: Machine, found: Sequence[Finding], place: Place | None, failed: Sequence[Outcome]) -> list[str]:
    steps = [f.advice for level in (FAIL, WARN) for f in found if f.level == level and f.advice]
    if failed:
        steps.append("report the failed checks in an issue, with all of this output")
        if place is not None and place.on_gpu:
            steps.append("use the CPU meanwhile (NumPy arrays, or --device cpu)")
    return steps or [NEXT_DEMO]


def verdict_words(report: dict[str, Any]) -> str:
    """The verdict and what to do, and a request to those with a GPU."""
    level = OK if report["passed"] else FAIL
    lines = [f"Verdict: {click.style(report['verdict'], fg=_COLOURS[level], bold=True)}"]
    lines += [f"{'Next:' if k == 0 else '':<8} {step}" for k, step in enumerate(report["next"])]
    lines.append("")
    lines.append("Do you have a GPU? Please paste this output into an issue: whatever it says, it helps.")
    return "\n".join(lines)
