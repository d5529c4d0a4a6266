"""What the second pass over a video makes: background, foreground and mask of a frame, and files in a directory."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..errors import ArgumentError
from .masks import MaskRule
from .quality import decibels
from .sheet import contact_sheet
from .write import VideoWriter

PROGRAM = "rcurc-gpu video"
VIDEOS = ("background.mp4", "foreground.mp4", "mask.mp4")
_PLAIN = 128  # grey level around what was cut out: dark and bright things both stand out from it
_SHEET_WIDTH = 480  # pixels of a picture, about; on the sheet it has fewer than 300 (2.6 inches at 110 dpi)
_ENTRIES_AT_ONCE = 1 << 18  # what stays in the cache: `split` goes over them several times


class Outputs:
    """A directory and what is written to it.

    Files of other names are never touched. Those of the given names are replaced if an earlier report there names them, or
    by `force`.

    Attributes
    ----------
    directory : Path
    saved : list of Path
        In the order in which they appeared.
    removed : list of Path
        Videos that were not finished.
    """

    def __init__(self, directory: str | os.PathLike[str], force: bool = False, preview: bool = False) -> None:
        self.directory, self.force, self.preview = Path(directory), force, preview
        self.saved: list[Path] = []
        self.removed: list[Path] = []
        self._earlier: set[str] = set()

    def claim(self, names: Sequence[str], inputs: Sequence[Path]) -> None:
        """Make the directory, unless something is in the way of `names`, or the report."""
        if self.directory.exists() and not self.directory.is_dir():
            raise ArgumentError("output", f"must be a directory, got {str(self.directory)!r}, which is a file")
        self._earlier = ours = self._named()
        for path in (self._path(name) for name in (*names, "report.json")):
            if not path.exists():
                continue
            if any(given.exists() and path.samefile(given) for given in inputs):
                raise ValueError(f"{str(path)!r} is read and would be replaced: give another output directory")
            if path.name not in ours and not self.force:
                raise ValueError(f"{str(path)!r} exists and is none of an earlier run: give another directory, or --force")
        self.directory.mkdir(parents=True, exist_ok=True)
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied", str(self.directory))

    def save(self, name: str, write: Callable[[Path], None]) -> None:
        """Save a file that ``write(path)`` writes."""
        path = self._path(name)
        write(path)
        self._add(path)

    def sheet(self, name: str, sheet: Sheet, heading: str) -> str:
        """Save the contact sheet; returns why not, if that cannot be."""
        try:
            drawn = io.BytesIO()
            sheet.draw(heading).savefig(drawn, format="png")
        except ImportError as error:
            return str(error)
        self._save_bytes(name, drawn.getvalue())
        return ""

    def report(self, figures: dict[str, Any], complete: bool) -> dict[str, Any]:
        """Save the report, which names the files and so makes them ours; returns it."""
        names = [file.name for file in dict.fromkeys([*self.saved, self._path("report.json")])]
        report = {"program": PROGRAM, "complete": complete, **figures, "directory": str(self.directory), "files": names}
        # what an earlier run left and this one has not replaced, or not yet, stays ours
        report["earlier"] = sorted(name for name in self._earlier - set(names) if (self.directory / name).exists())
        text = json.dumps(files.jsonable(report), indent=2, allow_nan=False) + "\n"
        self._save_bytes("report.json", text.encode())
        return report

    @contextmanager
    def videos(self, shape: tuple[int, ...], fps: float) -> Iterator[list[VideoWriter]]:
        """Writers for the three videos, which appear together at the end; if it comes too early, none does."""
        writers: list[VideoWriter] = []
        try:
            for name, kind in zip(VIDEOS, (shape, shape, shape[:2]), strict=True):
                writers.append(VideoWriter(self._path(name), kind, fps))
            yield writers
            for writer in writers:
                writer.finish()
                self._add(writer.path)
        except BaseException:
            for writer in writers:
                if writer.path not in self.saved:
                    writer.discard()
                    self.removed.append(writer.path)
            raise

    def _path(self, name: str) -> Path:
        return self.directory / (f"preview-{name}" if self.preview else name)

    def _save_bytes(self, name: str, data: bytes) -> None:
        self.save(name, lambda path: files.write_whole(path, lambda file: file.write(data)))

    def _add(self, path: Path) -> None:
        if path not in self.saved:
            self.saved.append(path)

    def _named(self) -> set[str]:
        """Names of the files that an earlier run left here."""
        path = self._path("report.json")
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
            return {*report["files"], *report["earlier"]} if report["program"] == PROGRAM else set()
        except (OSError, ValueError, KeyError, TypeError):
            return set()


class Sheet:
    """Pictures of some frames, kept small, for a contact sheet."""

    def __init__(self, n_frames: int, shape: tuple[int, ...], times: int = 4) -> None:
        times = min(times, n_frames)
        self.times = {(2 * i + 1) * n_frames // (2 * times) for i in range(times)}
        self._every = max(round(shape[1] / _SHEET_WIDTH), 1)
        self._pictures: dict[str, list[np.ndarray]] = {}  # by what to write beside them

    def add(self, k: int, pictures: Sequence[np.ndarray]) -> None:
        """Keep the pictures of frame `k`, if it is one of the times."""
        if k in self.times:
            self._pictures[f"frame {k}"] = [picture[:: self._every, :: self._every].copy() for picture in pictures]

    def draw(self, heading: str) -> Any:
        """A matplotlib figure."""
        titles = ["frame", "background", "foreground", "mask"]
        return contact_sheet(list(self._pictures.values()), titles, list(self._pictures), heading)


class Truth:
    """Sums up how far backgrounds are from true ones: one for each frame, or one for all."""

    def __init__(self, source: Any) -> None:
        self._frames = iter(source)
        self._still = next(self._frames) if len(source) == 1 else None
        self._total, self._count = 0.0, 0

    def compare(self, background: np.ndarray) -> None:
        """The next background, rounded or not."""
        true = self._still if self._still is not None else next(self._frames, None)
        if true is not None:
            difference = np.subtract(background, true, dtype=np.float32)
            self._total += float(np.sum(np.square(difference), dtype=np.float64))
            self._count += difference.size

    @property
    def psnr(self) -> float:
        """In dB."""
        return decibels(self._total, max(self._count, 1))


def split(
    frame: np.ndarray, left: np.ndarray, coefficients: np.ndarray, rule: MaskRule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A frame's background, foreground and mask."""
    background = np.clip(np.rint(left @ coefficients), 0, 255).astype(np.uint8).reshape(frame.shape)
    mask = rule.mask(frame, background)
    foreground = np.full_like(frame, _PLAIN)
    np.copyto(foreground, frame, where=mask[..., None] if frame.ndim == 3 else mask)
    return background, foreground, mask.astype(np.uint8) * np.uint8(255)
