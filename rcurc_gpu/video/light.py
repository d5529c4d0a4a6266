"""The light of some frames: components that brighten or darken the background, and no others.

A large or slow object makes a component as well as a lamp does. They differ in what they leave of the picture: light keeps
the texture of what it falls on, an object hides it. So the picture is cut into blocks, of each block it is asked in which
frames its texture is seen, and components are sought in the brightness of the blocks where they are seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backends import Kernels
from .pictures import evenly, shrink

_SMALL = 19200  # pixels of the frames that are looked at, 120 x 160: blocks need no more, and noise is averaged out
_BLOCKS, _LEAST_SIDE, _MOST_SIDE = 300, 3, 8  # about so many blocks, and the side of one in small pixels
_FEW_PIXELS = 5000  # small ones, from which the light of a frame and the noise follow
QUICKLY = 0.5  # of the scale, from step to step, where the light is known: as good as 0.7 there, in two thirds of the time
_LEAST_NOISE = 0.7  # grey levels: rounding, and what averaging leaves of compression
# A block is seen if what is left of its texture is at most this many times what usually is left there, ...
_LEFT = 2.0
# ... and, where its texture is stronger than three times the noise, if the contrast is within these factors: lamps and
# shadows change it by less.
_TEXTURED, _CONTRAST = 3.0, (0.35, 2.8)
_LEAST_EFFECT = 1.5  # grey levels: less light does not matter
_ACTIVE = 0.05  # of the blocks: frames in which fewer change have no part in a component
_CHANGES = 0.3  # of these frames: blocks that change in fewer have no part in it either
_LEAST_BLOCKS = 0.12  # of all: a lamp lights more, a person or a parked car covers less
_LEAST_SEEN, _LEAST_EXPLAINED = 0.8, 0.5  # of the blocks and frames with the effect, and of its squares there
_MOST_FRAMES, _LASTING = 0.5, 0.08  # light changes in most frames, or for so long; ...
# ... or shorter, if it is clearly light: much of the picture changes, hardly anything is hidden, and one component explains
# some of it, as several lamps have one each.
_CLEAR_BLOCKS, _CLEAR_SEEN, _CLEAR_EXPLAINED = 0.3, 0.85, 0.35
# A light that is nearly all in few blocks needs texture there: a third, nearly, of what the whole picture has. A dark coat
# before asphalt or a hand before an overexposed sky leaves nothing that tells it from a lamp: such blocks are left out, and
# light is sought in the others.
_FEW, _TELLING = 0.12, 0.3
_ODD, _ODD_BLOCKS = 4.0, 0.15  # grey levels, and share of the blocks: a frame with so much that no component explains
_CANDIDATES = 4  # that are looked at before giving up: an object may be the strongest
MOST_COMPONENTS = 8


@dataclass(frozen=True)
class Light:
    """The light of some frames.

    Attributes
    ----------
    right : float32 array (frames, k)
        The first component is the brightness, about 1; the others have a mean square of 1.
    seen : float32 array (blocks, frames)
        1 where a block shows the background, 0 where something hides it.
    block : int32 array (height, width)
        The block of each pixel of a frame.
    unexplained : float
        Mean square of changes of the light that no component explains, in grey levels.
    """

    right: np.ndarray
    seen: np.ndarray
    block: np.ndarray
    unexplained: float


def find_light(pictures: np.ndarray, kernels: Kernels, rank: int | None = None) -> Light:
    """The light of some frames.

    Parameters
    ----------
    pictures : uint8 array (frames, height, width) or (frames, height, width, 3)
    kernels : Kernels
    rank : int, optional
        How many components at most; by default as many as look like light.

    Returns
    -------
    Light
    """
    small, factor = _shrink(pictures)
    grid = _Grid(small.shape[1:], pictures.shape[1:3], factor)
    search = _Search(grid, grid.cut(small), kernels)
    most = min(MOST_COMPONENTS if rank is None else rank, len(pictures))
    while len(search.right.T) < most and search.add():
        pass
    return Light(search.right, search.seen.T.copy(), grid.block, search.unexplained)


class _Grid:
    """Blocks of a small picture."""

    def __init__(self, shape: tuple[int, ...], whole: tuple[int, ...], factor: int) -> None:
        side = int(np.clip(np.sqrt(shape[0] * shape[1] / _BLOCKS), _LEAST_SIDE, _MOST_SIDE))
        self.side = min(side, *shape)
        self.rows, self.cols = shape[0] // self.side, shape[1] // self.side
        down = np.minimum(np.arange(whole[0]) // (factor * self.side), self.rows - 1)
        across = np.minimum(np.arange(whole[1]) // (factor * self.side), self.cols - 1)
        self.block = (down[:, None] * self.cols + across[None, :]).astype(np.int32)

    def cut(self, small: np.ndarray) -> np.ndarray:
        """Pictures (frames, height, width) as (frames, blocks, pixels); what is left over at the edges is not looked at."""
        n, side = len(small), self.side
        pieces = small[:, : self.rows * side, : self.cols * side].reshape(n, self.rows, side, self.cols, side)
        return pieces.transpose(0, 1, 3, 2, 4).reshape(n, self.rows * self.cols, side * side)


class _Search:
    """Components one after the other."""

    def __init__(self, grid: _Grid, levels: np.ndarray, kernels: Kernels) -> None:
        self.levels, self.kernels = levels, kernels  # levels: (frames, blocks, pixels)
        self.flat = np.ascontiguousarray(levels.reshape(len(levels), -1))
        self.few = evenly(self.flat.shape[1], _FEW_PIXELS)
        self.noise = 4.0
        self.right = _brightness(self.flat[:, self.few])[:, None].astype(np.float32)
        self.seen = np.ones(levels.shape[:2], dtype=np.float32)
        for _ in range(2):
            self._refit()

    def add(self) -> bool:
        """Look for one component more; whether there is one that is light."""
        left, seen = np.mean(self.levels - self.fitted, axis=2) * self.seen, self.seen
        for _ in range(_CANDIDATES):
            u, v = _leading(left, seen)
            effect = v[:, None] * u[None, :]
            blind = self._blind_blocks(effect)
            if blind.any():
                left, seen = left * ~blind, seen * ~blind
                continue
            if self._is_light(effect, left):
                self.right = np.concatenate([self.right, v[:, None].astype(np.float32)], axis=1)
                self._refit()
                return True
            left = left - effect * self.seen
        return False

    def _refit(self) -> None:
        """Small pictures of all components, the light again, what is seen."""
        fit = self.kernels.robust_fit
        weights = 0.1 + 0.9 * self.seen
        group = np.repeat(np.arange(self.levels.shape[1], dtype=np.int32), self.levels.shape[2])
        values, own = np.ascontiguousarray(self.flat[:, self.few]), group[self.few]
        left, _ = fit(values.T, self.right, self.noise, weights=weights.T, group=own)
        frames = np.arange(len(values), dtype=np.int32)
        right, _ = fit(values, left, self.noise, start=self.right, weights=weights[:, own], group=frames)
        self.right = normalised(right)
        left, _ = fit(self.flat.T, self.right, self.noise, weights=weights.T, group=group, shrink=QUICKLY)
        fitted = self.right @ left.T
        self.noise = max(1.4826 * float(np.median(np.abs(values - fitted[:, self.few]))), _LEAST_NOISE)
        self.fitted = fitted.reshape(self.levels.shape)
        self.seen = _texture_seen(self.levels, self.fitted, self.noise)

    def _is_light(self, effect: np.ndarray, left: np.ndarray) -> bool:
        """Whether an effect (frames, blocks) is as light is."""
        strong = np.abs(effect) > max(_LEAST_EFFECT, 3 * self.noise / np.sqrt(self.levels.shape[2]))
        frames = np.mean(strong, axis=1) >= _ACTIVE
        if np.count_nonzero(frames) < 2:
            return False
        blocks = float(np.mean(np.mean(strong[frames], axis=0) >= _CHANGES))
        seen = float(np.mean(self.seen[strong]))
        there = strong & (self.seen > 0)
        before, after = (float(np.sum(np.square(x[there]))) for x in (left, left - effect))
        explained = 1 - after / max(before, 1e-9)
        if blocks >= _CLEAR_BLOCKS and seen >= _CLEAR_SEEN and explained >= _CLEAR_EXPLAINED:
            return True
        if blocks < _LEAST_BLOCKS or seen < _LEAST_SEEN or explained < _LEAST_EXPLAINED:
            return False
        return bool(np.mean(frames) >= _MOST_FRAMES) or _longest_run(frames) >= max(_LASTING * len(frames), 4)

    def _blind_blocks(self, effect: np.ndarray) -> np.ndarray:
        """The blocks of an effect, bool, if it is nearly all in few that have no texture which an object would hide."""
        squares = np.sum(np.square(effect) * self.seen, axis=0)
        total = max(float(squares.sum()), 1e-9)
        strong = squares > 2 * total / len(squares)
        textured = np.mean(self.fitted.var(axis=2) > (_TEXTURED * self.noise) ** 2, axis=0)
        few = total**2 < _FEW * len(squares) * float(np.sum(np.square(squares)))
        return strong & (few and float(squares @ textured) < _TELLING * float(textured.mean()) * total)

    @property
    def unexplained(self) -> float:
        """Mean square of the brightness that no component explains, of frames in which much of the picture has such."""
        left = np.mean(self.levels - self.fitted, axis=2) * self.seen
        odd = np.mean(np.abs(left) > _ODD, axis=1) > _ODD_BLOCKS
        return float(np.sum(np.square(left[odd]))) / left.size


def normalised(right: np.ndarray) -> np.ndarray:
    """The light with a mean brightness of 1, and the other components orthogonal to it, of mean square 1."""
    right = right.astype(np.float64)
    right[:, 0] /= max(abs(np.mean(right[:, 0])), 1e-9) * np.sign(np.mean(right[:, 0]) or 1)
    for k in range(1, right.shape[1]):
        for p in range(k):
            right[:, k] -= right[:, p] * (right[:, p] @ right[:, k]) / max(right[:, p] @ right[:, p], 1e-12)
        right[:, k] /= max(np.sqrt(np.mean(np.square(right[:, k]))), 1e-9)
    return right.astype(np.float32)


def _shrink(pictures: np.ndarray) -> tuple[np.ndarray, int]:
    """Averages over squares, float32 (frames, height, width), and their side; colours become grey."""
    height, width = pictures.shape[1:3]
    factor = min(max(round((height * width / _SMALL) ** 0.5), 1), height, width)
    return np.stack([shrink(picture, factor) for picture in pictures]), factor


def _brightness(flat: np.ndarray) -> np.ndarray:
    """Brightness of frames (frames, pixels) relative to the usual picture."""
    gain = np.ones(len(flat), dtype=np.float32)
    for _ in range(2):
        usual = np.median(flat / gain[:, None], axis=0)
        lit = usual > 5  # ratios of black pixels say nothing
        if not lit.any():
            break
        gain = np.maximum(np.median(flat[:, lit] / usual[lit], axis=1), 0.02).astype(np.float32)
    return gain


def _texture_seen(levels: np.ndarray, fitted: np.ndarray, noise: float) -> np.ndarray:
    """Whether blocks look as the background does, but for their light: float32 (frames, blocks)."""
    own = levels - levels.mean(axis=2, keepdims=True)
    true = fitted - fitted.mean(axis=2, keepdims=True)
    variance = np.mean(np.square(true), axis=2)
    shared = np.mean(own * true, axis=2)
    slope = shared / (variance + noise**2)
    left = np.sqrt(np.maximum(np.mean(np.square(own), axis=2) - slope * shared, 0))
    usual = np.maximum(np.median(left, axis=0), noise)
    contrast = shared / np.maximum(variance, 1e-6)
    textured = variance > (_TEXTURED * noise) ** 2
    hidden = (left > _LEFT * usual) | (textured & ((contrast < _CONTRAST[0]) | (contrast > _CONTRAST[1])))
    return (~hidden).astype(np.float32)


def _leading(left: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The strongest pair u (blocks,), v (frames,) of what is left, where it is seen; v has a mean square of 1."""
    v = left[:, np.argmax(np.sum(np.square(left), axis=0))].copy()
    u = np.zeros(left.shape[1])
    for _ in range(30):
        v /= max(np.sqrt(np.mean(np.square(v))), 1e-9)
        u = (v @ left) / (np.square(v) @ seen + 1)  # 1: a block that is seen in few frames says little
        v = (left @ u) / (seen @ np.square(u) + 1e-3 * np.sum(np.square(u)) + 1e-9)
    size = max(np.sqrt(np.mean(np.square(v))), 1e-9)
    return u * size, v / size


def _longest_run(flags: np.ndarray) -> int:
    """Length of the longest run of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return int(np.max(edges[1::2] - edges[::2])) if len(edges) else 0
