"""The core: the |I| x |J| intersection as a small matrix of low rank."""

from .history import IterationState

__all__ = ["IterationState"]
