"""One experiment of ``rcurc-gpu paper``: take up what is there, compute, save, draw, and say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..files import write_whole
from ..paper import Record, differences, new_record, read_record, rounded, write_record
from ..progress import Progress
from .common import errors_in_options, finish, make_directory, saved_words, say_nothing, stoppable, writing_to

_MEMORY = "--size: the problem does not fit into the memory"

_DPI = 200


@dataclass(frozen=True, eq=False)
class Experiment:
    """What a command runs.

    Attributes
    ----------
    name : str
        Of the files.
    module : module
        With ``compute``, ``summarize`` and ``draw``; with ``tasks`` if it can be taken up again.
    settings : dataclass
    words : callable
        Tells a record and its summary in words.
    good : callable
        Whether a summary shows what it should.
    options : dict
        The option for each argument that the library may complain about.
    """

    name: str
    module: Any
    settings: Any
    words: Callable[[Record, Record], str]
    good: Callable[[Record], bool]
    options: dict[str, str]


def run(experiment: Experiment, output: Path, force: bool, quiet: bool, as_json: bool) -> None:
    """Do all of it, and end with the exit status."""
    path = output / f"{experiment.name}.json"
    say = say_nothing if as_json else click.echo
    saved: list[Path] = []
    with stoppable(lambda: _kept(experiment, path, saved)):
        make_directory(output)
        record = _computed(experiment, path, force, not (quiet or as_json), saved, say)
        summary = record["summary"] = rounded(experiment.module.summarize(record))
        with writing_to(output):
            write_record(path, record)
            saved.append(path)
            say(experiment.words(record, summary))
            files = {"data": str(path), **_drawn(experiment, record, output, saved)}
    say(_file_words(files))
    report = {name: record[name] for name in ("experiment", "version", "settings")}
    finish({**report, "summary": _short(summary), "files": files}, as_json, good=experiment.good(summary))


def _computed(
    experiment: Experiment, path: Path, force: bool, visible: bool, saved: list[Path], say: Callable[[str], Any]
) -> Record:
    """The complete record; `saved` gets the path as soon as there is something."""
    module, settings = experiment.module, experiment.settings
    fresh = new_record(experiment.name, settings)
    record = None if force else _earlier(path, fresh)
    with errors_in_options(experiment.options, memory=_MEMORY, usage=True), Progress(visible) as show:
        if not hasattr(module, "tasks"):
            return module.compute(settings, show=show)
        total = len(module.tasks(settings))
        if record is not None:
            saved.append(path)
            done = len(record["runs"])
            again = "complete, only drawn again (--force measures anew)"
            say(f"{path}: {again if done == total else f'{done} of {total} problems are there already'}")

        def save(record: Record) -> None:
            with writing_to(path.parent):
                write_record(path, record)
            saved[:] = [path]

        return module.compute(settings, record, save, show)


def _earlier(path: Path, fresh: Record) -> Record | None:
    """What was computed before with the same settings; an error if there is something else."""
    hint = "choose another --output, or replace it with --force"
    try:
        record = read_record(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise click.UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise click.UsageError(f"{' '.join(str(error).split())}; {hint}") from error
    others = differences(record, fresh)
    if others:
        raise click.UsageError(f"{str(path)!r} was made with other settings ({'; '.join(others)}); {hint}")
    return record


def _drawn(experiment: Experiment, record: Record, output: Path, saved: list[Path]) -> dict[str, Any]:
    """Write the pictures, if matplotlib is there; say what was written and what was not."""
    try:
        figure = experiment.module.draw(record)
    except ImportError as error:
        return {"png": None, "pdf": None, "plot_skipped": str(error)}
    files: dict[str, Any] = {}
    for kind, metadata in (("png", {}), ("pdf", {"CreationDate": None})):  # the same record, the same bytes
        path = output / f"{experiment.name}.{kind}"
        write_whole(path, partial(figure.savefig, format=kind, dpi=_DPI, metadata=metadata))
        files[kind] = str(path)
        saved.append(path)
    return {**files, "plot_skipped": None}


def _kept(experiment: Experiment, path: Path, saved: list[Path]) -> str:
    kept = saved_words(saved, end=".")
    if saved == [path] and hasattr(experiment.module, "tasks"):
        done, total = len(read_record(path)["runs"]), len(experiment.module.tasks(experiment.settings))
        kept += f" It has {done} of {total} problems; the same command goes on from there."
    return kept


def _file_words(files: dict[str, Any]) -> str:
    lines = [f"Saved:      {files['data']}"]
    if files["png"]:
        lines += [f"            {files['png']}", f"            {files['pdf']}"]
    else:
        lines.append(f"Plot:       skipped; {files['plot_skipped']} (then the same command draws, without computing again)")
    return "\n".join(lines)


def _short(summary: Record) -> Record:
    """`summary` without what is only of use in a picture."""
    if "curves" not in summary:
        return summary
    curves = [{name: value for name, value in curve.items() if name != "series"} for curve in summary["curves"]]
    return {**summary, "curves": curves}
