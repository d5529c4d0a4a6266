"""A directory of shards: one file for each, the chosen rows and columns, the intersection, and a manifest in JSON."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..backends.blocks import Block, join_blocks
from ..files import UNREADABLE, line_of, load_npy, locked, read_json, write_whole
from .on_disk import ShardFacts, checksum, file_bytes, read_shard, write_shard

MANIFEST = "manifest.json"
FORMAT = "rcurc-gpu shards 1"
SIDES = ("r", "c")
_DTYPES = ("float32", "float64")
_MOST = 1 << 62  # rows, columns or observations: sums of them fit into int64
WORK = "unfinished"  # temporary files, inside of the directory of shards
_MARK = "rcurc-gpu"  # in it, so that nobody else's directory is taken for ours
_OURS = re.compile(r"([rc]-\d+|core-[rc])\.shard.*|(rows|cols)\.npy.*|labels\.npz.*|manifest\.json.*")


@dataclass(frozen=True, eq=False)
class Cross:
    """The chosen rows and columns of a matrix.

    Attributes
    ----------
    shape : (int, int)
    rows, cols : int64 vectors
        I and J.
    """

    shape: tuple[int, int]
    rows: np.ndarray
    cols: np.ndarray

    def n_units(self, side: str) -> int:
        """Columns of R ("r"), or rows of C ("c")."""
        return self.shape[1] if side == "r" else self.shape[0]

    def length(self, side: str) -> int:
        """|I| for R, |J| for C: how long a unit is."""
        return len(self.rows if side == "r" else self.cols)

    def chosen(self, side: str) -> np.ndarray:
        """The units of a side that lie in the intersection: J for R, I for C."""
        return self.cols if side == "r" else self.rows


class FolderWriter:
    """Writes shards into a directory, as `workspace` makes it, in any memory that holds one of them and the intersection.

    Parameters
    ----------
    folder : path
    cross : Cross
    dtype : float32 or float64
    """

    def __init__(self, folder: str | os.PathLike[str], cross: Cross, dtype: Any) -> None:
        self.folder, self.cross, self.dtype = Path(folder), cross, np.dtype(dtype)
        self.folder.mkdir(exist_ok=True)
        self._facts: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        self._core: dict[str, list[Block]] = {side: [] for side in SIDES}
        self._core_facts: dict[str, dict[str, Any]] = {}

    def add(self, side: str, start: int, block: Block) -> None:
        """Write the units `start` to ``start + block.n_units`` of R ("r") or C ("c"), which follow those before."""
        done, chosen = self._facts[side], self.cross.chosen(side)
        if start != (end := done[-1]["stop"] if done else 0):
            raise ValueError(f"start must be {end}, where the shard before ends, got {start}")
        done.append(self._write(shard_name(side, len(done)), start, block))
        stop = start + block.n_units
        self._core[side].append(block.take_units(units_within(chosen, start, stop)).copy())
        if stop == self.cross.n_units(side):  # the last: one side's part of the core is enough to hold
            part = in_order(join_blocks(self._core.pop(side)), chosen)
            self._core_facts[side] = self._write(core_name(side), 0, part)

    def _write(self, name: str, start: int, block: Block) -> dict[str, Any]:
        """Write a file; returns what the manifest says of it."""
        return {"file": name} | asdict(write_shard(self.folder / name, start, block))

    def finish(self, n_unused: int = 0, **more: Any) -> None:
        """Write what belongs to all shards, the manifest last; `more` goes into it."""
        for side, n_units in zip(SIDES, self.cross.shape[::-1], strict=True):
            if not self._facts[side] or self._facts[side][-1]["stop"] != n_units:
                raise ValueError(f"the shards of side {side!r} must cover {n_units} units")
        chosen = {"rows": self.cross.rows, "cols": self.cross.cols}
        for name, numbers in chosen.items():
            write_whole(self.folder / f"{name}.npy", partial(np.save, arr=numbers))
        manifest = {
            "format": FORMAT,
            "shape": list(self.cross.shape),
            "dtype": str(self.dtype),
            "n_unused": n_unused,
            "cross": {name: checksum([numbers]) for name, numbers in chosen.items()},
            "core": self._core_facts,
            "shards": self._facts,
            **more,
        }
        text = json.dumps(manifest, indent=1).encode()
        write_whole(self.folder / MANIFEST, lambda file: file.write(text))


def shard_name(side: str, k: int) -> str:
    """The file of shard `k` of a side."""
    return f"{side}-{k:06d}.shard"


def core_name(side: str) -> str:
    """The file with a side's part of the intersection."""
    return f"core-{side}.shard"


# ---------------------------------------------------------------- a directory in the making


