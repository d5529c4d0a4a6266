"""The options of the commands: their kinds, those of the solver, and those that several commands have."""

from __future__ import annotations

import math
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import click

from ..options import option


class Finite(click.FloatRange):
    """A number in a range; unlike click's own, NaN and infinity lie in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or click's error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


IN_FILE = click.Path(path_type=Path)  # whether it is there and can be read is said by who reads it, in one way for all


class Parsed(click.ParamType[Any]):
    """What a function makes of the text; where it makes None, or cannot read a number, the text is `wrong`."""

    def __init__(self, name: str, parse: Callable[[str], Any], wrong: str) -> None:
        self.name, self.parse, self.wrong = name, parse, wrong

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What was made of it, or click's error."""
        if not isinstance(value, str):
            return value
        try:
            found = self.parse(value)
        except ValueError:
            found = None
        if found is None:
            self.fail(f"{value!r} {self.wrong}.", param, ctx)
        return found


def _rank(text: str) -> int | str | None:
    if text == "auto":
        return text
    return int(text) if text.isascii() and text.isdecimal() and int(text) > 0 else None


def _device(text: str) -> str | None:
    return text if re.fullmatch(r"auto|cpu|cuda(:\d+)?", text) else None


def _share(text: str) -> float | None:
    """A share of something: 0.3 or 30%."""
    share = float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    return share if 0 < share <= 1 else None


def _share_or_count(text: str) -> float | int | None:
    """A float for a share, an int for a count."""
    return int(text) or None if text.strip().isdecimal() else _share(text)


def count_of(wanted: float | int, total: int) -> int:
    """How many of `total` a `SHARE_OR_COUNT` means, at least 1."""
    return wanted if isinstance(wanted, int) else max(round(wanted * total), 1)


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _bytes(text: str) -> int | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.ASCII | re.IGNORECASE)
    return int(float(found[1]) * _UNITS[found[2].upper()]) if found and float(found[1]) else None


# What an option of a name takes is the same in all commands.
SHARE = Parsed("share", _share, "is not a share such as 0.3 or 30%")
SHARE_OR_COUNT = Parsed("share or count", _share_or_count, "is neither a share such as 0.3 or 30% nor a count such as 200")
BYTES = Parsed("size", _bytes, "is not a size such as 64MB or 2GB")
RANK = Parsed("rank", _rank, "is neither a positive whole number nor auto")
OFFSETS = Parsed("offsets", {"auto": "auto", "yes": True, "no": False}.get, "is not auto, yes or no")
DEVICE = Parsed("device", _device, "is not auto, cpu, cuda or a numbered device such as cuda:1")

# ---------------------------------------------------------------- options

_Command = TypeVar("_Command", bound=Callable[..., Any])
_KINDS = {
    "rank": (RANK, "N|auto"),
    "device": (DEVICE, "auto|cpu|cuda|cuda:N"),
    "seed": (click.IntRange(min=0), None),
    "accuracy": (Finite(min=0, min_open=True), None),
    "offsets": (OFFSETS, "auto|yes|no"),
    "sweeps": (click.IntRange(min=0), None),
}


def solver_option(name: str, help: str | None = None) -> Callable[[_Command], _Command]:
    """An option of the solver, with the default, the words and, if there is no other, the help of `rcurc_gpu.options`."""
    known = option(name)
    if isinstance(known.default, bool):
        return click.option(f"--{name}/--no-{name}", default=known.default, help=help or known.text)
    kind, metavar = _KINDS[name] if name in _KINDS else (click.Choice(known.choices), None)
    return click.option(f"--{name}", type=kind, default=known.default, metavar=metavar, help=help or known.text)


def flag(*names: str, help: str) -> Callable[[_Command], _Command]:
    """An option without a value."""
    return click.option(*names, is_flag=True, show_default=False, help=help)


def directory_option(default: str, help: str) -> Callable[[_Command], _Command]:
    """``--output`` of a command that writes several files."""
    kind = click.Path(file_okay=False, path_type=Path)
    return click.option("-o", "--output", type=kind, default=Path(default), metavar="DIR", help=help)


def in_order(*options: Any) -> Callable[[_Command], _Command]:
    """Several options as one decorator, which help lists in this order."""

    def decorate(command: _Command) -> _Command:
        for one in reversed(options):
            command = one(command)
        return command

    return decorate


QUIET = flag("-q", "--quiet", help="Print no progress bars and no report; the exit status says how it went.")
JSON = flag("--json", "as_json", help="Print one JSON object and nothing else.")


def shared_options(
    *, device: str | None = None, seed: str | None = None, force: str | None = None
) -> Callable[[_Command], _Command]:
    """The options that most commands have, with these words of help (without words there is no such option), and --quiet and
    --json, which all of them have."""
    solver = [solver_option(name, text) for name, text in (("device", device), ("seed", seed)) if text is not None]
    flags = [flag("--force", help=force)] if force is not None else []
    return in_order(*solver, *flags, QUIET, JSON)


_COLUMNS = (
    click.option("--row-column", metavar="NAME", help="Column of a table with the labels of rows.  [default: the first]"),
    click.option("--column-column", metavar="NAME", help="Column with the labels of columns.  [default: the second]"),
    click.option("--value-column", metavar="NAME", help="Column of a table with the values.  [default: the third]"),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether the first line of a text file names its columns.  [default: detected]",
        show_default=False,
    ),
)
column_options = in_order(*_COLUMNS)
table_options = in_order(
    *_COLUMNS,
    click.option(
        "--sigma-column",
        metavar="NAME",
        help="Column of a table with the standard deviation of each value's noise, in any unit.  [default: not known]",
    ),
    click.option(
        "--duplicates",
        type=click.Choice(["error", "mean", "median"]),
        default="error",
        help="What to do where an entry is observed twice with different values.",
    ),
)
layout_option = click.option(
    "--layout",
    type=click.Choice(["auto", "triplets", "matrix"]),
    default="auto",
    help="What a table is: lines of row, column and value, or a matrix with a name in front of each row.",
)
TABLE_OPTIONS = ("row_column", "column_column", "value_column", "sigma_column", "header", "duplicates")


_HANGING = re.compile(r"\s*(?:[A-Z][\w ]*:\s+)?")  # what further lines of a long one stand below


def wrapped(text: str) -> str:
    """Lines no longer than the terminal is wide, those of tables apart; as they are if nobody sees them."""
    if not sys.stdout.isatty():
        return text
    width = max(shutil.get_terminal_size().columns, 40)  # in fewer characters nothing can be read
    return "\n".join(_filled(line, width) for line in text.split("\n"))


def _filled(line: str, width: int) -> str:
    if len(line) <= width or line.lstrip().startswith("|"):
        return line
    indent = " " * min(len(_HANGING.match(line)[0]), width // 2)  # type: ignore[index]  # it may be empty, but is there
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


class CommandOptions(SimpleNamespace):
    """The options of a command, by name."""

    quiet: bool
    as_json: bool

    @property
    def visible(self) -> bool:
        """Whether to show progress bars: if somebody sees them."""
        return sys.stderr.isatty() and not (self.quiet or self.as_json)

    def say(self, text: str) -> None:
        """Print a part of the report, unless --quiet forbids it."""
        if not self.quiet:
            self.tell(text)

    def tell(self, text: str) -> None:
        """Print a part of the report, unless JSON is wanted: that is printed alone."""
        if not self.as_json:
            click.echo(wrapped(text))
