"""Samples in parts, for more observations than one memory or one machine holds."""

from .samples import ShardedSamples

__all__ = ["ShardedSamples"]
