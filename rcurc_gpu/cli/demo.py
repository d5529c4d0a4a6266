"""``rcurc-gpu demo``: a problem whose truth is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..api import rcurc
from ..backends import choose, device_for_file, namespace_for_device
from ..errors import NothingObservedError, without_warning
from ..plot import demo_figure
from ..progress import timed
from ..result import Result
from ..samples import CrossSamples
from ..testing import SyntheticProblem, synthetic
from . import demo_report
from .common import errors_in_options, files_words, finish, make_directory, stoppable, writing_to
from .options import SHARE, SHARE_OR_COUNT, CommandOptions, Finite, count_of, directory_option, shared_options, solver_option
from .outputs import save_picture

# What the library calls an argument, and the option it came from.
_OPTION_OF = {"n_rows": "--rows", "n_cols": "--cols", "rate_rows": "--rate", "rate_cols": "--rate"}
_OPTION_OF |= {name: f"--{name}" for name in ("rank", "alpha", "c", "noise", "seed")}


@click.command(context_settings={"show_default": True})
@click.option("--size", type=click.IntRange(min=1), default=3000, help="Rows, and columns, of the matrix.")
@click.option("--rank", type=click.IntRange(min=1), default=5, help="Rank of the matrix.")
@click.option("--alpha", type=Finite(0, 1), default=0.2, help="Share of the entries that carry an outlier.")
@click.option("--c", type=Finite(min=0), default=10.0, help="Largest outlier, in units of mean|X|.")
@click.option("--noise", type=Finite(min=0), default=0.0, help="Noise on every entry, in units of mean|X|.")
@click.option("--rows", type=SHARE_OR_COUNT, default="30%", metavar="SHARE|N", help="Rows to choose: 0.3, 30% or 200.")
@click.option("--cols", type=SHARE_OR_COUNT, default="30%", metavar="SHARE|N", help="Columns to choose.")
@click.option("--rate", type=SHARE, default=0.25, help="Share of the chosen rows and columns that is seen.")
@solver_option("seed", "Fixes the problem and the solve.")
@solver_option("method")
@solver_option("device", "Where to solve; auto takes a GPU from about 200 million observations on, an estimate.")
@directory_option("rcurc-demo", "Where to save; files of an earlier demo are replaced.")
@shared_options()
def demo(**values: Any) -> None:
    """Solve a synthetic problem whose truth is known, and compare.

    Makes a low-rank matrix with random factors, sees a few entries in some of its rows and columns, makes part of them
    wrong, recovers the whole matrix from what was seen, and says how far it is from the truth.

    \b
    Examples:
      rcurc-gpu demo
      rcurc-gpu demo --size 1000 --alpha 0.3 --noise 0.001 --output trial
      rcurc-gpu demo --device cuda --json > report.json

    Exit status: 0 if the result is confirmed, 1 if it is not (the report
    says why), 2 if an option is wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    options, saved = CommandOptions(**values), list[Path]()
    memory = "--size: the problem does not fit into the memory"
    with stoppable(saved), errors_in_options(_OPTION_OF, memory=memory, usage=True), _enough():
        report = _run(options, saved)
    finish(report, options.as_json, good=report["converged"])


def _run(options: CommandOptions, saved: list[Path]) -> dict[str, Any]:
    """Make, solve, compare and save; `saved` is filled as files appear. Returns the report."""
    say = options.say
    namespace_for_device(options.device)  # a missing GPU is found before the problem is made
    make_directory(options.output)
    problem, generating = timed(_problem, options)
    device = device_for_file(options.device, problem.samples.n_obs)
    xp = namespace_for_device(device)[0]
    report = demo_report.describe_problem(options, problem)
    say(demo_report.problem_words(report, generating))
    if xp is not np and ":" in device:  # what is copied goes to CuPy's current device
        xp.cuda.Device(int(device.partition(":")[2])).use()
    samples, copying = timed(lambda: problem.samples if xp is np else problem.samples.to_namespace(xp))
    kernels = choose("auto", samples.R.data).name
    say(f"Device:     {demo_report.device_words(options.device, samples.device, copying, kernels)}")
    result, solving = timed(_solve, samples, options, xp)
    report |= {"device": samples.device, "kernels": result.kernels, "method": options.method}
    report["seconds"] = {"generating": generating, "copying": 0.0 if device == "cpu" else copying, "solving": solving}
    report |= demo_report.describe_result(problem, result)
    say(demo_report.result_words(report))
    report["files"] = _save(options.output, problem, result, saved)
    files = report["files"]
    read = "  (read it with rcurc_gpu.CURMatrix.load)"
    say(files_words(files["result"], files["plot"], hint=read, skipped=files["plot_skipped"]))
    return report


@contextmanager
def _enough() -> Iterator[None]:
    """What was seen may be too little to begin with: the options decide how much that is."""
    try:
        yield
    except NothingObservedError as error:
        raise click.UsageError(f"{error} (raise --size, --rows, --cols or --rate)") from error


def _problem(options: CommandOptions) -> SyntheticProblem:
    return synthetic(
        (options.size, options.size),
        n_rows=count_of(options.rows, options.size),
        n_cols=count_of(options.cols, options.size),
        **{name: getattr(options, name) for name in ("rank", "alpha", "c", "noise", "rate", "seed")},
    )


def _solve(samples: CrossSamples, options: CommandOptions, xp: Any) -> Result:
    with without_warning():
        result = rcurc(samples, options.rank, method=options.method, seed=options.seed, progress=options.visible)
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()  # else the clock stops before the GPU does
    return result


def _save(directory: Path, problem: SyntheticProblem, result: Result, saved: list[Path]) -> dict[str, Any]:
    """Write ``result.npz`` and, if matplotlib is there, ``demo.png``; say what was written and what was not."""
    data, picture = directory / "result.npz", directory / "demo.png"
    with writing_to(directory):
        result.cur.save(data)
        saved.append(data)
        try:
            save_picture(demo_figure(problem, result), picture, saved)
        except ImportError as error:
            return {"result": data, "plot": None, "plot_skipped": str(error)}
    return {"result": data, "plot": picture, "plot_skipped": None}
