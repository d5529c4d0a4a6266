"""Where the observations of a shard come from: memory, a file, or a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..backends.arrays import is_array, to_numpy
from ..backends.blocks import Block
from ..samples.building import new_block
from .on_disk import ShardFacts, read_shard, read_units


class Source(Protocol):
    """Where the observations of a shard come from."""

    def load(self) -> Block:
        """All of them, on the host."""

    def some(self, units: np.ndarray) -> Block:
        """Those of some units only, numbered within the shard."""


@dataclass(frozen=True, eq=False)
class InMemory:
    """A shard in this process."""

    block: Block

    def load(self) -> Block:
        """What is there."""
        return self.block

    def some(self, units: np.ndarray) -> Block:
        """Some units of it."""
        return self.block.take_units(units)


@dataclass(frozen=True, eq=False)
class OnDisk:
    """A shard in a file."""

    path: str
    facts: ShardFacts
    length: int
    dtype: str

    def load(self) -> Block:
        """Read the file, and check it."""
        return read_shard(self.path, self.facts, self.length, self.dtype)

    def some(self, units: np.ndarray) -> Block:
        """Read some units only."""
        return read_units(self.path, self.facts, self.length, self.dtype, units)


@dataclass(frozen=True, eq=False)
class Made:
    """A shard that a function makes when it is needed: the same each time."""

    make: Callable[[int, int], Any]
    side: str
    start: int
    stop: int
    length: int
    dtype: str

    def load(self) -> Block:
        """Call the function."""
        found = self.make(self.start, self.stop)
        columns = self.side == "r"
        name = f"what make_{self.side}({self.start}, {self.stop}) gave"
        what = "the chosen rows I" if columns else "the chosen columns J"
        if is_array(found) and not isinstance(found, np.ndarray):
            found = to_numpy(found)
        elif hasattr(found, "get") and hasattr(found, "tocoo"):  # cupyx
            found = found.get()
        block = new_block(name, found, None, self.length, what, np.empty(0, self.dtype), units_last=columns)
        if block.n_units != self.stop - self.start:
            units = "columns" if columns else "rows"
            raise ValueError(f"{name} must have {self.stop - self.start} {units}, got {block.n_units}")
        return block

    def some(self, units: np.ndarray) -> Block:
        """Call the function, and take some units."""
        return self.load().take_units(units)


@dataclass(frozen=True, eq=False)
class Shard:
    """Consecutive columns of R, or rows of C.

    Attributes
    ----------
    side : {"r", "c"}
    number : int
        Its place among the shards of the side.
    start, stop : int
        Its units.
    source : Source
    """

    side: str
    number: int
    start: int
    stop: int
    source: Source

    @property
    def name(self) -> str:
        """What to call it in a message."""
        units = "columns" if self.side == "r" else "rows"
        return f"shard {self.number} of the {units} ({units} {self.start} to {self.stop - 1})"

    @property
    def resident(self) -> Block | None:
        """All observations, if they are in memory anyway."""
        return self.source.block if isinstance(self.source, InMemory) else None

    def load(self) -> Block:
        """All observations; an error names the shard."""
        with self._named():
            return self.source.load()

    def some(self, units: np.ndarray) -> Block:
        """Those of some units only, numbered within the shard."""
        with self._named():
            return self.source.some(units)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if isinstance(self.source, Made):  # anything may happen in a user's function
                raise RuntimeError(f"{self.name} could not be made: {type(error).__name__}: {error}") from error
            raise
