"""Problems that break assumptions: is what is confirmed right, and what is right confirmed?

    python -m bench.redteam [--families TEXT,...] [--seeds 20] [--first 0] [--processes 1] [--record FILE] [--show]
    python -m bench.redteam --groups [--seeds 50] [...]

The families are those of `bench.redteam_problems`, `redteam_data`, `redteam_noise` and `redteam_attacks`; --families takes
those whose names contain one of the texts. A result is right if its relative error over the whole matrix is at most
max(1e-2, 2 x `expected_error`). Columns:

  true and right .. false and wrong   what `converged` says, and how it is
  rest                                how often "the rest is confirmed" was said, and how often that was wrong: the error
                                      of the rest is that over the determined rows and columns
  known                               of the results with an error below 1e-2, those that are not confirmed
  noise                               results of the noise model
  over                                the largest error over the expected one, among those confirmed
  cpu                                 seconds of CPU for a solve, on average

`transform_columns` is confirmed if it says so (`Transformed.converged`); "the rest" are the new columns that are determined.
Ratings are confirmed if they have a `converged` that is true, or else if they say that they help; their error is that of
new ones.

--groups has groups alone, by how much is seen across them: 50 seeds each for ranks 1, 3 and 8, with and without outliers,
10 seeds of rank="auto", icurc, shards and the paper's method. "named" is the share of results with `Result.groups` whose
Rand index is .95 or more. One thread for BLAS (OPENBLAS_NUM_THREADS=1) makes it faster. --record writes a line of JSON for
each problem, --show prints those that are confirmed and wrong.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from typing import Any

import click
import numpy as np

import rcurc_gpu as rg

from . import redteam_attacks, redteam_data, redteam_noise  # noqa: F401  they put their families into the table
from .redteam_problems import FAMILIES, Problem, grouped, problem

LEAST = 1e-2  # an error that is always right
FACTOR = 2.0  # times the expected error, up to which it is right
SAME_GROUPS = 0.95
REST = "the rest is confirmed"
RAISED = "raised an error"


@dataclass(frozen=True, eq=False)
class Answer:
    """What a solver says: the matrix, whether it is to be trusted, and which rows and columns are."""

    found: np.ndarray
    truths: tuple[np.ndarray, ...]
    confirmed: bool
    said_rest: bool
    expected: float
    row_ok: np.ndarray
    col_ok: np.ndarray
    result: Any


@dataclass(frozen=True)
class Outcome:
    """One problem, solved and scored.

    Attributes
    ----------
    error, rest_error : float
        Relative, over the whole matrix and over the determined rows and columns.
    same_groups : float or None
        Rand index of the groups that the result names, where there are groups and it names some.
    """

    family: str
    seed: int
    solver: str
    asked: str
    rank: int
    confirmed: bool
    said_rest: bool
    error: float
    rest_error: float
    expected: float
    noise_model: bool
    n_lost: int
    cause: str
    message: str
    cpu: float
    same_groups: float | None = None

    @property
    def bound(self) -> float:
        """The largest error that is right."""
        return max(LEAST, FACTOR * self.expected)

    @property
    def right(self) -> bool:
        """Whether the whole matrix is right."""
        return self.error <= self.bound

    @property
    def wrong(self) -> bool:
        """Whether it is confirmed and not right."""
        return self.confirmed and not self.right

    @property
    def wrong_rest(self) -> bool:
        """Whether "the rest is confirmed" is said and not right."""
        return self.said_rest and not self.rest_error <= self.bound

    @property
    def doubted(self) -> bool:
        """Whether it is good, and not confirmed."""
        return self.error < LEAST and not self.confirmed


# ---------------------------------------------------------------- solvers: a problem and a seed to an answer


def _answer(p: Problem, result: Any) -> Answer:
    return Answer(
        np.asarray(result.cur.to_dense(), dtype=float),
        (p.X, *p.instead),
        bool(result.converged),
        REST in result.message,
        float(result.expected_error),
        result.rows.status == 0,
        result.columns.status == 0,
        result,
    )


def _cross(solve: Callable[..., Any], p: Problem, seed: int, **options: Any) -> Answer:
    return _answer(p, solve(p.samples(), p.rank, seed=seed, **options, **p.options))


def _shards(p: Problem, seed: int) -> Answer:
    """From several shards on each side."""
    samples = p.samples()
    return _answer(p, rg.rcurc(rg.ShardedSamples.of(samples, samples.nbytes // 6), p.rank, seed=seed, **p.options))


def _dense(solve: Callable[..., Any], p: Problem, seed: int) -> Answer:
    return _answer(p, solve(p.Y, p.rank, seed=seed, **p.options))


def _transform(p: Problem, seed: int) -> Answer:
    assert p.new is not None
    result = rg.rcurc(p.samples(), p.rank, seed=seed, **p.options)
    new = result.transform_columns(p.new_seen)
    ok = new.diagnostics.status == 0
    expected = float(result.expected_error)
    if _has_noise_model(result):  # with noise it says how uncertain these columns are
        i, j = np.indices(p.new.shape)
        std = new.matrix.entries(i.ravel(), j.ravel(), return_std=True)[1]
        expected = max(expected, float(np.sqrt(np.mean(np.square(std)) / np.mean(np.square(p.new)))))
    found = np.asarray(new.matrix.to_dense(), dtype=float)
    sure, all_ok = bool(result.converged), bool(ok.all())  # what older versions say
    confirmed = bool(getattr(new, "converged", sure and all_ok))
    said_rest = REST in getattr(new, "message", REST if sure and not all_ok else "")
    told = new if hasattr(new, "message") else result
    return Answer(found, (p.new,), confirmed, said_rest, expected, np.ones(len(p.X), bool), ok, _Told(result, told))


class _Told:
    """A result, with what is said of new columns in place of what is said of it."""

    def __init__(self, result: Any, told: Any) -> None:
        self.message, self.cause, self._result = told.message, told.cause, result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)


def _ratings(p: Problem, seed: int) -> Answer:
    i, j = np.nonzero(np.isfinite(p.Y))
    rank = 5 if isinstance(p.rank, str) else p.rank
    result = rg.complete_ratings(i, j, p.Y[i, j], p.X.shape, rank, seed=seed, **p.options)
    found, std = result.predict(*np.indices(p.X.shape), return_std=True)
    expected = float(np.sqrt(np.mean(np.square(std)) / np.mean(np.square(p.X))))
    confirmed = bool(getattr(result, "converged", result.helps))
    all_rows, all_cols = (np.ones(n, bool) for n in p.X.shape)
    return Answer(found, (p.X, *p.instead), confirmed, False, expected, all_rows, all_cols, result)


SOLVERS: dict[str, Callable[[Problem, int], Answer]] = {
    "rcurc": partial(_cross, rg.rcurc),
    "paper": partial(_cross, rg.rcurc, method="paper"),
    "icurc": partial(_cross, rg.icurc),
    "shards": _shards,
    "robust_pca": partial(_dense, rg.robust_pca),
    "ircur": partial(_dense, rg.ircur),
    "transform": _transform,
    "ratings": _ratings,
}


# ---------------------------------------------------------------- one problem


def attack(name: str, seed: int, p: Problem | None = None) -> Outcome:
    """Solve one problem of a family (or `p`) and score what comes out."""
    p = problem(name, seed) if p is None else p
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        try:
            answer = SOLVERS[p.solver](p, seed)
        except Exception as error:  # a solver that gives up on data is to be seen in the table
            lost = (False, False, np.inf, np.inf, 0.0, False, sum(p.X.shape), RAISED)
            return Outcome(name, seed, p.solver, str(p.rank), 0, *lost, repr(error), time.process_time() - start)
    cpu = time.process_time() - start
    result = answer.result
    rest = np.ix_(answer.row_ok, answer.col_ok)
    return Outcome(
        name,
        seed,
        p.solver,
        str(p.rank),
        int(result.rank),
        answer.confirmed,
        answer.said_rest,
        _error(answer, p.also, ...),
        _error(answer, p.also, rest),
        answer.expected,
        _has_noise_model(result),
        int((~answer.row_ok).sum() + (~answer.col_ok).sum()),
        str(getattr(result, "cause", "")),
        getattr(result, "message", ""),
        cpu,
        _same_groups(p, getattr(result, "groups", None)),
    )


def _has_noise_model(result: Any) -> bool:
    """Whether the noise model made a result; ratings are always made by it."""
    told = getattr(result, "has_noise_model", None)  # older versions have no `strengths` without noise instead
    return getattr(result, "strengths", ()) is not None if told is None else bool(told)


def _error(answer: Answer, also: np.ndarray | None, at: Any) -> float:
    """Relative error at some entries; 0 over none, infinite if there is NaN."""
    unit = float(np.max(np.abs(answer.truths[0]))) or 1.0  # squares of tiny and huge numbers have no place
    errors = []
    for truth in answer.truths:
        difference = np.abs(answer.found / unit - truth / unit)
        if also is not None and truth is answer.truths[0]:
            difference = np.minimum(difference, np.abs(answer.found / unit - also / unit))
        norm = float(np.linalg.norm(truth[at] / unit))
        errors.append(float(np.linalg.norm(difference[at])) / norm if norm > 0 else 0.0)
    error = min(errors)
    return error if np.isfinite(error) else float("inf")


def _same_groups(p: Problem, groups: Any) -> float | None:
    """Rand index of the groups of rows and columns together."""
    if p.groups is None or groups is None:
        return None
    return rand_index(np.concatenate(p.groups), np.concatenate([np.asarray(groups.rows), np.asarray(groups.columns)]))


def rand_index(a: np.ndarray, b: np.ndarray) -> float:
    """Share of the pairs on which two sets of labels (n,) agree: together in both, or in neither."""
    together = [x[:, None] == x for x in (a, b)]
    n = len(a)
    return float((np.count_nonzero(together[0] == together[1]) - n) / (n * (n - 1)))


# ---------------------------------------------------------------- groups by what is seen across them

FEW, ENOUGH = (0.0, 0.01, 0.02, 0.03, 0.05), (0.12, 0.2)
_WAYS: dict[str, dict[str, Any]] = {
    "auto": {"rank": "auto"},
    "icurc": {"solver": "icurc"},
    "shards": {"solver": "shards"},
    "paper": {"solver": "paper"},
}


def group_cases(seeds: int, first: int = 0) -> Iterator[tuple[str, int]]:
    """Names and seeds of all problems of --groups; a name says all about the problem."""
    for across, outliers, rank in product(FEW + ENOUGH, (0.0, 0.1), (1, 3, 8)):
        yield from ((f"groups {across} {outliers} {rank} rcurc", seed) for seed in range(first, first + seeds))
    for across, way in product(FEW + ENOUGH, _WAYS):
        yield from ((f"groups {across} 0.0 3 {way}", seed) for seed in range(first, first + min(seeds, 10)))


def group_problem(name: str, seed: int) -> Problem:
    """The problem of such a name."""
    _, across, outliers, rank, way = name.split()
    made = grouped(np.random.default_rng([seed, 14]), float(across), int(rank), float(outliers))
    return replace(made, **_WAYS.get(way, {}))


def _attack(case: tuple[str, int]) -> Outcome:
    name, seed = case
    return attack(name, seed, None if name in FAMILIES else group_problem(name, seed))


# ---------------------------------------------------------------- tables

_HEADS = ("true+right", "true+WRONG", "false+right", "false+wrong", "rest", "known", "noise", "over", "cpu")


def row(outcomes: Sequence[Outcome]) -> list[str]:
    """The columns of the table."""
    counts = [sum((o.confirmed, o.right) == pair for o in outcomes) for pair in product((True, False), (True, False))]
    rest = sum(o.said_rest for o in outcomes), sum(o.wrong_rest for o in outcomes)
    known = sum(o.error < LEAST for o in outcomes), sum(o.doubted for o in outcomes)
    over = max((o.error / max(o.expected, LEAST / FACTOR) for o in outcomes if o.confirmed), default=0.0)
    cells = [str(n) if n else "." for n in counts]
    cells += [f"{b} of {a}" if a else "." for a, b in (rest, known)]
    cells += [str(sum(o.noise_model for o in outcomes) or "."), f"{over:.2g}", f"{np.mean([o.cpu for o in outcomes]):.2f}"]
    named = [o.same_groups for o in outcomes if o.same_groups is not None]
    return [*cells, f"{np.mean(np.asarray(named) >= SAME_GROUPS):.0%} of {len(named)} named"] if named else cells


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each family, and one for all."""
    names = list(dict.fromkeys(o.family for o in outcomes))
    width = max(map(len, [*names, "family"])) + 2
    lines = [("family", list(_HEADS))]
    lines += [(name, row([o for o in outcomes if o.family == name])) for name in names]
    lines.append((f"all {len(outcomes)}", row(outcomes)))
    return "\n".join(name.ljust(width) + "".join(cell.ljust(13) for cell in cells).rstrip() for name, cells in lines)


