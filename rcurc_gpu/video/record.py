"""What a run writes frame by frame: videos, a table of objects, and figures over time."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from ..errors import ArgumentError
from .frames import FrameSplitter, Split
from .write import Beside, PictureWriter, VideoWriter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What can be asked for, and the file that it makes (for the mask: by default).
KINDS = {
    "background": "background.mp4",
    "foreground": "foreground.mp4",
    "mask": "mask.mp4",
    "objects": "objects.csv",
    "timeline": "timeline.png",
    "sheet": "sheet.png",
    "result": "result.npz",
}
PREVIEW = frozenset(["sheet"])
MASKS = {"mp4": "mask.mp4", "mkv": "mask.mkv", "png": "mask"}  # "mask" is a directory of pictures
_MOST_POINTS = 4000  # of a line over time: more than a picture has columns


def check_kinds(only: Any, mask: str) -> frozenset[str]:
    """The kinds that are wanted; all of them without `only`."""
    if mask not in MASKS:
        raise ArgumentError("mask", f"must be one of {', '.join(MASKS)}, got {mask!r}")
    wanted = frozenset([only] if isinstance(only, str) else KINDS if only is None else only)
    unknown = sorted(wanted - set(KINDS))
    if unknown or not wanted:
        raise ArgumentError("only", f"must be some of {', '.join(KINDS)}, got {', '.join(unknown) or 'none'}")
    return wanted


def name_of(kind: str, mask: str) -> str:
    """The file of a kind."""
    return MASKS[mask] if kind == "mask" else KINDS[kind]


class Timeline:
    """The light and the share of foreground over time, in bounded memory: long runs keep means of several frames."""

    def __init__(self) -> None:
        self.each = 1  # frames of a point
        self._points: list[tuple[float, float]] = []
        self._sums, self._count = np.zeros(2), 0
        self.frames, self.covered = 0, 0.0

    def add(self, light: float, share: float) -> None:
        """One frame: the mean grey level of its background, and the share of its foreground."""
        self.frames, self.covered = self.frames + 1, self.covered + share
        self._sums += light, share
        self._count += 1
        if self._count == self.each:
            self._points.append(tuple(self._sums / self.each))
            self._sums[:], self._count = 0, 0
        if len(self._points) >= 2 * _MOST_POINTS:
            pairs = np.asarray(self._points).reshape(-1, 2, 2)
            self._points, self.each = [tuple(pair) for pair in pairs.mean(axis=1)], 2 * self.each

    @property
    def share(self) -> float:
        """The share of the foreground in all frames."""
        return self.covered / max(self.frames, 1)

    def draw(self) -> Figure:
        """A matplotlib figure."""
        from ..plot import new_figure

        figure = new_figure(8, 3.2, dpi=110)
        points = np.asarray(self._points or [(np.nan, np.nan)])
        at = np.arange(len(points)) * self.each
        for ax, y, label in zip(
            figure.subplots(2, 1, sharex=True), (points[:, 0], 100 * points[:, 1]), ("light", "foreground"), strict=True
        ):
            ax.plot(at, y, lw=0.9, color="#1f5a99" if label == "light" else "#b0532a")
            ax.set_ylabel(f"{label}\n({'grey level' if label == 'light' else '% of pixels'})", fontsize=8)
            ax.tick_params(labelsize=8)
            ax.margins(x=0.01)
        figure.axes[1].set_xlabel("frame", fontsize=8)
        figure.axes[1].set_ylim(bottom=0)
        return figure


class Recorder:
    """Writes what is wanted of each frame; encoders work in threads beside it.

    Parameters
    ----------
    directory : Path
    wanted : frozenset of str
        Some of `KINDS`.
    mask : str
        One of `MASKS`.
    shape : (int, int) or (int, int, 3)
    fps : float
    """

    def __init__(self, directory: Path, wanted: frozenset[str], mask: str, shape: tuple[int, ...], fps: float) -> None:
        self._writers: dict[str, Beside] = {}
        self._table: TextIO | None = None
        self._rows: Any = None
        self._files: list[Path] = []
        self.timeline = Timeline()
        try:
            for kind in ("background", "foreground", "mask"):
                if kind in wanted:
                    self._open(kind, directory / name_of(kind, mask), shape if kind != "mask" else shape[:2], fps)
            if "objects" in wanted:
                self._part = directory / "objects.csv.part"
                self._table = open(self._part, "w", newline="", encoding="utf-8")  # noqa: SIM115  # closed by finish
                self._rows = csv.writer(self._table)
                self._rows.writerow(["frame", "left", "top", "width", "height", "area"])
        except BaseException:
            self.discard()
            raise

    def _open(self, kind: str, path: Path, shape: tuple[int, ...], fps: float) -> None:
        writer = VideoWriter(path, shape, fps, kind == "mask") if path.suffix else PictureWriter(path)
        self._writers[kind] = Beside(writer)

    def add(self, splitter: FrameSplitter, frame: np.ndarray, found: Split, light: float) -> None:
        """The next frame, what it is made of, and the mean grey level of its background."""
        number = self.timeline.frames
        for kind, writer in self._writers.items():
            if kind == "foreground":
                writer.write(splitter.cut_out(frame, found.mask))
            else:
                writer.write(found.mask if kind == "mask" else found.background)
        if self._rows is not None:
            self._rows.writerows([number, *box] for box in found.objects.tolist())
        share = found.objects[:, 4].sum() / found.mask.size
        self.timeline.add(light, float(share))

    def finish(self) -> list[Path]:
        """Close everything; the files that are there now."""
        done: list[Path] = []
        for writer in self._writers.values():
            writer.finish()
            done.append(writer.path)
        self._writers.clear()
        if self._table is not None:
            self._table.close()
            done.append(self._part.replace(self._part.with_suffix("")))
            self._table = None
        return done

    def discard(self) -> list[Path]:
        """Remove what is not finished; the files that did not come to be."""
        removed = [writer.path for writer in self._writers.values()]
        for writer in self._writers.values():
            writer.discard()
        if self._table is not None:
            self._table.close()
            self._part.unlink(missing_ok=True)
            removed.append(self._part.with_suffix(""))
        return removed
