"""How much faster than dense blocks and full SVDs, in one run, interleaved.

    python -m bench.speed                 # d = 3000, rank 5
    python -m bench.speed --size 1000 --repeats 5

Prints the median seconds and the median of the ratios. Both solve the same samples in the same process on the same
cores; the yardstick gets as many iterations as our core takes, and, in a second line, as many as it needs for a true
error of 1e-6.
"""

from __future__ import annotations

import time
from statistics import median

import click

import rcurc_gpu as rg
from bench import authors_style


def timed(work):
    """Seconds and result of ``work()``."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


@click.command()
@click.option("--size", default=3000, help="Rows and columns of the matrix.")
@click.option("--rank", default=5)
@click.option("--repeats", default=3)
def main(size: int, rank: int, repeats: int) -> None:
    problem = rg.synthetic((size, size), rank, 0.2, 10, rate=0.25, seed=0)
    ours = rg.rcurc(problem.samples, rank)  # warm-up, and the number of iterations
    rows = {"rcurc": [], "same iterations": [], "to 1e-6": []}
    errors = {}
    for _ in range(repeats):
        for name, work in (
            ("rcurc", lambda: rg.rcurc(problem.samples, rank).cur),
            ("same iterations", lambda: authors_style.solve(problem.samples, rank, ours.n_iter)),
            ("to 1e-6", lambda: authors_style.solve(problem.samples, rank, 400, tol=1e-12)),
        ):
            seconds, matrix = timed(work)
            rows[name].append(seconds)
            errors[name] = problem.relative_error(matrix)
    click.echo(
        f"d = {size}, rank {rank}, {problem.samples.n_obs:,} observations, {ours.n_iter} core iterations, {repeats} runs"
    )
    for name, seconds in rows.items():
        ratio = median(s / o for s, o in zip(seconds, rows["rcurc"], strict=True))
        label = name if name == "rcurc" else f"dense blocks, full SVD, {name}"
        click.echo(f"{label:40s} {median(seconds):8.3f} s   {ratio:6.1f} x   true error {errors[name]:.1e}")


if __name__ == "__main__":
    main()
