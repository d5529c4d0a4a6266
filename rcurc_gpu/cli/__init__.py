"""The command ``rcurc-gpu``. The only place of the library that prints."""

from __future__ import annotations

from importlib import import_module

import click

from .._version import __version__

_COMMANDS = ("complete", "demo", "describe", "doctor", "paper", "plot", "ratings", "sample", "shard", "video")


class Commands(click.Group):
    """Imports a command when it is asked for, since most need only a part of the library."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All of them, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command in the module of the same name."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f".{cmd_name}", __name__), cmd_name)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
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
