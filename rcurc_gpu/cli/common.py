"""What the commands share: exit codes, kinds of options, JSON."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import click

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
        return "auto" if value == "auto" else click.IntRange(min=1).convert(value, param, ctx)


def make_directory(path: Path) -> None:
    """Before the work, so that none is lost to a directory that cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"cannot make {str(path)!r}: {error.strerror}", param_hint="--output") from error


def say_nothing(text: str) -> None:
    """What speaks where nothing but JSON may be printed."""


def print_json(report: dict[str, Any]) -> None:
    """Write one JSON object to standard output."""
    click.echo(json.dumps(jsonable(report), indent=2, allow_nan=False))
