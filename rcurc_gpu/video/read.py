"""Video files as frames, one at a time. Needs PyAV (the extra ``video``), which is imported when a file is opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError, check_count, check_shape, warn_caller

# What FFmpeg takes any text for.
_TEXT_FORMATS = {"tty", "bin", "xbin", "adf", "idf"}


class VideoWarning(UserWarning):
    """A video could be read in part only."""


@dataclass(frozen=True)
class Video:
    """A video file. Iterating over it decodes its frames, uint8 arrays of `shape`; each iteration starts anew.

    Attributes
    ----------
    path : Path
    shape : (int, int) or (int, int, 3)
        Height and width of the frames as they are given, and 3 (red, green, blue) if in colour.
    start, stop : int
        The frames given, of those in the file.
    fps : float
        Frames per second of the file; NaN if it does not say.
    step : int
        Of these every so many, 2 for every other one.
    """

    path: Path
    shape: tuple[int, ...]
    start: int
    stop: int
    fps: float
    step: int = 1

    def __len__(self) -> int:
        """How many frames the file says there are; a damaged file may give fewer."""
        return -(-(self.stop - self.start) // self.step)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Decode the frames.

        Warns
        -----
        VideoWarning
            If there are fewer than the file says.

        Raises
        ------
        ValueError
            If there is none.
        """
        given = 0
        for number, frame in enumerate(_decode(self.path)):
            if number >= self.stop:
                break
            if number >= self.start and (number - self.start) % self.step == 0:
                given += 1
                yield _to_array(frame, self.shape)
        if given == 0:
            raise ValueError(f"{str(self.path)!r} has no frame that can be decoded")
        if given < len(self):
            warn_caller(
                f"{str(self.path)!r} is damaged or ends early: {given} of {len(self)} frames could be decoded", VideoWarning
            )


def open_video(
    path: str | os.PathLike[str],
    *,
    colour: bool = False,
    size: tuple[int, int] | None = None,
    start: int = 0,
    stop: int | None = None,
    step: int = 1,
) -> Video:
    """Open a video file of any format that FFmpeg reads.

    Parameters
    ----------
    path : path
    colour : bool
        Frames of shape (height, width, 3) instead of (height, width).
    size : (int, int), optional
        Height and width to scale the frames to; by default as they are.
    start, stop : int
        First frame, and the one to stop before; by default all.
    step : int
        Of these give every so many, 2 for every other one.

    Returns
    -------
    Video

    Raises
    ------
    ImportError
        If PyAV is not installed.
    OSError
        If the file cannot be read.
    ValueError
        If it is not a video.

    Examples
    --------
    >>> from rcurc_gpu.video import open_video, separate, surveillance_scene
    >>> scene = surveillance_scene((48, 64), frames=60, seed=2, fps=5, crowd=0.5)
    >>> made = separate(scene, "street")
    >>> video = open_video("street/background.mp4", start=10, stop=40, step=3)
    >>> len(video), next(iter(video)).shape
    (10, (48, 64))
    """
    path = Path(path)
    start = check_count("start", start, 0)
    stop = None if stop is None else check_count("stop", stop, start + 1)
    step = check_count("step", step)
    if size is not None:
        size = check_shape("size", size)
    with _open(path) as container:
        stream = container.streams.video[0]
        # Some formats do not say how many frames there are; to count packets nothing need be decoded.
        total = stream.frames or sum(packet.size > 0 for packet in container.demux(stream))
        height, width = size or (stream.codec_context.height, stream.codec_context.width)
        fps = float(stream.average_rate) if stream.average_rate else float("nan")
    if total == 0 or height == 0 or width == 0:
        raise ValueError(f"{str(path)!r} has no frames")
    if start >= total:
        raise ValueError(f"start must be below the number of frames of {str(path)!r}, {total}, got {start}")
    shape = (height, width, 3) if colour else (height, width)
    return Video(path, shape, start, total if stop is None else min(stop, total), fps, step)


def frame_shape(name: str, source: Any) -> tuple[int, ...]:
    """Shape of the first frame of `source`, an argument called `name`."""
    if not (isinstance(source, Sized) and isinstance(source, Iterable)):
        raise ArgumentTypeError(name, f"must be a path, a Video or frames with a length, got {type(source).__name__}")
    first = next(iter(source), None)
    if first is None:
        raise ArgumentError(name, "has no frames")
    shape = tuple(np.shape(first))
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3):
        raise ArgumentError(name, f"must give frames of shape (height, width) or (height, width, 3), got {shape}")
    return shape


def import_av() -> Any:
    """PyAV, or an error that says how to get it."""
    try:
        import av
    except ImportError as error:
        raise ImportError("videos need PyAV, which the extra 'video' brings: pip install 'rcurc-gpu[video]'") from error
    return av


def _open(path: Path) -> Any:
    """A container of PyAV with at least one video stream."""
    av = import_av()
    with open(path, "rb") as file:  # what the system says of a missing or unreadable file is clear
        if not file.read(1):
            raise ValueError(f"{str(path)!r} is empty (0 bytes)")
    try:
        container = av.open(str(path), metadata_errors="ignore")
    except (av.error.FFmpegError, OSError, ValueError) as error:
        reason = " ".join((getattr(error, "strerror", None) or str(error)).split())
        raise ValueError(f"{str(path)!r} is not a video, or its beginning is damaged ({reason})") from error
    if not container.streams.video or container.format.name in _TEXT_FORMATS:
        container.close()
        raise ValueError(f"{str(path)!r} is not a video: it has no pictures in it")
    return container


def _decode(path: Path) -> Iterator[Any]:
    """All frames that can be decoded; packets that cannot are left out."""
    av = import_av()
    with _open(path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        with suppress(av.error.FFmpegError):  # the file may end within a packet
            for packet in container.demux(stream):
                with suppress(av.error.FFmpegError):
                    yield from packet.decode()


def _to_array(frame: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A frame as a uint8 array, scaled to `shape` by FFmpeg."""
    kind = "rgb24" if len(shape) == 3 else "gray"
    if (frame.height, frame.width) == shape[:2]:
        return frame.to_ndarray(format=kind)
    # averages over the pixels that become one, where a bilinear filter would pick a few and alias
    return frame.reformat(width=shape[1], height=shape[0], format=kind, interpolation="AREA").to_ndarray()
