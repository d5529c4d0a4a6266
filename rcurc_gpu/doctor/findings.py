"""What the state of a machine means, and what to install."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .probes import Cupy, Driver, Machine, Version

OK, WARN, FAIL = "ok", "warn", "fail"

# CUDA's major version, the driver that it needs (on Linux; Windows has 528 and 580), and the oldest GPUs that it knows.
_DRIVER_FOR = {12: "525", 13: "580"}
_OLDEST = {12: (5, 0), 13: (7, 5)}
_LEAST_CUPY = (13, 4)

# What `cuInit` may return, besides 0.
_STUB, _NO_DEVICE, _MISMATCH, _COMPAT, _UNKNOWN = 34, 100, 803, 804, 999
_INIT_ADVICE = {
    _STUB: "this is the toolkit's stub, not a driver: remove its folder from LD_LIBRARY_PATH",
    _MISMATCH: "the driver was updated while it was loaded: restart the machine",
    _COMPAT: "remove CUDA's compatibility package (cuda-compat) from LD_LIBRARY_PATH, or update the driver",
    _UNKNOWN: "restart the machine, or load the module of the kernel (sudo modprobe nvidia_uvm)",
}


@dataclass(frozen=True)
class Finding:
    """Something about the machine: how bad it is (``"ok"``, ``"warn"``, ``"fail"``), what it is, and what to do."""

    level: str
    what: str
    advice: str = ""


def findings(machine: Machine, device: str = "auto") -> list[Finding]:
    """Judge a machine for someone who wants to use `device`: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``."""
    gpu = list(_gpu(machine))
    if device == "cpu":  # nothing about a GPU stands in the way
        gpu = [Finding(WARN if f.level == FAIL else f.level, f.what, f.advice) for f in gpu]
    elif device != "auto" and not gpu_is_usable(machine, device):
        gpu.append(Finding(FAIL, _why_not(machine, device)))
    return [*gpu, *_numba(machine, needed=device == "cpu" or not gpu_is_usable(machine, device))]


def gpu_is_usable(machine: Machine, device: str = "auto") -> bool:
    """Whether CuPy can compute on a device."""
    return machine.cupy is not None and device_number(device) < len(machine.cupy.devices)


def device_number(device: str) -> int:
    """1 for ``"cuda:1"``; 0 if none is named."""
    return int(device.partition(":")[2] or 0)


def _why_not(machine: Machine, device: str) -> str:
    count = len(machine.cupy.devices) if machine.cupy else 0
    there = {0: "no device", 1: "only cuda:0"}.get(count, f"cuda:0 to cuda:{count - 1}")
    return f"--device {device} was asked for, but CuPy has {there}"


# ---------------------------------------------------------------- the CPU


def _numba(machine: Machine, needed: bool) -> Iterator[Finding]:
    version = machine.packages.get("numba")
    if machine.numba_error:
        yield Finding(WARN, f"Numba cannot be imported: {machine.numba_error}", "pip install --upgrade numba")
    elif version is not None:
        yield Finding(OK, f"Numba {version}: compiled kernels on the CPU")
    elif needed:
        yield Finding(
            WARN,
            "Numba is not installed: the CPU runs plain NumPy, about ten times slower",
            "pip install numba   (the extra 'fast')",
        )


# ---------------------------------------------------------------- the GPU


def _gpu(machine: Machine) -> Iterator[Finding]:
    yield from _two_wheels(machine)
    if machine.cupy is not None and machine.cupy.devices:
        yield from _working(machine, machine.cupy)
    elif machine.driver.version is None:
        yield from _no_driver(machine)
    elif machine.driver.code != 0 or not machine.driver.devices:
        yield from _no_device(machine)
    else:
        yield from _driver_alone(machine, machine.driver)


def _two_wheels(machine: Machine) -> Iterator[Finding]:
    if len(machine.wheels) > 1:
        works = machine.cupy is not None and bool(machine.cupy.devices)
        yield Finding(
            WARN if works else FAIL,
            f"{len(machine.wheels)} packages of CuPy overwrite each other: {', '.join(machine.wheels)}",
            _exchange(machine, _wheel_for(machine)),
        )


def _working(machine: Machine, cupy: Cupy) -> Iterator[Finding]:
    """CuPy has devices."""
    count = len(cupy.devices)
    yield Finding(OK, f"CuPy {cupy.version} has {count} device{'s' if count > 1 else ''}")
    for said in cupy.warnings:
        if len(machine.wheels) < 2:  # else it is about that
            yield Finding(WARN, f"CuPy warns: {said}")
    if cupy.rocm:
        yield Finding(WARN, "CuPy is built for ROCm: rcurc-gpu was not tested there", "please report how it goes")
        return
    if (version := _numbers(cupy.version)) < _LEAST_CUPY and version != (0, 0):
        least = ".".join(map(str, _LEAST_CUPY))
        yield Finding(WARN, f"CuPy {cupy.version} is older than {least}", _install(_own_wheel(machine), "--upgrade "))
    major = _major(machine)
    oldest = _OLDEST.get(major or 0)
    for k, device in enumerate(cupy.devices):
        if oldest is not None and device.capability < oldest:
            yield Finding(
                FAIL,
                f"cuda:{k} ({device.name}) has compute capability {_dotted(device.capability)}, "
                f"and CUDA {major} begins at {_dotted(oldest)}",
                _exchange(machine, "cupy-cuda12x") if device.capability >= _OLDEST[12] else "use --device cpu",
            )
    yield from _missing_libraries(machine, cupy)
    yield from _hidden(machine, len(cupy.devices))


def _missing_libraries(machine: Machine, cupy: Cupy) -> Iterator[Finding]:
    if cupy.missing:
        names = ", ".join(cupy.missing)
        reason = next(iter(cupy.missing.values()))
        yield Finding(FAIL, f"CuPy lacks libraries of CUDA: {names} ({reason})", _install(_own_wheel(machine)))


def _no_driver(machine: Machine) -> Iterator[Finding]:
    """Nothing serves a GPU. That is fine, unless there is one."""
    there = machine.cards > 0 or (machine.smi is not None and bool(machine.smi.gpus))
    if there and machine.container:
        yield Finding(
            WARN,
            "there is an NVIDIA GPU, but this container has no access to it: the CPU is used",
            "start it with: docker run --gpus all ...",
        )
    elif there:
        yield Finding(
            WARN,
            "there is an NVIDIA GPU, but no driver for it: the CPU is used",
            f"install NVIDIA's driver {_DRIVER_FOR[13]} or newer ({_DRIVER_FOR[12]} for CUDA 12), then run this again",
        )
    elif machine.cupy is not None or machine.wheels:
        yield Finding(
            WARN,
            f"{_name_of(machine)} is installed, but there is no NVIDIA driver: the CPU is used",
            "nothing, if this machine has no NVIDIA GPU; else install NVIDIA's driver",
        )
    else:
        yield Finding(OK, "no NVIDIA driver: the CPU is used")
    if machine.cupy is not None and machine.cupy.error:
        yield Finding(WARN, f"CuPy cannot be imported: {machine.cupy.error}")


def _no_device(machine: Machine) -> Iterator[Finding]:
    """There is a driver, and it has no device to offer."""
    driver = machine.driver
    if driver.code in (0, _NO_DEVICE):
        hidden = list(_hidden(machine, 0))
        yield from hidden
        if not hidden:
            yield Finding(
                WARN,
                f"the NVIDIA driver (CUDA {_dotted(driver.version)}) finds no device: the CPU is used",
                "start the container with: docker run --gpus all ..." if machine.container else "look at: nvidia-smi",
            )
        return
    yield Finding(
        FAIL,
        f"the NVIDIA driver does not start: {driver.problem} ({driver.code})",
        _INIT_ADVICE.get(driver.code, "look at: nvidia-smi; update the driver or restart the machine"),
    )


def _hidden(machine: Machine, count: int) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES hides devices."""
    if machine.visible is None:
        return
    total = len(machine.smi.gpus) if machine.smi is not None else 0
    if count == 0 or total > count:
        of = f" of {total}" if total else ""
        yield Finding(
            WARN,
            f"CUDA_VISIBLE_DEVICES={machine.visible!r} leaves {count}{of} devices",
            "unset CUDA_VISIBLE_DEVICES, or name the devices to use, such as CUDA_VISIBLE_DEVICES=0",
        )


