"""Files that are written atomically; one ``.npz`` without pickle per object, checked when read; values for JSON."""

from __future__ import annotations

import math
import os
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_VERSION = 1  # of the format: another number makes older files unreadable
# What NumPy, SciPy and the modules under them raise for a file that is not what it should be.
MALFORMED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    OverflowError,
    NotImplementedError,
    SyntaxError,
    tokenize.TokenError,
)
UNREADABLE = (*MALFORMED, OSError, RuntimeError)  # and for a file that the system, or zipfile (encrypted), cannot read


def write_npz(path: str | os.PathLike[str], kind: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write `arrays` under a header that names their `kind`."""
    header = np.asarray(f"rcurc-gpu {kind} {_VERSION}")
    write_whole(path, lambda file: np.savez(file, allow_pickle=False, format=header, **arrays))


def write_whole(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a new file, which then appears at `path` whole or not at all."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with naming(path), os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())  # before the rename, or a power cut could leave an empty file under the name
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp's 0600 is not what a user expects of a result
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add the file's name to an error of the system: for a full disk it does not say which file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # NumPy's own error, which says how many bytes were not written
            error.args = (f"{error}: {os.fspath(path)!r}",)
        elif error.filename is None:
            error.filename = os.fspath(path)
        raise


def read_npz(path: str | os.PathLike[str], kind: str, needed: Iterable[str]) -> dict[str, np.ndarray]:
    """Read what `write_npz` wrote as `kind`, or raise an error that says why the file is not that."""
    with open(path, "rb") as handle:  # the system's own error for a missing file is clear
        if not zipfile.is_zipfile(handle):
            raise ValueError(f"{os.fspath(path)!r} is not a {kind} file, or is truncated (it is not a complete zip archive)")
        handle.seek(0)
        try:
            with np.load(handle, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
        except UNREADABLE as error:
            raise ValueError(f"{os.fspath(path)!r} is not a {kind} file, or is damaged ({error})") from error
    header = str(arrays.pop("format", ""))
    if header != f"rcurc-gpu {kind} {_VERSION}":
        found = f"it says {header!r}" if header else "it has no header of rcurc-gpu"
        raise ValueError(f"{os.fspath(path)!r} is not a {kind} file of version {_VERSION}: {found}")
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise ValueError(f"{os.fspath(path)!r} lacks {', '.join(missing)}: the {kind} file is damaged")
    return arrays


def npz_header(path: str | os.PathLike[str]) -> str:
    """The header of a file, such as "rcurc-gpu CURMatrix 1"; empty if the file is not from this library."""
    try:
        with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as file:  # np.load closes its own too late
            header = file["format"]
    except UNREADABLE:
        return ""
    text = str(header) if header.dtype.kind == "U" and header.ndim == 0 else ""
    return text if text.startswith("rcurc-gpu ") else ""


def jsonable(x: Any, digits: int = 17) -> Any:
    """`x` with what JSON has: null for NaN and infinity, floats of so many digits (17 keep all), texts for paths."""
    if isinstance(x, dict):
        return {name: jsonable(value, digits) for name, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [jsonable(value, digits) for value in x]
    if isinstance(x, float):
        return float(f"{x:.{digits}g}") if math.isfinite(x) else None
    if isinstance(x, np.bool_):
        return bool(x)
    return str(x) if isinstance(x, Path) else x


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
