"""A background that is followed frame by frame, as a camera gives them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ..backends import choose, to_numpy
from ..errors import ArgumentError, ArgumentTypeError, check_count, check_number, seed_to_int
from ..result import CURMatrix
from .background import Background
from .find import FindOptions, find_background, plan_pass
from .frames import FrameSplitter, Split
from .masks import MaskRule, learn_rule

log = logging.getLogger("rcurc_gpu")

HISTORY = 500  # frames, as OpenCV's subtractors: 20 s
MEMORY = 256 << 20
# Frames that are kept whole. With so many, noise of the background is a seventh of a frame's.
_MOST_KEPT, _LEAST_KEPT = 60, 8
_FIRST = 12  # frames after which a background is learned for the first time; then after twice as many, and so on
_FIRST_NOISE = 2.0  # grey levels, before anything is known of it
_MOST_PIXELS = 4000  # from which the light of a frame follows
_NEAR = 16.0  # grey levels: how far the light may be from that of the last frame, before it is sought from anywhere
# A change is lasting if for so many frames in a row fewer pixels agree with the background than this part of what is usual.
# A second is longer than most things take to pass close by; what passes more slowly is learned, and given up again.
_PATIENCE, _FALLEN = 25, 0.7
# Of frame after frame another eighth of the background follows by a fifth of what is left: it lags by 40 frames behind what
# changes slowly, and takes over a third of the noise.
_DRIFT_PARTS, _DRIFT = 8, 0.2
_USUAL_STEP = 0.02  # by which "usual" follows
_KNOWN = 2  # backgrounds that are kept beside the present one: a light that is switched on again is known
_RECOGNISED = 1.15  # times more pixels have to agree with an earlier background than with the present one
_OFTEN = 5  # frames between two looks at earlier backgrounds


class BackgroundSubtractor:
    """Tells foreground from background, frame by frame, in changing light.

    The background is learned from frames that are kept for this, and again and again while more come: pixels x frames of
    low rank, as by `separate`. The light of each frame follows from some of its pixels. Frames older than `history` are
    forgotten. If the picture changes for good, as when a lamp is switched on, it is learned anew from the frames since; the
    log says so.

    Parameters
    ----------
    history : int
        Frames that count. What stands still for more than half of them becomes background.
    threshold : float, optional
        Grey levels: what differs more from the background is foreground. By default each pixel has its own, from its noise.
    rank : int or "auto"
        How many components the light has, at most.
    shadows : bool
        Whether shadows are background; of frames in colour.
    region : bool array (height, width), optional
        Foreground is only looked for here.
    min_area, median : int, optional
        See `separate`.
    memory : int
        Bytes for the frames that are kept, about.
    beside : bool
        Learn in a thread beside the work, for cameras that do not wait: masks go on with the old background meanwhile. Then
        the result depends on how long that takes.
    seed : None, int or numpy.random.Generator
    device : str
        Where frames are split: "cpu" (also "auto"), or "cuda".

    Attributes
    ----------
    frames : int
        How many were seen.
    learned : int
        How many times the background was learned.
    background : uint8 array of a frame's shape, or None before the first
        The background of the last frame, in its light.
    light : float
        Mean grey level of the background.
    agree : float
        Share of the looked-at pixels of the last frame that show the background.

    Examples
    --------
    >>> import numpy as np
    >>> from rcurc_gpu.video import BackgroundSubtractor, surveillance_scene
    >>> scene = surveillance_scene(shape=(48, 64), frames=60)
    >>> subtractor = BackgroundSubtractor()
    >>> masks = [subtractor.apply(frame) for frame in scene]
    >>> masks[-1].shape, masks[-1].dtype
    ((48, 64), dtype('uint8'))
    """

    def __init__(
        self,
        *,
        history: int = HISTORY,
        threshold: float | None = None,
        rank: int | str = "auto",
        shadows: bool = True,
        region: np.ndarray | None = None,
        min_area: int | None = None,
        median: int | None = None,
        memory: int = MEMORY,
        beside: bool = False,
        seed: Any = 0,
        device: str = "cpu",
    ) -> None:
        self.history = check_count("history", history, _LEAST_KEPT)
        if threshold is not None:
            check_number("threshold", threshold)
        self._memory, self._beside = check_count("memory", memory), beside
        self._find = FindOptions(rank=rank, seed=seed_to_int(seed))
        self._rule: dict[str, Any] = {
            "threshold": threshold,
            "shadow": shadows,
            "region": region,
            "min_area": min_area,
            "median": median,
        }
        self._device = device
        self.frames, self.learned, self.agree, self.light = 0, 0, 1.0, 0.0
        self.background: np.ndarray | None = None
        self._shape: tuple[int, ...] | None = None
        self._model: _Model | None = None
        self._known: list[_Model] = []
        self._learning: _Learning | None = None
        self._since, self._next, self._low = 0, _FIRST, 0
        self._kept: _Kept | None = None
        self._new: _Kept | None = None  # frames since the picture fell out of the usual

    # ------------------------------------------------------------ what one calls

    def apply(self, frame: Any) -> np.ndarray:
        """The mask of the next frame.

        Parameters
        ----------
        frame : uint8 array (height, width) or (height, width, 3)

        Returns
        -------
        uint8 array (height, width)
            255 where there is foreground, else 0.
        """
        return self.split(frame).mask

    def split(self, frame: Any) -> Split:
        """Background, mask and objects of the next frame."""
        frame = self._checked(frame)
        if self._model is None:
            self._model = self._model_of(_still(frame))
        model = self._model
        light, self.agree = model.light_of(frame)
        self._watch(frame)
        if self._model is not model:
            model = self._model
            light, self.agree = model.light_of(frame)
        found = model.split(frame, light, self.frames)
        self.background, self.light = found.background, model.level(light)
        self.frames += 1
        return found

    def follow(self, frames: Iterable[Any]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Frames as they come, with the background and the mask of each."""
        for frame in frames:
            found = self.split(frame)
            yield frame, found.background, found.mask

    @property
    def splitter(self) -> FrameSplitter:
        """What splits frames at present; there is one after the first frame."""
        if self._model is None:
            raise ValueError("no frame was seen yet")
        return self._model.splitter

    # ------------------------------------------------------------ learning

    def _checked(self, frame: Any) -> np.ndarray:
        frame = np.asarray(frame)
        if frame.dtype != np.uint8:
            raise ArgumentTypeError("frame", f"must be uint8, 0 to 255, got {frame.dtype}")
        if self._shape is None:
            if frame.ndim not in (2, 3) or (frame.ndim == 3 and frame.shape[2] != 3) or not frame.size:
                raise ArgumentError("frame", f"must have shape (height, width) or (height, width, 3), got {frame.shape}")
            self._shape = frame.shape
            self._kept = self._empty()
        if frame.shape != self._shape:
            raise ArgumentError("frame", f"must be of the shape of the first, {self._shape}, got {frame.shape}")
        return frame

    def _empty(self) -> _Kept:
        shape = self._shape or ()
        most = self._memory // 2 // int(np.prod(shape))  # half of it: there may be two of these
        return _Kept(shape, min(max(most, _LEAST_KEPT), _MOST_KEPT), self.history)

    def _watch(self, frame: np.ndarray) -> None:
        """Keep the frame, look whether the picture has changed, and learn if it is time."""
        assert self._model is not None  # since the first frame
        assert self._kept is not None
        self._finish_learning()
        self._since += 1
        learned = self._since >= _FIRST or bool(self._known)
        if learned and self.agree < _FALLEN * self._model.usual:
            self._fallen(frame)
        else:
            self._low, self._new = 0, None
            self._model.usual += _USUAL_STEP * (self.agree - self._model.usual)
            self._kept.add(frame)
        if self._since >= self._next and self._learning is None and self._low == 0:
            self._learn()

    def _fallen(self, frame: np.ndarray) -> None:
        """Fewer pixels agree than usual: is it another light that is known, or a lasting change?"""
        assert self._model is not None
        self._low += 1
        self._new = self._new or self._empty()
        self._new.add(frame)
        if self._low % _OFTEN == 0 and self._learning is None:
            for k, known in enumerate(self._known):
                _, agree = known.light_of(frame)
                if agree > _RECOGNISED * self.agree and agree > _FALLEN * known.usual:
                    log.info("frame %d: the picture is again as it was earlier; that background is used", self.frames)
                    self._known[k], self._model = self._model, known
                    self._begin(self._new)
                    return
        if self._low >= _PATIENCE and self._learning is None:
            log.info(
                "frame %d: the picture has changed for good (%.0f%% of the pixels agree with the background, "
                "%.0f%% is usual): learning anew from the last %d frames",
                *(self.frames, 100 * self.agree, 100 * self._model.usual, self._low),
            )
            self._known = [self._model, *self._known][:_KNOWN]
            self._begin(self._new)
            self._learn()

    def _begin(self, kept: _Kept) -> None:
        """From here on `kept` are the frames that count."""
        self._kept, self._new, self._low = kept, None, 0
        self._since, self._next = kept.seen, 2 * max(kept.seen, _FIRST)

    def _model_of(self, background: Background) -> _Model:
        return _Model.of(background, background.rule.adjusted(**self._rule), self._device)

    def _learn(self) -> None:
        assert self._kept is not None
        # twice as late each time, while the frames since the last change are still becoming more
        self._next = self._since + min(max(self._since, _FIRST), self.history)
        self._learning = _Learning(self._kept.pictures(), self._find, self._memory)
        if self._beside:
            run = self._learning.run
            threading.Thread(target=run, args=[self._model_of], name="learning a background", daemon=True).start()
        else:
            self._learning.run(self._model_of)
            self._finish_learning()

    def _finish_learning(self) -> None:
        """Take a background that was learned beside the work, once it is there."""
        if self._learning is None or not self._learning.done.is_set():
            return
        learning, self._learning = self._learning, None
        if learning.error is not None:
            raise learning.error
        assert learning.model is not None
        self._model, self.learned = learning.model, self.learned + 1


