"""What a solve gives back: the matrix as factors, outliers, diagnostics."""

from .matrix import CURMatrix, LowRankMatrix
from .outliers import outlying_in, outlying_in_matrix, outlying_once
from .result import Result
from .transform import Positions, Transformed, complete, typical_share

__all__ = ["CURMatrix", "LowRankMatrix", "Result", "Transformed"]
# For models and videos:
__all__ += ["Positions", "complete", "outlying_in", "outlying_in_matrix", "outlying_once", "typical_share"]
