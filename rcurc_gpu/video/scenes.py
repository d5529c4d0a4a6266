"""Scenes that are hard for background subtraction, made up: true background and foreground are known for every frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.ndimage import map_coordinates

from ..backends import DataStream, generator
from ..errors import check_choice, check_count, check_shape, seed_to_int
from .movers import Mover, Street, paint
from .scene import smooth_noise, street_pictures

FPS = 25.0
_NOISE = 2.0  # grey levels, standard deviation of the camera's noise
# Of red, green and blue, for scenes in colour.
_TINTS = ((1.0, 0.55, 0.45), (0.45, 0.6, 1.0), (0.9, 0.85, 0.35), (0.5, 0.9, 0.5), (0.9, 0.9, 0.9))


@dataclass(frozen=True, eq=False)
class MadeUpScene:
    """A video with its truth, computed frame by frame. Iterating gives the frames.

    Attributes
    ----------
    kind : str
    shape : (int, int) or (int, int, 3)
    frames : int
    seed : int
    light_changes : bool
        Whether the light does, so that a still picture is no background.
    movers : tuple of Mover
    shadow : float
        What shadows leave of the light; they are no foreground. 1 for none.
    """

    kind: str
    shape: tuple[int, ...]
    frames: int
    seed: int
    light_changes: bool
    movers: tuple[Mover, ...]
    shadow: float
    _behind: Callable[[int], np.ndarray] = field(repr=False)
    fps: float = FPS

    def __len__(self) -> int:
        return self.frames

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.frame(k) for k in range(self.frames))

    def background(self, k: int) -> np.ndarray:
        """The true background of frame `k`, float32 of `shape`, neither noisy nor rounded."""
        return self._behind(k).astype(np.float32)

    def mask(self, k: int) -> np.ndarray:
        """Where something stands before the background in frame `k`, bool (height, width)."""
        return self._painted(k)[1]

    def frame(self, k: int) -> np.ndarray:
        """Frame `k` as the camera sees it, uint8 of `shape`."""
        picture, _ = self._painted(k)
        rng = generator(self.seed, DataStream.CAMERA, k)
        picture += np.float32(_NOISE) * rng.standard_normal(self.shape, dtype=np.float32)
        return np.clip(np.rint(picture, out=picture), 0, 255, out=picture).astype(np.uint8)

    def _painted(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        picture, mask = self.background(k), np.zeros(self.shape[:2], dtype=bool)
        for number, mover in enumerate(self.movers):
            if not mover.enters <= k < mover.leaves:
                continue
            if len(self.shape) == 2:
                paint(picture, mask, mover, k, self.shadow, shadow_counts=False)
                continue
            for channel, tint in enumerate(_TINTS[number % len(_TINTS)]):
                shades = (mover.shades[0] * tint, mover.shades[1] * tint, mover.shades[2] * tint)
                paint(picture[..., channel], mask, replace(mover, shades=shades), k, self.shadow, shadow_counts=False)
        return picture, mask


def made_up_scene(kind: str, shape: tuple[int, int] = (240, 320), frames: int = 1000, seed: Any = 0) -> MadeUpScene:
    """Make up a scene of one of the `KINDS`.

    Parameters
    ----------
    kind : str
        ``static`` (a street in constant light), ``lights`` (a lobby whose lamps are switched), ``clouds`` (their shade
        drifts over a street), ``sunset``, ``train`` (two fifths of the picture's height for a quarter of the time),
        ``standing`` (people who stand at a place for nearly half of the time), ``escalator`` (its steps move, people stand
        on it), ``trees`` (that wave), ``water`` (ripples) or ``shadow`` (a street in colour, with shadows that are no
        foreground).
    shape : (int, int)
        Height and width, at least 16 each.
    frames : int
    seed : None, int or numpy.random.Generator

    Returns
    -------
    MadeUpScene
    """
    check_choice("kind", kind, tuple(KINDS))
    height, width = check_shape("shape", shape)
    if min(height, width) < 16:
        raise ValueError(f"shape must be at least 16 x 16, got {height} x {width}")
    key = seed_to_int(seed)
    return KINDS[kind](_Stage(kind, (height, width), check_count("frames", frames), key))


class _Stage:
    """What the scenes have in common."""

    def __init__(self, kind: str, shape: tuple[int, int], frames: int, seed: int) -> None:
        self.kind, self.shape, self.frames, self.seed = kind, shape, frames, seed
        self.rng = generator(seed, DataStream.STREET, 1)
        self.y, self.x = np.meshgrid(np.linspace(0, 1, shape[0]), np.linspace(0, 1, shape[1]), indexing="ij")
        self.street, self.sun = street_pictures(shape, self.rng)

    def movers(self, crowd: float) -> tuple[Mover, ...]:
        rng = generator(self.seed, DataStream.MOVERS, 1)
        return Street(self.shape, self.frames, FPS).cast_movers(crowd, rng)

    def scene(
        self,
        behind: Callable[[int], np.ndarray],
        movers: tuple[Mover, ...],
        light_changes: bool = False,
        shadow: float = 1.0,
        colour: bool = False,
    ) -> MadeUpScene:
        shape = (*self.shape, 3) if colour else self.shape
        return MadeUpScene(self.kind, shape, self.frames, self.seed, light_changes, movers, shadow, behind)

    def noise(self, scale: float) -> np.ndarray:
        """Smooth noise of unit variance."""
        return smooth_noise(self.shape, self.rng, scale)


def _static(stage: _Stage) -> MadeUpScene:
    return stage.scene(lambda k: stage.street, stage.movers(1.0))


def _lights(stage: _Stage) -> MadeUpScene:
    lobby = _lobby(stage)
    n_lamps = 3
    lamps = [np.exp(-(((stage.x - 0.15 - 0.35 * i) / 0.3) ** 2 + ((stage.y - 0.2) / 0.5) ** 2)) for i in range(n_lamps)]
    # each is on or off for a quarter of the video or so
    turns = np.sort(stage.rng.uniform(0.1, 0.9, (n_lamps, 2)) * stage.frames, axis=1)
    first = stage.rng.random(n_lamps) < 0.5

    def behind(k: int) -> np.ndarray:
        light = 0.45 + sum(0.35 * lamp * (on ^ (np.searchsorted(turn, k, "right") % 2 == 1)) for lamp, turn, on in parts)
        return np.minimum(lobby * light, 250)

    parts = list(zip(lamps, turns, first, strict=True))
    return stage.scene(behind, stage.movers(0.8), light_changes=True)


def _clouds(stage: _Stage) -> MadeUpScene:
    height, width = stage.shape
    sky = smooth_noise((height, 3 * width), stage.rng, 0.35)
    speed = 2 * width / max(stage.frames, 1)

    def behind(k: int) -> np.ndarray:
        shift = int(k * speed)
        shade = 1 / (1 + np.exp(2.5 * sky[:, shift : shift + width]))
        return stage.street * (1.1 - 0.45 * shade)

    return stage.scene(behind, stage.movers(0.8), light_changes=True)


def _sunset(stage: _Stage) -> MadeUpScene:
    def behind(k: int) -> np.ndarray:
        time = k / max(stage.frames, 1)
        return stage.street * (1 - 0.55 * time) + stage.sun * max(1 - 2 * time, 0.0)

    return stage.scene(behind, stage.movers(1.0), light_changes=True)


def _train(stage: _Stage) -> MadeUpScene:
    height, width = stage.shape
    # Cars of the train one after the other: each as a mover of the length of two pictures would be too coarse to paint.
    passes = 0.25 * stage.frames
    speed = 3.2 * width / max(passes, 1)  # two pictures long
    start = int(stage.rng.uniform(0.2, 0.6) * stage.frames)
    cars = []
    for number in range(4):
        car_width = 0.56 * width
        shades = (45.0, (200.0, 60.0)[number % 2], 25.0)
        begin = -0.5 * car_width - number * 1.02 * car_width
        needs = int((width - begin + car_width) / speed) + 1
        cars.append(
            Mover("car", 0.80 * height, 0.42 * height, car_width, speed, start, start + needs, begin, needs, 0, shades)
        )
    return stage.scene(lambda k: stage.street, (*stage.movers(0.3), *cars))


def _standing(stage: _Stage) -> MadeUpScene:
    height, width = stage.shape
    people = []
    for place in range(3):
        stay = int(stage.rng.uniform(0.35, 0.45) * stage.frames)
        enters = int(stage.rng.uniform(0.0, 0.35) * stage.frames)
        tall = height * stage.rng.uniform(0.28, 0.38)
        speed = tall * 0.8 / FPS
        way = (0.2 + 0.3 * place) * width + tall * 0.3
        walk = int(way / speed)
        leaves = enters + walk + stay + int((width - way + tall) / speed) + walk
        shades = (stage.rng.uniform(25, 70), (30.0, 225.0, 50.0)[place], stage.rng.uniform(20, 60))
        people.append(
            Mover("person", 0.95 * height, tall, 0.36 * tall, speed, enters, leaves, -0.3 * tall, walk, stay, shades)
        )
    return stage.scene(lambda k: stage.street, (*stage.movers(0.5), *people))


def _escalator(stage: _Stage) -> MadeUpScene:
    height, width = stage.shape
    lobby = _lobby(stage)
    band = np.abs(stage.x - 0.5) < 0.17
    along = stage.y * height

    def behind(k: int) -> np.ndarray:
        return lobby * 0.8 + np.where(band, 9 * np.sign(np.sin(2 * np.pi * (along - 0.8 * k) / 9)) - 25, 0)

    people, rng = [], stage.rng
    for enters in range(-200, stage.frames, 60):
        begin = enters + int(rng.integers(0, 50))
        tall = height * rng.uniform(0.2, 0.28)
        column = width * (0.5 + rng.uniform(-0.1, 0.1))
        shades = (rng.uniform(20, 60), float(rng.choice([35.0, 215.0])), rng.uniform(20, 60))
        # they go down with the steps: one mover for each frame would be needed, so pieces of a second stand at a place
        for piece in range(int((height + tall) / 0.8 / 5) + 1):
            first = begin + 5 * piece
            feet = 4.0 * piece
            people.append(Mover("person", feet, tall, 0.36 * tall, 1e-3, first, first + 5, column, 0, 0, shades))
    shown = tuple(p for p in people if p.leaves > 0 and p.enters < stage.frames)
    return stage.scene(behind, (*stage.movers(0.3), *shown))


def _trees(stage: _Stage) -> MadeUpScene:
    height, width = stage.shape
    crown = 1 / (1 + np.exp(-(0.5 - stage.y + 0.06 * stage.noise(0.15)) * 60)) * (stage.x > 0.35)
    leaves = np.clip(95 + 38 * stage.noise(0.012) + 12 * stage.noise(0.05), 20, 190)
    rows, cols = np.mgrid[0:height, 0:width].astype(np.float32)
    phase = 2 * stage.noise(0.2)
    speeds = stage.rng.uniform(0.02, 0.05, 3) * 25

    def behind(k: int) -> np.ndarray:
        time = k / FPS
        wind = sum(np.sin(2 * np.pi * speed * time + phase * (i + 1)) for i, speed in enumerate(speeds)) / 3
        reach = 0.012 * height
        moved = map_coordinates(leaves, [rows + 0.4 * reach * wind, cols + reach * wind], order=1, mode="reflect")
        return stage.street * (1 - crown) + moved * crown

    return stage.scene(behind, stage.movers(1.0))


def _water(stage: _Stage) -> MadeUpScene:
    lake = stage.y > 0.62
    waves = [(stage.rng.uniform(20, 60), stage.rng.uniform(-15, 15), stage.rng.uniform(0.3, 1.2)) for _ in range(6)]

    def behind(k: int) -> np.ndarray:
        time = k / FPS
        ripple = sum(np.sin(2 * np.pi * (a * stage.y + b * stage.x + f * time)) for a, b, f in waves)
        return np.where(lake, 90 + 9 * ripple, stage.street)

    return stage.scene(behind, stage.movers(1.0))


def _shadow(stage: _Stage) -> MadeUpScene:
    tint = np.stack([1 + 0.12 * stage.noise(0.1), np.ones(stage.shape), 1 - 0.12 * stage.noise(0.1)], axis=2)
    picture = np.clip((stage.street + stage.sun)[..., None] * tint, 10, 250)
    return stage.scene(lambda k: picture, stage.movers(1.2), shadow=0.6, colour=True)


def _lobby(stage: _Stage) -> np.ndarray:
    """A floor with tiles before a wall with doors."""
    wall = stage.y < 0.45
    picture = np.where(wall, 175.0, 150 - 40 * stage.y)
    depth = 1 / np.maximum(stage.y - 0.25, 0.1)
    joints = (((stage.x - 0.5) * depth * 4) % 1 < 0.07) | ((depth * 3) % 1 < 0.08)
    picture -= np.where(joints & ~wall, 35, 0)
    for left in (0.08, 0.38, 0.72):
        door = (stage.x > left) & (stage.x < left + 0.16) & (stage.y > 0.12) & wall
        picture = np.where(door, 105 + 30 * stage.y, picture)
    return np.clip(picture + 6 * stage.noise(0.03) + 3 * stage.noise(0.0), 20, 235)


KINDS: dict[str, Callable[[_Stage], MadeUpScene]] = {
    "static": _static,
    "lights": _lights,
    "clouds": _clouds,
    "sunset": _sunset,
    "train": _train,
    "standing": _standing,
    "escalator": _escalator,
    "trees": _trees,
    "water": _water,
    "shadow": _shadow,
}
