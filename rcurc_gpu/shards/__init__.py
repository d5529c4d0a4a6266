"""Samples in parts, for more observations than one memory or one machine holds."""

from typing import TYPE_CHECKING

from .._lazy import later
from .folder import is_left_over
from .samples import ShardedSamples

if TYPE_CHECKING:
    from .from_files import shard_file as shard_file
    from .from_triplets import shard_triplets as shard_triplets
    from .labels import LabelledShards as LabelledShards

__all__ = ["LabelledShards", "ShardedSamples", "is_left_over", "shard_file", "shard_triplets"]

__getattr__ = later(__name__, {"shard_triplets": ".from_triplets", "shard_file": ".from_files", "LabelledShards": ".labels"})
