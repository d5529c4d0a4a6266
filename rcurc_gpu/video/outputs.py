"""The directory that a run writes to, and pictures of some frames."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import files
from ..errors import ArgumentError
from .frames import FrameSplitter, Split
from .quality import decibels
from .record import Recorder, Timeline
from .sheet import contact_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROGRAM = "rcurc-gpu video"
_SHEET_WIDTH = 480  # pixels of a picture, about; on the sheet it has fewer than 300 (2.6 inches at 110 dpi)


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
        Files that were not finished.
    early : int or None
        How many frames the videos have, if Ctrl-C ended them.
    """

    def __init__(self, directory: str | os.PathLike[str], force: bool = False, preview: bool = False) -> None:
        self.directory, self.force, self.preview = Path(directory), force, preview
        self.saved: list[Path] = []
        self.removed: list[Path] = []
        self.early: int | None = None
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
                raise ValueError(f"{str(path)!r} exists, and no earlier run wrote it: give another directory, or --force")
        self.directory.mkdir(parents=True, exist_ok=True)
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied", str(self.directory))

    def save(self, name: str, write: Callable[[Path], None]) -> None:
        """Save a file that ``write(path)`` writes."""
        path = self._path(name)
        write(path)
        self._add(path)

    def sheet(self, sheet: Sheet, heading: str) -> str:
        """Save the contact sheet; returns why not, if that cannot be."""
        return self._drawn("sheet.png", lambda: sheet.draw(heading))

    def _drawn(self, name: str, draw: Callable[[], Figure]) -> str:
        drawn = io.BytesIO()
        try:
            draw().savefig(drawn, format="png")
        except ImportError as error:  # without matplotlib
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
    def recorder(self, wanted: frozenset[str], mask: str, shape: tuple[int, ...], fps: float) -> Iterator[Recorder]:
        """What writes frame by frame. Files appear together at the end; after Ctrl-C with the frames until then, after an
        error not at all."""
        recorder = Recorder(self.directory, wanted, mask, shape, fps)
        try:
            yield recorder
        except KeyboardInterrupt:
            self._finish(recorder)
            self.early = recorder.timeline.frames
            raise
        except BaseException:
            self.removed += recorder.discard()
            raise
        self._finish(recorder)

    def _finish(self, recorder: Recorder) -> None:
        try:
            for path in recorder.finish():
                self._add(path)
        except BaseException:
            self.removed += recorder.discard()
            raise

    def timeline(self, timeline: Timeline) -> str:
        """Save the figures over time; returns why not, if that cannot be."""
        return self._drawn("timeline.png", timeline.draw)

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

    def add(self, k: int, splitter: FrameSplitter, frame: np.ndarray, found: Split) -> None:
        """Keep the pictures of frame `k`, if it is one of the times."""
        if k in self.times:
            pictures = [frame, found.background, splitter.cut_out(frame, found.mask), found.mask]
            self._pictures[f"frame {k}"] = [picture[:: self._every, :: self._every].copy() for picture in pictures]

    def draw(self, heading: str) -> Figure:
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
