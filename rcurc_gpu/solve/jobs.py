"""One step of the work on one shard, and where its part is kept."""

from __future__ import annotations

import logging
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..backends.blocks import Block
from ..files import UNREADABLE, write_npz
from ..shards.source import Shard
from .work import Arrays, Side, Work

log = logging.getLogger("rcurc_gpu")
_KIND = "shard part"


@dataclass(frozen=True)
class Saved:
    """A part in a file."""

    path: str
    stamp: str

    def load(self) -> Arrays:
        """Its arrays."""
        try:
            with open(self.path, "rb") as handle, np.load(handle, allow_pickle=False) as file:
                found = str(file["stamp"])
                arrays = {name[4:]: file[name] for name in file.files if name.startswith("big|")}
        except FileNotFoundError as error:
            what = "a part is gone that was there: all workers must see output, and one solve alone may use it"
            raise FileNotFoundError(error.errno, what, self.path) from error
        except UNREADABLE as error:
            raise ValueError(f"the part {self.path!r} cannot be read ({error}); the same call makes it again") from error
        if found != self.stamp:
            raise RuntimeError(f"{self.path!r} was replaced by another solve: one alone may use output at a time")
        return arrays


Part = Arrays | Saved


@dataclass(frozen=True)
class Store:
    """A directory in which parts are kept, so that what is done is never done again."""

    folder: str

    def path(self, step: str, shard: Shard) -> str:
        """Where the part of a shard is after a step."""
        return os.path.join(self.folder, f"{shard.side}-{shard.number:06d}-{step}.npz")

    def find(self, step: str, shard: Shard, stamp: str) -> tuple[Saved, Arrays] | None:
        """A part that was made from the same things, and its numbers; None if there is none."""
        path = self.path(step, shard)
        if not os.path.exists(path):
            return None
        try:
            with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as file:  # np.load closes its own too late
                if str(file["stamp"]) != stamp:
                    return None
                # the whole of it, for a part that cannot be read is none
                small = {name[6:]: file[name] for name in file.files if name.startswith("small|")}
                for name in file.files:
                    file[name]
        except UNREADABLE as error:
            log.warning("%r cannot be read (%s): it is made again", path, error)
            return None
        return Saved(path, stamp), small

    def keep(self, step: str, shard: Shard, stamp: str, big: Arrays, small: Arrays) -> Saved:
        """Write a part, whole or not at all."""
        arrays = {f"big|{name}": x for name, x in big.items()} | {f"small|{name}": x for name, x in small.items()}
        path = self.path(step, shard)
        write_npz(path, _KIND, arrays | {"stamp": np.asarray(stamp)})
        return Saved(path, stamp)

    def forget(self) -> None:
        """Delete all parts, and what was left by workers that died while they wrote one."""
        for path in Path(self.folder).glob("[rc]-*-*.npz*"):
            path.unlink(missing_ok=True)


def run_job(
    work: Work,
    step: str,
    shard: Shard,
    side: Side,
    part: Part | None = None,
    args: tuple[Any, ...] = (),
    reads: bool = True,
    store: Store | None = None,
    block: Block | None = None,
) -> tuple[Part, Arrays]:
    """Do one step of the work on a shard, or find that it was done.

    Parameters
    ----------
    work : callable
        ``work(shard, block, side, part, *args)``, one of those in `work`.
    step : str
        What the step is called where its part is kept.
    part : optional
        What the step before gave.
    reads : bool
        Whether all observations are needed.
    block : Block, optional
        All observations, if they were read already.

    Returns
    -------
    part, numbers
    """
    stamp = f"{step} {side.stamp} {args!r} {part.stamp if isinstance(part, Saved) else ''}"
    stamp = f"{zlib.crc32(stamp.encode()):08x}-{shard.start}-{shard.stop}"
    if store is not None and (known := store.find(step, shard, stamp)) is not None:
        return known
    if reads and block is None:
        block = shard.load()
    before = () if part is None else (part.load() if isinstance(part, Saved) else part,)
    big, small = work(shard, block, side, *before, *args)
    return (big if store is None else store.keep(step, shard, stamp, big, small)), small
