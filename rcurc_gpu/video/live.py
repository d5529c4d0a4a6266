"""A background that is followed frame by frame, as a camera gives them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError, check_count, check_number, seed_to_int
from ..summary import Summarised, Summary
from .adapt import FALLEN, Kept, Learning, LiveModel, Seen, still_background
from .frames import FrameSplitter, Split

if TYPE_CHECKING:
    from .background import Background

log = logging.getLogger("rcurc_gpu")

HISTORY = 500  # frames, as OpenCV's subtractors: 20 s
MEMORY = 256 << 20
# Frames that are kept whole. With so many, noise of the background is a seventh of a frame's.
_MOST_KEPT, _LEAST_KEPT = 60, 8
_FIRST = 12  # frames after which a background is learned for the first time; then after twice as many, and so on
_PATIENCE = (
    25  # a change is lasting if for so many frames in a row fewer pixels agree than FALLEN of what is usual. A second
)
# is longer than most things take to pass close by; what passes more slowly is learned, and given up again.
_USUAL_STEP = 0.02  # by which "usual" follows
_KNOWN = 2  # backgrounds that are kept beside the present one: a light that is switched on again is known
_RECOGNISED = 1.15  # times more pixels have to agree with an earlier background than with the present one
_OFTEN = 5  # frames between two looks at earlier backgrounds
# A background that was learned while nothing changed has to agree with the latest so many frames that were kept; differences
# from it may be this many times as large as those from the present one.
_LATEST, _WORSE = 5, 1.1


class BackgroundSubtractor(Summarised):
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
        from .find import FindOptions  # here: or chains of imports grow long

        self.history = check_count("history", history, _LEAST_KEPT)
        if threshold is not None:
            check_number("threshold", threshold)
        self._memory, self._beside = check_count("memory", memory), beside
        # masks belong to frames as they come, so the background and the thresholds do too
        self._find = FindOptions(rank=rank, seed=seed_to_int(seed), stabilise=False)
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
        self._model: LiveModel | None = None
        self._known: list[LiveModel] = []
        self._learning: Learning | None = None
        self._since, self._next, self._low = 0, _FIRST, 0
        self._good: Seen | None = None  # the last frame that was as usual
        self._before: Seen | None = None  # the last one before the picture changed
        self._kept: Kept | None = None
        self._new: Kept | None = None  # frames since the picture fell out of the usual

    def _summary(self) -> Summary:
        facts = {"frames": f"{self.frames:,} seen, of which {self.history:,} count"}
        facts["background"] = f"learned {self.learned:,} times" if self.learned else "not learned yet"
        if self.frames:
            facts["last frame"] = f"{self.agree:.0%} of its looked-at pixels show the background"
        return Summary(facts)

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
            self._model = self._model_of(still_background(frame))
        model = self._model
        light, self.agree = model.light_of(frame)
        self._watch(frame)
        if self._model is not model:
            model = self._model
            light, self.agree = model.light_of(frame)
        found = model.split(frame, light, self.frames)
        self.background, self.light = found.background, model.level(light)
        self.frames += 1
        if self._low == 0:
            self._good = frame.copy(), found
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

    def _empty(self) -> Kept:
        shape = self._shape or ()
        most = self._memory // 2 // int(np.prod(shape))  # half of it: there may be two of these
        return Kept(shape, min(max(most, _LEAST_KEPT), _MOST_KEPT), self.history)

    def _watch(self, frame: np.ndarray) -> None:
        """Keep the frame, look whether the picture has changed, and learn if it is time."""
        assert self._model is not None  # since the first frame
        assert self._kept is not None
        self._finish_learning()
        self._since += 1
        learned = self._since >= _FIRST or bool(self._known)
        if learned and self.agree < FALLEN * self._model.usual:
            self._fallen(frame)
        else:
            self._low, self._new = 0, None
            self._model.usual += _USUAL_STEP * (self.agree - self._model.usual)
            self._kept.add(frame)
        if self._since >= self._next and self._learning is None and self._low == 0:
            self._learn(anew=self.learned == 0)

    def _fallen(self, frame: np.ndarray) -> None:
        """Fewer pixels agree than usual: is it another light that is known, or a lasting change?"""
        assert self._model is not None
        self._low += 1
        self._new = self._new or self._empty()
        self._new.add(frame)
        if self._low % _OFTEN == 0 and self._learning is None:
            for k, known in enumerate(self._known):
                _, agree = known.light_of(frame)
                if agree > _RECOGNISED * self.agree and agree > FALLEN * known.usual:
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
            self._known, self._before = [self._model, *self._known][:_KNOWN], self._good
            self._begin(self._new)
            self._learn(anew=True)

    def _begin(self, kept: Kept) -> None:
        """From here on `kept` are the frames that count."""
        self._kept, self._new, self._low = kept, None, 0
        self._since, self._next = kept.seen, 2 * max(kept.seen, _FIRST)

    def _model_of(self, background: Background) -> LiveModel:
        return LiveModel.of(background, background.rule.adjusted(**self._rule), self._device)

    def _learn(self, anew: bool) -> None:
        assert self._kept is not None
        # twice as late each time, while the frames since the last change are still becoming more
        self._next = self._since + min(max(self._since, _FIRST), self.history)
        if self._since >= self.history:
            self._before = None
        self._learning = Learning(self._kept.pictures(), self._find, self._memory, self._before)
        self._learning.anew = anew
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
        assert self._model is not None
        assert self._kept is not None
        self.learned += 1
        latest = self._kept.pictures()[-_LATEST:]
        if learning.anew or learning.model.misfit(latest) < _WORSE * self._model.misfit(latest):
            self._model = learning.model
        else:
            log.info("frame %d: the background that was learned is no better than the present one, which stays", self.frames)
