"""Whether the camera moves: shifts between frames. Small ones are undone, a pan is named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import fft, ndimage

from .pictures import grey, shrink

_SIDE = 256  # pixels of the pictures that are compared, at most: shifts are found to a tenth of one of them
_LEAST_SIDE = 12  # of a picture that has something to match in each tile
_LEAST_SHIFT = 0.4  # pixels of the video: less blurs edges no more than the lens does
_LEAST_MOVED = 0.3  # of the frames: fewer are taken for an error of the estimate, or for something large that passes
_FAR = 0.06  # of the shorter side: what moved farther shows too little of what was there
_TILES = 3  # by three
_TOGETHER = 1.0  # small pixels, within which tiles agree
_JUMPED = 0.1  # of the frames are far away: it was pushed
_LEAST_PEAK = 0.06  # of about 0.28, for equal tiles: below, they have nothing in common that could be matched


@dataclass(frozen=True, eq=False)
class Motion:
    """How a camera moved.

    Attributes
    ----------
    shakes : bool
        Whether frames have to be shifted, and can be.
    pans : bool
        Whether it moved too far for that.
    largest : float
        Pixels, the largest shift between two of the frames.
    reference : array (height, width), optional
        The frame to which others are shifted, in grey.
    """

    shakes: bool
    pans: bool
    largest: float
    reference: np.ndarray


STANDS = Motion(False, False, 0.0, np.empty((0, 0), dtype=np.float32))  # of a camera that is not asked


def find_motion(pictures: np.ndarray) -> Motion:
    """How the camera moved between some frames, uint8 (frames, height, width[, 3]), in their order."""
    reference = grey(pictures[len(pictures) // 2])
    if min(reference.shape) < _LEAST_SIDE:
        return Motion(False, False, 0.0, reference)
    matcher = _Matcher(reference)
    spectra = [matcher.spectra(picture) for picture in pictures]
    found = [matcher.shift(own) for own in spectra]
    shifts = np.asarray([shift or (0.0, 0.0) for shift in found])
    steps = np.zeros((len(pictures), 2))
    if None in found or np.max(np.hypot(*shifts.T)) > _LEAST_SHIFT:  # else it stands, and steps say nothing more
        steps[1:] = [matcher.shift(own, last) or (0.0, 0.0) for last, own in pairwise(spectra)]
    far = _FAR * min(reference.shape)
    path = np.cumsum(steps, axis=0)  # from frame to frame: also where the first and the last show different things
    way = float(np.max(np.hypot(*(path - path[len(path) // 2]).T)))
    size = np.hypot(*shifts.T)
    moved = np.mean(np.hypot(*(shifts - np.median(shifts, axis=0)).T) > _LEAST_SHIFT)
    pans = way > 2 * far and float(np.mean(np.hypot(*steps.T) > _LEAST_SHIFT)) > _LEAST_MOVED
    pans |= float(np.mean(size > far)) > _JUMPED
    shakes = not pans and moved > _LEAST_MOVED and float(np.quantile(size, 0.9)) <= far
    return Motion(shakes, pans, way if pans else float(np.max(size)), reference)


class Stabilised:
    """Frames of a source, shifted so that they lie on a reference; edges are repeated where nothing was seen."""

    def __init__(self, source: Any, reference: np.ndarray) -> None:
        self.source, self._matcher = source, _Matcher(reference)
        self.fps = float(getattr(source, "fps", float("nan")))

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.stabilise(np.asarray(frame)) for frame in self.source)

    def stabilise(self, frame: np.ndarray) -> np.ndarray:
        """One frame, uint8, in the place of the reference."""
        down, across = self._matcher.shift(self._matcher.spectra(frame)) or (0.0, 0.0)
        limit = _FAR * min(frame.shape[:2])
        if max(abs(down), abs(across)) < 0.1 or np.hypot(down, across) > 2 * limit:
            return frame
        channels = np.atleast_3d(frame)
        moved = [
            ndimage.shift(channels[..., c], (-down, -across), order=1, mode="nearest") for c in range(channels.shape[2])
        ]
        return np.stack(moved, axis=2).reshape(frame.shape)


class _Matcher:
    """Finds how far pictures are shifted against one: phase correlation in tiles, of which most have to agree.

    A camera moves all tiles alike; what passes before it moves some of them.
    """

    def __init__(self, picture: np.ndarray) -> None:
        self._factor = max(-(-max(picture.shape[:2]) // _SIDE), 1)
        small = [max(side // self._factor, 1) for side in picture.shape[:2]]
        self._tile = [_quick(max(side // _TILES, 1)) for side in small]
        self._window = np.outer(*(np.hanning(side + 2)[1:-1] for side in self._tile)).astype(np.float32)
        # noise fills the high frequencies, where a still picture says least
        high, wide = np.fft.fftfreq(self._tile[0]), np.fft.rfftfreq(self._tile[1])
        self._low = np.hypot(high[:, None], wide[None, :]) < 0.3
        self._reference = self.spectra(picture)

    def shift(self, spectra: np.ndarray, other: np.ndarray | None = None) -> tuple[float, float] | None:
        """How far the tiles of a picture are down and across, in pixels, of those of another one, by default the first; None
        if most tiles do not agree."""
        cross = spectra * np.conj(self._reference if other is None else other)
        cross /= np.maximum(np.abs(cross), np.float32(1e-9))
        surfaces = fft.irfft2(cross, s=self._tile)
        shifts = np.asarray([_peak(surface) for surface in surfaces if surface.max() > _LEAST_PEAK])
        if len(shifts) <= len(surfaces) // 3:
            return None
        middle = np.median(shifts, axis=0)
        agree = np.max(np.abs(shifts - middle), axis=1) < _TOGETHER
        if np.mean(agree) <= 0.5:
            return None
        down, across = self._factor * np.mean(shifts[agree], axis=0)
        return float(down), float(across)

    def spectra(self, picture: np.ndarray) -> np.ndarray:
        """Spectra of the tiles of a picture, made small and without its slow changes, which light makes."""
        small = shrink(picture, self._factor)
        small -= ndimage.gaussian_filter(small, 4.0)
        limit = 3 * np.median(np.abs(small)) + np.float32(1e-6)
        small = np.clip(small, -limit, limit)  # or a few strong edges decide
        high, wide = self._tile
        tiles = small[: high * _TILES, : wide * _TILES].reshape(_TILES, high, _TILES, wide).transpose(0, 2, 1, 3)
        spectra: np.ndarray = fft.rfft2(tiles.reshape(-1, high, wide) * self._window)
        return spectra * self._low


def _quick(side: int) -> int:
    """The largest length up to `side` of which a Fourier transform is quick."""
    while fft.next_fast_len(side, real=True) != side:
        side -= 1
    return side


def _peak(surface: np.ndarray) -> tuple[float, float]:
    """Where a surface that goes on at its edges is highest, to a part of a pixel."""
    at = np.unravel_index(int(np.argmax(surface)), surface.shape)
    found = []
    for axis, n in enumerate(surface.shape):
        low, high = (surface[tuple((p + step) % n if k == axis else p for k, p in enumerate(at))] for step in (-1, 1))
        bend = low - 2 * surface[at] + high  # the top of a parabola through three values
        place = float(at[axis]) + (0.5 * float(low - high) / float(bend) if bend < 0 else 0.0)
        found.append(place - n if place > n / 2 else place)
    return found[0], found[1]
