"""Samples in parts, for more observations than one memory or one machine holds."""

from .build import shard_triplets
from .samples import ShardedSamples

__all__ = ["ShardedSamples", "shard_triplets"]
