"""How the compiled CPU path was chosen: the extension's regression by several tools.

    python -m bench.cpu_tools

Each computes the same first look at all columns, on the true column space, in the chunks that are in use; each is checked
against the truth. Runs are interleaved; ns per observation have all steps in them and no compiling. The last columns are the
seconds of the first call (rank 5, a tiny task, in a process of its own; importing the tool and compiling included), with an
empty cache and again with the cache that the first process left. NumPy uses more than one core only inside matrix
products, so its CPU time over the number of cores cannot be reached.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from statistics import median

import click
import numpy as np

from bench.extension import CASES, N_CORES, make_task, timed
from rcurc_gpu.backends.kernels import Kernels
from rcurc_gpu.extend.tasks import Task, run_pass

Times = dict[tuple[str, int], tuple[float, float]]


def first_call(name: str) -> tuple[float, float]:
    """Seconds of the first use of a variant: elapsed, and of CPU, that of a C compiler included."""
    from bench.cpu_variants import VARIANTS

    task, _ = make_task(5, 0.25, 100, 20, "xp")
    start, cpu = time.perf_counter(), cpu_seconds()
    pass_over_all(with_kernels(task, VARIANTS[name]()))
    return time.perf_counter() - start, cpu_seconds() - cpu


def cpu_seconds() -> float:
    """Of this process and of those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(x.ru_utime + x.ru_stime for x in used)


def pass_over_all(task: Task) -> np.ndarray:
    """Coefficients of all units after one pass."""
    return run_pass(task, np.arange(task.block.n_units), task.first).coefficients


def with_kernels(task: Task, kernels: Kernels) -> Task:
    """The same task for other kernels."""
    return replace(task, run=replace(task.run, kernels=kernels))


def latency(name: str, cache: str) -> list[float]:
    """`first_call` in a process of its own with this cache."""
    command = [sys.executable, "-m", "bench.cpu_tools", "--first-call", name]
    done = subprocess.run(command, env={**os.environ, "NUMBA_CACHE_DIR": cache}, check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


def compare(names: list[str], repeats: int) -> Times:
    """Median ns per observation of each variant and case: elapsed, and CPU time over the number of cores."""
    from bench.cpu_variants import VARIANTS

    found: Times = {}
    for case, (rank, rate, length, n_units) in enumerate(CASES):
        task, truth = make_task(rank, rate, length, n_units, "xp")
        tasks = {name: with_kernels(task, VARIANTS[name]()) for name in names}
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for repeat in range(repeats + 1):
            for name in names:
                wall, cpu, a = timed(partial(pass_over_all, tasks[name]))
                off = np.median(np.abs(a - truth))
                assert off < 1e-9 * np.median(np.abs(truth)), f"{name} is wrong by {off:.1e}"
                if repeat:
                    runs[name].append((wall, cpu))
        for name in names:
            wall, cpu = (median(x) / task.block.n_obs * 1e9 for x in zip(*runs[name], strict=True))
            found[name, case] = wall, cpu
    return found


@click.command()
@click.option("--repeats", default=5)
@click.option("--first-call", "only", hidden=True, help="Print the seconds of the first use of this variant.")
def main(repeats: int, only: str | None) -> None:
    if only is not None:
        click.echo("{} {}".format(*first_call(only)))
        return
    with tempfile.TemporaryDirectory() as directory:
        os.environ["NUMBA_CACHE_DIR"] = directory  # before Numba is imported
        from bench.cpu_variants import VARIANTS, has_compiler

        names = [name for name in VARIANTS if not name.startswith("C,") or has_compiler()]
        if len(names) < len(VARIANTS):
            click.echo("no gcc: C is left out")
        starts = {}
        for name in names:
            with tempfile.TemporaryDirectory() as cache:
                starts[name] = latency(name, cache), latency(name, cache)
        found = compare(names, repeats)
    cases = [f"r = {rank}, {rate:.0%}" for rank, rate, *_ in CASES]
    click.echo(f"ns per observation on {N_CORES} cores: elapsed (CPU time / cores); first call in seconds, elapsed (CPU)")
    click.echo(f"{'':28s}" + "".join(f"{case:>18s}" for case in cases) + "       first call           cached")
    for name in names:
        cells = "".join(f"{wall:9.1f} ({cpu:6.1f})" for wall, cpu in (found[name, k] for k in range(len(CASES))))
        first = "".join(f"{wall:8.2f} ({cpu:5.2f})" for wall, cpu in starts[name])
        click.echo(f"{name:28s}{cells}  {first}")


if __name__ == "__main__":
    main()
