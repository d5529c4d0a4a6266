"""``rcurc-gpu doctor``: whether the installation works."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import click

from .common import CONFIRMED, NOT_CONFIRMED, STOPPED, DeviceName, print_json, say_nothing


@click.command(context_settings={"show_default": True})
@click.option("--device", type=DeviceName(), default="auto", metavar="auto|cpu|cuda|cuda:N", help="What to test.")
@click.option("--quick", is_flag=True, show_default=False, help="One rank and small problems: right, not how fast.")
@click.option("--json", "as_json", is_flag=True, show_default=False, help="Print one JSON object and nothing else.")
def doctor(device: str, quick: bool, as_json: bool) -> None:
    """Look at the installation, test every kernel, and say what to do.

    Lists what is installed and which devices there are, says what is missing and how to get it, and runs each kernel and
    whole solves on the device against NumPy. Takes less than a minute.

    \b
    Examples:
      rcurc-gpu doctor
      rcurc-gpu doctor --device cuda:1 --json > doctor.json

    \b
    Exit status: 0 if nothing failed, 1 if something did (the report says
    what), 2 if an option is wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    from ..doctor import diagnose

    try:
        say: Callable[[str], None] = say_nothing if as_json else click.echo
        report = diagnose(device, quick, say, visible=not as_json and sys.stderr.isatty())
    except KeyboardInterrupt:
        click.echo("\nStopped.", err=True)
        raise SystemExit(STOPPED) from None
    if as_json:
        print_json(report)
    if report["device_lost"]:  # a kernel may run forever, and an orderly end would wait for it
        sys.stdout.flush()
        os._exit(NOT_CONFIRMED)
    raise SystemExit(CONFIRMED if report["passed"] else NOT_CONFIRMED)
