"""The comparison as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from .run import Entry


def table(entries: Sequence[Entry]) -> str:
    """One problem: a row for each method. Ratios are to the first method that has a time."""
    if not entries:
        return ""
    yardstick = next((e for e in entries if e.seconds is not None), None)
    with_psnr = any(e.psnr is not None for e in entries)
    head = ["method", "version", "seconds", "CPU seconds", f"times {yardstick.method}" if yardstick else "times"]
    head += ["true error", *(["PSNR (dB)"] if with_psnr else []), "memory (MB)", "runs"]
    lines = [f"### {entries[0].problem}", "", _row(head), _row(["---"] * len(head))]
    for e in entries:
        ratio = e.seconds / yardstick.seconds if yardstick and e.seconds is not None else None
        cells = [e.method, e.version, e.note or _number(e.seconds, ".3g"), _number(e.cpu, ".3g"), _number(ratio, ".3g")]
        cells += [_number(e.error, ".1e"), *([_number(e.psnr, ".1f")] if with_psnr else [])]
        lines.append(_row([*cells, _number(e.memory and e.memory / 1e6, ".0f"), str(e.runs)]))
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
