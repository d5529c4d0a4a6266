"""What the state of a machine means, and what to install."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

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

Row = tuple[str, str, str]  # of a `Finding`


@dataclass(frozen=True)
class Finding:
    """Something about the machine: how bad it is (``"ok"``, ``"warn"``, ``"fail"``), what it is, and what to do."""

    level: str
    what: str
    advice: str = ""


def findings(machine: Machine, device: str = "auto") -> list[Finding]:
    """Judge a machine for someone who wants to use `device`: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``."""
    usable, version = gpu_is_usable(machine, device), machine.packages.get("numba")
    rows = list(_Gpu(machine).rows())
    if device == "cpu":  # nothing about a GPU stands in the way
        rows = [(WARN if level == FAIL else level, *words) for level, *words in rows]
    elif device != "auto" and not usable:
        count = len(machine.cupy.devices) if machine.cupy else 0
        there = {0: "no device", 1: "only cuda:0"}.get(count, f"cuda:0 to cuda:{count - 1}")
        rows.append((FAIL, f"--device {device} was asked for, but CuPy has {there}", ""))
    if machine.numba_error:
        rows.append((WARN, f"Numba cannot be imported: {machine.numba_error}", "pip install --upgrade numba"))
    elif version is not None:
        rows.append((OK, f"Numba {version}: compiled kernels on the CPU", ""))
    elif device == "cpu" or not usable:
        what = "Numba is not installed: the CPU runs plain NumPy, about ten times slower"
        rows.append((WARN, what, "pip install numba   (the extra 'fast')"))
    return [Finding(*row) for row in rows]


def gpu_is_usable(machine: Machine, device: str = "auto") -> bool:
    """Whether CuPy can compute on a device."""
    return machine.cupy is not None and device_number(device) < len(machine.cupy.devices)


def device_number(device: str) -> int:
    """1 for ``"cuda:1"``; 0 if none is named."""
    return int(device.partition(":")[2] or 0)


def dotted(version: Version) -> str:
    """As it is written: 13.2 for (13, 2)."""
    return ".".join(map(str, version))


def _install(wheel: str, options: str = "") -> str:
    return f'pip install {options}"{wheel}[ctk]"'


class _Gpu:
    """What there is to say of drivers, CuPy and devices."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.driver, self.wheels = machine, machine.driver, machine.wheels
        self.cupy, self.smi = machine.cupy or Cupy(), machine.smi or Smi()
        self.cuda = dotted(self.driver.version or (0, 0))
        named = " and ".join(f"{name} {version}" for name, version in self.wheels.items())
        self.name = named or f"CuPy {self.cupy.version}".rstrip()
        # CUDA's major version that the installed CuPy is made for; 0 if that is not known.
        numbers = [int(m[1]) for name in self.wheels if (m := re.fullmatch(r"cupy-cuda(\d\d)\w*", name))]
        self.major = self.cupy.runtime[0] if self.cupy.runtime and not self.cupy.rocm else max(numbers, default=0)
        # The CuPy to install: for the driver, but CUDA 13 has left GPUs older than Turing behind.
        modern = all(device.capability >= _OLDEST[13] for device in (*self.driver.devices, *self.cupy.devices))
        modern = modern and (self.driver.version or self.cupy.driver or (0, 0)) >= (13, 0)
        self.wheel = "cupy-cuda13x" if modern else "cupy-cuda12x"
        (own, *others) = self.wheels or ("",)
        self.own = own if own.startswith("cupy-cuda") and not others else self.wheel  # the one that is installed, if any

    def exchange(self, wheel: str) -> str:
        """Commands that leave `wheel` as the only CuPy."""
        remove = f"pip uninstall -y {' '.join(self.wheels)} && " if self.wheels else ""
        return remove + _install(wheel)

    def rows(self) -> Iterator[Row]:
        """All findings."""
        driver, wheels, container = self.driver, self.wheels, self.machine.container
        if len(wheels) > 1:
            what = f"{len(wheels)} packages of CuPy overwrite each other: {', '.join(wheels)}"
            yield WARN if self.cupy.devices else FAIL, what, self.exchange(self.wheel)
        if self.cupy.devices:
            yield from self.working()
        elif driver.version is None:
            yield self.no_driver()
            if self.cupy.error:
                yield WARN, f"CuPy cannot be imported: {self.cupy.error}", ""
        elif driver.code not in (0, _NO_DEVICE):
            advice = _INIT_ADVICE.get(driver.code, "look at: nvidia-smi; update the driver or restart the machine")
            yield FAIL, f"the NVIDIA driver does not start: {driver.problem} ({driver.code})", advice
        elif driver.code == 0 and driver.devices:
            yield self.driver_alone(driver.version)
        elif self.machine.visible is not None:
            yield from self.hidden()
        else:
            advice = "start the container with: docker run --gpus all ..." if container else "look at: nvidia-smi"
            yield WARN, f"the NVIDIA driver (CUDA {self.cuda}) finds no device: the CPU is used", advice

    def working(self) -> Iterator[Row]:
        """CuPy has devices."""
        cupy, count, oldest = self.cupy, len(self.cupy.devices), _OLDEST.get(self.major, (0, 0))
        yield OK, f"CuPy {cupy.version} has {count} device{'s' if count > 1 else ''}", ""
        if len(self.wheels) < 2:  # else the warnings are about that
            yield from ((WARN, f"CuPy warns: {said}", "") for said in cupy.warnings)
        if cupy.rocm:
            yield WARN, "CuPy is built for ROCm: rcurc-gpu was not tested there", "please report how it goes"
            return
        if () < tuple(map(int, re.findall(r"\d+", cupy.version)[:2])) < _LEAST_CUPY:
            yield WARN, f"CuPy {cupy.version} is older than {dotted(_LEAST_CUPY)}", _install(self.own, "--upgrade ")
        for k, device in enumerate(cupy.devices):
            if device.capability < oldest:
                what = f"cuda:{k} ({device.name}) has compute capability {dotted(device.capability)}"
                advice = self.exchange("cupy-cuda12x") if device.capability >= _OLDEST[12] else "use --device cpu"
                yield FAIL, f"{what}, and CUDA {self.major} begins at {dotted(oldest)}", advice
        if cupy.missing:
            what = f"{', '.join(cupy.missing)} ({next(iter(cupy.missing.values()))})"
            yield FAIL, f"CuPy lacks libraries of CUDA: {what}", _install(self.own)
        yield from self.hidden()

    def hidden(self) -> Iterator[Row]:
        """CUDA_VISIBLE_DEVICES leaves some devices, and there are more."""
        count, total, visible = len(self.cupy.devices), len(self.smi.gpus), self.machine.visible
        if visible is not None and (count == 0 or total > count):
            advice = "unset CUDA_VISIBLE_DEVICES, or name the devices to use, such as CUDA_VISIBLE_DEVICES=0"
            yield WARN, f"CUDA_VISIBLE_DEVICES={visible!r} leaves {count}{f' of {total}' if total else ''} devices", advice

    def no_driver(self) -> Row:
        """Nothing serves a GPU. That is fine, unless there is one."""
        there = self.machine.cards > 0 or bool(self.smi.gpus)
        if there and self.machine.container:
            what = "there is an NVIDIA GPU, but this container has no access to it: the CPU is used"
            return WARN, what, "start it with: docker run --gpus all ..."
        if there:
            advice = "install NVIDIA's driver 580 or newer (525 for CUDA 12), then run this again"
            return WARN, "there is an NVIDIA GPU, but no driver for it: the CPU is used", advice
        if self.machine.cupy is not None or self.wheels:
            advice = "nothing, if this machine has no NVIDIA GPU; else install NVIDIA's driver"
            return WARN, f"{self.name} is installed, but there is no NVIDIA driver: the CPU is used", advice
        return OK, "no NVIDIA driver: the CPU is used", ""

    def driver_alone(self, version: Version) -> Row:
        """The driver has devices, and CuPy has none."""
        cupy, cuda, major, exchange = self.cupy, self.cuda, self.major, self.exchange(self.wheel)
        if version < (12, 0):
            advice = f"install driver {_DRIVER_FOR[12]} or newer ({_DRIVER_FOR[13]} for CUDA 13), then run this again"
            return FAIL, f"the NVIDIA driver is too old: it serves CUDA {cuda}, and CuPy needs 12.0", advice
        if self.machine.cupy is None:
            advice = f"{_install(self.wheel)}   (the extra '{self.wheel.removeprefix('cupy-')}', with NVIDIA's libraries)"
            gpu = f"{self.driver.devices[0].name}, CUDA {cuda}"
            return WARN, f"there is a GPU ({gpu}), but CuPy is not installed: the CPU is used", advice
        if cupy.rocm or any("rocm" in wheel for wheel in self.wheels):
            return FAIL, f"{self.name} is for AMD's GPUs, and this one is NVIDIA's", exchange
        if major > version[0]:
            what = f"{self.name} needs a driver for CUDA {major}, and this one serves CUDA {cuda}"
            return FAIL, what, f"{exchange}   or update the driver to {_DRIVER_FOR.get(major, 'the newest')} or newer"
        if 0 < major < 12:
            return FAIL, f"{self.name} is for CUDA {major}, which is too old", exchange
        if cupy.error:
            return FAIL, f"CuPy cannot be imported: {cupy.error}", exchange
        why = cupy.devices_error or "it finds no device"
        return FAIL, f"the driver has a GPU, but CuPy cannot use it: {why}", exchange
