"""``rcurc-gpu paper``: the paper's figures, one command each."""

from __future__ import annotations

from typing import Any

import click

from ..paper import convergence, patterns, phase
from .common import CONFIRMED, NOT_CONFIRMED
from .group import LazyGroup
from .options import JSON, QUIET, CommandOptions, Finite, directory_option, flag, in_order, solver_option
from .paper_run import Experiment
from .stopping import STOPPED


class Numbers(click.ParamType[tuple[Any, ...]]):
    """Numbers with commas between them, all in the range of `kind`."""

    name = "numbers"

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        """The numbers, or click's error."""
        if isinstance(value, tuple):
            return value
        numbers = tuple(self.kind.convert(part.strip(), param, ctx) for part in str(value).split(","))
        if len(set(numbers)) < len(numbers):
            self.fail(f"{value} names a number twice.", param, ctx)
        return numbers


_COUNT = click.IntRange(min=1)
_device = solver_option("device", "Where to solve.")
# What every command of the group takes; those that measure something take --json too.
common_options = in_order(
    solver_option("seed", "Fixes the problems."),
    directory_option("rcurc-paper", "Where to save."),
    flag("--force", help="Replace what is there, also of other settings."),
    QUIET,
)


@click.group(cls=LazyGroup, later={"table1": "paper_table"})
def paper() -> None:
    """Reproduce the paper's figures.

    Each command writes a PNG, a PDF and the numbers behind them as JSON. One that was interrupted goes on when it is called
    again with the same options; one that is complete only draws again.

    \b
    Examples:
      rcurc-gpu paper fig2
      rcurc-gpu paper fig2 --full --output full
      rcurc-gpu paper all
    """  # noqa: D301


def _run(name: str, module: Any, kind: Any, values: dict[str, Any], **option_of: str) -> None:
    """Run an experiment with the options; settings that are None are left at their defaults, or at those of --full."""
    options = CommandOptions(**{key: values.pop(key) for key in ("output", "force", "quiet", "as_json")})
    wanted = module.FULL if values.pop("full", False) else {}
    settings = kind(**wanted | {key: value for key, value in values.items() if value is not None})
    Experiment(name, module, settings, options, option_of).run()


# ---------------------------------------------------------------- figures


@paper.command(context_settings={"show_default": True})
@click.option("--size", type=click.IntRange(min=20, max=2000), default=200, help="Rows, and columns, of the matrix.")
@common_options
@JSON
def fig1(**values: Any) -> None:
    """Figure 1: sampling patterns from uniform to CUR.

    Uniform sampling, cross-concentrated sampling in two degrees, and CUR sampling of a matrix, all with the same number of
    observations.

    \b
    Example:
      rcurc-gpu paper fig1 --size 100 --output figures

    Exit status: 0, 2 if an option is wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    _run("fig1", patterns, patterns.PatternSettings, values, size="--size")


@paper.command(context_settings={"show_default": True})
@click.option("--size", type=_COUNT, help="Rows, and columns, of the matrix.  [default: 1500, 3000 with --full]")
@click.option("--runs", type=_COUNT, help="Problems to average over.  [default: 3, 50 with --full]")
@click.option(
    "--ranks", type=Numbers(_COUNT), metavar="R,...", help="Ranks, at c = 10.  [default: 5,10,15, with --full also 20,25]"
)
@click.option(
    "--c",
    "factors",
    type=Numbers(Finite(min=0)),
    metavar="C,...",
    help="Sizes of outliers, at rank 5.  [default: 1,5,10,20,50]",
)
@flag("--full", help="The paper's size and number of runs; about twenty minutes on two cores.")
@_device
@common_options
@JSON
def fig2(**values: Any) -> None:
    """Figure 2: convergence of Algorithm 1 against time.

    30 % of rows and columns, 25 % of them seen, 20 % outliers. Draws e_k and the true error over the whole matrix at every
    iteration, for several ranks and sizes of outliers, and where method="fast" ends. Says how straight the curves are:
    slope and R^2 of log10 e_k over the iterations. Without --full it takes about a minute. The paper's text
    does not say which ranks and which c its figure has.

    \b
    Examples:
      rcurc-gpu paper fig2
      rcurc-gpu paper fig2 --size 3000 --runs 2 --ranks 5,25 --output large

    Exit status: 0 if every curve of e_k is a falling line (R^2 of at least
    0.95), 1 if not, 2 if an option is wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    _run("fig2", convergence, convergence.ConvergenceSettings, values, rank="--ranks", n_rows="--size")


@paper.command("phase", context_settings={"show_default": True})
@click.option("--size", type=_COUNT, help="Rows, and columns, of the matrix.  [default: 400, 600 with --full]")
@click.option("--rank", type=_COUNT, default=4, help="Rank of the matrix.")
@click.option("--trials", type=_COUNT, help="Problems for each cell of the grid.  [default: 2, 20 with --full]")
@click.option("--success", type=Finite(0, 1, min_open=True), default=1e-3, help="Largest error that counts as recovery.")
@flag("--full", help="A finer grid and more problems; some hours.")
@_device
@common_options
@JSON
def phase_command(**values: Any) -> None:
    """Where recovery ends: observations per column against outliers.

    Solves a grid of problems by Algorithm 1 and by method="fast" and draws how many are recovered, how many of the results
    are confirmed (result.converged), and where a wrong one was confirmed. The paper does not have this figure. Without
    --full it takes about a minute.

    \b
    Examples:
      rcurc-gpu paper phase
      rcurc-gpu paper phase --rank 8 --size 600 --trials 5 --output rank8

    Exit status: 0 if no wrong result was confirmed, 1 if one was, 2 if an
    option is wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    size = values["size"] or (phase.FULL["size"] if values["full"] else phase.PhaseSettings.size)
    values["observations"] = phase.observations_for(size)
    _run("phase", phase, phase.PhaseSettings, values, rank="--rank", n_rows="--size")


# ---------------------------------------------------------------- all of them


@paper.command("all", context_settings={"show_default": True})
@flag("--full", help="With --full for every command that has it.")
@common_options
@click.pass_context
def everything(context: click.Context, /, **values: Any) -> None:
    """Run every command of this group with its defaults.

    \b
    Examples:
      rcurc-gpu paper all
      rcurc-gpu paper all --full --output full

    Exit status: the worst of theirs.
    """  # noqa: D301
    worst = CONFIRMED
    for name, command in paper.commands.items():
        if command is not everything:
            click.echo(f"--- rcurc-gpu paper {name}")
            code = _call(command, name, context, values)
            if code == STOPPED:
                raise SystemExit(code)
            worst = max(worst, code)
    raise SystemExit(worst)


def _call(command: click.Command, name: str, context: click.Context, values: dict[str, Any]) -> int:
    """Run `command` with those of the options it knows; its exit status."""
    own = click.Context(command, parent=context.parent, info_name=name)
    known = {option.name: option for option in command.params if option.name in values}
    try:
        own.invoke(command, **{key: option.type_cast_value(own, values[key]) for key, option in known.items()})
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else NOT_CONFIRMED
    except click.ClickException as error:  # one that cannot run here does not keep the others from running
        error.show()
        return error.exit_code
    return CONFIRMED
