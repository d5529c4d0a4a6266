"""Models on top of the solver: tables with labels, ratings, and an estimator in scikit-learn's conventions."""

from typing import TYPE_CHECKING

from .._lazy import later
from .rating_predictions import Ratings
from .ratings import complete_ratings
from .tables import CompletedTable, complete

if TYPE_CHECKING:
    from .estimator import RobustCURCompletion as RobustCURCompletion

__all__ = ["CompletedTable", "Ratings", "RobustCURCompletion", "complete", "complete_ratings"]

__getattr__ = later(__name__, {"RobustCURCompletion": ".estimator"})
