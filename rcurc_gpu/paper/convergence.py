"""Figure 2: e_k and the true error of Algorithm 1 against time, for several ranks and sizes of outliers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..api import rcurc
from ..backends import to_numpy
from ..core import IterationState
from ..errors import check_count
from ..progress import Progress
from ..result import CURMatrix, Result
from ..solve import PAPER_GAMMA
from ..testing import SyntheticProblem, synthetic
from .records import Record, Save, fill, new_record, quietly, run_seed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FIXED_C, _FIXED_RANK = 10.0, 5  # of the panels in which the other varies
TIMED = 5  # runs with a clock. From run to run it differs by some percent, and it costs a third of the whole experiment
LINEAR = 0.95  # R^2 from which a curve counts as a line


@dataclass(frozen=True)
class ConvergenceSettings:
    """The paper's synthetic problem, `size` x `size`; the defaults are a quick version of it.

    Attributes
    ----------
    size, runs : int
    ranks : tuple of int
        With outliers of size c = 10.
    factors : tuple of float
        Sizes of outliers c, at rank 5. The paper's text names neither its ranks nor its c.
    alpha, share, rate : float
        Share of outliers; of rows and of columns chosen; of their entries seen.
    seed : int
    device : str
    """

    size: int = 1500
    runs: int = 3
    ranks: tuple[int, ...] = (5, 10, 15)
    factors: tuple[float, ...] = (1.0, 5.0, 10.0, 20.0, 50.0)
    alpha: float = 0.2
    share: float = 0.3
    rate: float = 0.25
    seed: int = 0
    device: str = "auto"


FULL: dict[str, Any] = {"size": 3000, "runs": 50, "ranks": (5, 10, 15, 20, 25)}  # the paper's


def compute(
    settings: ConvergenceSettings, record: Record | None = None, save: Save = None, show: Progress | None = None
) -> Record:
    """Solve every problem by Algorithm 1 and by ``method="fast"``.

    Parameters
    ----------
    settings : ConvergenceSettings
    record : dict, optional
        An unfinished record of the same settings, to go on from.
    save, show :
        As in `records.fill`.

    Returns
    -------
    dict
        With runs of ``e`` (e_k), ``seconds`` (of the first five runs, else None) and ``true_error`` (relative, over the
        whole matrix) for each iteration of Algorithm 1, and the end of ``fast``.
    """
    check_count("runs", settings.runs)
    record = new_record("fig2", settings) if record is None else record
    return fill(record, tasks(settings), lambda task: _measure(settings, task), save, show)


def tasks(settings: ConvergenceSettings) -> list[Record]:
    """One for each problem: all of the first run, then all of the second."""
    problems = [(rank, _FIXED_C) for rank in settings.ranks]
    problems += [(_FIXED_RANK, float(c)) for c in settings.factors if (_FIXED_RANK, float(c)) not in problems]
    return [{"run": run, "rank": rank, "c": c} for run in range(settings.runs) for rank, c in problems]


def _measure(settings: ConvergenceSettings, task: Record) -> Record:
    n, rank = settings.size, task["rank"]
    chosen = max(round(settings.share * n), 1)
    seed = run_seed(settings.seed, task["run"])
    problem = synthetic((n, n), rank, settings.alpha, task["c"], 0.0, chosen, chosen, settings.rate, seed)
    _compile(rank, settings.device)
    truth, errors = Truth(problem), list[float]()
    watched = _solve(problem, rank, "paper", settings.device, lambda state: errors.append(truth.error(state.cur())))
    # The clock is that of a solve that nobody watches, by the same iterates: watched, groups of iterations fall apart.
    timed = _solve(problem, rank, "paper", settings.device) if task["run"] < TIMED else None
    fast = _solve(problem, rank, "fast", settings.device)
    # the two may differ by an iteration, where rounding decides
    count = watched.n_iter if timed is None else min(timed.n_iter, watched.n_iter)
    return {
        "seed": seed,
        "e": [state.error for state in watched.history[:count]],
        "seconds": None if timed is None else [state.seconds for state in timed.history[:count]],
        "true_error": errors[:count],
        "converged": watched.converged,
        "kernels": watched.kernels,
        "device": watched.device,
        "fast": {
            "iterations": fast.n_iter,
            "seconds": fast.seconds,
            "true_error": problem.relative_error(fast.cur),
            "converged": fast.converged,
        },
    }


class Truth:
    """Relative errors over the whole matrix, as by `SyntheticProblem.relative_error`, for many matrices.

    That takes four QR decompositions each time, which are slow where threads of BLAS have to wait for a busy core.
    """

    def __init__(self, problem: SyntheticProblem) -> None:
        (self.Q, R), (self.P, S) = np.linalg.qr(problem.W), np.linalg.qr(problem.V)
        self.core = R @ S.T  # X = Q core P^T
        self.size = float(np.linalg.norm(self.core))

    def error(self, matrix: CURMatrix) -> float:
        """``||matrix - X||_F / ||X||_F``, from the factors."""
        left, right = to_numpy(matrix.left), to_numpy(matrix.right)
        a, b = self.Q.T @ left, self.P.T @ right
        e, f = left - self.Q @ a, right - self.P @ b
        ee, ff = e.T @ e, f.T @ f
        # matrix = (Q a + e) (P b + f)^T, of which the four products are orthogonal to each other
        squares = (np.sum((a @ b.T - self.core) ** 2), np.sum((b @ ee) * b), np.sum((a @ ff) * a), np.sum(ee * ff))
        return float(np.sqrt(sum(squares)) / self.size)


def _solve(
    problem: SyntheticProblem, rank: int, method: str, device: str, callback: Callable[[IterationState], Any] | None = None
) -> Result:
    options = {"method": method, "undetermined": "keep", "device": device, "callback": callback}
    return quietly(rcurc, problem.samples, rank, **options)


@cache
def _compile(rank: int, device: str) -> None:
    """Solve something small once: kernels are compiled for each rank when they are first used, and that is not measured."""
    chosen = 4 * rank + 40
    small = synthetic((2 * chosen, 2 * chosen), rank, 0.1, 10.0, 0.0, chosen, chosen, 0.6, 0)
    for method in ("paper", "fast"):
        _solve(small, rank, method, device)


# ---------------------------------------------------------------- what it shows


def summarize(record: Record) -> Record:
    """Curves averaged over the runs, and how straight they are.

    Returns
    -------
    dict
        ``curves``: for each problem the ``series`` (at the iterations that all of its runs have, the median time and the
        geometric mean and quartiles of e_k and of the true error); the slopes of their log10 per iteration by least
        squares over all of these iterations, with R^2; the lowest R^2 of a single run; and the end of ``fast``.
        ``linear``: whether every curve of e_k falls on a line, that is with R^2 of at least 0.95.
    """
    settings = record["settings"]
    groups: dict[tuple[int, float], list[Record]] = {}
    for run in record["runs"]:
        groups.setdefault((run["rank"], run["c"]), []).append(run)
    curves = [_curve(rank, c, runs) for (rank, c), runs in groups.items()]
    return {
        "runs": len(record["runs"]) // max(len(groups), 1),
        "of_runs": settings["runs"],
        "curves": curves,
        "slope_of_threshold": 2 * math.log10(PAPER_GAMMA),  # of its square, which bounds e_k whatever X_k is
        "linear": all(curve["e"]["slope"] < 0 and curve["e"]["r_squared"] >= LINEAR for curve in curves),
        "average": f"geometric mean over runs; time: median, of the first {TIMED}",
    }


def _curve(rank: int, c: float, runs: list[Record]) -> Record:
    count = min(len(run["e"]) for run in runs)
    e, true_error = (_floats([run[name][:count] for run in runs]) for name in ("e", "true_error"))
    seconds = np.median([run["seconds"][:count] for run in runs if run["seconds"] is not None], axis=0).tolist()
    return {
        "rank": rank,
        "c": c,
        "runs": len(runs),
        "iterations": count,
        "seconds": seconds[-1],
        "e": _straightness(e),
        "true_error": _straightness(true_error),
        "confirmed": sum(run["converged"] for run in runs),
        "fast": {
            "seconds": float(np.median([run["fast"]["seconds"] for run in runs])),
            "true_error": float(_geometric_mean(_floats([run["fast"]["true_error"] for run in runs]))),
            "confirmed": sum(run["fast"]["converged"] for run in runs),
        },
        "series": {"seconds": seconds, "e": _band(e), "true_error": _band(true_error)},
    }


def _floats(values: Any) -> np.ndarray:
    """`values` as floats, NaN for None."""
    return np.asarray(values, dtype=float)


def _geometric_mean(values: np.ndarray) -> np.ndarray:
    return np.asarray(10 ** np.log10(values).mean(axis=0))


def _straightness(values: np.ndarray) -> Record:
    """How straight the runs' (runs, iterations) geometric mean is, and the worst run."""
    mean = _geometric_mean(values)
    slope, r_squared = line(np.log10(mean))
    worst = float(np.min([line(np.log10(run))[1] for run in values]))
    return {"last": float(mean[-1]), "slope": slope, "r_squared": r_squared, "worst_r_squared": worst}


