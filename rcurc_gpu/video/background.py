"""A background that was found: pictures of it, its file, and how bright it is in frames that come later."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from .. import files
from ..backends import Schedule
from ..result import CURMatrix, Positions, complete
from ..samples import new_block

# New frames whose light is found together: these many bytes of them, and not more than so many, as one that waits is written
# late.
_BYTES_AT_ONCE = 1 << 25
_MOST_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class Background:
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
    threshold : float
        What differs from the background by more was taken for foreground.
    determined : bool array (len(matrix.rows),)
        Which of the chosen pixels are to be trusted.
    typical : float
        Share of a frame's pixels that usually show the background.
    schedule : Schedule
        Of the regressions that found it.
    """

    matrix: CURMatrix
    shape: tuple[int, ...]
    noise: float
    threshold: float
    determined: np.ndarray
    typical: float
    schedule: Schedule

    def picture(self, k: int) -> np.ndarray:
        """The background of frame `k`, float32 of `shape`."""
        return self.matrix[:, k].reshape(self.shape)

    def still(self) -> np.ndarray:
        """One picture for all frames, float32 of `shape`: the background in the median light."""
        return (self.matrix.left @ np.median(self.matrix.right, axis=0)).reshape(self.shape)

    def coefficients(self, frames: Any) -> np.ndarray:
        """The light in new frames, from their chosen pixels.

        Parameters
        ----------
        frames : uint8 array (k, ...)
            Of `shape` each.

        Returns
        -------
        float32 array (k, r)
            ``matrix.left @ coefficients[i]`` is the background of frame i.
        """
        seen = np.stack([np.reshape(frame, -1)[self.matrix.rows] for frame in frames], axis=1).astype(np.float32)
        left = self.matrix.left
        block = new_block("frames", seen, None, len(self.matrix.rows), "the chosen pixels", left, units_last=True)
        at = Positions(left, self.matrix.rows, self.determined)
        return complete(block, at, self.typical, self.schedule, columns=True).coefficients

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
        m, s = self.matrix, self.schedule
        arrays = {"left": m.left, "right": m.right, "rows": m.rows, "cols": m.cols, "determined": self.determined}
        arrays |= {"frame": np.asarray(self.shape), "levels": np.asarray([self.noise, self.threshold, self.typical])}
        files.write_npz(path, "CURMatrix", arrays | {"schedule": np.asarray([s.zeta0, s.floor, s.gamma])})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Background:
        """Read what `save` wrote."""
        names = ("left", "right", "rows", "cols", "determined", "frame", "levels", "schedule")
        a = files.read_npz(path, "CURMatrix", names)
        matrix = CURMatrix(a["left"], a["right"], a["rows"], a["cols"])
        noise, threshold, typical = a["levels"].tolist()
        schedule = Schedule(*a["schedule"].tolist())
        return cls(matrix, tuple(a["frame"].tolist()), noise, threshold, a["determined"], typical, schedule)
