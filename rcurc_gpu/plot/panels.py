"""Pictures of samples and results. Needs matplotlib (the extra ``plot``), which is imported when a picture is drawn.

Every function draws on the Axes it is given, or on one of a new Figure, and returns it. Nothing here touches pyplot:
there is no global state, no display is needed, and ``ax.figure.savefig("picture.png")`` writes the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import check_choice
from ..samples import Cells, chosen_first, seen
from .figures import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, axes_or_new, draw_median, finish, new_figure, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..io import Completion
    from ..result import Result
    from ..samples import CrossSamples
    from ..testing import SyntheticProblem

_EXACT = 400  # matrices up to this size are drawn entry by entry
_MOST_POINTS = 20_000  # more dots than this only make a picture slow
_SMALL_LEGEND: dict[str, Any] = {"fontsize": 8, "frameon": False, "handlelength": 1.2, "columnspacing": 1.2}


# ---------------------------------------------------------------- figures


def demo_figure(problem: SyntheticProblem, result: Result) -> Figure:
    """What was seen, how the solve went, and how far its columns can be trusted, side by side.

    Parameters
    ----------
    problem : SyntheticProblem
    result : Result
        A solve of ``problem.samples`` (on any device).

    Returns
    -------
    matplotlib.figure.Figure
        Three panels.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> result = rg.rcurc(problem.samples)
    >>> rg.plot.demo_figure(problem, result).savefig("demo.png")
    """
    figure = new_figure(13.5, 4.2, dpi=110, wspace=0.08)
    axes = figure.subplots(1, 3, width_ratios=[1.0, 1.15, 1.15])
    sampling_pattern(problem.samples, axes[0])
    convergence(result, axes[1], truth=problem.relative_error(result.cur, undetermined="skip"))
    column_diagnostics(result, axes[2])
    return titled(figure, result, f"rank {result.rank}, {result.device}", 11)


# ---------------------------------------------------------------- what was seen


def sampling_pattern(samples: CrossSamples, ax: Axes | None = None, order: str = "auto") -> Axes:
    """Which entries of the matrix were seen.

    A matrix of at most 400 x 400 is drawn entry by entry, coloured by whether the entry lies in the chosen rows, the
    chosen columns or both. A larger one is drawn as the share of entries seen in each cell of a coarse grid.

    Parameters
    ----------
    samples : CrossSamples
        Of an (n1, n2) matrix, on any device.
    ax : matplotlib.axes.Axes, optional
    order : {"auto", "given", "chosen first"}
        Rows and columns as they are, or the chosen ones first. By default as they are in small matrices; in large ones
        first, because rows scattered over a coarse grid blur into an even grey.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> ax = rg.plot.sampling_pattern(problem.samples)
    >>> ax.figure.savefig("seen.png")
    """
    check_choice("order", order, ("auto", "given", "chosen first"))
    ax = axes_or_new(ax, 4.4, 4.2)
    exact = max(samples.shape) <= _EXACT
    sort = order == "chosen first" or (order == "auto" and not exact)
    pairs = zip((samples.rows, samples.cols), samples.shape, strict=True)
    places = (chosen_first(chosen, n) if sort else np.arange(n) for chosen, n in pairs)
    (_draw_entries if exact else _draw_density)(ax, samples, *places)
    hint = ", chosen first" if sort else ""
    ax.set_xlabel(f"column ({len(samples.cols):,} of {samples.shape[1]:,} chosen{hint})")
    ax.set_ylabel(f"row ({len(samples.rows):,} of {samples.shape[0]:,} chosen{hint})")
    ax.set_title(f"{samples.n_obs / (samples.shape[0] * samples.shape[1]):.1%} of the entries seen", fontsize=10)
    return ax


def _draw_entries(ax: Axes, samples: CrossSamples, row_place: np.ndarray, col_place: np.ndarray) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    kinds = ["not seen", "seen, chosen row", "seen, chosen column", "seen, both"]
    colours = ["#FFFFFF", BLUE, ORANGE, BLACK]
    in_rows, in_cols = (np.isin(np.arange(n), at) for n, at in zip(samples.shape, (samples.rows, samples.cols), strict=True))
    image = np.zeros(samples.shape, dtype=np.int8)
    for i, j, sign in seen(samples):
        if sign > 0:
            image[row_place[i], col_place[j]] = 1 * in_rows[i] + 2 * in_cols[j]
    ax.imshow(image, cmap=ListedColormap(colours), vmin=-0.5, vmax=3.5, interpolation="nearest", aspect="auto")
    handles = [Patch(facecolor=colour, edgecolor=GREY, label=kind) for colour, kind in zip(colours, kinds, strict=True)]
    # below the labels of the axis: nothing of the pattern is hidden
    ax.legend(handles=handles[1:], loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, **_SMALL_LEGEND)


def _draw_density(ax: Axes, samples: CrossSamples, row_place: np.ndarray, col_place: np.ndarray) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    cells = Cells.of(row_place, col_place)
    share = 100 * cells.count_seen(samples) / cells.area
    white_to_blue = LinearSegmentedColormap.from_list("seen", ["#FFFFFF", BLUE, "#00213A"])
    n1, n2 = samples.shape
    extent = (-0.5, n2 - 0.5, n1 - 0.5, -0.5)
    image = ax.imshow(share, cmap=white_to_blue, vmin=0, extent=extent, interpolation="nearest", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="entries seen (%)", pad=0.02)


# ---------------------------------------------------------------- how the solve went


def convergence(
    result: Result | Completion, ax: Axes | None = None, truth: float | Sequence[float] | None = None, x: str = "iteration"
) -> Axes:
    """e_k and the threshold over the iterations of the core, on a logarithmic axis.

    Parameters
    ----------
    result : Result or rcurc_gpu.io.Completion
    ax : matplotlib.axes.Axes, optional
    truth : float or sequence of float (n_iter,), optional
        The true relative error, where it is known: of the result, drawn as a level, or of every iteration.
    x : {"iteration", "seconds"}
        What to draw against. The clock is read every few iterations; against seconds only those are drawn.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> ax = rg.plot.convergence(rg.rcurc(problem.samples))
    >>> ax.figure.savefig("convergence.png")
    """
    check_choice("x", x, ("iteration", "seconds"))
    ax = axes_or_new(ax)
    at, shown = _abscissa(result, x)
    errors = _positive([state.error for state in result.history])
    thresholds = _positive([state.threshold for state in result.history])
    style: dict[str, Any] = {"markersize": 3, "linewidth": 1.4}
    ax.plot(at, errors[shown], "o-", color=BLUE, label="$e_k$ (squared relative residual)", **style)
    ax.plot(at, thresholds[shown], "s--", color=ORANGE, label=r"threshold $\zeta_k$ (unit of the data)", **style)
    if truth is not None:
        values, n = _positive(truth), len(result.history)
        if values.shape not in ((), (n,)):
            raise ValueError(f"truth must be a number or one for each of the {n} iterations, got shape {values.shape}")
        if values.ndim == 1:
            ax.plot(at, values[shown], "^:", color=GREEN, label="true relative error", **style)
        elif np.isfinite(values):
            label = f"true error of the result, {values:.1e}"
            ax.axhline(float(values), color=GREEN, linewidth=1.4, linestyle=":", label=label)
    across = "iteration" if x == "iteration" else "time since the start of the solve (s)"
    ax.set(yscale="log", xlabel=across, ylabel="value (units in the legend)")
    ax.set_title(f"{result.n_iter} iterations of the core ({result.method}), {result.seconds:.2f} s in all", fontsize=10)
    return finish(ax)


def _abscissa(result: Result | Completion, x: str) -> tuple[np.ndarray, np.ndarray]:
    """Where on the x axis, and which iterations (their indices) stand there."""
    if x == "iteration":
        return np.asarray([state.iteration for state in result.history]), np.arange(len(result.history))
    seconds = np.asarray([state.seconds for state in result.history])
    # iterations between two looks at the clock carry the time of the later look: that one's is right
    last = np.flatnonzero(np.diff(seconds, append=np.inf) > 0)
    return seconds[last], last


def _positive(values: Any) -> np.ndarray:
    """`values` as floats, NaN where a logarithmic axis has no place for them."""
    values = np.asarray(values, dtype=float)
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _whole_numbers(ax: Axes) -> None:
    """No ticks between two ranks."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


