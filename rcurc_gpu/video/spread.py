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
_THING = 255  # in their place where it is known that something stands there
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
# Quantiles of a pixel's residuals, and how many times the way from the second to the last of them the threshold is above the
# last: 2.8 standard deviations of normal noise, and less where residuals are bounded, as those of stripes that move.
_SHARES, _TAIL = (0.5, 0.75, 0.9), 2.3
# What stands or passes before a pixel must not pass for its noise: where more than this share of the frames differs, it is
# left out. What stays is known by half as many changes as there would be of what comes and goes. The median of normal
# residuals is 2.1 times their lower quartile, by which it is told what differs at all. In frames that are nearer to each
# other than so many, leaves stay where they are as well.
_CROWDED, _CLEARINGS, _RARELY, _FROM_LOW, _APART = 0.05, 3, 0.5, 2.1, 5
# Pixels whose residuals have a larger median, in grey levels, may have a background of two sides (`_sides`). Two fifths of
# the frames may show something else, and the lower quartile of the way from the middle to the rest is more than so much of
# its median: 0.47 for normal noise, 0.54 for a sine, 0.9 for stripes. Every so many frames tell which pixels to look at.
_RESTLESS, _HELD, _AWAY, _EVERY = 4.0, 0.6, 0.65, 3
_PIECE = 1 << 12  # pixels, whose residuals are there several times
_LARGEST, _MARGIN = 0.95, 1.1  # of what was seen there; and how far the threshold is above
# Compression, blur and soft shadows leave errors around what moves. They are measured in a ring around what is surely
# foreground, between so many pixels of it; their median gives a threshold for all pixels, as a pixel's own does.
_LOOKS, _LOOK_PIXELS = (4, 12), 1 << 21  # frames, and pixels of all of them
_SURE, _RING = 30.0, (0, 3)
_LEAST_SHARP = 6.0  # grey levels: the three standard deviations of a quiet camera, two grey levels each
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


