"""The command ``rcurc-gpu``. The only place of the library that prints."""

from __future__ import annotations

import click

from .._version import __version__
from .complete import complete
from .demo import demo
from .describe import describe
from .doctor import doctor
from .paper import paper
from .plot import plot
from .ratings import ratings
from .sample import sample
from .shard import shard
from .video import video


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rcurc-gpu")
def main() -> None:
    """Recover a huge low-rank matrix from few, partly wrong entries.

    \b
    Examples:
      rcurc-gpu demo
      rcurc-gpu doctor
      rcurc-gpu describe levels.csv
      rcurc-gpu complete levels.csv -o result.npz --predict wanted.csv
      rcurc-gpu ratings ratings.csv --predict wanted.csv
      rcurc-gpu shard part-*.parquet -o shards
      rcurc-gpu plot result.npz -o result.png
      rcurc-gpu paper fig2
      rcurc-gpu video street.mp4
    """  # noqa: D301  # click's mark of lines to keep is a real backspace


for _command in (demo, doctor, sample, shard, describe, complete, ratings, plot, paper, video):
    main.add_command(_command)
