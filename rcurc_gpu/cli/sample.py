"""``rcurc-gpu sample``: draw cross-concentrated samples of a matrix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from ..io import MaskedMatrix, kind_of, read_matrix
from ..progress import progress_bar
from ..samples import CrossSamples, ccs_sample
from .common import errors_in_options, finish, stoppable
from .options import IN_FILE, SHARE, SHARE_OR_COUNT, CommandOptions, count_of, shared_options
from .outputs import check_output, is_samples

VIDEO = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".m4v", ".gif")
_OPTION_OF = {"n_rows": "--rows", "n_cols": "--cols", "rate_rows": "--rate", "rate_cols": "--rate", "seed": "--seed"}


@click.command(context_settings={"show_default": True})
@click.argument("file", type=IN_FILE)
@click.option("-o", "--output", type=IN_FILE, required=True, metavar="OUT.npz", help="Where to save the samples.")
@click.option("--rows", type=SHARE_OR_COUNT, default="30%", metavar="SHARE|N", help="Rows to choose: 0.3, 30% or 200.")
@click.option("--cols", type=SHARE_OR_COUNT, default="30%", metavar="SHARE|N", help="Columns to choose.")
@click.option("--rate", type=SHARE, default=0.25, help="Share of the chosen rows and columns that is seen.")
@shared_options(seed="Fixes what is drawn.", force="Replace OUT.npz whatever it is.")
def sample(file: Path, output: Path, seed: int, force: bool, quiet: bool, as_json: bool, **how: Any) -> None:
    """Draw samples of the matrix in FILE: some rows, some columns, and a share of the entries in them.

    FILE is a matrix in .npy (read where it is looked at, so it may be larger than the memory), .npz or .mtx, or a video
    (a column for each frame). NaN entries, and those outside of an array 'mask' in the .npz, count as not observed.

    \b
    Examples:
      rcurc-gpu sample matrix.npy -o samples.npz
      rcurc-gpu sample matrix.npy -o samples.npz --rows 500 --cols 10% --rate 0.4
      rcurc-gpu complete samples.npz -o result.npz

    Exit status: 0 if samples were saved, 2 if an option or the file is wrong,
    130 if stopped by Ctrl-C.
    """  # noqa: D301
    saved: list[Path] = []
    options = CommandOptions(quiet=quiet, as_json=as_json)
    with stoppable(saved), errors_in_options(_OPTION_OF):
        check_output("--output", output, is_samples, force, [file], (".npz",))
        samples = _drawn(file, seed=seed, progress=options.visible, **how)
        samples.save(output)
        saved.append(output)
    report = {
        "file": str(file),
        "output": str(output),
        "shape": list(samples.shape),
        "chosen_rows": len(samples.rows),
        "chosen_cols": len(samples.cols),
        "observations": samples.n_obs,
        "share_observed": samples.n_obs / (samples.shape[0] * samples.shape[1]),
        "seed": seed,
    }
    options.say(f"{samples.describe()}\nSaved:  {output}  (next: rcurc-gpu complete {output} -o RESULT.npz)")
    finish(report, as_json)


def _drawn(file: Path, *, rows: float | int, cols: float | int, rate: float, seed: int, progress: bool) -> CrossSamples:
    if file.suffix.lower() in VIDEO:
        if isinstance(rows, int) or isinstance(cols, int):
            raise ValueError("--rows and --cols must be shares (0.3 or 30%) for a video")
        from ..video import sample_video

        file.stat()  # a file that is not there is the first thing to know
        return sample_video(file, share_rows=rows, share_cols=cols, rate=rate, seed=seed, progress=progress)
    if kind_of(str(file)) != "matrix":
        raise ValueError(f"{str(file)!r} is a table of observations, which are samples already: use 'rcurc-gpu complete'")
    if is_samples(file):
        raise ValueError(f"{str(file)!r} holds samples already: use 'rcurc-gpu complete'")
    matrix = read_matrix(str(file))
    if not isinstance(matrix, MaskedMatrix):
        raise ValueError(f"{str(file)!r} is sparse: its stored entries are samples already, use 'rcurc-gpu complete'")
    n1, n2 = matrix.shape
    n_rows, n_cols = count_of(rows, n1), count_of(cols, n2)
    expected = round(rate * (n_rows * n2 + n_cols * n1))
    with progress_bar(f"sampling {file.name}", expected, progress, unit=" entries") as shown:
        return ccs_sample(_Watched(matrix, shown), n_rows, n_cols, rate, rate, seed)


class _Watched:
    """A matrix that tells a progress bar how many of its entries were looked at."""

    def __init__(self, matrix: MaskedMatrix, shown: Any) -> None:
        self.matrix, self.shown, self.shape = matrix, shown, matrix.shape

    def entries(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        self.shown.update(len(i))
        return self.matrix.entries(i, j)
