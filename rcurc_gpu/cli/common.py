"""What the commands share: exit codes, kinds of options, options, errors in terms of options, JSON."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar

import click
import numpy as np

from ..errors import WordedError, Wording
from ..files import jsonable
from ..options import option

CONFIRMED, NOT_CONFIRMED, WRONG, STOPPED = 0, 1, 2, 130  # exit codes; click's own for bad arguments is 2, too

# ---------------------------------------------------------------- kinds of options


class Finite(click.FloatRange):
    """A number in a range; unlike click's own, NaN and infinity lie in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or click's error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


SHARE = Finite(0, 1, min_open=True)
IN_FILE = click.Path(path_type=Path)  # whether it is there and can be read is said by who reads it, in one way for all


class DeviceName(click.ParamType[str]):
    """``auto``, ``cpu``, ``cuda`` or a numbered device such as ``cuda:1``."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name, or click's error."""
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", str(value)):
            self.fail(f"{value!r} is not auto, cpu, cuda or a numbered device such as cuda:1.", param, ctx)
        return str(value)


class Rank(click.ParamType[Any]):
    """A positive number, or ``auto``."""

    name = "rank"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The rank, or click's error."""
        text = str(value)
        if text == "auto":
            return text
        if not (text.isascii() and text.isdecimal() and int(text) > 0):
            self.fail(f"{value!r} is neither a positive whole number nor auto.", param, ctx)
        return int(text)


# ---------------------------------------------------------------- options

_Command = TypeVar("_Command", bound=Callable[..., Any])
_KINDS = {
    "rank": (Rank(), "N|auto"),
    "device": (DeviceName(), "auto|cpu|cuda|cuda:N"),
    "seed": (click.IntRange(min=0), None),
    "accuracy": (Finite(min=0, min_open=True), None),
}


def solver_option(name: str, help: str | None = None) -> Callable[[_Command], _Command]:
    """An option of the solver, with the default, the words and, if there is no other, the help of `rcurc_gpu.options`."""
    known = option(name)
    kind, metavar = _KINDS[name] if name in _KINDS else (click.Choice(known.choices), None)
    return click.option(f"--{name}", type=kind, default=known.default, metavar=metavar, help=help or known.text)


def flag(*names: str, help: str) -> Callable[[_Command], _Command]:
    """An option without a value."""
    return click.option(*names, is_flag=True, show_default=False, help=help)


def directory_option(default: str, help: str) -> Callable[[_Command], _Command]:
    """``--output`` of a command that writes several files."""
    kind = click.Path(file_okay=False, path_type=Path)
    return click.option("--output", type=kind, default=Path(default), metavar="DIR", help=help)


def in_order(*options: Any) -> Callable[[_Command], _Command]:
    """Several options as one decorator, which help lists in this order."""

    def decorate(command: _Command) -> _Command:
        for one in reversed(options):
            command = one(command)
        return command

    return decorate


JSON = flag("--json", "as_json", help="Print one JSON object and nothing else.")


def shared_options(
    *, device: str | None = None, seed: str | None = None, force: str | None = None, quiet: str | None = None
) -> Callable[[_Command], _Command]:
    """The options that most commands have, with these words of help (without words there is no such option), and --json."""
    solver = [solver_option(name, text) for name, text in (("device", device), ("seed", seed)) if text is not None]
    flags = [flag(name, help=text) for name, text in (("--force", force), ("--quiet", quiet)) if text is not None]
    return in_order(*solver, *flags, JSON)


_COLUMNS = (
    click.option("--row-column", metavar="NAME", help="Column of a table with the labels of rows.  [default: the first]"),
    click.option("--column-column", metavar="NAME", help="Column with the labels of columns.  [default: the second]"),
    click.option("--value-column", metavar="NAME", help="Column of a table with the values.  [default: the third]"),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether the first line of a text file names its columns.  [default: find out]",
        show_default=False,
    ),
)
column_options = in_order(*_COLUMNS)
table_options = in_order(
    *_COLUMNS,
    click.option(
        "--duplicates",
        type=click.Choice(["error", "mean", "median"]),
        default="error",
        help="What to do where an entry is observed twice with different values.",
    ),
)
TABLE_OPTIONS = ("row_column", "column_column", "value_column", "header", "duplicates")


