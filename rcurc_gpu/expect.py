"""The error to expect of a result from the noise that is left in it."""

from __future__ import annotations

import numpy as np

from .backend import array_namespace
from .core import Core
from .core_data import CoreData
from .grid import residuals
from .refine import Factors
from .samples import CrossSamples


def expected_error(samples: CrossSamples, data: CoreData, core: Core, factors: Factors) -> float:
    """Relative error from noise: of the basis, of the columns and of the rows."""
    m, n = data.grid.shape
    xp = array_namespace(core.s)
    per_entry = float(xp.linalg.vector_norm(core.s)) ** 2 / (m * n)
    if not 0 < per_entry < float("inf"):
        return float("inf")
    # r unknowns in a row of the basis, and as many observations as it was fitted to: those of the intersection, or
    # of the whole row after a sweep
    if factors.swept:
        n1, n2 = samples.shape
        observations = (n2 * samples.rate_rows, n1 * samples.rate_cols)
    else:
        observations = (n * data.rate, m * data.rate)
    noise = _noise_square(data, core)
    square = noise / per_entry * core.rank * sum(1 / max(k, 1) for k in observations)
    for d, length in ((factors.cols, m), (factors.rows, n)):
        good = d.standard_error[d.status == 0]
        tails = noise / core.sigma**2 if core.sigma > 0 else 1.0
        square += tails * float(np.mean(good**2)) / (per_entry * length) if good.size else 0.0
    # without noise what is left is the way that the iteration had still to go: a few times its last step
    still = core.history[-1].change if core.history else 0.0
    square += (5 * still) ** 2 if np.isfinite(still) else 0.0
    return float(square**0.5)


def _noise_square(data: CoreData, core: Core) -> float:
    """Mean square of the noise, its tails included: residuals up to six standard deviations, when the robust estimate
    sees only the middle (a few entries much noisier than most)."""
    residual = residuals(core.W * core.s, core.V, data.sample)
    xp = array_namespace(residual)
    near = residual[xp.abs(residual) < 6 * core.sigma]
    return max(core.sigma**2, float(xp.mean(near * near)) if near.shape[0] else 0.0)
