"""Real matrices with planted outliers, default calls: errors, intervals, verdict and CPU time of this library.

    python -m bench.real [NAME ...] [--data DIR] [--only TASK] [--seeds 0,1,2,3,4] [--ranks]

The matrices are those of `bench.real_data`, from installed packages, or all .npy files of DIR (NaN: missing). Five tasks
for each, always with a tenth of the observations made wrong. "large": 6 to 20 standard deviations off, up or down;
"real": the sign turned, ten times too large or too small, a 0, or the median of the column instead, a quarter each.

  cross    30 % of the rows and of the columns (at least 30) are chosen and 40 % of their entries observed: `rcurc`
  missing  20 % missing at random ("real") or 60 % ("large"): `robust_pca`, or, where less than a tenth of the matrix is
           seen, as with ratings, `rcurc` on a cross that `CrossSamples.from_triplets` chooses
  whole    everything observed: `robust_pca`

Scored are the entries that were not observed; for "whole" those that were made wrong. Columns, for row and column medians,
the library and the prototype (`bench.robust_bayes`): relative error, median absolute error. Then

  ratio    the library's relative error over the prototype's
  cover    share of the scored entries inside of the library's 95 % intervals for a new observation; the prototype's
  pred     `prediction_error` over the relative error
  cpu      seconds of CPU of the call, the least of up to three; a first small solve compiles. One thread for BLAS
           (OPENBLAS_NUM_THREADS=1) makes them comparable: threads that wait count as well
  none     share of the scored entries without an answer; errors are those of the others

--seeds gives the solver one seed after the other (the problems stay the same): the line is that of the first, followed by
the ranks and by the largest error over the smallest. --ranks asks for 2, 5 and 10 components more than the default call
finds: the line ends with the errors over that of the default call, and with the farthest prediction of any entry from the
middle of the data over half their range. The numbers at the end count tasks. `bench.realistic` has other matrices.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

import rcurc_gpu as rg

from .real_data import load, names_in
from .robust_bayes import medians, robust_bayes

TASKS = (("cross", "large"), ("cross", "real"), ("missing", "real"), ("missing", "large"), ("whole", "large"))
CHOSEN, LEAST, WRONG = 0.3, 30, 0.1
SPARSE = 0.1  # a matrix of which less was seen comes as a list
LEVEL, NORMAL = 0.95, 1.96
MORE = (2, 5, 10)  # components beyond those of the default call
REPEATS, SOON = 3, 1.0  # runs on the clock, as long as they took less than so many seconds together


@dataclass(frozen=True, eq=False)
class RealProblem:
    """A task on a real matrix.

    Attributes
    ----------
    truth, M : float arrays (n1, n2)
        The matrix, NaN where nobody knows it; what was observed of it, partly wrong, NaN elsewhere.
    rows, cols : index vectors or None
        I and J, where the task is a cross.
    counts : bool array (n1, n2)
        Which entries are scored.
    """

    truth: np.ndarray
    M: np.ndarray
    rows: np.ndarray | None
    cols: np.ndarray | None
    counts: np.ndarray


@dataclass(frozen=True)
class Score:
    """Errors on the entries that count, and the shares of them inside of the intervals and without an answer."""

    error: float
    typical: float
    none: float
    cover: float | None = None

    def __str__(self) -> str:
        return f"{self.error:<9.4g}{self.typical:<9.3g}"


@dataclass(frozen=True, eq=False)
class Answer:
    """What the library says: values and intervals of the entries that count, in the order of `numpy.nonzero`."""

    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    rank: int
    converged: bool
    prediction_error: float
    cpu: float


@dataclass(frozen=True)
class Line:
    """One task: scores, and what the library said of itself."""

    name: str
    task: str
    kind: str
    medians: Score
    library: Score
    prototype: Score
    prototype_rank: int
    rank: int
    converged: bool
    predicted: float
    cpu: float
    ranks: tuple[int, ...]
    errors: tuple[float, ...]
    wider: tuple[float, ...] = ()
    farthest: float = 0.0

    @property
    def ratio(self) -> float:
        """To the prototype."""
        return self.library.error / self.prototype.error

    @property
    def swing(self) -> float:
        """The largest error of a seed over the smallest."""
        return max(self.errors) / min(self.errors)


# ---------------------------------------------------------------- tasks


def spoil(Y: np.ndarray, seen: np.ndarray, kind: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """`Y` with a tenth of what was `seen` made wrong, and which entries these are (bool, as `Y`)."""
    where = np.flatnonzero(seen)
    where = where[rng.permutation(len(where))[: int(WRONG * len(where))]]
    right, n = Y.ravel()[where], len(where)
    if kind == "large":
        sign = rng.choice([-1, 1], n)
        values = right + sign * rng.uniform(6, 20, n) * np.nanstd(Y)
    else:
        which = rng.integers(0, 4, n)
        factor = rng.choice([10, 0.1], n)
        column = np.nanmedian(Y, axis=0)[where % Y.shape[1]]
        values = np.choose(which, [-right, right * factor, np.zeros(n), column])
    wrong, spoilt = np.zeros(Y.shape, dtype=bool), Y.copy()
    wrong.flat[where], spoilt.flat[where] = True, values
    return spoilt, wrong


def problem(Y: np.ndarray, task: str, kind: str, seed: int = 0) -> RealProblem:
    """A task on `Y`. The order of the draws is part of it: figures of all versions compare."""
    rng = np.random.default_rng(seed)
    rows, cols = (np.sort(rng.choice(n, max(int(CHOSEN * n), min(LEAST, n)), replace=False)) for n in Y.shape)
    rate = 1.0 if task == "whole" else 0.8 if (task, kind) == ("missing", "real") else 0.4
    known = ~np.isnan(Y)
    seen = (rng.random(Y.shape) < rate) & known
    if task == "cross":
        seen &= np.isin(np.arange(Y.shape[0]), rows)[:, None] | np.isin(np.arange(Y.shape[1]), cols)
    spoilt, wrong = spoil(Y, seen, kind, rng)
    M = np.where(seen, spoilt, np.nan)
    counts = wrong if task == "whole" else known & ~seen
    return RealProblem(Y, M, *((rows, cols) if task == "cross" else (None, None)), counts)


def score(made: RealProblem, values: np.ndarray, lower: np.ndarray | None = None, upper: np.ndarray | None = None) -> Score:
    """How good `values` and intervals are; all are of the entries that count, in the order of `numpy.nonzero`."""
    truth, given = made.truth[made.counts], np.isfinite(values)
    off = (values - truth)[given]
    inside = None
    if lower is not None and upper is not None:
        inside = float(np.mean(((lower <= truth) & (truth <= upper))[given]))
    error = float(np.linalg.norm(off) / np.linalg.norm(truth[given]))
    return Score(error, float(np.median(np.abs(off))), float(1 - np.mean(given)), inside)


# ---------------------------------------------------------------- who is asked


def call(made: RealProblem, **options: Any) -> Callable[[], rg.Result]:
    """The default call of the library for a task."""
    seen = ~np.isnan(made.M)
    if made.rows is not None:
        samples = rg.CrossSamples.from_dense(made.M, rows=made.rows, cols=made.cols)
    elif np.mean(seen) < SPARSE:
        samples = rg.CrossSamples.from_triplets(*np.nonzero(seen), made.M[seen], made.M.shape)
    else:
        return lambda: rg.robust_pca(made.M, **options)
    return lambda: rg.rcurc(samples, **options)


def answer(made: RealProblem, seed: int | None = None) -> Answer:
    """Solve, and ask for what counts."""
    work = call(made, **({} if seed is None else {"seed": seed}))
    spent: list[float] = []
    while len(spent) < REPEATS and sum(spent) < SOON:
        start = time.process_time()
        result = work()
        spent.append(time.process_time() - start)
    i, j = np.nonzero(made.counts)
    values = result.cur.entries(i, j)
    bounds = result.interval(i, j, level=LEVEL, new=True)
    return Answer(values, *bounds, result.rank, result.converged, result.prediction_error, min(spent))


def asked_for_more(made: RealProblem, rank: int, error: float) -> tuple[tuple[float, ...], float]:
    """Errors with components more than `rank` over `error`, and the farthest prediction over half the range of the data."""
    low, high = np.nanmin(made.truth), np.nanmax(made.truth)
    ratios, farthest = [], 0.0
    room = min(made.M.shape if made.rows is None or made.cols is None else (len(made.rows), len(made.cols)))
    for wanted in dict.fromkeys(min(rank + more, room - 2) for more in MORE):
        X = call(made, rank=wanted)().cur.to_dense()
        ratios.append(score(made, X[made.counts]).error / error)
        farthest = max(farthest, float(np.abs(X - (low + high) / 2).max() / ((high - low) / 2)))
    return tuple(ratios), farthest


def measure(name: str, task: str, kind: str, Y: np.ndarray, seeds: Sequence[int | None], ranks: bool = False) -> Line:
    """One task; `seeds` are the solver's; whether more `ranks` than that of the default call are asked for."""
    made = problem(Y, task, kind)
    at = made.counts
    fit = robust_bayes(made.M)
    found = [answer(made, seed) for seed in seeds]
    scores = [score(made, a.values, a.lower, a.upper) for a in found]
    first = found[0]
    return Line(
        name,
        task,
        kind,
        score(made, medians(made.M)[at]),
        scores[0],
        score(made, fit.X[at], (fit.X - NORMAL * fit.std)[at], (fit.X + NORMAL * fit.std)[at]),
        fit.rank,
        first.rank,
        first.converged,
        first.prediction_error / scores[0].error,
        first.cpu,
        tuple(a.rank for a in found),
        tuple(s.error for s in scores),
        *(asked_for_more(made, first.rank, scores[0].error) if ranks else ()),
    )


