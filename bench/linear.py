"""The cost is linear in the number of observations.

    python -m bench.linear --output linear.png          # 1e5 to 1e7 observations
    python -m bench.linear --full --output linear.png   # to 1e8

Rank 5, 200 rows and columns are chosen and a quarter of them observed, 20 % outliers; the matrix grows. The intersection,
and so the core, stays the same size: a constant beside the extension, which is also timed alone. Every run is a whole
`rcurc` on fresh samples; generating them and compiling are excluded. The slope is that of a line through the logarithms of
the extension's seconds and of the numbers of observations: 1 is linear.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

import rcurc_gpu as rg
from bench.speed import fresh, timed
from rcurc_gpu.solve.sides import Sides

RANK, CHOSEN, RATE = 5, 200, 0.25
COUNTS = (1e5, 3e5, 1e6, 3e6, 1e7)
LARGE = (3e7, 1e8)
PER_SIDE = 2 * CHOSEN * RATE  # observations for each row and column of the matrix


@dataclass(frozen=True)
class Run:
    """One size: seconds of CPU of the extension and of the rest, elapsed seconds of all (medians), and the true error."""

    size: int
    n_obs: int
    extension: float
    rest: float
    wall: float
    error: float


@contextmanager
def extension_timed() -> Iterator[list[float]]:
    """Collects the seconds of CPU of every extension that the solver asks for."""
    seconds: list[float] = []
    extended = Sides.extended

    def watched(*args: Any, **options: Any) -> Any:
        _, cpu, found = timed(lambda: extended(*args, **options))
        seconds.append(cpu)
        return found

    Sides.extended = watched  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        Sides.extended = extended  # type: ignore[method-assign]


def measure(n_obs: float, repeats: int) -> Run:
    """Solve a matrix with about `n_obs` observations."""
    size = round(n_obs / PER_SIDE)
    problem = rg.synthetic((size, size), RANK, 0.2, 10, n_rows=CHOSEN, n_cols=CHOSEN, rate=RATE, seed=0)
    samples = problem.samples
    runs = []
    for _ in range(repeats):
        with extension_timed() as parts:
            wall, cpu, result = timed(lambda: rg.rcurc(fresh(samples), RANK))
        runs.append((sum(parts), cpu - sum(parts), wall))
    extension, rest, wall = (median(x) for x in zip(*runs, strict=True))
    count = samples.r_block.n_obs + samples.c_block.n_obs
    return Run(size, count, extension, rest, wall, problem.relative_error(result.cur))


def slope(runs: list[Run]) -> float:
    """The power of the number of observations that the extension's seconds grow with."""
    return float(np.polyfit(np.log([run.n_obs for run in runs]), np.log([run.extension for run in runs]), 1)[0])


def large(runs: list[Run]) -> list[Run]:
    """Runs in which the milliseconds that every extension takes do not count."""
    return [run for run in runs if run.n_obs > 5e5]


def draw(runs: list[Run], path: Path) -> None:
    """Seconds against observations."""
    from rcurc_gpu.plot import panels as plot

    fig = plot.new_figure(6, 4, dpi=150)
    ax = fig.subplots()
    n = np.asarray([run.n_obs for run in runs], dtype=float)
    extension = np.asarray([run.extension for run in runs])
    per_observation = extension[-1] / n[-1]
    ax.loglog(n, per_observation * n, "--", color="#888888", label=f"linear: {per_observation * 1e9:.0f} ns per observation")
    ax.loglog(n, extension, "o", color=plot.BLUE, label=f"extension (slope {slope(large(runs)):.2f} from $10^6$ on)")
    rest = [run.rest for run in runs]
    ax.loglog(n, rest, "s", color=plot.VERMILLION, label="the rest: the core (of one size), joining")
    ax.set_xlabel("observations")
    ax.set_ylabel("CPU time (s)")
    ax.set_title(f"rank {RANK}, {CHOSEN:,} rows and columns, {RATE:.0%} of them observed", fontsize=10)
    ax.legend(fontsize=8)
    ax.grid(True, color="#DDDDDD", linewidth=0.6)
    top = ax.secondary_xaxis("top", functions=(lambda x: (x / PER_SIDE) ** 2, lambda x: PER_SIDE * x**0.5))
    top.set_xlabel("entries of the matrix")
    fig.savefig(path)


@click.command()
@click.option("--full", is_flag=True, help="Up to 1e8 observations (a matrix of 1e12 entries); needs 3 GB.")
@click.option("--repeats", default=3)
@click.option("--output", type=click.Path(path_type=Path), help="Draw a plot into this file.")
def main(full: bool, repeats: int, output: Path | None) -> None:
    runs = []
    measure(COUNTS[0], 1)  # compiles
    click.echo("  observations   entries  extension s  ns per observation   the rest s   elapsed s  true error   (s of CPU)")
    for n_obs in COUNTS + (LARGE if full else ()):
        run = measure(n_obs, repeats if n_obs < 1e7 else 1)
        runs.append(run)
        click.echo(
            f"{run.n_obs:14,d} {run.size**2:9.0e} {run.extension:12.3f} {run.extension / run.n_obs * 1e9:19.0f} "
            f"{run.rest:12.3f} {run.wall:11.2f} {run.error:11.1e}"
        )
    click.echo(f"slope of log(extension) over log(observations): {slope(runs):.3f}; from 1e6 on: {slope(large(runs)):.3f}")
    if output is not None:
        draw(runs, output)


if __name__ == "__main__":
    main()
