"""A directory of shards: one file for each, the chosen rows and columns, the intersection, and a manifest in JSON."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..backends.blocks import Block, join_blocks
from ..files import UNREADABLE, write_whole
from .on_disk import ShardFacts, checksum, read_shard, write_shard

MANIFEST = "manifest.json"
FORMAT = "rcurc-gpu shards 1"
SIDES = ("r", "c")


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
    """Writes shards into a new directory, in any memory that holds one of them and the intersection.

    Parameters
    ----------
    folder : path
        A directory that is empty or does not exist yet; its parent does.
    cross : Cross
    dtype : float32 or float64
    made : bool
        Whether `new_folder` made the directory before, and what is in it by now is known.
    """

    def __init__(self, folder: str | os.PathLike[str], cross: Cross, dtype: Any, *, made: bool = False) -> None:
        self.folder, self.cross, self.dtype = Path(folder), cross, np.dtype(dtype)
        if not made:
            new_folder(self.folder)
        self._facts: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
        self._core: dict[str, list[Block]] = {side: [] for side in SIDES}
        self._core_facts: dict[str, dict[str, Any]] = {}
        self._written: list[str] = []

    def __enter__(self) -> FolderWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """After an error delete what was written; it would be taken for no samples, having no manifest."""
        if kind is not None:
            for name in self._written:
                (self.folder / name).unlink(missing_ok=True)

    def add(self, side: str, start: int, block: Block) -> None:
        """Write the units `start` to ``start + block.n_units`` of R ("r") or C ("c"), which follow those before."""
        done, chosen = self._facts[side], self.cross.chosen(side)
        if start != (end := done[-1]["stop"] if done else 0):
            raise ValueError(f"start must be {end}, where the shard before ends, got {start}")
        done.append(self._write(f"{side}-{len(done):06d}.shard", start, block))
        stop = start + block.n_units
        self._core[side].append(block.take_units(units_within(chosen, start, stop)).copy())
        if stop == self.cross.n_units(side):  # the last: one side's part of the core is enough to hold
            part = in_order(join_blocks(self._core.pop(side)), chosen)
            self._core_facts[side] = self._write(f"core-{side}.shard", 0, part)

    def _write(self, name: str, start: int, block: Block) -> dict[str, Any]:
        """Write a file; returns what the manifest says of it."""
        self._written.append(name)
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


def new_folder(folder: Path) -> None:
    """Make a directory, or take one that is empty."""
    if folder.is_dir() and any(folder.iterdir()):
        raise FileExistsError(17, "folder must be a new or an empty directory, this one has files in it", str(folder))
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(20, "folder must be a directory, got a file", str(folder)) from None


def read_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a directory of shards, checked as far as others rely on it; with "rows" and "cols" as arrays."""
    path = Path(folder) / MANIFEST
    if not path.exists():
        if not path.parent.is_dir():
            raise FileNotFoundError(2, "there is no such directory", str(folder))
        raise ValueError(
            f"{os.fspath(folder)!r} has no {MANIFEST}: it is not a directory of shards, or writing it did not come to an end"
        )
    try:
        manifest = json.loads(path.read_bytes())
        if manifest.get("format") != FORMAT:
            raise ValueError(f"it says {manifest.get('format')!r} where {FORMAT!r} is expected")
        for side, n_units in zip(SIDES, manifest["shape"][::-1], strict=True):
            edges = [0, *(shard["stop"] for shard in manifest["shards"][side])]
            starts = [shard["start"] for shard in manifest["shards"][side]]
            if starts != edges[:-1] or edges[-1] != n_units or sorted(edges) != edges:
                raise ValueError(f"the shards of side {side!r} do not cover {n_units} units")
        if manifest["dtype"] not in ("float32", "float64"):
            raise ValueError(f"dtype is {manifest['dtype']!r}")
        for entry in (*manifest["shards"]["r"], *manifest["shards"]["c"], *manifest["core"].values()):
            _check_entry(entry, manifest["core"]["r"].get("sigma", False))
        for name, size in zip(("rows", "cols"), manifest["shape"], strict=True):
            manifest[name] = _read_chosen(Path(folder) / f"{name}.npy", manifest["cross"][name], size)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{str(path)!r} is not a manifest of shards, or is damaged: {what}") from error
    return manifest


def _check_entry(entry: dict[str, Any], sigma: bool) -> None:
    """Refuse what `FolderWriter` cannot have written of a shard; all have a `sigma`, or none."""
    if entry.get("sigma", False) is not sigma or not isinstance(sigma, bool):
        raise ValueError(f"sigma of a shard is {entry.get('sigma', False)!r}, that of another {sigma!r}")
    kinds: dict[str, Any] = {"file": str, "start": int, "stop": int, "n_obs": int, "largest": (int, float), "crc32": str}
    for name, kind in kinds.items():
        if not isinstance(entry[name], kind) or (name == "largest" and not 0 <= entry[name] < float("inf")):
            raise ValueError(f"{name} of a shard is {entry[name]!r}")


def _read_chosen(path: Path, crc32: str, size: int) -> np.ndarray:
    try:
        with open(path, "rb") as file:
            chosen = np.load(file, allow_pickle=False)
    except UNREADABLE as error:
        raise ValueError(f"{path.name} is damaged ({error})") from error
    fine = chosen.dtype == np.int64 and chosen.ndim == 1 and chosen.size and checksum([chosen]) == crc32
    if not (fine and chosen.min() >= 0 and chosen.max() < size):
        raise ValueError(f"{path.name} is damaged")
    return chosen


def facts_of(entry: dict[str, Any]) -> ShardFacts:
    """What the manifest says of one shard."""
    return ShardFacts(**{name: entry[name] for name in ShardFacts.__dataclass_fields__ if name in entry})


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
