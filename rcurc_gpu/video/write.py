"""Videos and pictures as files, encoded in threads beside the work. Needs PyAV."""

from __future__ import annotations

import math
import queue
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from .read import import_av

# The first that PyAV's FFmpeg has; H.264 is what browsers and phones play. Its wheels have the first. Each encoder has one
# thread, as several run at once: more take more time in all.
_ENCODERS = {
    "libx264": {"preset": "veryfast", "crf": "18", "threads": "1"},
    "libopenh264": {"rc_mode": "quality"},
    "mpeg4": {"qscale": "3"},
}
# Pictures of black and white need no search for what looks alike: it takes 2.7 times as long, for half of the size and
# larger errors at edges (71 grey levels instead of 12; masks of waving trees, 240 x 320).
_TWO_LEVELS = {"libx264": {"preset": "ultrafast"}}
_LOSSLESS = "ffv1"
_USUAL_RATE = 25  # frames per second, where a source does not say
_WAITING = 4  # frames that wait for an encoder, before the work waits for it


def encoder() -> str:
    """Name of the encoder that is used."""
    available = import_av().codecs_available
    for name in _ENCODERS:
        if name in available:
            return name
    raise RuntimeError(f"PyAV has no encoder to write videos with, none of {', '.join(_ENCODERS)}: install its wheel")


class VideoWriter:
    """A video file that appears at `path` when it is finished, and not at all before.

    Parameters
    ----------
    path : Path
        ``.mp4`` for H.264; ``.mkv`` for FFV1, which loses nothing.
    shape : (int, int) or (int, int, 3)
        Of the frames. Odd sizes get one more line or column in an mp4, as the format wants them even.
    fps : float
    two_levels : bool
        Whether the frames are black and white, as masks are.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], fps: float, two_levels: bool = False) -> None:
        lossless = path.suffix == ".mkv"
        self._av, name = import_av(), _LOSSLESS if lossless else encoder()
        self.path, self.part = path, path.with_name(path.name + ".part")
        odd = [0, 0] if lossless else [shape[0] % 2, shape[1] % 2]
        self._extra = [(0, odd[0]), (0, odd[1]), (0, 0)][: len(shape)] if any(odd) else None
        self._kind = "rgb24" if len(shape) == 3 else "gray"
        self._container = self._av.open(str(self.part), "w", format="matroska" if lossless else "mp4")
        options = _ENCODERS.get(name, {}) | (_TWO_LEVELS.get(name, {}) if two_levels else {})
        rate = Fraction(fps).limit_denominator(1001) if math.isfinite(fps) and fps > 0 else Fraction(_USUAL_RATE)
        self._stream: Any = self._container.add_stream(name, rate=rate, options=options)
        self._stream.height, self._stream.width = shape[0] + odd[0], shape[1] + odd[1]
        self._stream.pix_fmt = {"rgb24": "bgr0", "gray": "gray"}[self._kind] if lossless else "yuv420p"

    def write(self, frame: np.ndarray) -> None:
        """Add a frame, uint8."""
        if self._extra is not None:
            frame = np.pad(frame, self._extra, mode="edge")
        picture = self._av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format=self._kind)
        self._container.mux(self._stream.encode(picture))

    def finish(self) -> None:
        """Write what is left, and let the file appear."""
        self._container.mux(self._stream.encode())
        self._container.close()
        self.part.replace(self.path)

    def discard(self) -> None:
        """Leave nothing behind, if it is not finished."""
        self._container.close()
        self.part.unlink(missing_ok=True)


class PictureWriter:
    """A directory of PNGs, ``000000.png`` and so on; those of an earlier run are removed first.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path, self._count = path, 0
        path.mkdir(exist_ok=True)
        for old in path.glob("[0-9]" * 6 + ".png"):
            old.unlink()

    def write(self, frame: np.ndarray) -> None:
        """Add a picture, uint8."""
        write_png(self.path / f"{self._count:06d}.png", frame)
        self._count += 1

    def finish(self) -> None:
        """Nothing is left to do."""

    def discard(self) -> None:
        """Pictures that are written stay: each is whole."""


class Beside:
    """A writer that works in a thread of its own; what goes wrong there is raised at the next call.

    Parameters
    ----------
    writer : VideoWriter or PictureWriter
    """

    def __init__(self, writer: VideoWriter | PictureWriter) -> None:
        self.writer, self.path = writer, writer.path
        self._waiting: queue.Queue[np.ndarray | None] = queue.Queue(_WAITING)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=f"writing {self.path.name}", daemon=True)
        self._thread.start()

    def write(self, frame: np.ndarray) -> None:
        """Hand over a frame, which must not be changed after this."""
        self._raise()
        self._waiting.put(frame)

    def finish(self) -> None:
        """Wait for all frames, and let the file appear."""
        self._end()
        self._raise()
        self.writer.finish()

    def discard(self) -> None:
        """Leave nothing behind, if it is not finished."""
        self._end()
        self.writer.discard()

    def _work(self) -> None:
        while (frame := self._waiting.get()) is not None:
            if self._error is None:
                try:
                    self.writer.write(frame)
                except BaseException as error:  # it is raised where the frames come from
                    self._error = error

    def _end(self) -> None:
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error


def write_png(path: Path, picture: np.ndarray) -> None:
    """Write a picture (height, width) or (height, width, 3), cut off at 0 and 255."""
    av = import_av()
    levels = np.rint(np.clip(picture, 0, 255)).astype(np.uint8) if picture.dtype != np.uint8 else picture
    codec = av.CodecContext.create("png", "w")
    codec.height, codec.width = levels.shape[:2]
    codec.pix_fmt = "rgb24" if levels.ndim == 3 else "gray"
    codec.time_base = Fraction(1, 1)
    packets = codec.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(levels), format=codec.pix_fmt)) + codec.encode()
    files.write_whole(path, lambda file: file.write(b"".join(bytes(packet) for packet in packets)))
