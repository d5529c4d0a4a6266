"""``python -m bench.peers``: see the package's own words."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from bench.real import TASKS
from bench.real_data import MOVIELENS, NAMES, load, names_in

from .methods import METHODS
from .problems import Problem, matrices, real, video
from .run import compare, version_of
from .tables import grid, table

KINDS = ("full", "cross", "video")
REAL = "real"


@click.command()
@click.option("--full", is_flag=True, help="The paper's size: d = 3000, 500 frames of 120 x 160, a limit of 300 s.")
@click.option("--size", type=click.IntRange(min=20), help="Rows and columns of the matrices; 400 by default.")
@click.option("--problem", "kinds", multiple=True, type=click.Choice([*KINDS, REAL]), help="Only this one; may be repeated.")
@click.option(
    "--only", multiple=True, type=click.Choice([m.name for m in METHODS]), help="Only this method; may be repeated."
)
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="For --problem real: a directory of .npy files instead of what packages carry.",
)
@click.option("--limit", type=click.FloatRange(min=1), help="Seconds of CPU after which a run is stopped; 20 by default.")
@click.option("--repeats", default=3, type=click.IntRange(min=1), show_default=True, help="Runs of each method.")
@click.option("--threads", default=1, type=click.IntRange(min=1), show_default=True, help="Threads of every method.")
@click.option(
    "--partial-svd",
    is_flag=True,
    help="Partial SVDs in tensorly and RpcaPcp: the same result, sooner.",
)
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="Where to put peers.md and peers.json.")
def main(
    full: bool,
    size: int | None,
    kinds: tuple[str, ...],
    only: tuple[str, ...],
    data: Path | None,
    limit: float | None,
    repeats: int,
    threads: int,
    partial_svd: bool,
    output: Path | None,
) -> None:
    """Compare our methods with other packages: seconds, true error, peak memory."""
    size = size or (3000 if full else 400)
    limit = limit or (300.0 if full else 20.0)
    methods = [m for m in METHODS if not only or m.name in only]
    machine = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "threads": threads,
    }
    if partial_svd:
        machine["tensorly and RpcaPcp"] = "with partial SVDs"
    click.echo(", ".join(f"{key} {value}" for key, value in machine.items()))
    for package, found in {m.package: version_of(m) for m in methods}.items():
        click.echo(f"{package} {found or 'is not installed: left out'}")
    entries, tables, on_real = [], [], []
    for problem in _problems(kinds or KINDS, size, full, data):
        click.echo(f"\n{problem.title}")
        found = compare(
            problem,
            methods,
            limit=limit,
            repeats=repeats,
            threads=threads,
            partial_svd=partial_svd,
            tell=lambda line: click.echo(f"  {line}"),
        )
        entries += found
        if problem.kind == REAL:
            on_real += found
        else:
            tables.append(table(found))
            click.echo(f"\n{tables[-1]}")
    if on_real:
        tables.append(grid(on_real))
        click.echo(f"\n{tables[-1]}")
    if output:
        output.mkdir(parents=True, exist_ok=True)
        (output / "peers.md").write_text("\n".join(tables))
        saved = {"machine": machine, "limit": limit, "entries": [asdict(e) for e in entries]}
        (output / "peers.json").write_text(json.dumps(saved, indent=1))
        click.echo(f"{output / 'peers.md'}, {output / 'peers.json'}")


def _problems(kinds: tuple[str, ...], size: int, full: bool, data: Path | None) -> Iterator[Problem]:
    if {"full", "cross"} & set(kinds):
        yield from (p for p in matrices(size) if p.kind in kinds)
    if "video" in kinds:
        yield video((120, 160), 500) if full else video((48, 64), 200)
    if REAL in kinds:
        for name in names_in(data) if data else (*NAMES, MOVIELENS):
            try:
                Y = load(name, data)
            except click.ClickException as missing:
                click.echo(f"\n{name} is left out: {missing.message}")
                continue
            for task, kind in TASKS:
                if name != MOVIELENS or task == "missing":  # of ratings, a cross is too little
                    yield real(name, Y, task, kind)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
