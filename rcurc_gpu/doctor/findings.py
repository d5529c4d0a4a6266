"""What the state of a machine means, and what to install."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .probes import Cupy, Machine, Version

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
    usable = gpu_is_usable(machine, device)
    gpu = list(_gpu(machine))
    if device == "cpu":  # nothing about a GPU stands in the way
        gpu = [replace(f, level=WARN) if f.level == FAIL else f for f in gpu]
    elif device != "auto" and not usable:
        count = len(machine.cupy.devices) if machine.cupy else 0
        there = {0: "no device", 1: "only cuda:0"}.get(count, f"cuda:0 to cuda:{count - 1}")
        gpu.append(Finding(FAIL, f"--device {device} was asked for, but CuPy has {there}"))
    return [*gpu, *_numba(machine, needed=device == "cpu" or not usable)]


def gpu_is_usable(machine: Machine, device: str = "auto") -> bool:
    """Whether CuPy can compute on a device."""
    return machine.cupy is not None and device_number(device) < len(machine.cupy.devices)


def device_number(device: str) -> int:
    """1 for ``"cuda:1"``; 0 if none is named."""
    return int(device.partition(":")[2] or 0)


def _numba(machine: Machine, needed: bool) -> Iterator[Finding]:
    version = machine.packages.get("numba")
    if machine.numba_error:
        yield Finding(WARN, f"Numba cannot be imported: {machine.numba_error}", "pip install --upgrade numba")
    elif version is not None:
        yield Finding(OK, f"Numba {version}: compiled kernels on the CPU")
    elif needed:
        what = "Numba is not installed: the CPU runs plain NumPy, about ten times slower"
        yield Finding(WARN, what, "pip install numba   (the extra 'fast')")


def _gpu(machine: Machine) -> Iterator[Finding]:
    driver, cupy, wheels = machine.driver, machine.cupy, machine.wheels
    if len(wheels) > 1:
        what = f"{len(wheels)} packages of CuPy overwrite each other: {', '.join(wheels)}"
        yield Finding(WARN if gpu_is_usable(machine) else FAIL, what, _exchange(machine))
    if cupy is not None and cupy.devices:
        yield from _working(machine, cupy)
    elif driver.version is None:
        yield _no_driver(machine)
        if cupy is not None and cupy.error:
            yield Finding(WARN, f"CuPy cannot be imported: {cupy.error}")
    elif driver.code not in (0, _NO_DEVICE):
        advice = _INIT_ADVICE.get(driver.code, "look at: nvidia-smi; update the driver or restart the machine")
        yield Finding(FAIL, f"the NVIDIA driver does not start: {driver.problem} ({driver.code})", advice)
    elif driver.code == 0 and driver.devices:
        yield _driver_alone(machine, driver.version)
    elif not (hidden := list(_hidden(machine, 0))):
        advice = "start the container with: docker run --gpus all ..." if machine.container else "look at: nvidia-smi"
        yield Finding(WARN, f"the NVIDIA driver (CUDA {dotted(driver.version)}) finds no device: the CPU is used", advice)
    else:
        yield from hidden


def _working(machine: Machine, cupy: Cupy) -> Iterator[Finding]:
    """CuPy has devices."""
    count, major = len(cupy.devices), _major(machine)
    yield Finding(OK, f"CuPy {cupy.version} has {count} device{'s' if count > 1 else ''}")
    if len(machine.wheels) < 2:  # else the warnings are about that
        yield from (Finding(WARN, f"CuPy warns: {said}") for said in cupy.warnings)
    if cupy.rocm:
        yield Finding(WARN, "CuPy is built for ROCm: rcurc-gpu was not tested there", "please report how it goes")
        return
    if () < tuple(map(int, re.findall(r"\d+", cupy.version)[:2])) < _LEAST_CUPY:
        upgrade = _install(_own_wheel(machine), "--upgrade ")
        yield Finding(WARN, f"CuPy {cupy.version} is older than {dotted(_LEAST_CUPY)}", upgrade)
    for k, device in enumerate(cupy.devices):
        if device.capability < (oldest := _OLDEST.get(major, (0, 0))):
            what = f"cuda:{k} ({device.name}) has compute capability {dotted(device.capability)}"
            advice = _exchange(machine, "cupy-cuda12x") if device.capability >= _OLDEST[12] else "use --device cpu"
            yield Finding(FAIL, f"{what}, and CUDA {major} begins at {dotted(oldest)}", advice)
    if cupy.missing:
        what = f"{', '.join(cupy.missing)} ({next(iter(cupy.missing.values()))})"
        yield Finding(FAIL, f"CuPy lacks libraries of CUDA: {what}", _install(_own_wheel(machine)))
    yield from _hidden(machine, count)


def _hidden(machine: Machine, count: int) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES leaves `count` devices, and there are more."""
    total = len(machine.smi.gpus) if machine.smi is not None else 0
    if machine.visible is not None and (count == 0 or total > count):
        advice = "unset CUDA_VISIBLE_DEVICES, or name the devices to use, such as CUDA_VISIBLE_DEVICES=0"
        of = f" of {total}" if total else ""
        yield Finding(WARN, f"CUDA_VISIBLE_DEVICES={machine.visible!r} leaves {count}{of} devices", advice)


