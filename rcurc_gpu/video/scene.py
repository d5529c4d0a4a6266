"""A street seen by a fixed camera, made up: its true background and foreground are known for every frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..backends import DataStream, generator
from ..errors import check_count, check_number, check_shape, seed_to_int
from ..result import LowRankMatrix
from ..summary import Fields
from .movers import Mover, Street, paint


@dataclass(frozen=True, eq=False, repr=False)
class SurveillanceScene(Fields):
    """A video of people and cars in front of a house, computed frame by frame from the frame's number.

    The background is a picture whose brightness and sunlit part change slowly, so its matrix has rank 2. Iterating gives all
    frames; nothing but the background's two pictures and a list of who walks where is held.

    Attributes
    ----------
    shape : (int, int)
        Height and width.
    frames : int
    noise : float
        Standard deviation of the camera's noise, in grey levels.
    fps : float
    seed : int
    movers : tuple of Mover
    """

    shape: tuple[int, int]
    frames: int
    noise: float
    fps: float
    seed: int
    movers: tuple[Mover, ...]

    def __len__(self) -> int:
        return self.frames

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.frame(k) for k in range(self.frames))

    def frame(self, k: int) -> np.ndarray:
        """Frame `k` as the camera sees it, uint8 (height, width)."""
        picture, _ = self._painted(k)
        if self.noise > 0:
            rng = generator(self.seed, DataStream.CAMERA, k)
            picture += np.float32(self.noise) * rng.standard_normal(self.shape, dtype=np.float32)
        return np.clip(np.rint(picture, out=picture), 0, 255, out=picture).astype(np.uint8)

    def background(self, k: int) -> np.ndarray:
        """The true background of frame `k`, float32 (height, width), neither noisy nor rounded."""
        if not 0 <= k < self.frames:
            raise IndexError(f"frame must be at least 0 and below {self.frames}, got {k}")
        matrix = self.background_matrix
        return (matrix.left @ matrix.right[int(k)]).reshape(self.shape)

    def mask(self, k: int) -> np.ndarray:
        """Where something stands before the background in frame `k`, or shades it, bool (height, width)."""
        return self._painted(k)[1]

    @cached_property
    def background_matrix(self) -> LowRankMatrix:
        """The true background of all frames, (height * width, frames), of rank 2."""
        street, sun = street_pictures(self.shape, generator(self.seed, DataStream.STREET))
        left = np.stack([street.ravel(), sun.ravel()], axis=1).astype(np.float32)
        time = np.arange(self.frames) / self.fps
        clouds = 0.05 * np.sin(2 * np.pi * time / 31.0) + 0.02 * np.sin(2 * np.pi * time / 7.3)
        sunlight = 0.5 - 0.5 * np.cos(2 * np.pi * (time + 3.0) / 67.0)
        return LowRankMatrix(left, np.stack([1 + clouds, sunlight], axis=1).astype(np.float32))

    def _painted(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Frame `k` without noise, and where it differs from the background."""
        picture = self.background(k)
        mask = np.zeros(self.shape, dtype=bool)
        for mover in self.movers:
            if mover.enters <= k < mover.leaves:
                paint(picture, mask, mover, k)
        return picture, mask


def surveillance_scene(
    shape: tuple[int, int] = (256, 320),
    frames: int = 1000,
    seed: Any = 0,
    *,
    noise: float = 2.0,
    crowd: float = 1.0,
    fps: float = 25.0,
) -> SurveillanceScene:
    """Make up a video of a fixed camera, with its truth.

    Parameters
    ----------
    shape : (int, int)
        Height and width, at least 16 each.
    frames : int
    seed : None, int or numpy.random.Generator
    noise : float
        Standard deviation of the camera's noise, in grey levels of 0 to 255.
    crowd : float
        How much goes on; 1 covers some 5 % of the picture, 0 nothing.
    fps : float
        Frames per second: light and movers keep their pace in seconds.

    Returns
    -------
    SurveillanceScene

    Examples
    --------
    >>> from rcurc_gpu.video import surveillance_scene
    >>> scene = surveillance_scene((48, 64), frames=50, seed=0)
    >>> len(scene), scene.frame(7).shape
    (50, (48, 64))
    >>> scene.background_matrix.shape  # the truth: pixels x frames
    (3072, 50)
    """
    height, width = check_shape("shape", shape)
    if min(height, width) < 16:
        raise ValueError(f"shape must be at least 16 x 16, got {height} x {width}")
    frames = check_count("frames", frames)
    noise, crowd = check_number("noise", noise), check_number("crowd", crowd)
    fps = check_number("fps", fps, open_low=True)
    key = seed_to_int(seed)
    movers = Street((height, width), frames, fps).cast_movers(crowd, generator(key, DataStream.MOVERS))
    return SurveillanceScene((height, width), frames, noise, fps, key, movers)