def find_spread(pictures: np.ndarray, left: np.ndarray, right: np.ndarray, total: int) -> Spread:
    """What is usual of each pixel, from some of `total` frames.

    Parameters
    ----------
    pictures : uint8 array (frames, height, width) or (frames, height, width, 3)
    left : float32 array (n1, k)
        Pixels whose background goes to and fro between two sides get the middle of them, in place.
    right : float32 array (frames, k)
    """
    chosen = np.unique(np.linspace(0, len(pictures) - 1, min(_FRAMES, len(pictures))).round().astype(int))
    shape = pictures.shape[1:3]
    steps = _steps(pictures, left, right, chosen)
    some = steps[:: max(len(steps) // _looks(shape), 1)]
    least = _around_things(some)
    sides = _to_the_middle(pictures, left, right, chosen, steps)
    typical, most = _usual(steps, total >= _APART * len(steps), sides)
    limit = np.minimum(_STEPS * learn_rule(typical, most, least=least).threshold, _THING - 1)
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
        limit = np.minimum(np.maximum(limit, _STEPS * wide), _THING - 1)
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
            np.minimum(to, _THING - 1, out=to)
            continue
        apart = np.abs(pictures[j] - (left @ right[j]).reshape(pictures.shape[1:]))
        apart = apart.max(axis=2) if apart.ndim == 3 else apart
        to[:] = np.minimum(_STEPS * apart + 0.5, _THING - 1)
    return steps


def _to_the_middle(
    pictures: np.ndarray, left: np.ndarray, right: np.ndarray, chosen: np.ndarray, steps: np.ndarray
) -> np.ndarray:
    """Move backgrounds that go to and fro between two sides, as stripes that move make them, to the middle; in place, in
    `left` and `steps`. A robust fit is drawn to one of the sides, and residuals are then twice as large.

    Returns how far each pixel may be from its background, bytes in steps (pixels,); `_THING` - 1 where it has no sides.
    """
    shape, count = steps.shape[1:], steps[0].size
    flat, parts = steps.reshape(len(steps), -1), left.reshape(count, -1, left.shape[1])
    few = flat[::_EVERY]
    middle = _quantile(few, np.full(count, len(few) // 2)).reshape(shape)
    restless = ndimage.uniform_filter(middle.astype(np.float32), POOL, mode="nearest").ravel() > _STEPS * _RESTLESS
    light, frames = right[chosen], pictures.reshape(len(pictures), count, -1)

    def residuals(at: np.ndarray) -> np.ndarray:  # (frames, pixels, channels)
        return frames[chosen[:, None], at] - np.einsum("pcr,nr->npc", parts[at], light)  # type: ignore[no-any-return]

    two, lowest, highest = (np.zeros(count, dtype=np.float32) for _ in range(3))
    for at in _pieces(np.flatnonzero(restless)):
        two[at], lowest[at], highest[at] = _sides(residuals(at).mean(axis=2))
    alike = ndimage.uniform_filter(two.reshape(shape), POOL, mode="nearest").ravel() > 0.5  # a pixel alone can be wrong
    limit = np.full(count, _THING - 1, dtype=np.uint8)
    for at in _pieces(np.flatnonzero(alike & restless)):
        apart = residuals(at)
        own = apart.mean(axis=2)
        inside = (own >= lowest[at]) & (own <= highest[at])
        shift = np.sum(apart * inside[..., None], axis=0) / np.maximum(inside.sum(axis=0), 1)[:, None]
        parts[at, :, 0] += shift  # the mean of the first component is 1
        flat[:, at] = np.minimum(_STEPS * np.abs(apart - shift).max(axis=2) + 0.5, _THING - 1)
        half = np.maximum((highest[at] - lowest[at]) / 2, LEAST_THRESHOLD)
        limit[at] = np.minimum(_STEPS * half, _THING - 1)
    return limit


def _sides(apart: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Whether residuals (frames, pixels) have two sides, 0 or 1, and between which bounds they are.

    They have if those in the shortest interval that holds `_HELD` of them, which leaves out what passes, keep away from its
    middle and change from side to side. What comes and stays does not change.
    """
    n = len(apart)
    held = round(_HELD * n)
    ordered = np.sort(apart, axis=0)
    first = np.argmin(ordered[held - 1 :] - ordered[: n - held + 1], axis=0)[None]
    low, high = (np.take_along_axis(ordered, first + k, axis=0)[0] for k in (0, held - 1))
    middle = (low + high) / 2
    off = np.partition(np.abs(apart - middle), (held // 4, held // 2), axis=0)
    low, high = low - _RESTLESS, high + _RESTLESS
    up = apart > middle
    share = np.sum(up & (apart <= high), axis=0) / np.sum((apart >= low) & (apart <= high), axis=0)
    changes = np.sum(up[1:] != up[:-1], axis=0)
    often = changes >= _RARELY * 2 * share * (1 - share) * (n - 1)  # see `_mark_stays`
    return often & (off[held // 4] > _AWAY * off[held // 2]), low, high


def _pieces(at: np.ndarray) -> Iterator[np.ndarray]:
    return (at[start : start + _PIECE] for start in range(0, len(at), _PIECE))


def _usual(steps: np.ndarray, apart: bool, sides: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians of residuals, and thresholds that are enough: float32 (height, width) from bytes (frames, height, width).

    What stands or passes before a pixel is left out: first what comes and stays, which is made `_THING` in place, if the
    frames are far `apart`, then, by and by, what is beyond the threshold that follows from the rest.
    """
    n, shape = len(steps), steps.shape[1:]
    flat = steps.reshape(n, -1)
    low, *rest = (_quantile(flat, np.full(flat.shape[1], int(share * n))) for share in (0.25, *_SHARES))
    found = np.stack(rest)
    near = ndimage.uniform_filter(low.reshape(shape).astype(np.float32), POOL, mode="nearest")
    limit = np.clip(NOISE_FACTOR * _FROM_LOW * near.ravel(), _STEPS * _LEAST_SHARP, sides).astype(np.uint8)
    at = np.flatnonzero(np.sum(flat > limit, axis=0, dtype=np.uint8) > _CROWDED * n)
    part = flat[:, at]
    if apart:
        _mark_stays(part, limit[at])
        flat[:, at] = part
    limit = sides
    for _ in range(_CLEARINGS):
        count = np.sum(part <= limit[at], axis=0, dtype=np.uint8)
        for values, share in zip(found, _SHARES, strict=True):  # what is left out is larger than all that is not
            values[at] = _quantile(part, np.asarray(share * count).astype(np.uint8))
        typical, most = _bounds(found.reshape(-1, *shape))
        limit = np.minimum(_STEPS * learn_rule(typical, most, least=_SURE).threshold.ravel(), sides).astype(np.uint8)
    return typical, most


def _mark_stays(values: np.ndarray, limit: np.ndarray) -> None:
    """Make residuals (frames, pixels) `_THING` where something stays that came: it is beyond the limit in few runs of
    frames."""
    beyond = values > limit
    share = beyond.mean(axis=0, dtype=np.float32)
    changes = np.sum(beyond[1:] != beyond[:-1], axis=0, dtype=np.uint8)
    independent = 2 * share * (1 - share) * (len(values) - 1)  # so many there are if no frame tells of the next
    stays = changes < _RARELY * independent
    values[beyond & stays] = _THING


def _bounds(quantiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """See `_usual`; from the quantiles `_SHARES` of residuals."""
    typical = quantiles[0] / np.float32(_STEPS)
    upper, high = (ndimage.uniform_filter(x.astype(np.float32), POOL, mode="nearest") / _STEPS for x in quantiles[1:])
    return typical, high + _TAIL * (high - upper)


def _moving(
    pictures: np.ndarray, left: np.ndarray, right: np.ndarray, steps: np.ndarray, limit: np.ndarray, reach: int
) -> np.ndarray:
    """Thresholds where leaves or water move, 0 elsewhere; all arguments are of a part of the picture."""
    n, shape = len(pictures), limit.shape
    often, out, known = (np.zeros(shape, dtype=np.float32) for _ in range(3))
    usual = np.where(steps == _THING, 0, steps)  # without what was never seen near by
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
        beyond = usual[k] > limit
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
    flat = usual.reshape(n, -1)
    largest = _quantile(flat, np.full(flat.shape[1], int(_LARGEST * n))).reshape(shape) / np.float32(_STEPS)
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
    ring = ring[ring <= LEAST_THRESHOLD * _STEPS]  # the rest are pale parts of the things themselves, with any threshold
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


def _quantile(values: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Of bytes (n, m) the one of each column that `below` (m,) of them precede in order, bit by bit: faster than to sort so
    few of so many."""
    found = np.empty(values.shape[1], dtype=np.uint8)
    for start in range(0, found.size, _AT_ONCE):
        part, least = values[:, start : start + _AT_ONCE], below[start : start + _AT_ONCE]
        at = np.zeros(part.shape[1], dtype=np.uint8)
        for bit in (128, 64, 32, 16, 8, 4, 2, 1):
            more = at | np.uint8(bit)
            at = np.where(np.sum(part < more, axis=0, dtype=np.uint8) <= least, more, at)
        found[start : start + _AT_ONCE] = at
    return found
