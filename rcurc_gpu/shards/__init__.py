"""Samples in parts, for more observations than one memory or one machine holds."""

from .build import shard_triplets
from .from_files import shard_file
from .labels import LabelledShards
from .samples import ShardedSamples

__all__ = ["LabelledShards", "ShardedSamples", "shard_file", "shard_triplets"]
