"""Progress bars, and the user's callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .history import IterationState


class Progress:
    """Shows stages with tqdm if asked to, and passes iterations on to a callback."""

    def __init__(self, visible: bool, callback: Callable[[IterationState], Any] | None = None) -> None:
        self.visible, self.callback = visible, callback
        self.ended = False  # whether the callback wants to stop
        self._bar: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a stage of `total` units, or of an unknown number of iterations."""
        if not self.visible:
            return
        from tqdm.auto import tqdm

        self._close()
        self._bar = tqdm(total=total, desc=name, unit="it" if total is None else "", unit_scale=total is not None)

    def advance(self, count: int) -> None:
        """Count units of the stage as done."""
        if self._bar is not None:
            self._bar.update(count)

    @property
    def iteration(self) -> Callable[[IterationState], bool] | None:
        """What the core calls after each iteration; None if nobody listens, which saves a look at the device."""
        return None if self.callback is None and not self.visible else self._iteration

    def _iteration(self, state: IterationState) -> bool:
        if self._bar is not None:
            self._bar.set_postfix(e=f"{state.error:.1e}", outliers=f"{state.outlier_share:.1%}", refresh=False)
            self._bar.update(1)
        if self.callback is not None and self.callback(state) is True:
            self.ended = True
        return self.ended

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
