"""Problems with known truth, and Algorithm 1 to be read beside the paper."""

from .ratings import SyntheticRatings, synthetic_ratings
from .reference import ReferenceState, rcurc_reference
from .synthetic import SyntheticProblem, synthetic

__all__ = ["ReferenceState", "SyntheticProblem", "SyntheticRatings", "rcurc_reference", "synthetic", "synthetic_ratings"]
