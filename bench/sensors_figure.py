"""Draw docs/sensors.png, the picture of the tutorial on sensors: one station, its glitches, the fit and its band.

The blocks of docs/sensors.md are run, so the picture shows what the page computes. ``python bench/sensors_figure.py``
draws it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rcurc_gpu.plot import panels as plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parent.parent / "docs"
STATION, HOURS = 27, slice(72, 204)  # five days and a half of one station
LOWEST = -22.0  # values below are drawn at the edge: -99 would leave no room for the rest


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the picture of the tutorial on sensors.")
    parser.add_argument("output", nargs="?", type=Path, default=DOCS / "sensors.png")
    path = parser.parse_args().output
    path.parent.mkdir(parents=True, exist_ok=True)
    figure(run_page()).savefig(path)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def run_page() -> dict[str, Any]:
    """Run the page up to its intervals; what it has named."""
    page = (DOCS / "sensors.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "sensors.md", "exec"), names)
        if "lower" in names:
            break
    return names


def figure(names: dict[str, Any]) -> Figure:
    fig = plot.new_figure(8, 3.4, dpi=150)
    draw_station(fig.subplots(), names)
    return fig


def draw_station(ax: Axes, names: dict[str, Any]) -> None:
    at = (HOURS, STATION)
    observed, wrong = names["frame"].to_numpy()[at], names["wrong"].to_numpy()[at]
    days = np.arange(HOURS.start, HOURS.stop) / 24
    good, low = ~np.isnan(observed) & ~wrong, observed < LOWEST
    band = {"color": plot.BLUE, "alpha": 0.3, "linewidth": 0, "label": "95 %, a new observation"}
    ax.fill_between(days, names["lower"][at], names["upper"][at], **band)
    ax.plot(days, names["fitted"].to_numpy()[at], color=plot.BLUE, linewidth=1.4, label="fitted")
    ax.plot(days[good], observed[good], ".", color=plot.BLACK, markersize=3.5, label="observed")
    style = {"color": plot.VERMILLION, "linestyle": "none", "markersize": 5.5, "markeredgewidth": 1.4}
    shown = wrong & ~low
    ax.plot(days[shown], observed[shown], marker="x", label="glitch", **style)
    edge = np.full(int(low.sum()), LOWEST)
    ax.plot(days[low], edge, marker="v", label=f"glitch below {LOWEST:.0f}", clip_on=False, zorder=3, **style)
    for hole in days[np.isnan(observed)]:
        ax.axvline(hole, ymax=0.025, color=plot.GREY, linewidth=1)
    ax.plot([], [], "|", color=plot.GREY, label="no report")
    ax.set_xlim(days[0], days[-1])
    ax.set_ylim(bottom=LOWEST)
    ax.set_xlabel("day")
    ax.set_ylabel("degrees")
    ax.set_title(f"Station {names['stations'][STATION]}", fontsize=10)
    ax.grid(True, color="#DDDDDD", linewidth=0.6)
    ax.tick_params(labelsize=8)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=6, fontsize=8, frameon=False, handlelength=1.4)


if __name__ == "__main__":
    main()
