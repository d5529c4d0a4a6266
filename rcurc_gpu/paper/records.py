"""What an experiment has measured so far, as a dictionary for JSON: a long one can be interrupted and taken up again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..errors import without_warning
from ..files import jsonable, write_whole
from ..progress import Progress

Record = dict[str, Any]
Save = Callable[[Record], None] | None
_SAVING = 0.05  # share of the time that saving may take


def new_record(experiment: str, settings: Any) -> Record:
    """An empty record; `settings` is a dataclass. What JSON does not have (tuples) is not in it either."""
    return {
        "experiment": experiment,
        "version": __version__,
        "settings": json.loads(json.dumps(asdict(settings))),
        "runs": [],
    }


def read_record(path: str | os.PathLike[str]) -> Record:
    """A record that `write_record` wrote, or a ValueError that says why it is none."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # also bytes that are no text
        raise ValueError(f"{os.fspath(path)!r} is not a record of an experiment ({error})") from error
    if not isinstance(record, dict) or not {"experiment", "version", "settings", "runs"} <= set(record):
        raise ValueError(f"{os.fspath(path)!r} is not a record of an experiment")
    return record


def write_record(path: str | os.PathLike[str], record: Record) -> None:
    """Write a record as JSON, atomically."""
    text = json.dumps(record, allow_nan=False, separators=(",", ":"))
    write_whole(path, lambda file: file.write(text.encode()))


def differences(record: Record, fresh: Record) -> list[str]:
    """In what the settings of `record` differ from those of `fresh`, one text for each; none if it can be taken up."""
    known, wanted = ({"experiment": r["experiment"], "version": r["version"], **r["settings"]} for r in (record, fresh))
    names = [*wanted, *(name for name in known if name not in wanted)]
    return [f"{name} {known.get(name)}, not {wanted.get(name)}" for name in names if known.get(name) != wanted.get(name)]


def fill(
    record: Record,
    tasks: Sequence[Record],
    measure: Callable[[Record], Record],
    save: Save = None,
    show: Progress | None = None,
) -> Record:
    """Measure the tasks that `record` does not have yet, in their order.

    Parameters
    ----------
    record : dict
        Its runs, if there are any, are the first of the tasks. It is changed and returned.
    tasks : sequence of dict
        What tells one run from the others.
    measure : callable
        Gives what was found for a task, to be kept beside it.
    save : callable, optional
        Called with the record after each run (less often if that takes too long), and when the work is interrupted.
    show : Progress, optional
    """
    done = len(record["runs"])
    if [{name: run.get(name) for name in task} for run, task in zip(record["runs"], tasks, strict=False)] != tasks[:done]:
        raise ValueError("the record's runs are not those of its settings: it is damaged")
    if show is not None and done < len(tasks):
        show.stage(record["experiment"], len(tasks))
        show.advance(done)
    saved, not_before = done, 0.0
    try:
        for task in tasks[done:]:
            record["runs"].append(task | rounded(measure(task)))
            if save is not None and time.monotonic() >= not_before:
                start = time.monotonic()
                save(record)
                saved, not_before = len(record["runs"]), time.monotonic() + (time.monotonic() - start) / _SAVING
            if show is not None:
                show.advance(1)
    finally:
        if save is not None and saved < len(record["runs"]):
            save(record)
    return record


def quietly(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a solve gives, without a warning."""
    with without_warning():
        return function(*args, **options)


def rounded(x: Any) -> Any:
    """`x` for JSON, with floats of seven digits."""
    return jsonable(x, digits=7)


def run_seed(seed: int, *numbers: int) -> int:
    """The seed of one run of an experiment."""
    return int(np.random.SeedSequence([seed, *numbers]).generate_state(1)[0])