# ---------------------------------------------------------------- the street


def street_pictures(shape: tuple[int, int], rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The picture in dull light, and what the sun adds to it. Their sum stays between 20 and 250: nothing is cut off."""
    y, x = np.meshgrid(np.linspace(0, 1, shape[0]), np.linspace(0, 1, shape[1]), indexing="ij")
    wall = y < 0.42
    pavement = (y >= 0.42) & (y < 0.60)
    picture = np.select([wall, pavement], [118 + 25 * y, 150 - 40 * (y - 0.42)], 78 + 30 * (y - 0.6))
    picture += np.where(wall, _bricks(x, y), np.where(pavement, _slabs(x, y), 0.0))
    for column in range(5):  # windows, and a door in the place of one
        left, door = 0.05 + 0.195 * column, column == 3
        top, bottom = (0.14, 0.42) if door else (0.10, 0.29)
        frame = (x > left - 0.01) & (x < left + 0.12) & (y > top - 0.015) & (y < bottom + 0.015) & wall
        pane = (x > left) & (x < left + 0.11) & (y > top) & (y < bottom)
        picture = np.where(frame, 165, picture)
        picture = np.where(pane, (60 if door else 45) + 35 * (x - left) / 0.11 + 25 * (y - top), picture)
        picture = np.where(pane & (np.abs(x - left - 0.055) < 0.004), 150, picture)
    picture = np.where((y > 0.595) & (y < 0.612), 182, picture)  # the kerb
    dashes = (np.abs(y - 0.82) < 0.008) & (np.floor(x * 9) % 2 == 0)
    picture = np.where(dashes, 190, picture)
    picture = np.where((np.abs(x - 0.47) < 0.006) & (y < 0.60), 52, picture)  # a lamp post
    grain = sum(amount * smooth_noise(shape, rng, scale) for amount, scale in ((9.0, 0.08), (5.0, 0.02), (3.5, 0.0)))
    # the sun comes over the roof from the left: brighter below a slanted edge, and off the glass
    lit = 1 / (1 + np.exp(-(y - 0.30 - 0.35 * x) * 25))
    sun = lit * (0.16 * picture + 6 + 2 * smooth_noise(shape, rng, 0.05))
    return np.clip(picture + grain, 22, 198), np.clip(sun, 0, 38)


def _bricks(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    course = np.floor(y * 48)
    joint = ((y * 48) % 1 < 0.22) | ((x * 30 + 0.5 * (course % 2)) % 1 < 0.10)
    return np.where(joint, 14.0, 0.0)


def _slabs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Joints that run towards a point above the middle of the picture."""
    depth = 1 / np.maximum(y - 0.2, 0.1)
    across = ((x - 0.5) * depth * 5) % 1 < 0.06
    along = (depth * 4) % 1 < 0.08
    return np.where(across | along, -22.0, 0.0)


def smooth_noise(shape: tuple[int, int], rng: np.random.Generator, scale: float) -> np.ndarray:
    """Noise of unit variance, smooth over `scale` of the picture's height."""
    from scipy.ndimage import gaussian_filter

    noise = rng.standard_normal(shape)
    if scale > 0:
        noise = gaussian_filter(noise, scale * shape[0], mode="reflect")
        noise /= noise.std()
    return noise
