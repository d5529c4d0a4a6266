"""A background that was found: pictures of it, its file, and how bright it is in frames that come later."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from .. import files
from ..backends import Kernels, choose
from ..result import CURMatrix
from ..summary import Fields
from .masks import MaskRule

# New frames whose light is found together: these many bytes of them, and not more than so many, as one that waits is written
# late.
_BYTES_AT_ONCE = 1 << 25
_MOST_AT_ONCE = 64
_POOR, _MOST_LIGHTS = 0.8, 8  # of the usual share that agrees, below which so many other lights are tried
_NEAR = 24.0  # grey levels: the scale of a fit that begins near its end


@dataclass(frozen=True, eq=False, repr=False)
class Background(Fields):
    """The background of a video as a matrix, pixels x frames, of low rank.

    Attributes
    ----------
    matrix : CURMatrix (n1, n2)
        Pixel (y, x) of a grey frame is the row ``y * width + x``; channel c of a frame in colour the row
        ``3 * (y * width + x) + c``, as all channels share the changes of the light. NumPy, float32.
    shape : (int, int) or (int, int, 3)
        Of a frame.
    noise : float
        Standard deviation of what is neither background nor foreground, in grey levels.
    rule : MaskRule
        What is foreground.
    reference : float32 array (height, width), optional
        The frame to which others have to be shifted first (`Stabilised`), if the camera shook.
    """

    matrix: CURMatrix
    shape: tuple[int, ...]
    noise: float
    rule: MaskRule
    reference: np.ndarray | None = None

    def picture(self, k: int) -> np.ndarray:
        """The background of frame `k`, float32 of `shape`."""
        return self.matrix[:, k].reshape(self.shape)

    def still(self) -> np.ndarray:
        """One picture for all frames, float32 of `shape`: the background in the median light."""
        return (self.matrix.left @ np.median(self.matrix.right, axis=0)).reshape(self.shape)

    def coefficients(self, frames: Any, near: np.ndarray | None = None) -> np.ndarray:
        """The light in new frames, from their chosen pixels.

        Parameters
        ----------
        frames : uint8 array (k, ...)
            Of `shape` each.
        near : float array (r,), optional
            The light of an earlier frame. It is the better guess where something large hides most of the picture.

        Returns
        -------
        float32 array (k, r)
            ``matrix.left @ coefficients[i]`` is the background of frame i.
        """
        seen = np.stack([np.reshape(frame, -1)[self.matrix.rows] for frame in frames])
        guess = np.median(self.matrix.right, axis=0) if near is None else near
        start = np.repeat(guess[None, :].astype(np.float32), len(seen), axis=0)
        kernels = choose("auto", self.matrix.left)
        return fit_frames(seen, self.matrix.left[self.matrix.rows], self.noise, start, kernels)[0]

    def follow(self, frames: Iterable[np.ndarray], new: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Frames, and with each its coefficients (r,): those of the solve, or found anew if the frames are `new`."""
        if not new:
            yield from zip(frames, self.matrix.right, strict=False)  # a damaged file gives as many as before
            return
        most = max(min(_MOST_AT_ONCE, _BYTES_AT_ONCE // int(np.prod(self.shape))), 1)
        coming = iter(frames)
        while some := list(islice(coming, most)):
            yield from zip(some, self.coefficients(some), strict=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file, atomically. `CURMatrix.load` reads the matrix from it."""
        m, rule = self.matrix, self.rule
        none = np.empty((0, 0))
        arrays = {"left": m.left, "right": m.right, "rows": m.rows, "cols": m.cols, "frame": np.asarray(self.shape)}
        arrays |= {"noise": np.asarray(self.noise), "threshold": rule.threshold}
        arrays |= {"rule": np.asarray([rule.median, rule.min_area, rule.shadow])}
        arrays |= {"region": none.astype(bool) if rule.region is None else rule.region}
        arrays |= {"reference": none.astype(np.float32) if self.reference is None else self.reference}
        files.write_npz(path, "CURMatrix", arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Background:
        """Read what `save` wrote."""
        names = ("left", "right", "rows", "cols", "frame", "noise", "threshold", "rule", "region", "reference")
        a = files.read_npz(path, "CURMatrix", names)
        matrix = CURMatrix(a["left"], a["right"], a["rows"], a["cols"])
        median, area, shadow = a["rule"].tolist()
        rule = MaskRule(a["threshold"], median, area, bool(shadow), a["region"] if a["region"].size else None)
        reference = a["reference"] if a["reference"].size else None
        return cls(matrix, tuple(a["frame"].tolist()), float(a["noise"]), rule, reference)


def fit_frames(
    pixels: np.ndarray, left: np.ndarray, noise: float, near: np.ndarray, kernels: Kernels
) -> tuple[np.ndarray, np.ndarray]:
    """The light of frames.

    Parameters
    ----------
    pixels : uint8 array (frames, |I|)
    left : float32 array (|I|, k)
    noise : float
    near : float32 array (frames, k)
        The light of frames not far away. It is one of two starts; the one that more pixels agree with wins, so that neither
        a lamp that is switched nor a train that hides half of the picture leads astray.
    kernels : Kernels

    Returns
    -------
    right : float32 array (frames, k)
    agree : float32 array (frames,)
        Share of the pixels that agrees.
    """
    right, agree = kernels.robust_fit(pixels, left, noise, start=near, widest=_NEAR)
    other, more = kernels.robust_fit(pixels, left, noise)
    better = more > agree
    right[better], agree[better] = other[better], more[better]
    if len(near) > 1:
        _try_others(pixels, left, noise, right, agree, kernels)
    return right, agree


def _try_others(
    pixels: np.ndarray, left: np.ndarray, noise: float, right: np.ndarray, agree: np.ndarray, kernels: Kernels
) -> None:
    """Frames that fewer pixels agree with than usual try the light of others as a start; `right`, `agree` are changed."""
    usual = float(np.median(agree))
    good = np.flatnonzero(agree >= usual)
    spread = np.ptp(right[good], axis=0) + 1e-6
    chosen = [good[0]]  # lights that differ most from each other
    apart = np.full(len(good), np.inf)
    for _ in range(_MOST_LIGHTS - 1):
        apart = np.minimum(apart, np.max(np.abs(right[good] - right[chosen[-1]]) / spread, axis=1))
        chosen.append(good[int(np.argmax(apart))])
    for start in right[chosen]:
        poor = np.flatnonzero(agree < _POOR * usual)
        if len(poor) == 0:
            return
        begin = np.repeat(start[None, :], len(poor), axis=0)
        other, more = kernels.robust_fit(pixels[poor], left, noise, start=begin, widest=_NEAR)
        better = more > agree[poor]
        right[poor[better]], agree[poor[better]] = other[better], more[better]
