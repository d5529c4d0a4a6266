"""Figure 1: from uniform sampling to CUR sampling, with the same number of observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..backends import DataStream, generator
from ..errors import check_count
from ..progress import Progress
from .records import Record, new_record, run_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = ("Uniform sampling", "CCS, less concentrated", "CCS, more concentrated", "CUR sampling")
_SHARES = (1.0, 0.3, 0.15, 0.06)  # of the rows, and of the columns, that are chosen


@dataclass(frozen=True)
class PatternSettings:
    """A `size` x `size` matrix."""

    size: int = 200
    seed: int = 0


def compute(settings: PatternSettings, show: Progress | None = None) -> Record:
    """Draw the four patterns.

    Each follows Procedure 1 of the paper: rows I and columns J are chosen, then entries of R and of C are drawn in turn,
    with replacement, until as many different ones are seen as CUR sampling sees. Uniform sampling chooses all rows and
    columns; CUR sampling sees all entries of a few.

    Returns
    -------
    dict
        With a run for each pattern: ``rows`` and ``cols``, and ``seen``, the observed positions ``i * size + j``.
    """
    n = check_count("size", settings.size, 20)
    record = new_record("fig1", settings)
    few = _chosen(n, _SHARES[-1])
    total = few * (2 * n - few)  # the whole cross of CUR sampling
    for number, (title, share) in enumerate(zip(_TITLES, _SHARES, strict=True)):
        rng = generator(run_seed(settings.seed, number), DataStream.WHOLE)
        rows, cols = (np.sort(rng.choice(n, _chosen(n, share), replace=False)) for _ in range(2))
        seen = _draw(n, rows, cols, total, rng)
        record["runs"].append(
            {
                "title": title,
                "rows": rows.tolist(),
                "cols": cols.tolist(),
                "cross": len(rows) * n + n * len(cols) - len(rows) * len(cols),
                "observations": len(seen),
                "seen": seen.tolist(),
            }
        )
    return record


def _chosen(n: int, share: float) -> int:
    return max(round(share * n), 1)


def _draw(n: int, rows: np.ndarray, cols: np.ndarray, total: int, rng: np.random.Generator) -> np.ndarray:
    """The first `total` different positions of draws from R and C in turn, sorted."""
    cross = np.zeros((n, n), dtype=bool)
    cross[rows, :] = cross[:, cols] = True
    everything = np.flatnonzero(cross)
    if len(everything) == total:  # to draw the last of them would take forever
        return everything
    drawn = np.zeros(0, dtype=np.int64)
    while len(drawn) < total:
        in_rows = rng.choice(rows, total) * n + rng.integers(n, size=total)
        in_cols = rng.integers(n, size=total) * n + rng.choice(cols, total)
        drawn = np.concatenate([drawn, np.stack([in_rows, in_cols], axis=1).ravel()])
        drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
    return np.sort(drawn[:total])


def summarize(record: Record) -> Record:
    """How many observations each pattern has, and how dense they are in the cross."""
    n = record["settings"]["size"]
    return {
        "observations": record["runs"][0]["observations"],
        "share_of_matrix": record["runs"][0]["observations"] / n**2,
        "panels": [
            {
                "title": run["title"],
                "chosen": len(run["rows"]),
                "observations": run["observations"],
                "share_of_cross": run["observations"] / run["cross"],
            }
            for run in record["runs"]
        ],
    }


def is_good(summary: Record) -> bool:
    """There is nothing that could fail."""
    return True


def words(record: Record, summary: Record) -> str:
    """Figure 1 in words."""
    n = record["settings"]["size"]
    lines = [
        f"Figure 1:   {summary['observations']:,} of {n:,} x {n:,} entries ({100 * summary['share_of_matrix']:.1f} %) "
        "in every panel"
    ]
    lines += [
        f"            {panel['title']:<24}{panel['chosen']:>5,} rows and columns, "
        f"{100 * panel['share_of_cross']:.0f} % of their entries"
        for panel in summary["panels"]
    ]
    return "\n".join(lines)


def draw(record: Record) -> Figure:
    """The four patterns side by side: black is missing, colours say which block sees an entry."""
    from ..plot import BLUE, ORANGE, new_figure

    figure = new_figure(10.5, 3.25, dpi=200)
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    n = record["settings"]["size"]
    kinds = {
        "missing": "#000000",
        "seen, in a chosen row": "#56B4E9",
        "seen, in a chosen column": ORANGE,
        "seen, in both": "#FFFFFF",
        "seen, no row or column preferred": "#7FD6B8",
    }
    colours = list(kinds.values())
    axes = figure.subplots(1, len(record["runs"]))
    for letter, ax, run in zip("abcd", axes, record["runs"], strict=True):
        image = np.zeros((n, n), dtype=np.int8)
        i, j = np.divmod(np.asarray(run["seen"]), n)
        kind = 1 * np.isin(i, run["rows"]) + 2 * np.isin(j, run["cols"])
        image[i, j] = 4 if len(run["rows"]) == n else kind
        ax.imshow(image, cmap=ListedColormap(colours), vmin=-0.5, vmax=4.5, interpolation="nearest")
        ax.set_title(f"({letter}) {run['title']}", fontsize=11)
        chosen = "all" if len(run["rows"]) == n else str(len(run["rows"]))
        share = run["observations"] / run["cross"]
        ax.set_xlabel(f"{chosen} rows and columns\n{100 * share:.0f} % of their entries seen", fontsize=10)
        ax.set(xticks=[], yticks=[])
    handles = [Patch(facecolor=colour, edgecolor=BLUE, linewidth=0.5) for colour in colours]
    figure.legend(handles, list(kinds), loc="outside lower center", ncols=5, fontsize=9, frameon=False, handlelength=1.2)
    figure.suptitle(
        f"{record['runs'][0]['observations']:,} of {n:,} x {n:,} entries seen in every panel "
        f"({100 * record['runs'][0]['observations'] / n**2:.1f} %)",
        fontsize=11,
    )
    return figure
