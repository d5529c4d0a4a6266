"""Whether the CUDA sources compile: for the device, or with NVRTC alone where there is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..backends.cuda.sources import KERNELS, options, source
from .kernel_checks import QUICK_RANKS, RANKS
from .probes import Cupy
from .selftest import Check, Place, Trial

_WIDTH = 7  # as in the other checks, so that nothing is compiled twice
_DTYPES = ("float32", "float64")
_USUAL = (80, 75, 90)  # architectures to try without a device: the first that NVRTC knows

Compile = Callable[[str, str, int], Any]  # a file, a dtype and a size


def device_compile_checks(ranks: tuple[int, ...] = RANKS) -> list[Check]:
    """Compile every file for CuPy's current device, and load its kernels."""
    return _checks(_compile_here, "", ranks)


def nvrtc_compile_checks(cupy: Cupy | None) -> list[Check]:
    """Compile every file for an architecture that is not here; nothing if there is no compiler."""
    known = [number for number in _USUAL if cupy is not None and number in cupy.architectures]
    return _checks(partial(compile_with_nvrtc, known[0]), f" for sm_{known[0]}", QUICK_RANKS) if known else []


def _checks(compile_one: Compile, where: str, ranks: tuple[int, ...]) -> list[Check]:
    sizes: dict[str | None, tuple[int, ...]] = {"RANK": ranks, "WIDTH": (_WIDTH,), None: (0,)}
    checks = []
    for name, (macro, _) in KERNELS.items():
        parts = {
            f"{dtype}, {macro} {size}" if macro else dtype: partial(_trial, compile_one, name, dtype, size)
            for dtype in _DTYPES
            for size in sizes[macro]
        }
        checks.append(Check("compile", f"{name}{where}, {len(parts)} times", parts, 0))
    return checks


def _trial(compile_one: Compile, name: str, dtype: str, size: int, place: Place, _: int) -> Trial:
    return Trial(lambda: compile_one(name, dtype, size))


def _compile_here(name: str, dtype: str, size: int) -> None:
    from ..backends.cuda.launch import kernel

    try:
        for function in KERNELS[name][1]:
            kernel(name, function, dtype, size)
    except Exception as error:
        raise RuntimeError(_first_error(str(error)) or str(error)) from error


def compile_with_nvrtc(architecture: int, name: str, dtype: str, size: int) -> bytes:
    """Compile without a driver: CuPy's own way asks for a device first."""
    from cupy_backends.cuda.libs import nvrtc  # type: ignore[import-not-found]

    program = nvrtc.createProgram(source(name), name, (), ())
    try:
        nvrtc.compileProgram(program, (*options(name, dtype, size), f"-arch=sm_{architecture}"))
        return nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(_first_error(nvrtc.getProgramLog(program)) or str(error)) from error
    finally:
        nvrtc.destroyProgram(program)


def _first_error(log: str) -> str:
    """The first line of a compiler's log that says what is wrong."""
    return next((line.strip() for line in log.splitlines() if "error" in line.lower() and ":" in line), "")