class Options(SimpleNamespace):
    """The options of a command, by name."""

    quiet: bool
    as_json: bool

    @property
    def visible(self) -> bool:
        """Whether to show progress bars: if somebody sees them."""
        return sys.stderr.isatty() and not (self.quiet or self.as_json)

    def say(self, text: str) -> None:
        """Print a part of the report."""
        if not (self.quiet or self.as_json):
            click.echo(text)


# ---------------------------------------------------------------- errors and ends


class BadInput(click.ClickException):
    """A file or an option is wrong; unlike click's own error, one line without the usage."""

    exit_code = WRONG


class OptionWording(Wording):
    """How sentences name arguments: as options.

    Parameters
    ----------
    option_of : mapping
        The option that an argument of the library came from; those of a table and the device are known.
    has_guesses : bool
    """

    def __init__(self, option_of: Mapping[str, str], has_guesses: bool = False) -> None:
        self.option_of = {name: f"--{name.replace('_', '-')}" for name in ("device", *TABLE_OPTIONS)} | dict(option_of)
        self.has_guesses = has_guesses

    def __call__(self, name: str, *values: Any) -> str:
        """The option, or what to pass to give it one of the `values`."""
        said = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        more = f" (or {', '.join(said[1:])})" if len(said) > 1 else ""
        return " ".join([self.option_of.get(name, name), *said[:1]]) + more

    def has(self, name: str) -> bool:
        """Whether there is such an option."""
        return name in self.option_of


@contextmanager
def errors_in_options(option_of: Mapping[str, str], *, memory: str | None = None, usage: bool = False) -> Iterator[None]:
    """Turn what the library says of a file or an argument into one line and the exit code 2.

    Parameters
    ----------
    option_of : mapping
        The option that an argument of the library came from.
    memory : str, optional
        What to say if the memory is not enough.
    usage : bool
        Say how the command is used, too; then all that fails is said in one line.
    """
    fail = click.UsageError if usage else BadInput
    try:
        yield
    except np.linalg.LinAlgError:
        raise  # a ValueError by inheritance, but not about an argument
    except MemoryError as error:
        raise fail(memory or f"it does not fit into the memory ({_line(error) or 'no more is free'})") from error
    except OSError as error:
        name = "" if error.filename is None else f" {str(error.filename)!r}"
        raise fail(f"cannot read or write{name}: {error.strerror or _line(error)}") from error
    except WordedError as error:
        raise fail(_line(error.worded(OptionWording(option_of)))) from error
    except (ImportError, RuntimeError, ValueError, TypeError) as error:
        if isinstance(error, RuntimeError) and not usage:
            raise
        raise fail(_line(error)) from error


def _line(text: object) -> str:
    return " ".join(str(text).split())


@contextmanager
def stoppable(saved: list[Path] | Callable[[], str], checkpoint: Path | None = None) -> Iterator[None]:
    """Ctrl-C ends the command with 130, and says what was saved by then, and whether the same command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        words = saved() if callable(saved) else saved_words(saved)
        if checkpoint is not None and checkpoint.exists():
            words = f"What was done is kept in {checkpoint}: the same command goes on from there."
        click.echo(f"\nStopped. {words}".rstrip(), err=True)
        raise SystemExit(STOPPED) from None


def saved_words(saved: list[Path]) -> str:
    """What was saved before the command was stopped."""
    return f"Saved before that: {', '.join(map(str, saved))}" if saved else "Nothing was saved."


def finish(report: dict[str, Any], as_json: bool, good: bool = True) -> NoReturn:
    """Print the report if JSON is wanted, and end."""
    if as_json:
        print_json(report)
    raise SystemExit(CONFIRMED if good else NOT_CONFIRMED)


@contextmanager
def writing_to(directory: Path, what: str = "cannot write to") -> Iterator[None]:
    """Name ``--output`` where a file or directory there cannot be made."""
    try:
        yield
    except OSError as error:
        raise click.BadParameter(f"{what} {str(directory)!r}: {error.strerror}", param_hint="--output") from error


def make_directory(path: Path) -> None:
    """Before the work, so that none is lost to a directory that cannot be made."""
    with writing_to(path, "cannot make"):
        path.mkdir(parents=True, exist_ok=True)


def say_nothing(text: str) -> None:
    """What speaks where nothing but JSON may be printed."""


def print_json(report: dict[str, Any]) -> None:
    """Write one JSON object to standard output."""
    click.echo(json.dumps(jsonable(report), indent=2, allow_nan=False))
