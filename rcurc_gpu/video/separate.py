"""Background and foreground of a video file, in two passes over it."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..backends import place_for
from ..errors import ArgumentError, ConvergenceWarning, seed_to_int, warn_caller
from ..progress import Progress
from ..result import CURMatrix
from ..summary import Summarised, Summary
from .background import Background
from .find import FindOptions, find_background, plan_pass
from .frames import FrameSplitter
from .motion import Stabilised
from .options import Options
from .outputs import Outputs, Sheet, Truth
from .read import Remembered, Video, VideoWarning, frame_shape, has_colour, open_region, open_video
from .record import PREVIEW, check_kinds, name_of
from .write import encoder, write_png

_PREVIEW_FRAMES, _PREVIEW_PIXELS = 100, 160 * 120  # small enough to be held, so that the file is read once
_REMEMBERED = 0.25  # of the memory: a file whose frames take less is decoded once. The samples take three quarters at most
_LEAST_FRAMES = 8  # with fewer, what moves is at one place for most of them


@dataclass(frozen=True, eq=False, repr=False)
class Separation(Summarised):
    """What `separate` found and wrote.

    Attributes
    ----------
    background : Background
        ``background.picture(k)`` is that of frame k.
    figures : dict
        What is in ``report.json``.
    files : tuple of Path
        What was written.
    """

    background: Background
    figures: dict[str, Any]
    files: tuple[Path, ...]

    def _summary(self) -> Summary:
        f = self.figures
        facts = {"video": f"{f['source']}, {f['frames']} frames of {f['height']} x {f['width']}"}
        facts["background"] = f"rank {f['rank']}, noise {f['noise']:.1f} grey levels"
        if "foreground_share" in f:
            facts["foreground"] = f"{f['foreground_share']:.1%} of the pixels"
        return Summary(facts | {"files": ", ".join(path.name for path in self.files)}, f["message"], self.confirmed)

    @property
    def matrix(self) -> CURMatrix:
        """The background as a matrix, pixels x frames."""
        return self.background.matrix

    @property
    def confirmed(self) -> bool:
        """Whether the background is confirmed, as far as the frames tell."""
        return bool(self.figures["confirmed"])


def separate(
    source: Any,
    output: str | os.PathLike[str],
    *,
    rank: int | str = Options.rank,
    colour: bool | str = Options.colour,
    threshold: float | None = None,
    shadows: bool = Options.shadows,
    region: Any = None,
    min_area: int | None = None,
    median: int | None = None,
    only: Any = None,
    mask: str = Options.mask,
    size: tuple[int, int] | None = None,
    frames: int | None = None,
    memory: int = Options.memory,
    model: str | os.PathLike[str] | Background | None = None,
    truth: Any = None,
    preview: bool = False,
    force: bool = False,
    seed: Any = Options.seed,
    device: str = Options.device,
    progress: bool = Options.progress,
) -> Separation:
    """Separate what moves in a video of a fixed camera from what stands still, and write both as videos.

    The first pass over the frames samples them, from which the background of all of them is found. The second one writes
    ``background.mp4``, ``foreground.mp4`` (on plain grey), ``mask.mp4`` (white is foreground) and ``objects.csv`` (frame,
    box and area of each thing). There are also ``background.png`` (in the median light), ``sheet.png`` (a look at
    some frames) and ``timeline.png`` (light and share of foreground), which need matplotlib, ``result.npz`` (the factors;
    see `Background`) and ``report.json``. Frames are never held together.

    Parameters
    ----------
    source : path, Video, or anything with a length that gives uint8 frames each time it is iterated over
    output : path
        A directory. Files in it are replaced only if an earlier report there names them, or by `force`.
    rank : int or "auto"
        How many components the light has at most, 8 at the most; "auto" takes those that look like light. 1 if it does
        not change.
    colour : bool or "auto"
        Of a file: in colour, in grey, or as it is. All channels make one matrix, pixels and channels x frames.
    threshold : float, optional
        Grey levels: what differs more from the background is foreground. By default each pixel has its own, four times its
        median residual and at least 6 to 14.7, by the errors that compression leaves around what moves.
    shadows : bool
        Whether shadows are background, in colour: what has less light of the same colour.
    region : path or bool array (height, width), optional
        Foreground is only looked for here; of a picture where it is brighter than half.
    min_area : int, optional
        Pixels of the smallest thing in the mask; by default 1 / 10000 of the picture.
    median : int, optional
        Side of the square of pixels whose majority decides, odd; by default 5, and 3 for frames below 120 lines.
    only : str or sequence of str, optional
        What to write, of background, foreground, mask, objects, timeline, sheet and result; by default all. The report is
        always written.
    mask : {"mp4", "mkv", "png"}
        How to write the mask: as H.264, which loses a little, without loss (FFV1), or as pictures in the directory ``mask``.
    size : (int, int), optional
        Height and width to scale the frames of a file to.
    frames : int, optional
        Take the first so many frames of a file.
    memory : int
        Bytes for what is kept of the video, about: up to 120 whole frames take half of it at most; all frames of a file, if
        they fit into a quarter, so that it is decoded once. With the decoder, the encoders and the factors, 4 bytes for each
        pixel, channel and unit of rank, a process takes some hundred MB more.
    model : path or Background, optional
        ``result.npz`` of an earlier clip of the same camera: its background is applied, in one pass and with the light of
        each frame, and nothing is solved.
    truth : path, or frames as `source`, optional
        The true background, one frame or one for each: the PSNR to it is reported.
    preview : bool
        Quick and small: about a hundred frames of the file, scaled down. Writes ``preview-background.png``,
        ``preview-sheet.png`` and ``preview-report.json`` and no videos.
    force : bool
        Replace files that no earlier run wrote. The input is never replaced.
    seed : None, int or numpy.random.Generator
    device : str
        As in `rcurc`.
    progress : bool
        Show progress bars on standard error.

    Returns
    -------
    Separation

    Raises
    ------
    ImportError
        If PyAV is not installed.
    OSError
        If a file cannot be read or written.
    ValueError
        If it is not a video, or something is in the way.

    Warns
    -----
    ConvergenceWarning
        If the background is not confirmed.
    VideoWarning
        If a part of a file cannot be read.

    Examples
    --------
    >>> from rcurc_gpu.video import separate, surveillance_scene
    >>> scene = surveillance_scene((48, 64), frames=60, seed=2, fps=5, crowd=0.5)
    >>> made = separate(scene, "street")  # or "street.mp4"
    >>> made.matrix.shape  # the background: pixels x frames
    (3072, 60)
    >>> sorted(path.name for path in made.files)[:2]
    ['background.mp4', 'background.png']
    """
    given = locals()
    options = Options(**{option.name: given[option.name] for option in fields(Options)})
    made = separate_into(Outputs(output, force, preview), source, options)
    if not made.confirmed:
        warn_caller(made.figures["message"], ConvergenceWarning)
    return made


def separate_into(outputs: Outputs, source: Any, options: Options) -> Separation:
    """`separate`, for one who wants to know what was saved if it ends early, and without the warning about the result."""
    return _Run(outputs, source, options).run()


class _Run:
    """One run; the constructor checks everything that can be checked before the work."""

    def __init__(self, outputs: Outputs, source: Any, options: Options) -> None:
        self.outputs, self.options = outputs, options
        self.wanted = check_kinds(options.only, options.mask)
        model, truth = options.model, options.truth
        if outputs.preview and (model is not None or truth is not None):
            raise ArgumentError("preview", "takes neither a model nor a truth")
        self.model = Background.load(model) if isinstance(model, (str, os.PathLike)) else model
        if isinstance(source, (str, os.PathLike)):
            source = _open(Path(source), options, self.model, outputs.preview)
        elif options.size is not None or options.frames is not None or outputs.preview:
            raise ValueError("size, frames and preview are for files: give a path as source")
        self.source, self.shape = source, frame_shape("source", source)
        if self.model is not None and self.model.shape != self.shape:
            raise ValueError(f"the video must be as that of the model, {_words(self.model.shape)}, got {_words(self.shape)}")
        if self.model is None and len(source) < _LEAST_FRAMES:
            raise ArgumentError("source", f"must have at least {_LEAST_FRAMES} frames, got {len(source)}")
        self.truth = None if truth is None else self._open_truth(truth)
        self.region = None if options.region is None else open_region(options.region, self.shape)
        self.seed = seed_to_int(options.seed)
        place_for(options.device, np.empty(0, dtype=np.float32))  # so that a missing GPU is found before the first pass
        self.inputs = [x.path for x in (source, self.truth) if isinstance(x, Video)]
        self.inputs += [Path(model)] if isinstance(model, (str, os.PathLike)) else []
        self.figures: dict[str, Any] = {
            "source": str(source.path) if isinstance(source, Video) else type(source).__name__,
            "height": self.shape[0],
            "width": self.shape[1],
            "colour": len(self.shape) == 3,
            "frames": len(source),
        }
        if getattr(source, "varies", False):
            self.figures["frame_rate"] = f"varies; videos are written at the mean, {source.fps:.4g} frames per second"

    def run(self) -> Separation:
        """Both passes."""
        kinds = PREVIEW if self.outputs.preview else self.wanted - ({"result"} if self.model is not None else set())
        names = [name_of(kind, self.options.mask) for kind in kinds]
        if not self.outputs.preview:
            self.figures["encoder"] = encoder()
        self.outputs.claim([*names, "background.png"] if "background" in self.wanted else names, self.inputs)
        if self.outputs.preview:
            self.source = list(self.source)  # small; so that the file is read once
        elif self.model is None and isinstance(self.source, Video) and self._fits:
            self.source = Remembered(self.source)
        if self.model is None:
            background = self._first_pass()
            if "result" in kinds:
                self.outputs.save("result.npz", background.save)
        else:
            background = self.model
            self.figures |= {"rank": background.matrix.rank, "noise": background.noise, "seconds": {}}
            self.figures |= {"confirmed": True, "cause": "", "message": "a background found earlier was applied"}
            self.figures["notices"] = []
            background = self._asked(background)
        if background.reference is not None:
            self.source = Stabilised(self.source, background.reference)
        self.figures["threshold"] = float(np.median(background.rule.threshold))
        if "background" in self.wanted:
            self.outputs.save("background.png", partial(write_png, picture=background.still()))
        self.outputs.report(self.figures, complete=False)
        n_frames = len(self.source) if self.model is not None else background.matrix.shape[1]
        sheet = Sheet(n_frames if "sheet" in kinds else 0, self.shape)
        started = time.perf_counter()
        splitter = FrameSplitter(background.matrix.left, self.shape, background.rule, self.options.device)
        if self.outputs.preview:
            for k in sorted(sheet.times):
                sheet.add(k, splitter, self.source[k], splitter.split(self.source[k], background.matrix.right[k]))
        else:
            try:
                self.figures |= self._second_pass(background, splitter, sheet)
            except KeyboardInterrupt:  # the files are finished: the report names them
                self.outputs.report(self.figures | {"frames_written": self.outputs.early}, complete=False)
                raise
        if "sheet" in kinds:
            self._note("sheet_skipped", self.outputs.sheet(sheet, self._heading()))
        self.figures["seconds"]["writing"] = time.perf_counter() - started
        figures = self.outputs.report(self.figures, complete=True)
        return Separation(background, figures, tuple(self.outputs.saved))

    @property
    def _fits(self) -> bool:
        """Whether all frames may be kept."""
        return len(self.source) * float(np.prod(self.shape)) <= _REMEMBERED * self.options.memory

    def _first_pass(self) -> Background:
        o = self.options
        options = FindOptions(rank=o.rank, seed=self.seed)
        plan = plan_pass(int(np.prod(self.shape)), len(self.source), o.memory)
        background, figures = find_background(self.source, self.shape, plan, options, o.progress)
        self.figures |= figures | {"settings": {"rank": o.rank, "seed": self.seed, "memory": o.memory}}
        return self._asked(background)

    def _asked(self, found: Background) -> Background:
        """A background with what the user says about its rule."""
        o = self.options
        given: dict[str, Any] = {"threshold": o.threshold, "min_area": o.min_area, "median": o.median, "region": self.region}
        return replace(found, rule=found.rule.adjusted(shadow=o.shadows, **given))

    def _note(self, name: str, value: str) -> None:
        """A figure that is only there if it says something."""
        self.figures |= {name: value} if value else {}

    def _second_pass(self, background: Background, splitter: FrameSplitter, sheet: Sheet) -> dict[str, Any]:
        """Write what is wanted of each frame; returns figures."""
        truth = None if self.truth is None else Truth(self.truth)
        fps = float(getattr(self.source, "fps", float("nan")))
        levels = background.matrix.left.mean(axis=0)  # of one unit of each component
        with Progress(self.options.progress) as bar, warnings.catch_warnings():
            if self.model is None:
                warnings.simplefilter("ignore", VideoWarning)  # it was issued in the first pass
            bar.stage("writing", len(self.source))
            with self.outputs.recorder(self.wanted, self.options.mask, self.shape, fps) as recorder:
                for frame, coefficients in background.follow(self.source, new=self.model is not None):
                    found = splitter.split(frame, coefficients)
                    sheet.add(recorder.timeline.frames, splitter, frame, found)
                    recorder.add(splitter, frame, found, float(levels @ coefficients))
                    if truth is not None:
                        truth.compare(found.background)
                    bar.advance(1)
        timeline = recorder.timeline
        if "timeline" in self.wanted:
            self._note("timeline_skipped", self.outputs.timeline(timeline))
        figures = {"frames_written": timeline.frames, "foreground_share": timeline.share}
        return figures if truth is None else figures | {"psnr_truth": truth.psnr}

    def _open_truth(self, truth: Any) -> Any:
        if isinstance(truth, (str, os.PathLike)):
            truth = open_video(truth, colour=len(self.shape) == 3, size=self.shape[:2])  # type: ignore[arg-type]
        shape = frame_shape("truth", truth)
        if shape != self.shape:
            raise ArgumentError("truth", f"must have frames as the source, {_words(self.shape)}, got {_words(shape)}")
        found, wanted = len(truth), len(self.source)
        if found not in (1, wanted):
            raise ArgumentError("truth", f"must have one frame, or as many as the source, {wanted}, got {found}")
        return truth

    def _heading(self) -> str:
        f = self.figures
        words = f"{Path(f['source']).name}: {f['frames']} frames, rank {f['rank']}"
        if "psnr_truth" in f:
            words += f", PSNR to the truth {f['psnr_truth']:.1f} dB"
        return words


# ---------------------------------------------------------------- sources


def _open(path: Path, options: Options, model: Background | None, preview: bool) -> Video:
    """The file as it is to be read."""
    size, frames, colour, step = options.size, options.frames, options.colour, 1
    video = open_video(path, stop=frames)
    own = (video.shape[0], video.shape[1])
    if model is not None:
        like = (model.shape[0], model.shape[1])
        if size is None and abs(own[0] * like[1] / (own[1] * like[0]) - 1) < 0.02:  # the same picture, scaled
            size = like
        return open_video(path, colour=len(model.shape) == 3, size=size, stop=frames)
    if preview:
        step = -(-len(video) // _PREVIEW_FRAMES)
        height, width = size or own
        factor = min((_PREVIEW_PIXELS / (height * width)) ** 0.5, 1.0)
        size = (max(round(factor * height), 1), max(round(factor * width), 1))
    if colour == "auto":
        colour = has_colour(path, size)
    return open_video(path, colour=bool(colour), size=size, stop=frames, step=step)


def _words(shape: tuple[int, ...]) -> str:
    return f"{shape[0]} x {shape[1]} in {'colour' if len(shape) == 3 else 'grey'}"
