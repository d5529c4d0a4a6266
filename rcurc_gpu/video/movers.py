"""People and cars in the made-up street."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Mover:
    """A person or a car that crosses the picture, and may stand still for a while.

    Attributes
    ----------
    kind : {"person", "car"}
    feet : float
        Row on which it stands.
    height, width : float
        Pixels.
    speed : float
        Pixels per frame; negative to the left.
    enters, leaves : int
        First frame, and the one after the last.
    start : float
        Column of its middle when it enters.
    pause_from, pause : int
        Frames after entering at which it stops, and how long.
    shades : tuple of float
        Grey levels: hair or glass, coat or body, legs or wheels.
    """

    kind: str
    feet: float
    height: float
    width: float
    speed: float
    enters: int
    leaves: int
    start: float
    pause_from: int
    pause: int
    shades: tuple[float, float, float]

    def at(self, k: int) -> tuple[float, int]:
        """The column of its middle in frame `k`, and for how many frames it has moved."""
        since = k - self.enters
        moved = since - min(max(since - self.pause_from, 0), self.pause)
        return self.start + self.speed * moved, moved


@dataclass(frozen=True)
class Street:
    """A video to cast movers for.

    Attributes
    ----------
    shape : (int, int)
        Height and width of the frames.
    frames : int
    fps : float
    """

    shape: tuple[int, int]
    frames: int
    fps: float

    def cast_movers(self, crowd: float, rng: np.random.Generator) -> tuple[Mover, ...]:
        """Movers for a whole video, the farthest first; some are there already when it begins."""
        movers: list[Mover] = []
        for cast, gap in ((self._person, 1.9), (self._car, 9.0)):  # a new one every so many seconds
            time = -20.0
            while crowd > 0 and time * self.fps < self.frames:
                time += float(rng.exponential(gap / crowd))
                mover = cast(time, rng)
                if mover.leaves > 0 and mover.enters < self.frames:
                    movers.append(mover)
        return tuple(sorted(movers, key=lambda mover: mover.feet))

    def _person(self, time: float, rng: np.random.Generator) -> Mover:
        depth = rng.uniform(0.44, 0.60) if rng.random() < 0.8 else rng.uniform(0.88, 0.98)  # pavement, or near the camera
        height = self.shape[0] * (0.11 + 0.30 * (depth - 0.42)) * rng.uniform(0.88, 1.1)
        speed = height * rng.uniform(0.6, 1.1) / self.fps
        coat = rng.choice([rng.uniform(15, 60), rng.uniform(195, 240)])
        shades = (rng.uniform(25, 70), coat, rng.uniform(20, 80))
        pause = rng.uniform(1.5, 4.0) if rng.random() < 0.3 else 0.0
        speed = -speed if rng.random() < 0.5 else speed
        way = self._way(time, speed, 0.36 * height, pause, rng)
        return Mover("person", depth * self.shape[0], height, 0.36 * height, speed, *way, shades)

    def _car(self, time: float, rng: np.random.Generator) -> Mover:
        depth, to_the_left = ((0.74, True), (0.93, False))[int(rng.random() < 0.5)]
        height = self.shape[0] * (0.11 + 0.22 * (depth - 0.6)) * rng.uniform(0.9, 1.15)
        speed = self.shape[1] * rng.uniform(0.18, 0.4) / self.fps * (-1 if to_the_left else 1)
        body = rng.choice([rng.uniform(15, 45), rng.uniform(150, 235)])
        shades = (rng.uniform(30, 60), body, 20.0)
        pause = rng.uniform(2.0, 5.0) if rng.random() < 0.3 else 0.0
        way = self._way(time, speed, 2.3 * height, pause, rng)
        return Mover("car", depth * self.shape[0], height, 2.3 * height, speed, *way, shades)

    def _way(
        self, time: float, speed: float, width: float, pause: float, rng: np.random.Generator
    ) -> tuple[int, int, float, int, int]:
        """`enters`, `leaves`, `start`, `pause_from` and `pause` of a mover that crosses the picture."""
        way = self.shape[1] + 1.6 * width  # from beyond one edge to beyond the other
        start = -0.8 * width if speed > 0 else self.shape[1] + 0.8 * width
        needs = int(np.ceil(way / abs(speed)))
        # a stop longer than this would be background for many pixels
        stop = min(int(pause * self.fps), self.frames // 8)
        enters = round(time * self.fps)
        return enters, enters + needs + stop, start, int(rng.uniform(0.2, 0.8) * needs), stop


def paint(
    picture: np.ndarray, mask: np.ndarray, mover: Mover, k: int, light: float = 0.7, shadow_counts: bool = True
) -> None:
    """Draw a mover into a picture and set `mask` where it is, both in place.

    Parameters
    ----------
    picture : float32 array (height, width)
    mask : bool array (height, width)
    mover : Mover
    k : int
        Number of the frame.
    light : float
        What its shadow leaves of the light; 1 for no shadow.
    shadow_counts : bool
        Whether the mask has the shadow too.
    """
    middle, moved = mover.at(k)
    reach = 0.75 * mover.width
    top, bottom = int(mover.feet - 1.05 * mover.height), int(mover.feet + 0.12 * mover.height) + 1
    left, right = int(middle - reach), int(middle + reach) + 1
    top, left = max(top, 0), max(left, 0)
    bottom, right = min(bottom, picture.shape[0]), min(right, picture.shape[1])
    if top >= bottom or left >= right:
        return
    # u across, -0.5 to 0.5 over the width, positive ahead; v from the feet, 0, to the top, 1
    u = ((np.arange(left, right) - middle) / mover.width * (1 if mover.speed > 0 else -1))[None, :]
    v = ((mover.feet - np.arange(top, bottom)) / mover.height)[:, None]
    part, covered = picture[top:bottom, left:right], mask[top:bottom, left:right]
    shadow = (u / 0.6) ** 2 + (v / 0.09) ** 2 < 1
    part[shadow] *= light
    if shadow_counts and light < 1:
        covered |= shadow
    parts = _person_parts(u, v, moved) if mover.kind == "person" else _car_parts(u, v)
    for shape, shade in zip(parts, mover.shades, strict=True):
        part[shape] = shade * (0.9 + 0.2 * np.broadcast_to(v, shape.shape)[shape])  # lighter above
        covered |= shape


def _person_parts(u: np.ndarray, v: np.ndarray, moved: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Head, coat and legs, which swing."""
    swing = 0.24 * np.sin(0.45 * moved)
    head = (u / 0.20) ** 2 + ((v - 0.91) / 0.085) ** 2 < 1
    coat = (np.abs(u) < 0.30 + 0.12 * (0.62 - v)) & (v > 0.42) & (v < 0.82)
    stride = swing * (0.45 - v) / 0.45
    legs = ((np.abs(u - stride) < 0.11) | (np.abs(u + stride) < 0.11)) & (v >= 0) & (v <= 0.42)
    return head, coat, legs


def _car_parts(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows (below the roof), body and wheels."""
    cabin = (np.abs(u + 0.05) < 0.33 - 0.28 * (v - 0.55)) & (v >= 0.55) & (v < 1)
    windows = cabin & (np.abs(u + 0.05) < 0.29 - 0.28 * (v - 0.55)) & (v > 0.60) & (v < 0.93) & (np.abs(u + 0.05) > 0.02)
    body = ((np.abs(u) < 0.5) & (v > 0.14) & (v < 0.60)) | (cabin & ~windows)
    wheels = (((np.abs(u) - 0.31) * 2.3) ** 2 + (v - 0.15) ** 2 < 0.15**2) & (v >= 0)
    return windows, body & ~windows, wheels
