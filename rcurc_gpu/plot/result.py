"""Pictures of a result that was kept in a file (`rcurc_gpu.io.Completion`), with the user's labels.

As in `plot`, every function draws on the Axes it is given, or on one of a new Figure, and returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..backends import to_numpy
from ..errors import check_choice
from ..io import Completion, Observations
from .figures import BLUE, GREY, ORANGE, VERMILLION, axes_or_new, draw_median, finish, new_figure, titled
from .panels import convergence, singular_values, strengths

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..result import Result

_WORST = 12  # bars
_LONGEST = 22  # characters of a label in a picture
_PER_CELL = 30  # observations that make a share
_FEWEST = 5  # observations that a row needs to be called a bad one


def result_figure(completion: Completion) -> Figure:
    """Six panels: intervals (without noise: how the solve went), the rank, where outliers are, and how far rows and columns
    can be trusted.

    Parameters
    ----------
    completion : rcurc_gpu.io.Completion

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> kept = rg.io.Completion.of(rg.rcurc(problem.samples))  # or rg.io.load_result
    >>> rg.plot.result_figure(kept).savefig("result.png")
    """
    figure = new_figure(15.5, 8.4, dpi=110, wspace=0.06, hspace=0.08)
    axes = figure.subplots(2, 3)
    for ax, draw in zip(axes.flat, list(pictures(completion).values())[:6], strict=False):
        draw(ax)
    return titled(figure, completion, f"{completion.n_obs:,} observations, rank {completion.rank}", 12)


def pictures(completion: Completion) -> dict[str, Callable[[Axes | None], Axes]]:
    """Every picture that can be drawn of a result, by name: functions that take an Axes or None.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> kept = rg.io.Completion.of(rg.rcurc(problem.samples))
    >>> for name, draw in rg.plot.pictures(kept).items():
    ...     draw(None).figure.savefig(f"{name}.png")
    """
    c = completion
    rank: Any = strengths if c.has_noise_model else singular_values
    # the most telling six come first; with noise the core is only where the noise model begins
    noisy = c.has_noise_model and c.has_intervals and len(c.some_observed) > 0
    first: Any = intervals if noisy else convergence
    drawn: dict[str, Callable[[Axes | None], Axes]] = {
        first.__name__: lambda ax: first(c, ax),
        "rank": lambda ax: rank(c, ax),
        "outlier_map": lambda ax: outlier_map(c, ax),
        "row_fit": lambda ax: unit_fit(c, "rows", ax),
        "column_fit": lambda ax: unit_fit(c, "columns", ax),
        "worst_rows": lambda ax: worst_units(c, "rows", ax),
        "worst_columns": lambda ax: worst_units(c, "columns", ax),
    }
    if rank is not singular_values:
        drawn["singular_values"] = lambda ax: singular_values(c, ax)
    if noisy:
        drawn["convergence"] = lambda ax: convergence(c, ax)
    return drawn


def intervals(
    result: Result | Completion, ax: Axes | None = None, observed: tuple[Any, Any, Any] | None = None, level: float = 0.95
) -> Axes:
    """Observations less what was predicted of them, with the interval in which each should lie.

    Parameters
    ----------
    result : Result or rcurc_gpu.io.Completion
    ax : matplotlib.axes.Axes, optional
    observed : (i, j, value), optional
        Rows, columns and values (k,) of observations. Those that the solve did not have show how true the intervals are. By
        default a few hundred of those it had, to which it is somewhat nearer.
    level : float in (0, 1)
        Of the intervals.

    Returns
    -------
    matplotlib.axes.Axes
        Outliers are not counted. What lies beyond the picture is a triangle at its edge.

    Raises
    ------
    ValueError
        If there are no intervals (``intervals=False``), or no observations (a file of version 0.1).

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((200, 150), 2, noise=0.1, n_rows=90, n_cols=90, rate=0.6, seed=0)
    >>> ax = rg.plot.intervals(rg.rcurc(problem.samples))
    >>> ax.figure.savefig("intervals.png")
    """
    i, j, value = _observations(result) if observed is None else (np.asarray(x) for x in observed)
    if value.size == 0:
        raise ValueError("there are no observations to draw: pass some as observed=(i, j, value)")
    lower, upper = (to_numpy(x) for x in result.interval(i, j, level))
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    residual = value - middle
    ax = axes_or_new(ax)
    name = f"{100 * level:g} % interval"
    ax.vlines(middle, -half, half, color=GREY, linewidth=0.9, alpha=0.5, label=name, rasterized=True)
    edge = 1.7 * max(float(np.nanquantile(half, 0.95)), np.finfo(float).tiny)
    outlying, inside = np.abs(residual) >= result.threshold, np.abs(residual) <= half
    for which, colour, label in (
        (inside & ~outlying, BLUE, "inside"),
        (~inside & ~outlying, ORANGE, "outside"),
        (outlying, VERMILLION, "outlier"),
    ):
        _draw_residuals(ax, middle[which], residual[which], edge, colour, f"{label} ({which.sum():,})")
    ax.set_ylim(-edge, 1.3 * edge)  # with room for the legend
    n = int(np.sum(~outlying))
    ax.set(xlabel="predicted value", ylabel="observed - predicted (unit of the data)")
    share = f"{np.sum(inside & ~outlying) / n:.1%}" if n else "none"
    ax.set_title(f"{share} of {n:,} observations inside, outliers apart", fontsize=10)
    return finish(ax, loc="upper left", ncols=4, columnspacing=1.0, handletextpad=0.3)


def _observations(result: Result | Completion) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Some of those that the solve had."""
    some = result.some_observed if isinstance(result, Completion) else Observations.of(result.samples)
    return some.i, some.j, some.value


def _draw_residuals(ax: Axes, x: np.ndarray, y: np.ndarray, edge: float, colour: str, label: str) -> None:
    """A dot for each, or a triangle at the edge of the picture."""
    if not x.size:
        return
    for which, marker, size in ((np.abs(y) <= edge, "o", 2.5), (y > edge, "^", 4), (y < -edge, "v", 4)):
        ax.plot(
            x[which], np.clip(y[which], -0.97 * edge, 0.97 * edge), marker, color=colour, markersize=size, linestyle="none"
        )
    ax.plot([], [], "o", color=colour, markersize=4, label=label)


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

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> kept = rg.io.Completion.of(rg.rcurc(problem.samples))  # or rg.io.load_result
    >>> ax = rg.plot.outlier_map(kept)
    >>> ax.figure.savefig("outlier_map.png")
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

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> kept = rg.io.Completion.of(rg.rcurc(problem.samples))  # or rg.io.load_result
    >>> ax = rg.plot.unit_fit(kept, "columns")
    >>> ax.figure.savefig("unit_fit.png")
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

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> kept = rg.io.Completion.of(rg.rcurc(problem.samples))  # or rg.io.load_result
    >>> ax = rg.plot.worst_units(kept, "rows")
    >>> ax.figure.savefig("worst_units.png")
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
