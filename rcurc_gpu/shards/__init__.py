"""Samples in parts, for more observations than one memory or one machine holds."""

from .output import open_result
from .samples import ShardedSamples

__all__ = ["ShardedSamples", "open_result"]
