"""What the commands share: exit codes, errors in terms of options, and how a command ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np

from ..errors import InUseError, WordedError, Wording
from ..files import jsonable
from .options import TABLE_OPTIONS
from .stopping import STOPPED

CONFIRMED, NOT_CONFIRMED, WRONG = 0, 1, 2  # exit codes; click's own for bad arguments is 2, too


class BadInput(click.ClickException):
    """A file or an option is wrong; unlike click's own error, one line without the usage."""

    exit_code = WRONG


class OptionWording(Wording):
    """How sentences name arguments: as options.

    Parameters
    ----------
    option_of : mapping
        The option that an argument of the library came from; those of a table and the device are known.
    """

    def __init__(self, option_of: Mapping[str, str]) -> None:
        self.option_of = {name: f"--{name.replace('_', '-')}" for name in ("device", "layout", *TABLE_OPTIONS)} | dict(
            option_of
        )

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
    except FileNotFoundError as error:
        raise fail(f"no such file: {str(error.filename)!r}" if error.filename is not None else _line(error)) from error
    except OSError as error:
        name = "" if error.filename is None else f" {str(error.filename)!r}"
        raise fail(f"cannot read or write{name}: {error.strerror or _line(error)}") from error
    except WordedError as error:
        raise fail(_line(error.worded(OptionWording(option_of)))) from error
    except (ImportError, RuntimeError, ValueError, TypeError) as error:
        if isinstance(error, RuntimeError) and not (usage or isinstance(error, InUseError)):
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
            words = f"What was done is kept in {checkpoint}: the same command resumes from there."
        click.echo(f"\nStopped. {words}".rstrip(), err=True)
        raise SystemExit(STOPPED) from None


def saved_words(saved: list[Path], end: str = "") -> str:
    """What was saved before the command was stopped; `end` follows the names."""
    return f"Saved before that: {', '.join(map(str, saved))}{end}" if saved else "Nothing was saved."


def files_words(*files: Path | None, hint: str = "", skipped: str | None = None, again: str = "") -> str:
    """Where things were saved, with a `hint` for the first, and why there is no picture."""
    lines = [str(path) for path in files if path is not None]
    lines[0] += hint
    why = "" if skipped is None else f"\nPlot:       skipped; {skipped}{again}"
    return "Saved:      " + "\n            ".join(lines) + why


def finish(report: dict[str, Any], as_json: bool, good: bool = True) -> NoReturn:
    """Print the report if JSON is wanted, and end."""
    if as_json:
        click.echo(json_text(report))
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


def json_text(report: dict[str, Any]) -> str:
    """One JSON object."""
    return json.dumps(jsonable(report), indent=2, allow_nan=False)