def noisy(shape: tuple[int, int] = (80, 60), seed: int = 0) -> np.ndarray:
    """A small matrix with offsets, two components and noise: for the first solve, which compiles."""
    rng = np.random.default_rng(seed)
    left, right = (rng.standard_normal((n, 2)) for n in shape)
    offsets = rng.standard_normal((shape[0], 1)) + rng.standard_normal(shape[1])
    return 10 + offsets + left @ right.T + 0.1 * rng.standard_normal(shape)


# ---------------------------------------------------------------- what is printed

HEAD = f"{'':24s}{'medians':18s}{'library':18s}{'prototype (rank)':24s}{'ratio':>6s}{'cover':>13s}"
HEAD += f"{'':7s}{'pred':>5s}{'cpu':>8s}{'rank':>6s}{'none':>7s}"


def shown(line: Line) -> str:
    """A task as a line of the table."""
    cover = "/".join("-" if s.cover is None else f"{s.cover:.3f}" for s in (line.library, line.prototype))
    text = f"{line.name:8s} {line.task:8s} {line.kind:6s}{line.medians}{line.library}"
    text += f"{f'{line.prototype}({line.prototype_rank})':24s}{line.ratio:6.3f} {cover:>12s}"
    text += f"{'  conv ' if line.converged else '  not  '}{line.predicted:5.2f}{line.cpu:8.3f}"
    text += f"{line.rank:6d}{line.library.none:7.1%}"
    if len(line.ranks) > 1:
        text += f"   ranks {','.join(map(str, line.ranks))}, errors x {line.swing:.3f}"
    if line.wider:
        text += f"   more: {', '.join(f'{x:.3f}' for x in line.wider)}, at most {line.farthest:.2f}"
    return text


