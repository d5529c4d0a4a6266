"""What the rooms above need of samples, whether these are in memory or in shards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ..backends.blocks import Block
from .intersection import Intersection

_FEWEST_KINDS = 20  # different rows, or columns: a column then loses about one in twenty of its entries


class Samples(Protocol):
    """Cross-concentrated samples, wherever they are; `CrossSamples` and `ShardedSamples` say what each of these is."""

    @property
    def shape(self) -> tuple[int, int]:
        """(n1, n2)"""

    @property
    def rows(self) -> np.ndarray:
        """I, int64 (|I|,)"""

    @property
    def cols(self) -> np.ndarray:
        """J, int64 (|J|,)"""

    @property
    def dtype(self) -> Any:
        """float32 or float64."""

    @property
    def device(self) -> str:
        """Where the observations live."""

    @property
    def n_obs(self) -> int:
        """Observations in the union of Omega_R and Omega_C."""

    @property
    def n_unused(self) -> int:
        """Observations that were given but lie outside the cross."""

    @property
    def rate_rows(self) -> float:
        """p_R, the share of R that was observed."""

    @property
    def rate_cols(self) -> float:
        """p_C, the share of C that was observed."""

    @property
    def has_sigma(self) -> bool:
        """Whether the noise of each observation is known."""

    @property
    def intersection(self) -> Intersection:
        """The observations inside I x J, each once."""

    @property
    def largest(self) -> tuple[float, float]:
        """The largest size of an observation of R, and of C."""

    def blocks(self, side: str) -> Iterator[tuple[int, Block]]:
        """The first unit and the observations of each part of R ("r") or of C ("c")."""

    def counts(self, side: str) -> np.ndarray:
        """Observations of each column of R ("r") or row of C ("c"), on the host."""


@dataclass(frozen=True, eq=False)
class CoreView:
    """What the core of a solve needs of samples, wherever these are."""

    shape: tuple[int, int]
    rows: np.ndarray
    cols: np.ndarray
    intersection: Intersection
    rate_rows: float
    rate_cols: float
    largest: tuple[float, float]

    @classmethod
    def of(cls, samples: Samples) -> CoreView:
        """The view of samples in memory or in shards."""
        s = samples
        return cls(s.shape, s.rows, s.cols, s.intersection, s.rate_rows, s.rate_cols, s.largest)

    @cached_property
    def held_ids(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the rows and columns by which entries are held out of the core: copies have that of the first.

        A held-out entry whose copies were fitted proves nothing. Where nearly all rows are copies, holding all of them out
        would leave nothing of a column.
        """
        ids = (self.rows, self.cols)
        firsts = self.intersection.first_copies()
        return tuple(x[f] if len(np.unique(f)) >= _FEWEST_KINDS else x for x, f in zip(ids, firsts, strict=True))  # type: ignore[return-value]

    def scaled(self, factor: float) -> CoreView:
        """The same of ``factor * Y``."""
        inside = replace(self.intersection, block=self.intersection.block.scaled(factor))
        largest = (self.largest[0] * factor, self.largest[1] * factor)
        return replace(self, intersection=inside, largest=largest)
