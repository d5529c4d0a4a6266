"""``rcurc-gpu video``: background and foreground of a video file, or of a camera."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NoReturn

import click

from .._version import __version__
from ..backends import device_for_file
from ..video import (
    KINDS,
    LIVE_KINDS,
    MASKS,
    MEMORY,
    LiveOptions,
    Options,
    Outputs,
    Separation,
    VideoWarning,
    follow_into,
    is_live,
    open_video,
    separate_into,
)
from .common import errors_in_options, finish, saved_words, stoppable
from .options import BYTES, IN_FILE, RANK, CommandOptions, Finite, flag, shared_options

_MEMORY = "the memory is not enough: give a smaller --memory or --height, or --grey"

# What the library calls an argument, and the option it came from.
_OPTION_OF = {"source": "IN", "size": "--height and --width", "min_area": "--min-area"}
_NAMES = ("frames", "rank", "threshold", "memory", "model", "truth", "preview", "output", "region", "median", "only", "mask")
_OPTION_OF |= {name: f"--{name}" for name in (*_NAMES, "history", "shadows")}
# What makes no sense for frames that come once.
_NOT_LIVE = ("preview", "model", "truth")


@click.command(context_settings={"show_default": True})
@click.argument("source", metavar="IN")
@click.option(
    "-o",
    "--output",
    type=IN_FILE,
    default=Path("rcurc-video"),
    metavar="DIR",
    help="Where to save; files of an earlier run there are replaced.",
)
@flag(
    "--live",
    help="Follow a camera, an address, standard input (-) or a file, frame by frame, with a background that adapts.",
)
@flag("--preview", help="Quick: a small background and sheet, no videos.")
@click.option("--rank", type=RANK, default="auto", metavar="auto|N", help="Rank; 1 if the light is constant.")
@click.option(
    "--colour/--grey", "--color/--gray", "colour", default=None, show_default=False, help="By default as in the video."
)
@click.option("--model", type=IN_FILE, metavar="NPZ", help="Apply an earlier result.npz.")
@click.option("--truth", type=IN_FILE, metavar="FILE", help="True background, picture or video.")
@click.option("--threshold", type=Finite(min=0), help="Grey levels by which foreground differs.  [default: from the noise]")
@click.option("--height", type=click.IntRange(min=16), help="Height to scale the frames to.")
@click.option("--width", type=click.IntRange(min=16), help="Width to scale the frames to.")
@click.option("--frames", type=click.IntRange(min=1), help="Take only this many frames, from the start.")
@click.option("--region", type=IN_FILE, metavar="FILE", help="Picture that is white where to look for foreground.")
@click.option(
    "--min-area", type=click.IntRange(min=1), help="Pixels of the smallest object.  [default: 1 / 10000 of the picture]"
)
@click.option("--shadows/--no-shadows", default=True, help="Whether shadows count as background (videos in colour).")
@click.option("--only", type=click.Choice(list(KINDS)), multiple=True, help="Write only this; may be given several times.")
@click.option(
    "--mask", type=click.Choice(list(MASKS)), default="mp4", help="How to write the mask; mkv and png lose nothing."
)
@click.option("--history", type=click.IntRange(min=8), default=500, help="With --live: frames to learn the background from.")
@click.option(
    "--memory", type=BYTES, default=f"{MEMORY >> 20}MB", metavar="SIZE", help="For the samples, about; 64MB or more."
)
@shared_options(
    device="Where to solve; auto takes a GPU if --memory is 1.5GB or more (200 million samples), an estimate.",
    seed="Fixes the samples and the solve.",
    force="Replace files in DIR even if no earlier run wrote them.",
)
def video(source: str, quiet: bool, as_json: bool, live: bool, **options: Any) -> None:
    """Separate what moves in the video IN from what stands still.

    The camera has to stand still; the light may change. IN is a video file, a directory of pictures or a pattern of their
    names. Writes background.mp4, foreground.mp4, mask.mp4, objects.csv, background.png, sheet.png, timeline.png, result.npz
    and report.json to DIR.

    With --live, IN may also be a camera (0, /dev/video0), an address (rtsp://, http://, ...) or - for standard input, and
    mask, objects and timeline are written unless --only says otherwise. Ctrl-C ends it; all files are finished.

    \b
    Examples:
      rcurc-gpu video street.mp4 -o street
      rcurc-gpu video street.mp4 -o street --preview
      rcurc-gpu video later.mp4 -o later --model street/result.npz
      rcurc-gpu video --live rtsp://192.0.2.1/stream -o door --only objects

    Exit status: 0 if the background is confirmed, 1 if it is not (the
    report says why), 2 if an option or a file is wrong, 130 if stopped by
    Ctrl-C. With --live: 0 at the end or after Ctrl-C, 1 if the camera
    went away.
    """  # noqa: D301
    say = CommandOptions(quiet=quiet, as_json=as_json)
    if options["memory"] < 64 << 20:
        raise click.BadParameter(f"must be 64MB or more, got {options['memory']:,} bytes.", param_hint="--memory")
    if live:
        _live(source, options, say)
    if is_live(source):
        raise click.UsageError(
            f"{source!r} gives its frames once, and two passes are made: use --live, or record it to a file"
        )
    outputs = Outputs(options.pop("output"), options.pop("force"), options.pop("preview"))
    del options["history"]
    options["colour"] = "auto" if options["colour"] is None else options["colour"]
    asked = options.pop("height"), options.pop("width")
    with (
        stoppable(lambda: _stopped(outputs)),
        errors_in_options(_OPTION_OF, memory=_MEMORY, usage=True),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", VideoWarning)
        size = None if asked == (None, None) else in_proportion(open_video(source).shape, *asked)
        # --memory bounds the samples: a value and a position each, in 8 bytes
        options["device"] = device_for_file(options["device"], options["memory"] // 8)
        options["only"] = options["only"] or None
        made = separate_into(outputs, source, Options(size=size, progress=say.visible, **options))
    notices = [str(warning.message) for warning in caught if issubclass(warning.category, VideoWarning)]
    notices += [f"The frame rate {made.figures['frame_rate']}."] if "frame_rate" in made.figures else []
    if not as_json:
        for text in notices:
            click.echo(text, err=True)
    say.say(_words(made))
    finish(
        {"version": __version__, **made.figures, "notices": [*made.figures["notices"], *notices]}, as_json, made.confirmed
    )


def _live(source: str, options: dict[str, Any], say: CommandOptions) -> NoReturn:
    """The command with --live."""
    given = [f"--{name}" for name in _NOT_LIVE if options[name]]
    if given:
        raise click.UsageError(f"--live takes no {', '.join(given)}")
    outputs = Outputs(options["output"], options["force"])
    names = ("rank", "threshold", "shadows", "min_area", "memory", "seed", "device")
    rule = {name: options[name] for name in names if options[name] is not None}
    size = (options["height"], options["width"])
    if (size[0] is None) != (size[1] is None):
        raise click.UsageError("--live takes --height and --width together")
    with stoppable(lambda: _stopped(outputs)), errors_in_options(_OPTION_OF, memory=_MEMORY, usage=True):
        figures = follow_into(
            outputs,
            source,
            LiveOptions(
                colour=options["colour"] is not False,
                size=None if size[0] is None else size,
                region=options["region"],
                frames=options["frames"],
                history=options["history"],
                subtractor=rule,
                only=options["only"] or LIVE_KINDS,
                mask=options["mask"],
                progress=say.visible,
            ),
        )
    lines = [
        f"Followed:    {figures['frames']} frames of {figures['height']} x {figures['width']}, {figures['dropped']} dropped"
    ]
    lines.append(f"Learned:     {figures['learned']} times")
    lines.append(f"Foreground:  {figures['foreground_share']:.1%} of the pixels")
    lines.append(f"Saved in {figures['directory']}: {', '.join(figures['files'])}")
    say.say("\n".join(lines))
    if figures["gone"]:
        click.echo(f"{figures['gone']}; all files are finished.", err=True)
    finish({"version": __version__, **figures}, say.as_json, good=not figures["gone"])


def _words(made: Separation) -> str:
    f = made.figures
    kind = "in colour" if f["colour"] else "in grey"
    lines = [f"Video:       {f['source']}, {f['frames']} frames of {f['height']} x {f['width']} {kind}"]
    seen = f", from {f['share_seen']:.1%} of the pixels" if "share_seen" in f else ""
    lines.append(f"Background:  rank {f['rank']}{seen}; noise {f['noise']:.1f} grey levels")
    lines.append(f"Judgement:   {'confirmed' if made.confirmed else 'NOT confirmed'}. {f['message']}")
    if "foreground_share" in f:
        lines.append(
            f"Foreground:  {f['foreground_share']:.1%} of the pixels; median threshold {f['threshold']:.0f} grey levels"
        )
    if "psnr_truth" in f:
        lines.append(f"Truth:       PSNR {f['psnr_truth']:.1f} dB")
    lines.append(f"Seconds:     {', '.join(f'{name} {value:.1f}' for name, value in f['seconds'].items())}")
    lines.append(f"Saved in {f['directory']}: {', '.join(f['files'])}")
    for name, what in (("sheet_skipped", "contact sheet"), ("timeline_skipped", "timeline")):
        if name in f:
            lines.append(f"No {what}: {f[name]}")
    return "\n".join(lines)


def _stopped(outputs: Outputs) -> str:
    words = saved_words(outputs.saved, end=".")
    if outputs.early is not None:
        words += f" Videos and tables have the first {outputs.early} frames."
    if outputs.removed:
        words += f" Not finished, and removed: {', '.join(path.name for path in outputs.removed)}."
    return words


def in_proportion(own: tuple[int, ...], height: int | None, width: int | None) -> tuple[int, int]:
    """Height and width to scale frames to; the one that was not asked for is in proportion to their `own`."""
    return (
        height or max(round(own[0] * width / own[1]), 1),  # type: ignore[operator]  # one of them is there
        width or max(round(own[1] * height / own[0]), 1),  # type: ignore[operator]
    )
