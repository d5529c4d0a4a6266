"""The first pass over a video: keep some frames and some pixels of all frames, and find the background from them.

This is RCURC's cross, dense: C has all pixels of the chosen frames J, R the chosen pixels I of all frames. The light of J
comes from C (`light`), both sides of the core I x J are fitted in turn, the light of all frames follows from R, and the
pictures of all pixels from C, each by a robust regression.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import ndimage

from ..backends import AGREES, Kernels, Stream, choose, generator
from ..errors import ArgumentError, ArgumentTypeError
from ..progress import Progress
from ..result import CURMatrix
from .background import Background, fit_frames
from .doubts import Evidence, find_doubts
from .light import QUICKLY, find_light, normalised
from .masks import learn_rule
from .motion import STANDS, Stabilised, find_motion
from .spread import Spread, find_spread

# With so many whole frames a pixel's mean is known to a tenth of the noise, and with so many pixels the light of a frame;
# more of them take time and change nothing that can be seen.
_MOST_COLS, _MOST_ROWS = 120, 4000
# Whatever the memory: with fewer, what moves before a pixel or in a frame may be the majority.
_LEAST_COLS, _LEAST_ROWS = 16, 300
_CORE_ROUNDS = 2  # in turn over both sides of the core; the light that is given is near the answer
_ENTRIES_AT_ONCE = 1 << 24  # of pixels that are fitted: bytes, some tenth of a second
_LEAST_AGREE = 0.2  # of the chosen frames: a pixel that fewer of them agree on takes its prior
_ODD, _NEARLY = 6.0, 0.1  # grey levels, in the strongest light; and share of the frames: see `_follow_block`
_FOR_A_MEDIAN = 100  # pixels of a block: its median is good to a tenth of what they differ by
_LEAST_FRAME = 0.15  # of the chosen pixels: a frame in which fewer are seen takes the light of the frames around it


@dataclass(frozen=True)
class Plan:
    """What is looked at of a video.

    Attributes
    ----------
    n_rows : int
        Pixels that are kept of all frames.
    n_cols : int
        Frames that are kept whole.
    """

    n_rows: int
    n_cols: int


def plan_pass(n1: int, n2: int, memory: int) -> Plan:
    """What fits into `memory` bytes: half of it goes to whole frames, a quarter to pixels of all frames."""
    n_cols = min(max(memory // 2 // n1, _LEAST_COLS), _MOST_COLS, n2)
    n_rows = min(max(memory // 4 // n2, _LEAST_ROWS), _MOST_ROWS, n1)
    return Plan(n_rows, n_cols)


def find_background(
    source: Any, shape: tuple[int, ...], plan: Plan, options: FindOptions, progress: bool
) -> tuple[Background, dict[str, Any]]:
    """Look at the frames of `source` in one pass, and find their background.

    Parameters
    ----------
    source : frames
        uint8, of `shape`.
    shape : (int, int) or (int, int, 3)
    plan : Plan
    options : FindOptions
    progress : bool

    Returns
    -------
    background : Background
    figures : dict
        How it was found, for JSON.
    """
    started = time.perf_counter()
    cross = _Cross(source, shape, plan, options.seed, progress)
    motion = find_motion(cross.pictures) if options.stabilise else STANDS
    if motion.shakes:
        cross = _Cross(Stabilised(source, motion.reference), shape, plan, options.seed, progress)
    sampled = time.perf_counter()
    with Progress(progress) as bar:
        bar.stage("solving")
        found = _Solve(cross, shape, choose("auto", np.empty(0, dtype=np.float32)), options)
        bar.advance(1)
    spread = found.spread
    rule = learn_rule(spread.typical, spread.most, spread.wide, least=spread.least, median=spread.median)
    background = Background(found.matrix, shape, found.noise, rule, motion.reference if motion.shakes else None)
    doubts = find_doubts(found.evidence, motion)
    n1, n2 = found.matrix.shape
    kept = cross.pictures.size + cross.pixels.size - len(cross.rows) * len(cross.cols)
    figures = {
        "frames": n2,
        "rank": found.matrix.rank,
        "chosen_pixels": len(cross.rows),
        "chosen_frames": len(cross.cols),
        "share_seen": kept / (n1 * n2),
        "noise": found.noise,
        "undetermined": {"pixels": found.undetermined, "frames": found.frames_without},
        "least_threshold": found.spread.least,
        **doubts.figures(),
        "seconds": {"sampling": sampled - started, "solving": time.perf_counter() - sampled},
    }
    return background, figures


@dataclass(frozen=True, eq=False)
class FindOptions:
    """What `find_background` takes: see `separate`. Without `stabilise` the frames are taken as they are."""

    rank: int | str = "auto"
    seed: int = 0
    stabilise: bool = True


class _Cross:
    """What is kept of a video.

    Attributes
    ----------
    rows, cols : int64 vectors
        I and J, ascending.
    pictures : uint8 array (|J|, ...)
        Whole frames.
    pixels : uint8 array (n2, |I|)
        Pixels of all frames.
    """

    def __init__(self, source: Any, shape: tuple[int, ...], plan: Plan, seed: int, progress: bool) -> None:
        n1, n2 = int(np.prod(shape)), len(source)
        rng = generator(seed, Stream.VIDEO_CROSS)
        self.cols, self.rows = _one_of_each(n2, plan.n_cols, rng), _one_of_each(n1, plan.n_rows, rng)
        whole = isinstance(source, np.ndarray) and len(self.cols) == n2  # then they are there, in one array
        self.pictures = source if whole else np.empty((len(self.cols), *shape), dtype=np.uint8)
        self.pixels = np.empty((n2, len(self.rows)), dtype=np.uint8)
        came = kept = 0
        with Progress(progress) as bar:
            bar.stage("sampling", n2)
            for k, frame in enumerate(source):
                if k == n2:
                    raise ArgumentError("source", f"must give as many frames as its length says, {n2}, got more")
                frame = np.asarray(frame)
                if frame.dtype != np.uint8:
                    raise ArgumentTypeError("source", f"must give frames of uint8, 0 to 255, got {frame.dtype} as frame {k}")
                if frame.shape != shape:
                    raise ArgumentError("source", f"must give frames of one shape, {shape}, got {frame.shape} as frame {k}")
                if kept < len(self.cols) and self.cols[kept] == k:
                    if not whole:
                        self.pictures[kept] = frame
                    kept += 1
                self.pixels[k] = frame.reshape(-1)[self.rows]
                came = k + 1
                bar.advance(1)
        if kept == 0:
            raise ArgumentError("source", f"gave {came} of {n2} frames, and none of those that were chosen is among them")
        self.cols, self.pictures, self.pixels = self.cols[:kept], self.pictures[:kept], self.pixels[:came]


def _one_of_each(total: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` numbers below `total`, ascending, one at random of each of as many equal parts."""
    edges = np.linspace(0, total, count + 1)
    low, high = np.ceil(edges[:-1]).astype(np.int64), np.ceil(edges[1:]).astype(np.int64)
    return low + (rng.random(count) * (high - low)).astype(np.int64)


