"""The extension alone: compiled kernels against plain NumPy, on the same task, interleaved.

    python -m bench.extension

Every remaining column is regressed on the true column space with the schedule that `rcurc` takes; chunks are as in use,
second looks at doubtful columns included. Compiling is excluded. Prints nanoseconds per observation, all steps included,
as elapsed time and as CPU time over the number of cores, and the median of the ratios of pairs of runs. NumPy uses more than
one core only inside matrix products, so on idle cores the elapsed times and their ratio are what counts. On a busy machine
they say little; OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 then compares the CPU times of one thread each.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import click
import numpy as np

import rcurc_gpu as rg
from rcurc_gpu.backends.kernels import RunContext, choose
from rcurc_gpu.backends.plain.regression import Schedule
from rcurc_gpu.extend.extension import extend
from rcurc_gpu.extend.tasks import Task

# rank, share observed, rows of the basis, columns: about the same number of observations
CASES = ((5, 0.25, 900, 8_000), (5, 0.05, 1000, 40_000), (20, 0.25, 900, 8_000))
N_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_task(rank: int, rate: float, length: int, n_units: int, kernels: str = "auto") -> tuple[Task, np.ndarray]:
    """Columns to regress on an orthonormal basis of the chosen rows, and the true coefficients (n_units, rank)."""
    problem = rg.synthetic((length, n_units), rank, 0.2, 10, n_rows=length, n_cols=1, rate=rate, seed=0)
    samples = problem.samples
    basis, turn = np.linalg.qr(problem.W[samples.rows])
    typical = float(np.median(np.abs(samples.r_block.value)))
    schedule = Schedule(5 * typical, np.finfo(float).eps ** 0.5 * typical, 0.4)
    names = (np.arange(n_units), samples.rows)
    run = RunContext(basis[:0, 0], choose(kernels, basis), holdout=0.03)
    return Task(samples.r_block, basis, np.ones(length), *names, True, schedule, run), problem.V @ turn.T


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, seconds of CPU over the number of cores, and result of ``work()``."""
    start, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - start, (time.process_time() - cpu) / N_CORES, result


def worst_error(found: np.ndarray, truth: np.ndarray) -> float:
    """The largest relative error of a column."""
    return float((np.linalg.norm(found - truth, axis=1) / np.linalg.norm(truth, axis=1)).max())


@click.command()
@click.option("--repeats", default=5)
def main(repeats: int) -> None:
    click.echo(f"ns per observation on {N_CORES} cores: elapsed (CPU time / cores); medians of {repeats} interleaved runs")
    for rank, rate, length, n_units in CASES:
        tasks = {name: make_task(rank, rate, length, n_units, name) for name in ("fused", "xp")}
        n_obs = tasks["xp"][0].block.n_obs
        runs: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
        for repeat in range(repeats + 1):
            for name, (task, truth) in tasks.items():
                wall, cpu, found = timed(lambda task=task: extend(task))
                if repeat:  # the first one compiles
                    runs[name].append((wall / n_obs * 1e9, cpu / n_obs * 1e9))
                error = worst_error(found.coefficients, truth)
                assert error < 1e-6, f"{name}: a column is wrong by {error:.1e}"
        line = f"rank {rank:2d}, {rate:3.0%} of {length} rows, {n_obs:,} observations:"
        for name, found in runs.items():
            wall, cpu = (median(x) for x in zip(*found, strict=True))
            line += f"  {tasks[name][0].run.kernels.name} {wall:6.1f} ({cpu:6.1f})"
        ratios = [median(slow[k] / fast[k] for fast, slow in zip(runs["fused"], runs["xp"], strict=True)) for k in range(2)]
        click.echo(f"{line}  ratio {ratios[0]:.1f} ({ratios[1]:.1f})")


if __name__ == "__main__":
    main()
