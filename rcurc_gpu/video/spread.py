"""How much each pixel differs from its background when nothing passes: its noise, and leaves or water that move before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from .masks import learn_rule

_FRAMES = 40  # from which it is told; a median of so many is good to a fifth
_STEPS = 2.0  # of a grey level: differences are kept as bytes
_ENTRIES_AT_ONCE = 1 << 22
_WINDOW = 7  # pixels: what moves is told by a pixel and those around it
_REACH = 0.015  # of the shorter side: how far leaves move
# Where leaves or water move, something does so in so many of the frames in each window, ...
_OFTEN = 0.4
# ... and so much of what differs has a value that the background has near by: leaves move, and bring nothing new.
_KNOWN = 0.7
_MARGIN = 1.1  # over the largest difference that was seen


@dataclass(frozen=True, eq=False)
class Spread:
    """What is usual of each pixel, arrays (height, width).

    Attributes
    ----------
    typical : float32
        The median of the absolute residuals, of the channel in which they are largest.
    differs : float32
        Share of frames in which the pixel is beyond its threshold.
    wide : float32
        Threshold where leaves or water move; 0 elsewhere.
    """

    typical: np.ndarray
    differs: np.ndarray
    wide: np.ndarray


def find_spread(pictures: np.ndarray, left: np.ndarray, right: np.ndarray) -> Spread:
    """What is usual of each pixel, from some frames.

    Parameters
    ----------
    pictures : uint8 array (frames, height, width) or (frames, height, width, 3)
    left : float32 array (n1, k)
    right : float32 array (frames, k)
    """
    chosen = np.unique(np.linspace(0, len(pictures) - 1, min(_FRAMES, len(pictures))).round().astype(int))
    shape = pictures.shape[1:3]
    steps = np.empty((len(chosen), *shape), dtype=np.uint8)
    for k, j in enumerate(chosen):
        apart = np.abs(pictures[j] - (left @ right[j]).reshape(pictures.shape[1:]))
        apart = apart.max(axis=2) if apart.ndim == 3 else apart
        steps[k] = np.minimum(_STEPS * apart + 0.5, 255)
    typical = (_median(steps.reshape(len(chosen), -1)) / _STEPS).reshape(shape)
    limit = np.minimum(_STEPS * learn_rule(typical).threshold, 255)
    often, out, known = (np.zeros(shape, dtype=np.float32) for _ in range(3))
    largest = np.zeros(shape, dtype=np.uint8)
    reach = 2 * max(round(_REACH * min(shape)), 2) + 1
    for k, j in enumerate(chosen):
        beyond = steps[k] > limit
        out += beyond
        behind = _grey((left @ right[j]).reshape(pictures.shape[1:]))
        there = _grey(pictures[j])
        margin = limit / _STEPS / 2
        low, high = (f(behind, reach, mode="nearest") for f in (ndimage.minimum_filter, ndimage.maximum_filter))
        brought = beyond & (there >= low - margin) & (there <= high + margin)
        known += brought
        often += ndimage.uniform_filter(brought.astype(np.float32), _WINDOW, mode="nearest") > 2.5 / _WINDOW**2
        np.maximum(largest, np.where(brought, steps[k], 0), out=largest)
    n = len(chosen)
    around = [ndimage.uniform_filter(x, _WINDOW, mode="nearest") for x in (known, out)]
    moves = (often >= _OFTEN * n) & (around[0] >= _KNOWN * around[1])
    wide = ndimage.uniform_filter(ndimage.maximum_filter(largest, 3).astype(np.float32), 5, mode="nearest") / _STEPS
    return Spread(typical, out / n, np.where(moves, _MARGIN * wide, 0).astype(np.float32))


def _median(values: np.ndarray) -> np.ndarray:
    """Medians of the columns, float32; pieces of them, turned so that each lies in one piece of memory."""
    n, total = values.shape
    found = np.empty(total, dtype=np.float32)
    step = max(_ENTRIES_AT_ONCE // n, 1)
    for start in range(0, total, step):
        part = np.ascontiguousarray(values[:, start : start + step].T)
        found[start : start + step] = np.partition(part, n // 2, axis=1)[:, n // 2]
    return found


def _grey(picture: np.ndarray) -> np.ndarray:
    return picture.mean(axis=2, dtype=np.float32) if picture.ndim == 3 else picture.astype(np.float32)
