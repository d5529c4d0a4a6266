"""``rcurc-gpu plot``: pictures of a result."""

from __future__ import annotations

import mimetypes
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..io import Completion, load_result
from ..plot import pictures, result_figure
from .common import BadInput, errors_in_options, finish, stoppable
from .options import IN_FILE, CommandOptions, shared_options
from .outputs import PICTURE_MARK, check_output, is_picture, save_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@click.command(context_settings={"show_default": True})
@click.argument("result", type=IN_FILE)
@click.option("-o", "--output", type=IN_FILE, required=True, metavar="DIR|FILE.png", help="One picture, or a directory.")
@shared_options(force="Replace existing files, whatever they are.")
def plot(result: Path, output: Path, force: bool, quiet: bool, as_json: bool) -> None:
    """Draw the RESULT that 'rcurc-gpu complete' wrote.

    With a name that ends in .png, one picture of six panels: intervals beside observations (without noise: convergence), the
    components (without noise: the error by rank, or the singular values), where the outliers are, how many observations of
    each row and column fit, and which rows fit worst. With a directory, which is made if it is not there, each of them and
    some more as a file of its own.

    \b
    Examples:
      rcurc-gpu plot result.npz -o result.png
      rcurc-gpu plot result.npz -o pictures/

    Exit status: 0 if pictures were saved, 2 if an option or the file is
    wrong or matplotlib is missing, 130 if stopped by Ctrl-C.
    """  # noqa: D301
    saved: list[Path] = []
    with stoppable(saved), errors_in_options({}):
        completion = load_result(result)
        if output.suffix.lower() == ".png" and not output.is_dir():
            check_output("--output", output, is_picture, force, [result])
            _save(result_figure(completion), output, saved)
        elif not output.is_dir() and (mimetypes.guess_type(output.name)[0] or output.suffix == ".npz"):  # the name of a file
            raise BadInput(f"--output: {str(output)!r} must end in .png, or be a directory")
        else:
            _draw_all(completion, result, output, force, saved)
    CommandOptions(quiet=quiet, as_json=as_json).say("\n".join(f"Saved:  {path}" for path in saved))
    finish({"result": str(result), "files": [str(path) for path in saved]}, as_json)


def _draw_all(completion: Completion, result: Path, folder: Path, force: bool, saved: list[Path]) -> None:
    drawn = {folder / f"{name}.png": draw for name, draw in pictures(completion).items()}
    folder.mkdir(exist_ok=True)
    for path in drawn:
        check_output("--output", path, is_picture, force, [result])
    for path, draw in drawn.items():
        figure: Any = draw(None).figure
        _save(figure, path, saved)


def _save(figure: Figure, path: Path, saved: list[Path]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # a label in a script that no font here has
        save_picture(figure, path, saved, metadata={"Software": PICTURE_MARK})
