"""Exact data with outliers and no rank given: is the rank right, and the error rounding?

    python -m bench.clean [--problems 200] [--first 0]

Problem k: rank 1 + k mod 20, 10 to 30 % of the observations wrong, 1.5 to 4 times as many observations as `plan_samples`
asks for, of a matrix with 300 to 900 rows and columns, or as many more as these observations need. Default calls. A line for
each problem with another rank, an error above 1e-6 or no confirmation, then the counts.
"""

from __future__ import annotations

import time
import warnings

import click
import numpy as np

import rcurc_gpu as rg

RANKS, OUTLIERS, TIMES, SIDES = 20, (0.1, 0.3), (1.5, 4.0), (300, 900)
ACCURATE = 1e-6
WIDER = 1.3  # sides are so many times longer from try to try, until the observations fit in


def clean(k: int) -> tuple[rg.SyntheticProblem, float]:
    """Problem `k`, and how many times as many observations as planned it has."""
    rng = np.random.default_rng(k)
    rank, outliers, times = 1 + k % RANKS, rng.uniform(*OUTLIERS), rng.uniform(*TIMES)
    sides = rng.integers(*SIDES, 2)
    while True:
        shape = (int(sides[0]), int(sides[1]))
        plan = rg.plan_samples(*shape, rank, outliers)
        more = times**0.5  # half of it by more rows and columns, half by more of each
        rates = min(plan.rate_rows * more, 1.0), min(plan.rate_cols * more, 1.0)
        n_rows = round(plan.n_rows * plan.rate_rows * times / rates[0])
        n_cols = round(plan.n_cols * plan.rate_cols * times / rates[1])
        if n_rows <= shape[0] and n_cols <= shape[1]:
            return rg.synthetic(shape, rank, outliers, n_rows=n_rows, n_cols=n_cols, rate=rates, seed=k), times
        sides = (sides * WIDER).astype(np.int64)


@click.command()
@click.option("--problems", default=200, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first problem.")
def main(problems: int, first: int) -> None:
    """Count the problems whose rank and matrix are recovered."""
    warnings.simplefilter("ignore", rg.ConvergenceWarning)
    ranks, errors, confirmed, start = [], [], [], time.process_time()
    for k in range(first, first + problems):
        problem, times = clean(k)
        result = rg.rcurc(problem.samples)
        rank = problem.W.shape[1]
        error = problem.relative_error(result.cur)
        ranks.append(result.rank == rank)
        errors.append(error)
        confirmed.append(result.converged)
        if not (ranks[-1] and error <= ACCURATE and result.converged):
            shape = " x ".join(map(str, problem.shape))
            click.echo(
                f"problem {k}: {shape}, rank {rank}, {problem.alpha:.0%} outliers, {times:.1f} times as planned: rank "
                f"{result.rank}, error {error:.2g}, {'confirmed' if result.converged else 'not confirmed'}"
            )
    click.echo(f"rank right            {sum(ranks)} of {problems}")
    click.echo(
        f"error at most {ACCURATE:.0e}   {sum(e <= ACCURATE for e in errors)} of {problems}, largest {max(errors):.2g}"
    )
    click.echo(f"confirmed             {sum(confirmed)} of {problems}")
    click.echo(f"CPU seconds           {time.process_time() - start:.1f}")


if __name__ == "__main__":
    main()
