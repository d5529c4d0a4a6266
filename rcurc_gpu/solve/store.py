"""The store of a long solve: killed at any moment, the same call resumes from it.

A solve is a sequence of steps whose order follows from its arguments alone: iterations of cores at some rank, and passes
over the shards of both sides, each of which gives a part. ``checkpoint=`` keeps all of it in one file, which is rewritten
from time to time. ``output=`` keeps each part in its own file, in the directory of the factors (`output.Output`), and the
steps of the core in a file like the one above.
"""

from __future__ import annotations

import logging
import os
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .. import files
from .._version import __version__
from ..backends.arrays import Array, device_name, to_numpy
from ..backends.kernels import choose
from ..errors import ArgumentError, InUseError
from ..options import Settings
from ..samples.view import CoreView
from ..shards.on_disk import block_checksum, checksum
from ..shards.source import OnDisk, Shard

log = logging.getLogger("rcurc_gpu")

_WRITING = 20  # a file is rewritten after at least this many times the time that writing took: at most 5 % of a solve
_PART = "shard part"

Arrays = dict[str, Any]  # by name, anywhere


class Step:
    """One step of a solve in its checkpoint."""

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self._checkpoint, self._name = checkpoint, name

    @property
    def saved(self) -> dict[str, np.ndarray] | None:
        """What an earlier run saved, or None."""
        return self._checkpoint.steps.get(self._name)

    def save(self, arrays: dict[str, Any]) -> None:
        """Replace what is saved of this step by `arrays`, from any device; the file is written later."""
        self._checkpoint.put(self._name, arrays)


class Checkpoint:
    """The steps and parts of one solve in a file.

    Parameters
    ----------
    path : str or path
    identity : dict of str
        What the solve is; a file with another identity is refused.
    every : float
        Seconds between two writes, at least.
    lock : bool
        Keep other solves from using the file until `close`.

    Raises
    ------
    ValueError
        If there is a file of another solve, or another file; it is left as it is.
    InUseError
        If another solve uses it now.
    """

    def __init__(self, path: str | os.PathLike[str], identity: dict[str, str], every: float, lock: bool = True) -> None:
        self.path, self.identity, self.every = Path(path), identity, every
        self.steps: dict[str, dict[str, Any]] = {}
        self.elapsed = 0.0  # of earlier runs
        self._count = 0
        self._started = self._written = time.monotonic()
        self._pause = every
        self._changed = False
        if not self.path.absolute().parent.is_dir():
            raise FileNotFoundError(f"checkpoint must lie in a directory that exists, got {str(self.path)!r}")
        self._lock = files.LockFile(self.path, f"checkpoint {str(self.path)!r} is used by another solve") if lock else None
        try:
            if self.path.exists():
                self._read()
        except BaseException:
            self.close()
            raise

    def step(self, name: str) -> Step:
        """The next step."""
        self._count += 1  # the same call makes the same steps in the same order, so the number identifies one
        return Step(self, f"{self._count:06d} {name}")

    @property
    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._written >= self._pause

    def put(self, step: str, arrays: dict[str, Any]) -> None:
        """Save the arrays of a step, and write the file if it is time."""
        self.steps[step] = arrays
        self._changed = True
        if self.due:
            self.write()

    def close(self) -> None:
        """Write the file if anything changed, and let others use it."""
        try:
            self.write()
        finally:
            if self._lock is not None:
                self._lock.release()

    def write(self) -> None:
        """Write the file if anything changed; it always holds one complete state, the earlier one or this one."""
        if not self._changed:
            return
        begun = time.monotonic()
        for parts in self.steps.values():  # only now: an earlier copy would wait for the device
            parts.update((name, to_numpy(x)) for name, x in parts.items() if not isinstance(x, np.ndarray))
        arrays = {f"{step}|{name}": x for step, parts in self.steps.items() for name, x in parts.items()}
        arrays |= {f"identity|{name}": np.asarray(value) for name, value in self.identity.items()}
        arrays["elapsed"] = np.asarray(self.elapsed + begun - self._started)
        files.write_npz(self.path, "checkpoint", arrays | {"crc32": np.asarray(_sum_of_all(arrays))})
        self._written = time.monotonic()
        self._pause = max(self.every, _WRITING * (self._written - begun))
        self._changed = False

    def _read(self) -> None:
        arrays = files.read_npz(self.path, "checkpoint", ("elapsed",))
        whole = str(arrays.pop("crc32", "")) == _sum_of_all(arrays)
        elapsed = arrays.pop("elapsed")
        if elapsed.shape != () or elapsed.dtype.kind != "f" or not 0 <= elapsed < np.inf:
            raise ValueError(f"{str(self.path)!r} is damaged: elapsed is not a time")
        self.elapsed = float(elapsed)
        found: dict[str, str] = {}
        for key, value in arrays.items():
            step, _, name = key.partition("|")
            if step == "identity":
                found[name] = str(value)
            else:
                self.steps.setdefault(step, {})[name] = value
        if found != self.identity:
            raise ArgumentError(
                "checkpoint",
                f"{str(self.path)!r} is of another solve: it differs in {differences(found, self.identity)}; choose another "
                "path, or delete the file if it is not needed",
            )
        if not whole:  # a solve that went on with other numbers would fail anywhere
            raise ValueError(f"{str(self.path)!r} is damaged: its checksum is not that of its arrays")

    def find(self, step: str, shard: Shard, stamp: str) -> tuple[Arrays, Arrays] | None:
        """A part that was made from the same things, and its numbers; None if there is none."""
        known = self.steps.get(part_name(step, shard))
        if known is None or str(known["stamp"]) != stamp:
            return None
        return unpacked(known)

    def keep(self, step: str, shard: Shard, stamp: str, part: Arrays, numbers: Arrays) -> Arrays:
        """Keep a part."""
        self.put(part_name(step, shard), packed(stamp, part, numbers))
        return part


