"""The examination from beginning to end: what the state of a machine means, what to install, and all of it in words."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import click
import numpy as np
from tqdm.auto import tqdm

from .checks import all_checks
from .probes import Cupy, Machine, Smi, Version, examine
from .selftest import Outcome, Place, run_checks

OK, WARN, FAIL = "ok", "warn", "fail"
_COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}
# CUDA's major version, the driver that it needs (on Linux; Windows has 528 and 580), and the oldest GPUs that it knows.
_DRIVER_FOR = {12: "525", 13: "580"}
_OLDEST = {12: (5, 0), 13: (7, 5)}
_LEAST_CUPY = (13, 6)  # as in pyproject.toml; a smoke set of the tests runs with it
# GPUs that compute in float64 at half the speed of float32; all others are made for pictures and have a 32nd or a 64th.
_FAST_DOUBLE = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
_NO_DEVICE = 100  # what `cuInit` returns where the driver works and has nothing to serve
# What to do about other codes of `cuInit`: a stub, a driver unlike its loaded module, a compatibility package, unknown.
_INIT_ADVICE = {
    34: "this is the toolkit's stub, not a driver: remove its folder from LD_LIBRARY_PATH",
    803: "the driver was updated while it was loaded: restart the machine",
    804: "remove CUDA's compatibility package (cuda-compat) from LD_LIBRARY_PATH, or update the driver",
    999: "restart the machine, or load the module of the kernel (sudo modprobe nvidia_uvm)",
}


@dataclass(frozen=True)
class Finding:
    """Something about the machine: how bad it is (``"ok"``, ``"warn"``, ``"fail"``), what it is, and what to do."""

    level: str
    what: str
    advice: str = ""


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


def gpu_number(machine: Machine, device: str) -> int | None:
    """The number of the device that CuPy can compute on; None if there is none, or it is not wanted."""
    number = int(device.partition(":")[2] or 0)
    return number if device != "cpu" and machine.cupy is not None and number < len(machine.cupy.devices) else None


def choose_place(machine: Machine, device: str) -> Place | None:
    """Where to test: on the CPU if there is no GPU, unless that was asked for."""
    number = gpu_number(machine, device)
    if number is None or machine.cupy is None:
        return Place(np, "cpu") if device in ("auto", "cpu") else None
    import cupy

    return Place(cupy, f"cuda:{number}", f"cuda:{number} ({machine.cupy.devices[number].name})")


def findings(machine: Machine, device: str = "auto") -> list[Finding]:
    """Judge a machine for someone who wants to use `device`: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``."""
    found, version = [Finding(*row) for row in _gpu(machine)], machine.packages.get("numba")
    usable = gpu_number(machine, device) is not None
    if device == "cpu":  # nothing about a GPU stands in the way
        found = [replace(f, level=WARN) if f.level == FAIL else f for f in found]
    elif device != "auto" and not usable:
        count = len(machine.cupy.devices) if machine.cupy else 0
        there = {0: "no device", 1: "only cuda:0"}.get(count, f"cuda:0 to cuda:{count - 1}")
        found.append(Finding(FAIL, f"--device {device} was asked for, but CuPy has {there}"))
    if machine.numba_error:
        found.append(Finding(WARN, f"Numba cannot be imported: {machine.numba_error}", "pip install --upgrade numba"))
    elif version is not None:
        found.append(Finding(OK, f"Numba {version}: compiled kernels on the CPU"))
    elif not usable:
        what = "Numba is not installed: the CPU runs plain NumPy, about ten times slower"
        found.append(Finding(WARN, what, "pip install numba   (the extra 'fast')"))
    return found


def dotted(version: Version) -> str:
    """As it is written: 13.2 for (13, 2)."""
    return ".".join(map(str, version))


def _gpu(machine: Machine) -> Iterator[tuple[str, str, str]]:
    """What there is to say of CuPy, drivers and devices: levels, words and advice."""
    driver, wheels, cupy, smi = machine.driver, machine.wheels, machine.cupy or Cupy(), machine.smi or Smi()
    old_driver, new_driver = _DRIVER_FOR.values()
    count, total, cuda = len(cupy.devices), len(smi.gpus), dotted(driver.version or (0, 0))
    named = " and ".join(f"{name} {version}" for name, version in wheels.items()) or f"CuPy {cupy.version}".rstrip()
    # CUDA's major version that the installed CuPy is made for; 0 if that is not known.
    numbers = [int(m[1]) for name in wheels if (m := re.fullmatch(r"cupy-cuda(\d\d)\w*", name))]
    major = cupy.runtime[0] if cupy.runtime and not cupy.rocm else max(numbers, default=0)
    # The CuPy to install: for the driver, but CUDA 13 has left GPUs older than Turing behind.
    modern = all(device.capability >= _OLDEST[13] for device in (*driver.devices, *cupy.devices))
    wheel = f"cupy-cuda{13 if modern and (driver.version or cupy.driver or (0, 0)) >= (13, 0) else 12}x"
    own = min(wheels, default="") if len(wheels) == 1 and min(wheels).startswith("cupy-cuda") else wheel  # to repair
    remove = f"pip uninstall -y {' '.join(wheels)} && " if wheels else ""
    exchange = f'{remove}pip install "{wheel}[ctk]"'  # leaves this wheel as the only CuPy
    visible = f"CUDA_VISIBLE_DEVICES={machine.visible!r} leaves {count}{f' of {total}' if total else ''} devices"
    unset = "unset CUDA_VISIBLE_DEVICES, or name the devices to use, such as CUDA_VISIBLE_DEVICES=0"

    if len(wheels) > 1:
        what = f"{len(wheels)} packages of CuPy overwrite each other: {', '.join(wheels)}"
        yield WARN if count else FAIL, what, exchange
    if count:
        yield OK, f"CuPy {cupy.version} has {count} device{'s' if count > 1 else ''}", ""
        if len(wheels) < 2:  # else the warnings are about that
            yield from ((WARN, f"CuPy warns: {said}", "") for said in cupy.warnings)
        if cupy.rocm:
            slow = "plain CuPy code runs there instead of kernels, and was never tested"
            yield WARN, f"CuPy is built for ROCm: {slow}", "please report how it goes"
            return
        if () < tuple(map(int, re.findall(r"\d+", cupy.version)[:2])) < _LEAST_CUPY:
            yield WARN, f"CuPy {cupy.version} is older than {dotted(_LEAST_CUPY)}", f'pip install --upgrade "{own}[ctk]"'
        for k, device in enumerate(cupy.devices):
            if device.capability < (oldest := _OLDEST.get(major, (0, 0))):
                what = f"cuda:{k} ({device.name}) has compute capability {dotted(device.capability)}"
                too_old = device.capability < _OLDEST[12]
                advice = "use --device cpu" if too_old else f'{remove}pip install "cupy-cuda12x[ctk]"'
                yield FAIL, f"{what}, and CUDA {major} begins at {dotted(oldest)}", advice
            elif device.capability not in _FAST_DOUBLE:
                what = f"cuda:{k} ({device.name}) computes much faster in float32 than in float64"
                yield OK, what, "where five digits are enough, give it float32 values: samples keep their dtype"
        if cupy.missing:
            what = f"{', '.join(cupy.missing)} ({next(iter(cupy.missing.values()))})"
            yield FAIL, f"CuPy lacks libraries of CUDA: {what}", f'pip install "{own}[ctk]"'
        if machine.visible is not None and total > count:
            yield WARN, visible, unset
    elif driver.version is None:  # nothing serves a GPU; that is fine, unless there is one
        there = machine.cards > 0 or total > 0
        if there and machine.container:
            what = "there is an NVIDIA GPU, but this container has no access to it: the CPU is used"
            yield WARN, what, "start it with: docker run --gpus all ..."
        elif there:
            advice = f"install NVIDIA's driver {new_driver} or newer ({old_driver} for CUDA 12), then run this again"
            yield WARN, "there is an NVIDIA GPU, but no driver for it: the CPU is used", advice
        elif machine.cupy is not None or wheels:
            advice = "nothing, if this machine has no NVIDIA GPU; else install NVIDIA's driver"
            yield WARN, f"{named} is installed, but there is no NVIDIA driver: the CPU is used", advice
        else:
            yield OK, "no NVIDIA driver: the CPU is used", ""
        if cupy.error:
            yield WARN, f"CuPy cannot be imported: {cupy.error}", ""
    elif driver.code not in (0, _NO_DEVICE):
        advice = _INIT_ADVICE.get(driver.code, "look at: nvidia-smi; update the driver or restart the machine")
        yield FAIL, f"the NVIDIA driver does not start: {driver.problem} ({driver.code})", advice
    elif driver.code == _NO_DEVICE or not driver.devices:
        advice = "start the container with: docker run --gpus all ..." if machine.container else "look at: nvidia-smi"
        nothing = f"the NVIDIA driver (CUDA {cuda}) finds no device: the CPU is used"
        yield (WARN, nothing, advice) if machine.visible is None else (WARN, visible, unset)
    # From here on, the driver has devices, and CuPy has none.
    elif driver.version < (12, 0):
        advice = f"install driver {old_driver} or newer ({new_driver} for CUDA 13), then run this again"
        yield FAIL, f"the NVIDIA driver is too old: it serves CUDA {cuda}, and CuPy needs 12.0", advice
    elif machine.cupy is None:
        advice = f"pip install \"{wheel}[ctk]\"   (the extra '{wheel.removeprefix('cupy-')}', with NVIDIA's libraries)"
        gpu = f"{driver.devices[0].name}, CUDA {cuda}"
        yield WARN, f"there is a GPU ({gpu}), but CuPy is not installed: the CPU is used", advice
    elif cupy.rocm or any("rocm" in name for name in wheels):
        yield FAIL, f"{named} is for AMD's GPUs, and this one is NVIDIA's", exchange
    elif major > driver.version[0]:
        update = f"   or update the driver to {_DRIVER_FOR.get(major, 'the newest')} or newer"
        yield FAIL, f"{named} needs a driver for CUDA {major}, and this one serves CUDA {cuda}", exchange + update
    elif 0 < major < 12:
        yield FAIL, f"{named} is for CUDA {major}, which is too old", exchange
    elif cupy.error:
        yield FAIL, f"CuPy cannot be imported: {cupy.error}", exchange
    else:
        yield FAIL, f"the driver has a GPU, but CuPy cannot use it: {cupy.devices_error or 'it finds no device'}", exchange


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
        ("cpu", f"{machine.cpus} core{'s' if machine.cpus > 1 else ''}{machine.processor and ', '}{machine.processor}"),
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
    allowed, speed = f"<= {outcome.tolerance:.0e}" if outcome.tolerance else "exact", ""
    difference = "" if outcome.difference is None else f"difference {outcome.difference:7.1e} ({allowed})"
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
