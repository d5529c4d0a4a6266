"""Video files as frames, one at a time. Needs PyAV (the extra ``video``), which is imported when a file is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError, check_count, check_shape, warn_caller

# What FFmpeg takes any text for.
_TEXT_FORMATS = {"tty", "bin", "xbin", "adf", "idf"}
_WITH_A_HEAD = {
    "matroska,webm",
    "flv",
}  # formats whose files say at their beginning how long they are, but not how many frames
_LATE = 2.0  # times the longest time between two frames: so much earlier than it says a file does not end unless it was cut
_VARIES = 0.05  # between the mean rate and the one that the file names: rounded times differ by less
_PICTURES = {".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


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
    pictures : tuple of Path
        The files of the frames, if `path` is a directory or a pattern.
    varies : bool
        Whether frames come at varying rates; `fps` is then their mean rate.
    """

    path: Path
    shape: tuple[int, ...]
    start: int
    stop: int
    fps: float
    step: int = 1
    pictures: tuple[Path, ...] = ()
    varies: bool = False

    def __len__(self) -> int:
        """How many frames the file says there are; a damaged file may give fewer."""
        return -(-(self.stop - self.start) // self.step)

    def __iter__(self) -> Iterator[np.ndarray]:
        """Decode the frames.

        Warns
        -----
        VideoWarning
            If there are fewer than the file says, or some are of another size: these are scaled.

        Raises
        ------
        ValueError
            If there is none.
        """
        given, own, changed, converter = 0, None, None, FrameConverter(self.shape)
        for number, frame in enumerate(_decode_all(self.pictures) if self.pictures else _decode(self.path)):
            if number >= self.stop:
                break
            own = own or (frame.height, frame.width)
            if (frame.height, frame.width) != own and changed is None:
                changed = number, frame.height, frame.width
            if number >= self.start and (number - self.start) % self.step == 0:
                given += 1
                yield converter.array(frame)
        if changed is not None:
            number, height, width = changed
            to = f"{self.shape[0]} x {self.shape[1]}"
            warn_caller(
                f"{str(self.path)!r} changes to frames of {height} x {width} at frame {number}; all are scaled to {to}",
                VideoWarning,
            )
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
    """Open a video file of any format that FFmpeg reads, or pictures.

    Parameters
    ----------
    path : path
        A video file, a directory of pictures, which come in the order of the numbers in their names, or a pattern of such
        names, with ``*`` or ``%04d``.
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
    pictures = _pictures(path)
    varies = False
    with _open(pictures[0] if pictures else path) as container:
        stream = container.streams.video[0]
        total, seconds = (len(pictures), 0.0) if pictures else _length(container, stream)
        height, width = size or (stream.codec_context.height, stream.codec_context.width)
        fps = float(stream.average_rate) if stream.average_rate and not pictures else float("nan")
        if seconds > 0 and stream.base_rate:
            varies = abs(total / seconds / float(stream.base_rate) - 1) > _VARIES
            fps = total / seconds if varies else fps
    if total == 0 or height == 0 or width == 0:
        raise ValueError(f"{str(path)!r} has no frames")
    if start >= total:
        raise ValueError(f"start must be below the number of frames of {str(path)!r}, {total}, got {start}")
    shape = (height, width, 3) if colour else (height, width)
    return Video(path, shape, start, total if stop is None else min(stop, total), fps, step, pictures, varies)


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
    if 0 in shape:
        raise ArgumentError(name, f"must give frames with pixels, got frames of shape {shape}")
    return shape


class Remembered:
    """Frames of a source that are kept while they first come, so that they are decoded once."""

    def __init__(self, source: Video) -> None:
        self.fps, self._source, self._length = source.fps, source, len(source)
        self._kept: list[np.ndarray] | None = None

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[np.ndarray]:
        if self._kept is not None:
            yield from self._kept
            return
        kept = []
        for frame in self._source:
            kept.append(frame)
            yield frame
        self._kept = kept


def has_colour(path: Path, size: tuple[int, int] | None) -> bool:
    """Whether the first second or so has more than grey in it: its channels differ by more than 2 levels on average.
    Less is taken for what colour formats make of grey."""
    beginning = islice(open_video(path, colour=True, size=size), 25)
    return any(float(np.mean(np.max(frame, axis=2) - np.min(frame, axis=2))) > 2.0 for frame in beginning)


def open_region(region: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Where to look, bool (height, width)."""
    if isinstance(region, (str, os.PathLike)):
        region = next(iter(open_video(region, size=(shape[0], shape[1])))) > 127
    region = np.asarray(region)
    if region.dtype != bool or region.shape != shape[:2]:
        said = f"{region.dtype} of shape {region.shape}"
        raise ArgumentError("region", f"must be bool of the shape of a frame, {shape[:2]}, got {said}")
    return region


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


def _length(container: Any, stream: Any) -> tuple[int, float]:
    """How many frames a file says it has, and how many seconds they take; 0 if it does not say."""
    if stream.frames:
        return stream.frames, float((stream.duration or 0) * stream.time_base)
    # Some formats do not say how many frames there are; to count packets nothing need be decoded.
    times = [packet.pts for packet in container.demux(stream) if packet.size > 0]
    known = sorted(time for time in times if time is not None)
    if len(known) < 2:
        return len(times), 0.0
    seconds = float((known[-1] - known[0]) * stream.time_base) * len(known) / (len(known) - 1)
    missing = _said_end(container, stream) - float(known[0] * stream.time_base) - seconds
    # the last frame may be shown for as long as any other
    longest = max(b - a for a, b in pairwise(known))
    if missing <= _LATE * float(longest * stream.time_base):
        return len(times), seconds
    return round(len(times) * (1 + missing / seconds)), seconds + missing


def _said_end(container: Any, stream: Any) -> float:
    """When the pictures end, in seconds, by the head of a file that was written with the frames; 0 if it does not say."""
    if container.format.name not in _WITH_A_HEAD:  # of others FFmpeg looks at the end of the file, or guesses
        return 0.0
    own = re.fullmatch(r"(\d+):(\d+):(\d+\.?\d*)", stream.metadata.get("DURATION", ""))
    if own:
        return 3600 * float(own[1]) + 60 * float(own[2]) + float(own[3])
    alone = len(container.streams) == 1  # else sound may go on for longer
    return (container.duration or 0) / import_av().time_base if alone else 0.0


def _pictures(path: Path) -> tuple[Path, ...]:
    """The files of a directory or a pattern, in order; none if `path` is neither."""
    if path.is_dir():
        found = [file for file in path.iterdir() if file.suffix.lower() in _PICTURES]
        if not found:
            raise IsADirectoryError(21, "Is a directory without pictures", str(path))
    elif path.exists() or not re.search(r"[*?]|%0?\d*d", path.name):
        return ()
    else:
        names = re.compile("".join(_as_expression(part) for part in re.split(r"([*?]|%0?\d*d)", path.name)))
        found = [file for file in path.parent.iterdir() if names.fullmatch(file.name)] if path.parent.is_dir() else []
        if not found:
            raise FileNotFoundError(2, "No such pictures", str(path))
    return tuple(sorted(found, key=_by_numbers))


def _as_expression(part: str) -> str:
    if part.startswith("%") and part.endswith("d"):
        return r"\d+"
    return {"*": ".*", "?": "."}.get(part) or re.escape(part)


def _by_numbers(path: Path) -> list[Any]:
    """So that 10 comes after 9: text and numbers in turn."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", path.name)]


def _decode_all(pictures: tuple[Path, ...]) -> Iterator[Any]:
    """The first frame of each file; those that cannot be decoded are left out."""
    for path in pictures:
        with suppress(ValueError, OSError):
            yield from islice(_decode(path), 1)


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


class FrameConverter:
    """Makes uint8 arrays of a shape from frames of PyAV, scaled by FFmpeg.

    One for many frames: what FFmpeg prepares takes longer than a small frame itself.

    Parameters
    ----------
    shape : (int, int) or (int, int, 3)
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self._kind = shape, "rgb24" if len(shape) == 3 else "gray"
        self._reformatter = import_av().video.reformatter.VideoReformatter()

    def array(self, frame: Any) -> np.ndarray:
        """A frame of any size and format."""
        scaling = {}
        if (frame.height, frame.width) != self.shape[:2]:
            # averages over the pixels that become one, where a bilinear filter would pick a few and alias
            scaling = {"width": self.shape[1], "height": self.shape[0], "interpolation": "AREA"}
        made = self._reformatter.reformat(frame, format=self._kind, **scaling, **_one_thread())
        return made.to_ndarray()  # type: ignore[no-any-return]


@cache
def _one_thread() -> dict[str, int]:
    """What tells PyAV to convert in one thread: several take half as long again, in all. Older ones take one anyway."""
    av = import_av()
    try:
        av.video.reformatter.VideoReformatter().reformat(av.VideoFrame(2, 2, "gray"), format="rgb24", threads=1)
    except TypeError:
        return {}
    return {"threads": 1}
