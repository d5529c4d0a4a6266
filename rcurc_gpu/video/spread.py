"""How much each pixel differs from its background when nothing passes, and what that means for masks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from ..backends import picture_kernels
from .masks import LEAST_THRESHOLD, NOISE_FACTOR, POOL, learn_rule, least_area, majority, without_specks
from .pictures import grey

_FRAMES = 40  # from which it is told; a median of so many is good to a fifth
_STEPS = 2.0  # of a grey level: differences are kept as bytes
_AT_ONCE = 1 << 14  # pixels
_STRIP = 1 << 18  # pixels, of 40 frames: 10 MB as bytes, several times; in narrow strips the margins are most of the work
_LIGHTS = 5  # in which it is looked what is near a pixel: some, as stripes that move may be a part of the light
_WINDOW = 7  # pixels: what moves is told by a pixel and those around it
_REACH = 0.015  # of the shorter side: how far leaves move
# Where leaves or water move, so many pixels of each window do so in so many of the frames, ...
_SOME, _OFTEN = 3, 0.4
# ... and so much of what differs has a value that the background has near by: leaves move, and bring nothing new.
_KNOWN = 0.7
_EXTENT = 1.5  # times the range of the background near by: what moves to and fro cannot differ more than its own parts do
_HIGH_FACTOR = 1.7  # times what nine in ten residuals are below: as much of normal noise, less of what is bounded
# Of normal residuals the lower quartile is .47 of the median, and of leaves and water as much. It is more where a background
# has two sides, as stripes that move: there the threshold is the side, the median, and as much more as its noise asks for.
_TWO_SIDES = 0.6
# Something that stands before a pixel for half of the time must not pass for its noise: the median of normal residuals is
# 2.1 times their lower quartile. Before leaves that quartile is larger than in most of the picture, and nothing is changed.
_FROM_LOW, _QUIET = 2.5, 1.5
_LARGEST, _MARGIN = 0.95, 1.1  # of what was seen there; and how far the threshold is above
# Compression, blur and soft shadows leave errors around what moves. They are measured in a ring around what is surely
# foreground, between so many pixels of it; their median gives a threshold for all pixels, as a pixel's own does.
_LOOKS, _LOOK_PIXELS = (4, 12), 1 << 21  # frames, and pixels of all of them
_SURE, _RING = 30.0, (0, 3)
_LEAST_SHARP = 8.0  # grey levels: four times what rounding and weak compression leave
_MEDIANS = (5, 3, 1)
_FIELD, _ROUNDS, _CLEAREST = 0.75, 4, 2.5  # of the Markov field: pull of the neighbours, rounds, and where evidence ends


@dataclass(frozen=True, eq=False)
class Spread:
    """What is usual of each pixel, arrays (height, width).

    Attributes
    ----------
    typical : float32
        The median of the absolute residuals, of the channel in which they are largest.
    most : float32
        Threshold above which none should be.
    differs : float32
        Share of frames in which the pixel is beyond its threshold.
    wide : float32
        Threshold where leaves or water move; 0 elsewhere.
    least : float
        Threshold below which none should be.
    median : int
        Side of the square whose majority is best for masks.
    """

    typical: np.ndarray
    most: np.ndarray
    differs: np.ndarray
    wide: np.ndarray
    least: float
    median: int


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
    steps = _steps(pictures, left, right, chosen)
    low, typical, upper, high = (_quantile(steps, share) / np.float32(_STEPS) for share in (0.25, 0.5, 0.75, 0.9))
    most = _bounds(low, typical, upper, high)
    quiet = low <= _QUIET * np.median(low) + 1 / _STEPS
    typical = np.where(quiet, np.minimum(typical, _FROM_LOW * low), typical)
    some = steps[:: max(len(steps) // _looks(shape), 1)]
    least = _around_things(some)
    limit = np.minimum(_STEPS * learn_rule(typical, most, least=least).threshold, 255)
    differs = np.asarray(np.mean(steps > limit, axis=0, dtype=np.float32))
    wide = np.zeros(shape, dtype=np.float32)
    around = ndimage.uniform_filter(differs, _WINDOW, mode="nearest") * _WINDOW**2
    lefts = left.reshape(*pictures.shape[1:], -1)
    for inner in _strips(around >= _OFTEN * _SOME):  # elsewhere so much cannot differ so often
        part, inside = _widened(inner, _reach(shape) + _WINDOW // 2, shape)
        found = _moving(
            pictures[chosen, part[0], part[1]],
            lefts[part],
            right[chosen],
            steps[(slice(None), *part)],
            limit[part],
            _reach(shape),
        )
        wide[inner] = found[inside]
    if wide.any():
        limit = np.minimum(np.maximum(limit, _STEPS * wide), 255)
    return Spread(typical, most, differs, wide, least, _best_median(some, limit))


def _steps(pictures: np.ndarray, left: np.ndarray, right: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """How far the chosen pictures are from their backgrounds, of the channel that is farthest, in steps; compiled if it can
    be."""
    steps = np.empty((len(chosen), *pictures.shape[1:3]), dtype=np.uint8)
    kernels = picture_kernels()
    parts = None if kernels is None else np.ascontiguousarray(left.T)
    for to, j in zip(steps, chosen, strict=True):
        if kernels is not None:
            kernels.apart(parts, right[j], pictures[j].reshape(to.size, -1), np.float32(_STEPS), to.reshape(-1))
            continue
        apart = np.abs(pictures[j] - (left @ right[j]).reshape(pictures.shape[1:]))
        apart = apart.max(axis=2) if apart.ndim == 3 else apart
        to[:] = np.minimum(_STEPS * apart + 0.5, 255)
    return steps


def _bounds(low: np.ndarray, typical: np.ndarray, upper: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Thresholds that are enough where residuals are bounded, from their quantiles."""
    low, typical, upper, high = (
        ndimage.uniform_filter(x.astype(np.float32), POOL, mode="nearest") for x in (low, typical, upper, high)
    )
    sides = low > _TWO_SIDES * typical
    return np.minimum(_HIGH_FACTOR * high, np.where(sides, typical + NOISE_FACTOR * (upper - typical), np.inf))


