"""The problems, with their truth, and a directory to hand them to other processes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rcurc_gpu as rg
from bench.real import problem as real_problem
from rcurc_gpu.video import surveillance_scene

RANK, ALPHA, C, CHOSEN, RATE = 5, 0.2, 10.0, 0.3, 0.25
VIDEO_RANK, VIDEO_CHOSEN, VIDEO_RATE = 2, 0.4, 0.5
WHITE = 255.0


@dataclass(frozen=True, eq=False)
class Problem:
    """A matrix to recover.

    Attributes
    ----------
    kind : {"full", "cross", "video", "real"}
    Y, truth : float64 arrays (n1, n2)
        What there is to see, and what is to be found. A column of a video is a frame.
    rank : int, optional
        None where nobody knows it.
    mask : bool array (n1, n2), optional
        What was observed, if not all; `Y` is 0 elsewhere.
    rows, cols : index vectors, optional
        I and J, where the observations are.
    frame_shape : (int, int), optional
        Height and width of a video.
    counts : bool array (n1, n2), optional
        The entries that are scored, if not all.
    name : str
        Of a real matrix, and of the task.
    """

    kind: str
    Y: np.ndarray
    truth: np.ndarray
    rank: int | None
    mask: np.ndarray | None = None
    rows: np.ndarray | None = None
    cols: np.ndarray | None = None
    frame_shape: tuple[int, int] | None = None
    counts: np.ndarray | None = None
    name: str = ""

    @property
    def title(self) -> str:
        """In words, for a heading."""
        n1, n2 = self.Y.shape
        if self.kind == "real":
            return self.name
        if self.kind == "video":
            height, width = self.frame_shape or (0, 0)
            return f"Background of a video, {n2} frames of {height} x {width}, rank {self.rank}"
        what = "Fully observed" if self.mask is None else f"Cross-sampled, {self.mask.mean():.1%} observed"
        return f"{what}, {n1} x {n2}, rank {self.rank}, {ALPHA:.0%} outliers, c = {C:g}"

    @property
    def share(self) -> float:
        """Which share of the entries was observed."""
        return 1.0 if self.mask is None else float(self.mask.mean())

    def with_nan(self) -> np.ndarray:
        """Y (n1, n2) with NaN where nothing was observed."""
        return self.Y if self.mask is None else np.where(self.mask, self.Y, np.nan)

    def score(self, found: Any) -> dict[str, float]:
        """The relative error of a dense or low-rank matrix, and for a video the PSNR in dB."""
        dense = found.to_dense() if hasattr(found, "to_dense") else np.asarray(found)
        at = ... if self.counts is None else self.counts
        difference = np.linalg.norm((dense - self.truth)[at])
        score = {"error": float(difference / np.linalg.norm(self.truth[at]))}
        if self.kind == "video":
            score["psnr"] = float(20 * np.log10(WHITE * np.sqrt(self.truth.size) / difference))
        return score

    def save(self, directory: Path) -> None:
        """One file for each array, read back without a copy in between."""
        directory.mkdir(parents=True)
        small = {"kind": self.kind, "rank": self.rank, "frame_shape": self.frame_shape, "name": self.name}
        (directory / "problem.json").write_text(json.dumps(small))
        for name in ("Y", "truth", "mask", "rows", "cols", "counts"):
            array = getattr(self, name)
            if array is not None:
                np.save(directory / f"{name}.npy", array)

    @classmethod
    def load(cls, directory: Path) -> Problem:
        """What `save` has put there."""
        small = json.loads((directory / "problem.json").read_text())
        shape = small.pop("frame_shape")
        arrays = {path.stem: np.load(path) for path in directory.glob("*.npy")}
        return cls(**small, **arrays, frame_shape=None if shape is None else tuple(shape))


def matrices(size: int, seed: int = 0) -> tuple[Problem, Problem]:
    """One matrix, fully observed and seen through a cross."""
    drawn = rg.synthetic((size, size), RANK, ALPHA, C, rate=RATE, seed=seed)
    i, j = np.divmod(np.arange(size * size), size)
    Y, truth = drawn.entries(i, j).reshape(size, size), drawn.W @ drawn.V.T
    samples = drawn.samples
    R, C_block = samples.R.tocoo(), samples.C.tocoo()
    mask = np.zeros((size, size), dtype=bool)
    mask[samples.rows[R.row], R.col] = True
    mask[C_block.row, samples.cols[C_block.col]] = True
    return (
        Problem("full", Y, truth, RANK),
        Problem("cross", np.where(mask, Y, 0.0), truth, RANK, mask, samples.rows, samples.cols),
    )


def video(shape: tuple[int, int], frames: int, seed: int = 0) -> Problem:
    """A synthetic scene whose background is known."""
    scene = surveillance_scene(shape, frames, seed)
    Y, truth = (
        np.stack([np.asarray(look(k), dtype=np.float64).ravel() for k in range(frames)], axis=1)
        for look in (scene.frame, scene.background)
    )
    return Problem("video", Y, truth, VIDEO_RANK, frame_shape=shape)


def real(name: str, matrix: np.ndarray, task: str, kind: str) -> Problem:
    """A task of `bench.real`; whoever was given a wrong value scores where it was."""
    made = real_problem(matrix, task, kind)
    seen = ~np.isnan(made.M)
    Y, words = np.where(seen, made.M, 0.0), f"{name} {task} {kind}"
    return Problem("real", Y, made.truth, None, seen, made.rows, made.cols, counts=made.counts, name=words)