class _Kept:
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


class _Model:
    """A background that was learned, and how to find its light."""

    def __init__(
        self, splitter: FrameSplitter, rows: np.ndarray, design: np.ndarray, noise: float, light: np.ndarray
    ) -> None:
        self.splitter, self.rows, self.design, self.noise = splitter, rows, design, noise
        self.levels = design.mean(axis=0)  # of one unit of each component
        self._light, self._kernels = light, choose("auto", design)
        self.usual, self._drifted = 1.0, np.zeros(len(rows), dtype=np.float32)

    @classmethod
    def of(cls, background: Background, rule: MaskRule, device: str) -> _Model:
        """A background as `find_background` finds it, with a rule."""
        left = background.matrix.left
        # spread by the golden section: no two of them are near to each other, and no line or column is favoured
        n1 = len(left)
        count = min(_MOST_PIXELS, n1)
        rows = np.unique((np.arange(count) * 0.6180339887498949 % 1 * n1).astype(np.int64))
        design = np.ascontiguousarray(left[rows], dtype=np.float32)
        light = background.matrix.right[-1].astype(np.float32)
        left = np.concatenate([left, np.zeros((n1, 1), dtype=np.float32)], axis=1)  # and how far it has drifted
        return cls(FrameSplitter(left, background.shape, rule, device), rows, design, background.noise, light)

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

    def level(self, light: np.ndarray) -> float:
        """Mean grey level in a light (r,)."""
        return float(self.levels @ light + self._drifted.mean())

    def light_of(self, frame: np.ndarray) -> tuple[np.ndarray, float]:
        """The light (r,) of a frame, and the share of the looked-at pixels that agree with it."""
        seen = (frame.reshape(-1)[self.rows] - self._drifted)[None, :]
        light, agree = self._fit(seen, self._light, _NEAR)
        if agree < _FALLEN * self.usual:  # far from the last one, perhaps
            far, better = self._fit(seen, None, None)
            light, agree = (far, better) if better > agree else (light, agree)
        if agree > 0.5 * self.usual:  # else what hides the background may have led it astray
            self._light = light
        return light, agree

    def _fit(self, seen: np.ndarray, start: np.ndarray | None, widest: float | None) -> tuple[np.ndarray, float]:
        near = {} if start is None else {"start": start[None, :], "widest": widest}
        light, agree = self._kernels.robust_fit(seen, self.design, self.noise, **near)
        return light[0], float(agree[0])


