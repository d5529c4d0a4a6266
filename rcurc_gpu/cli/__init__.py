"""The command ``rcurc-gpu``. The only place of the library that prints."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from .._version import __version__

_COMMANDS = ("complete", "demo", "describe", "doctor", "paper", "plot", "ratings", "sample", "shard", "video")


class LazyGroup(click.Group):
    """Imports some commands when they are asked for, since most need only a part of the library.

    Parameters
    ----------
    later : dict of str
        The module of this package for the name of each.
    """

    def __init__(self, *args: Any, later: dict[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.later = later

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, in the order of the help."""
        return sorted({*self.commands, *self.later})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name."""
        if cmd_name not in self.later:
            return super().get_command(ctx, cmd_name)
        command: click.Command = getattr(import_module(f".{self.later[cmd_name]}", __name__), cmd_name)
        return command


@click.group(
    cls=LazyGroup,
    later=dict(zip(_COMMANDS, _COMMANDS, strict=True)),
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
