"""The options of `separate`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ..errors import check_count, check_number, check_shape
from ..options import check_rank
from .background import Background
from .light import MOST_COMPONENTS
from .record import check_kinds

MEMORY = 512 << 20  # two minutes of 1080 x 1920 then take 0.9 GB in all (docs/video.md)


@dataclass(frozen=True)
class Options:
    """What `separate` takes, with its defaults."""

    rank: int | str = "auto"
    colour: bool | str = "auto"
    threshold: float | None = None
    shadows: bool = True
    region: Any = None
    min_area: int | None = None
    median: int | None = None
    only: Any = None
    mask: str = "mp4"
    size: tuple[int, int] | None = None
    frames: int | None = None
    memory: int = MEMORY
    model: str | os.PathLike[str] | Background | None = None
    truth: Any = None
    seed: Any = 0
    device: str = "auto"
    progress: bool = False

    def __post_init__(self) -> None:
        check_rank(self.rank, MOST_COMPONENTS, "the components that light may have")
        if self.threshold is not None:
            check_number("threshold", self.threshold)
        for name in ("min_area", "median"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if self.size is not None:
            check_shape("size", self.size)
        check_count("memory", self.memory)
        check_kinds(self.only, self.mask)
        if self.colour not in (True, False, "auto"):
            raise ValueError(f"colour must be True, False or 'auto', got {self.colour!r}")
