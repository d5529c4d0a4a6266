"""``rcurc-gpu paper table1``: backgrounds of videos."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import click

from .._version import __version__
from ..paper import table1 as experiment
from ..video import SurveillanceScene, Video, VideoWarning, open_video, surveillance_scene
from .common import errors_in_options, finish, json_text, make_directory, stoppable, writing_to
from .options import IN_FILE, RANK, SHARE, CommandOptions, directory_option, flag, shared_options, solver_option
from .outputs import save_picture
from .video import in_proportion

_PAPER_SIZE, _QUICK_SIZE = (256, 320), (96, 120)
_PAPER_FRAMES, _QUICK_FRAMES = 1000, 400


@click.command(context_settings={"show_default": True})
@click.argument("videos", nargs=-1, type=IN_FILE)
@click.option("--rank", type=RANK, default="auto", metavar="auto|N", help="Rank of the backgrounds.")
@click.option("--rows", type=SHARE, default=0.4, help="Share of the pixels that is chosen.")
@click.option("--cols", type=SHARE, default=0.4, help="Share of the frames that is chosen.")
@click.option("--rate", type=SHARE, default=0.3, help="Share of the chosen pixels and frames that is seen.")
@click.option("--height", type=click.IntRange(min=16), help="Height to scale the frames to.")
@click.option("--width", type=click.IntRange(min=16), help="Width to scale the frames to.")
@click.option("--frames", type=click.IntRange(min=16), help="How many frames to take, from the first on.")
@flag("--full", help="As large as in the paper: 256 x 320 (videos: at most as many pixels), the scene with 1000 frames.")
@solver_option("seed", "Fixes the samples and the scene.")
@solver_option("device", "Where to solve.")
@directory_option("rcurc-paper", "Where to save; files of an earlier table are replaced.")
@shared_options()
def table1(**values: Any) -> None:
    """Table 1: backgrounds of VIDEOS from few of their pixels.

    Finds the background of each video by RCURC, from samples, and by IRCUR, from the whole video, and says how close they
    are and how long it took. Without VIDEOS it takes a made-up street, whose true background is known. If no size is
    given, larger videos are scaled down to as many pixels as 96 x 120 has.

    \b
    Examples:
      rcurc-gpu paper table1
      rcurc-gpu paper table1 --full
      rcurc-gpu paper table1 shoppingmall.avi --height 256 --width 320

    Exit status: 0 if all results are confirmed, but for single pixels, 1 if
    one is not (the report says why), 2 if an option or a video is wrong,
    130 if stopped by Ctrl-C.
    """  # noqa: D301
    o, saved = CommandOptions(**values), list[Path]()
    settings = experiment.TableSettings(o.rank, o.rows, o.cols, o.rate, seed=o.seed, device=o.device)
    memory = "the video does not fit into the memory: give a smaller --height or --frames"
    with stoppable(saved), errors_in_options({}, memory=memory, usage=True):
        sources = _sources(o.videos, (o.height, o.width), o.frames, o.full, o.seed)
        make_directory(o.output)
        report = _run(sources, settings, o, saved)
    finish(report, o.as_json, good=all(row["rcurc"]["cause"] in ("", "undetermined") for row in report["videos"]))


def _run(
    sources: dict[str, Video | SurveillanceScene],
    settings: experiment.TableSettings,
    options: CommandOptions,
    saved: list[Path],
) -> dict[str, Any]:
    """All videos; the table is saved anew after each. Returns the report."""
    report: dict[str, Any] = {"version": __version__, "videos": [], "files": {}}
    say, visible = options.say, options.visible
    experiment.warm_up(settings)
    for name, source in sources.items():
        say(f"{name}: {source.shape[0]} x {source.shape[1]}, {len(source)} frames")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", VideoWarning)
            outcome = experiment.compare(name, source, settings, visible)
        notices = [str(warning.message) for warning in caught if issubclass(warning.category, VideoWarning)]
        row = outcome.figures | {"notices": notices}
        for text in [*notices, *(f"RCURC: {row['rcurc']['message']}" for _ in range(not row["rcurc"]["confirmed"]))]:
            say(f"  {text}")
        report["videos"].append(row)
        _save(report, outcome, name, options.output, saved)
    say("\n" + experiment.markdown(report["videos"]) + "\n")
    say("PSNR: background of RCURC against that of IRCUR, which sees the whole video; to the truth: against the true one.")
    say(f"Sampling reads the video; real time is {experiment.REAL_TIME:.0f} frames/s.")
    say(f"Saved: {', '.join(map(str, saved))}")
    if report["files"].get("sheets_skipped"):
        say(f"No pictures: {report['files']['sheets_skipped']}")
    return report


def _save(report: dict[str, Any], outcome: experiment.Outcome, name: str, output: Path, saved: list[Path]) -> None:
    """Write the contact sheet of a video, and the table and the figures so far."""
    files = report["files"]
    pictured = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
    sheet, table, data = (output / file for file in (f"table1-{pictured}.png", "table1.md", "table1.json"))
    try:
        with writing_to(sheet, "cannot write"):
            save_picture(experiment.draw(outcome), sheet, saved)
        files.setdefault("sheets", []).append(sheet)
    except ImportError as error:
        files["sheets_skipped"] = str(error)
    files |= {"table": table, "data": data}
    _write(table, (experiment.markdown(report["videos"]) + "\n").encode(), saved)
    _write(data, f"{json_text(report)}\n".encode(), saved)


def _write(path: Path, content: bytes, saved: list[Path]) -> None:
    with writing_to(path, "cannot write"):
        path.write_bytes(content)
    if path not in saved:
        saved.append(path)


# ---------------------------------------------------------------- arguments


def _sources(
    videos: tuple[Path, ...], size: tuple[int | None, int | None], frames: int | None, full: bool, seed: int
) -> dict[str, Video | SurveillanceScene]:
    """Videos by their names, or the scene."""
    most = _PAPER_SIZE if full else _QUICK_SIZE
    if not videos:
        shape = (size[0] or most[0], size[1] or most[1])
        return {"scene": surveillance_scene(shape, frames or (_PAPER_FRAMES if full else _QUICK_FRAMES), seed)}
    sources: dict[str, Video | SurveillanceScene] = {}
    for path in videos:
        video = open_video(path, stop=frames)
        shape = _scaled((video.shape[0], video.shape[1]), size, most)
        name = path.stem if path.stem not in sources else f"{path.stem} {len(sources) + 1}"
        sources[name] = open_video(path, size=shape, stop=frames)
    return sources


def _scaled(own: tuple[int, int], asked: tuple[int | None, int | None], most: tuple[int, int]) -> tuple[int, int]:
    """Height and width to scale to: as asked for, what is not so in proportion; else no more pixels than in `most`."""
    if asked != (None, None):
        return in_proportion(own, *asked)
    factor = min((most[0] * most[1] / (own[0] * own[1])) ** 0.5, 1.0)
    return max(round(factor * own[0]), 1), max(round(factor * own[1]), 1)