def _driver_alone(machine: Machine, driver: Driver) -> Iterator[Finding]:
    """The driver has devices, and CuPy has none."""
    version = driver.version or (0, 0)
    if version < (12, 0):
        yield Finding(
            FAIL,
            f"the NVIDIA driver is too old: it serves CUDA {_dotted(version)}, and CuPy needs 12.0",
            f"install driver {_DRIVER_FOR[12]} or newer ({_DRIVER_FOR[13]} for CUDA 13), then run this again",
        )
        return
    wheel = _wheel_for(machine)
    if machine.cupy is None:
        name = driver.devices[0].name
        yield Finding(
            WARN,
            f"there is a GPU ({name}, CUDA {_dotted(version)}), but CuPy is not installed: the CPU is used",
            f"{_install(wheel)}   (the extra '{wheel.removeprefix('cupy-')}', with NVIDIA's libraries)",
        )
        return
    major = _major(machine)
    if any("rocm" in name for name in machine.wheels) or machine.cupy.rocm:
        yield Finding(FAIL, f"{_name_of(machine)} is for AMD's GPUs, and this one is NVIDIA's", _exchange(machine, wheel))
    elif major is not None and major > version[0]:
        yield Finding(
            FAIL,
            f"{_name_of(machine)} needs a driver for CUDA {major}, and this one serves CUDA {_dotted(version)}",
            f"{_exchange(machine, wheel)}   or update the driver to {_DRIVER_FOR.get(major, 'the newest')} or newer",
        )
    elif major is not None and major < 12:
        yield Finding(FAIL, f"{_name_of(machine)} is for CUDA {major}, which is too old", _exchange(machine, wheel))
    elif machine.cupy.error:
        yield Finding(FAIL, f"CuPy cannot be imported: {machine.cupy.error}", _exchange(machine, wheel))
    else:
        why = machine.cupy.devices_error or "it finds no device"
        yield Finding(FAIL, f"the driver has a GPU, but CuPy cannot use it: {why}", _exchange(machine, wheel))


