"""The error to expect of a result from the noise that is left in it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backends.arrays import to_numpy
from ..core.iteration import Core
from ..core.problem import CoreProblem
from ..extend.diagnostics import Summary


@dataclass(frozen=True)
class CoreFacts:
    """What the error of everything else follows from.

    Attributes
    ----------
    shape : (int, int)
        Of the intersection.
    rate : float
        Share of it that takes part in the fit.
    rank : int
    sigma : float
        Standard deviation of the noise.
    noise : float
        Its mean square, tails included.
    per_entry : float
        Mean square of an entry of the core.
    change : float
        How far the last iteration moved it, relatively.
    """

    shape: tuple[int, int]
    rate: float
    rank: int
    sigma: float
    noise: float
    per_entry: float
    change: float


def core_facts(data: CoreProblem, core: Core, near_square: float | None = None) -> CoreFacts:
    """Measure a core; `near_square`, as in `Measured`, of the sample, if it is known."""
    m, n = data.grid.shape
    per_entry = float(np.linalg.norm(to_numpy(core.s))) ** 2 / (m * n)
    change = core.history[-1].change if core.history else 0.0
    return CoreFacts((m, n), data.rate, core.rank, core.sigma, _noise_square(data, core, near_square), per_entry, change)


def expected_error(core: CoreFacts, columns: Summary, rows: Summary) -> float:
    """Relative error from noise: of the basis, of the columns and of the rows.

    Parameters
    ----------
    core : CoreFacts
    columns, rows : Summary
        Of all columns and rows.
    """
    m, n = core.shape
    if not 0 < core.per_entry < float("inf"):
        return float("inf")
    # r unknowns in a row of the basis, and as many observations as it was fitted to: those of the intersection
    observations = (n * core.rate, m * core.rate)
    square = core.noise / core.per_entry * core.rank * sum(1 / max(k, 1) for k in observations)
    for units, length in ((columns, m), (rows, n)):
        tails = core.noise / core.sigma**2 if core.sigma > 0 else 1.0
        square += tails * units.mean_square / (core.per_entry * length)
    # without noise what is left is the way that the iteration had still to go: a few times its last step
    square += (5 * core.change) ** 2 if np.isfinite(core.change) else 0.0
    return float(square**0.5)


def _noise_square(data: CoreProblem, core: Core, near_square: float | None) -> float:
    """Mean square of the noise, its tails included: residuals up to six standard deviations, when the robust estimate
    sees only the middle (a few entries much noisier than most)."""
    if near_square is None:
        near_square = data.kernels.measure(data.sample, (core.W, core.s, core.V), 0.0, 0.0, core.sigma).near_square
    return max(core.sigma**2, near_square)
