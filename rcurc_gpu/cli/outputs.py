"""What the commands that read and write files share: errors in one line, and outputs that replace only their own kind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from ..backends import namespace_for_device
from ..files import npz_header
from ..io import delimiter_of
from .common import STOPPED

IN_FILE = click.Path(path_type=Path)  # whether it is there and can be read is said by who reads it, in one way for all


class BadInput(click.ClickException):
    """A file or an option is wrong; unlike click's own error, one line without the usage."""

    exit_code = 2


@contextmanager
def one_line_errors(options: dict[str, str] | None = None) -> Iterator[None]:
    """Turn what the library says of a file or an argument into one line and the exit code 2.

    Parameters
    ----------
    options : dict, optional
        The option that an argument of the library came from.
    """
    try:
        yield
    except np.linalg.LinAlgError:
        raise  # a ValueError by inheritance, but not about an input
    except MemoryError as error:
        raise BadInput(f"it does not fit into the memory ({_line(error) or 'no more is free'})") from error
    except OSError as error:
        name = f" {error.filename!r}" if error.filename is not None else ""
        raise BadInput(f"cannot read or write{name}: {error.strerror or _line(error)}") from error
    except ImportError as error:
        raise BadInput(_line(error)) from error
    except RuntimeError as error:
        if "device=" not in str(error):
            raise
        raise BadInput(re.sub(r"\bdevice='([\w:]+)'", r"--device \1", _line(error))) from error
    except (ValueError, TypeError) as error:
        message = _line(error).replace("duplicates='mean' or 'median'", "--duplicates mean (or median)")
        message = re.sub(r"(?<![\w'])(row|column|value)_column\b(?!')", r"--\1-column", message)
        message = re.sub(r"^header is (for text files), got \w+", r"--header and --no-header are \1, not", message)
        word = re.match(r"\w+", message)
        if word is not None and options and word[0] in options:
            message = options[word[0]] + message[word.end() :]
        raise BadInput(message) from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


@contextmanager
def stoppable(saved: list[Path], checkpoint: Path | None = None) -> Iterator[None]:
    """Ctrl-C ends the command with 130, and says what was saved by then, and whether the same command goes on."""
    try:
        yield
    except KeyboardInterrupt:
        kept = ", ".join(map(str, saved))
        words = f"Saved before that: {kept}" if saved else "Nothing was saved."
        if checkpoint is not None and checkpoint.exists():
            words = f"What was done is kept in {checkpoint}: the same command goes on from there."
        click.echo(f"\nStopped. {words}", err=True)
        raise SystemExit(STOPPED) from None


def device_name(wanted: str) -> str:
    """What to pass to the solver: "cpu" or a CUDA device."""
    with one_line_errors({"device": "--device"}):
        return namespace_for_device(wanted)[1]


# ---------------------------------------------------------------- outputs


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


# ---------------------------------------------------------------- options


def column_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which columns of a table to read."""
    for option in (
        click.option(
            "--header/--no-header",
            default=None,
            help="Whether the first line of a text file names its columns.  [default: find out]",
            show_default=False,
        ),
        click.option("--value-column", metavar="NAME", help="Column of a table with the values.  [default: the third]"),
        click.option("--column-column", metavar="NAME", help="Column with the labels of columns.  [default: the second]"),
        click.option(
            "--row-column", metavar="NAME", help="Column of a table with the labels of rows.  [default: the first]"
        ),
    ):
        command = option(command)
    return command


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say how to read a table."""
    return column_options(
        click.option(
            "--duplicates",
            type=click.Choice(["error", "mean", "median"]),
            default="error",
            help="What to do where an entry is observed twice with different values.",
        )(command)
    )