@contextmanager
def workspace(folder: str | os.PathLike[str], *, keep: bool = False) -> Iterator[Path]:
    """A new directory for shards, and one inside of it for temporary files, which is given.

    After an error nothing is left of what was written, but for the directory itself with `keep`. What a process left that
    was killed is deleted by the next one. The directory inside is there until the manifest is: killed at any moment,
    either of them tells what to do.
    """
    folder = Path(folder)
    existed = folder.is_dir()
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(20, "folder must be a directory, got a file", str(folder)) from None
    lock = locked(folder, f"folder {str(folder)!r} is being written by another run")
    try:
        if is_left_over(folder):
            _clear(folder)
        if any(folder.iterdir()):
            raise FileExistsError(17, "folder must be a new or an empty directory, this one has files in it", str(folder))
        try:
            work = folder / WORK
            work.mkdir()
            (work / _MARK).write_text("Shards are being written, or were when the process was killed.\n")
            yield work
            _clear_work(work)
        except BaseException:
            _clear(folder)
            if not (existed or keep):
                with suppress(OSError):  # somebody else's files
                    folder.rmdir()
            raise
    finally:
        if lock is not None:
            os.close(lock)


def is_left_over(folder: Path) -> bool:
    """Whether a directory has nothing but what a process left that was killed while it wrote shards."""
    work, others = folder / WORK, [path for path in folder.iterdir() if path.name != WORK]
    if work.is_symlink() or not work.is_dir() or (folder / MANIFEST).exists():
        return False
    if not all(_OURS.fullmatch(path.name) and path.is_file() for path in others):
        return False
    return (work / _MARK).is_file() or not (others or any(work.iterdir()))


def _clear(folder: Path) -> None:
    """Delete what belongs to shards; the directory of temporary files last, since it says that the rest may go."""
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name):
            path.unlink(missing_ok=True)
    _clear_work(folder / WORK)


def _clear_work(work: Path) -> None:
    """Delete the temporary files, the mark last."""
    if work.is_dir():
        for path in work.iterdir():
            if path.name != _MARK:
                path.unlink(missing_ok=True)
        shutil.rmtree(work, ignore_errors=True)


