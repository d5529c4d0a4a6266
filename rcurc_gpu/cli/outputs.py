"""What the commands that write files share: outputs that replace only their own kind."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..files import npz_header
from ..io import delimiter_of
from .common import BadInput

TABLE_ENDINGS = (".csv", ".tsv", ".txt")


def check_output(
    option: str,
    path: Path,
    is_ours: Callable[[Path], bool],
    force: bool,
    inputs: list[Path],
    endings: tuple[str, ...] = (),
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
            f"{option}: {str(path)!r} exists and is no such file of an earlier run; choose another name, or pass --force"
        )


def different(**outputs: Path | None) -> None:
    """Refuse two outputs in one place."""
    taken: dict[Path, str] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        first = taken.setdefault(path.absolute(), option)
        if first != option:
            raise BadInput(f"--{first} and --{option} are the same file, {str(path)!r}")


def predictions_place(predict: Path | None, predictions: Path | None, beside: Path) -> Path | None:
    """Where predictions go: as `predictions` says, or beside another file; None if none are asked for."""
    if predict is None and predictions is not None:
        raise BadInput("--predictions says where to write what --predict asks for; --predict is missing")
    if predict is not None and predictions is None:
        return beside.with_name(f"{beside.stem}-predictions.csv")
    return predictions


def check_tables(tables: dict[str, tuple[Path | None, tuple[str, ...]]], force: bool, inputs: list[Path]) -> None:
    """`check_output` of the tables to be written: by option, where and with which header."""
    for option, (path, header) in tables.items():
        if path is not None:
            check_output(option, path, is_table(header), force, inputs, TABLE_ENDINGS)


def is_samples(path: Path) -> bool:
    """Whether a file is one of samples."""
    return "CrossSamples" in npz_header(path)


def is_result(path: Path) -> bool:
    """Whether a file is a result, with labels or without."""
    return "CURMatrix" in npz_header(path)


def is_table(header: tuple[str, ...]) -> Callable[[Path], bool]:
    """A test whether a file is a table with this header."""

    def test(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(200).partition(b"\n")[0].rstrip(b"\r") == delimiter_of(path).join(header).encode()

    return test


PICTURE_MARK = "rcurc-gpu plot"  # in the metadata of our pictures


def is_picture(path: Path) -> bool:
    """Whether a file is a picture that ``rcurc-gpu plot`` made."""
    with path.open("rb") as file:
        start = file.read(1000)
    return start.startswith(b"\x89PNG") and PICTURE_MARK.encode() in start
