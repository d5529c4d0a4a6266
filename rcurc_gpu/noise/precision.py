"""Observations whose noise is known up to a common factor (`sigma`): how precise each is, relative to a fine one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..backends.arrays import Array, array_namespace

# Share of the observations that is finer than the fine one. The noise model measures noise by the fine one: were it the
# typical one, far finer ones would all be outliers before the fit is good, and might stay that.
_FINER = 0.05
_FINEST = 1e3  # how many times finer than the fine one an observation may be: beyond, it is exact for all that can be seen


@dataclass(frozen=True)
class SigmaScale:
    """Standard deviations of the noise, in the user's unit.

    Attributes
    ----------
    fine : float
        Of a fine observation: that of the noise model.
    typical : float
        The median one (the smaller of two): that of the result, and of a new observation unless the user says more.
    """

    fine: float
    typical: float

    @classmethod
    def of(cls, sigma: np.ndarray | None) -> SigmaScale | None:
        """The scale of the observations of the intersection, which all processes know; None if their noise is not known."""
        if sigma is None or len(sigma) == 0:
            return None
        fine, typical = np.quantile(sigma, (_FINER, 0.5), method="lower")
        return cls(float(fine), float(typical))

    @property
    def ratio(self) -> float:
        """How many times the noise of a typical observation is that of a fine one."""
        return self.typical / self.fine


def precisions(sigma: Array | None, unit: float | None, n: int) -> np.ndarray | Array:
    """Weights of `n` observations: 1 over their squared noise, in this unit, float64; all 1 if there is no `sigma`."""
    if sigma is None or unit is None:
        return np.broadcast_to(1.0, (n,))
    xp = array_namespace(sigma)
    finer = unit / xp.astype(sigma, xp.float64)
    return xp.minimum(finer, xp.full_like(finer, _FINEST)) ** 2
