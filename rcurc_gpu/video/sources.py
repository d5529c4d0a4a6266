"""Cameras and other sources that are seen once, as they come: devices, network addresses, standard input."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .read import FrameConverter, import_av, open_video

log = logging.getLogger("rcurc_gpu")

_SCHEMES = ("http", "https", "rtmp", "rtp", "rtsp", "rtsps", "srt", "tcp", "udp")
_TIMEOUT = (10.0, 5.0)  # seconds to open a source, and to wait for data
_WAITING = 2  # frames between the reader and the work: enough that neither waits for the other's next step
_RETRY = 0.5  # seconds between two attempts to reach a camera that went away
_DEVICES = {"linux": ("v4l2", "/dev/video{}"), "darwin": ("avfoundation", "{}"), "win32": ("dshow", "video={}")}


def is_live(source: str) -> bool:
    """Whether a source can only be seen once: a device, a network address or standard input."""
    return source == "-" or source.isdecimal() or source.startswith("/dev/") or _scheme(source) is not None


def _scheme(source: str) -> str | None:
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", source)
    return found[1].lower() if found else None


class LiveSource:
    """Frames as they come, decoded in a thread beside the work.

    Iterate over it once, and close it, or use it in a ``with`` statement.

    Parameters
    ----------
    source : str
        The number of a camera ("0") or its file ("/dev/video0"), an address (``rtsp://``, ``http://``, ...), "-" for
        standard input, or a video file, a directory of pictures or a pattern of their names.
    colour : bool
    size : (int, int), optional
        Height and width to scale the frames to.
    drop : bool, optional
        Leave out frames that come while the work is not done, instead of falling behind. By default what does not wait is
        dropped: devices and network addresses.
    patience : float
        Seconds for which a device or an address that went away is tried again.

    Attributes
    ----------
    shape : (int, int) or (int, int, 3)
    fps : float
        NaN if the source does not say.
    dropped : int
        Frames that were left out.
    gone : str
        Why there is nothing more, if the source did not simply end.
    """

    def __init__(
        self,
        source: str,
        *,
        colour: bool = False,
        size: tuple[int, int] | None = None,
        drop: bool | None = None,
        patience: float = 10.0,
    ) -> None:
        self.source, self.patience = source, patience
        scheme = _scheme(source)
        if scheme is not None and scheme not in _SCHEMES:
            raise ArgumentError("source", f"must be a file or begin with one of {', '.join(_SCHEMES)}, got {source!r}")
        self._lasts = is_live(source) and source != "-"  # it may go away, and come again
        self.drop = self._lasts if drop is None else drop
        self.dropped, self.gone, self._resized = 0, "", False
        self._container: Any = None
        self._file: Any = None
        if is_live(source):
            self._container = self._connect()
            context = self._container.streams.video[0].codec_context
            height, width = size or (context.height, context.width)
            rate = self._container.streams.video[0].average_rate
            self.fps = float(rate) if rate else float("nan")
            if not height or not width:
                raise ValueError(f"{source!r} does not say how large its frames are")
            self.shape: tuple[int, ...] = (height, width, 3) if colour else (height, width)
        else:
            self._file = open_video(source, colour=colour, size=size)
            self.shape, self.fps = self._file.shape, self._file.fps
        self._converter = FrameConverter(self.shape)
        self._ready: deque[np.ndarray] = deque()
        self._changed = threading.Condition()
        self._ended, self._closed = False, False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._read, name="reading frames", daemon=True)

    def __enter__(self) -> LiveSource:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[np.ndarray]:
        self._thread.start()
        while True:
            with self._changed:
                # not for ever: Ctrl-C is only seen between two waits on some systems
                while not self._ready and not self._ended:
                    self._changed.wait(0.5)
                if not self._ready:
                    break
                frame = self._ready.popleft()
                self._changed.notify_all()
            yield frame
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Read no more."""
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(2.0)  # longer only if the source says nothing; the thread then ends with the process

    # ------------------------------------------------------------ the thread

    def _read(self) -> None:
        try:
            for frame in self._file if self._file is not None else self._decoded():
                if not self._hand_over(frame):
                    break
        except Exception as error:  # it is raised where the frames are used
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            if self._container is not None:
                self._container.close()

    def _hand_over(self, frame: np.ndarray) -> bool:
        """Whether more is wanted."""
        with self._changed:
            if self.drop and len(self._ready) >= _WAITING:
                self._ready.popleft()
                self.dropped += 1
            while len(self._ready) >= _WAITING and not self._closed:
                self._changed.wait(0.5)
            self._ready.append(frame)
            self._changed.notify_all()
            return not self._closed

    def _decoded(self) -> Iterator[np.ndarray]:
        """Frames until the source ends, or stays away."""
        count = 0
        while True:
            finite = bool(self._container.duration)  # a file that is played from an address, not a camera
            reason = "it ended"
            try:
                for packet in self._container.demux(video=0):
                    for frame in self._frames_of(packet):
                        count += 1
                        yield self._array(frame)
                    if self._closed:
                        return
                if finite or not self._lasts:
                    return
            except OSError as error:  # FFmpeg's errors are among these
                reason = _reason(error)
                if not self._lasts:
                    self.gone = f"{self._name} cannot be read on after {count} frames: {reason}"
                    return
            if not self._reconnect(count, reason):
                return

    def _frames_of(self, packet: Any) -> list[Any]:
        """None of a packet that is damaged: the next may be whole."""
        try:
            return packet.decode()  # type: ignore[no-any-return]
        except import_av().error.InvalidDataError:
            return []

    def _array(self, frame: Any) -> np.ndarray:
        if (frame.height, frame.width) != self.shape[:2] and not self._resized:
            self._resized = True
            log.info(
                "%s gives frames of %d x %d, which are scaled to %d x %d",
                *(self._name, frame.height, frame.width, *self.shape[:2]),
            )
        return self._converter.array(frame)

    def _reconnect(self, count: int, reason: str) -> bool:
        log.warning("%s went away after %d frames (%s): trying again for %g s", self._name, count, reason, self.patience)
        until = time.monotonic() + self.patience
        self._container.close()
        while time.monotonic() < until and not self._closed:
            try:
                self._container = self._connect()
            except (OSError, ValueError):
                time.sleep(_RETRY)
                continue
            log.warning("%s is back", self._name)
            return True
        self.gone = f"{self._name} went away after {count} frames ({reason})"
        return False

    def _connect(self) -> Any:
        """A container of PyAV."""
        av, source, options = import_av(), self.source, {}
        kind: str | None = None
        target: Any = source
        if source == "-":
            target = os.fdopen(os.dup(sys.stdin.fileno()), "rb", buffering=0)  # unbuffered: nothing is held at the end
        elif source.isdecimal() or source.startswith("/dev/"):
            kind, place = _DEVICES.get(sys.platform, _DEVICES["linux"])
            target = place.format(source) if source.isdecimal() else source
            if str(target).startswith("/dev/"):
                os.stat(target)  # what the system says of a missing device is clear
        elif source.startswith("rtsp"):
            options = {"rtsp_transport": "tcp"}  # over UDP, lost packets leave grey blocks, which look like things
        try:
            container = av.open(target, format=kind, options=options, timeout=_TIMEOUT, metadata_errors="ignore")
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise ValueError(f"{self._name} gives no video ({_reason(error)})") from error
        if not container.streams.video:
            container.close()
            raise ValueError(f"{self._name} is not a video: it has no pictures in it")
        container.streams.video[
            0
        ].thread_type = "SLICE"  # frame by frame would be late by as many frames as there are threads
        return container

    @property
    def _name(self) -> str:
        return (
            "standard input"
            if self.source == "-"
            else repr(str(Path(self.source)) if not _scheme(self.source) else self.source)
        )


def _reason(error: BaseException) -> str:
    return " ".join((getattr(error, "strerror", None) or str(error)).split())
