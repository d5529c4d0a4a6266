"""Looks at the machine: what is installed, which driver and devices there are.

Nothing here raises. Whatever is broken becomes a line of text in the result, for `findings` to judge.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .._version import __version__

PACKAGES = ("numpy", "scipy", "array-api-compat", "numba")
LIBRARIES = ("cublas", "cusolver", "cusparse")  # of CUDA, that the solver needs on CuPy, beside the compiler
_DRIVER_NAMES = {"Windows": ("nvcuda.dll",), "Linux": ("libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1")}
_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_NVIDIA = "0x10de"  # on the PCI bus

Version = tuple[int, int]
Ask = Callable[..., Any]


@dataclass(frozen=True)
class Device:
    """A GPU: its name, compute capability and bytes of memory."""

    name: str
    capability: Version
    memory: int


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver, asked directly, and the devices that ``CUDA_VISIBLE_DEVICES`` lets through.

    `version` is the newest CUDA that it serves: None if there is no driver, (0, 0) if it does not say. `code` is what
    ``cuInit`` returned, 0 for success, and `problem` says what went wrong.
    """

    version: Version | None = None
    code: int = 0
    problem: str = ""
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True)
class Smi:
    """What ``nvidia-smi`` says: the number of the driver, and all GPUs, hidden ones too."""

    driver: str = ""
    gpus: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Cupy:
    """An installed CuPy, imported: versions of CUDA, and what its compiler can compile for (90: capability 9.0).

    What is wrong is said in one line each: `error`, why it cannot be imported; `devices_error`, why no device can be
    used; `missing`, libraries of CUDA that cannot be loaded and why; `warnings`, those of the import.
    """

    version: str = ""
    error: str = ""
    runtime: Version | None = None
    driver: Version | None = None
    nvrtc: Version | None = None
    architectures: tuple[int, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    devices_error: str = ""
    rocm: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """All that was found. `cupy` is None if it is not installed; `cards` are NVIDIA's devices on the PCI bus."""

    python: str = ""
    system: str = ""
    cpus: int = 1
    packages: Mapping[str, str | None] = field(default_factory=dict)
    numba_error: str = ""
    wheels: Mapping[str, str] = field(default_factory=dict)
    cupy: Cupy | None = None
    driver: Driver = field(default_factory=Driver)
    smi: Smi | None = None
    cards: int = 0
    container: bool = False
    visible: str | None = None
    processor: str = ""


def examine(**others: Ask) -> Machine:
    """Take all looks, one for each field of `Machine`; `others` take the place of those with their names."""
    looks: dict[str, Ask] = {
        "python": platform.python_version,
        "system": lambda: f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": lambda: len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "packages": lambda: {"rcurc-gpu": __version__, **{name: version_of(name) for name in PACKAGES}},
        "visible": lambda: os.environ.get("CUDA_VISIBLE_DEVICES"),
        "processor": processor,
    }
    looks |= {"numba_error": numba_error, "wheels": cupy_wheels, "cupy": look_at_cupy, "driver": look_at_driver}
    looks |= {"smi": ask_smi, "cards": count_cards, "container": in_container, **others}
    return Machine(**{name: look() for name, look in looks.items()})


def processor(about: Path = Path("/proc/cpuinfo")) -> str:
    """What the CPU is called; empty where nothing says so."""
    text = attempt(about.read_text)[0] or ""
    named = re.search(r"^model name\s*:\s*(.*)$", text, flags=re.MULTILINE)
    return named[1].strip() if named else platform.processor()


def one_line(error: BaseException | str) -> str:
    """An error in one line, with its type and without the home folder; of CuPy's long advice, what went wrong first."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    original = re.search(r"Original error:\s*(.*?)\s*={8,}", text, flags=re.DOTALL)
    text = " ".join((original[1] if original else text).split()).replace(str(Path.home()), "~")
    return text if len(text) <= 240 else text[:237] + "..."


def attempt(ask: Ask, *arguments: Any, **options: Any) -> tuple[Any, str]:
    """The answer and an empty text, or None and what went wrong in one line."""
    try:
        return ask(*arguments, **options), ""
    except Exception as error:
        return None, one_line(error)


def version_of(name: str) -> str | None:
    """The version of a package; None if it is not installed, or its metadata are damaged."""
    return attempt(importlib.metadata.version, name)[0]


def numba_error() -> str:
    """Why an installed Numba cannot be imported (it is particular about NumPy's version); empty if it can."""
    return attempt(importlib.import_module, "numba")[1] if version_of("numba") is not None else ""


def cupy_wheels() -> dict[str, str]:
    """All distributions that provide CuPy, such as ``cupy-cuda12x``; more than one is a conflict."""
    # None is an entry without metadata, left behind by a broken installation.
    entries = [attempt(lambda d: (d.metadata["Name"].lower(), d.version), d)[0] for d in importlib.metadata.distributions()]
    found = sorted((name.replace("_", "-"), version) for name, version in filter(None, entries))
    return {name: version for name, version in found if re.fullmatch("cupy(-(cuda|rocm).*)?", name)}


def look_at_driver(load: Ask | None = None, system: str | None = None) -> Driver:
    """Ask the driver's own library, without CuPy."""
    system, problem = system or platform.system(), ""
    if load is None:
        load = ctypes.WinDLL if system == "Windows" else ctypes.CDLL  # type: ignore[attr-defined, unused-ignore]
    for name in _DRIVER_NAMES.get(system, ()):
        library, problem = attempt(load, name)
        if library is not None:
            driver, problem = attempt(_ask_driver, library)
            return driver or Driver((0, 0), -1, problem)  # a library that is not what its name says
    return Driver(None, 0, problem)


def _ask_driver(library: Any) -> Driver:
    def answer(call: str, *others: Any, kind: Any = ctypes.c_int) -> tuple[Any, int]:
        value = kind(0)
        return value, int(getattr(library, call)(ctypes.byref(value), *others) or 0)

    def device(k: int) -> Device:
        handle, name = answer("cuDeviceGet", k)[0], ctypes.create_string_buffer(256)
        library.cuDeviceGetName(name, 256, handle)
        major, minor = (answer("cuDeviceGetAttribute", code, handle)[0].value for code in _CAPABILITY)
        memory = answer("cuDeviceTotalMem_v2", handle, kind=ctypes.c_size_t)[0].value
        return Device(name.value.decode(errors="replace"), (major, minor), memory)

    number, code = answer("cuDriverGetVersion")
    version, text = _split(number.value) or (0, 0), ctypes.c_char_p()
    code = code or int(library.cuInit(0))
    count, code = answer("cuDeviceGetCount") if code == 0 else (number, code)
    if code == 0:
        return Driver(version, 0, "", tuple(map(device, range(count.value))))
    attempt(lambda: library.cuGetErrorName(code, ctypes.byref(text)))  # older drivers do not have it
    return Driver(version, code, text.value.decode(errors="replace") if text.value else f"CUDA error {code}")


def _split(number: int) -> Version | None:
    """13020 is version 13.2; 0 is none."""
    return (number // 1000, number % 1000 // 10) if number else None


def ask_smi(run: Ask = subprocess.run, which: Callable[[str], str | None] = shutil.which) -> Smi | None:
    """Ask ``nvidia-smi``; None if it is not there."""
    if (path := which("nvidia-smi")) is None:
        return None
    query = [path, "--query-gpu=driver_version,name", "--format=csv,noheader"]
    done, problem = attempt(run, query, capture_output=True, text=True, timeout=20, check=False)
    if done is None or done.returncode != 0:
        return Smi(problem=problem or one_line(f"{done.stdout} {done.stderr}"))
    rows = [line.split(",", 1) for line in done.stdout.splitlines() if "," in line]
    return Smi(rows[0][0].strip() if rows else "", tuple(name.strip() for _, name in rows))


def count_cards(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """NVIDIA's display and compute devices on the PCI bus, whatever the driver; 0 where that cannot be seen."""
    texts = [[attempt((d / name).read_text)[0] or "" for name in ("class", "vendor")] for d in devices.glob("*")]
    return sum(kind.startswith("0x03") and vendor.strip() == _NVIDIA for kind, vendor in texts)


def in_container(marks: tuple[str, ...] = ("/.dockerenv", "/run/.containerenv")) -> bool:
    """Whether this is a Docker or Podman container, which has to be given GPUs."""
    return any(Path(mark).exists() for mark in marks)


def crash_of_cupy(run: Ask = subprocess.run) -> str:
    """How another process ends that only imports CuPy and asks for devices; empty if not by a crash."""
    if importlib.util.find_spec("cupy") is None:
        return ""
    command = [sys.executable, "-c", "import cupy; cupy.cuda.runtime.getDeviceCount()"]
    done, problem = attempt(run, command, capture_output=True, timeout=60, check=False)
    # 1 is an exception, which can be looked at here; Windows has crashes at numbers beyond 255.
    crashed = done is not None and not 0 <= done.returncode <= 255
    return f"Python crashes when it uses CuPy (exit code {done.returncode})" if crashed else problem


def look_at_cupy(load: Ask = importlib.import_module, crash: Callable[[], str] = crash_of_cupy) -> Cupy | None:
    """Import CuPy and ask it; None if it is not installed."""
    if crashed := crash():
        return Cupy(error=crashed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            cupy = load("cupy")
        except Exception as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name == "cupy"
            return None if absent else Cupy(error=one_line(error))
    texts = [str(warning.message) for warning in caught if "cupy" in str(warning.message).lower()]
    # The first line with words: CuPy's warnings are framed in lines of dashes.
    said = [one_line(next((line for line in text.splitlines() if line.strip(" -=")), text)) for text in texts]
    found, problem = attempt(_ask_cupy, cupy, load)  # a problem is half an installation: a folder `cupy` without CuPy
    return replace(
        found or Cupy(version=str(getattr(cupy, "__version__", "")), error=problem), warnings=tuple(dict.fromkeys(said))
    )


def _ask_cupy(cupy: Any, load: Ask) -> Cupy:
    runtime = cupy.cuda.runtime

    def device(k: int) -> Device:
        about = runtime.getDeviceProperties(k)
        name = about["name"].decode(errors="replace") if isinstance(about["name"], bytes) else str(about["name"])
        return Device(name, (int(about["major"]), int(about["minor"])), int(about["totalGlobalMem"]))

    def compiler() -> tuple[Version, tuple[int, ...]]:
        nvrtc = load("cupy_backends.cuda.libs.nvrtc")
        major, minor = nvrtc.getVersion()
        return (int(major), int(minor)), tuple(map(int, attempt(nvrtc.getSupportedArchs)[0] or ()))

    devices, devices_error = attempt(lambda: tuple(map(device, range(runtime.getDeviceCount()))))
    loaded = {"nvrtc": attempt(compiler), **{name: attempt(load, f"cupy_backends.cuda.libs.{name}") for name in LIBRARIES}}
    nvrtc, architectures = loaded["nvrtc"][0] or (None, ())
    return Cupy(
        version=cupy.__version__,
        runtime=attempt(lambda: _split(runtime.runtimeGetVersion()))[0],
        driver=attempt(lambda: _split(runtime.driverGetVersion()))[0],
        nvrtc=nvrtc,
        architectures=architectures,
        missing={name: problem for name, (_, problem) in loaded.items() if problem},
        devices=devices or (),
        devices_error=devices_error,
        rocm=bool(getattr(runtime, "is_hip", False)),
    )
