"""Pictures of a result that was kept in a file (`rcurc_gpu.io.Completion`), with the user's labels.

As in `plot`, every function draws on the Axes it is given, or on one of a new Figure, and returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import check_choice
from .figures import BLUE, GREY, VERMILLION, axes_or_new, draw_median, finish, new_figure, titled
from .panels import convergence, rank_curve, singular_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..io import Completion

_WORST = 12  # bars
_LONGEST = 22  # characters of a label in a picture
_PER_CELL = 30  # observations that make a share
_FEWEST = 5  # observations that a row needs to be called a bad one


def result_figure(completion: Completion) -> Figure:
    """Six panels: how the solve went, the rank, where outliers are, and how far rows and columns can be trusted.

    Parameters
    ----------
    completion : rcurc_gpu.io.Completion

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = new_figure(15.5, 8.4, dpi=110, wspace=0.06, hspace=0.08)
    axes = figure.subplots(2, 3)
    for ax, draw in zip(axes.flat, list(pictures(completion).values())[:6], strict=False):
        draw(ax)
    return titled(figure, completion, f"{completion.n_obs:,} observations, rank {completion.rank}", 12)


def pictures(completion: Completion) -> dict[str, Callable[[Axes | None], Axes]]:
    """Every picture that can be drawn of a result, by name: functions that take an Axes or None."""
    c = completion
    drawn: dict[str, Callable[[Axes | None], Axes]] = {
        "convergence": lambda ax: convergence(c, ax),
        "rank": lambda ax: singular_values(c, ax) if c.rank_curve is None else rank_curve(c, ax),
        "outlier_map": lambda ax: outlier_map(c, ax),
        "row_fit": lambda ax: unit_fit(c, "rows", ax),
        "column_fit": lambda ax: unit_fit(c, "columns", ax),
        "worst_rows": lambda ax: worst_units(c, "rows", ax),
        "worst_columns": lambda ax: worst_units(c, "columns", ax),
    }
    if c.rank_curve is not None:
        drawn["singular_values"] = lambda ax: singular_values(c, ax)
    return drawn


def outlier_map(completion: Completion, ax: Axes | None = None) -> Axes:
    """Where the outliers are: their share of the observations in each cell of a coarse grid.

    Parameters
    ----------
    completion : rcurc_gpu.io.Completion
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
        The chosen rows and columns come first; cells without observations are grey.
    """
    from matplotlib.colors import LinearSegmentedColormap

    ax = axes_or_new(ax, 5.0, 4.2)
    c = completion
    step = _step(c.seen)
    outliers, seen = _merged(c.outlier_cells, step), _merged(c.seen, step)
    share = 100 * outliers / np.where(seen > 0, seen, np.nan)
    shades = ["#FFFFFF", "#F3B98C", VERMILLION, "#5A2200"]
    colours = LinearSegmentedColormap.from_list("outliers", shades).with_extremes(bad="#D9D9D9")
    n1, n2 = c.shape
    down, across = (n * step * k / g for n, k, g in zip(c.shape, share.shape, c.seen.shape, strict=True))
    enough = seen >= min(_PER_CELL / 3, seen.max())  # one of two observations is no share to scale the colours by
    most = max(float(share[enough].max()), 1.0)
    extent = (-0.5, across - 0.5, down - 0.5, -0.5)
    image = ax.imshow(share, cmap=colours, vmin=0, vmax=most, extent=extent, interpolation="nearest", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="observations that are outliers (%)", pad=0.02)
    ax.set_xlim(-0.5, n2 - 0.5)  # the last cells may be narrower than the others
    ax.set_ylim(n1 - 0.5, -0.5)
    ax.set_xlabel(f"column ({len(c.cur.cols):,} of {n2:,} chosen, these first)")
    ax.set_ylabel(f"row ({len(c.cur.rows):,} of {n1:,} chosen, these first)")
    ax.set_title(f"{len(c.outliers):,} outliers ({len(c.outliers) / c.n_obs:.1%}); grey: nothing seen", fontsize=10)
    return ax


