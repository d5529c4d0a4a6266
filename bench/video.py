"""Background subtraction of videos against OpenCV's: ``python -m bench.video [CLIP ...]``.

Made-up scenes with truth, clips (`vtest.avi`, for example) and folders in the manner of CDnet (``input/``,
``groundtruth/``). One table: F-measure of the masks, PSNR of the backgrounds and frames per CPU second. OpenCV's methods and
the temporal median have the best of all thresholds to their backgrounds, or of some of their own, chosen by the truth; ours
has what it finds. Decoding counts for all alike; nothing is written (`bench.video_speed` has times of whole runs). Needs the
extra ``peers``.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rcurc_gpu.video import open_video
from rcurc_gpu.video.find import FindOptions, find_background, plan_pass
from rcurc_gpu.video.quality import decibels
from rcurc_gpu.video.scenes import KINDS, made_up_scene

_MEMORY = 512 << 20
_LEARNING = 0.1  # of the frames: OpenCV's methods begin without a background, so masks count after these
_ANY_LEVEL = 20.0
_VARIANCES = (9, 16, 30, 60, 120, 250, 500)  # MOG2's squared distance in standard deviations
_DISTANCES = (100, 200, 400, 800, 1600, 3200, 6400)  # KNN's squared distance in grey levels


@dataclass(frozen=True, eq=False)
class Clip:
    """Frames, and what is known about them."""

    name: str
    frames: Any
    shape: tuple[int, ...]
    mask: Callable[[int], np.ndarray | None]  # 1 is foreground, 0 not, 2 is not looked at
    background: Callable[[int], np.ndarray | None]


class Score:
    """Sums over the frames of a clip."""

    def __init__(self) -> None:
        self.counts = np.zeros(3)  # true, false and missed foreground
        self.squares, self.pixels = 0.0, 0

    def add_mask(self, found: np.ndarray, true: np.ndarray | None) -> None:
        """One frame's; nothing if its truth is not known."""
        if true is not None:
            f, t, looked = found.astype(bool), true == 1, true != 2
            self.counts += [np.sum(f & t), np.sum(f & ~t & looked), np.sum(~f & t)]

    def add_background(self, found: np.ndarray | None, true: np.ndarray | None) -> None:
        """One frame's; nothing if its truth is not known, or the method has none."""
        if true is not None and found is not None:
            self.squares += float(np.sum(np.square(np.subtract(found, true, dtype=np.float32)), dtype=np.float64))
            self.pixels += true.size

    @property
    def f_measure(self) -> float:
        """NaN without a truth."""
        hit, false, missed = self.counts
        return 2 * hit / (2 * hit + false + missed) if hit + missed else math.nan

    @property
    def psnr(self) -> float:
        """In dB; NaN without a truth."""
        return decibels(self.squares, self.pixels)


class Levels:
    """How far pixels are from a background, by grey level, over the frames of a clip: the best of all thresholds."""

    def __init__(self) -> None:
        self.there, self.not_there = np.zeros(256), np.zeros(256)

    def add(self, frame: np.ndarray, background: np.ndarray, true: np.ndarray | None) -> None:
        """One frame's; nothing if its truth is not known."""
        if true is not None:
            apart = np.abs(np.subtract(frame, background, dtype=np.float32))
            apart = apart.max(axis=2) if apart.ndim == 3 else apart
            level = np.ceil(np.minimum(apart, 255)).astype(np.uint8)
            self.there += np.bincount(level[true == 1], minlength=256)
            self.not_there += np.bincount(level[true == 0], minlength=256)

    def best(self) -> tuple[float, str]:
        """F-measure, and the threshold in words."""
        if not self.there.any():
            return -1.0, ""
        hit, false = (counts.sum() - np.cumsum(counts) for counts in (self.there, self.not_there))
        f = 2 * hit / (hit + false + self.there.sum())  # of what is above 0, 1, ... levels
        return float(f.max()), f"grey levels {int(np.argmax(f))}"


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    clip: str
    method: str
    f_measure: float
    psnr: float
    speed: float
    note: str


def ours(clip: Clip) -> Row:
    """Our own method, with its defaults."""
    n = len(clip.frames)
    started = time.process_time()
    plan = plan_pass(int(np.prod(clip.shape)), n, _MEMORY)
    background, figures = find_background(clip.frames, clip.shape, plan, FindOptions(), False)
    spent = time.process_time() - started
    score = Score()
    first = int(_LEARNING * n)
    coming = iter(clip.frames)
    for k in range(figures["frames"]):
        started = time.process_time()
        frame = next(coming)
        picture = np.clip(np.rint(background.picture(k)), 0, 255).astype(np.uint8)
        mask = background.rule.mask(frame, picture)
        spent += time.process_time() - started
        if k >= first:
            score.add_mask(mask, clip.mask(k))
            score.add_background(background.picture(k), clip.background(k))
    said = "confirmed" if figures["confirmed"] else f"not confirmed: {figures['cause']}"
    note = f"rank {figures['rank']}, {said}, expects {figures['expected_psnr']:.0f} dB"
    return Row(clip.name, "rcurc-gpu", score.f_measure, score.psnr, n / spent, note)


