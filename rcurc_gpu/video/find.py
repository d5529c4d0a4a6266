"""The first pass over a video: sample it within a given memory, and find its background."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..api import rcurc
from ..backends import Stream, generator, others
from ..errors import ArgumentError, ArgumentTypeError, without_warning
from ..extend import OK
from ..progress import Progress
from ..result import CURMatrix, Positions, Result, complete, typical_share
from ..samples import CrossSamples, new_block
from .background import Background
from .sample import choose, sample_video

_BYTES = 40  # an observation takes 8; sampling and solving have several copies at a time
# Whatever the memory: frames kept whole, from which the pixels follow that are not solved at once, and pixels seen of every
# frame, from which its light follows. With fewer, what moves before a pixel or in a frame may be the majority.
_LEAST_COLS, _LEAST_SEEN = 16, 128
_MOST_TRIES = 3  # of larger ranks, each of them another solve
_ENOUGH = 60  # observations of a pixel, if there are so many frames: enough for small ranks although much moves before it
_ENTRIES_AT_ONCE = 1 << 21  # of pixels that follow: 8 MB as float32, and a few copies


@dataclass(frozen=True)
class Plan:
    """What is looked at of a video.

    Attributes
    ----------
    pixels : int
        Rows of the matrix that is solved; if these are not all, the others follow, each from the chosen frames.
    share_rows, share_cols, rate : float
        Of these rows; see `sample_video`.
    """

    pixels: int
    share_rows: float
    share_cols: float
    rate: float


def plan_pass(n1: int, n2: int, share_rows: float, share_cols: float, rate: float, memory: int) -> Plan:
    """What fits into `memory` bytes; the shares are taken as they are if that does.

    Half of the memory goes to whole pictures of the chosen frames, one byte a pixel, the other half to the observations of a
    smaller matrix of some pixels.
    """
    n_cols = max(round(share_cols * n2), 1)
    enough = max(rate, min(_ENOUGH / n_cols, 1.0))
    if _BYTES * enough * (share_rows + share_cols) * n1 * n2 <= memory:
        return Plan(n1, share_rows, share_cols, enough)
    n_cols = min(max(memory // 2 // n1, _LEAST_COLS), n_cols)
    rate = max(rate, min(_ENOUGH / n_cols, 1.0))
    half = memory / 2 / _BYTES / 2 / rate  # entries of each block
    pixels = min(n1, max(int(half / n_cols), 1024))
    n_rows = min(max(half / n2, _LEAST_SEEN / rate), share_rows * pixels)
    return Plan(pixels, n_rows / pixels, n_cols / n2, rate)


def find_background(
    source: Any, shape: tuple[int, ...], plan: Plan, solver: dict[str, Any], progress: bool
) -> tuple[Background, Result, dict[str, Any]]:
    """Sample the frames of `source` in one pass, and solve.

    Parameters
    ----------
    source : frames
        uint8, of `shape`.
    shape : (int, int) or (int, int, 3)
    plan : Plan
    solver : dict
        What `rcurc` is asked for: rank, resolution, accuracy, seed and device.
    progress : bool

    Returns
    -------
    background : Background
    result : Result
        For the pixels that were solved at once.
    figures : dict
        How it was found, for JSON.
    """
    n1, seed = int(np.prod(shape)), solver["seed"]
    started = time.perf_counter()
    some = _SomePixels(source, n1, plan, seed)
    samples = sample_video(some, plan.share_rows, plan.share_cols, plan.rate, seed, progress)
    sampled = time.perf_counter()
    with Progress(progress) as bar, without_warning():
        # The solver's own bars make it look at every iteration, so that it may stop at another one.
        bar.stage("solving")
        result = _solve(samples, **solver)
        bar.advance(1)
    matrix, undetermined = _all_pixels(result, some, n1, progress)
    determined, typical = result.rows.status[samples.rows] == OK, typical_share(result.columns)
    background = Background(matrix, shape, result.noise, result.threshold, determined, typical, result.schedule)
    whole = 0 if some.pixels is None else (n1 - plan.pixels) * len(samples.cols)  # pixels that follow are seen in these
    figures = {
        "frames": matrix.shape[1],
        "rank": matrix.rank,
        "chosen_pixels": len(samples.rows),
        "chosen_frames": len(samples.cols),
        "rate": plan.rate,
        "solved_at_once": plan.pixels,
        "share_seen": (samples.n_obs + whole) / (n1 * matrix.shape[1]),
        "noise": result.noise,
        "confirmed": result.converged,
        "cause": result.cause,
        "message": _message(result, undetermined, n1),
        "undetermined": {"pixels": undetermined, "frames": len(result.columns.undetermined)},
        "seconds": {"sampling": sampled - started, "solving": time.perf_counter() - sampled},
    }
    return background, result, figures


def _solve(samples: CrossSamples, rank: int | str, **options: Any) -> Result:
    """`rcurc`; where it finds a rank and then leaves more than the resolution unexplained, the next ones are tried."""
    # No noise model: to it, what moves together is a component (a crowd: rank 19 and 27 dB, instead of rank 2 and 49 dB).
    # What moves has structure of its own.
    options |= {"sweeps": 0, "undetermined": "keep", "outliers": "structured"}
    result = first = rcurc(samples, rank, **options)
    for _ in range(_MOST_TRIES if rank == "auto" else 0):
        if result.cause != "rank too small":
            break
        result = rcurc(samples, result.rank + 1, **options)
    return result if result.cause in ("", "undetermined") else first


class _SomePixels:
    """The frames of a source at some of their pixels; of the chosen frames all pixels are kept.

    Attributes
    ----------
    pixels : int64 vector, or None for all
    pictures : uint8 array (|J|, n1)
        Empty if all pixels are solved at once.
    """

    def __init__(self, source: Any, n1: int, plan: Plan, seed: int) -> None:
        self.source, self.n1 = source, n1
        self.pixels, self.chosen = None, np.empty(0, dtype=np.int64)
        if plan.pixels < n1:
            rng = generator(seed, Stream.VIDEO_PIXELS)
            self.pixels = np.sort(rng.choice(n1, plan.pixels, replace=False))
            frames = generator(seed, Stream.VIDEO_CROSS)  # on purpose that of `sample_video`: it has to choose the same
            self.chosen = choose(len(source), plan.share_cols, frames)
        self.pictures = np.empty((len(self.chosen), n1), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[np.ndarray]:
        kept = 0
        for k, frame in enumerate(self.source):
            frame = np.asarray(frame)
            if frame.dtype != np.uint8:
                raise ArgumentTypeError("source", f"must give frames of uint8, 0 to 255, got {frame.dtype} as frame {k}")
            if self.pixels is None:
                yield frame
                continue
            if frame.size != self.n1:
                raise ArgumentError("source", f"must give frames of one shape, got {frame.shape} as frame {k}")
            if kept < len(self.chosen) and self.chosen[kept] == k:
                self.pictures[kept] = frame.reshape(-1)
                kept += 1
            yield frame.reshape(-1)[self.pixels]


def _all_pixels(result: Result, some: _SomePixels, n1: int, progress: bool) -> tuple[CURMatrix, int]:
    """The matrix of all pixels, and how many of them are not determined."""
    found, undetermined = result.cur, len(result.rows.undetermined)
    found = CURMatrix(np.nan_to_num(found.left), np.nan_to_num(found.right), found.rows, found.cols)  # black, if need be
    if some.pixels is None:
        return found, undetermined
    left = np.empty((n1, found.rank), dtype=found.left.dtype)
    left[some.pixels] = found.left
    rest = others(some.pixels, n1)
    cols = found.cols
    at = Positions(found.right, cols, result.columns.status[cols] == OK)
    typical = typical_share(result.rows)
    step = max(_ENTRIES_AT_ONCE // len(cols), 1)
    with Progress(progress) as bar:
        bar.stage("pixels", len(rest))
        for start in range(0, len(rest), step):
            chosen = rest[start : start + step]
            seen = some.pictures[: len(cols), chosen].T.astype(np.float32)
            block = new_block("pixels", seen, None, len(cols), "the chosen frames", found.right, units_last=False)
            new = complete(block, at, typical, result.schedule, columns=False, chunk_bytes=result.chunk_bytes)
            left[chosen] = np.nan_to_num(new.coefficients)
            undetermined += len(new.diagnostics.undetermined)
            bar.advance(len(chosen))
    return CURMatrix(left, found.right, some.pixels[found.rows], cols), undetermined


def _message(result: Result, undetermined: int, n1: int) -> str:
    """The result's own, but that nothing is NaN here, and that rows are pixels."""
    if result.cause != "undetermined":
        return result.message
    doubtful = [f"{undetermined:,} of {n1:,} pixels"] if undetermined else []
    frames = len(result.columns.undetermined)
    doubtful += [f"{frames:,} of {result.cur.shape[1]:,} frames"] if frames else []
    return f"The held-out pixels agree; {' and '.join(doubtful)} are doubtful, as too little of their background is seen."