# ---------------------------------------------------------------- rank


def strengths(result: Result | Completion, ax: Axes | None = None) -> Axes:
    """How much each component adds to an entry, beside the noise.

    Parameters
    ----------
    result : Result or rcurc_gpu.io.Completion
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes
        A bar for each component. One below the noise may be well known all the same, from many entries.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> ax = rg.plot.strengths(rg.rcurc(problem.samples))
    >>> ax.figure.savefig("strengths.png")
    """
    ax = axes_or_new(ax)
    sizes, noise = np.asarray(result.strengths), float(result.noise)
    ax.bar(np.arange(1, sizes.size + 1), sizes, color=BLUE, width=0.7, label="components")
    ax.axhline(noise, color=ORANGE, linewidth=1.6, linestyle="--", label=f"noise of one observation, {noise:.3g}")
    smallest, largest = min([noise, *sizes]), max([noise, *sizes])
    if 0 < 20 * smallest < largest:
        ax.set(yscale="log", ylim=(smallest / 3, 5 * largest))  # with room for the legend
    else:
        ax.set_ylim(0, 1.25 * largest)
    ax.set_xlim(0.3, max(sizes.size, 1) + 0.7)
    ax.set(xlabel="component", ylabel="standard deviation (unit of the data)")
    beside = " beside offsets" if result.cur.rank > result.rank else ""
    found = f"{sizes.size or 'no'} component{'' if sizes.size == 1 else 's'}"
    ax.set_title(f"{found}{beside} supported by the data", fontsize=10)
    _whole_numbers(ax)
    return finish(ax)


