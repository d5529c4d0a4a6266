"""How much faster than dense blocks and full SVDs, in one run, interleaved.

    python -m bench.speed                 # d = 3000, rank 5
    python -m bench.speed --size 1000 --repeats 5 --accurate

Prints the median seconds and the median of the ratios. Both solve the same samples in the same process on the same
cores; the yardstick gets as many iterations as our core takes, and, with --accurate, as many as it needs for a true error
of 1e-6. Ours, being short, runs five times in each turn, of which the median counts; every run begins with fresh samples, so
that nothing found in an earlier one helps. Compiling is excluded.

BLAS threads wait for each other in a busy loop: on a machine that does other work too, the yardstick then takes several
times longer than it should. OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1 compares the CPU times of one thread each.
"""

from __future__ import annotations

import time
from statistics import median

import click

import rcurc_gpu as rg
from bench import authors_style

IN_A_TURN = 5


def timed(work):
    """Seconds, seconds of CPU, and result of ``work()``."""
    start, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - start, time.process_time() - cpu, result


def fresh(samples: rg.CrossSamples) -> rg.CrossSamples:
    """The same samples, with nothing computed from them yet."""
    blocks = (type(b)(b.indptr, b.index, b.value, b.length) for b in (samples.r_block, samples.c_block))
    return rg.CrossSamples(samples.shape, samples.rows, samples.cols, *blocks, samples.n_unused)


@click.command()
@click.option("--size", default=3000, help="Rows and columns of the matrix.")
@click.option("--rank", default=5)
@click.option("--repeats", default=3)
@click.option("--accurate", is_flag=True, help="Let the yardstick also run to a true error of 1e-6.")
def main(size: int, rank: int, repeats: int, accurate: bool) -> None:
    problem = rg.synthetic((size, size), rank, 0.2, 10, rate=0.25, seed=0)
    samples = problem.samples
    ours = rg.rcurc(fresh(samples), rank)  # compiles, and gives the number of iterations
    works = {
        "rcurc": lambda: rg.rcurc(fresh(samples), rank).cur,
        "same iterations": lambda: authors_style.solve(samples, rank, ours.n_iter),
    }
    if accurate:
        works["to 1e-6"] = lambda: authors_style.solve(samples, rank, 400, tol=1e-12)
    runs = {name: [] for name in works}
    errors = {}
    for _ in range(repeats):
        for name, work in works.items():
            turn = [timed(work) for _ in range(IN_A_TURN if name == "rcurc" else 1)]
            runs[name].append([median(run[k] for run in turn) for k in range(2)])
            errors[name] = problem.relative_error(turn[-1][2])
    click.echo(
        f"d = {size}, rank {rank}, {samples.n_obs:,} observations, {ours.n_iter} core iterations, kernels {ours.kernels}, "
        f"{repeats} runs"
    )
    for name, found in runs.items():
        wall, cpu = (median(x) for x in zip(*found, strict=True))
        ratios = [median(s[k] / o[k] for s, o in zip(found, runs["rcurc"], strict=True)) for k in range(2)]
        label = name if name == "rcurc" else f"dense blocks, full SVD, {name}"
        click.echo(
            f"{label:40s} {wall:8.3f} s ({cpu:8.3f} s of CPU)  {ratios[0]:6.1f} x ({ratios[1]:6.1f} x of CPU)  "
            f"true error {errors[name]:.1e}"
        )


if __name__ == "__main__":
    main()
