"""What the commands that write files share: outputs that replace only their own kind."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import npz_header, write_whole
from ..io import OUTLIER_HEADER, WantedEntries, delimiter_of, read_pairs
from .common import BadInput
from .options import CommandOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE_ENDINGS = (".csv", ".tsv", ".txt")


def check_output(
    option: str, path: Path, is_ours: Callable[[Path], bool], force: bool, inputs: list[Path], endings: tuple[str, ...] = ()
) -> None:
    """Refuse, before the work, a place that cannot be written or that holds something else.

    Parameters
    ----------
    option : str
        What to name in the error.
    path : Path
    is_ours : callable
        Whether an existing file is of the kind that will be written.
    force : bool
        Replace it whatever it is, but never one of the `inputs`.
    endings : tuple of str
        What the name may end in; anything if there are none.
    """
    folder = path.parent
    if not folder.is_dir():
        raise BadInput(f"{option}: there is no directory {str(folder)!r}")
    if not os.access(folder, os.W_OK):
        raise BadInput(f"{option}: cannot write to the directory {str(folder)!r}")
    if path.is_dir():
        raise BadInput(f"{option}: {str(path)!r} is a directory")
    if path.exists() and any(other.exists() and path.samefile(other) for other in inputs):
        raise BadInput(f"{option}: {str(path)!r} is one of the files to read; it is not replaced")
    if endings and path.suffix.lower() not in endings:
        *most, last = endings
        raise BadInput(f"{option}: {str(path)!r} must end in {', '.join(most)}{' or ' if most else ''}{last}")
    if path.exists() and not force and not is_ours(path):
        raise BadInput(
            f"{option}: {str(path)!r} exists, and this command did not write it; choose another name, or pass --force"
        )


def check_outputs(options: CommandOptions, beside: Path, *headers: tuple[str, ...]) -> Path | None:
    """Refuse, before the work, outputs of a solve that are in one place or that replace something else.

    Parameters
    ----------
    options : CommandOptions
    beside : Path
        The file beside which predictions go, unless ``--predictions`` says where.
    *headers : tuples of str
        What predictions may have for a header.

    Returns
    -------
    Path or None
        Where predictions go.
    """
    names = ("output", "predictions", "outliers", "suspicious", "checkpoint")
    outputs: dict[str, Path | None] = {name: getattr(options, name, None) for name in names}
    outputs["predictions"] = _predictions_place(options.predict, options.predictions, beside)
    _check_different(outputs)
    inputs = [path for path in (options.file, options.predict) if path is not None]
    kinds = {"output": (is_result, (".npz",)), "predictions": (is_table(*headers), TABLE_ENDINGS)}
    kinds |= dict.fromkeys(("outliers", "suspicious"), (is_table(OUTLIER_HEADER), TABLE_ENDINGS))
    for name, (is_ours, endings) in kinds.items():
        path = outputs[name]
        if path is not None:
            check_output(f"--{name}", path, is_ours, options.force, inputs, endings)
    return outputs["predictions"]


def _check_different(outputs: dict[str, Path | None]) -> None:
    taken: dict[Path, str] = {}
    for option, path in outputs.items():
        first = option if path is None else taken.setdefault(path.absolute(), option)
        if first != option:
            raise BadInput(f"--{first} and --{option} are the same file, {str(path)!r}")


def _predictions_place(predict: Path | None, predictions: Path | None, beside: Path) -> Path | None:
    if predict is None and predictions is not None:
        raise BadInput("--predictions says where to write what --predict asks for; --predict is missing")
    if predict is not None and predictions is None:
        return beside.with_name(f"{beside.stem}-predictions.csv")
    return predictions


def wanted_entries(options: CommandOptions, columns: tuple[str | None, ...] | None) -> WantedEntries | None:
    """What ``--predict`` asks for; its columns may be called as those of the observations are."""
    if options.predict is None:
        return None
    row, column = (columns or (None, None))[:2]
    usual = None if row is None or column is None else (row, column)
    return read_pairs(options.predict, usual=usual, progress=options.visible)


def is_samples(path: Path) -> bool:
    """Whether a file is one of samples."""
    return "CrossSamples" in npz_header(path)


def is_result(path: Path) -> bool:
    """Whether a file is a result, with labels or without."""
    return "CURMatrix" in npz_header(path)


_USERS = ("row", "column", "value")  # what the user may call otherwise


def is_table(*headers: tuple[str, ...]) -> Callable[[Path], bool]:
    """A test whether a file is a table with one of these headers; the first columns may be called as the user calls them."""

    def test(path: Path) -> bool:
        with path.open("rb") as file:
            first = file.read(4000).partition(b"\n")[0].rstrip(b"\r").decode(errors="replace")
        found = next(csv.reader([first], delimiter=delimiter_of(path)), [])
        return any(len(found) == len(header) and _same(found, header) for header in headers)

    def _same(found: list[str], header: tuple[str, ...]) -> bool:
        own = header[len([name for name in header if name in _USERS]) :]
        return tuple(found[-len(own) :]) == own if own else tuple(found) == header

    return test


def save_picture(figure: Figure, path: Path, saved: list[Path], **options: Any) -> None:
    """Write a figure, whole or not at all; `saved` gets the path."""
    write_whole(path, lambda file: figure.savefig(file, **{"format": "png", **options}))
    if path not in saved:
        saved.append(path)


PICTURE_MARK = "rcurc-gpu plot"  # in the metadata of our pictures


def is_picture(path: Path) -> bool:
    """Whether a file is a picture that ``rcurc-gpu plot`` made."""
    with path.open("rb") as file:
        start = file.read(1000)
    return start.startswith(b"\x89PNG") and PICTURE_MARK.encode() in start
