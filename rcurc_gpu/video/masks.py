"""Which pixels of a frame are foreground: thresholds of each pixel, then rules about neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import ndimage

from ..backends import array_namespace, asarray_on, to_numpy
from ..errors import ArgumentError, check_count

# A pixel's threshold is so many times the median of its residuals: 2.7 standard deviations of normal noise. With this and
# LEAST_THRESHOLD the mask's F on a highway was 0.93, and 0.95 after a median of 5 x 5 pixels (0.80 with one for all).
NOISE_FACTOR = 4.0
LEAST_THRESHOLD = 14.7  # grey levels: compression leaves errors around what moves that its noise elsewhere does not show
POOL = 5  # pixels: the noise of a pixel is that of a window around it; single medians are as rough as their few residuals
# A shadow takes some of the light of all channels alike. Darker than this is a thing, not its shadow.
SHADOW_DARKEST = 0.4
SHADOW_COLOUR = 0.5  # of the pixel's threshold: how much a channel may differ, but for the loss of light


@dataclass(frozen=True, eq=False)
class MaskRule:
    """How foreground is told from background.

    A pixel differs if a channel is farther from the background than `threshold`. Shadows are taken out, then the majority
    of ``median x median`` pixels decides, and groups of fewer than `min_area` pixels that touch at sides or corners are
    dropped.

    Attributes
    ----------
    threshold : float32 array (height, width)
        Grey levels.
    median : int
        Odd; 1 leaves the pixels as they are.
    min_area : int
        Pixels; 1 keeps everything.
    shadow : bool
        Whether shadows are background; of frames in colour alone, as grey frames do not tell them.
    region : bool array (height, width), optional
        Foreground is only looked for here.
    """

    threshold: np.ndarray
    median: int = 5
    min_area: int = 1
    shadow: bool = True
    region: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.threshold.ndim != 2:
            raise ArgumentError("threshold", f"must have one value for each pixel, got shape {self.threshold.shape}")
        if check_count("median", self.median) % 2 == 0:
            raise ArgumentError("median", f"must be odd, got {self.median}")
        check_count("min_area", self.min_area)
        if self.region is not None and (self.region.dtype != bool or self.region.shape != self.threshold.shape):
            shape = self.threshold.shape
            raise ArgumentError("region", f"must be bool of shape {shape}, got {self.region.dtype} {self.region.shape}")

    def adjusted(
        self,
        *,
        threshold: float | None = None,
        shadow: bool = True,
        region: np.ndarray | None = None,
        min_area: int | None = None,
        median: int | None = None,
    ) -> MaskRule:
        """The rule with what a user says about it: one threshold for all pixels, and what is not None."""
        given = {"region": region, "min_area": min_area, "median": median}
        asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if threshold is not None:
            asked["threshold"] = np.full(self.threshold.shape, threshold, dtype=np.float32)
        return replace(self, shadow=shadow, **asked)

    def differs(self, frame: Any, background: Any) -> Any:
        """Pixels beyond their thresholds that are no shadows, each for itself, bool (height, width)."""
        xp = array_namespace(frame)
        f, b = xp.astype(frame, xp.float32), xp.astype(background, xp.float32)
        threshold = asarray_on(self.threshold, frame)
        if f.ndim == 2:
            return xp.abs(f - b) > threshold
        found = xp.max(xp.abs(f - b), axis=2) > threshold
        return found & ~_shaded(f, b, threshold) if self.shadow else found

    def mask(self, frame: Any, background: Any) -> Any:
        """The foreground of a frame.

        Parameters
        ----------
        frame, background : uint8 or float32 arrays (height, width) or (height, width, 3)
            Of any namespace, on any device; groups that are too small are looked for on the host.

        Returns
        -------
        bool array (height, width)
            Where the frame is.
        """
        found = majority(self.differs(frame, background), self.median)
        if self.region is not None:
            found = found & asarray_on(self.region, found)
        return found if self.min_area <= 1 else asarray_on(without_specks(to_numpy(found), self.min_area), found)


def majority(found: Any, size: int) -> Any:
    """`found` (height, width) by the majority of ``size x size`` pixels; at the edges the last ones count several times."""
    xp, reach = array_namespace(found), size // 2
    if size == 1:
        return found
    count = xp.astype(found, xp.int32)
    for axis in (0, 1):  # whole numbers, so every count is exact
        n = count.shape[axis]
        places = np.clip(np.arange(-reach, n + reach), 0, n - 1)
        padded = xp.take(count, asarray_on(places, count), axis=axis)
        parts = [padded[k : k + n, :] if axis == 0 else padded[:, k : k + n] for k in range(size)]
        count = sum(parts[1:], parts[0])
    return count > size * size // 2


def _shaded(frame: Any, background: Any, threshold: Any) -> Any:
    """Where a frame in colour is the background with less light, bool (height, width)."""
    xp = array_namespace(frame)
    square = xp.sum(background * background, axis=2)
    light = xp.sum(frame * background, axis=2) / xp.where(square < 1, xp.ones_like(square), square)
    left = xp.max(xp.abs(frame - light[..., None] * background), axis=2)
    return (light > SHADOW_DARKEST) & (light < 1) & (left < SHADOW_COLOUR * threshold)


def without_specks(mask: np.ndarray, min_area: int) -> np.ndarray:
    """`mask` (height, width) without groups of fewer than `min_area` pixels."""
    if min_area <= 1 or not mask.any():
        return mask
    labels, _ = ndimage.label(mask, structure=np.ones((3, 3), dtype=bool))
    large = np.bincount(labels.ravel()) >= min_area
    large[0] = False
    return large[labels]


def learn_rule(
    typical: np.ndarray,
    most: np.ndarray | None = None,
    wide: np.ndarray | None = None,
    *,
    least: float = LEAST_THRESHOLD,
    median: int | None = None,
) -> MaskRule:
    """A rule for frames whose residuals are known.

    Parameters
    ----------
    typical : float array (height, width)
        The median of each pixel's absolute residuals, over frames; of pixels in colour the largest of their channels.
    most : float array (height, width), optional
        Thresholds that are enough, where a background moves to and fro between bounds.
    wide : float array (height, width), optional
        Thresholds of pixels before which leaves or water move, 0 elsewhere.
    least : float
        No threshold is below.
    median : int, optional
        See `MaskRule`; by default by the size of the frames.

    Returns
    -------
    MaskRule
    """
    pooled = ndimage.uniform_filter(typical.astype(np.float32), POOL, mode="nearest")
    # a pixel that is rougher than those around it stays so
    values = NOISE_FACTOR * np.maximum(pooled, typical)
    values = values if most is None else np.minimum(values, most)
    values = np.maximum(values, least)
    values = values if wide is None else np.maximum(values, wide)
    return MaskRule(values.astype(np.float32), median or median_size(typical.shape), least_area(typical.shape))


def median_size(shape: tuple[int, ...]) -> int:
    """Side of the window whose majority decides: 5 for frames of 240 x 320, less for small ones, whose things are thin."""
    return 3 if min(shape[:2]) < 120 else 5


def least_area(shape: tuple[int, ...]) -> int:
    """Pixels of the smallest thing: 1 / 10000 of the picture, 7 pixels of 240 x 320."""
    return max(shape[0] * shape[1] // 10000, 1)
