"""Work on one picture that Numba compiles for the CPU: a sum of pictures, what differs from it, majorities, groups.

All arithmetic is in float32 and in the order of the plain code, so that both give the same bits; so nothing here may be
contracted or reordered.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .caching import can_cache

_EXACT: Any = {"cache": can_cache(), "nogil": True}
_AT_ONCE = 2048  # numbers whose sum stays in the nearest cache
_HALF, _WHITE, _ONE = np.float32(0.5), np.float32(255), np.float32(1)


@njit(**_EXACT)
def paint(parts, coefficients, out):
    """``sum_k coefficients[k] parts[k]``, parts (r, n) float32, cut off at 0 and 255 and rounded, to uint8 `out` (n,)."""
    total = np.empty(_AT_ONCE, dtype=np.float32)
    n = out.size
    for start in range(0, n, _AT_ONCE):
        length = min(_AT_ONCE, n - start)
        total[:] = np.float32(0)
        for k in range(parts.shape[0]):
            factor, part = coefficients[k], parts[k, start : start + length]
            for i in range(length):
                total[i] += factor * part[i]
        here = out[start : start + length]
        for i in range(length):
            here[i] = np.uint8(np.int32(min(max(total[i], np.float32(0)), _WHITE) + _HALF))


@njit(**_EXACT)
def apart(parts, coefficients, frame, steps, out):
    """How far `frame` (n, channels) is from ``sum_k coefficients[k] parts[k]``, parts (r, n * channels), in the channel that
    is farthest: in so many `steps` of a grey level, rounded, at most 255, to uint8 `out` (n,)."""
    channels = frame.shape[1]
    at_once = _AT_ONCE // channels
    total = np.empty(at_once * channels, dtype=np.float32)
    for start in range(0, out.size, at_once):
        length = min(at_once, out.size - start)
        total[:] = np.float32(0)
        for k in range(parts.shape[0]):
            factor, part = coefficients[k], parts[k, start * channels : (start + length) * channels]
            for i in range(length * channels):
                total[i] += factor * part[i]
        for i in range(length):
            most = np.float32(0)
            for c in range(channels):
                most = max(most, abs(np.float32(frame[start + i, c]) - total[i * channels + c]))
            out[start + i] = np.uint8(np.int32(min(steps * most + _HALF, _WHITE)))


@njit(**_EXACT)
def differs_grey(frame, background, limit, out):
    """1 where ``|frame - background| > limit``, all uint8 (n,), else 0."""
    for i in range(out.size):
        a, b = frame[i], background[i]
        out[i] = np.uint8((a - b if a > b else b - a) > limit[i])


@njit(**_EXACT)
def differs_colour(frame, background, limit, threshold, darkest, colour, out):
    """1 where a channel of `frame` is farther from `background`, uint8 (3 n,), than `limit` (n,), but for shadows.

    A shadow is the background times a factor between `darkest` and 1, to `colour` times the `threshold` (n,), of which
    `limit` is the whole part; with `darkest` = 1 there is none.
    """
    for i in range(out.size):  # bytes without a branch, for vectors; few pixels are looked at again
        most = np.uint8(0)
        for c in range(3):
            a, b = frame[3 * i + c], background[3 * i + c]
            left = np.uint8(a - b if a > b else b - a)
            most = left if left > most else most
        out[i] = np.uint8(most > limit[i])
    if darkest < _ONE:
        for i in range(out.size):
            if out[i] != 0:
                part = slice(3 * i, 3 * i + 3)
                out[i] = np.uint8(not _shaded(frame[part], background[part], darkest, colour * threshold[i]))


@njit(**_EXACT)
def _shaded(seen, true, darkest, most):
    across, square = np.float32(0), np.float32(0)  # whole numbers below 2^24: exact in any order
    for c in range(3):
        across += np.float32(seen[c]) * np.float32(true[c])
        square += np.float32(true[c]) * np.float32(true[c])
    light = across / max(square, _ONE)
    if not (light > darkest and light < _ONE):
        return False
    for c in range(3):
        lit = light * np.float32(true[c])
        if not abs(np.float32(seen[c]) - lit) < most:
            return False
    return True


@njit(**_EXACT)
def majority(found, size, out):
    """1 where more than half of ``size x size`` pixels (odd, at most 15) of `found` (h, w), 0 or 1, are 1, else 0."""
    height, width = found.shape
    reach, half = size // 2, size * size // 2
    lines = np.zeros(width + 2 * reach, dtype=np.uint8)  # sums over `size` lines, with their edges repeated
    total = np.empty(width, dtype=np.uint8)
    inner = lines[reach : reach + width]
    for k in range(-reach, reach + 1):
        _add(inner, found[min(max(k, 0), height - 1)])
    for y in range(height):
        if y > 0:
            _change(inner, found[min(y + reach, height - 1)], found[max(y - reach - 1, 0)])
        lines[:reach] = inner[0]
        lines[reach + width :] = inner[width - 1]
        total[:] = 0
        for k in range(size):
            _add(total, lines[k : k + width])
        line = out[y]
        for x in range(width):
            line[x] = np.uint8(total[x] > half)


@njit(**_EXACT)
def _add(total, line):
    for x in range(total.size):
        total[x] = np.uint8(total[x] + line[x])


@njit(**_EXACT)
def _change(total, entering, leaving):
    for x in range(total.size):
        total[x] = np.uint8(total[x] + entering[x] - leaving[x])


@njit(**_EXACT)
def groups(mask, min_area):
    """Groups of pixels of `mask` (h, w) that are not 0 and touch at sides or corners; smaller ones are made 0.

    Returns int64 (k, 5): left, top, width, height and area of each, in the order of their first pixels.
    """
    height, width = mask.shape
    count = 0
    for y in range(height):
        before = np.uint8(0)
        for x in range(width):
            count += mask[y, x] != 0 and before == 0
            before = mask[y, x]
    runs = np.empty((count, 4), dtype=np.int64)  # line, first, beyond the last, group
    start_of = np.empty(height + 1, dtype=np.int64)
    n = 0
    for y in range(height):
        start_of[y] = n
        x = 0
        while x < width:
            if mask[y, x] == 0:
                x += 1
                continue
            first = x
            while x < width and mask[y, x] != 0:
                x += 1
            runs[n] = y, first, x, n
            n += 1
        if y > 0:
            _join(runs, start_of[y - 1], start_of[y], n)
    start_of[height] = n
    boxes, number, k = np.zeros((count, 5), dtype=np.int64), np.full(count, -1), 0
    for i in range(count):
        root = _root(runs, i)
        if number[root] < 0:
            number[root] = k
            boxes[k] = runs[i, 1], runs[i, 0], runs[i, 2], runs[i, 0] + 1, 0
            k += 1
        box = boxes[number[root]]
        box[0], box[2] = min(box[0], runs[i, 1]), max(box[2], runs[i, 2])
        box[3] = runs[i, 0] + 1
        box[4] += runs[i, 2] - runs[i, 1]
    for i in range(count):
        if boxes[number[_root(runs, i)], 4] < min_area:
            mask[runs[i, 0], runs[i, 1] : runs[i, 2]] = 0
    kept = boxes[:k][boxes[:k, 4] >= min_area]
    kept[:, 2] -= kept[:, 0]
    kept[:, 3] -= kept[:, 1]
    return kept


@njit(**_EXACT)
def _join(runs, above, here, end):
    """Give runs of a line, here to end, the group of those above, above to here, that they touch."""
    j = above
    for i in range(here, end):
        while j < here and runs[j, 2] < runs[i, 1]:
            j += 1
        k = j
        while k < here and runs[k, 1] <= runs[i, 2]:
            a, b = _root(runs, k), _root(runs, i)
            runs[max(a, b), 3] = min(a, b)
            k += 1


@njit(**_EXACT)
def _root(runs, i):
    while runs[i, 3] != i:
        runs[i, 3] = runs[runs[i, 3], 3]
        i = runs[i, 3]
    return i


@njit(**_EXACT)
def drift(frame, background, mask, offset, gain, most):
    """Move `offset` (n, channels) by `gain` times what is left of `frame`, at most `most`, where `mask` (n,) is 0."""
    for i in range(mask.size):
        if mask[i] == 0:
            for c in range(frame.shape[1]):
                left = np.float32(frame[i, c]) - np.float32(background[i, c])
                offset[i, c] += gain * min(max(left, -most), most)


@njit(**_EXACT)
def cut_out(frame, mask, plain, out):
    """`frame` (n, channels) where `mask` (n,) is not 0, elsewhere `plain`."""
    out[:] = plain
    start = 0
    while start < mask.size:
        if mask[start] == 0:
            start += 1
            continue
        end = start
        while end < mask.size and mask[end] != 0:
            end += 1
        out[start:end] = frame[start:end]
        start = end
