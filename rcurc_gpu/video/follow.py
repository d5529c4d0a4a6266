"""Follow a camera, and write what it sees to a directory."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..progress import Progress
from .live import HISTORY, BackgroundSubtractor
from .outputs import Outputs
from .read import open_region
from .record import Recorder, check_kinds, name_of
from .sources import LiveSource
from .write import encoder, write_png

# A camera runs for long, so that only what is small is written unless asked for.
LIVE_KINDS = ("mask", "objects", "timeline")
_NOT_LIVE = {"sheet", "result"}


@dataclass(frozen=True, eq=False)
class LiveOptions:
    """What `follow_into` takes: `LiveSource`'s, `BackgroundSubtractor`'s, and what to write."""

    colour: bool = True
    size: tuple[int, int] | None = None
    region: Any = None
    frames: int | None = None
    history: int = HISTORY
    subtractor: dict[str, Any] | None = None
    only: Any = LIVE_KINDS
    mask: str = "mp4"
    progress: bool = False


def follow_into(outputs: Outputs, source: str, options: LiveOptions) -> dict[str, Any]:
    """Follow `source` until it ends, or Ctrl-C; all files are finished either way.

    Returns
    -------
    dict
        What is in ``report.json``: frames, those that were dropped, whether Ctrl-C ended it (``stopped``), why the
        source went away if it did (``gone``).
    """
    wanted = check_kinds(options.only, options.mask) - _NOT_LIVE
    with LiveSource(source, colour=options.colour, size=options.size) as camera:
        names = [name_of(kind, options.mask) for kind in sorted(wanted)]
        outputs.claim([*names, "background.png"], [])
        region = None if options.region is None else open_region(options.region, camera.shape)
        more: dict[str, Any] = {"region": region, "history": options.history, "beside": camera.drop}
        subtractor = BackgroundSubtractor(**more, **(options.subtractor or {}))
        started = time.perf_counter()
        with Progress(options.progress) as bar, suppress(KeyboardInterrupt):  # which is how one ends it
            bar.stage("following", options.frames)
            with outputs.recorder(wanted, options.mask, camera.shape, camera.fps) as recorder:
                _record(camera, subtractor, recorder, options.frames, bar)
        stopped = outputs.early is not None
        seconds = time.perf_counter() - started
    if subtractor.background is not None:
        outputs.save("background.png", partial(write_png, picture=subtractor.background))
    frames = recorder.timeline.frames
    figures: dict[str, Any] = {"source": source, "height": camera.shape[0], "width": camera.shape[1]}
    figures |= {"colour": len(camera.shape) == 3, "frames": frames, "dropped": camera.dropped, "encoder": encoder()}
    figures |= {"foreground_share": recorder.timeline.share, "learned": subtractor.learned, "stopped": stopped}
    figures |= {"gone": camera.gone, "seconds": {"following": seconds}, "frames_per_second": frames / max(seconds, 1e-9)}
    if "timeline" in wanted:
        skipped = outputs.timeline(recorder.timeline)
        figures |= {"timeline_skipped": skipped} if skipped else {}
    return outputs.report(figures, complete=not stopped and not camera.gone)


def _record(
    camera: LiveSource, subtractor: BackgroundSubtractor, recorder: Recorder, most: int | None, bar: Progress
) -> None:
    for frame in camera:
        found = subtractor.split(frame)
        recorder.add(subtractor.splitter, frame, found, subtractor.light)
        bar.advance(1)
        if recorder.timeline.frames == most:
            break
