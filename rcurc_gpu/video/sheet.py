"""Contact sheets: pictures of a video side by side. Needs matplotlib (the extra ``plot``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 2.6  # inches of one picture
_GAP = 0.03  # between two, in widths


def contact_sheet(
    pictures: Sequence[Sequence[np.ndarray]], titles: Sequence[str], labels: Sequence[str], heading: str = ""
) -> Figure:
    """Pictures in rows and columns, on one scale from 0 (black) to 255 (white).

    Parameters
    ----------
    pictures : rows of arrays (height, width) or (height, width, 3)
        Values beyond 0 to 255 are cut off, NaN is drawn red.
    titles : sequence of str
        For each column.
    labels : sequence of str
        For each row.
    heading : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    from ..plot import new_figure

    height, width = pictures[0][0].shape[:2]
    n_rows, n_cols = len(pictures), len(titles)
    figure = new_figure(_WIDTH * n_cols + 0.3, (_WIDTH * height / width + 0.08) * n_rows + 0.7, dpi=110)
    # one picture of all: an axes for each takes several times as long to draw
    gap = max(round(_GAP * width), 1)
    sheet = np.full((n_rows * (height + gap) - gap, n_cols * (width + gap) - gap, 3), 255, dtype=np.uint8)
    for row, line in enumerate(pictures):
        for col, picture in enumerate(line):
            y, x = row * (height + gap), col * (width + gap)
            sheet[y : y + height, x : x + width] = _colours(picture)
    ax = figure.subplots()
    ax.imshow(sheet, interpolation="nearest")
    ax.set_xticks((np.arange(n_cols) + 0.5) * (width + gap), titles, fontsize=9)
    ax.set_yticks((np.arange(n_rows) + 0.5) * (height + gap), labels, fontsize=9, rotation=90, va="center")
    ax.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    ax.spines[:].set_visible(False)
    if heading:
        figure.suptitle(heading, fontsize=10)
    return figure


def difference_picture(frame: np.ndarray, background: np.ndarray, gain: float = 2.0) -> np.ndarray:
    """What stands before the background, float32 of the frame's shape: `gain` times the difference, white where there is
    none."""
    return 255 - gain * np.abs(frame.astype(np.float32) - background)


def _colours(picture: np.ndarray) -> np.ndarray:
    """uint8 (height, width, 3)"""
    unknown = np.isnan(picture) if picture.dtype.kind == "f" else np.zeros(picture.shape, dtype=bool)
    grey = np.clip(np.where(unknown, 0, picture), 0, 255).astype(np.uint8)
    if grey.ndim == 2:
        grey, unknown = np.repeat(grey[:, :, None], 3, axis=2), unknown[:, :, None]
    return np.where(unknown.any(axis=2, keepdims=True), np.asarray([220, 30, 30], dtype=np.uint8), grey)
