"""What an experiment has measured so far, as a dictionary for JSON: a long one can be interrupted and taken up again."""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..errors import ConvergenceWarning
from ..files import write_whole
from ..progress import Progress

Record = dict[str, Any]
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
    known = {"experiment": record["experiment"], "version": record["version"], **record["settings"]}
    wanted = {"experiment": fresh["experiment"], "version": fresh["version"], **fresh["settings"]}
    names = [*wanted, *(name for name in known if name not in wanted)]
    return [f"{name} {known.get(name)}, not {wanted.get(name)}" for name in names if known.get(name) != wanted.get(name)]


def fill(
    record: Record,
    tasks: Sequence[Record],
    measure: Callable[[Record], Record],
    save: Callable[[Record], None] | None = None,
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
    saver = _Saver(record, save)
    try:
        for task in tasks[done:]:
            record["runs"].append(task | rounded(measure(task)))
            saver.offer()
            if show is not None:
                show.advance(1)
    finally:
        saver.finish()
    return record


class _Saver:
    """Saves what is new, unless saving would take too much of the time."""

    def __init__(self, record: Record, save: Callable[[Record], None] | None) -> None:
        self.record, self.save = record, save
        self.saved, self.next = len(record["runs"]), 0.0

    def offer(self) -> None:
        if time.monotonic() >= self.next:
            self.finish()

    def finish(self) -> None:
        if self.save is None or self.saved == len(self.record["runs"]):
            return
        start = time.monotonic()
        self.save(self.record)
        now = time.monotonic()
        self.saved, self.next = len(self.record["runs"]), now + (now - start) / _SAVING


def quietly(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a solve gives, without the warning whose text is the result's message, which is in the record."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return function(*args, **options)


def rounded(x: Any) -> Any:
    """`x` with plain floats of seven digits, and None for those that JSON does not have."""
    if isinstance(x, dict):
        return {name: rounded(value) for name, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [rounded(value) for value in x]
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    if isinstance(x, float):
        return float(f"{x:.7g}") if math.isfinite(x) else None
    return x


def run_seed(seed: int, *numbers: int) -> int:
    """The seed of one run of an experiment."""
    return int(np.random.SeedSequence([seed, *numbers]).generate_state(1)[0])