def summary(lines: Sequence[Line]) -> list[str]:
    """The figures that decide, over all tasks."""

    def count(holds: Callable[[Line], bool]) -> str:
        return f"{sum(map(holds, lines))} of {len(lines)}"

    def within(low: float, value: float | None, high: float) -> bool:
        return value is not None and low <= value <= high

    def where(line: Line) -> str:
        return f"({line.name} {line.task} {line.kind})"

    worst, slowest = max(lines, key=lambda line: line.ratio), max(lines, key=lambda line: line.cpu)
    covers = [line.library.cover for line in lines if line.library.cover is not None] or [np.nan]
    predicted = [line.predicted for line in lines]
    rows = [
        ("error at most 1.03 times the prototype's", count(lambda line: line.ratio <= 1.03)),
        ("below the prototype's", count(lambda line: line.ratio < 1)),
        ("worst and mean ratio", f"{worst.ratio:.3f} {where(worst)}, {_geometric([line.ratio for line in lines]):.3f}"),
        ("below that of medians", count(lambda line: line.library.error < line.medians.error)),
        ("an answer everywhere", count(lambda line: line.library.none == 0)),
        ("95 % intervals cover 92 to 98 %", count(lambda line: within(0.92, line.library.cover, 0.98))),
        ("95 % intervals cover 88 to 99 %", count(lambda line: within(0.88, line.library.cover, 0.99))),
        ("least and most coverage", f"{min(covers):.3f}, {max(covers):.3f}"),
        ("error is 0.67 to 1.5 times prediction_error", count(lambda line: within(1 / 1.5, line.predicted, 1 / 0.67))),
        ("least and most prediction_error over error", f"{min(predicted):.2f}, {max(predicted):.2f}"),
        ("converged", count(lambda line: line.converged)),
        ("CPU seconds, all and most", f"{sum(line.cpu for line in lines):.2f}, {slowest.cpu:.3f} {where(slowest)}"),
    ]
    for name in dict.fromkeys(line.name for line in lines):
        rows.append((f"CPU seconds of {name}, most", f"{max(line.cpu for line in lines if line.name == name):.3f}"))
    if any(len(line.ranks) > 1 for line in lines):
        least = max(lines, key=lambda line: line.swing)
        rows += [
            ("ranks of all seeds within 1", count(lambda line: max(line.ranks) - min(line.ranks) <= 1)),
            ("errors of all seeds within 3 %", count(lambda line: line.swing <= 1.03)),
            ("largest over smallest error of a task", f"{least.swing:.3f} {where(least)}"),
        ]
    if any(line.wider for line in lines):
        rows += [
            ("rank too large: error at most 1.05 times", count(lambda line: max(line.wider) <= 1.05)),
            ("rank too large: largest ratio", f"{max(max(line.wider) for line in lines):.3f}"),
            ("no prediction beyond three times the range", count(lambda line: line.farthest <= 3)),
        ]
    return [f"{words:46s}{figure}" for words, figure in rows]


