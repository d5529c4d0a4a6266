"""All commands as one: ``rcurc-gpu``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from .._version import __version__
from .stopping import STOPPED, STOPPED_EARLY

_COMMANDS = ("bench", "complete", "demo", "describe", "doctor", "paper", "plot", "ratings", "sample", "shard", "video")


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
        try:
            module = import_module(f".{self.later[cmd_name]}", __package__)
        except KeyboardInterrupt:  # click would end with a status of its own
            click.echo(STOPPED_EARLY, err=True, nl=False)
            raise SystemExit(STOPPED) from None
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(
    cls=LazyGroup,
    later=dict(zip(_COMMANDS, _COMMANDS, strict=True)),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 125},  # or the terminal's width
)
@click.version_option(__version__, prog_name="rcurc-gpu")
def main() -> None:
    """Recover a huge low-rank matrix from few, partly wrong entries.

    \b
    Examples:
      rcurc-gpu demo
      rcurc-gpu doctor
      rcurc-gpu bench --quick
      rcurc-gpu describe levels.csv
      rcurc-gpu complete levels.csv -o result.npz --predict wanted.csv
      rcurc-gpu ratings ratings.csv --predict wanted.csv
      rcurc-gpu shard part-*.parquet -o shards
      rcurc-gpu plot result.npz -o result.png
      rcurc-gpu paper fig2
      rcurc-gpu video street.mp4
    """  # noqa: D301  # click's mark of lines to keep is a real backspace
