"""Progress bars, the user's callback, and the log of stages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .bars import new_bar

log = logging.getLogger("rcurc_gpu")

COMPILING = "compiling kernels (once)"
# Those with bars. Kernels are compiled far below the solve, in any thread, where no Progress is passed along.
_visible: list[Progress] = []


class Progress:
    """Shows stages with tqdm if asked to, and passes iterations on to a callback."""

    def __init__(self, visible: bool, callback: Callable[[Any], Any] | None = None) -> None:
        self.visible, self.callback = visible, callback
        self.ended = False  # whether the callback wants to stop
        self.done = 0  # units of all stages
        self._bar: Any = None
        self._name = ""
        self._compiled = False  # whether the bar speaks of a compilation that is over

    def __enter__(self) -> Progress:
        if self.visible:
            _visible.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self.visible:
            _visible.remove(self)
        self._close()

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage of `total` units, or of an unknown number of iterations."""
        log.info("%s", name if total is None else f"{name}: {total}")
        if self.visible:
            self._open(name, total)

    def advance(self, count: int) -> None:
        """Count units of the stage as done."""
        self.done += count
        if self._bar is not None:
            self._go_on()
            self._bar.update(count)

    @property
    def iteration(self) -> Callable[[Any], bool] | None:
        """What the core calls after each iteration; None if nobody listens, which saves a transfer from the device."""
        return None if self.callback is None and not self.visible else self._iteration

    def compiling(self, begun: bool) -> None:
        """Say that a kernel is being compiled; that it is done is seen when work goes on, as another may be next."""
        if begun and self._bar is None:
            self._open("", None)  # before the first stage
        if begun and not self._compiled:
            self._bar.set_description_str(f"{self._name}: {COMPILING}" if self._name else COMPILING)
        self._compiled = not begun

    def _go_on(self) -> None:
        if self._compiled:
            self._bar.set_description_str(self._name, refresh=False)
            self._compiled = False

    def _iteration(self, state: Any) -> bool:
        if self._bar is not None:
            self._go_on()
            self._bar.set_postfix(e=f"{state.error:.1e}", outliers=f"{state.outlier_share:.1%}", refresh=False)
            self._bar.update(1)
        if self.callback is not None:
            self.ended |= _is_true(self.callback(state))
        return self.ended

    def _open(self, name: str, total: int | None) -> None:
        self._close()
        self._name = name
        # A bar without a name shows what happens before the first stage; it disappears when that begins.
        self._bar = new_bar(
            total=total, desc=name, unit="it" if total is None else "", unit_scale=total is not None, leave=bool(name)
        )

    def _close(self) -> None:
        if self._bar is not None:
            self._go_on()
            self._bar.close()
            self._bar = None


def show_compiling(begun: bool) -> bool:
    """Let the bar on the screen say that a kernel is being compiled, or that it is done; whether there is one."""
    for show in _visible[-1:]:
        show.compiling(begun)
    return bool(_visible)


@contextmanager
def progress_bar(name: str, total: int | None, visible: bool, unit: str = "B") -> Iterator[Any]:
    """A bar of its own, to `update`, that shows itself after a second; nothing is shown if it is not `visible`."""
    if not visible:
        yield _Invisible()
        return
    with new_bar(total=total, desc=name, unit=unit, unit_scale=True, delay=1) as shown:
        yield shown


def _is_true(said: Any) -> bool:
    """Whether a callback returned True, or what a comparison gives: NumPy's True, or an array of no axes that holds one."""
    if isinstance(said, bool):
        return said
    return getattr(said, "shape", None) == () and "bool" in str(getattr(said, "dtype", "")) and bool(said)


class _Invisible:
    def update(self, count: int = 1) -> None:
        """Do nothing: there is nothing to show."""


def timed(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, float]:
    """What a function gives, and how many seconds it took."""
    start = time.perf_counter()
    made = function(*args, **options)
    return made, time.perf_counter() - start
