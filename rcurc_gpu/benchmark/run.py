"""All cases in all places of this machine, as long as time and memory last."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from .._version import __version__
from ..doctor import Machine, Place, choose_place
from ..errors import Argument, DeviceError
from .cases import Case
from .measure import CPU, DEVICE, STREAMED, Timing, copy_gb_per_s, measure, stated_gb_per_s

# Bytes for each byte of the observations, at the most: they, what drawing them takes, and factors with their diagnostics.
# 1e8 observations are 1.2 GB; the process had 2.8 GB (Linux, float64).
_HOST, _ON_DEVICE = 3.0, 2.0
_EMULATOR = "hostgpu"  # as tests/hostgpu calls its device


def run_bench(
    machine: Machine,
    cases: Sequence[Case],
    device: str = "auto",
    seconds: float = 300.0,
    memory: float | None = None,
    visible: bool = False,
) -> dict[str, Any]:
    """Time all cases, which come the smallest first.

    Parameters
    ----------
    machine : Machine
        What `examine` found.
    cases : sequence of Case
    device : {"auto", "cpu", "cuda", "cuda:1", ...}
        "auto" is the CPU and, if there is one, the GPU; "cpu" is the CPU alone.
    seconds : float
        When they are over, nothing new is begun. What is expected to take longer than is left is not begun either.
    memory : float, optional
        Bytes of the host that may be used; by default two thirds of what is free.
    visible : bool
        Show a progress bar.

    Returns
    -------
    dict
        For JSON and `bench_words`: `machine`, `timings`, `skipped` with reasons, `copy_gb_per_s`, `stated_gb_per_s`,
        `first_call_seconds`, `crossover` (observations), `busy_before` (the load of the machine).
    """
    begin, busy = time.perf_counter(), _busy()
    gpu = choose_place(machine, device)
    if gpu is None:
        raise DeviceError(Argument("device", device), " was asked for, but CuPy has no such device; try 'rcurc-gpu doctor'")
    places = {CPU: Place(np, "cpu")} | ({DEVICE: gpu, STREAMED: gpu} if gpu.on_gpu else {})
    bounds = Bounds(begin + seconds, _free_host() * 2 / 3 if memory is None else memory)
    timings: list[Timing] = []
    skipped: list[dict[str, str]] = []
    with _scope(gpu):
        copies = {kind: copy_gb_per_s(place, machine.cpus) for kind, place in places.items() if kind != STREAMED}
        for case, kind in _progress(cases, places, visible):
            why = bounds.forbids(case, kind, places[kind], timings)
            if why:
                skipped.append({"case": case.name, "place": kind, "why": why})
                continue
            try:
                timings.append(measure(case, kind, places[kind], bounds.left))
            except MemoryError:  # of the host, or CuPy's
                skipped.append({"case": case.name, "place": kind, "why": "the memory was not enough"})
    return {
        "version": __version__,
        "machine": asdict(machine),
        "device": gpu.name,
        "emulator": is_emulator(machine) and gpu.on_gpu,
        "timings": [asdict(timing) for timing in timings],
        "skipped": skipped,
        "copy_gb_per_s": copies,
        "stated_gb_per_s": {DEVICE: stated_gb_per_s(gpu)} if gpu.on_gpu else {},
        "first_call_seconds": _first_calls(timings),
        "crossover": {kind: crossover(timings, kind) for kind in places if kind != CPU},
        "busy_before": busy,
        "seconds": time.perf_counter() - begin,
    }


def _busy() -> float:
    """How many processes others kept busy in the last minute, on average; 0 where nobody says (Windows)."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


class Bounds:
    """What may be used: time until `end`, and bytes of the host.

    Parameters
    ----------
    end : float
        Of `time.perf_counter`.
    memory : float
    """

    def __init__(self, end: float, memory: float) -> None:
        self.end, self.memory = end, memory

    def left(self) -> float:
        """Seconds."""
        return self.end - time.perf_counter()

    def forbids(self, case: Case, kind: str, place: Place, timings: Sequence[Timing]) -> str:
        """Why a case is not tried; empty if it is."""
        need = _HOST * case.nbytes
        if need > self.memory:
            return f"needs about {need / 1e9:.1f} GB of memory, and {self.memory / 1e9:.1f} GB may be used"
        if kind == DEVICE and (need := _ON_DEVICE * case.nbytes) > (free := _free_device(place)):
            return f"needs about {need / 1e9:.1f} GB on the device, and {free / 1e9:.1f} GB are free"
        before = [t for t in timings if t.place == kind]
        # two solves: time grows about as the observations do, and the last case is the one most like this
        expected = 2 * before[-1].seconds * case.n_obs / before[-1].n_obs if before else 0.0
        if (left := self.left()) <= expected:
            return f"would take about {expected:.0f} s, and {max(left, 0):.0f} s are left" if expected else "no time is left"
        return ""


def _progress(cases: Sequence[Case], places: dict[str, Place], visible: bool) -> Iterator[tuple[Case, str]]:
    """Each case in each place; a case's data are dropped when it is done."""
    with tqdm(total=len(cases) * len(places), desc="bench", unit="", leave=False, disable=not visible) as bar:
        for case in cases:
            for kind in places:
                bar.set_postfix_str(f"{case.name}, {kind}")
                yield case, kind
                bar.update()
            case.__dict__.pop("problem", None)


def _scope(place: Place) -> Any:
    return place.xp.cuda.Device(int(place.name.partition(":")[2] or 0)) if place.on_gpu else nullcontext()


def is_emulator(machine: Machine) -> bool:
    """Whether the devices are played by the CPU, as in the tests: their speed says nothing of a GPU."""
    return machine.cupy is not None and any(device.name == _EMULATOR for device in machine.cupy.devices)


def _first_calls(timings: Sequence[Timing]) -> dict[str, float]:
    """What the first solve of the process took in each place, beyond a later one of the same problem."""
    first: dict[str, float] = {}
    for t in timings:
        first.setdefault(t.place, max(t.first_seconds - t.seconds, 0.0))
    return first


def crossover(timings: Sequence[Timing], kind: str) -> float | None:
    """From how many observations on a place is faster than the CPU in all cases: 0 always, None never, as far as timed.

    Between two cases the ratio of the times is taken for a power of the number of observations.
    """
    cpu = {t.case: t for t in timings if t.place == CPU}
    found = sorted((t.n_obs, cpu[t.case].seconds / t.seconds) for t in timings if t.place == kind and t.case in cpu)
    slower = [k for k, (_, ratio) in enumerate(found) if ratio < 1]
    if not slower:
        return 0.0 if found else None
    if slower[-1] == len(found) - 1:
        return None
    (n0, r0), (n1, r1) = found[slower[-1]], found[slower[-1] + 1]
    return float(n0 * (n1 / n0) ** (np.log(1 / r0) / np.log(r1 / r0)))


def _free_host() -> float:
    """Bytes that can be had without swapping (Linux); elsewhere a modest guess."""
    try:
        with open("/proc/meminfo") as file:
            sizes = dict(line.split(":", 1) for line in file)
        return 1024.0 * int(sizes["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return 4e9


def _free_device(place: Place) -> float:
    return float(place.xp.cuda.runtime.memGetInfo()[0])