def _sum_of_all(arrays: Mapping[str, np.ndarray]) -> str:
    """CRC-32 of arrays with their names, shapes and types."""
    total = 0
    for name in sorted(arrays):
        array = np.asarray(arrays[name])
        total = zlib.crc32(f"{name} {array.shape} {array.dtype}".encode(), total)
        if array.nbytes:
            total = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, total)
    return f"{total:08x}"


def differences(found: dict[str, Any], wanted: dict[str, str]) -> str:
    """Names of what two solves differ in."""
    return ", ".join(sorted(k for k in found | wanted if found.get(k) != wanted.get(k)))


def part_name(step: str, shard: Shard) -> str:
    """Name of the part of a shard after a step."""
    return f"{shard.side}-{shard.number:06d}-{step}"


def packed(stamp: str, part: Arrays, numbers: Arrays) -> dict[str, Any]:
    """A part and its numbers as arrays of one file."""
    named = {f"big|{name}": x for name, x in part.items()} | {f"small|{name}": x for name, x in numbers.items()}
    return named | {"stamp": np.asarray(stamp)}


def unpacked(arrays: Mapping[str, Any]) -> tuple[Arrays, Arrays]:
    """The part and the numbers that `packed` took."""

    def of(kind: str) -> Arrays:
        return {name.removeprefix(kind): x for name, x in arrays.items() if name.startswith(kind)}

    return of("big|"), of("small|")


@dataclass(frozen=True)
class Saved:
    """A part in a file."""

    path: str
    stamp: str

    def load(self) -> Arrays:
        """Its arrays."""
        try:
            with files.open_file(self.path) as handle, files.load_npz(handle) as file:
                found = str(file["stamp"])
                arrays, _ = unpacked({name: file[name] for name in file.files})
        except FileNotFoundError as error:
            what = "a part is gone that was there: all workers must see output, and one solve alone may use it"
            raise FileNotFoundError(error.errno, what, self.path) from error
        except files.UNREADABLE as error:
            raise ValueError(f"the part {self.path!r} cannot be read ({error}); the same call makes it again") from error
        if found != self.stamp:
            raise InUseError(f"{self.path!r} was replaced by another solve: one alone may use output at a time")
        return arrays