def _band(values: np.ndarray) -> Record:
    low, high = 10 ** np.quantile(np.log10(values), [0.25, 0.75], axis=0)
    return {"mean": _geometric_mean(values).tolist(), "low": low.tolist(), "high": high.tolist()}


def line(y: np.ndarray) -> tuple[float, float]:
    """Slope per step and R^2 of the least-squares line through `y` (n,); NaN for fewer than three, or if one is NaN."""
    if len(y) < 3 or not np.isfinite(y).all():
        return float("nan"), float("nan")
    k = np.arange(len(y))
    slope, intercept = np.polyfit(k, y, 1)
    rest, all_of_it = np.sum((y - slope * k - intercept) ** 2), np.sum((y - y.mean()) ** 2)
    return float(slope), float(1 - rest / all_of_it) if all_of_it > 0 else float("nan")


def is_good(summary: Record) -> bool:
    """Whether every curve of e_k is a falling line."""
    return bool(summary["linear"])


def words(record: Record, summary: Record) -> str:
    """Figure 2 in words: a line for each curve, and what they show."""
    settings, first = record["settings"], record["runs"][0]
    n, runs = settings["size"], settings["runs"]
    lines = [
        f"Figure 2:   {n:,} x {n:,}, {100 * settings['alpha']:g} % outliers, "
        f"{'one run' if runs == 1 else f'{runs} runs'} of each problem, on {first['device']} ({first['kernels']})",
        "",
        '              Algorithm 1                                                method="fast"',
        "   r     c    steps    time  true error   slope of log10 e_k     R^2    time  true error",
    ]
    for curve in summary["curves"]:
        e, fast = curve["e"], curve["fast"]
        lines.append(
            f"{curve['rank']:>4}{curve['c']:>6g}{curve['iterations']:>9}{curve['seconds']:>6.2f} s"
            f"{_number(curve['true_error']['last'], '.1e'):>12}{_number(e['slope'], '.4f'):>13} per step"
            f"{_number(e['r_squared'], '.4f'):>8}{fast['seconds']:>6.2f} s{_number(fast['true_error'], '.1e'):>12}"
        )
    known = [curve["e"]["worst_r_squared"] for curve in summary["curves"] if curve["e"]["worst_r_squared"] is not None]
    worst = f"; lowest R^2 of a single run: {min(known):.4f}" if known else ""
    verdict = "for every curve" if summary["linear"] else "NOT for every curve"
    lines += [
        "",
        f"Linear convergence of e_k (falling, R^2 of at least {LINEAR:g}): {verdict}{worst}.",
        f"The square of the threshold, which bounds e_k, falls by {-summary['slope_of_threshold']:.4f} per step.",
        f"Times are medians (of Algorithm 1: over the first {TIMED} runs), errors geometric means.",
    ]
    return "\n".join(lines)