class _Learning:
    """One background that is being learned, possibly in another thread."""

    def __init__(self, pictures: list[np.ndarray], options: FindOptions, memory: int) -> None:
        self._pictures, self._options, self._memory = pictures, options, memory
        self.done = threading.Event()
        self.error: Exception | None = None
        self.model: _Model | None = None

    def run(self, make: Callable[[Background], _Model]) -> None:
        """Learn, and `make` a model of it."""
        try:
            shape = self._pictures[0].shape
            plan = plan_pass(int(np.prod(shape)), len(self._pictures), self._memory)
            background, _ = find_background(self._pictures, shape, plan, self._options, False)
            model = make(background)
            # what is usual in the frames that it was learned from
            model.usual = float(np.median([model.light_of(frame)[1] for frame in self._pictures]))
            self.model = model
        except Exception as error:  # raised by the next frame
            self.error = error
        finally:
            self._pictures = []
            self.done.set()


def _still(frame: np.ndarray) -> Background:
    """A single frame as its own background."""
    left = frame.reshape(-1, 1).astype(np.float32)
    matrix = CURMatrix(left, np.ones((1, 1), dtype=np.float32), np.arange(1), np.arange(1))
    rough = np.full(frame.shape[:2], _FIRST_NOISE)
    return Background(matrix, frame.shape, _FIRST_NOISE, learn_rule(rough, 2 * rough))
