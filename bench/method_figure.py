"""Draw docs/method.png: the core, a column outside of it, and the regression that finds the column.

``python -m bench.method_figure`` draws it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rcurc_gpu.plot import panels as plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "method.png"
SIZE, CHOSEN, COLUMN = 30, 9, 24
CORE, ROWS, OTHER, WRONG = "#0072b2", "#9ecae1", "#e6a100", "#d55e00"


def figure() -> Figure:
    fig = plot.new_figure(8, 3.1, dpi=150)
    fig.get_layout_engine().set(wspace=0.08)
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.5])
    rng = np.random.default_rng(3)
    draw_cross(left, rng)
    draw_regression(right, rng)
    return fig


def draw_cross(ax: Axes, rng: np.random.Generator) -> None:
    seen = rng.random((SIZE, SIZE)) < 0.45
    seen[[0, 1, 3, 4, 6, 7], COLUMN] = True
    for i in range(SIZE):
        for j in range(SIZE):
            if (i >= CHOSEN and j >= CHOSEN) or not seen[i, j]:
                continue
            colour = CORE if i < CHOSEN and j < CHOSEN else OTHER if j == COLUMN else ROWS
            ax.plot(j, i, "s", color=WRONG if rng.random() < 0.12 else colour, markersize=3.2)
    ax.add_patch(_box(-0.8, CHOSEN + 0.4, CORE))
    ax.add_patch(_box(COLUMN - 0.8, 1.6, OTHER))
    ax.text(CHOSEN + 0.5, CHOSEN + 1.6, "1  the core", color=CORE, fontsize=9, va="top")
    ax.annotate(
        "2  a column\noutside of it", (COLUMN, CHOSEN), (COLUMN - 9, CHOSEN + 11), fontsize=9, color="#8a6100",
        arrowprops={"arrowstyle": "-", "color": OTHER},
    )  # fmt: skip
    ax.set(xlim=(-1, SIZE), ylim=(SIZE, -1), xticks=[], yticks=[], xlabel="columns", ylabel="rows")
    ax.set_aspect("equal")


def _box(x: float, width: float, colour: str) -> object:
    from matplotlib.patches import Rectangle

    return Rectangle((x, -0.8), width, CHOSEN + 0.4, fill=False, edgecolor=colour, linewidth=1.5)


def draw_regression(ax: Axes, rng: np.random.Generator) -> None:
    """At rank 1 a column is a multiple of what the core knows: a line."""
    known = np.sort(rng.uniform(0.3, 3, 22))
    y = 1.4 * known
    wrong = rng.random(len(known)) < 0.25
    y[wrong] += rng.uniform(-4, 4, wrong.sum())
    ax.plot([0, 3.2], [0, 4.5], color=OTHER, linewidth=1.5, zorder=1, label="the column, as found")
    ax.fill_between([0, 3.2], [-0.35, 4.13], [0.35, 4.83], color=OTHER, alpha=0.2, linewidth=0, label="within the threshold")
    ax.plot(
        known[~wrong], y[~wrong], "s", color=OTHER, markersize=4.5, markeredgecolor="#8a6100", label="entries that agree"
    )
    ax.plot(known[wrong], y[wrong], "s", color=WRONG, markersize=4.5, label="taken for wrong")
    ax.set_xlabel("what the core knows of these rows", fontsize=9)
    ax.set_ylabel("the column's entries", fontsize=9)
    ax.tick_params(labelsize=8)
    ax.legend(fontsize=8, frameon=False, loc="upper left")


if __name__ == "__main__":
    figure().savefig(OUTPUT)
    print(f"{OUTPUT.name}: {OUTPUT.stat().st_size / 1000:.0f} kB")
