"""``rcurc-gpu demo``: a problem whose truth is known."""

from __future__ import annotations

import io
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..api import rcurc
from ..backends import namespace_for_device
from ..errors import ConvergenceWarning
from ..plot import demo_figure
from ..result import Result
from ..samples import CrossSamples
from ..testing import SyntheticProblem, synthetic
from . import demo_report
from .common import CONFIRMED, NOT_CONFIRMED, SHARE, STOPPED, Finite, complaints, make_directory, print_json, say_nothing

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


@click.command(context_settings={"show_default": True})
@click.option("--size", type=click.IntRange(min=1), default=3000, help="Rows, and columns, of the matrix.")
@click.option("--rank", type=click.IntRange(min=1), default=5, help="Rank of the matrix.")
@click.option("--alpha", type=Finite(0, 1), default=0.2, help="Share of the entries that carry an outlier.")
@click.option("--c", type=Finite(min=0), default=10.0, help="Largest outlier, in units of mean|X|.")
@click.option("--noise", type=Finite(min=0), default=0.0, help="Noise on every entry, in units of mean|X|.")
@click.option("--rows", type=SHARE, default=0.3, help="Share of the rows that is chosen.")
@click.option("--cols", type=SHARE, default=0.3, help="Share of the columns that is chosen.")
@click.option("--rate", type=SHARE, default=0.25, help="Share of the chosen rows and columns that is seen.")
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
        raise SystemExit(STOPPED) from None
    if options.as_json:
        print_json(report)
    raise SystemExit(CONFIRMED if report["converged"] else NOT_CONFIRMED)


def _run(options: DemoOptions, saved: list[Path]) -> dict[str, Any]:
    """Make, solve, compare and save; `saved` is filled as files appear. Returns the report."""
    say = say_nothing if options.as_json else click.echo
    xp, device = _device(options.device)
    make_directory(options.output)
    problem, generating = _timed(lambda: _problem(options))
    report = demo_report.describe_problem(options, problem)
    say(demo_report.problem_words(report, generating))
    samples, copying = _timed(lambda: problem.samples if xp is np else problem.samples.to_namespace(xp))
    say(f"Device:     {demo_report.device_words(options.device, samples.device, copying)}, method '{options.method}'")
    result, solving = _timed(lambda: _solve(samples, options, xp))
    report |= {"device": samples.device, "method": options.method}
    report["seconds"] = {"generating": generating, "copying": 0.0 if device == "cpu" else copying, "solving": solving}
    report |= demo_report.describe_result(problem, result)
    say(demo_report.result_words(report))
    report["files"] = _save(options.output, problem, result, saved)
    say(demo_report.files_words(report["files"]))
    return report


def _timed(make: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    made = make()
    return made, time.perf_counter() - start


# ---------------------------------------------------------------- arguments


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


# ---------------------------------------------------------------- work


def _problem(options: DemoOptions) -> SyntheticProblem:
    with complaints(_in_terms_of_options, "--size: the problem does not fit into the memory"):
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
    with complaints(_in_terms_of_options, "--size: the problem does not fit into the memory"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # its text is the result's message, which is reported
        visible = not (options.quiet or options.as_json)
        result = rcurc(samples, options.rank, method=options.method, seed=options.seed, progress=visible)
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()  # else the clock stops before the GPU does
    return result


def _save(directory: Path, problem: SyntheticProblem, result: Result, saved: list[Path]) -> dict[str, Any]:
    """Write ``result.npz`` and, if matplotlib is there, ``demo.png``; say what was written and what was not."""
    data, picture = directory / "result.npz", directory / "demo.png"
    try:
        result.cur.save(data)
        saved.append(data)
        try:
            drawn = io.BytesIO()  # so that Ctrl-C leaves no half of a picture
            demo_figure(problem, result).savefig(drawn, format="png")
            picture.write_bytes(drawn.getvalue())
            saved.append(picture)
        except ImportError as error:
            return {"result": str(data), "plot": None, "plot_skipped": str(error)}
    except OSError as error:
        raise click.BadParameter(f"cannot write to {str(directory)!r}: {error.strerror}", param_hint="--output") from error
    return {"result": str(data), "plot": str(picture), "plot_skipped": None}
