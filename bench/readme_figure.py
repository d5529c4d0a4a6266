"""Draw docs/overview.png, the picture that the README opens with.

Left: which entries of a small matrix cross-concentrated sampling sees. Right: what the paper's Algorithm 1 does with
the update of the intersection as printed, and with the corrected one. ``python bench/readme_figure.py`` draws it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rcurc_gpu import CrossSamples, ReferenceState, SyntheticProblem, rcurc_reference, synthetic
from rcurc_gpu.plot import panels as plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "overview.png"
SIZE, RANK, ALPHA, RATE, ITERATIONS = 600, 3, 0.1, 0.4, 80
GAMMA, STEP = 0.9, 0.75  # decay of the threshold; step times the observed share


@dataclass(frozen=True)
class Trace:
    """e_k and the true relative error on the chosen rows, one of each per iteration."""

    residual: np.ndarray
    truth: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the picture that the README opens with.")
    parser.add_argument("output", nargs="?", type=Path, default=OUTPUT)
    path = parser.parse_args().output
    path.parent.mkdir(parents=True, exist_ok=True)
    figure().savefig(path)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def figure() -> Figure:
    fig = plot.new_figure(8, 3, dpi=150)
    fig.get_layout_engine().set(wspace=0.06)
    left, right = fig.subplots(1, 2, width_ratios=[1, 2.1])
    draw_pattern(left)
    draw_traces(right)
    for ax in (left, right):
        ax.tick_params(labelsize=8)
        ax.xaxis.label.set_size(9)
        ax.yaxis.label.set_size(9)
    return fig


def draw_pattern(ax: Axes) -> None:
    small = synthetic((40, 40), rank=2, n_rows=6, n_cols=6, rate=0.6, seed=175).samples
    plot.sampling_pattern(small, ax)
    ax.set_aspect("equal")
    ax.set_title(f"Seen: {small.n_obs / 1600:.0%} of the entries", fontsize=10)
    ax.set_xlabel("column")
    ax.set_ylabel("row")
    handles, labels = ax.get_legend().legend_handles, ("chosen rows", "chosen columns", "both")
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.19), "ncols": 3}
    ax.legend(handles, labels, fontsize=8, frameon=False, handlelength=1, handletextpad=0.4, columnspacing=1, **place)


def draw_traces(ax: Axes) -> None:
    problem = synthetic((SIZE, SIZE), RANK, alpha=ALPHA, rate=RATE, seed=0)
    printed, corrected = trace(problem, literal=True), trace(problem, literal=False)
    for run, rule, colour, marker in (
        (printed, "as printed", plot.VERMILLION, "s"),
        (corrected, "corrected", plot.BLUE, "o"),
    ):
        k = np.arange(1, len(run.truth) + 1)
        style = {"color": colour, "marker": marker, "markevery": 10}
        ax.plot(k, run.truth, "-", markersize=5, linewidth=2, label=f"{rule}: true relative error", **style)
        ax.plot(
            k,
            run.residual,
            "--",
            markersize=3,
            linewidth=1.2,
            label=f"{rule}: $e_k$, the squared residual it watches",
            **style,
        )
    ax.set_yscale("log")
    ax.set_xlim(0, ITERATIONS)
    ax.set_xlabel("iteration")
    ax.set_ylabel("relative error, $e_k$")
    ax.set_title(f"Algorithm 1: {SIZE} x {SIZE}, rank {RANK}, {ALPHA:.0%} of the entries corrupted", fontsize=10)
    ax.legend(loc="lower left", fontsize=8, framealpha=1)
    ax.grid(True, color="#DDDDDD", linewidth=0.6)


def trace(problem: SyntheticProblem, literal: bool) -> Trace:
    """Run Algorithm 1 on a problem and compare every iterate with the truth."""
    samples = problem.samples
    truth = problem.W[samples.rows] @ problem.V.T
    residual, error = [], []

    def note(state: ReferenceState) -> None:
        residual.append(state.error)
        error.append(np.linalg.norm(state.X_rows - truth) / np.linalg.norm(truth))

    rcurc_reference(
        samples.R.toarray(),
        samples.C.toarray(),
        *seen(samples),
        samples.rows,
        samples.cols,
        RANK,
        zeta0=5 * float(np.median(np.abs(samples.R.data))),
        gamma=GAMMA,
        step_rows=STEP / samples.rate_rows,
        step_cols=STEP / samples.rate_cols,
        max_iter=ITERATIONS,
        literal=literal,
        callback=note,
    )
    return Trace(np.asarray(residual), np.asarray(error))


def seen(samples: CrossSamples) -> tuple[np.ndarray, np.ndarray]:
    """Omega_R (|I|, n2) and Omega_C (n1, |J|) as masks."""
    masks = []
    for block in (samples.R.tocoo(), samples.C.tocoo()):
        mask = np.zeros(block.shape, dtype=bool)
        mask[block.row, block.col] = True
        masks.append(mask)
    return masks[0], masks[1]


if __name__ == "__main__":
    main()
