"""Live mode: speed, memory and quality of `BackgroundSubtractor` on a made-up street whose lights are switched.

``python -m bench.live`` follows 20,000 frames of 120 x 160 with two lasting changes of the light and prints the PSNR to the
true background after each, and the memory of the process. ``python -m bench.live --clock`` follows 1080 x 1920 from a file,
25 frames a second, as a camera would give it, and prints how far it falls behind.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from rcurc_gpu.video import BackgroundSubtractor, LiveSource, SurveillanceScene, surveillance_scene
from rcurc_gpu.video.write import VideoWriter

AFTER = 200  # frames after a change from which the background has to be right
RATE = 25.0


def lit(picture: np.ndarray, state: int) -> np.ndarray:
    """A picture in the light: as it is, darker, or with a lamp on the right."""
    if state == 0:
        return picture
    picture = 0.55 * picture
    across = np.linspace(0, 1, picture.shape[1])
    return picture if state == 1 else picture + 60 / (1 + np.exp(-12 * (across - 0.5)))


def memory() -> float:
    """MB that the process takes now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def quality(scene: SurveillanceScene, changes: tuple[int, ...]) -> None:
    """PSNR after each change, and memory."""
    subtractor, found, taken, cpu = BackgroundSubtractor(), np.empty(len(scene)), [], 0.0
    for k in range(len(scene)):
        state = sum(k >= change for change in changes)
        frame = np.clip(np.rint(lit(scene.frame(k).astype(np.float32), state)), 0, 255).astype(np.uint8)
        started = time.process_time()
        subtractor.apply(frame)
        cpu += time.process_time() - started
        left = subtractor.background - np.clip(lit(scene.background(k), state), 0, 255)
        found[k] = 10 * np.log10(255**2 / np.mean(np.square(left)))
        if k % (len(scene) // 8) == len(scene) // 8 - 1:
            taken.append(memory())
    for begin, end in zip((0, *changes), (*changes, len(scene)), strict=True):
        after = found[begin + AFTER : end]
        print(f"from frame {begin}: {found[begin + AFTER]:.1f} dB {AFTER} frames later, then {np.median(after):.1f}", end="")
        print(f" (worst {after.min():.1f})")
    print(f"memory, MB: {' '.join(f'{x:.0f}' for x in taken)}; {1e3 * cpu / len(scene):.2f} ms of CPU a frame")


def write_clip(path: Path, colour: bool) -> None:
    """Four seconds of 1080 x 1920 as H.264."""
    small = surveillance_scene((270, 480), 100, seed=3)
    writer = VideoWriter(path, (1080, 1920, 3) if colour else (1080, 1920), RATE)
    for k in range(100):
        frame = np.kron(small.frame(k), np.ones((4, 4), np.uint8))
        writer.write(np.stack([frame] * 3, axis=2) if colour else frame)
    writer.finish()


def clock(seconds: float, colour: bool) -> None:
    """1080 x 1920 at 25 frames a second, decoded from a file; frames that come too late are counted."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "street.mp4"
        writing = multiprocessing.get_context("spawn").Process(target=write_clip, args=(path, colour))
        writing.start()  # an encoder's memory is none of ours
        writing.join()
        subtractor, done, behind = BackgroundSubtractor(beside=True), 0, 0.0
        started, cpu = time.perf_counter(), time.process_time()
        while done < seconds * RATE:
            with LiveSource(str(path), colour=colour) as source:
                for frame in source:
                    due = started + done / RATE
                    now = time.perf_counter()
                    behind = max(behind, now - due)
                    time.sleep(max(due - now, 0))
                    subtractor.apply(frame)
                    done += 1
        took = time.perf_counter() - started
        cpu = time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(f"1080 x 1920 {'in colour' if colour else 'in grey'}: {done} frames in {took:.1f} s, {done / took:.1f} a second")
    print(f"{1e3 * cpu / done:.1f} ms of CPU a frame; at most {behind:.2f} s behind; at most {peak:.0f} MB", end="")
    print(f"; learned {subtractor.learned} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clock", action="store_true")
    parser.add_argument("--colour", action="store_true")
    parser.add_argument("--seconds", type=float, default=40)
    given = parser.parse_args()
    if given.clock:
        clock(given.seconds, given.colour)
        return
    third = given.frames // 3
    quality(surveillance_scene((120, 160), given.frames, seed=given.seed), (third, 2 * third))


if __name__ == "__main__":
    main()
