"""The comparison as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from .run import Entry


def table(entries: Sequence[Entry]) -> str:
    """One problem: a row for each method. Ratios (x) are to the first method that has a time."""
    if not entries:
        return ""
    first = next((e for e in entries if e.seconds is not None), None)
    with_psnr = any(e.psnr is not None for e in entries)
    head = ["method", "version", "seconds", "x", "CPU seconds", "x", "true error"]
    head += [*(["PSNR (dB)"] if with_psnr else []), "memory (MB)", "runs"]
    lines = [f"### {entries[0].problem}", "", _row(head), _row(["---"] * len(head))]
    for e in entries:
        cells = [e.method, e.version, e.note or _number(e.seconds, ".3g"), _ratio(e.seconds, first and first.seconds)]
        cells += [_number(e.cpu, ".3g"), _ratio(e.cpu, first and first.cpu), _number(e.error, ".1e")]
        cells += [*([_number(e.psnr, ".1f")] if with_psnr else []), _number(e.memory, ".0f", 1e6), str(e.runs)]
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def grid(entries: Sequence[Entry]) -> str:
    """Many problems: a row for each, a column for each method with its error and its seconds of CPU."""
    methods = list(dict.fromkeys(e.method for e in entries))
    cells = {(e.problem, e.method): e.note or f"{_number(e.error, '.3g')} ({_number(e.cpu, '.2g')} s)" for e in entries}
    lines = [_row(["", *methods]), _row(["---"] * (len(methods) + 1))]
    for problem in dict.fromkeys(e.problem for e in entries):
        lines.append(_row([problem, *(cells.get((problem, method), "-") for method in methods)]))
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _ratio(value: float | None, to: float | None) -> str:
    return _number(value, ".3g", to) if to else "-"


def _number(value: float | None, form: str, unit: float = 1) -> str:
    return "-" if value is None else format(value / unit, form)
