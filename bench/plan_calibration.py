"""How many observations a column and a row need: the measurements behind `plan_samples`.

    python -m bench.plan_calibration --output boundary.csv   # all sizes: hours on one core
    python -m bench.plan_calibration --quick                 # n = 1000, a part of the grid: some minutes

For each size, rank, share of outliers and rate: the smallest number of observations of a column (rows chosen times rate;
the same for rows) from which on `rcurc` with its default parameters recovers five matrices of five to a true error of 1e-3.
It is found by bisection on a ladder of steps of 12 %, and so itself uncertain by a step or two. Beside it is what
`plan_samples` asks for before its margin. Generic matrices (Gaussian factors), outliers of up to ten times the typical
entry; structured matrices may need more.
"""

from __future__ import annotations

import csv
import math
import warnings
from itertools import product
from typing import Any

import click

import rcurc_gpu as rg
from rcurc_gpu.samples.planning import observations_needed

RANKS = (1, 2, 5, 10, 20)
OUTLIERS = (0.0, 0.1, 0.2, 0.3, 0.4)
RATES = (0.25, 0.5, 1.0)
SIZES = (300, 1000, 3000, 10000)
SEEDS = range(5)
STEP = 1.12
TARGET = 1e-3


def recovered(n: int, rank: int, alpha: float, rate: float, per_unit: int, seed: int, c: float = 10.0) -> bool:
    """Whether one problem with `per_unit` observations of each column and row is solved."""
    chosen = round(per_unit / rate)
    problem = rg.synthetic((n, n), rank, alpha, c, n_rows=chosen, n_cols=chosen, rate=rate, seed=seed)
    try:
        result = rg.rcurc(problem.samples, rank)
    except ValueError:  # no observation where one is needed
        return False
    return problem.relative_error(result.cur) <= TARGET


def boundary(n: int, rank: int, alpha: float, rate: float) -> int | None:
    """The smallest number of observations of a unit at which all problems are solved; None if there is none."""
    most = math.floor(n * rate)
    ladder = sorted({math.ceil((rank + 1) * STEP**k) for k in range(60)} - set(range(rank + 2)))
    ladder = [q for q in ladder if rank <= round(q / rate) and q <= most]
    low, high = 0, len(ladder)  # ladder[high] is the first that is enough
    while low < high:
        middle = (2 * low + high) // 3  # what is too little takes longer than what is plenty, but the answer is low
        if all(recovered(n, rank, alpha, rate, ladder[middle], seed) for seed in SEEDS):
            high = middle
        else:
            low = middle + 1
    return ladder[high] if high < len(ladder) else None


@click.command()
@click.option("--quick", is_flag=True, help="n = 1000, three ranks and three shares of outliers.")
@click.option("--output", type=click.File("w"), default="-", help="A CSV file; by default standard output.")
def main(quick: bool, output: Any) -> None:
    """Measure the boundary."""
    warnings.simplefilter("ignore", rg.ConvergenceWarning)
    sizes, ranks, shares = ((1000,), (1, 5, 20), (0.0, 0.2, 0.4)) if quick else (SIZES, RANKS, OUTLIERS)
    table = csv.writer(output)
    table.writerow(["n", "rank", "outliers", "rate", "needed", "rule"])
    for n, rank, alpha, rate in product(sizes, ranks, shares, RATES):
        rule = round(observations_needed(n, rank, alpha, rate))
        table.writerow([n, rank, alpha, rate, boundary(n, rank, alpha, rate), rule])
        output.flush()


if __name__ == "__main__":
    main()
