"""Errors between this process and a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from distributed.comm.core import CommClosedError

Method = TypeVar("Method", bound=Callable[..., Any])


def while_connected(method: Method) -> Method:
    """Wrap a method of an object with a `client`: if it fails because there is no scheduler, the error says so."""

    @wraps(method)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(self, *args, **options)
        except Exception as error:
            lost = isinstance(error, CommClosedError) or self.client.status != "running"
            if lost and not isinstance(error, Disconnected):
                raise Disconnected(str(error)) from error
            raise

    return wrapped  # type: ignore[return-value]


class Disconnected(ConnectionError):
    """There is no scheduler any more."""

    def __init__(self, why: str | None) -> None:
        super().__init__(
            f"the connection to the Dask scheduler was lost ({why}); with output=..., the same call with a new client goes "
            "on where this one ended"
        )


class Lost(Exception):
    """Work was lost with workers; at least `deaths` of them died."""

    def __init__(self, deaths: int, error: BaseException) -> None:
        super().__init__(str(error))
        self.deaths = deaths