def _number(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)


# ---------------------------------------------------------------- picture


def draw(record: Record) -> Figure:
    """e_k above, the true error below, against time; the rank varies on the left and c on the right."""
    from ..plot import new_figure

    summary = summarize(record)
    figure = new_figure(9.5, 7.2, dpi=200)
    axes = figure.subplots(2, 2, sharey="row", sharex="col")
    by_rank = [curve for curve in summary["curves"] if curve["c"] == _FIXED_C]
    by_c = sorted((curve for curve in summary["curves"] if curve["rank"] == _FIXED_RANK), key=lambda curve: curve["c"])
    panels = (
        (by_rank, "rank", "$r$ = {rank}", f"$c$ = {_FIXED_C:g}, rank varies"),
        (by_c, "c", "$c$ = {c:g}", f"$r$ = {_FIXED_RANK}, size of the outliers varies"),
    )
    for column, (curves, name, label, title) in enumerate(panels):
        shown = [curve for curve in curves if curve[name] in record["settings"]["ranks" if name == "rank" else "factors"]]
        _panel(axes[0, column], shown, "e", label)
        _panel(axes[1, column], shown, "true_error", None)
        axes[0, column].set_title(title, fontsize=12, pad=26)
        axes[1, column].set_xlabel("time since the start of the solve (s)", fontsize=11)
    axes[0, 0].set_ylabel("$e_k$ (squared relative residual)", fontsize=11)
    axes[1, 0].set_ylabel("true relative error over the matrix", fontsize=11)
    _explain(axes[1, 1])
    d, runs = record["settings"]["size"], summary["runs"]
    average = f"geometric mean of {runs} runs, band: quartiles" if runs > 1 else "one run"
    figure.suptitle(
        f"RCURC (Algorithm 1), d = {d:,}, {100 * record['settings']['alpha']:g} % outliers; {average}", fontsize=12
    )
    return figure


