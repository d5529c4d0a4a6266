"""``rcurc-gpu complete``: recover the matrix behind a file of observations."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..api import rcurc
from ..errors import ConvergenceWarning
from ..io import Completion, read_pairs, save_result, write_outliers, write_predictions
from ..io.pairs import OUTLIER_HEADER, PREDICTION_HEADER, WantedEntries
from ..shards import LabelledShards
from . import complete_report as words
from .common import CONFIRMED, NOT_CONFIRMED, DeviceName, Finite, Rank, print_json, say_nothing
from .describe import describe_samples, observations
from .outputs import (
    IN_FILE,
    BadInput,
    check_output,
    check_tables,
    device_name,
    different,
    is_result,
    one_line_errors,
    predictions_place,
    stoppable,
    table_options,
)

_PATIENCE = 15  # seconds to wait for a scheduler
_OPTION_OF = {
    "output": "--checkpoint",
    "checkpoint": "--checkpoint",
    "rank": "--rank",
    "accuracy": "--accuracy",
    "device": "--device",
    "seed": "--seed",
}


@dataclass(frozen=True)
class CompleteOptions:
    """The options of ``rcurc-gpu complete``; those of the table are apart."""

    file: Path
    output: Path
    rank: int | str
    predict: Path | None
    predictions: Path | None
    outliers: Path | None
    accuracy: float
    method: str
    undetermined: str
    checkpoint: Path | None
    scheduler: str | None
    device: str
    seed: int
    force: bool
    quiet: bool
    as_json: bool

    @property
    def visible(self) -> bool:
        """Whether to show progress bars."""
        return sys.stderr.isatty() and not (self.quiet or self.as_json)


@click.command(context_settings={"show_default": True})
@click.argument("file", type=IN_FILE)
@click.option("-o", "--output", type=IN_FILE, required=True, metavar="OUT.npz", help="Where to save the result.")
@click.option("--rank", type=Rank(), default="auto", metavar="N|auto", help="Rank of the matrix.")
@click.option("--predict", type=IN_FILE, metavar="PAIRS.csv", help="Entries wanted: a table of (row, column), by label.")
@click.option(
    "--predictions", type=IN_FILE, metavar="CSV", help="Where to write them.  [default: OUT-predictions.csv beside OUT.npz]"
)
@click.option("--outliers", type=IN_FILE, metavar="CSV", help="Where to write the wrong observations, the worst first.")
@click.option("--accuracy", type=Finite(min=0, min_open=True), default=0.01, help="Relative error that is good enough.")
@click.option("--method", type=click.Choice(["fast", "paper"]), default="fast", help="How to solve.")
@click.option(
    "--undetermined",
    type=click.Choice(["nan", "keep"]),
    default="nan",
    help="Rows and columns with too little data: leave them out, or keep a guess.",
)
@click.option(
    "--checkpoint",
    type=IN_FILE,
    metavar="FILE",
    help="Keep what was done there; called again after an interruption, the command goes on. A directory if FILE is one.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Solve on a Dask cluster: where its scheduler is, tcp://host:8786.")
@table_options
@click.option("--device", type=DeviceName(), default="auto", metavar="auto|cpu|cuda|cuda:N", help="Where to solve.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Fixes the solve.")
@click.option("--force", is_flag=True, show_default=False, help="Replace outputs whatever they are.")
@click.option("--quiet", is_flag=True, show_default=False, help="No progress bars, no report.")
@click.option("--json", "as_json", is_flag=True, show_default=False, help="Print one JSON object and nothing else.")
def complete(
    row_column: str | None,
    column_column: str | None,
    value_column: str | None,
    header: bool | None,
    duplicates: str,
    **values: Any,
) -> None:
    """Recover the whole matrix from the observations in FILE, some of which may be wrong.

    FILE is what 'rcurc-gpu describe' reads: a table of observations (row, column, value) in .csv, .tsv, .txt (also .gz) or
    .parquet, a matrix in .npy, .npz, .mtx or .mtx.gz with missing entries, a file that 'rcurc-gpu sample' wrote, or a
    directory that 'rcurc-gpu shard' wrote. Rows and columns of a table may have any labels; predictions and outliers carry
    them. Those of a matrix are numbers from 0.

    \b
    Examples:
      rcurc-gpu complete ratings.csv -o result.npz
      rcurc-gpu complete ratings.csv -o result.npz --predict wanted.csv \\
          --outliers wrong.csv
      rcurc-gpu complete samples.npz -o result.npz --rank 5 --device cuda --json

    PAIRS.csv has the row and the column in its first two columns, or in those that are named as in FILE. A
    prediction has the columns row, column, value, expected_error (standard deviation, from noise); the value is empty
    where there is no such row or column, or not enough data for it. OUT.npz has all that 'rcurc-gpu plot' draws;
    rcurc_gpu.io.load_result reads it.

    \b
    Exit status: 0 if the result is confirmed, 1 if it is not, or if none of
    PAIRS.csv is predicted (the report says why; files are written), 2 if an
    option or a file is wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    table = {"row_column": row_column, "column_column": column_column, "header": header}
    saved: list[Path] = []
    options = CompleteOptions(**values)
    with stoppable(saved, options.checkpoint), one_line_errors(_OPTION_OF):
        report = _run(options, table | {"value_column": value_column, "duplicates": duplicates}, saved)
    if options.as_json:
        print_json(report)
    in_vain = "predictions" in report and not report["predictions"]["predicted"]
    raise SystemExit(CONFIRMED if report["converged"] and not in_vain else NOT_CONFIRMED)


