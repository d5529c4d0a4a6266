"""``rcurc-gpu bench``: how fast this machine is."""

from __future__ import annotations

import click

from .common import errors_in_options, finish, stoppable
from .options import BYTES, JSON, QUIET, CommandOptions, Finite, Parsed, flag, solver_option


def _numbers(text: str) -> tuple[int, ...] | None:
    found = [float(part) for part in text.split(",") if part.strip()]
    return tuple(map(int, found)) if all(number >= 1 and number.is_integer() for number in found) else None


_LIST = Parsed("numbers", _numbers, "is not a list of positive whole numbers such as 500,3000 or 1e6,1e7")


@click.command(context_settings={"show_default": True})
@solver_option("device", "What to time: auto is the CPU and, if there is one, the GPU.")
@flag("--quick", help="Only the smaller problems: some seconds.")
@click.option("--sizes", type=_LIST, metavar="N,N", help="Rows, and columns, of matrices, instead of 500,3000,10000.")
@click.option("--observations", type=_LIST, metavar="N,N", help="Problems by observations, instead of 1e6,1e7,1e8.")
@click.option("--dtype", type=click.Choice(["float64", "float32"]), default="float64", help="Of the observations.")
@click.option("--seconds", type=Finite(min=0), default=300.0, help="Time limit in all; longer problems are left out.")
@click.option(
    "--memory", type=BYTES, metavar="SIZE", help="Largest memory of the host to use.  [default: two thirds of what is free]"
)
@QUIET
@JSON
def bench(
    device: str,
    quick: bool,
    sizes: tuple[int, ...] | None,
    observations: tuple[int, ...] | None,
    dtype: str,
    seconds: float,
    memory: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Time whole solves on this machine, and print tables for an issue.

    Problems have a known truth, so that errors are true ones. With a GPU each problem is solved on the CPU, on the GPU from
    its own memory, and on the GPU with observations that stream there from the host. Problems that memory or time do not
    allow are left out, and named. Takes one to three minutes.

    \b
    Examples:
      rcurc-gpu bench
      rcurc-gpu bench --quick --device cpu
      rcurc-gpu bench --sizes 3000 --observations 1e6,1e9 --dtype float32
      rcurc-gpu bench --json > bench.json

    Exit status: 0 if something was timed and all results are confirmed, 1
    if not, 2 if an option is wrong, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    from ..benchmark import bench_words, make_cases, run_bench
    from ..doctor import examine

    options, machine = CommandOptions(as_json=as_json, quiet=quiet), examine()
    cases = make_cases(sizes, observations, dtype, quick)
    with stoppable(lambda: ""), errors_in_options({}, usage=True):
        report = run_bench(machine, cases, device, seconds, memory, options.visible)
    options.say(bench_words(report, machine))
    finish(report, as_json, good=bool(report["timings"]) and all(t["converged"] for t in report["timings"]))
