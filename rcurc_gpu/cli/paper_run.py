"""One experiment of ``rcurc-gpu paper``: take up what is there, compute, save, draw, and say so."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from ..paper import Record, differences, new_record, read_record, rounded, write_record
from ..progress import Progress
from .common import errors_in_options, files_words, finish, make_directory, saved_words, stoppable, writing_to
from .options import CommandOptions
from .outputs import save_picture

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
        With ``compute``, ``summarize``, ``words``, ``is_good`` and ``draw``; with ``tasks`` if it can be taken up again.
    settings : dataclass
    options : CommandOptions
        Where to save, whether to replace what is there, and what to print.
    option_of : dict
        The option for each argument that the library may complain about.
    saved : list of Path
        Filled as files appear.
    """

    name: str
    module: Any
    settings: Any
    options: CommandOptions
    option_of: dict[str, str]
    saved: list[Path] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """Where the record is."""
        return self._file("json")

    def _file(self, kind: str) -> Path:
        return Path(self.options.output) / f"{self.name}.{kind}"

    def run(self) -> None:
        """Do all of it, and end with the exit status."""
        tell = self.options.say
        with stoppable(self._kept):
            make_directory(self.options.output)
            record = self._computed()
            summary = record["summary"] = rounded(self.module.summarize(record))
            with writing_to(self.options.output):
                write_record(self.path, record)
                self.saved.append(self.path)
                tell(self.module.words(record, summary))
                files = {"data": self.path, **self._drawn(record)}
        again = " (then the same command draws, without computing again)"
        tell(files_words(*(files[name] for name in ("data", "png", "pdf")), skipped=files["plot_skipped"], again=again))
        report = {name: record[name] for name in ("experiment", "version", "settings")}
        report |= {"summary": _short(summary), "files": files}
        finish(report, self.options.as_json, good=self.module.is_good(summary))

    def _total(self) -> int | None:
        """How many problems there are; None if they are not saved one by one."""
        return len(self.module.tasks(self.settings)) if hasattr(self.module, "tasks") else None

    def _computed(self) -> Record:
        """The complete record; `saved` gets the path as soon as there is something."""
        record = None if self.options.force else self._earlier()
        with errors_in_options(self.option_of, memory=_MEMORY, usage=True), Progress(self.options.visible) as show:
            total = self._total()
            if total is None:
                return self.module.compute(self.settings, show=show)
            if record is not None:
                self.saved.append(self.path)
                done = len(record["runs"])
                again = "complete, only drawn again (--force measures anew)"
                there = again if done == total else f"{done} of {total} problems are there already"
                self.options.say(f"{self.path}: {there}")
            return self.module.compute(self.settings, record, self._save, show)

    def _save(self, record: Record) -> None:
        with writing_to(self.path.parent):
            write_record(self.path, record)
        self.saved[:] = [self.path]

    def _earlier(self) -> Record | None:
        """What was computed before with the same settings; an error if there is something else."""
        place, hint = repr(str(self.path)), "choose another --output, or replace it with --force"
        try:
            record = read_record(self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise click.UsageError(f"cannot read {place}: {error.strerror}") from error
        except ValueError as error:
            raise click.UsageError(f"{' '.join(str(error).split())}; {hint}") from error
        others = differences(record, new_record(self.name, self.settings))
        if others:
            raise click.UsageError(f"{place} was made with other settings ({'; '.join(others)}); {hint}")
        return record

    def _drawn(self, record: Record) -> dict[str, Any]:
        """Write the pictures, if matplotlib is there; say what was written and what was not."""
        try:
            figure = self.module.draw(record)
        except ImportError as error:
            return {"png": None, "pdf": None, "plot_skipped": str(error)}
        for kind, metadata in (("png", {}), ("pdf", {"CreationDate": None})):  # the same record, the same bytes
            save_picture(figure, self._file(kind), self.saved, format=kind, dpi=_DPI, metadata=metadata)
        return {"png": self._file("png"), "pdf": self._file("pdf"), "plot_skipped": None}

    def _kept(self) -> str:
        kept, total = saved_words(self.saved, end="."), self._total()
        if self.saved == [self.path] and total is not None:
            done = len(read_record(self.path)["runs"])
            kept += f" It has {done} of {total} problems; the same command resumes from there."
        return kept


def _short(summary: Record) -> Record:
    """`summary` without what is only of use in a picture."""
    if "curves" not in summary:
        return summary
    curves = [{name: value for name, value in curve.items() if name != "series"} for curve in summary["curves"]]
    return {**summary, "curves": curves}
