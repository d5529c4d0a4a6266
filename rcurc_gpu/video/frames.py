"""The work on one frame: its background, mask, foreground and objects. Compiled where Numba is, or on a GPU, or plain."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import ndimage

from ..backends import array_namespace, asarray_on, picture_kernels, place_for, to_numpy
from .masks import SHADOW_COLOUR, SHADOW_DARKEST, MaskRule

_PLAIN = 128  # grey level around what was cut out: dark and bright things both stand out from it
_MOST_COMPILED = 15  # side of the largest window whose count fits into a byte
_MOST_DRIFT = 4.0  # grey levels: what differs by more is the edge of a thing rather than a change of the background
NO_OBJECTS = np.empty((0, 5), dtype=np.int64)


class Split(NamedTuple):
    """What a frame is made of.

    Attributes
    ----------
    background : uint8 array of the frame's shape
    mask : uint8 array (height, width)
        255 where there is foreground, else 0.
    objects : int64 array (k, 5)
        Left, top, width, height and area, in pixels, of each group of the mask's pixels.
    """

    background: np.ndarray
    mask: np.ndarray
    objects: np.ndarray


class FrameSplitter:
    """Splits the frames of one camera, whose background is a sum of pictures.

    Parameters
    ----------
    left : float array (n1, r)
        The pictures, as columns.
    shape : (int, int) or (int, int, 3)
        Of a frame, n1 numbers.
    rule : MaskRule
        What is foreground.
    device : str
        As in `rcurc`; on a GPU, frames go there one at a time and backgrounds and masks come back.
    compiled : bool
        Without a GPU: whether to take compiled code, if Numba is installed. Plain code gives the same.
    """

    def __init__(
        self, left: np.ndarray, shape: tuple[int, ...], rule: MaskRule, device: str = "cpu", compiled: bool = True
    ) -> None:
        self.shape, self.rule = shape, rule
        like = place_for(device, np.empty(0, dtype=np.float32)) if device.startswith("cuda") else np.empty(0)
        self.parts = asarray_on(np.ascontiguousarray(left.T, dtype=np.float32), like)
        on_host = isinstance(self.parts, np.ndarray)
        self._kernels: Any = picture_kernels() if compiled and on_host and rule.median <= _MOST_COMPILED else None
        # |a - b| of bytes is above a threshold if it is above its whole part
        self._limit = np.floor(np.clip(rule.threshold, 0, 255)).astype(np.uint8).reshape(-1)
        self._threshold = np.ascontiguousarray(rule.threshold, dtype=np.float32).reshape(-1)

    def paint(self, coefficients: np.ndarray) -> np.ndarray:
        """The background in a light, uint8 of the frame's shape; `coefficients` (r,)."""
        factors = np.asarray(coefficients, dtype=np.float32)
        if self._kernels is not None:
            out = np.empty(self.parts.shape[1], dtype=np.uint8)
            self._kernels.paint(self.parts, factors, out)
            return out.reshape(self.shape)
        return to_numpy(self._painted(factors)).reshape(self.shape)

    def split(self, frame: np.ndarray, coefficients: np.ndarray) -> Split:
        """Background, mask and objects of a frame, uint8 of `shape`, in a light (r,)."""
        if self._kernels is not None:
            background = self.paint(coefficients)
            return Split(background, *self._compiled_mask(np.ascontiguousarray(frame), background))
        on = asarray_on(frame, self.parts)
        xp = array_namespace(on)
        painted = xp.reshape(self._painted(np.asarray(coefficients, dtype=np.float32)), self.shape)
        mask = to_numpy(self.rule.mask(on, painted))
        return Split(to_numpy(painted), mask.astype(np.uint8) * np.uint8(255), objects_in(mask))

    def cut_out(self, frame: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The foreground, on plain grey, uint8 of `shape`."""
        out = np.empty_like(frame)
        if self._kernels is not None:
            channels = frame.size // mask.size
            flat = np.ascontiguousarray(frame).reshape(-1, channels)
            self._kernels.cut_out(flat, mask.reshape(-1), np.uint8(_PLAIN), out.reshape(-1, channels))
            return out
        out[:] = _PLAIN
        np.copyto(out, frame, where=(mask if frame.ndim == 2 else mask[..., None]) != 0)
        return out

    def drift(self, frame: np.ndarray, found: Split, gain: float, lines: slice) -> None:
        """Let the last picture of the sum follow a frame, on some of its lines, where its background is seen."""
        width, channels = self.shape[1], frame.size // found.mask.size
        some = slice(lines.start * width * channels, lines.stop * width * channels)
        seen, background, mask = frame[lines], found.background[lines], found.mask[lines]
        if self._kernels is not None:
            flat = (np.ascontiguousarray(seen).reshape(-1, channels), background.reshape(-1, channels), mask.reshape(-1))
            self._kernels.drift(*flat, self.parts[-1, some].reshape(-1, channels), np.float32(gain), np.float32(_MOST_DRIFT))
            return
        left = np.float32(gain) * np.clip(seen.astype(np.float32) - background, -_MOST_DRIFT, _MOST_DRIFT).astype(np.float32)
        left[mask != 0] = 0
        self.parts[-1, some] += asarray_on(left.reshape(-1), self.parts)

    def _painted(self, factors: np.ndarray) -> Any:
        """In the order of the compiled code."""
        xp = array_namespace(self.parts)
        total = xp.zeros_like(self.parts[0, :])
        for k in range(self.parts.shape[0]):
            total = total + self.parts[k, :] * asarray_on(factors[k : k + 1], self.parts)
        return xp.astype(xp.clip(total, 0, 255) + asarray_on(np.full(1, 0.5, np.float32), total), xp.uint8)

    def _compiled_mask(self, frame: np.ndarray, background: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kernels, rule = self._kernels, self.rule
        mask = np.empty(self.shape[:2], dtype=np.uint8)
        if frame.ndim == 2:
            kernels.differs_grey(frame.reshape(-1), background.reshape(-1), self._limit, mask.reshape(-1))
        else:
            limits = np.float32(SHADOW_DARKEST if rule.shadow else 1), np.float32(SHADOW_COLOUR)
            flat = frame.reshape(-1), background.reshape(-1), self._limit, self._threshold
            kernels.differs_colour(*flat, *limits, mask.reshape(-1))
        if rule.median > 1:
            found, mask = mask, np.empty_like(mask)
            kernels.majority(found, rule.median, mask)
        if rule.region is not None:
            mask &= rule.region
        objects = kernels.groups(mask, rule.min_area)
        mask *= np.uint8(255)
        return mask, objects


def objects_in(mask: np.ndarray) -> np.ndarray:
    """Groups of pixels of a mask (height, width) that touch at sides or corners; see `Split.objects`."""
    labels, count = ndimage.label(mask, structure=np.ones((3, 3), dtype=bool))
    if count == 0:
        return NO_OBJECTS
    areas = np.bincount(labels.ravel())[1:]
    boxes = [(x.start, y.start, x.stop - x.start, y.stop - y.start) for y, x in ndimage.find_objects(labels)]
    return np.column_stack([np.asarray(boxes), areas]).astype(np.int64)