# ---------------------------------------------------------------- reading


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a directory of shards, with "rows" and "cols" as arrays.

    It may come from anybody: nothing is taken from it that its files do not bear out, and no file outside is touched.
    """
    path = Path(folder) / MANIFEST
    if not path.exists():
        if not path.parent.is_dir():
            raise FileNotFoundError(2, "there is no such directory", str(folder))
        raise ValueError(
            f"{os.fspath(folder)!r} has no {MANIFEST}: it is not a directory of shards, or writing it was interrupted"
        )
    try:
        manifest = read_json(inside(path.parent, MANIFEST))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            found = manifest.get("format") if isinstance(manifest, dict) else manifest
            raise ValueError(f"it says {str(found)[:60]!r} where {FORMAT!r} is expected")
        check_fields("the manifest", manifest, _FIELDS)
        for side, n_units in zip(SIDES, manifest["shape"][::-1], strict=True):
            shards = manifest["shards"][side]
            for entry in shards:
                _check_entry(entry)
            edges = [0, *(shard["stop"] for shard in shards)]
            if [shard["start"] for shard in shards] != edges[:-1] or edges[-1] != n_units or sorted(edges) != edges:
                raise ValueError(f"the shards of side {side!r} do not cover {n_units} units")
            for k, entry in enumerate(shards):
                _check_name(entry, shard_name(side, k))
        for name, size in zip(("rows", "cols"), manifest["shape"], strict=True):
            manifest[name] = _read_chosen(inside(path.parent, f"{name}.npy"), manifest["cross"][name], size)
        for side, other in zip(SIDES, ("cols", "rows"), strict=True):
            core = manifest["core"][side]
            _check_entry(core)
            _check_name(core, core_name(side))
            if (core["start"], core["stop"]) != (0, len(manifest[other])):
                raise ValueError(f"{core['file']} does not have one unit for each of {other} ({len(manifest[other])})")
        every = [entry for side in SIDES for entry in (*manifest["shards"][side], manifest["core"][side])]
        if len({entry["sigma"] for entry in every}) > 1:
            raise ValueError("sigma of a shard is False, that of another True: all must have it, or none")
        for entry in every:
            _check_size(path.parent, entry, manifest["dtype"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else line_of(error)
        raise ValueError(f"{str(path)!r} is not a manifest of shards, or is damaged: {what}") from error
    return manifest


def inside(folder: Path, name: str) -> Path:
    """A file of a directory, if it is one: no link that leads elsewhere, nothing that cannot be read as a file."""
    path = folder / name
    if os.path.dirname(os.path.realpath(path)) != os.path.realpath(folder):
        raise ValueError(f"{name} leads out of the directory; only files inside of it are read")
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{name} is not a file")
    return path


def is_count(x: Any) -> bool:
    """Whether something from JSON is a count."""
    return type(x) is int and 0 <= x < _MOST


def _is_size(x: Any) -> bool:
    return type(x) in (int, float) and 0 <= x < float("inf")


def is_text(x: Any) -> bool:
    """Whether something from JSON is text."""
    return isinstance(x, str)


def _is_pair(kind: type) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, dict) and all(isinstance(x[side], kind) for side in SIDES)


def _is_shape(x: Any) -> bool:
    return isinstance(x, list) and len(x) == 2 and all(is_count(n) and n > 0 for n in x)


def _is_cross(x: Any) -> bool:
    return isinstance(x, dict) and is_text(x["rows"]) and is_text(x["cols"])


Fields = dict[str, Callable[[Any], bool]]
# what `FolderWriter` writes, and how each is told from what it cannot have written
_FIELDS: Fields = {
    "shape": _is_shape,
    "dtype": lambda x: x in _DTYPES,
    "n_unused": is_count,
    "cross": _is_cross,
    "core": _is_pair(dict),
    "shards": _is_pair(list),
}
_ENTRY: Fields = {
    "file": is_text,
    "start": is_count,
    "stop": is_count,
    "n_obs": is_count,
    "largest": _is_size,
    "crc32": is_text,
    "sigma": lambda x: isinstance(x, bool),
}


def check_fields(what: str, found: dict[str, Any], fields: Fields) -> None:
    """Refuse fields of something from JSON that are missing (KeyError) or not as they should be."""
    for name, is_fine in fields.items():
        if not is_fine(found[name]):
            raise ValueError(f"{name} of {what} is {str(found[name])[:60]}")


def _check_entry(entry: dict[str, Any]) -> None:
    entry.setdefault("sigma", False)  # those of version 0.1 do not say
    check_fields("a shard", entry, _ENTRY)


def _check_name(entry: dict[str, Any], name: str) -> None:
    if entry["file"] != name:
        raise ValueError(f"a shard is in {entry['file'][:60]!r}, where {name!r} belongs")


def _check_size(folder: Path, entry: dict[str, Any], dtype: str) -> None:
    """Refuse counts that the file does not bear out: memory is taken for them. A file that is missing is named later."""
    path = inside(folder, entry["file"])
    wanted = file_bytes(facts_of(entry), dtype)
    if path.exists() and path.stat().st_size < wanted:
        raise ValueError(
            f"the shard {str(path)!r} is damaged or truncated: the manifest says {entry['stop'] - entry['start']:,} units "
            f"and {entry['n_obs']:,} observations, which take more than its {path.stat().st_size:,} bytes"
        )


def _read_chosen(path: Path, crc32: str, size: int) -> np.ndarray:
    try:
        chosen = load_npy(path)
    except UNREADABLE as error:
        raise ValueError(f"{path.name} is damaged ({line_of(error)})") from error
    if not (chosen.dtype == np.int64 and chosen.ndim == 1 and chosen.size and checksum([chosen]) == crc32):
        raise ValueError(f"{path.name} is damaged")
    if chosen.min() < 0 or chosen.max() >= size or np.unique(chosen).size < chosen.size:
        raise ValueError(f"{path.name} is damaged: it repeats a number, or has one that does not lie in 0..{size - 1}")
    return chosen


def facts_of(entry: dict[str, Any]) -> ShardFacts:
    """What the manifest says of one shard."""
    return ShardFacts(**{name: entry[name] for name in ShardFacts.__dataclass_fields__})


def read_core(folder: Path, manifest: dict[str, Any]) -> tuple[Block, Block]:
    """The columns of J in R and the rows of I in C, in the order of J and of I."""
    r, c = (
        read_shard(folder / manifest["core"][side]["file"], facts_of(manifest["core"][side]), length, manifest["dtype"])
        for side, length in zip(SIDES, (len(manifest["rows"]), len(manifest["cols"])), strict=True)
    )
    return r, c


def units_within(chosen: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Those of the numbers `chosen` that lie in start..stop, ascending and counted from `start`."""
    return np.sort(chosen[(chosen >= start) & (chosen < stop)]) - start


def in_order(ascending: Block, chosen: np.ndarray) -> Block:
    """The block of the ascending numbers `chosen` in the order in which they are chosen."""
    return ascending.take_units(np.argsort(np.argsort(chosen, kind="stable"), kind="stable"))
