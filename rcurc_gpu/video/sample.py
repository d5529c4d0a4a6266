"""Cross-concentrated samples of a video, in one pass over its frames."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sized
from typing import Any

import numpy as np

from ..backends import Block, Stream, generator
from ..errors import ArgumentError, ArgumentTypeError, check_number, seed_to_int
from ..progress import Progress
from ..samples import CrossSamples, check_finite
from .read import open_video


def sample_video(
    source: Any, share_rows: float = 0.4, share_cols: float = 0.4, rate: float = 0.3, seed: Any = 0, progress: bool = False
) -> CrossSamples:
    """Draw cross-concentrated samples of a video as a matrix, pixels x frames.

    The frames are looked at once, in their order, and only what is drawn is kept: 8 bytes for an observation, and about
    twice that for a moment at the end.

    Parameters
    ----------
    source : path, Video, SurveillanceScene, or anything with a length that gives frames
        Frames are arrays of one shape, of n1 numbers: pixel (y, x) of a grey frame is the row ``y * width + x``.
    share_rows, share_cols : float in (0, 1]
        Share of the pixels and of the frames that is chosen.
    rate : float in (0, 1]
        p_R and p_C: every entry of a block is seen with this probability.
    seed : None, int or numpy.random.Generator
    progress : bool
        Show a progress bar on standard error.

    Returns
    -------
    CrossSamples
        With float32 values, in which uint8 is exact. If the source gives fewer frames than it says, as a damaged file does,
        n2 is the number that came.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> from rcurc_gpu.video import sample_video, surveillance_scene
    >>> scene = surveillance_scene((32, 40), frames=60, seed=0)
    >>> samples = sample_video(scene)
    >>> samples.shape  # pixels x frames
    (1280, 60)
    """
    share_rows = check_number("share_rows", share_rows, 0, 1, open_low=True)
    share_cols = check_number("share_cols", share_cols, 0, 1, open_low=True)
    rate = check_number("rate", rate, 0, 1, open_low=True)
    if isinstance(source, (str, os.PathLike)):
        source = open_video(source)
    if not (isinstance(source, Sized) and isinstance(source, Iterable)):
        kind = type(source).__name__ + (" without a length" if isinstance(source, Iterable) else "")
        raise ArgumentTypeError("source", f"must be a path, a Video or frames with a length (a list, an array), got {kind}")
    n2 = len(source)
    if n2 == 0:
        raise ArgumentError("source", "has no frames")
    rng = generator(seed_to_int(seed), Stream.VIDEO_CROSS)
    # the first to be drawn, so that who knows the seed knows them before the frames come
    cols = choose(n2, share_cols, rng)
    chosen = np.zeros(n2, dtype=bool)
    chosen[cols] = True
    rows, shape = np.empty(0, dtype=np.int64), None
    r_parts, c_parts = _Parts(), _Parts()
    came = 0
    with Progress(progress) as bar:
        bar.stage("sampling", n2)
        for k, frame in enumerate(source):
            if k == n2:
                raise ArgumentError("source", f"must give as many frames as its length says, {n2}, got more")
            if shape is None:
                shape = np.shape(frame)
                rows = choose(int(np.prod(shape)), share_rows, rng)
            pixels = _pixels(frame, shape, k)
            seen = _seen(len(rows), rate, rng)
            r_parts.append(seen, pixels[rows[seen]])
            if chosen[k]:
                seen = _seen(len(pixels), rate, rng)
                c_parts.append(seen, pixels[seen])
            came = k + 1
            bar.advance(1)
    if shape is None:
        raise ArgumentError("source", "has no frames")
    n1 = int(np.prod(shape))
    cols = cols[cols < came]
    if len(cols) == 0:
        raise ArgumentError("source", f"gave {came} of {n2} frames, and none of those that were chosen is among them")
    # C comes frame by frame here, but its units are the pixels
    r_block, c_block = r_parts.block(len(rows)), c_parts.block(n1).transpose()
    for block in (r_block, c_block):
        check_finite("source", block.value)
    return CrossSamples((n1, came), rows, cols, r_block, c_block)


class _Parts:
    """Observations of one unit after the other."""

    def __init__(self) -> None:
        self.index: list[np.ndarray] = []
        self.value: list[np.ndarray] = []

    def append(self, index: np.ndarray, value: np.ndarray) -> None:
        """The next unit."""
        self.index.append(index.astype(np.int32))
        self.value.append(value)

    def block(self, length: int) -> Block:
        """All of them; empties the parts."""
        indptr = np.concatenate([[0], np.cumsum([len(index) for index in self.index])]).astype(np.int64)
        index = np.concatenate(self.index)
        self.index.clear()
        value = np.concatenate(self.value, dtype=np.float32)
        self.value.clear()
        return Block(indptr, index, value, length)


def choose(total: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """Numbers below `total`, ascending, at least one."""
    return np.sort(rng.choice(total, max(round(share * total), 1), replace=False)).astype(np.int64)


def _seen(length: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Which entries of a unit are seen, ascending."""
    return np.flatnonzero(rng.random(length, dtype=np.float32) < rate)


def _pixels(frame: Any, shape: tuple[int, ...], number: int) -> np.ndarray:
    frame = np.asarray(frame)
    if frame.shape != shape:
        raise ArgumentError("source", f"must give frames of one shape, {shape}, got {frame.shape} as frame {number}")
    if frame.dtype.kind not in "uif":
        raise ArgumentTypeError("source", f"must give frames of numbers, got dtype {frame.dtype} as frame {number}")
    return frame.reshape(-1)
