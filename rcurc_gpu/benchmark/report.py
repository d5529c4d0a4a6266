"""What was timed as Markdown, to be pasted into an issue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..doctor import Machine, machine_words
from .measure import CPU, DEVICE, STREAMED

_REQUEST = "Do you have a GPU? Please paste all of this into an issue, with the output of `rcurc-gpu doctor`."
_BUSY = 0.25  # processes for each core from which times on the CPU are noticeably longer
_EMULATED = (
    "**The device is an emulator: a CPU plays the GPU. Its times say nothing of a GPU; that its errors are small is all "
    "that is shown.**"
)


def bench_words(report: dict[str, Any], machine: Machine) -> str:
    """The report of `run_bench` on a machine in words."""
    parts = [f"### rcurc-gpu {report['version']}: bench", f"```\n{machine_words(machine)}\n```"]
    if report["emulator"]:
        parts.append(_EMULATED)
    parts.append(
        f"Seconds of a whole solve, rank 5, a fifth outliers; medians, compiling excluded.\n\n{_seconds_table(report)}"
    )
    parts.append(f"Parts of it.\n\n{_parts_table(report)}")
    parts.append("\n".join(f"- {line}" for line in _notes(report, machine.cpus)))
    return "\n\n".join([*parts, _REQUEST])


def _seconds_table(report: dict[str, Any]) -> str:
    """A row for each case: seconds in each place, and how many times faster than the CPU."""
    places = list(dict.fromkeys(t["place"] for t in report["timings"]))
    others = [place for place in places if place != CPU]
    rows = []
    for case, found in _by_case(report["timings"]).items():
        cpu = found.get(CPU)
        ratios = [f"{cpu['seconds'] / found[place]['seconds']:.3g} x" if cpu and place in found else "-" for place in others]
        n_obs = next(iter(found.values()))["n_obs"]
        seconds = [_number(found[place]["seconds"]) if place in found else "-" for place in places]
        rows.append([case, f"{n_obs:,}", *seconds, *ratios])
    faster = [f"{place} against CPU" for place in others]
    return _table(["problem", "observations", *places, *faster], rows)


def _parts_table(report: dict[str, Any]) -> str:
    head = ["problem", "place", "kernels", "iterations", "ms per iteration", "fit pass, ns per observation", "GB/s"]
    rows = []
    for t in report["timings"]:
        speed, copy = t["pass_gb_per_s"], report["copy_gb_per_s"].get(t["place"])
        share = "-" if speed is None or copy is None else f"{speed / copy:.1%}"
        core = "-" if t["core_seconds"] is None else f"{t['core_seconds'] * 1e3:.3g}"
        error = f"{t['error']:.1e}" + ("" if t["converged"] else " (not confirmed)")
        passed = [_number(t["pass_ns"]), _number(speed), share]
        rows.append([t["case"], t["place"], t["kernels"], str(t["iterations"]), core, *passed, error])
    return _table([*head, "of the peak", "true error"], rows)


def _notes(report: dict[str, Any], cpus: int) -> Iterable[str]:
    """What stands beside the tables: first calls, crossover, what was left out."""
    for place, speed in report["copy_gb_per_s"].items():
        stated = report["stated_gb_per_s"].get(place)
        by_clock = f"; {stated:.4g} GB/s by its clock and bus" if stated else ""
        yield f"{place}: the peak is what a copy reads and writes, {speed:.3g} GB/s (measured{by_clock})"
    for place, seconds in report["first_call_seconds"].items():
        yield f"{place}: the first call took {seconds:.1f} s longer (kernels are compiled, or come from a cache)"
    for place, count in report["crossover"].items():
        yield _crossover_words(place, count, report)
    for one in report["skipped"]:
        yield f"not timed: {one['case']}, {one['place']}: {one['why']}"
    busy = report["busy_before"]
    if busy > _BUSY * cpus:
        yield f"**others were at work: {busy:.1f} processes on {cpus} cores before the start; CPU times are too long**"
    yield f"{report['seconds']:.0f} s in all"


def _crossover_words(place: str, count: float | None, report: dict[str, Any]) -> str:
    what = {DEVICE: "with observations on the device", STREAMED: "with observations streamed from the host"}[place]
    timed = {name: {t["case"] for t in report["timings"] if t["place"] == name} for name in (CPU, place)}
    if not timed[CPU] & timed[place]:
        return f"crossover, {what}: not known, nothing was timed in both places"
    if count is None:
        return f"crossover, {what}: none, the largest problem that was timed in both places is faster on the CPU"
    if count == 0:
        return f"crossover, {what}: the GPU is faster in all cases"
    return f"crossover, {what}: the GPU is faster from about {count:.1e} observations on"


def _by_case(timings: Sequence[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for t in timings:
        found.setdefault(t["case"], {})[t["place"]] = t
    return found


def _number(x: float | None) -> str:
    return "-" if x is None else f"{x:.3g}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown, with columns as wide as their widest cell, so that it can be read in a terminal, too."""
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)
