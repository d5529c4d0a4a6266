"""Videos and pictures as files. Needs PyAV."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from .read import import_av

# The first that PyAV's FFmpeg has; H.264 is what browsers and phones play. Its wheels have the first.
_ENCODERS = {"libx264": {"preset": "veryfast", "crf": "18"}, "libopenh264": {"rc_mode": "quality"}, "mpeg4": {"qscale": "3"}}
_USUAL_RATE = 25  # frames per second, where a source does not say


def encoder() -> str:
    """Name of the encoder that is used."""
    available = import_av().codecs_available
    for name in _ENCODERS:
        if name in available:
            return name
    raise RuntimeError(f"PyAV has no encoder to write videos with, none of {', '.join(_ENCODERS)}: install its wheel")


class VideoWriter:
    """An mp4 file that appears at `path` when it is finished, and not at all before.

    Parameters
    ----------
    path : Path
    shape : (int, int) or (int, int, 3)
        Of the frames. Odd sizes get one more line or column, as the format wants them even.
    fps : float
    """

    def __init__(self, path: Path, shape: tuple[int, ...], fps: float) -> None:
        av, name = import_av(), encoder()
        self.path, self.part = path, path.with_name(path.name + ".part")
        self._extra = [(0, shape[0] % 2), (0, shape[1] % 2), (0, 0)][: len(shape)]
        self._kind = "rgb24" if len(shape) == 3 else "gray"
        self._av = av
        self._container = av.open(str(self.part), "w", format="mp4")
        rate = Fraction(fps).limit_denominator(1001) if math.isfinite(fps) and fps > 0 else Fraction(_USUAL_RATE)
        self._stream: Any = self._container.add_stream(name, rate=rate, options=_ENCODERS[name])
        self._stream.height, self._stream.width = shape[0] + shape[0] % 2, shape[1] + shape[1] % 2
        self._stream.pix_fmt = "yuv420p"

    def write(self, frame: np.ndarray) -> None:
        """Add a frame, uint8."""
        if any(after for _, after in self._extra):
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


def write_png(path: Path, picture: np.ndarray) -> None:
    """Write a picture (height, width) or (height, width, 3), cut off at 0 and 255."""
    av = import_av()
    levels = np.rint(np.clip(picture, 0, 255)).astype(np.uint8)
    codec = av.CodecContext.create("png", "w")
    codec.height, codec.width = levels.shape[:2]
    codec.pix_fmt = "rgb24" if levels.ndim == 3 else "gray"
    codec.time_base = Fraction(1, 1)
    packets = codec.encode(av.VideoFrame.from_ndarray(levels, format=codec.pix_fmt)) + codec.encode()
    files.write_whole(path, lambda file: file.write(b"".join(bytes(packet) for packet in packets)))
