"""The command ``rcurc-gpu``. The only place of the library that prints."""

from __future__ import annotations

import io
import json
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from . import plot
from ._version import __version__
from .backend import namespace_for_device, to_numpy
from .errors import ConvergenceWarning
from .result import Result
from .samples import CrossSamples
from .solver import rcurc
from .synthetic import SyntheticProblem, synthetic

_CONFIRMED, _NOT_CONFIRMED, _STOPPED = 0, 1, 130  # exit codes; click's own for bad arguments is 2

# What the library calls an argument, and the option it came from.
_OPTION_OF = {
    "rank": "--rank",
    "alpha": "--alpha",
    "c": "--c",
    "noise": "--noise",
    "n_rows": "--rows",
    "n_cols": "--cols",
    "rate_rows": "--rate",
    "rate_cols": "--rate",
    "seed": "--seed",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rcurc-gpu")
def main() -> None:
    """Recover a huge low-rank matrix from few, partly wrong entries.

    \b
    Example:
      rcurc-gpu demo
    """  # noqa: D301  # click's mark of lines to keep is a real backspace


@dataclass(frozen=True)
class DemoOptions:
    """The options of ``rcurc-gpu demo``; `rows` and `cols` are shares of `size`."""

    size: int
    rank: int
    alpha: float
    c: float
    noise: float
    rows: float
    cols: float
    rate: float
    seed: int
    method: str
    device: str
    output: Path
    quiet: bool
    as_json: bool


class _Finite(click.FloatRange):
    """A number in a range; unlike click's own, NaN and infinity lie in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


_SHARE = _Finite(0, 1, min_open=True)


@main.command(context_settings={"show_default": True})
@click.option("--size", type=click.IntRange(min=1), default=3000, help="Rows, and columns, of the matrix.")
@click.option("--rank", type=click.IntRange(min=1), default=5, help="Rank of the matrix.")
@click.option("--alpha", type=_Finite(0, 1), default=0.2, help="Share of the entries that carry an outlier.")
@click.option("--c", type=_Finite(min=0), default=10.0, help="Largest outlier, in units of mean|X|.")
@click.option("--noise", type=_Finite(min=0), default=0.0, help="Noise on every entry, in units of mean|X|.")
@click.option("--rows", type=_SHARE, default=0.3, help="Share of the rows that is chosen.")
@click.option("--cols", type=_SHARE, default=0.3, help="Share of the columns that is chosen.")
@click.option("--rate", type=_SHARE, default=0.25, help="Share of the chosen rows and columns that is seen.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Fixes the problem and the solve.")
@click.option("--method", type=click.Choice(["fast", "paper"]), default="fast", help="How to solve.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", help="Where to solve.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("rcurc-demo"),
    metavar="DIR",
    help="Where to save; files of an earlier demo are replaced.",
)
@click.option("--quiet", is_flag=True, show_default=False, help="No progress bars.")
@click.option("--json", "as_json", is_flag=True, show_default=False, help="Print one JSON object and nothing else.")
def demo(**values: Any) -> None:
    """Solve a synthetic problem whose truth is known, and compare.

    Makes a low-rank matrix with random factors, sees a few entries in some of its rows and columns, makes part of them
    wrong, recovers the whole matrix from what was seen, and says how far it is from the truth.

    \b
    Examples:
      rcurc-gpu demo
      rcurc-gpu demo --size 1000 --alpha 0.3 --noise 0.001 --output trial
      rcurc-gpu demo --device cuda --json > report.json

    \b
    Exit status: 0 if the result is confirmed, 1 if it is not (the report
    says why), 2 if an option is wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    options = DemoOptions(**values)
    saved: list[Path] = []
    try:
        report = _run(options, saved)
    except KeyboardInterrupt:
        kept = ", ".join(map(str, saved))
        click.echo(f"\nStopped. {f'Saved before that: {kept}' if saved else 'Nothing was saved.'}", err=True)
        raise SystemExit(_STOPPED) from None
    if options.as_json:
        click.echo(json.dumps(_jsonable(report), indent=2, allow_nan=False))
    raise SystemExit(_CONFIRMED if report["converged"] else _NOT_CONFIRMED)


def _run(options: DemoOptions, saved: list[Path]) -> dict[str, Any]:
    """Make, solve, compare and save; `saved` is filled as files appear. Returns the report."""
    say = _nothing if options.as_json else click.echo
    xp, device = _device(options.device)
    _make_directory(options.output)
    problem, generating = _timed(lambda: _problem(options))
    report = _describe_problem(options, problem)
    say(_problem_words(report, generating))
    samples, copying = _timed(lambda: problem.samples if xp is np else problem.samples.to_namespace(xp))
    say(f"Device:     {_device_words(options.device, samples.device, copying)}, method '{options.method}'")
    result, solving = _timed(lambda: _solve(samples, options, xp))
    report |= {"device": samples.device, "method": options.method}
    report["seconds"] = {"generating": generating, "copying": 0.0 if device == "cpu" else copying, "solving": solving}
    report |= _describe_result(problem, result)
    say(_result_words(report))
    report["files"] = _save(options.output, problem, result, saved)
    say(_files_words(report["files"]))
    return report


def _nothing(text: str) -> None:
    pass


def _timed(make: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    made = make()
    return made, time.perf_counter() - start


# ---------------------------------------------------------------- arguments


@contextmanager
def _complaints_about_options() -> Iterator[None]:
    """Turn what the library says about an argument into one line about the option."""
    try:
        yield
    except np.linalg.LinAlgError:
        raise  # a ValueError by inheritance, but not about an argument
    except MemoryError as error:
        raise click.BadParameter("the problem does not fit into the memory", param_hint="--size") from error
    except (ValueError, TypeError) as error:
        raise click.UsageError(_in_terms_of_options(str(error))) from error


def _in_terms_of_options(message: str) -> str:
    """`message` in one line, with the option in the place of the argument it begins with."""
    message = " ".join(message.split())
    name = re.match(r"\w+", message)
    if name is None or name[0] not in _OPTION_OF:
        # what was seen is too little to begin with: the options decide how much that is
        return f"{message} (raise --size, --rows, --cols or --rate)" if message.startswith("no ") else message
    return _OPTION_OF[name[0]] + message[name.end() :]


def _device(wanted: str) -> tuple[Any, str]:
    try:
        return namespace_for_device(wanted)
    except RuntimeError as error:
        raise click.UsageError(re.sub(r"\bdevice='(\w+)'", r"--device \1", " ".join(str(error).split()))) from error


def _make_directory(path: Path) -> None:
    """Before the work, so that none is lost to a directory that cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"cannot make {str(path)!r}: {error.strerror}", param_hint="--output") from error


# ---------------------------------------------------------------- work


def _problem(options: DemoOptions) -> SyntheticProblem:
    with _complaints_about_options():
        return synthetic(
            (options.size, options.size),
            options.rank,
            alpha=options.alpha,
            c=options.c,
            noise=options.noise,
            n_rows=max(round(options.rows * options.size), 1),
            n_cols=max(round(options.cols * options.size), 1),
            rate=options.rate,
            seed=options.seed,
        )


def _solve(samples: CrossSamples, options: DemoOptions, xp: Any) -> Result:
    with _complaints_about_options(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its text is the result's message, which is reported
        visible = not (options.quiet or options.as_json)
        result = rcurc(samples, options.rank, method=options.method, seed=options.seed, progress=visible)
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()  # else the clock stops before the GPU does
    return result


def _describe_problem(options: DemoOptions, problem: SyntheticProblem) -> dict[str, Any]:
    samples = problem.samples
    n1, n2 = problem.shape
    return {
        "version": __version__,
        "problem": {
            "shape": [n1, n2],
            "rank": options.rank,
            "alpha": options.alpha,
            "c": options.c,
            "noise": options.noise,
            "chosen_rows": len(samples.rows),
            "chosen_cols": len(samples.cols),
            "rate": options.rate,
            "seed": options.seed,
            "observations": samples.n_obs,
            "share_seen": samples.n_obs / (n1 * n2),
        },
    }


def _describe_result(problem: SyntheticProblem, result: Result) -> dict[str, Any]:
    rows, cols = len(result.rows.undetermined), len(result.columns.undetermined)
    return {
        "converged": bool(result.converged),
        "message": result.message,
        "cause": result.cause,
        "iterations": result.n_iter,
        "rank_used": result.rank,
        "true_error": problem.relative_error(result.cur),
        "true_error_of_determined": problem.relative_error(result.cur, undetermined="skip"),
        "expected_error": result.expected_error,
        "undetermined_rows": rows,
        "undetermined_cols": cols,
        "outliers": _compare_outliers(problem, result),
    }


def _compare_outliers(problem: SyntheticProblem, result: Result) -> dict[str, Any]:
    """Flagged against truly corrupted observations, each entry counted once however many blocks see it."""
    samples = problem.samples  # on the host, wherever the result is
    corrupted = _corrupted(problem, *_positions(samples, samples.R, samples.C))
    flagged = _as_keys(problem, *_positions(samples, *result.outliers()))
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


def _positions(samples: CrossSamples, R: Any, C: Any) -> tuple[np.ndarray, np.ndarray]:
    """Row and column, in the whole matrix, of the stored entries of R (|I|, n2) and then of C (n1, |J|)."""
    r, c = R.tocoo(), C.tocoo()
    i = np.concatenate([samples.rows[to_numpy(r.row)], to_numpy(c.row)])
    j = np.concatenate([to_numpy(r.col), samples.cols[to_numpy(c.col)]])
    return i.astype(np.int64), j.astype(np.int64)


def _corrupted(problem: SyntheticProblem, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Those of the positions that carry an outlier, as keys."""
    bad = problem.is_outlier(i, j)
    return _as_keys(problem, i[bad], j[bad])


def _as_keys(problem: SyntheticProblem, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Each position once, as one ascending number."""
    return np.unique(i * problem.shape[1] + j)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _save(directory: Path, problem: SyntheticProblem, result: Result, saved: list[Path]) -> dict[str, Any]:
    """Write ``result.npz`` and, if matplotlib is there, ``demo.png``; say what was written and what was not."""
    data, picture = directory / "result.npz", directory / "demo.png"
    try:
        result.cur.save(data)
        saved.append(data)
        try:
            drawn = io.BytesIO()  # so that Ctrl-C leaves no half of a picture
            plot.demo_figure(problem, result).savefig(drawn, format="png")
            picture.write_bytes(drawn.getvalue())
            saved.append(picture)
        except ImportError as error:
            return {"result": str(data), "plot": None, "plot_skipped": str(error)}
    except OSError as error:
        raise click.BadParameter(f"cannot write to {str(directory)!r}: {error.strerror}", param_hint="--output") from error
    return {"result": str(data), "plot": str(picture), "plot_skipped": None}


# ---------------------------------------------------------------- words


def _problem_words(report: dict[str, Any], seconds: float) -> str:
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


def _device_words(wanted: str, device: str, copying: float) -> str:
    if device != "cpu":
        return f"{device} (copied there in {copying:.2f} s)"
    return "cpu (no CUDA device with CuPy was found)" if wanted == "auto" else "cpu"


def _result_words(report: dict[str, Any]) -> str:
    lines = [
        f"Solved:     in {report['seconds']['solving']:.2f} s, {report['iterations']} iterations of the core",
        f"True error: {_error_words(report)}",
        f"Verdict:    {'confirmed' if report['converged'] else 'NOT confirmed'}. {report['message']}",
        *_outlier_words(report["outliers"]),
    ]
    return "\n".join(lines)


def _error_words(report: dict[str, Any]) -> str:
    if not math.isnan(report["true_error"]):
        return f"{report['true_error']:.2e} (relative, over the whole matrix)"
    rows, cols = _count(report["undetermined_rows"], "row"), _count(report["undetermined_cols"], "column")
    lost = f"{rows} and {cols} could not be determined"
    if math.isnan(report["true_error_of_determined"]):
        return f"unknown: {lost}"
    return f"{report['true_error_of_determined']:.2e} (relative, over what was determined; {lost})"


def _outlier_words(o: dict[str, Any]) -> list[str]:
    """All corrupted observations count, however small; those too small to be found are named."""
    flagged = "none was flagged"
    if o["flagged"]:
        precision = _percent(o["found"], o["flagged"])
        flagged = f"{o['flagged']:,} were flagged, {o['found']:,} of them rightly (precision {precision})"
    if not o["corrupted"]:
        return [f"Outliers:   none of the observations is corrupted; {flagged}"]
    lines = [
        f"Outliers:   {o['corrupted']:,} observations are truly corrupted, {o['found']:,} of them were found "
        f"(recall {_percent(o['found'], o['corrupted'])})",
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


def _percent(part: int, whole: int) -> str:
    """Rounded down, so that 100 % means all."""
    return f"{math.floor(100_000 * part / whole) / 1000:g} %"


def _files_words(files: dict[str, Any]) -> str:
    lines = [f"Saved:      {files['result']}  (read it with rcurc_gpu.CURMatrix.load)"]
    lines.append(f"            {files['plot']}" if files["plot"] else f"Plot:       skipped; {files['plot_skipped']}")
    return "\n".join(lines)


def _jsonable(x: Any) -> Any:
    """`x` with null for NaN and infinity, which JSON does not have."""
    if isinstance(x, dict):
        return {name: _jsonable(value) for name, value in x.items()}
    if isinstance(x, float):
        return float(x) if math.isfinite(x) else None
    return x
