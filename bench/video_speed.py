"""Frames per CPU second of `separate` beside OpenCV's MOG2, which writes the same videos: ``python -m bench.video_speed``.

Both read the same H.264 file by the same decoder, in grey if the clip is grey, and write by the same encoder. MOG2 has its
defaults, and its background is asked for with each frame only where it is written. Times are CPU times of the whole process,
in turns; the ratio is that of the medians. Needs the extra ``peers``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rcurc_gpu.video import open_video, separate
from rcurc_gpu.video.scenes import FPS, made_up_scene
from rcurc_gpu.video.write import VideoWriter

_KINDS = ("background", "foreground", "mask")


def mog2(path: Path, folder: Path, colour: bool, kinds: tuple[str, ...]) -> None:
    """OpenCV's method with its defaults, and what it found as videos."""
    import cv2

    video, method = open_video(path, colour=colour), cv2.createBackgroundSubtractorMOG2()
    shapes = {kind: video.shape if kind != "mask" else video.shape[:2] for kind in kinds}
    writers = {kind: VideoWriter(folder / f"{kind}.mp4", shape, FPS, kind == "mask") for kind, shape in shapes.items()}
    for frame in video:
        mask = method.apply(frame)
        if "background" in writers:
            writers["background"].write(method.getBackgroundImage())
        if "foreground" in writers:
            cut = np.full_like(frame, 128)
            cv2.copyTo(frame, mask, cut)
            writers["foreground"].write(cut)
        if "mask" in writers:
            writers["mask"].write(mask)
    for writer in writers.values():
        writer.finish()


def ours(path: Path, folder: Path, colour: bool, kinds: tuple[str, ...]) -> dict[str, Any]:
    """Our own, with its defaults."""
    return separate(path, folder, colour=colour, only=kinds, force=True).figures


def write_clip(kind: str, shape: tuple[int, int], frames: int, seed: int, path: Path) -> bool:
    """A made-up scene as H.264; whether it is in colour. Large ones are small ones enlarged, as those take long to make."""
    factor = max(shape[0] // 360, 1)
    scene = made_up_scene(kind, (shape[0] // factor, shape[1] // factor), frames, seed)
    large = (*shape, *scene.shape[2:])
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 2, (2 * shape[0], 2 * shape[1], *scene.shape[2:])).astype(np.float32)
    writer = VideoWriter(path, large, FPS)
    for k in range(frames):
        frame = scene.frame(k)
        if factor > 1:  # with noise of its own for each pixel: another piece of one picture of noise
            y, x = rng.integers(0, shape[0]), rng.integers(0, shape[1])
            frame = np.repeat(np.repeat(frame, factor, axis=0), factor, axis=1)
            frame = np.clip(frame + noise[y : y + shape[0], x : x + shape[1]], 0, 255).astype(np.uint8)
        writer.write(frame)
    writer.finish()
    return len(scene.shape) == 3


def spent(run: Callable[[], Any]) -> float:
    """CPU seconds."""
    started = time.process_time()
    run()
    return time.process_time() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", default="static,clouds,shadow")
    parser.add_argument("--shapes", default="240x320,720x1280")
    parser.add_argument("--frames", default="1000,400", help="for each shape")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    print("| clip | outputs | rcurc-gpu | MOG2 | ratio |\n| --- | --- | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours_in, theirs_in = folder / "ours", folder / "theirs"
        theirs_in.mkdir()
        for size, frames in zip(asked.shapes.split(","), map(int, asked.frames.split(",")), strict=True):
            height, width = map(int, size.split("x"))
            for kind in asked.scenes.split(","):
                path = folder / f"{kind}.mp4"
                colour = write_clip(kind, (height, width), frames, asked.seed, path)
                ours(path, ours_in, colour, _KINDS)  # so that no compiling is timed
                for words, kinds, theirs in (("three videos", _KINDS, _KINDS), ("mask; MOG2 none", ("mask",), ())):
                    runs = partial(ours, path, ours_in, colour, kinds), partial(mog2, path, theirs_in, colour, theirs)
                    times = [[spent(run) for run in runs] for _ in range(asked.rounds)]
                    a, b = (frames / statistics.median(pair[who] for pair in times) for who in (0, 1))
                    what = f"{kind}, {size}, {'colour' if colour else 'grey'}"
                    print(f"| {what} | {words} | {a:.0f} | {b:.0f} | {a / b:.2f} |", flush=True)


if __name__ == "__main__":
    main()