def subtractor(name: str, make: Callable[[float], Any], levels: tuple[float, ...]) -> Callable[[Clip], Row]:
    """A method of OpenCV with the best of its own thresholds, or of grey levels to its background."""

    def run(clip: Clip) -> Row:
        best, speed, psnr = (-1.0, ""), math.inf, math.nan
        for level in levels:
            method, score = make(level), Score()
            to_background = Levels()
            spent, first = 0.0, int(_LEARNING * len(clip.frames))
            coming = iter(clip.frames)
            for k in range(len(clip.frames)):
                started = time.process_time()
                frame = next(coming)
                mask = method.apply(frame)
                spent += time.process_time() - started
                if k < first:
                    continue
                true = clip.mask(k)
                score.add_mask(mask == 255, true)
                if level == levels[0]:
                    picture = method.getBackgroundImage()
                    picture = picture if picture is None or picture.shape == frame.shape else None
                    score.add_background(picture, clip.background(k))
                    if picture is not None:
                        to_background.add(frame, picture, true)
            if level == levels[0]:
                speed, psnr = len(clip.frames) / spent, score.psnr
            tried = [(score.f_measure, f"its own {level:g}"), to_background.best()]
            for f, words in tried:
                best = max(best, (f, words)) if not math.isnan(f) else best
        return Row(clip.name, name, best[0] if best[1] else math.nan, psnr, speed, best[1])

    return run


def median(clip: Clip) -> Row:
    """The median of some frames, and the best threshold."""
    started = time.process_time()
    every = max(len(clip.frames) // 100, 1)
    kept = np.stack([frame for k, frame in enumerate(clip.frames) if k % every == 0])
    still = np.median(kept, axis=0).astype(np.float32)
    spent = time.process_time() - started
    score, levels, first = Score(), Levels(), int(_LEARNING * len(clip.frames))
    for k, frame in enumerate(clip.frames):
        started = time.process_time()
        _ = np.abs(np.subtract(frame, still, dtype=np.float32)) > _ANY_LEVEL  # what it takes to find a mask
        spent += time.process_time() - started
        if k >= first:
            levels.add(frame, still, clip.mask(k))
            score.add_background(still, clip.background(k))
    f, words = levels.best()
    return Row(clip.name, "temporal median", f if words else math.nan, score.psnr, len(clip.frames) / spent, words)


def methods() -> list[Callable[[Clip], Row]]:
    """All of them."""
    import cv2

    return [
        ours,
        subtractor("MOG2", lambda v: cv2.createBackgroundSubtractorMOG2(varThreshold=v), _VARIANCES),
        subtractor("KNN", lambda v: cv2.createBackgroundSubtractorKNN(dist2Threshold=v), _DISTANCES),
        subtractor("CNT", lambda v: cv2.bgsegm.createBackgroundSubtractorCNT(minPixelStability=int(v)), (15, 5, 60)),
        median,
    ]


# ---------------------------------------------------------------- clips


def made_up(kind: str, shape: tuple[int, int], frames: int, seed: int) -> Clip:
    """A scene with its truth; the frames are made before anything is timed, and masks once for all methods."""
    scene = made_up_scene(kind, shape, frames, seed)
    masks = np.stack([scene.mask(k) for k in range(frames)]).view(np.uint8)
    return Clip(kind, np.stack(list(scene)), scene.shape, masks.__getitem__, scene.background)


class _Folder:
    """Pictures of a folder, decoded anew by each iteration."""

    def __init__(self, paths: list[Path], colour: bool) -> None:
        self.paths, self.colour = paths, colour

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[np.ndarray]:
        import cv2

        return (np.asarray(cv2.imread(str(path), int(self.colour))) for path in self.paths)


def opened(path: Path, colour: bool) -> Clip:
    """A video, or a folder in the manner of CDnet."""
    if not path.is_dir():
        video = open_video(path, colour=colour)
        return Clip(path.name, video, video.shape, lambda k: None, lambda k: None)
    import cv2

    folder = path / "input" if (path / "input").is_dir() else path
    paths = sorted(p for p in folder.iterdir() if p.suffix.lower() in (".jpg", ".png", ".bmp"))
    if not paths:
        raise SystemExit(f"{path} has no pictures")
    frames = _Folder(paths, colour)
    truth = {p.stem[-6:]: p for p in (path / "groundtruth").glob("*.png")}

    def mask(k: int) -> np.ndarray | None:
        there = truth.get(paths[k].stem[-6:])
        if there is None:
            return None
        levels = np.asarray(cv2.imread(str(there), 0))
        return np.select([levels == 255, (levels == 85) | (levels == 170)], [1, 2], 0).astype(np.uint8)

    return Clip(path.name, frames, next(iter(frames)).shape, mask, lambda k: None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clips", nargs="*", type=Path, help="videos or CDnet folders")
    parser.add_argument("--scenes", default=",".join(KINDS), help="made-up scenes, or nothing")
    parser.add_argument("--shape", default="240x320")
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grey", action="store_true", help="read clips in grey")
    parser.add_argument("--methods", default="", help="some of rcurc-gpu, MOG2, KNN, CNT, median")
    asked = parser.parse_args()
    height, width = map(int, asked.shape.split("x"))
    ours(made_up("static", (48, 64), 40, 0))  # so that no compiling is timed
    print("| clip | method | F | PSNR (dB) | frames per CPU second | |\n| --- | --- | ---: | ---: | ---: | --- |")
    waiting: list[Callable[[], Clip]] = [
        lambda kind=kind: made_up(kind, (height, width), asked.frames, asked.seed)  # type: ignore[misc]
        for kind in filter(None, asked.scenes.split(","))
    ]
    waiting += [lambda path=path: opened(path, not asked.grey) for path in asked.clips]  # type: ignore[misc]
    chosen = dict(zip(("rcurc-gpu", "MOG2", "KNN", "CNT", "median"), methods(), strict=True))
    for make in waiting:
        clip = make()
        for name in filter(None, asked.methods.split(",")) if asked.methods else chosen:
            row = chosen[name](clip)
            cells = (row.clip, row.method, f"{row.f_measure:.3f}", f"{row.psnr:.1f}", f"{row.speed:.0f}", row.note)
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
