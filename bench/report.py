"""Tables and a plot of timings that pytest-benchmark has saved.

    pytest bench/ --benchmark-json=saved.json
    python -m bench.report saved.json --output report      # report.md and report.png

The table has a row for each problem and a column for each backend: median seconds, and how many times faster than the
baseline in the same row. The plot shows the median seconds over the size of the matrix for every rank with two sizes or
more; the slope is that of a line through the logarithms.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import numpy as np

from bench.backends import BASELINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")


@dataclass(frozen=True)
class Timing:
    """One backend on one problem: median seconds, and the true error if it has one."""

    problem: str
    task: str
    backend: str
    size: int
    rank: int
    seconds: float
    error: float | None


def read(path: Path) -> list[Timing]:
    """The timings in a file of pytest-benchmark, without those that say nothing of a backend.

    Raises
    ------
    ValueError
        If that is not such a file, or has no timing of ours.
    """
    try:
        saved = json.loads(path.read_text())["benchmarks"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} was not written by pytest --benchmark-json") from None
    timings = []
    for entry in saved:
        info = entry["extra_info"]
        if "backend" in info:
            place = entry["group"], info["task"], info["backend"], info["size"], info["rank"]
            timings.append(Timing(*place, entry["stats"]["median"], info.get("error")))
    if not timings:
        raise ValueError(f"{path} has no timing with a backend: save one with pytest bench/ --benchmark-json={path}")
    return timings


def tables(timings: Sequence[Timing]) -> str:
    """Markdown: for each task a table of the seconds and, where there are errors, one of these."""
    parts = []
    for task in _distinct(t.task for t in timings):
        part = [t for t in timings if t.task == task]
        ratio = f" (times faster than {BASELINE})" if any(t.backend == BASELINE for t in part) else ""
        parts.append(f"### {task}: seconds{ratio}\n\n{_table(part, _seconds)}")
        if any(t.error is not None for t in part):
            parts.append(f"### {task}: true relative error\n\n{_table(part, _error)}")
    return "\n".join(parts)


def _table(timings: Sequence[Timing], cell: Callable[[Timing, Sequence[Timing]], str]) -> str:
    backends = _distinct(t.backend for t in timings)
    lines = [["problem", *backends], ["---"] * (len(backends) + 1)]
    for problem in _distinct(t.problem for t in timings):
        row = {t.backend: t for t in timings if t.problem == problem}
        lines.append([problem, *(cell(row[b], list(row.values())) if b in row else "-" for b in backends)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _seconds(timing: Timing, row: Sequence[Timing]) -> str:
    baseline = next((t.seconds for t in row if t.backend == BASELINE), None)
    if baseline is None or timing.backend == BASELINE:
        return f"{timing.seconds:.3g}"
    return f"{timing.seconds:.3g} ({baseline / timing.seconds:.3g} x)"


def _error(timing: Timing, row: Sequence[Timing]) -> str:
    return "-" if timing.error is None else f"{timing.error:.1e}"


# ---------------------------------------------------------------- growth with the size


def lines(timings: Sequence[Timing]) -> dict[tuple[int, str], list[Timing]]:
    """Timings of whole solves by rank and backend, in order of size, where there is more than one."""
    found: dict[tuple[int, str], list[Timing]] = {}
    for timing in sorted(timings, key=lambda t: t.size):
        if timing.task == "solve":
            found.setdefault((timing.rank, timing.backend), []).append(timing)
    return {key: line for key, line in found.items() if len({t.size for t in line}) > 1}


def slope(line: Sequence[Timing]) -> float:
    """The power of the size that the seconds grow with."""
    return float(np.polyfit(np.log([t.size for t in line]), np.log([t.seconds for t in line]), 1)[0])


def draw(timings: Sequence[Timing]) -> Figure:
    """Seconds against size, a panel for each rank and a line for each backend."""
    from matplotlib.ticker import LogLocator

    from rcurc_gpu.plot import panels as plot

    found = lines(timings)
    ranks, backends = _distinct(rank for rank, _ in found), _distinct(t.backend for t in timings if t.task == "solve")
    colours = (plot.BLUE, plot.VERMILLION, plot.GREEN, plot.ORANGE, plot.BLACK, plot.GREY)
    fig = plot.new_figure(5.5 * len(ranks), 4.5)
    for ax, rank in zip(np.atleast_1d(fig.subplots(1, len(ranks))), ranks, strict=True):
        for k, backend in enumerate(backends):
            line = found.get((rank, backend))
            if line:
                style = {"color": colours[k % len(colours)], "marker": "os^Dv*"[k % 6], "markersize": 5}
                x, y = [t.size for t in line], [t.seconds for t in line]
                ax.loglog(x, y, "-", label=f"{backend}: slope {slope(line):.2f}", **style)
        sizes = sorted({t.size for (r, _), line in found.items() if r == rank for t in line})
        ax.set_xticks(sizes, labels=[str(s) for s in sizes])
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.set_xlabel("rows and columns of the matrix")
        ax.set_ylabel("median time (s)")
        ax.set_title(f"rank {rank}", fontsize=10)
        ax.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
        ax.grid(True, color="#DDDDDD", linewidth=0.6)
    return fig


def _distinct(values: Iterable[T]) -> list[T]:
    """In the order in which they first come."""
    return list(dict.fromkeys(values))


@click.command()
@click.argument("saved", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="Write report.md and report.png here.")
def main(saved: Path, output: Path | None) -> None:
    """Tables and a plot of the timings in SAVED, a file of pytest bench/ --benchmark-json."""
    try:
        timings = read(saved)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    text = tables(timings)
    click.echo(text)
    found = lines(timings)
    for (rank, backend), line in found.items():
        click.echo(f"rank {rank}, {backend}: seconds grow as size^{slope(line):.2f}")
    if output is None:
        return
    output.mkdir(parents=True, exist_ok=True)
    (output / "report.md").write_text(text)
    written = ["report.md"]
    if found:
        draw(timings).savefig(output / "report.png")
        written.append("report.png")
    click.echo(f"{output}: {', '.join(written)}")


if __name__ == "__main__":
    main()