def _run(options: CompleteOptions, table: dict[str, Any], saved: list[Path]) -> dict[str, Any]:
    """Read, solve and save; `saved` is filled as files appear. Returns the report."""
    say = say_nothing if options.quiet or options.as_json else click.echo
    predictions = _check_outputs(options)
    device = device_name(options.device)
    labelled = observations(options.file, options.visible, table)
    pairs = _pairs(options, labelled.columns or (table["row_column"], table["column_column"]))
    rank = options.rank if isinstance(options.rank, int) else None
    report: dict[str, Any] = {"file": str(options.file), "observed": describe_samples(labelled, rank)}
    say(words.observed_words(report))
    # shards are kept one by one, in a directory
    sharded = isinstance(labelled, LabelledShards)
    with warnings.catch_warnings(), _client(options.scheduler) as client:
        warnings.simplefilter("ignore", ConvergenceWarning)  # its text is the result's message, which is reported
        result = rcurc(
            labelled.samples,
            options.rank,
            method=options.method,
            accuracy=options.accuracy,
            undetermined=options.undetermined,
            seed=options.seed,
            device=device,
            progress=options.visible,
            client=client,
            checkpoint=None if sharded else options.checkpoint,
            output=options.checkpoint if sharded else None,
        )
    completion = Completion.of(result, labelled.labels)
    report |= words.describe_completion(completion) | {"undetermined": options.undetermined}
    say(words.result_words(report))
    save_result(options.output, completion)
    saved.append(options.output)
    if predictions is not None and pairs is not None:
        found = pairs.predicted(completion)
        write_predictions(predictions, pairs, found)
        saved.append(predictions)
        report["predictions"] = words.describe_predictions(pairs, found)
        say(words.prediction_words(report))
    if options.outliers is not None:
        write_outliers(options.outliers, completion.outliers, completion.labels)
        saved.append(options.outliers)
    named = {"result": options.output, "predictions": predictions, "outliers": options.outliers}
    report["files"] = {name: None if path is None else str(path) for name, path in named.items()}
    say(words.files_words(report))
    return report


@contextmanager
def _client(address: str | None) -> Iterator[Any]:
    """A client of the Dask cluster at an address, or None."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("--scheduler needs Dask: pip install 'rcurc-gpu[dask]'") from error
    try:
        client = Client(address, timeout=_PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise BadInput(f"--scheduler: there is no Dask scheduler at {address!r}") from error
    with client:
        yield client


def _check_outputs(options: CompleteOptions) -> Path | None:
    """Before the work, so that none is lost. Returns where predictions go."""
    predictions = predictions_place(options.predict, options.predictions, options.output)
    different(output=options.output, predictions=predictions, outliers=options.outliers, checkpoint=options.checkpoint)
    inputs = [path for path in (options.file, options.predict) if path is not None]
    check_output("--output", options.output, is_result, options.force, inputs, (".npz",))
    tables = {"--predictions": (predictions, PREDICTION_HEADER), "--outliers": (options.outliers, OUTLIER_HEADER)}
    check_tables(tables, options.force, inputs)
    return predictions


def _pairs(options: CompleteOptions, names: tuple[str | None, ...]) -> WantedEntries | None:
    """The entries asked for, whose columns may be called as those of FILE are."""
    if options.predict is None:
        return None
    row, column = names[:2]
    usual = None if row is None or column is None else (row, column)
    return read_pairs(options.predict, usual=usual, progress=options.visible)
