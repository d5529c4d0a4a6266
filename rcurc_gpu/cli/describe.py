"""``rcurc-gpu describe``: what is in a file, and whether it is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from ..io import LabelledSamples, kind_of, read_observations
from ..samples import facts_and_warnings
from ..shards import LabelledShards
from .common import BadInput, errors_in_options, finish, stoppable
from .options import IN_FILE, CommandOptions, layout_option, shared_options, table_options


@click.command(context_settings={"show_default": True})
@click.argument("file", type=IN_FILE)
@click.option("--rank", type=click.IntRange(min=1), help="Say whether there is enough for this rank.")
@layout_option
@table_options
@shared_options()
def describe(file: Path, rank: int | None, quiet: bool, as_json: bool, **how: Any) -> None:
    """Say what is in FILE, and whether it is enough to recover a matrix.

    FILE is a table in .csv, .tsv, .txt (also .gz) or .parquet: lines of row, column and value, or a matrix whose first line
    names its columns and whose first column names its rows; a matrix in .npy, .npz (NaN or a mask says what is missing; also
    sparse ones), .mtx or .mtx.gz; a file that 'rcurc-gpu sample' wrote; or a directory that 'rcurc-gpu shard' wrote.

    Recovery uses the observations in some rows and in some columns. They are chosen for you where observations are most
    dense; a samples file has them already.

    \b
    Examples:
      rcurc-gpu describe ratings.csv
      rcurc-gpu describe ratings.csv --rank 5 --row-column user \\
          --column-column item --value-column stars
      rcurc-gpu describe samples.npz --json

    Exit status: 0 if all is well, 1 if there is a warning, 2 if an option or
    the file is wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    options = CommandOptions(quiet=quiet, as_json=as_json)
    with stoppable([]), errors_in_options({}):
        labelled = observations(file, options.visible, how)
        report = describe_samples(labelled, rank)
    options.say("\n".join([f"{file}: {report['source']}", *report["lines"], verdict(report)]))
    finish({"file": str(file), **report}, as_json, good=not report["warnings"])


_DEFAULTS = (("duplicates", "error"), ("layout", "auto"))


def observations(file: Path, progress: bool, how: dict[str, Any]) -> LabelledSamples | LabelledShards:
    """What is in a file, read by the options of a table (`how`), or in a directory of shards."""
    if not file.is_dir():
        if how["header"] is not None and kind_of(str(file)) == "matrix":
            raise BadInput(f"--header and --no-header are for text files, not for {str(file)!r}")
        return read_observations(file, progress=progress, **how)
    given = sorted(name for name, value in how.items() if value is not None and (name, value) not in _DEFAULTS)
    if given:
        options = ", ".join("--no-header" if how[name] is False else f"--{name.replace('_', '-')}" for name in given)
        raise BadInput(f"{options}: 'rcurc-gpu shard' was told how to read the table; {str(file)!r} has its observations")
    return LabelledShards.open(file)


def describe_samples(labelled: LabelledSamples | LabelledShards, rank: int | None) -> dict[str, Any]:
    """What there is, as a dictionary for JSON; "lines" and "warnings" are in words, with the user's labels.

    Without a rank, what is not enough for rank 1 is warned of: it is not enough for any.
    """
    s, labels = labelled.samples, labelled.labels

    def named(kind: str, k: int) -> str:
        names = labels.row_names if kind == "row" else labels.col_names
        return f"{kind} {k if labels.rows is None else repr(str(names(np.asarray([k]))[0]))}"

    lines, warnings = facts_and_warnings(s, rank or 1, named)
    lines += [f"warning: {text}" for text in warnings]
    if labelled.n_missing:
        lines.append(f"missing: {labelled.n_missing:,} lines have no value and count as not observed")
    if labels.rows is not None and labels.cols is not None:
        lines.insert(1, f"labels: rows {_some(labels.rows)}; columns {_some(labels.cols)}")
    return {
        "source": labelled.source,
        "shape": list(s.shape),
        "observations": s.n_obs,
        "share_observed": s.n_obs / (s.shape[0] * s.shape[1]),
        "chosen_rows": len(s.rows),
        "chosen_cols": len(s.cols),
        "rate_rows": s.rate_rows,
        "rate_cols": s.rate_cols,
        "unused": s.n_unused,
        "missing": labelled.n_missing,
        "labelled": labels.rows is not None,
        "rank": rank,
        "lines": lines,
        "warnings": warnings,
    }


def _some(labels: np.ndarray) -> str:
    shown = ", ".join(repr(str(name)) for name in labels[:3])
    return f"{shown}, ... ({len(labels):,})" if len(labels) > 3 else shown


def verdict(report: dict[str, Any]) -> str:
    """The last line."""
    rank = f"rank {report['rank'] or 1}"
    if report["warnings"]:
        return f"There may not be enough for {'' if report['rank'] else 'recovery, even at '}{rank}: see the warnings."
    if report["rank"] is None:
        return "This looks like enough for rank 1. --rank N tells whether it is enough for a larger one."
    return f"This looks like enough for {rank}."
