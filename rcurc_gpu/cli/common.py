"""What the commands share: exit codes, kinds of options, JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..files import jsonable

CONFIRMED, NOT_CONFIRMED, STOPPED = 0, 1, 130  # exit codes; click's own for bad arguments is 2


class Finite(click.FloatRange):
    """A number in a range; unlike click's own, NaN and infinity lie in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or click's error."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


SHARE = Finite(0, 1, min_open=True)


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


def make_directory(path: Path) -> None:
    """Before the work, so that none is lost to a directory that cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"cannot make {str(path)!r}: {error.strerror}", param_hint="--output") from error


@contextmanager
def complaints(in_options: Callable[[str], str], memory: str) -> Iterator[None]:
    """Turn what the library says of a file or an argument into one line.

    Parameters
    ----------
    in_options : callable
        Says a message in terms of the command's options.
    memory : str
        What to say if the memory is not enough.
    """
    try:
        yield
    except np.linalg.LinAlgError:
        raise  # a ValueError by inheritance, but not about an argument
    except MemoryError as error:
        raise click.UsageError(memory) from error
    except OSError as error:
        name = "" if error.filename is None else f"cannot read or write {str(error.filename)!r}: "
        raise click.UsageError(f"{name}{error.strerror or error}") from error
    except (ImportError, RuntimeError, ValueError, TypeError) as error:
        message = re.sub(r"\bdevice='([\w:]+)'", r"--device \1", " ".join(str(error).split()))
        raise click.UsageError(in_options(message)) from error


def renamed(option_of: dict[str, str]) -> Callable[[str], str]:
    """What puts the option in the place of the argument that a message begins with."""

    def in_options(message: str) -> str:
        name = re.match(r"\w+", message)
        if name is None or name[0] not in option_of:
            return message
        return option_of[name[0]] + message[name.end() :]

    return in_options


def say_nothing(text: str) -> None:
    """What speaks where nothing but JSON may be printed."""


def print_json(report: dict[str, Any]) -> None:
    """Write one JSON object to standard output."""
    click.echo(json.dumps(jsonable(report), indent=2, allow_nan=False))
