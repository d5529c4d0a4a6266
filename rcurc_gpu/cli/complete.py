"""``rcurc-gpu complete``: recover the matrix behind a file of observations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ..api import rcurc
from ..backends import device_for_file, namespace_for_device
from ..errors import without_warning
from ..io import INTERVAL_HEADER, PREDICTION_HEADER, Completion, save_result, write_outliers, write_predictions
from ..shards import LabelledShards
from . import complete_report as words
from .common import BadInput, OptionWording, errors_in_options, files_words, finish, stoppable
from .describe import describe_samples, observations
from .options import IN_FILE, TABLE_OPTIONS, CommandOptions, layout_option, shared_options, solver_option, table_options
from .outputs import check_outputs, wanted_entries

_PATIENCE = 15  # seconds to wait for a scheduler
_OF_THE_SOLVER = ("method", "accuracy", "undetermined", "offsets", "sweeps", "intervals", "seed")
OPTION_OF = {"output": "--checkpoint", "outliers": "--outlier-kind"} | {
    name: f"--{name}" for name in ("checkpoint", "rank", "device", *_OF_THE_SOLVER)
}


@click.command(context_settings={"show_default": True})
@click.argument("file", type=IN_FILE)
@click.option("-o", "--output", type=IN_FILE, required=True, metavar="OUT.npz", help="Where to save the result.")
@solver_option("rank", "Components, or with noise the largest number of them; auto takes as many as the data support.")
@click.option("--predict", type=IN_FILE, metavar="PAIRS.csv", help="Entries wanted: a table of (row, column), by label.")
@click.option(
    "--predictions", type=IN_FILE, metavar="CSV", help="Where to write them.  [default: OUT-predictions.csv beside OUT.npz]"
)
@click.option("--outliers", type=IN_FILE, metavar="CSV", help="Where to write the wrong observations, the worst first.")
@solver_option("accuracy", "Fail (exit status 1) unless the expected relative error of the matrix is below this.")
@click.option(
    "--outlier-kind",
    type=click.Choice(["random", "structured"]),
    default="random",
    help="What wrong observations are like; structured ones may follow rows and columns without causing doubt.",
)
@solver_option("method")
@solver_option(
    "undetermined",
    "What rows and columns with too little data get: typical values (prior), none (nan), or the doubtful ones (keep).",
)
@solver_option("offsets", "Whether rows and columns have offsets beside the components; auto lets the data decide.")
@solver_option("sweeps", "Most sweeps of the noise model; by default until it has settled. 0 turns the model off.")
@solver_option("intervals", "Whether predictions get intervals and OUT.npz keeps what they need, if there is noise.")
@click.option(
    "--checkpoint",
    type=IN_FILE,
    metavar="FILE",
    help="Keep progress there, so that the same command resumes after an interruption. A directory if FILE is one.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Solve on a Dask cluster: where its scheduler is, tcp://host:8786.")
@layout_option
@table_options
@shared_options(
    device="Where to solve; auto takes a GPU from about 200 million observations on, an estimate.",
    seed="Fixes the solve.",
    force="Replace existing files, whatever they are.",
)
def complete(**values: Any) -> None:
    """Recover the whole matrix from the observations in FILE, some of which may be wrong.

    FILE is what 'rcurc-gpu describe' reads: a table in .csv, .tsv, .txt (also .gz) or .parquet, either lines of row, column
    and value or a matrix with the names of its columns in the first line and of its rows in the first column; a matrix in
    .npy, .npz, .mtx or .mtx.gz with missing entries; a file that 'rcurc-gpu sample' wrote; or a directory that 'rcurc-gpu
    shard' wrote. Predictions and outliers have the labels, and the names of the columns, of the table. Rows and columns of
    other matrices are numbers from 0.

    \b
    Examples:
      rcurc-gpu complete ratings.csv -o result.npz
      rcurc-gpu complete ratings.csv -o result.npz --predict wanted.csv \\
          --outliers wrong.csv
      rcurc-gpu complete samples.npz -o result.npz --rank 5 --device cuda --json

    PAIRS.csv has the row and the column in its first two columns, or in those that are named as in FILE. A
    prediction has the row, the column, the value, expected_error (standard deviation of the value's error), and lower and
    upper: 95 of 100 new observations lie between these, outliers apart. Numbers are missing only where there is no such row
    or column (or, with --undetermined nan, too little data). With noise and --no-intervals there are no columns lower and
    upper. OUT.npz has all that 'rcurc-gpu plot' draws; rcurc_gpu.io.load_result reads it.

    Exit status: 0 if the result is confirmed, 1 if it is not, or if none of
    PAIRS.csv is predicted (the report says why; files are written), 2 if an
    option or a file is wrong, 130 if stopped by Ctrl-C. Noise alone is no
    failure: the report says how large the error is; --accuracy sets a limit.
    """  # noqa: D301
    options, saved = CommandOptions(**values), list[Path]()
    with stoppable(saved, options.checkpoint), errors_in_options(OPTION_OF):
        report = _run(options, {name: values[name] for name in (*TABLE_OPTIONS, "layout")}, saved)
    in_vain = "predictions" in report and not report["predictions"]["predicted"]
    finish(report, options.as_json, good=report["converged"] and not in_vain)


def _run(options: CommandOptions, table: dict[str, Any], saved: list[Path]) -> dict[str, Any]:
    """Read, solve and save; `saved` is filled as files appear. Returns the report."""
    predictions = check_outputs(options, options.output, INTERVAL_HEADER, PREDICTION_HEADER)
    namespace_for_device(options.device)  # a missing GPU is found before the file is read
    labelled = observations(options.file, options.visible, table)
    pairs = wanted_entries(options, labelled.columns or (table["row_column"], table["column_column"]))
    rank = options.rank if isinstance(options.rank, int) else None
    report: dict[str, Any] = {"file": str(options.file), "observed": describe_samples(labelled, rank)}
    options.say(words.observed_words(report))
    # shards are kept one by one, in a directory
    kept_in = "output" if isinstance(labelled, LabelledShards) else "checkpoint"
    with without_warning(), _client(options.scheduler) as client:
        result = rcurc(
            labelled.samples,
            options.rank,
            **{name: getattr(options, name) for name in _OF_THE_SOLVER},
            outliers="structured" if options.outlier_kind == "structured" else True,
            # workers have devices of their own, and take the CPU unless a GPU is asked for
            device=options.device if client is not None else device_for_file(options.device, labelled.samples.n_obs),
            progress=options.visible,
            client=client,
            **{kept_in: options.checkpoint},
        )
    completion = Completion.of(result, labelled.labels)
    assert result.verdict is not None
    better = None if result.verdict.noise is None else result.verdict.noise.better or None
    report |= words.describe_completion(completion, better) | {"undetermined": options.undetermined}
    wording = OptionWording(OPTION_OF)
    options.say(words.result_words(report, result.verdict.sentence(wording)))
    save_result(options.output, completion)
    saved.append(options.output)
    if predictions is not None and pairs is not None:
        found = pairs.predicted(completion)
        write_predictions(predictions, pairs, found, labelled.columns)
        saved.append(predictions)
        report["predictions"] = words.describe_predictions(pairs, found)
        options.say(words.prediction_words(report))
    if options.outliers is not None:
        write_outliers(options.outliers, completion.outliers, completion.labels, labelled.columns)
        saved.append(options.outliers)
    report["files"] = {"result": options.output, "predictions": predictions, "outliers": options.outliers}
    hint = f"  (next: rcurc-gpu plot {options.output} -o PICTURE.png)"
    options.say(files_words(options.output, predictions, options.outliers, hint=hint))
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