def singular_values(result: Result | Completion, ax: Axes | None = None) -> Axes:
    """The singular values of the recovered matrix; rows and columns that could not be determined are left out.

    Parameters
    ----------
    result : Result or rcurc_gpu.io.Completion
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> ax = rg.plot.singular_values(rg.rcurc(problem.samples))
    >>> ax.figure.savefig("singular_values.png")
    """
    ax = axes_or_new(ax)
    values = result.cur.singular_values()
    ax.plot(np.arange(1, values.size + 1), _positive(values), "o-", color=BLUE, label="recovered matrix")
    ax.set_yscale("log")
    if values.size and values[0] > 0:  # two decades at least: nearly equal values should look it
        ax.set_ylim(min(max(values[-1], 1e-16 * values[0]), values[0] / 100) / 2, 2 * values[0])
    _whole_numbers(ax)
    ax.set(xlabel="number", ylabel="singular value (unit of the data, log scale)")
    return finish(ax)


# ---------------------------------------------------------------- trust


def column_diagnostics(result: Result | Completion, ax: Axes | None = None) -> Axes:
    """The share of each column's observations that fit the result, with undetermined columns marked.

    Parameters
    ----------
    result : Result or rcurc_gpu.io.Completion
        Of an (n1, n2) matrix: n2 dots. Of more than 20000 determined columns an even selection is drawn; of the
        undetermined ones all.
    ax : matplotlib.axes.Axes, optional

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> ax = rg.plot.column_diagnostics(rg.rcurc(problem.samples))
    >>> ax.figure.savefig("column_diagnostics.png")
    """
    ax = axes_or_new(ax)
    d = result.columns
    # a column without observations has no share; it is undetermined, and drawn at 0
    share = 100 * d.n_inliers / np.maximum(d.n_obs, 1)
    good, bad = np.flatnonzero(d.status == 0), d.undetermined
    shown = good[:: -(-good.size // _MOST_POINTS) or 1]
    label = f"determined ({good.size:,})" + (f", {shown.size:,} shown" if shown.size < good.size else "")
    ax.plot(shown, share[shown], ".", color=BLUE, markersize=3, alpha=0.6, label=label, rasterized=True)
    if bad.size:
        ax.plot(bad, share[bad], "x", color=VERMILLION, markersize=5, label=f"undetermined ({bad.size:,})")
    draw_median(ax, share[good])
    ax.set(ylim=(-4, 104), xlabel="column", ylabel="observations that fit (%)")
    ax.set_title("how far each column can be trusted", fontsize=10)
    return finish(ax)
