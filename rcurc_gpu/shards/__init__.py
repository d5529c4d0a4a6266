"""Samples in parts, for more observations than one memory or one machine holds."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..solve.output import open_result
from .samples import ShardedSamples

if TYPE_CHECKING:
    from .from_files import shard_file as shard_file
    from .from_triplets import shard_triplets as shard_triplets
    from .labels import LabelledShards as LabelledShards

__all__ = ["LabelledShards", "ShardedSamples", "open_result", "shard_file", "shard_triplets"]

_LATER = {"shard_triplets": "from_triplets", "shard_file": "from_files", "LabelledShards": "labels"}


def __getattr__(name: str) -> Any:
    """What makes shards from files and streams: imported when it is asked for, since reading files needs the samples."""
    if name in _LATER:
        return getattr(import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
