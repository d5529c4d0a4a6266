"""``rcurc-gpu shard``: tables larger than memory into a directory of shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..shards import is_left_over, shard_file
from .common import BadInput, errors_in_options, finish, stoppable
from .describe import describe_samples
from .options import BYTES, IN_FILE, TABLE_OPTIONS, CommandOptions, shared_options, table_options

_OPTION_OF = {"rows": "--rows-from", "cols": "--cols-from", "shard_bytes": "--shard-size", "memory_bytes": "--memory"}


@click.command(context_settings={"show_default": True})
@click.argument("files", type=IN_FILE, nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", type=IN_FILE, required=True, metavar="DIR", help="A directory that is new or empty.")
@click.option(
    "--rows-from", type=IN_FILE, metavar="LABELS.txt", help="The rows to choose, a label a line.  [default: found]"
)
@click.option("--cols-from", type=IN_FILE, metavar="LABELS.txt", help="The columns to choose.  [default: found]")
@table_options
@click.option("--dtype", type=click.Choice(["float64", "float32"]), default="float64", help="What values become.")
@click.option("--shard-size", type=BYTES, default="64MB", metavar="SIZE", help="About how large a shard is.")
@click.option("--memory", type=BYTES, default="512MB", metavar="SIZE", help="Memory to use, beside that of the labels.")
@shared_options()
def shard(**values: Any) -> None:
    """Write the observations of tables that need not fit into memory into a directory of shards.

    FILE is a table of observations (row, column, value) in .csv, .tsv, .txt (also .gz) or .parquet, as for 'rcurc-gpu
    complete'; several are parts of one table, and a directory stands for the tables in it. They are read once. Rows and
    columns may have any labels, which are kept in DIR.

    Recovery uses the observations in some rows and in some columns, the cross. They are chosen for you where observations
    are most dense, unless --rows-from or --cols-from names them.

    \b
    Examples:
      rcurc-gpu shard ratings.csv.gz -o shards
      rcurc-gpu shard part-*.parquet -o shards --row-column user \\
          --column-column item --value-column stars
      rcurc-gpu shard ratings/ -o shards --memory 2GB --duplicates mean

    In Python, rcurc_gpu.shards.LabelledShards.open reads DIR. After an error or Ctrl-C nothing is left in it;
    what is left after a kill is replaced by the next run.

    Exit status: 0 if shards were written, 2 if an option or a file is wrong,
    130 if stopped by Ctrl-C.
    """  # noqa: D301
    options = CommandOptions(**values)
    with stoppable([]), errors_in_options(_OPTION_OF):
        _check_output(options.output)
        labelled = shard_file(
            options.files,
            options.output,
            rows=_read_labels(options.rows_from),
            cols=_read_labels(options.cols_from),
            dtype=options.dtype,
            shard_bytes=options.shard_size,
            memory_bytes=options.memory,
            progress=options.visible,
            **{name: values[name] for name in TABLE_OPTIONS},
        )
        report = {
            "files": options.files,
            "output": options.output,
            **describe_samples(labelled, None),
            "dtype": str(labelled.samples.dtype),
            "shards": len(labelled.samples.r_shards) + len(labelled.samples.c_shards),
            "bytes": sum(path.stat().st_size for path in options.output.iterdir()),
        }
    options.say("\n".join([report["source"], *report["lines"]]))
    options.say(f"Saved:  {options.output}  ({report['shards']:,} shards, {report['bytes'] / 1e6:,.1f} MB)")
    finish(report, options.as_json)


def _check_output(output: Path) -> None:
    """Before the work, so that none is lost."""
    if not output.absolute().parent.is_dir():
        raise BadInput(f"--output: there is no directory {str(output.parent)!r}")
    if output.exists() and not output.is_dir():
        raise BadInput(f"--output: {str(output)!r} is a file; shards need a directory")
    if output.is_dir() and any(output.iterdir()) and not is_left_over(output):
        raise BadInput(f"--output: the directory {str(output)!r} is not empty; choose another")


def _read_labels(path: Path | None) -> list[str] | None:
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{str(path)!r} is not UTF-8 text; save it as UTF-8") from error
    return [line.strip() for line in lines if line.strip()]
