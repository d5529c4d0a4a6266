"""Table 1 of the paper: backgrounds of videos from some of their pixels, against those from all of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import ircur
from .._lazy import later
from ..api import rcurc
from ..backends import Stream, blank_rows, generator
from ..progress import Progress, timed
from ..result import CURMatrix, LowRankMatrix, Result
from ..samples import CrossSamples
from ..video import SurveillanceScene, contact_sheet, difference_picture, psnr, sample_video, surveillance_scene
from .records import quietly

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REAL_TIME = 25.0  # frames per second
_TIMES = 3  # rows of a contact sheet
_FEW_PIXELS = 4000  # of the chosen frames, from which the rank is found: `find` takes as many for the light of a frame


@dataclass(frozen=True)
class TableSettings:
    """How the samples are drawn and solved; the defaults are the paper's, and the rank is found.

    Attributes
    ----------
    rank : int or "auto"
    share_rows, share_cols, rate : float
        Share of the pixels and of the frames that is chosen, and of these that is seen.
    resolution : float
        Grey levels that do not matter; see `rcurc`.
    seed : int
    device : str
    """

    rank: int | str = "auto"
    share_rows: float = 0.4
    share_cols: float = 0.4
    rate: float = 0.3
    resolution: float = 1.0
    seed: int = 0
    device: str = "auto"


@dataclass(frozen=True, eq=False)
class Outcome:
    """One row of the table.

    Attributes
    ----------
    figures : dict
        For JSON.
    shape : (int, int)
        Of a frame.
    pixels : uint8 array (n1, n2)
        The whole video.
    found, reference : CURMatrix (n1, n2)
        The backgrounds of RCURC, from the samples, and of IRCUR, from the whole video.
    known : LowRankMatrix
        `found` with NaN where it could not be determined; the figures are of the rest.
    """

    figures: dict[str, Any]
    shape: tuple[int, int]
    pixels: np.ndarray
    found: CURMatrix
    reference: CURMatrix
    known: LowRankMatrix


def warm_up(settings: TableSettings) -> None:
    """Solve a small scene, so that no compiling of kernels is timed later."""
    samples = sample_video(surveillance_scene((32, 40), 80), 0.6, 0.6, 0.6)
    for rank in (1, 2, 4) if settings.rank == "auto" else (settings.rank,):
        quietly(rcurc, samples, rank, device=settings.device)


def compare(name: str, source: Any, settings: TableSettings, progress: bool = False) -> Outcome:
    """Find the background of a grey video by RCURC from samples and by IRCUR from all of it.

    Parameters
    ----------
    name : str
    source : Video or SurveillanceScene
        Read twice: once to sample it, which holds the samples alone, and once as a whole, which IRCUR needs.
    settings : TableSettings
    progress : bool
        Show progress bars.
    """
    samples, sampling = timed(
        sample_video, source, settings.share_rows, settings.share_cols, settings.rate, settings.seed, progress
    )
    common = {"seed": settings.seed, "device": settings.device, "undetermined": "keep", "progress": progress}
    result, solving = timed(_background, samples, settings, common)
    pixels, reading = timed(_whole, source, progress)
    whole, solving_whole = timed(quietly, ircur, pixels, result.rank, **common)
    n1, n2 = pixels.shape
    # what could not be determined is kept for the picture, but is no figure of the method
    left = blank_rows(result.cur.left, result.rows.undetermined)
    known = LowRankMatrix(left, blank_rows(result.cur.right, result.columns.undetermined))
    figures: dict[str, Any] = {
        "video": name,
        "height": source.shape[0],
        "width": source.shape[1],
        "frames": n2,
        "rank": result.rank,
        "settings": asdict(settings),
        "observations": samples.n_obs,
        "share_seen": samples.n_obs / (n1 * n2),
        "seconds": {"sampling": sampling, "rcurc": solving, "reading": reading, "ircur": solving_whole},
        "frames_per_second": n2 / (sampling + solving),
        "psnr": psnr(known, whole.cur, undetermined="skip"),
        "psnr_truth": None,
        "psnr_truth_ircur": None,
        "rcurc": _judgement(result),
        "ircur": _judgement(whole),
    }
    if isinstance(source, SurveillanceScene):
        truth = source.background_matrix
        figures |= {"psnr_truth": psnr(known, truth, undetermined="skip"), "psnr_truth_ircur": psnr(whole.cur, truth)}
    return Outcome(figures, source.shape, pixels, result.cur, whole.cur, known)


def _background(samples: CrossSamples, settings: TableSettings, common: dict[str, Any]) -> Result:
    """RCURC; a rank that is not given is found from some of the pixels first, in a tenth of the time that all would take."""
    common, rank = common | {"resolution": settings.resolution}, settings.rank
    if rank == "auto" and samples.shape[0] > _FEW_PIXELS:
        chosen = generator(settings.seed, Stream.VIDEO_CROSS, 1).choice(samples.shape[0], _FEW_PIXELS, replace=False)
        rank = quietly(rcurc, CrossSamples.from_sparse(samples.C[np.sort(chosen)]), **common).rank
    return quietly(rcurc, samples, rank, **common)


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table of some `Outcome.figures`, with two columns more where a truth is known."""
    truth = any(row["psnr_truth"] is not None for row in rows)
    head = ["video", "frame size", "frames", "rank", "sampling (s)", "RCURC (s)", "frames/s", "IRCUR (s)", "PSNR (dB)"]
    head += ["to the truth", "IRCUR to the truth"] if truth else []
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for row in rows:
        seconds = row["seconds"]
        cells = [row["video"], f"{row['height']} x {row['width']}", str(row["frames"]), str(row["rank"])]
        cells += [f"{seconds['sampling']:.2f}", f"{seconds['rcurc']:.2f}", f"{row['frames_per_second']:.0f}"]
        cells += [f"{seconds['ircur']:.2f}", f"{row['psnr']:.2f}"]
        if truth:
            known = (row["psnr_truth"], row["psnr_truth_ircur"])
            cells += ["" if value is None else f"{value:.2f}" for value in known]
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def draw(outcome: Outcome) -> Figure:
    """A contact sheet: frame, both backgrounds and the foreground at three times."""
    row = outcome.figures
    pictures, labels = [], []
    for k in ((2 * np.arange(_TIMES) + 1) * row["frames"] // (2 * _TIMES)).tolist():
        frame, found, whole = (x[:, k].reshape(outcome.shape) for x in (outcome.pixels, outcome.found, outcome.reference))
        pictures.append([frame, found, whole, difference_picture(frame, found)])
        labels.append(f"frame {k}")
    titles = ["frame", f"RCURC, from {row['share_seen']:.0%} of the video", "IRCUR, from all of it", "foreground (RCURC)"]
    heading = f"{row['video']}: rank {row['rank']}, PSNR {row['psnr']:.1f} dB, {row['frames_per_second']:.0f} frames/s"
    return contact_sheet(pictures, titles, labels, heading)


def _judgement(result: Result) -> dict[str, Any]:
    undetermined = {"pixels": len(result.rows.undetermined), "frames": len(result.columns.undetermined)}
    return {"confirmed": result.converged, "cause": result.cause, "message": result.message, "undetermined": undetermined}


def _whole(source: Any, progress: bool) -> np.ndarray:
    """All pixels of all frames, uint8 (n1, n2), frame after frame in memory."""
    frames = np.empty((len(source), int(np.prod(source.shape))), dtype=np.uint8)
    came = 0
    with Progress(progress) as bar, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that some are missing was said when it was sampled
        bar.stage("reading", len(source))
        for frame in source:
            frames[came] = frame.reshape(-1)
            came += 1
            bar.advance(1)
    return frames[:came].T


__getattr__ = later(__name__, {})  # for the old name of TableSettings
