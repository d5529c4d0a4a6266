"""Whether work may use all cores, or only the one it is on because others are busy with work of the same kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

alone: ContextVar[bool] = ContextVar("alone", default=False)


@contextmanager
def on_one_core() -> Iterator[None]:
    """Compiled kernels called within use the calling thread alone."""
    token = alone.set(True)
    try:
        yield
    finally:
        alone.reset(token)
