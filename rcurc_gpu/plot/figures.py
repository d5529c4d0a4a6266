"""What all pictures share: colours, figures that need no display, and how a panel is finished."""

from __future__ import annotations

import functools
import io
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..io import Completion
    from ..result import Result

# From the palette of Okabe and Ito, which readers with any colour vision can tell apart.
BLUE, ORANGE, VERMILLION, GREEN, GREY, BLACK = "#0072B2", "#E69F00", "#D55E00", "#009E73", "#8C8C8C", "#000000"


def new_figure(width: float, height: float, dpi: float = 150, **gaps: float) -> Figure:
    """An empty Figure of `width` x `height` inches that needs no display; `gaps` (wspace, hspace) part its panels.

    Raises
    ------
    ImportError
        If matplotlib is not installed; says which extra brings it.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> figure = rg.plot.new_figure(9, 4)
    >>> left, right = figure.subplots(1, 2)
    >>> _ = rg.plot.sampling_pattern(problem.samples, left)
    >>> _ = rg.plot.convergence(rg.rcurc(problem.samples), right)
    >>> figure.savefig("both.png")
    """
    try:
        import matplotlib  # noqa: F401  # the parent first: a cached submodule would hide that it is gone
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib, which the extra 'plot' brings: pip install 'rcurc-gpu[plot]'") from error
    figure = Figure(figsize=(width, height), dpi=dpi)
    figure.set_layout_engine("constrained", **gaps)
    FigureCanvasAgg(figure)
    figure._repr_png_ = functools.partial(_png, figure)  # type: ignore[attr-defined]
    return figure


def _png(figure: Figure) -> bytes:
    """The picture as a notebook shows it; pyplot, which would tell notebooks how, is not used here."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def titled(figure: Figure, result: Result | Completion, facts: str, fontsize: float) -> Figure:
    """`figure` with a title: the shape, some `facts`, and whether the result is confirmed."""
    n1, n2 = result.cur.shape
    state = "confirmed" if result.converged else f"NOT confirmed: {result.cause}"
    figure.suptitle(f"{n1:,} x {n2:,}, {facts}: {state}", fontsize=fontsize)
    return figure


def axes_or_new(ax: Axes | None, width: float = 5.0, height: float = 3.8) -> Axes:
    """`ax`, or the Axes of a new Figure, which notebooks show as that."""
    if ax is None:
        figure = new_figure(width, height)
        ax = figure.add_subplot()
        ax._repr_png_ = figure._repr_png_  # type: ignore[attr-defined]
    return ax


def finish(ax: Axes, **legend: Any) -> Axes:
    """Grid and legend; gives `ax` back."""
    ax.grid(True, color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.legend(fontsize=8, framealpha=0.9, **legend)
    return ax


def draw_median(ax: Axes, share: np.ndarray) -> None:
    """A level at the median of some shares in per cent, if there are any."""
    if share.size:
        middle = float(np.median(share))
        ax.axhline(middle, color=BLACK, linewidth=1.2, linestyle="--", label=f"median, {middle:.0f} %")
