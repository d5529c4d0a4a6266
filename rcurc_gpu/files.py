"""Files that are written atomically; one ``.npz`` without pickle per object, checked when read; values for JSON."""

from __future__ import annotations

import gzip
import json
import math
import os
import stat
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from .errors import InUseError

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
    RecursionError,
    struct.error,
    AttributeError,
)
UNREADABLE = (*MALFORMED, OSError, RuntimeError)  # and for a file that the system, or zipfile (encrypted), cannot read

# What a file may unpack to: so many bytes, or so many times its size. Tables in gzip have 3 to 30 times their size; files
# that mean harm have 1,000 times and more.
ROOM = 256 << 20
JUSTIFIED = 100
_LARGEST_JSON = 16 << 20  # bytes of a file of ours, which has 200 for each shard; in memory it takes twenty times as much
# zipfile unpacks these piece by piece; of others it takes whatever a piece unpacks to
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


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


def open_file(path: str | os.PathLike[str], buffering: int = -1) -> Any:
    """Open a file to read its bytes; a pipe or a device, which may never end, is refused and not waited for."""
    not_waiting = getattr(os, "O_NONBLOCK", 0)
    file = open(path, "rb", buffering, opener=lambda name, flags: os.open(name, flags | not_waiting))  # noqa: SIM115
    try:
        size_of(path, os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def size_of(path: str | os.PathLike[str], told: os.stat_result | None = None) -> int:
    """How many bytes a file has, as the system `told`; what is not a file is refused."""
    told = os.stat(path) if told is None else told
    if not stat.S_ISREG(told.st_mode):
        raise ValueError(f"{os.fspath(path)!r} is not a file but a directory, a pipe or a device")
    return told.st_size


def read_npz(path: str | os.PathLike[str], kind: str, needed: Iterable[str]) -> dict[str, np.ndarray]:
    """Read what `write_npz` wrote as `kind`, or raise an error that says why the file is not that."""
    with open_file(path) as handle:  # the system's own error for a missing file is clear
        if not zipfile.is_zipfile(handle):
            raise ValueError(f"{os.fspath(path)!r} is not a {kind} file, or is truncated (it is not a complete zip archive)")
        handle.seek(0)
        try:
            with load_npz(handle) as file:
                arrays = {name: file[name] for name in file.files}
        except UNREADABLE as error:
            raise ValueError(f"{os.fspath(path)!r} is not a {kind} file, or is damaged ({line_of(error)})") from error
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
        with open_file(path) as handle, load_npz(handle) as file:
            header = file["format"]
    except UNREADABLE:
        return ""
    text = str(header) if header.dtype.kind == "U" and header.ndim == 0 else ""
    return text if text.startswith("rcurc-gpu ") else ""


# ---------------------------------------------------------------- files that declare or unpack more than they have


def line_of(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


class UnpackedError(ValueError):
    """A file unpacks to far more than it should."""


def check_unpacked(packed: int, unpacked: int, room: int = ROOM, justified: int = JUSTIFIED) -> None:
    """Refuse a file of `packed` bytes that takes as much as `unpacked` bytes, before it does."""
    if unpacked > max(room, justified * packed):
        raise UnpackedError(f"its {packed:,} bytes unpack to {unpacked:,} or more, which is far more than they should")


class Gunzipped(gzip.GzipFile):
    """What a gzip file has in it; with `bounded`, as long as that is not far more than the file should have."""

    def __init__(self, raw: Any, *, bounded: bool = True) -> None:
        super().__init__(fileobj=raw)
        self._packed = os.fstat(raw.fileno()).st_size if bounded else None
        self._given = 0

    def read(self, size: int | None = -1) -> bytes:
        """Some bytes."""
        data = super().read(size)
        self._given += len(data)
        if self._packed is not None:
            check_unpacked(self._packed, self._given)
        return data


def load_npz(handle: BinaryIO) -> Any:
    """An ``.npz`` file as `numpy.load` gives it, once all that its headers declare was compared with what is there."""
    with zipfile.ZipFile(handle) as archive:
        members = archive.infolist()
        check_unpacked(os.fstat(handle.fileno()).st_size, sum(member.file_size for member in members))
        for member in members:
            if member.compress_type not in _BOUNDED:
                raise ValueError(f"{member.filename!r} is compressed in a way that NumPy does not write")
            if member.filename.endswith(".npy"):
                with archive.open(member) as file:
                    check_array(file, member.file_size)
    handle.seek(0)
    return np.load(handle, allow_pickle=False)


def load_npy(path: str | os.PathLike[str], mmap_mode: Any = None) -> np.ndarray:
    """The array of an ``.npy`` file that has as many bytes as its header declares."""
    with open_file(path) as file:
        check_array(file, os.fstat(file.fileno()).st_size)
    array: np.ndarray = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    return array


def check_array(file: Any, size: int) -> None:
    """Refuse an array whose header, read from the start of `file`, declares more than the `size` bytes of the file."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, not numbers")
    declared, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if min(shape, default=0) < 0 or declared > there:
        raise ValueError(f"its header declares an array of {shape} and {dtype}, {declared:,} bytes, where {there:,} are")


def read_json(path: str | os.PathLike[str]) -> Any:
    """What a JSON file holds, or a ValueError that says in a line why it cannot be read."""
    try:
        with open_file(path) as file:
            if size_of(path, os.fstat(file.fileno())) > _LARGEST_JSON:
                raise ValueError(f"it has more than {_LARGEST_JSON:,} bytes")
            return json.loads(file.read())
    except (ValueError, RecursionError) as error:  # bytes that are no text are a ValueError, too
        raise ValueError(
            "its brackets are nested too deep" if isinstance(error, RecursionError) else line_of(error)
        ) from error


# ---------------------------------------------------------------- one process at a time


def locked(path: str | os.PathLike[str], what: str) -> int | None:
    """Lock a file or directory until the number that is given is closed (`os.close`), at most until this process ends.

    None on systems and file systems without locks. The lock holds on this machine, and on some file systems on all machines
    that see the path.

    Parameters
    ----------
    path : path
    what : str
        What the error says: that something is used by another.

    Raises
    ------
    InUseError
        If another process, or another part of this one, has it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InUseError(f"{what}; wait for its end, or choose another") from None
    except OSError:  # a file system without locks
        os.close(handle)
        return None
    return handle


class LockFile:
    """A lock on a file that is replaced again and again, by another beside it that `release` deletes.

    Parameters
    ----------
    path : Path
        The file to lock; it need not be there.
    what : str
        What the error says: that something is used by another.
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path.with_name(f"{path.name}.lock")
        self._handle: int | None = None
        while True:
            with naming(path):
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666))
                try:
                    self._handle = locked(self.path, what)
                except FileNotFoundError:  # whoever had it has just deleted it
                    continue
            if self._handle is None or self._is_there():
                return
            os.close(self._handle)

    def _is_there(self) -> bool:
        """Whether what is locked is still the file of this name."""
        assert self._handle is not None
        try:
            return os.path.samestat(os.fstat(self._handle), os.stat(self.path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others have it; a second call does nothing."""
        if self._handle is not None:
            self.path.unlink(missing_ok=True)  # before the lock is gone: afterwards it may be another's
            os.close(self._handle)
            self._handle = None


# ---------------------------------------------------------------- JSON


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