def _step(seen: np.ndarray) -> int:
    """How many cells to merge, down and across, for a cell with observations to have enough of them for a share."""
    typical = float(seen[seen > 0].mean()) if seen.any() else 1.0
    return min(int(np.ceil(np.sqrt(_PER_CELL / typical))), max(min(seen.shape) // 10, 1))


def _merged(cells: np.ndarray, step: int) -> np.ndarray:
    """Sums over squares of `step` x `step` cells."""
    down = np.add.reduceat(cells, np.arange(0, cells.shape[0], step), axis=0)
    return np.add.reduceat(down, np.arange(0, cells.shape[1], step), axis=1)


def unit_fit(completion: Completion, axis: str, ax: Axes | None = None) -> Axes:
    """The share of observations that fit the result, against how many there are, for each row or column.

    Few observations of which few fit are what makes a row unreliable, so that corner is where to look.

    Parameters
    ----------
    completion : rcurc_gpu.io.Completion
    axis : {"rows", "columns"}
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
    """
    check_choice("axis", axis, ("rows", "columns"))
    ax = axes_or_new(ax)
    units = completion.rows if axis == "rows" else completion.columns
    share = 100 * units.n_inliers / np.maximum(units.n_obs, 1)  # one without observations is drawn at 0
    good, bad = np.flatnonzero(units.status == 0), units.undetermined
    style: dict[str, Any] = {"rasterized": True, "linestyle": "none"}
    ax.plot(units.n_obs[good], share[good], ".", color=BLUE, alpha=0.35, label=f"determined ({good.size:,})", **style)
    if bad.size:
        ax.plot(units.n_obs[bad], share[bad], "x", color=VERMILLION, label=f"not determined ({bad.size:,})", **style)
    draw_median(ax, share[good])
    least = 20 * np.floor((share.min() - 15) / 20)  # all shares are seen, and room for the legend is left
    ax.set_ylim(max(least, -4), 104)
    if units.n_obs.max() > 50 * max(np.median(units.n_obs), 1):
        ax.set_xscale("symlog", linthresh=10)
    else:
        ax.set_xlim(0, 1.05 * max(units.n_obs.max(), 1))
    ax.set(xlabel=f"observations of the {axis[:-1]} in the fit", ylabel="observations that fit (%)")
    ax.set_title(f"how far each {axis[:-1]} can be trusted", fontsize=10)
    return finish(ax, loc="lower right")


def worst_units(completion: Completion, axis: str, ax: Axes | None = None) -> Axes:
    """The rows or columns of which the largest share of the observations does not fit, by label.

    Parameters
    ----------
    completion : rcurc_gpu.io.Completion
    axis : {"rows", "columns"}
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
        At most twelve bars; those with fewer than five observations are left out.
    """
    check_choice("axis", axis, ("rows", "columns"))
    ax = axes_or_new(ax)
    c = completion
    units, names = (c.rows, c.labels.row_names) if axis == "rows" else (c.columns, c.labels.col_names)
    share = 100 * (1 - units.n_inliers / np.maximum(units.n_obs, 1))
    share[units.n_obs < _FEWEST] = -1
    worst = np.argsort(-share, kind="stable")[:_WORST]
    worst = worst[share[worst] >= 0]
    at = np.arange(len(worst))
    ax.barh(at, share[worst], color=[BLUE if units.status[k] == 0 else VERMILLION for k in worst], height=0.7)
    for y, k in enumerate(worst):
        ax.text(share[k], y, f" {units.n_obs[k] - units.n_inliers[k]:,} of {units.n_obs[k]:,}", va="center", fontsize=8)
    judged = share[share >= 0]
    typical = float(np.median(judged)) if judged.size else 0.0
    ax.axvline(typical, color=GREY, linestyle="--", linewidth=1.2)
    ax.set_yticks(at, [_short(str(name)) for name in names(worst)], fontsize=8)
    ax.set_ylim(_WORST - 0.4, -0.6)
    ax.set_xlim(0, 1.25 * max(float(share[worst].max()) if len(worst) else 0.0, 1.0))
    ax.set_xlabel("observations that do not fit (%); dashed: median")
    mark = " (orange: not determined)" if units.status[worst].any() else ""
    ax.set_title(f"the {axis} that fit worst{mark}", fontsize=10)
    return ax


def _short(label: str) -> str:
    # a dollar sign would begin a formula
    return (label if len(label) <= _LONGEST else f"{label[: _LONGEST - 3]}...").replace("$", r"\$")
