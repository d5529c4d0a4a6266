"""Two states of the library in turns: what a change saves.

    python -m bench.in_turns ../before                                   # d = 600 and 3000, rank 5
    python -m bench.in_turns ../before --size 600 --turns 15
    python -m bench.in_turns ../before --size 1000000 --rows 200 --rate 0.15 --turns 5 --each 1

The folder is a checkout of the other state, with an environment of its own (`.venv`). Each state solves in a process of its
own, which waits while the other one works; fresh samples every time, compiling excluded. Prints medians of elapsed time and
of CPU time, and the median of the ratios of neighbours. On a machine that does other work too, CPU times are what counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import click

# what both processes run: nothing in it is newer than the older state
_SOLVES = """
import inspect, sys, time, warnings
import rcurc_gpu as rg
warnings.simplefilter("ignore")
size, rows, rate = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
problem = rg.synthetic((size, size), 5, 0.2, 10, n_rows=rows, n_cols=rows, rate=rate, seed=0)
s = problem.samples
# rows and columns that are not determined are no part of the error: NaN, which older states always have there
blank = {"undetermined": "nan"} if "undetermined" in inspect.signature(rg.rcurc).parameters else {}
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        blocks = (type(b)(b.indptr, b.index, b.value, b.length) for b in (s.r_block, s.c_block))
        fresh = rg.CrossSamples(s.shape, s.rows, s.cols, *blocks, s.n_unused)
        start, cpu = time.perf_counter(), time.process_time()
        cur = rg.rcurc(fresh, 5, **blank).cur
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    middle = [sorted(column)[len(times) // 2] for column in zip(*times)]
    print(*middle, problem.relative_error(cur, undetermined="skip"), flush=True)
"""


class State:
    """A process that solves with one state of the library."""

    def __init__(self, folder: Path, problem: list[str], cache: str) -> None:
        python = folder / ".venv" / "bin" / "python"
        there = os.environ | {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": cache}
        command = [str(python) if python.exists() else sys.executable, "-c", _SOLVES, *problem]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True, env=there)

    def solve(self, times: int) -> list[float]:
        """Seconds, seconds of CPU (medians) and the error of the last of some solves."""
        self.process.stdin.write(f"{times}\n")
        self.process.stdin.flush()
        return [float(x) for x in self.process.stdout.readline().split()]


def compare(folders: list[Path], problem: list[str], turns: int, each: int) -> None:
    """Print what the first state takes, then the second, and the ratios."""
    with tempfile.TemporaryDirectory() as cache:
        states = [State(folder, problem, f"{cache}/{k}") for k, folder in enumerate(folders)]
        for state in states:  # compiles
            state.solve(2)
        found = [[state.solve(each) for state in states] for _ in range(turns)]
        for state in states:
            state.process.stdin.close()
            state.process.wait()
    for k, name in enumerate(("other", "this")):
        wall, cpu, error = (median(turn[k][c] for turn in found) for c in range(3))
        ratios = [median(turn[k][c] / turn[0][c] for turn in found) for c in range(2)]
        click.echo(
            f"  {name:6s} {wall * 1e3:9.1f} ms ({cpu * 1e3:9.1f} ms of CPU)  {ratios[0]:.2f} ({ratios[1]:.2f})  "
            f"true error {error:.1e}"
        )


@click.command()
@click.argument("other", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--size", "sizes", type=int, multiple=True, default=(600, 3000), help="Rows and columns; may be repeated.")
@click.option("--rows", type=int, help="How many rows, and columns, are chosen; by default three tenths.")
@click.option("--rate", default=0.25, help="Share of them that is observed.")
@click.option("--turns", default=9)
@click.option("--each", default=3, help="Solves in a turn.")
def main(other: Path, sizes: tuple[int, ...], rows: int | None, rate: float, turns: int, each: int) -> None:
    for size in sizes:
        chosen = rows or round(0.3 * size)
        click.echo(f"{size:,} x {size:,}, {chosen:,} rows and columns, {rate:.0%} of them observed, rank 5, {turns} turns")
        compare([other.resolve(), Path.cwd()], [str(size), str(chosen), str(rate)], turns, each)


if __name__ == "__main__":
    main()
