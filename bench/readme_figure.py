"""Draw docs/overview.png, the picture that the README opens with.

What goes in and what comes out: monthly minimum temperatures at stations in Colorado (`real_data`), of which half is hidden
and a twentieth made wrong; the recovered table; and the observations that were found to be wrong. ``python -m
bench.readme_figure [--data DIR]`` draws it; DIR has cotemp.npy, if the package that carries it is not installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import rcurc_gpu as rg
from rcurc_gpu.plot import new_figure

from .real_data import load

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "overview.png"
MONTHS, HIDDEN, WRONG = 96, 0.5, 0.05  # the last eight years; shares of the entries
GLITCHES = (-40.0, 40.0)  # what a broken thermometer says


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the picture that the README opens with.")
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    parser.add_argument("--data", type=Path, help="a directory with cotemp.npy")
    given = parser.parse_args()
    recent = load("cotemp", given.data)[-MONTHS:]
    figure(recent[:, np.isnan(recent).mean(axis=0) < 0.5]).savefig(given.output)  # some stations were closed by then
    print(f"{given.output.name}: {given.output.stat().st_size / 1000:.0f} kB")


def figure(truth: np.ndarray) -> Figure:
    rng = np.random.default_rng(0)
    wrong = (rng.random(truth.shape) < WRONG) & ~np.isnan(truth)
    seen = np.where(wrong, rng.choice(GLITCHES, truth.shape), truth)
    seen[rng.random(truth.shape) < HIDDEN] = np.nan
    done = rg.complete(seen)
    found = np.full(truth.shape, np.nan)
    found[done.outliers["row"], done.outliers["column"]] = done.outliers["observed"]
    hidden = np.isnan(seen) & ~np.isnan(truth)
    error = np.median(np.abs(np.asarray(done) - truth)[hidden])
    hits = int((wrong & ~np.isnan(found)).sum())
    print(f"{truth.shape[1]} stations, rank {done.result.rank}, {done.message}")
    print(f"median error of hidden entries {error:.2f} degrees; {hits} of {int((wrong & ~np.isnan(seen)).sum())} glitches")

    fig = new_figure(9, 3.1, dpi=150)
    titles = ("observed, with holes and glitches", "recovered", "found to be wrong")
    panels = zip(fig.subplots(1, 3, sharey=True), (seen, np.asarray(done), found), titles, strict=True)
    for ax, matrix, title in panels:
        image = ax.imshow(matrix, cmap="coolwarm", vmin=-25, vmax=25, aspect="auto", interpolation="nearest")
        ax.set_facecolor("#dddddd")  # what is not there
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("stations", fontsize=9)
        ax.tick_params(labelsize=8)
    fig.axes[0].set_ylabel("months", fontsize=9)
    fig.colorbar(image, ax=fig.axes, label="°C", shrink=0.9)
    return fig


if __name__ == "__main__":
    main()
