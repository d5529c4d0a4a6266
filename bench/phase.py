"""How few observations are enough: success against observations per unknown.

    python -m bench.phase                               # 20 seeds of each, a table: some minutes on one core
    python -m bench.phase --seeds 5 --plot phase.png --output phase.csv

The ratio is observations / (r (n1 + n2 - r)). Success is a true error below 1e-3 of the whole matrix; r is given. Families:

  10 %, 20 %, 30 %   n = 300, r = 5, places at random, all rows and columns chosen, so many outliers of up to ten times the
                     typical entry
  cross              n = 400, r = 5, 20 % outliers, 30 % of the rows and columns chosen
  condition 100      as 20 %, but the singular values fall from 100 to 1
  rank too large     as 20 %, but r + 5 is asked for

`--without` leaves the Gauss-Newton steps out. Beside success: how many were confirmed, how many of these were wrong, CPU
seconds of a solve.
"""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

import rcurc_gpu as rg

RANK, TARGET = 5, 1e-3
# 50 % success of RGNMR (arXiv 2505.12919), which is told the number of outliers, at 10 and 20 %; ten seeds, our own port
RGNMR = {"10 %": 3.8, "20 %": 5.3}


@dataclass(frozen=True)
class Family:
    """Problems of one kind: ratios to try, how one is made of (ratio, seed), and the rank that is asked for."""

    ratios: tuple[float, ...]
    make: Callable[[float, int], tuple[rg.CrossSamples, Callable[[Any], float]]]
    asked: int = RANK


def uniform(alpha: float, condition: float = 1.0, n: int = 300, c: float = 10.0) -> Callable[..., Any]:
    """Places at random in an n x n matrix."""

    def make(ratio: float, seed: int) -> tuple[rg.CrossSamples, Callable[[Any], float]]:
        rng = np.random.default_rng((1, seed))
        W, V = rng.standard_normal((2, n, RANK))
        if condition > 1:
            W, V = np.linalg.qr(W)[0] * np.geomspace(n, n / condition, RANK), np.linalg.qr(V)[0]
        X = W @ V.T
        place = rng.choice(n * n, round(ratio * RANK * (2 * n - RANK)), replace=False)
        y = X.ravel()[place]
        y += np.where(rng.random(len(y)) < alpha, rng.uniform(-c, c, len(y)) * np.abs(X).mean(), 0.0)
        i, j = np.divmod(place, n)
        samples = rg.CrossSamples.from_triplets(i, j, y, (n, n), rows=np.arange(n), cols=np.arange(n))
        return samples, lambda cur: float(np.linalg.norm(cur.to_dense() - X) / np.linalg.norm(X))

    return make


def cross(alpha: float, n: int = 400) -> Callable[..., Any]:
    """A cross of 30 % of the rows and columns, sampled so that its observations give the ratio."""

    def make(ratio: float, seed: int) -> tuple[rg.CrossSamples, Callable[[Any], float]]:
        k, wanted = round(0.3 * n), ratio * RANK * (2 * n - RANK)
        # 2 k n p observations, of which k^2 p^2 are seen by both blocks
        rate = (n - (n**2 - wanted) ** 0.5) / k
        problem = rg.synthetic((n, n), RANK, alpha, 10, n_rows=k, n_cols=k, rate=rate, seed=seed)
        return problem.samples, lambda cur: problem.relative_error(cur)

    return make


FAMILIES = {
    "10 %": Family((1.7, 1.9, 2.1, 2.3, 2.7, 3.1), uniform(0.1)),
    "20 %": Family((1.9, 2.2, 2.4, 2.6, 3.0, 3.4, 3.8), uniform(0.2)),
    "30 %": Family((2.4, 2.7, 3.0, 3.3, 3.6, 4.5, 5.5), uniform(0.3)),
    "cross": Family((3.4, 3.8, 4.2, 4.6, 5.0, 5.4), cross(0.2)),
    "condition 100": Family((2.2, 2.6, 3.0, 4.0, 5.0), uniform(0.2, 100.0)),
    "rank too large": Family((2.6, 3.0, 4.0, 5.0, 8.0), uniform(0.2), RANK + 5),
}


