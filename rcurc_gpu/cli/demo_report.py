"""What ``rcurc-gpu demo`` reports: figures as a dictionary, and the same in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._version import __version__
from ..backends import blank_rows
from ..result import LowRankMatrix, Result, outlying_once
from ..testing import SyntheticProblem
from .common import OptionWording

_OPTION_OF = {"rank": "--rank", "method": "--method"}  # those of the solver that this command has


def describe_problem(options: Any, problem: SyntheticProblem) -> dict[str, Any]:
    """What was asked for and made, as a dictionary for JSON."""
    samples = problem.samples
    n1, n2 = problem.shape
    return {
        "version": __version__,
        "problem": {
            "shape": [n1, n2],
            **{name: getattr(options, name) for name in ("rank", "alpha", "c", "noise")},
            "chosen_rows": len(samples.rows),
            "chosen_cols": len(samples.cols),
            "rate": options.rate,
            "seed": options.seed,
            "observations": samples.n_obs,
            "share_seen": samples.n_obs / (n1 * n2),
        },
    }


def describe_result(problem: SyntheticProblem, result: Result) -> dict[str, Any]:
    """How the solve went and how far it is from the truth, as a dictionary for JSON."""
    rows, cols = result.rows.undetermined, result.columns.undetermined
    determined = LowRankMatrix(blank_rows(result.cur.left, rows), blank_rows(result.cur.right, cols))
    return {
        "converged": bool(result.converged),
        "message": result.message if result.verdict is None else result.verdict.sentence(OptionWording(_OPTION_OF)),
        "cause": result.cause,
        "iterations": result.n_iter,
        "rank_used": result.rank,
        "true_error": problem.relative_error(result.cur),
        "true_error_of_determined": problem.relative_error(determined, undetermined="skip"),
        "expected_error": result.expected_error,
        "prediction_error": result.prediction_error,
        "undetermined_rows": len(rows),
        "undetermined_cols": len(cols),
        "outliers": compare_outliers(problem, result),
    }


def compare_outliers(problem: SyntheticProblem, result: Result) -> dict[str, Any]:
    """Flagged against truly corrupted observations, each entry counted once however many blocks see it."""
    samples = problem.samples  # on the host, wherever the result is
    r, c = samples.R.tocoo(), samples.C.tocoo()
    i = np.concatenate([samples.rows[r.row], c.row]).astype(np.int64)
    j = np.concatenate([r.col, samples.cols[c.col]]).astype(np.int64)
    bad = problem.is_outlier(i, j)
    corrupted = np.unique(i[bad] * problem.shape[1] + j[bad])
    i, j, *_ = outlying_once(result.samples, result.cur, result.outlier_rule)
    flagged = np.unique(i * problem.shape[1] + j)
    found = np.intersect1d(corrupted, flagged, assume_unique=True)
    missed = np.setdiff1d(corrupted, flagged, assume_unique=True)
    i, j = np.divmod(missed, problem.shape[1])
    unjudged = (result.rows.status[i] != 0) | (result.columns.status[j] != 0)
    small = ~unjudged & (np.abs(problem.entries(i, j) - problem.truth(i, j)) < result.threshold)
    return {
        "corrupted": corrupted.size,
        "flagged": flagged.size,
        "found": found.size,
        "recall": _ratio(found.size, corrupted.size),
        "precision": _ratio(found.size, flagged.size),
        "missed_below_threshold": int(small.sum()),
        "missed_undetermined": int(unjudged.sum()),
        "missed_other": int(missed.size - small.sum() - unjudged.sum()),
        "threshold": result.threshold,
    }


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def problem_words(report: dict[str, Any], seconds: float) -> str:
    """The problem in words."""
    p = report["problem"]
    n1, n2 = p["shape"]
    noise = f"Gaussian noise of {p['noise']:g} mean|X| on every entry" if p["noise"] else "no noise"
    return (
        f"Problem:    a {n1:,} x {n2:,} matrix of rank {p['rank']}; {_count(p['chosen_rows'], 'chosen row')} and "
        f"{_count(p['chosen_cols'], 'chosen column')}\n"
        f"            {p['observations']:,} of its {n1 * n2:,} entries are seen ({100 * p['share_seen']:.3g} %)\n"
        f"            {100 * p['alpha']:g} % of the entries carry an outlier of up to {p['c']:g} mean|X|; {noise}\n"
        f"            made in {seconds:.2f} s"
    )


_RUNS_ON = {
    "numba": ", compiled by Numba",
    "xp": ", plain NumPy; pip install 'rcurc-gpu[fast]' (Numba) makes most solves several times as fast",
}


def device_words(wanted: str, device: str, copying: float, kernels: str) -> str:
    """Where it is solved and by what, and what would make it faster, in words."""
    if device != "cpu":
        return f"{device} (copied there in {copying:.2f} s)"
    gpu = " (--device cuda takes a GPU)" if wanted == "auto" else ""
    return f"cpu{gpu}{_RUNS_ON.get(kernels, '')}"


def result_words(report: dict[str, Any]) -> str:
    """The outcome in words."""
    lines = [
        f"Solved:     in {report['seconds']['solving']:.2f} s, {report['iterations']} iterations of the core",
        f"True error: {_error_words(report)}",
        f"Verdict:    {'confirmed' if report['converged'] else 'NOT confirmed'}. {report['message']}",
        *_outlier_words(report["outliers"]),
    ]
    return "\n".join(lines)


def _error_words(report: dict[str, Any]) -> str:
    whole = f"{report['true_error']:.2e} (relative, over the whole matrix)"
    lost = [(report["undetermined_rows"], "row"), (report["undetermined_cols"], "column")]
    named = " and ".join(_count(number, thing) for number, thing in lost if number)
    if not named:
        return whole
    if math.isnan(report["true_error_of_determined"]):
        return f"{whole}; {named} could not be determined"
    return f"{whole}; {report['true_error_of_determined']:.2e} without the {named} that could not be determined"


def _outlier_words(o: dict[str, Any]) -> list[str]:
    """All corrupted observations count, however small; those too small to be found are named."""
    flagged = "none was flagged"
    if o["flagged"]:
        precision = percent(o["found"], o["flagged"])
        flagged = f"{o['flagged']:,} were flagged, {o['found']:,} of them rightly (precision {precision})"
    if not o["corrupted"]:
        return [f"Outliers:   none of the observations is corrupted; {flagged}"]
    lines = [
        f"Outliers:   {o['corrupted']:,} observations are truly corrupted, {o['found']:,} of them were found "
        f"(recall {percent(o['found'], o['corrupted'])})",
        f"            {flagged}",
    ]
    reasons = (
        (o["missed_below_threshold"], f"off by less than the threshold {o['threshold']:.1e}"),
        (o["missed_undetermined"], "in rows or columns that could not be determined"),
        (o["missed_other"], "off by more, but within the threshold of the recovered matrix"),
    )
    missed = [f"{count:,} {why}" for count, why in reasons if count]
    return [*lines, f"            missed: {', '.join(missed)}"] if missed else lines


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def percent(part: int, whole: int) -> str:
    """Rounded down, so that 100 % means all."""
    return f"{math.floor(100_000 * part / whole) / 1000:g} %"
