"""``rcurc-gpu doctor``: whether the installation works."""

from __future__ import annotations

import os
import sys

import click

from .common import NOT_CONFIRMED, finish, json_text, stoppable
from .options import JSON, QUIET, CommandOptions, flag, solver_option


@click.command(context_settings={"show_default": True})
@solver_option("device", "What to test.")
@flag("--quick", help="One rank and small problems: checks that results are right, not how fast.")
@QUIET
@JSON
def doctor(device: str, quick: bool, quiet: bool, as_json: bool) -> None:
    """Look at the installation, test every kernel, and say what to do.

    Lists what is installed and which devices there are, says what is missing and how to get it, and runs each kernel and
    whole solves on the device against NumPy. Takes less than a minute.

    \b
    Examples:
      rcurc-gpu doctor
      rcurc-gpu doctor --device cuda:1 --json > doctor.json

    Exit status: 0 if nothing failed, 1 if something did (the report says
    what), 2 if an option is wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    from ..doctor import diagnose

    options = CommandOptions(as_json=as_json, quiet=quiet)
    with stoppable(lambda: ""):
        report = diagnose(device, quick, options.say, visible=options.visible)
    if report["device_lost"]:  # a kernel may run forever, and an orderly end would wait for it
        if as_json:
            click.echo(json_text(report))
        sys.stdout.flush()
        os._exit(NOT_CONFIRMED)
    finish(report, as_json, good=report["passed"])
