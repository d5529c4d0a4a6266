"""``rcurc-gpu video``: background and foreground of a video file."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from .._version import __version__
from ..backends import device_for_file
from ..video import MEMORY, Options, Outputs, Separation, VideoWarning, open_video, separate_into
from .common import errors_in_options, finish, saved_words, stoppable
from .options import BYTES, IN_FILE, RANK, SHARE, CommandOptions, Finite, flag, shared_options

_MEMORY = "the memory is not enough: give a smaller --memory or --height, or --grey"

# What the library calls an argument, and the option it came from.
_OPTION_OF = {"share_rows": "--rows", "share_cols": "--cols", "source": "IN", "size": "--height and --width"}
_OPTION_OF |= {
    name: f"--{name}" for name in ("frames", "rank", "rate", "threshold", "memory", "model", "truth", "preview", "output")
}


@click.command(context_settings={"show_default": True})
@click.argument("source", metavar="IN", type=IN_FILE)
@click.option(
    "-o",
    "--output",
    type=IN_FILE,
    default=Path("rcurc-video"),
    metavar="DIR",
    help="Where to save; files of an earlier run there are replaced.",
)
@flag("--preview", help="Quick: a small background and sheet, no videos.")
@click.option("--rank", type=RANK, default="auto", metavar="auto|N", help="Rank; 1 if the light is constant.")
@click.option(
    "--colour/--grey", "--color/--gray", "colour", default=None, show_default=False, help="By default as the video is."
)
@click.option("--model", type=IN_FILE, metavar="NPZ", help="Apply an earlier result.npz.")
@click.option("--truth", type=IN_FILE, metavar="FILE", help="True background, picture or video.")
@click.option("--threshold", type=Finite(min=0), help="Grey levels by which foreground differs.  [default: from the noise]")
@click.option("--height", type=click.IntRange(min=16), help="Height to scale the frames to.")
@click.option("--width", type=click.IntRange(min=16), help="Width to scale the frames to.")
@click.option("--frames", type=click.IntRange(min=1), help="Take the first so many frames.")
@click.option("--rows", type=SHARE, default=0.4, help="Share of the pixels that is chosen, at most.")
@click.option("--cols", type=SHARE, default=0.4, help="Share of the frames that is chosen, at most.")
@click.option("--rate", type=SHARE, default=0.3, help="Share of the chosen pixels and frames that is seen.")
@click.option(
    "--memory", type=BYTES, default=f"{MEMORY >> 20}MB", metavar="SIZE", help="For the samples, about; 64MB or more."
)
@shared_options(
    device="Where to solve; auto takes a GPU if --memory is 1.5GB or more (200 million samples), an estimate.",
    seed="Fixes the samples and the solve.",
    force="Replace files in DIR that are none of an earlier run.",
)
def video(source: Path, quiet: bool, as_json: bool, **options: Any) -> None:
    """Separate what moves in the video IN from what stands still.

    The camera has to stand still; the light may change. Writes background.mp4, foreground.mp4, mask.mp4, background.png,
    sheet.png, result.npz and report.json to DIR.

    \b
    Examples:
      rcurc-gpu video street.mp4 -o street
      rcurc-gpu video street.mp4 -o street --preview
      rcurc-gpu video later.mp4 -o later --model street/result.npz

    \b
    Exit status: 0 if the background is confirmed, but for single pixels,
    1 if it is not (the report says why), 2 if an option or a file is wrong,
    130 if stopped by Ctrl-C.
    """  # noqa: D301
    outputs = Outputs(options.pop("output"), options.pop("force"), options.pop("preview"))
    options["colour"] = "auto" if options["colour"] is None else options["colour"]
    options |= {
        "share_rows": options.pop("rows"),
        "share_cols": options.pop("cols"),
    }
    if options["memory"] < 64 << 20:
        raise click.BadParameter(f"must be 64MB or more, got {options['memory']:,} bytes.", param_hint="--memory")
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
        made = separate_into(
            outputs, source, Options(size=size, progress=CommandOptions(quiet=quiet, as_json=as_json).visible, **options)
        )
    notices = [str(warning.message) for warning in caught if issubclass(warning.category, VideoWarning)]
    say = CommandOptions(quiet=quiet, as_json=as_json)
    if not as_json:
        for text in notices:
            click.echo(text, err=True)
    say.say(_words(made))
    finish({"version": __version__, **made.figures, "notices": notices}, as_json, good=made.confirmed)


def _words(made: Separation) -> str:
    f = made.figures
    kind = "in colour" if f["colour"] else "in grey"
    lines = [f"Video:       {f['source']}, {f['frames']} frames of {f['height']} x {f['width']} {kind}"]
    seen = f", from {f['share_seen']:.1%} of the pixels" if "share_seen" in f else ""
    lines.append(f"Background:  rank {f['rank']}{seen}; noise {f['noise']:.1f} grey levels")
    lines.append(f"Judgement:   {'confirmed' if made.confirmed else 'NOT confirmed'}. {f['message']}")
    if "foreground_share" in f:
        lines.append(
            f"Foreground:  {f['foreground_share']:.1%} of the pixels differ by more than {f['threshold']:.0f} grey levels"
        )
    if "psnr_truth" in f:
        lines.append(f"Truth:       PSNR {f['psnr_truth']:.1f} dB")
    lines.append(f"Seconds:     {', '.join(f'{name} {value:.1f}' for name, value in f['seconds'].items())}")
    lines.append(f"Saved in {f['directory']}: {', '.join(f['files'])}")
    if "sheet_skipped" in f:
        lines.append(f"No contact sheet: {f['sheet_skipped']}")
    return "\n".join(lines)


def _stopped(outputs: Outputs) -> str:
    removed = f" Not finished, and removed: {', '.join(path.name for path in outputs.removed)}." if outputs.removed else ""
    return saved_words(outputs.saved, end=".") + removed


def in_proportion(own: tuple[int, ...], height: int | None, width: int | None) -> tuple[int, int]:
    """Height and width to scale frames to; the one that was not asked for is in proportion to their `own`."""
    return (
        height or max(round(own[0] * width / own[1]), 1),  # type: ignore[operator]  # one of them is there
        width or max(round(own[1] * height / own[0]), 1),  # type: ignore[operator]
    )
