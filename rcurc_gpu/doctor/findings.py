"""What the state of a machine means, and what to install."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .probes import Cupy, Machine, Smi, Version

OK, WARN, FAIL = "ok", "warn", "fail"

# CUDA's major version, the driver that it needs (on Linux; Windows has 528 and 580), and the oldest GPUs that it knows.
_DRIVER_FOR = {12: "525", 13: "580"}
_OLDEST = {12: (5, 0), 13: (7, 5)}
_LEAST_CUPY = (13, 4)

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


def gpu_number(machine: Machine, device: str) -> int | None:
    """The number of the device that CuPy can compute on; None if there is none, or it is not wanted."""
    number = int(device.partition(":")[2] or 0)
    return number if device != "cpu" and machine.cupy is not None and number < len(machine.cupy.devices) else None


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
            yield WARN, "CuPy is built for ROCm: rcurc-gpu was not tested there", "please report how it goes"
            return
        if () < tuple(map(int, re.findall(r"\d+", cupy.version)[:2])) < _LEAST_CUPY:
            advice = f'pip install --upgrade "{own}[ctk]"'
            yield WARN, f"CuPy {cupy.version} is older than {dotted(_LEAST_CUPY)}", advice
        for k, device in enumerate(cupy.devices):
            if device.capability < (oldest := _OLDEST.get(major, (0, 0))):
                what = f"cuda:{k} ({device.name}) has compute capability {dotted(device.capability)}"
                too_old = device.capability < _OLDEST[12]
                advice = "use --device cpu" if too_old else f'{remove}pip install "cupy-cuda12x[ctk]"'
                yield FAIL, f"{what}, and CUDA {major} begins at {dotted(oldest)}", advice
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
        why = cupy.devices_error or "it finds no device"
        yield FAIL, f"the driver has a GPU, but CuPy cannot use it: {why}", exchange
