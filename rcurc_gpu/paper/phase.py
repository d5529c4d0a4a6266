"""Where recovery begins and ends: observations per column against outliers. The paper has no such figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..api import rcurc
from ..errors import check_count
from ..progress import Progress
from ..testing import SyntheticProblem, synthetic
from .records import Record, Save, fill, new_record, quietly, run_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHODS = ("paper", "fast")


@dataclass(frozen=True)
class PhaseSettings:
    """A grid of synthetic problems, `size` x `size`.

    Attributes
    ----------
    size, rank : int
    c : float
        Size of the outliers, in units of mean|X|.
    share : float
        Of the rows and of the columns that is chosen.
    observations : tuple of int
        Seen in each column of R (and in each row of C), on average.
    alphas : tuple of float
        Shares of outliers.
    trials : int
        Problems for each cell of the grid.
    success : float
        The relative error over the whole matrix that counts as recovery; also what `rcurc` is asked for as `accuracy`.
    seed : int
    device : str
    """

    size: int = 400
    rank: int = 4
    c: float = 10.0
    share: float = 0.3
    observations: tuple[int, ...] = tuple(range(10, 101, 10))
    alphas: tuple[float, ...] = tuple(k / 20 for k in range(11))
    trials: int = 2
    success: float = 1e-3
    seed: int = 0
    device: str = "auto"


FULL: dict[str, Any] = {"size": 600, "trials": 20, "alphas": tuple(k / 40 for k in range(23))}


def observations_for(size: int, share: float = 0.3) -> tuple[int, ...]:
    """Ten numbers of observations per column, fewer in tiny matrices, evenly up to five sixths of the chosen rows."""
    chosen = max(round(share * size), 1)
    return tuple(sorted({max(round(k * chosen / 12), 1) for k in range(1, 11)}))


def compute(
    settings: PhaseSettings, record: Record | None = None, save: Save = None, show: Progress | None = None
) -> Record:
    """Solve all problems of the grid by both methods.

    Parameters
    ----------
    settings : PhaseSettings
    record : dict, optional
        An unfinished record of the same settings, to go on from.
    save, show :
        As in `records.fill`.

    Returns
    -------
    dict
        With a run for each problem: ``error`` (relative, over the whole matrix, doubtful rows and columns included) and
        ``converged`` by method.
    """
    check_count("trials", settings.trials)
    most = max(round(settings.share * settings.size), 1)
    for observations in settings.observations:
        check_count("observations", observations, 1, most)
    record = new_record("phase", settings) if record is None else record
    return fill(record, tasks(settings), lambda task: _measure(settings, task), save, show)


def tasks(settings: PhaseSettings) -> list[Record]:
    """One for each problem: the whole grid once, then again."""
    return [
        {"trial": trial, "alpha": float(alpha), "observations": observations}
        for trial in range(settings.trials)
        for alpha in settings.alphas
        for observations in settings.observations
    ]


def _measure(settings: PhaseSettings, task: Record) -> Record:
    n = settings.size
    chosen = max(round(settings.share * n), 1)
    seed = run_seed(settings.seed, task["trial"], round(1e6 * task["alpha"]), task["observations"])
    rate = task["observations"] / chosen
    problem = synthetic((n, n), settings.rank, task["alpha"], settings.c, 0.0, chosen, chosen, rate, seed)
    return {"seed": seed, **{method: _outcome(settings, problem, method) for method in METHODS}}


def _outcome(settings: PhaseSettings, problem: SyntheticProblem, method: str) -> Record:
    options = {"method": method, "accuracy": settings.success, "undetermined": "keep", "device": settings.device}
    result = quietly(rcurc, problem.samples, settings.rank, **options)
    return {"error": problem.relative_error(result.cur), "converged": result.converged, "cause": result.cause}


# ---------------------------------------------------------------- what it shows


def summarize(record: Record) -> Record:
    """Rates by cell and, over all of them, how often a result was confirmed that was wrong.

    Returns
    -------
    dict
        For each method ``success``, ``confirmed`` and ``wrongly_confirmed``, nested lists (alphas, observations) of
        shares (null where nothing was tried) and, of the last, numbers; and their totals.
    """
    s = record["settings"]
    shape = (len(s["alphas"]), len(s["observations"]))
    at = {(a, k): (i, j) for i, a in enumerate(s["alphas"]) for j, k in enumerate(s["observations"])}
    cells = [at[run["alpha"], run["observations"]] for run in record["runs"]]

    def counted(which: Any) -> np.ndarray:
        count = np.zeros(shape, dtype=int)
        for cell, counts in zip(cells, which, strict=True):
            count[cell] += counts
        return count

    tried = counted([True] * len(cells))
    summary: Record = {"problems": len(cells), "of_problems": s["trials"] * shape[0] * shape[1]}
    for method in METHODS:
        confirmed = np.asarray([run[method]["converged"] for run in record["runs"]], dtype=bool)
        error = np.asarray([run[method]["error"] for run in record["runs"]], dtype=float)  # None is NaN, and not recovered
        right = error <= s["success"]
        wrong = counted(confirmed & ~right)
        summary[method] = {
            "success": _shares(counted(right), tried),
            "confirmed": _shares(counted(confirmed), tried),
            "wrongly_confirmed": wrong.tolist(),
            "recovered_in_all": int(right.sum()),
            "confirmed_in_all": int(confirmed.sum()),
            "wrongly_confirmed_in_all": int(wrong.sum()),
        }
    return summary


def _shares(count: np.ndarray, tried: np.ndarray) -> list[list[float | None]]:
    pairs = zip(count.tolist(), tried.tolist(), strict=True)
    return [[c / t if t else None for c, t in zip(row, of, strict=True)] for row, of in pairs]


def is_good(summary: Record) -> bool:
    """Whether no wrong result was confirmed."""
    return not any(summary[method]["wrongly_confirmed_in_all"] for method in METHODS)


def words(record: Record, summary: Record) -> str:
    """The phase transition in words."""
    s = record["settings"]
    lines = [
        f"Phase:      {summary['problems']:,} problems of {s['size']:,} x {s['size']:,}, rank {s['rank']}: "
        f"{s['observations'][0]} to {s['observations'][-1]} observations per column, "
        f"{100 * s['alphas'][0]:g} to {100 * s['alphas'][-1]:g} % outliers"
    ]
    for method in METHODS:
        found = summary[method]
        lines.append(
            f"            {method:<6} recovered {found['recovered_in_all']:>6,} (error at most {s['success']:g}), "
            f"confirmed {found['confirmed_in_all']:>6,}, wrongly {found['wrongly_confirmed_in_all']:,}"
        )
    return "\n".join(lines)


# ---------------------------------------------------------------- picture


def draw(record: Record) -> Figure:
    """Recovered above, confirmed by `Result.converged` below; Algorithm 1 on the left, ``method="fast"`` on the right."""
    from ..plot import new_figure

    summary, s = summarize(record), record["settings"]
    figure = new_figure(9.5, 7.6, dpi=200)
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    titles = {"paper": 'Algorithm 1 (method="paper")', "fast": 'method="fast"'}
    for column, method in enumerate(METHODS):
        found = summary[method]
        image = _cells(axes[0, column], found["success"], s)
        axes[0, column].set_title(titles[method], fontsize=12)
        _cells(axes[1, column], found["confirmed"], s)
        wrong = found["wrongly_confirmed_in_all"]
        _cross_out(axes[1, column], found["wrongly_confirmed"])
        axes[1, column].set_title(
            f"confirmed: {found['confirmed_in_all']:,} of {summary['problems']:,}, wrongly: {wrong:,}", fontsize=11
        )
        axes[1, column].set_xlabel("observations per column of R and row of C", fontsize=11)
        for row in range(2):
            _edge(axes[row, column], found["success"])
    axes[0, 0].set_ylabel(f"recovered (error at most {s['success']:g})\nshare of outliers", fontsize=11)
    axes[1, 0].set_ylabel("confirmed (result.converged)\nshare of outliers", fontsize=11)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label("share of the problems", fontsize=11)
    d, rows = s["size"], round(s["share"] * s["size"])
    trials = "one problem" if s["trials"] == 1 else f"{s['trials']} problems"
    figure.suptitle(
        f"d = {d:,}, rank {s['rank']}, {rows:,} rows and columns chosen, c = {s['c']:g}; {trials} per cell; "
        "line: half recovered",
        fontsize=12,
    )
    return figure


def _cells(ax: Axes, shares: list[list[float | None]], settings: Record) -> Any:
    values = np.asarray(shares, dtype=float)
    image = ax.imshow(values, origin="lower", aspect="auto", cmap="cividis", vmin=0, vmax=1, interpolation="nearest")
    for axis, labels, step in (
        (ax.xaxis, [str(k) for k in settings["observations"]], 1 + len(settings["observations"]) // 13),
        (ax.yaxis, [f"{a:.0%}" for a in settings["alphas"]], 1 + len(settings["alphas"]) // 13),
    ):
        axis.set_ticks(list(range(len(labels)))[::step], labels[::step], fontsize=10)
    return image


def _edge(ax: Axes, shares: list[list[float | None]]) -> None:
    """A line where half of the problems are recovered."""
    values = np.asarray(shares, dtype=float)
    if min(values.shape) >= 2 and np.nanmin(values) < 0.5 <= np.nanmax(values):
        ax.contour(values, levels=[0.5], colors="#D55E00", linewidths=2)


def _cross_out(ax: Axes, wrong: list[list[int]]) -> None:
    i, j = np.nonzero(np.asarray(wrong))
    if i.size:
        ax.plot(j, i, "X", color="#D55E00", markeredgecolor="white", markersize=12, label="confirmed, but wrong")
        ax.legend(fontsize=10)