def measure(family: Family, ratio: float, seeds: int) -> dict[str, float]:
    """Shares of problems that were recovered, confirmed, and confirmed although wrong; CPU seconds of one."""
    right = confirmed = wrong = 0
    began = time.process_time()
    for seed in range(seeds):
        samples, error_of = family.make(ratio, seed)
        result = rg.rcurc(samples, family.asked)
        error = error_of(result.cur)
        right += error < TARGET
        confirmed += result.converged
        wrong += result.converged and not error < max(1e-2, 2 * result.expected_error)
    numbers = {"recovered": right, "confirmed": confirmed, "confirmed and wrong": wrong}
    return {name: x / seeds for name, x in numbers.items()} | {"cpu": (time.process_time() - began) / seeds}


def half_way(ratios: list[float], shares: list[float]) -> float | None:
    """The ratio from which on at least half of the problems are recovered; None if there is none."""
    enough = [all(share >= 0.5 for share in shares[k:]) for k in range(len(shares))]
    return next((ratio for ratio, good in zip(ratios, enough, strict=True) if good), None)


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Success against the ratio; dashed without Gauss-Newton steps, with RGNMR's 50 % as crosses."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["family"] for row in rows))
    figure, axes = plt.subplots(2, (len(names) + 1) // 2, figsize=(10, 5.4), sharey=True, layout="constrained")
    for axis, name in zip(axes.flat, names, strict=False):
        for steps, style, label in ((True, "o-C0", "this library"), (False, "s--C7", "without Gauss-Newton")):
            here = [row for row in rows if row["family"] == name and row["steps"] == steps]
            if here:
                axis.plot([row["ratio"] for row in here], [row["recovered"] for row in here], style, label=label, ms=4)
        if name in RGNMR:
            axis.plot([RGNMR[name]], [0.5], "xC3", ms=9, mew=2, label="RGNMR, half of the cases")
        axis.axhline(0.5, color="0.8", lw=0.8, zorder=0)
        axis.set_title(name + (" outliers" if "%" in name else ""), fontsize=10)
        axis.set_ylim(-0.04, 1.04)
    axes.flat[0].legend(fontsize=8, loc="lower right")
    figure.supxlabel("observations / (r (n1 + n2 - r))")
    figure.supylabel("recovered")
    figure.savefig(path, dpi=110)


def without_steps() -> None:
    """Turn the Gauss-Newton steps off, in this process."""
    from rcurc_gpu.solve.search import CoreSearch

    CoreSearch._may_take_steps = lambda self, attempt: False  # type: ignore[method-assign]


@click.command()
@click.option("--seeds", default=20)
@click.option("--family", "chosen", multiple=True, type=click.Choice(list(FAMILIES)), help="Some of them; by default all.")
@click.option("--without", is_flag=True, help="Without Gauss-Newton steps.")
@click.option("--output", type=click.Path(), help="A CSV file; lines are added to one that is there.")
@click.option("--plot", type=click.Path(), help="A picture of all lines of that file, or of this run.")
def main(seeds: int, chosen: tuple[str, ...], without: bool, output: str | None, plot: str | None) -> None:
    """Measure success against observations per unknown."""
    warnings.simplefilter("ignore", rg.ConvergenceWarning)
    if without:
        without_steps()
    rows: list[dict[str, Any]] = []
    for name in chosen or FAMILIES:
        for ratio in FAMILIES[name].ratios:
            rows.append({"family": name, "steps": not without, "ratio": ratio} | measure(FAMILIES[name], ratio, seeds))
            found = rows[-1]
            click.echo(
                f"{name:15s} {ratio:4.1f}: recovered {found['recovered']:4.0%}, confirmed {found['confirmed']:4.0%}, "
                f"wrong {found['confirmed and wrong']:3.0%}, {found['cpu']:.2f} s"
            )
        here = [row for row in rows if row["family"] == name]
        half = half_way([row["ratio"] for row in here], [row["recovered"] for row in here])
        click.echo(f"{name:15s} half of the cases from {half}" + (f"; RGNMR {RGNMR[name]}" if name in RGNMR else ""))
    if output is not None:
        rows = _added(Path(output), rows)
    if plot is not None:
        draw(rows, plot)


def _added(path: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All lines of a file, with these in place of older ones of the same family."""
    old = []
    if path.exists():
        new = {(row["family"], row["steps"]) for row in rows}
        with path.open() as file:
            for line in csv.DictReader(file):
                steps = line["steps"] == "True"
                if (line["family"], steps) not in new:
                    numbers = {name: float(x) for name, x in line.items() if name not in ("family", "steps")}
                    old.append({"family": line["family"], "steps": steps} | numbers)
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(old + rows)
    return old + rows


if __name__ == "__main__":
    main()
