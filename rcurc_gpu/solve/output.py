"""A directory with the result of a solve: parts while it runs, and in the end the factors as ``.npy`` files."""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from ..errors import ArgumentError
from ..extend.diagnostics import DIAGNOSTIC_NAMES, FILE_NAMES, LateDiagnostics, UnitDiagnostics
from ..files import UNREADABLE, line_of, load_npy, locked, naming, read_json, write_whole
from ..result.matrix import FACTORS, CURMatrix, matrix_from
from ..shards.on_disk import checksum
from .store import Arrays, Checkpoint, PartFolder, Saved, differences, seed_in_checkpoint

log = logging.getLogger("rcurc_gpu")

_SOLVE, _DONE = "solve.json", "done.json"
_FACTOR = {"r": "right", "c": "left"}
_UNITS = {"r": "columns", "c": "rows"}
_WITH_NOISE = ("covariance", "scale")  # arrays of a part that only the noise model gives


class Output:
    """A directory for the result of one solve.

    Parameters
    ----------
    folder : path
        A directory that is new, empty, or of the same solve, finished or not.
    identity : dict of str
        What the solve is.

    Raises
    ------
    ValueError
        If the directory is of another solve, or has other things in it.
    InUseError
        If another solve uses it now.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: dict[str, str], every: float) -> None:
        self.folder, self.identity = Path(folder), identity
        self._files: dict[str, list[Any]] = {}  # size and checksum of the assembled files, by name
        if not self.folder.absolute().parent.is_dir():
            raise FileNotFoundError(2, "output must lie in a directory that exists", str(folder))
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(20, "output must be a directory, got a file", str(folder))
        self.folder.mkdir(exist_ok=True)
        self._lock = locked(self.folder, f"output {str(folder)!r} is used by another solve")
        try:
            self._check(identity)
            (self.folder / "parts").mkdir(exist_ok=True)
            self.parts = PartFolder(str((self.folder / "parts").absolute()))
            self.steps = self._steps(every)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock on the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _check(self, identity: dict[str, str]) -> None:
        path = self.folder / _SOLVE
        if path.exists():
            try:
                found = dict(read_json(path))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{str(path)!r} is damaged ({error}); choose another output") from error
            if differ := differences(found, identity):
                raise ArgumentError(
                    "output",
                    f"{str(self.folder)!r} is of another solve: it differs in {differ}; choose another directory, or delete "
                    "this one if it is not needed",
                )
        elif any(not left.name.startswith(_SOLVE) for left in self.folder.iterdir()):  # left by a solve that was killed
            raise ArgumentError(
                "output", f"must be a new directory or one of the same solve, {str(self.folder)!r} has other files"
            )
        else:
            write_whole(path, lambda file: file.write(json.dumps(identity, indent=1).encode()))

    def _steps(self, every: float) -> Checkpoint:
        """The checkpoint of the core. One that cannot be read is replaced; stamps tell whether parts are of this core."""
        path = self.folder / "core.npz"
        try:
            return Checkpoint(path, self.identity, every, False)
        except ValueError as error:
            log.warning("%s: the core is solved again", error)
            path.unlink()
            return Checkpoint(path, self.identity, every, False)

    @property
    def done(self) -> dict[str, Any] | None:
        """What `finish` wrote; None if the solve is not finished."""
        path = self.folder / _DONE
        return _read_done(path) if path.exists() else None

    def assemble(self, side: str, saved: list[Saved], n_units: int) -> None:
        """Join the parts of a side in files, with one part at a time in memory."""
        # the checksums grow with the files, which are then not read again
        first = saved[0].load()
        n_found = 0
        paths = self._paths(side, [name for name in _WITH_NOISE if name in first])
        sums = dict.fromkeys(paths, 0)
        with _growing(paths, first, n_units) as files:
            for k, part in enumerate(saved):
                arrays = first if k == 0 else part.load()
                n_found += len(arrays["factor"])
                for name, file in files.items():
                    data = np.ascontiguousarray(arrays[name]).data.cast("B") if len(arrays[name]) else b""
                    with naming(paths[name]):
                        file.write(data)
                    sums[name] = zlib.crc32(data, sums[name])
            if n_found != n_units:
                raise RuntimeError(
                    f"the parts in {self.parts.folder!r} have {n_found} {_UNITS[side]} where {n_units} belong"
                )
        for name, path in paths.items():
            self._files[path.name] = [path.stat().st_size, f"{sums[name]:08x}"]

    def finish(self, rows: np.ndarray, cols: np.ndarray, told: dict[str, Any]) -> None:
        """Write that the result is complete, and delete the parts; `told` is for later runs.

        The order matters: killed at any moment, either the parts or ``done.json`` and all files it lists are there.
        """
        for name, chosen in (("rows", rows), ("cols", cols)):
            write_whole(self.folder / f"{name}.npy", partial(np.save, arr=chosen))
        told = told | {"files": self._files}
        write_whole(self.folder / _DONE, lambda file: file.write(json.dumps(told).encode()))
        self.parts.forget()

    def load(self, side: str, n_units: int) -> Arrays:
        """The factor and the diagnostics of a side, memory-mapped."""
        known = self._files or _read_done(self.folder / _DONE)["files"]
        paths = {name: path for name, path in self._paths(side, _WITH_NOISE).items() if path.name in known}
        arrays = {name: _mapped(path, known[path.name], verify=not self._files) for name, path in paths.items()}
        for name, path in paths.items():
            if len(arrays[name]) != n_units:
                raise ValueError(
                    f"{str(path)!r} is damaged: it has {len(arrays[name])} {_UNITS[side]} where {n_units} belong"
                )
        return arrays

    def _paths(self, side: str, more: Iterable[str]) -> dict[str, Path]:
        names = {
            name: self.folder / f"{_UNITS[side]}_{file}.npy" for name, file in zip(DIAGNOSTIC_NAMES, FILE_NAMES, strict=True)
        }
        names |= {name: self.folder / f"{_UNITS[side]}_{name}.npy" for name in more}
        return {"factor": self.folder / f"{_FACTOR[side]}.npy"} | names


@contextmanager
def _growing(paths: dict[str, Path], like: Arrays, n_units: int) -> Iterator[dict[str, Any]]:
    """Open new files for arrays of `n_units` rows each, to be written row by row; they appear whole or not at all."""
    files = {name: open(f"{path}.part", "wb") for name, path in paths.items()}  # noqa: SIM115
    try:
        for name, file in files.items():
            array = like[name]
            header = {"descr": npy.dtype_to_descr(array.dtype), "fortran_order": False, "shape": (n_units, *array.shape[1:])}
            npy.write_array_header_1_0(file, header)
        yield files
        for name, file in files.items():
            with naming(paths[name]):
                file.flush()
                os.fsync(file.fileno())
    finally:
        for file in files.values():
            file.close()
    # only when all files are written and synced: a file that is there is whole
    for path in paths.values():
        os.replace(f"{path}.part", path)


def diagnostics_of(arrays: Arrays) -> UnitDiagnostics:
    """The diagnostics among arrays of a side; those on a device come to the host when they are looked at."""
    if "known" in arrays:
        return LateDiagnostics(arrays["known"].known)
    return UnitDiagnostics(*(arrays[name] for name in DIAGNOSTIC_NAMES))


def open_result(folder: str | os.PathLike[str], *, verify: bool = False) -> CURMatrix:
    """The matrix that ``rcurc(samples, ..., output=folder)`` wrote, with memory-mapped factors.

    Parameters
    ----------
    folder : path
    verify : bool
        Read the factors now, and compare them with their checksums.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> result = rg.rcurc(rg.ShardedSamples.of(problem.samples), rank=2, output="result")
    >>> cur = rg.open_result("result")  # later, in another process
    >>> problem.relative_error(cur) < 1e-8
    True
    """
    path = Path(folder)
    if not (path / _DONE).exists():
        what = "the solve did not come to an end; the same call goes on" if (path / _SOLVE).exists() else "it is no result"
        raise ValueError(f"{os.fspath(folder)!r} has no {_DONE}: {what}")
    known = _read_done(path / _DONE)["files"]
    arrays = {name: _mapped(path / f"{name}.npy", known.get(f"{name}.npy"), verify) for name in FACTORS}
    return matrix_from(os.fspath(folder), arrays)


def last_seed(checkpoint: Any, output: Any) -> int | None:
    """The seed of an earlier solve with this checkpoint or output; None if there is none.

    Foreign files are ignored here; the code that opens them reports them.
    """
    try:
        if output is not None:
            return int(read_json(Path(output) / _SOLVE)["seed"])
        return None if checkpoint is None else seed_in_checkpoint(checkpoint)
    except UNREADABLE:
        return None


def _read_done(path: Path) -> dict[str, Any]:
    """What `Output.finish` wrote."""
    try:
        told: dict[str, Any] = read_json(path)
        _ = told["r"], told["c"]
        known = told["files"]
        if not all(type(size) is int and isinstance(crc32, str) for size, crc32 in known.values()):
            raise ValueError("sizes or checksums of files are none")
        if not {f"{name}.npy" for name in _FACTOR.values()} <= set(known):
            raise ValueError("factors are missing")
    except UNREADABLE as error:
        raise ValueError(f"{str(path)!r} is damaged; delete it, and the same solve makes the result again") from error
    return told


def _mapped(path: Path, known: list[Any] | None, verify: bool) -> np.ndarray:
    """A memory-mapped array of a file that has the size it was written with and, to `verify`, the checksum."""
    try:
        found = path.stat().st_size
        array = load_npy(path, mmap_mode="r")
    except FileNotFoundError:
        raise FileNotFoundError(2, "a file of the result is missing", str(path)) from None
    except UNREADABLE as error:
        raise ValueError(f"{str(path)!r} is damaged ({line_of(error)})") from error
    if known is not None and found != known[0]:
        raise ValueError(f"{str(path)!r} is damaged: it has {found:,} bytes where {known[0]:,} were written")
    if known is not None and verify and checksum([array]) != known[1]:
        raise ValueError(f"{str(path)!r} is damaged: its checksum is not the one it had")
    return array