def _moving(
    pictures: np.ndarray, left: np.ndarray, right: np.ndarray, steps: np.ndarray, limit: np.ndarray, reach: int
) -> np.ndarray:
    """Thresholds where leaves or water move, 0 elsewhere; all arguments are of a part of the picture."""
    n, shape = len(pictures), limit.shape
    often, out, known = (np.zeros(shape, dtype=np.float32) for _ in range(3))
    usual = steps.copy()  # without what was never seen near by
    down, up = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
    for light in right[:: max(n // _LIGHTS, 1)]:  # how far pixels near by are below and above
        behind = grey(left @ light)
        down = np.minimum(down, ndimage.minimum_filter(behind, 2 * reach + 1, mode="nearest") - behind)
        up = np.maximum(up, ndimage.maximum_filter(behind, 2 * reach + 1, mode="nearest") - behind)
    extent = up - down
    margin = limit.ravel() / _STEPS / 2
    lowest, highest = down.ravel() - margin, up.ravel() + margin
    colours, parts = pictures.reshape(n, limit.size, -1), left.reshape(limit.size, -1, left.shape[-1])
    for k, seen in enumerate(colours):
        beyond = steps[k] > limit
        out += beyond
        at = np.flatnonzero(beyond)
        apart = (seen[at] - parts[at] @ right[k]).mean(axis=1)
        brought = np.zeros(shape, dtype=bool)
        brought.ravel()[at] = (apart >= lowest[at]) & (apart <= highest[at])
        known += brought
        often += ndimage.uniform_filter(brought.astype(np.float32), _WINDOW, mode="nearest") > (_SOME - 0.5) / _WINDOW**2
        usual[k][beyond & ~brought] = 0
    around = [ndimage.uniform_filter(x, _WINDOW, mode="nearest") for x in (known, out)]
    moves = (often >= _OFTEN * n) & (around[0] >= _KNOWN * around[1])
    largest = _quantile(usual, _LARGEST) / _STEPS
    wide = ndimage.uniform_filter(ndimage.maximum_filter(largest, 3), 5, mode="nearest")
    return np.where(moves, np.minimum(_MARGIN * wide, _EXTENT * extent), 0).astype(np.float32)


def _reach(shape: tuple[int, ...]) -> int:
    """How far leaves move, in pixels."""
    return max(round(_REACH * min(shape)), 2)


def _looks(shape: tuple[int, ...]) -> int:
    """Frames that are enough to look at: fewer of those that have many pixels."""
    return int(np.clip(_LOOK_PIXELS // (shape[0] * shape[1]), _LOOKS[0], _LOOKS[1]))


def _strips(places: np.ndarray) -> Iterator[tuple[slice, slice]]:
    """Boxes around the true values of `places` (height, width), in strips of lines: what is copied of them stays small."""
    height = max(_STRIP // places.shape[1], 1)
    for top in range(0, len(places), height):
        lines, across = (np.flatnonzero(places[top : top + height].any(axis=axis)) for axis in (1, 0))
        if len(lines):
            yield slice(top + lines[0], top + lines[-1] + 1), slice(across[0], across[-1] + 1)


def _widened(box: tuple[slice, slice], margin: int, shape: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """A box with a margin, as far as the picture goes, and the box as seen from there."""
    part = tuple(slice(max(x.start - margin, 0), min(x.stop + margin, n)) for x, n in zip(box, shape, strict=True))
    return part, tuple(slice(x.start - y.start, x.stop - y.start) for x, y in zip(box, part, strict=True))


def _around_things(steps: np.ndarray) -> float:
    """The least threshold, from residuals around what is surely foreground in frames, (frames, height, width)."""
    found = []
    for apart in steps:
        sure = ndimage.uniform_filter((apart > _SURE * _STEPS).astype(np.float32), 3) > 0.5
        if sure.any():
            inner, outer = (ndimage.maximum_filter(sure, 2 * size + 1) for size in _RING)
            found.append(apart[outer & ~inner])
    ring = np.concatenate(found) if found else np.empty(0, dtype=np.uint8)
    if len(ring) < 1000:  # too little moves to tell
        return LEAST_THRESHOLD
    return float(np.clip(NOISE_FACTOR * np.median(ring) / _STEPS, _LEAST_SHARP, LEAST_THRESHOLD))


def _best_median(steps: np.ndarray, limit: np.ndarray) -> int:
    """The square whose majority comes closest to a Markov field, which is too slow for all frames.

    The field weighs how far a pixel is beyond its threshold against its eight neighbours: it keeps thin things that are
    clear and fills holes that are not.
    """
    kernel = np.full((3, 3), 1 / 8)
    kernel[1, 1] = 0
    hits, sizes = np.zeros(len(_MEDIANS)), np.zeros(len(_MEDIANS))
    area = least_area(limit.shape)
    for apart in steps:
        evidence = np.minimum(apart / limit, _CLEAREST) - 1
        raw = apart > limit
        label = raw
        for _ in range(_ROUNDS):
            around = ndimage.convolve(label.astype(np.float32), kernel, mode="nearest")
            label = evidence + _FIELD * (2 * around - 1) > 0
        label = without_specks(label, area)
        for k, size in enumerate(_MEDIANS):
            found = without_specks(majority(raw, size), area)
            hits[k] += 2 * np.count_nonzero(found & label)
            sizes[k] += np.count_nonzero(found) + np.count_nonzero(label)
    return _MEDIANS[int(np.argmax(hits / np.maximum(sizes, 1)))]


def _quantile(values: np.ndarray, share: float) -> np.ndarray:
    """A quantile over the first axis of bytes (n, ...), bit by bit: faster than to sort so few of so many pixels."""
    n, flat = len(values), values.reshape(len(values), -1)
    below = min(int(share * n), n - 1)  # so many values are smaller or equal
    found = np.empty(flat.shape[1], dtype=np.uint8)
    for start in range(0, found.size, _AT_ONCE):
        part = flat[:, start : start + _AT_ONCE]
        at = np.zeros(part.shape[1], dtype=np.uint8)
        for bit in (128, 64, 32, 16, 8, 4, 2, 1):
            more = at | np.uint8(bit)
            at = np.where(np.sum(part < more, axis=0, dtype=np.uint8) <= below, more, at)
        found[start : start + _AT_ONCE] = at
    return found.reshape(values.shape[1:])
