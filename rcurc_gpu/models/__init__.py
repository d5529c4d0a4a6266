"""Models on top of the solver: ratings, and an estimator in scikit-learn's conventions."""

from typing import TYPE_CHECKING

from .._lazy import later
from .ratings import Ratings, complete_ratings

if TYPE_CHECKING:
    from .estimator import RobustCURCompletion as RobustCURCompletion

__all__ = ["Ratings", "RobustCURCompletion", "complete_ratings"]

__getattr__ = later(__name__, {"RobustCURCompletion": ".estimator"})