class _Solve:
    """From a cross to a background."""

    def __init__(self, cross: _Cross, shape: tuple[int, ...], kernels: Kernels, options: FindOptions) -> None:
        self.cross, self.shape, self.kernels = cross, shape, kernels
        rank = None if options.rank == "auto" else int(options.rank)
        self.light = find_light(cross.pictures, kernels, rank)
        self.noise = 2.0  # until residuals tell
        self.flat = cross.pictures.reshape(len(cross.cols), -1)
        depth = shape[2] if len(shape) == 3 else 1
        self.group = np.repeat(self.light.block.reshape(-1), depth)
        self.weights = (
            0.1 + 0.9 * self.light.seen
        )  # what hides the texture hardly counts, but is not ignored: tests can be wrong
        self.right, self.frames_without = self._all_frames(self._core())
        self.left, self.agree = self._all_pixels()
        unlike = self._follow_block()
        self.light = replace(self.light, unexplained=self.light.unexplained + unlike)
        self.undetermined = self._fill()
        self.matrix = CURMatrix(self.left, self.right, cross.rows, cross.cols)
        self.spread: Spread = find_spread(cross.pictures, self.left, self.right[cross.cols], len(self.right))

    def _core(self) -> np.ndarray:
        """The pictures of the chosen pixels, (|I|, k): in turn with the light of the chosen frames."""
        rows, fit = self.cross.rows, self.kernels.robust_fit
        core = np.ascontiguousarray(self.flat[:, rows])
        right, group = self.light.right, self.group[rows]
        left, _ = fit(core.T, right, self.noise, weights=self.weights, group=group)
        for _ in range(_CORE_ROUNDS):
            weights = np.ascontiguousarray(self.weights[group].T)
            frames = np.arange(len(core), dtype=np.int32)
            right, _ = fit(core, left, self.noise, start=right, weights=weights, group=frames)
            right = normalised(right)
            left, _ = fit(core.T, right, self.noise, weights=self.weights, group=group)
            self.noise = max(1.4826 * float(np.median(np.abs(core - right @ left.T))), 0.5)
        self.light = replace(self.light, right=right)
        return left

    def _all_frames(self, left: np.ndarray) -> tuple[np.ndarray, int]:
        """The light of all frames, (n2, k), and in how many of them too little is seen."""
        near = nearest(self.light.right, self.cross.cols, len(self.cross.pixels))
        right, agree = fit_frames(self.cross.pixels, left, self.noise, near, self.kernels)
        hidden = agree < _LEAST_FRAME
        right[hidden] = near[hidden]
        return right, int(np.count_nonzero(hidden))

    def _all_pixels(self) -> tuple[np.ndarray, np.ndarray]:
        """The pictures of all pixels, (n1, k), and the share of frames that agrees with each."""
        n1, right = self.flat.shape[1], self.right[self.cross.cols]
        left, agree = np.empty((n1, right.shape[1]), dtype=np.float32), np.empty(n1, dtype=np.float32)
        step = max(_ENTRIES_AT_ONCE // len(self.flat), 1)
        for start in range(0, n1, step):
            part = slice(start, start + step)
            values = np.ascontiguousarray(self.flat[:, part].T)
            left[part], agree[part] = self.kernels.robust_fit(
                values, right, self.noise, weights=self.weights, group=self.group[part], shrink=QUICKLY
            )
        return left, agree

    def _follow_block(self) -> float:
        """Pixels that take to the light unlike their block do as it does, if nearly as many frames agree with that.

        A light that is there for a few frames only is not told by a pixel before which someone stood just then. Returns the
        mean square of the error that is to be expected of those that still differ: each may be right or wrong.
        """
        if self.left.shape[1] == 1:
            return 0.0
        depth = self.shape[2] if len(self.shape) == 3 else 1
        key = (self.light.block.reshape(-1, 1) * depth + np.arange(depth, dtype=np.int32)).ravel()
        right = self.right[self.cross.cols]
        first = np.maximum(self.left[:, :1], 1)
        blocks = np.arange(int(key.max()) + 1)
        some = slice(None, None, max(len(key) // (_FOR_A_MEDIAN * len(blocks)), 1) | 1)  # odd: all columns have their turn
        usual = [
            ndimage.median(self.left[some, k : k + 1] / first[some], key[some, None], blocks)
            for k in range(1, right.shape[1])
        ]
        grid = (-1, int(self.light.block[0, -1]) + 1, depth)  # someone may fill a block, but not those around it as well
        usual = [ndimage.median_filter(x.reshape(grid), (5, 5, 1), mode="nearest").ravel() for x in usual]
        ratio = np.column_stack([np.ones(len(blocks)), *usual]).astype(np.float32)
        step = max(_ENTRIES_AT_ONCE // len(self.flat), 1)  # all at once would be several copies of all pictures
        parts = [slice(start, start + step) for start in range(0, len(key), step)]
        apart = [np.abs(self.left[p] - first[p] * ratio[key[p]]) @ np.abs(right).max(axis=0) for p in parts]
        odd = np.flatnonzero(np.concatenate(apart) > _ODD)
        step = max(_ENTRIES_AT_ONCE // len(self.flat) // 8, 1)
        for start in range(0, len(odd), step):
            part = odd[start : start + step]
            light = np.maximum(ratio[key[part]] @ right.T, 0.02)
            values = self.flat[:, part].T
            level = np.median(values / light, axis=1)
            agree = np.mean(np.abs(values - level[:, None] * light) < AGREES * self.noise, axis=1)
            better = agree > self.agree[part] - _NEARLY
            at = part[better]
            self.left[at], self.agree[at] = level[better, None] * ratio[key[at]], agree[better]
        differs = self.left[odd] - np.maximum(self.left[odd, :1], 1) * ratio[key[odd]]
        squares = np.sum((differs @ (right.T @ right / len(right))) * differs)
        return 0.5 * float(squares) / len(self.left)

    def _fill(self) -> int:
        """Pixels that too few frames agree on take their median in the light of the frames; how many they are."""
        few = max(_LEAST_AGREE, (self.left.shape[1] + 2) / len(self.flat))
        unknown = np.flatnonzero(self.agree < few)
        if len(unknown):
            right = self.right[self.cross.cols]
            self.left[unknown] = 0
            gain = np.maximum(right[:, 0], 0.02)
            step = max(_ENTRIES_AT_ONCE // len(self.flat), 1)
            for start in range(0, len(unknown), step):
                part = unknown[start : start + step]
                self.left[part, 0] = np.median(self.flat[:, part] / gain[:, None], axis=0)
        return len(unknown)

    @property
    def evidence(self) -> Evidence:
        """What the judgement looks at."""
        seen = (self.shape, self.flat, self.left, self.right, self.cross.cols, self.noise, self.spread)
        return Evidence(*seen, self.undetermined, self.frames_without, self.light.unexplained)


def nearest(values: np.ndarray, at: np.ndarray, total: int) -> np.ndarray:
    """For each of `total` frames the values (len(at), k) of the nearest of the frames `at`, ascending."""
    middle = (at[1:] + at[:-1] + 1) // 2
    return values[np.searchsorted(middle, np.arange(total), side="right")]