def _panel(ax: Axes, curves: list[Record], what: str, label: str | None) -> None:
    from ..plot import BLACK, BLUE, GREEN, ORANGE, VERMILLION

    styles = zip((BLUE, VERMILLION, GREEN, ORANGE, BLACK), ("o", "s", "^", "D", "v"), strict=True)
    for curve, (colour, marker) in zip(curves, styles, strict=False):
        seconds, values = curve["series"]["seconds"], curve["series"][what]
        text = None if label is None else label.format(**curve)
        every = max(len(seconds) // 10, 1)
        ax.plot(
            seconds, values["mean"], color=colour, marker=marker, markevery=every, markersize=4.5, linewidth=1.5, label=text
        )
        if curve["runs"] > 1:
            ax.fill_between(seconds, values["low"], values["high"], color=colour, alpha=0.2, linewidth=0)
        if what == "true_error":
            fast = curve["fast"]
            ax.plot(
                [fast["seconds"]], [fast["true_error"]], "*", color=colour, markersize=13, markeredgecolor="white", zorder=3
            )
    ax.set_yscale("log")
    ax.set_xlim(left=0, auto=True)
    ax.grid(True, color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=10)
    if label is not None and curves:
        # above the panel: there is no corner that a curve cannot come through
        above: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.5, 0.99), "ncols": len(curves)}
        ax.legend(fontsize=10, frameon=False, handlelength=1.5, handletextpad=0.4, columnspacing=1.0, **above)
        least = min(curve["e"]["r_squared"] for curve in curves)
        text = f"lines through $\\log_{{10}}e_k$ by iteration:\n$R^2 \\geq {math.floor(1e4 * least) / 1e4:.4f}$"
        ax.text(0.98, 0.97, text, transform=ax.transAxes, ha="right", va="top", fontsize=9)


def _explain(ax: Axes) -> None:
    """Say what the marks are."""
    from matplotlib.lines import Line2D

    from ..plot import GREY

    handles = [
        Line2D([], [], color=GREY, linewidth=1.5, label="Algorithm 1, every iteration"),
        Line2D([], [], color=GREY, marker="*", markersize=12, linestyle="none", label='end of method="fast"'),
    ]
    ax.legend(handles=handles, fontsize=10, framealpha=0.9, loc="lower right")
