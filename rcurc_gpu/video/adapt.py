"""What a background that is followed is made of: frames that are kept, a model of them, and how it is learned."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from scipy import ndimage

from ..backends import asarray_on, choose, to_numpy
from ..result import CURMatrix
from .frames import FrameSplitter, Split
from .masks import MaskRule, learn_rule
from .pictures import evenly

if TYPE_CHECKING:
    from .background import Background
    from .find import FindOptions

_FIRST_NOISE = 2.0  # grey levels, before anything is known of it
_MOST_PIXELS = 4000  # from which the light of a frame follows
_NEAR = 16.0  # grey levels: how far the light may be from that of the last frame, before it is sought from anywhere
FALLEN = 0.7  # if a smaller part of the usual share of pixels agrees with the background, it is another picture
# Of frame after frame another quarter of the background follows by a fifth of what is left: it lags by 20 frames behind what
# changes slowly, and takes over a third of the noise.
_DRIFT_PARTS, _DRIFT = 4, 0.2
# Where something stood when the picture changed: the light is looked for around it, in windows of this part of the height,
# and its edges are so many pixels wide.
_AROUND, _MARGIN = 4, 2
_MOST_MISFIT = 15.0  # grey levels: where things begin

Seen = tuple[np.ndarray, Split]  # a frame and what was made of it


class Kept:
    """Some whole frames of the last `history`, spread evenly over them.

    All are kept until there is no room; then every other one, and every other one of those that come, and so on. When
    they reach back far enough, the oldest give way.
    """

    def __init__(self, shape: tuple[int, ...], most: int, history: int) -> None:
        self._pictures: list[np.ndarray] = []
        self._shape, self._most, self._history = shape, most, history
        self.seen, self._every = 0, 1

    def add(self, frame: np.ndarray) -> None:
        """The next frame, which is copied if it is kept."""
        if self.seen % self._every == 0:
            if len(self._pictures) >= self._most:
                if self._every * self._most >= self._history:
                    self._pictures.pop(0)
                else:
                    self._pictures = self._pictures[::2]
                    self._every *= 2
            if self.seen % self._every == 0:
                self._pictures.append(frame.copy())
        self.seen += 1

    def pictures(self) -> list[np.ndarray]:
        """Those that are kept."""
        return list(self._pictures)


class LiveModel:
    """A background that was learned, and how to find its light."""

    def __init__(
        self, splitter: FrameSplitter, rows: np.ndarray, design: np.ndarray, noise: float, light: np.ndarray
    ) -> None:
        self.splitter, self.rows, self.design, self.noise = splitter, rows, design, noise
        self.levels = design.mean(axis=0)  # of one unit of each component
        self._light, self._kernels = light, choose("auto", design)
        self.usual, self._drifted = 1.0, np.zeros(len(rows), dtype=np.float32)

    @classmethod
    def of(cls, background: Background, rule: MaskRule, device: str) -> LiveModel:
        """A background as `find_background` finds it, with a rule."""
        left = background.matrix.left
        n1 = len(left)
        rows = evenly(n1, _MOST_PIXELS)
        design = np.ascontiguousarray(left[rows], dtype=np.float32)
        light = background.matrix.right[-1].astype(np.float32)
        parts = np.zeros((left.shape[1] + 1, n1), dtype=np.float32)  # the last is how far it has drifted
        parts[:-1] = left.T
        return cls(FrameSplitter(parts.T, background.shape, rule, device), rows, design, background.noise, light)

    def split(self, frame: np.ndarray, light: np.ndarray, number: int) -> Split:
        """The frame in its light; then a part of the background follows it a little."""
        found = self.splitter.split(frame, np.append(light, np.float32(1)))
        height = frame.shape[0]
        k = number % _DRIFT_PARTS
        lines = slice(k * height // _DRIFT_PARTS, (k + 1) * height // _DRIFT_PARTS)
        self.splitter.drift(frame, found, _DRIFT, lines)
        if k == _DRIFT_PARTS - 1:
            self._drifted = to_numpy(self.splitter.parts[-1, :])[self.rows]
        return found

    def uncover(self, frame: np.ndarray, before: Split) -> None:
        """Take out what stood there in the last frame before the picture changed, and still does.

        There the earlier background is taken, in the new light, which is the ratio of both backgrounds around it.
        """
        splitter = self.splitter
        new = splitter.paint(np.append(self._light, np.float32(1))).astype(np.float32)
        old, size = before.background.astype(np.float32), max(new.shape[0] // _AROUND, 3)
        trusted = (before.mask == 0).astype(np.float32).reshape(*before.mask.shape, *(1,) * (new.ndim - 2))
        window = (size, size, 1)[: new.ndim]
        lit, unlit = (ndimage.uniform_filter(x * trusted, window, mode="nearest") for x in (new, old))
        light = (lit + 1) / (unlit + 1)
        expected = old * light
        shape = (*before.mask.shape, -1)
        there, here = (np.abs(new - x).reshape(shape).max(axis=2) for x in (expected, frame * light))
        wrong = (there > splitter.rule.threshold) & (here < there) & ndimage.binary_dilation(before.mask, iterations=_MARGIN)
        offset = np.where(wrong.reshape(trusted.shape), expected - new, np.float32(0)).astype(np.float32).reshape(-1)
        splitter.parts[-1, :] = asarray_on(offset, splitter.parts)
        self._drifted = offset[self.rows]

    def level(self, light: np.ndarray) -> float:
        """Mean grey level in a light (r,)."""
        return float(self.levels @ light + self._drifted.mean())

    def light_of(self, frame: np.ndarray) -> tuple[np.ndarray, float]:
        """The light (r,) of a frame, and the share of the looked-at pixels that agree with it."""
        seen = (frame.reshape(-1)[self.rows] - self._drifted)[None, :]
        light, agree = self._fit(seen, self._light, _NEAR)
        if agree < FALLEN * self.usual:  # far from the last one, perhaps
            far, better = self._fit(seen, None, None)
            light, agree = (far, better) if better > agree else (light, agree)
        if agree > 0.5 * self.usual:  # else what hides the background may have led it astray
            self._light = light
        return light, agree

    def misfit(self, frames: list[np.ndarray]) -> float:
        """Mean difference of the looked-at pixels of some frames from the background, cut off where things begin."""
        total = 0.0
        for frame in frames:
            seen = (frame.reshape(-1)[self.rows] - self._drifted)[None, :]
            light, _ = self._fit(seen, self._light, _NEAR)
            total += float(np.minimum(np.abs(seen[0] - self.design @ light), _MOST_MISFIT).mean())
        return total

    def _fit(self, seen: np.ndarray, start: np.ndarray | None, widest: float | None) -> tuple[np.ndarray, float]:
        near = {} if start is None else {"start": start[None, :], "widest": widest}
        light, agree = self._kernels.robust_fit(seen, self.design, self.noise, **near)
        return light[0], float(agree[0])


class Learning:
    """One background that is being learned, possibly in another thread."""

    def __init__(self, pictures: list[np.ndarray], options: FindOptions, memory: int, before: Seen | None) -> None:
        self._pictures, self._options, self._memory, self._before = pictures, options, memory, before
        self.done, self.anew = threading.Event(), False
        self.error: Exception | None = None
        self.model: LiveModel | None = None

    def run(self, make: Callable[[Background], LiveModel]) -> None:
        """Learn, and `make` a model of it."""
        from .find import find_background, plan_pass  # here: or chains of imports grow long

        try:
            pictures = np.stack(self._pictures)
            self._pictures = []  # those that are forgotten meanwhile take no room
            shape = pictures.shape[1:]
            plan = plan_pass(int(np.prod(shape)), len(pictures), self._memory)
            background, _ = find_background(pictures, shape, plan, self._options, False)
            model = make(background)
            if self._before is not None:
                model.uncover(*self._before)
            # what is usual in the frames that it was learned from
            model.usual = float(np.median([model.light_of(frame)[1] for frame in pictures]))
            self.model = model
        except Exception as error:  # raised by the next frame
            self.error = error
        finally:
            self._pictures = []
            _give_back()
            self.done.set()


def _give_back() -> None:
    """Let glibc give memory that is free to the system: of large pictures it kept 300 MB from one learning to the next."""
    if sys.platform == "linux":
        with suppress(AttributeError):  # other C libraries have no such function, and need none
            ctypes.CDLL(None).malloc_trim(0)


def still_background(frame: np.ndarray) -> Background:
    """A single frame as its own background."""
    from .background import Background

    left = frame.reshape(-1, 1).astype(np.float32)
    matrix = CURMatrix(left, np.ones((1, 1), dtype=np.float32), np.arange(1), np.arange(1))
    rough = np.full(frame.shape[:2], _FIRST_NOISE)
    return Background(matrix, frame.shape, _FIRST_NOISE, learn_rule(rough))