# ---------------------------------------------------------------- words


def _wheel_for(machine: Machine) -> str:
    """The CuPy to install: for the driver, but CUDA 13 has left GPUs older than Turing behind."""
    driver, cupy = machine.driver, machine.cupy
    version = driver.version or (cupy.driver if cupy else None) or (0, 0)
    devices = (*driver.devices, *(cupy.devices if cupy else ()))
    modern = all(device.capability >= _OLDEST[13] for device in devices)
    return "cupy-cuda13x" if version >= (13, 0) and modern else "cupy-cuda12x"


def _own_wheel(machine: Machine) -> str:
    """The CuPy that is installed, or the one to install."""
    (name, *others) = machine.wheels or ("",)
    return name if name.startswith("cupy-cuda") and not others else _wheel_for(machine)


def _install(wheel: str, options: str = "") -> str:
    return f'pip install {options}"{wheel}[ctk]"'


def _exchange(machine: Machine, wheel: str) -> str:
    """Commands that leave `wheel` as the only CuPy."""
    remove = f"pip uninstall -y {' '.join(machine.wheels)} && " if machine.wheels else ""
    return remove + _install(wheel)


def _name_of(machine: Machine) -> str:
    """The installed CuPy."""
    if machine.wheels:
        return " and ".join(f"{name} {version}" for name, version in machine.wheels.items())
    return f"CuPy {machine.cupy.version}".rstrip() if machine.cupy else "CuPy"


def _major(machine: Machine) -> int | None:
    """CUDA's major version that the installed CuPy is made for."""
    if machine.cupy is not None and machine.cupy.runtime is not None and not machine.cupy.rocm:
        return machine.cupy.runtime[0]
    majors = [int(m[1]) for name in machine.wheels if (m := re.fullmatch(r"cupy-cuda(\d\d)\w*", name))]
    return max(majors, default=None)


def _numbers(version: str) -> Version:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _dotted(version: Version | None) -> str:
    return ".".join(map(str, version)) if version else "?"