def _geometric(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def wanted(task: str, kind: str, only: Sequence[str]) -> bool:
    """Whether `only`, "cross" or "cross-large" and the like, asks for a task; nothing asks for all."""
    return not only or task in only or f"{task}-{kind}" in only


def numbers(context: click.Context, parameter: click.Parameter, text: str | None) -> list[int | None]:
    """``0,1,2`` as a list; a default call is one without a seed."""
    try:
        return [None] if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"must be integers with commas between them, got {text!r}") from None


def options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of this command and of `bench.realistic`."""
    for option in (
        click.option("--ranks", is_flag=True, help="Ask for too many components as well."),
        click.option("--seeds", callback=numbers, metavar="0,1,...", help="Seeds of the solver to go through."),
        click.option(
            "--only",
            multiple=True,
            type=click.Choice(sorted({t for t, _ in TASKS} | {f"{t}-{k}" for t, k in TASKS})),
            help="Only this task; may be repeated.",
        ),
        click.argument("names", nargs=-1, metavar="[NAME]..."),
    ):
        command = option(command)
    return command


def run(matrices: dict[str, np.ndarray], only: Sequence[str], seeds: Sequence[int | None], ranks: bool) -> None:
    """All tasks on all matrices, as a table."""
    warnings.simplefilter("ignore", rg.ConvergenceWarning)  # what the library says of itself is a column
    for task in ("cross", "whole"):
        answer(problem(noisy(), task, "large"))
    click.echo(HEAD)
    lines = []
    for name, Y in matrices.items():
        for task, kind in TASKS:
            if wanted(task, kind, only):
                lines.append(measure(name, task, kind, Y, seeds, ranks))
                click.echo(shown(lines[-1]))
    click.echo("\n" + "\n".join(summary(lines)))


@click.command()
@options
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A directory of .npy files.")
def main(names: tuple[str, ...], data: Path | None, only: tuple[str, ...], seeds: list[int | None], ranks: bool) -> None:
    """Default calls on real matrices with planted outliers, beside medians and a prototype."""
    run({name: load(name, data) for name in names or names_in(data)}, only, seeds, ranks)


if __name__ == "__main__":
    main()