def _no_driver(machine: Machine) -> Finding:
    """Nothing serves a GPU. That is fine, unless there is one."""
    there = machine.cards > 0 or (machine.smi is not None and bool(machine.smi.gpus))
    if there and machine.container:
        what = "there is an NVIDIA GPU, but this container has no access to it: the CPU is used"
        return Finding(WARN, what, "start it with: docker run --gpus all ...")
    if there:
        advice = f"install NVIDIA's driver {_DRIVER_FOR[13]} or newer ({_DRIVER_FOR[12]} for CUDA 12), then run this again"
        return Finding(WARN, "there is an NVIDIA GPU, but no driver for it: the CPU is used", advice)
    if machine.cupy is not None or machine.wheels:
        advice = "nothing, if this machine has no NVIDIA GPU; else install NVIDIA's driver"
        return Finding(WARN, f"{_name_of(machine)} is installed, but there is no NVIDIA driver: the CPU is used", advice)
    return Finding(OK, "no NVIDIA driver: the CPU is used")


def _driver_alone(machine: Machine, version: Version) -> Finding:
    """The driver has devices, and CuPy has none."""
    cupy, cuda, major = machine.cupy, dotted(version), _major(machine)
    name, exchange = _name_of(machine), _exchange(machine)
    if version < (12, 0):
        advice = f"install driver {_DRIVER_FOR[12]} or newer ({_DRIVER_FOR[13]} for CUDA 13), then run this again"
        return Finding(FAIL, f"the NVIDIA driver is too old: it serves CUDA {cuda}, and CuPy needs 12.0", advice)
    if cupy is None:
        wheel, gpu = _wheel_for(machine), machine.driver.devices[0].name
        advice = f"{_install(wheel)}   (the extra '{wheel.removeprefix('cupy-')}', with NVIDIA's libraries)"
        return Finding(WARN, f"there is a GPU ({gpu}, CUDA {cuda}), but CuPy is not installed: the CPU is used", advice)
    if cupy.rocm or any("rocm" in wheel for wheel in machine.wheels):
        what = f"{name} is for AMD's GPUs, and this one is NVIDIA's"
    elif major > version[0]:
        what = f"{name} needs a driver for CUDA {major}, and this one serves CUDA {cuda}"
        exchange += f"   or update the driver to {_DRIVER_FOR.get(major, 'the newest')} or newer"
    elif 0 < major < 12:
        what = f"{name} is for CUDA {major}, which is too old"
    elif cupy.error:
        what = f"CuPy cannot be imported: {cupy.error}"
    else:
        what = f"the driver has a GPU, but CuPy cannot use it: {cupy.devices_error or 'it finds no device'}"
    return Finding(FAIL, what, exchange)


# ---------------------------------------------------------------- words


def _wheel_for(machine: Machine) -> str:
    """The CuPy to install: for the driver, but CUDA 13 has left GPUs older than Turing behind."""
    cupy = machine.cupy or Cupy()
    modern = all(device.capability >= _OLDEST[13] for device in (*machine.driver.devices, *cupy.devices))
    return "cupy-cuda13x" if modern and (machine.driver.version or cupy.driver or (0, 0)) >= (13, 0) else "cupy-cuda12x"


def _own_wheel(machine: Machine) -> str:
    """The CuPy that is installed, or the one to install."""
    (name, *others) = machine.wheels or ("",)
    return name if name.startswith("cupy-cuda") and not others else _wheel_for(machine)


def _install(wheel: str, options: str = "") -> str:
    return f'pip install {options}"{wheel}[ctk]"'


def _exchange(machine: Machine, wheel: str = "") -> str:
    """Commands that leave `wheel`, or the one that is right here, as the only CuPy."""
    remove = f"pip uninstall -y {' '.join(machine.wheels)} && " if machine.wheels else ""
    return remove + _install(wheel or _wheel_for(machine))


def _name_of(machine: Machine) -> str:
    """The installed CuPy."""
    wheels = " and ".join(f"{name} {version}" for name, version in machine.wheels.items())
    return wheels or f"CuPy {machine.cupy.version if machine.cupy else ''}".rstrip()


def _major(machine: Machine) -> int:
    """CUDA's major version that the installed CuPy is made for; 0 if that is not known."""
    if machine.cupy is not None and machine.cupy.runtime is not None and not machine.cupy.rocm:
        return machine.cupy.runtime[0]
    return max((int(m[1]) for name in machine.wheels if (m := re.fullmatch(r"cupy-cuda(\d\d)\w*", name))), default=0)


def dotted(version: Version) -> str:
    """As it is written: 13.2 for (13, 2)."""
    return ".".join(map(str, version))