def run(cases: Sequence[tuple[str, int]], processes: int = 1) -> Iterator[Outcome]:
    """All outcomes, as they come."""
    if processes == 1:
        yield from map(_attack, cases)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(_attack, cases, chunksize=4)


@click.command(help=(__doc__ or "").split("\n")[0])
@click.option("--families", default="", help="Only families whose names contain one of these texts, separated by ;")
@click.option("--groups", is_flag=True, help="The groups alone, by what is seen across them.")
@click.option("--seeds", default=20, show_default=True)
@click.option("--first", default=0, show_default=True, help="The first seed.")
@click.option("--processes", default=1, show_default=True)
@click.option("--record", type=click.File("w"), help="Write a line of JSON for each problem.")
@click.option("--show", is_flag=True, help="Print what is confirmed and wrong.")
def main(families: str, groups: bool, seeds: int, first: int, processes: int, record: Any, show: bool) -> None:
    wanted = [text for text in families.split(";") if text]
    names = [name for name in FAMILIES if not wanted or any(text in name for text in wanted)]
    cases = list(group_cases(seeds, first)) if groups else list(product(names, range(first, first + seeds)))
    outcomes = []
    for o in run(cases, processes):
        outcomes.append(o)
        if record is not None:
            record.write(json.dumps(asdict(o)) + "\n")
            record.flush()
        if show and (o.wrong or o.wrong_rest):
            what = "confirmed" if o.wrong else "rest"
            click.echo(
                f"{what} {o.family!r} {o.seed} error {o.error:.2g} rest {o.rest_error:.2g} bound {o.bound:.2g}: {o.message}"
            )
    click.echo(table(outcomes))


if __name__ == "__main__":
    main()