Part = Arrays | Saved


def loaded(part: Part) -> Arrays:
    """The arrays of a part, wherever it is."""
    return part.load() if isinstance(part, Saved) else part


@dataclass(frozen=True)
class PartFolder:
    """A directory of parts, so that no finished work is done again; workers get a copy of this object."""

    folder: str

    def path(self, step: str, shard: Shard) -> str:
        """Where the part of a shard is after a step."""
        return os.path.join(self.folder, f"{part_name(step, shard)}.npz")

    def is_missing(self, step: str, shard: Shard) -> bool:
        """Whether a step was not done on a shard."""
        return not os.path.exists(self.path(step, shard))

    def find(self, step: str, shard: Shard, stamp: str) -> tuple[Saved, Arrays] | None:
        """A part that was made from the same things, and its numbers; None if there is none."""
        path = self.path(step, shard)
        if not os.path.exists(path):
            return None
        try:
            with files.open_file(path) as handle, files.load_npz(handle) as file:
                if str(file["stamp"]) != stamp:
                    return None
                # read all of it: a part that cannot be read counts as missing
                _, numbers = unpacked({name: file[name] for name in file.files})
        except files.UNREADABLE as error:
            log.warning("%r cannot be read (%s): it is made again", path, error)
            return None
        return Saved(path, stamp), numbers

    def keep(self, step: str, shard: Shard, stamp: str, part: Arrays, numbers: Arrays) -> Saved:
        """Write a part, whole or not at all."""
        path = self.path(step, shard)
        arrays = {name: to_numpy(x) for name, x in packed(stamp, part, numbers).items()}
        files.write_npz(path, _PART, arrays)
        return Saved(path, stamp)

    def forget(self) -> None:
        """Delete all parts, and what workers left that died while they wrote one."""
        for path in Path(self.folder).glob("[rc]-*-*.npz*"):
            path.unlink(missing_ok=True)


class PartStore(Protocol):
    """Keeps the parts of a solve: a `Checkpoint` or a `PartFolder`."""

    def find(self, step: str, shard: Shard, stamp: str) -> tuple[Part, Arrays] | None:
        """A part that was made from the same things, and its numbers; None if there is none."""

    def keep(self, step: str, shard: Shard, stamp: str, part: Arrays, numbers: Arrays) -> Part:
        """Keep a part."""


# ---------------------------------------------------------------- identity of a solve


def identity_of(
    view: CoreView, shards: list[Shard], survey: str, rank: int | str, settings: Settings, like: Array
) -> dict[str, str]:
    """What has to be the same for a solve, computed where `like` is, to resume an earlier one.

    The `survey` stands for observations that functions make.
    """
    edges = np.asarray([(shard.start, shard.stop) for shard in shards])
    sums = [checksum([view.rows, view.cols, edges]), *map(_sum_of, shards)]
    known = {field.name: getattr(settings, field.name) for field in fields(settings)}
    del known["chunk_bytes"]  # changes memory and speed, not the result
    known |= {
        "callback": settings.callback is not None,
        "rank": rank,
        "device": device_name(like),
        "kernels": choose(settings.kernels, like).name,
    }
    samples = f"{view.shape} {like.dtype} {view.largest} {survey} {checksum([np.asarray(sums)])}"
    return {name: repr(value) for name, value in known.items()} | {"version": __version__, "samples": samples}


def _sum_of(shard: Shard) -> str:
    """Checksum of the observations of a shard; empty for those that functions make, which the survey covers."""
    if isinstance(shard.source, OnDisk):
        return shard.source.facts.crc32
    block = shard.resident
    return "" if block is None else block_checksum(block.mapped(to_numpy))


def seed_in_checkpoint(path: str | os.PathLike[str]) -> int:
    """The seed of the solve that wrote a checkpoint."""
    with files.open_file(path) as handle, files.load_npz(handle) as file:
        return int(str(file["identity|seed"]))
