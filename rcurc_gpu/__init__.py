"""Robust CUR completion: recover a huge low-rank matrix from few, partly wrong entries."""

from typing import TYPE_CHECKING, Any

from ._version import __version__
from .cur import CURMatrix, LowRankMatrix
from .diagnostics import UnitDiagnostics
from .errors import ConvergenceWarning
from .history import IterationState
from .ircur import ircur
from .operators import hard_threshold, truncated_svd, union_sum
from .pca import robust_pca
from .plan import SamplePlan, plan_samples
from .rank import RankCurve
from .ratings import Ratings, complete_ratings
from .reference import ReferenceState, rcurc_reference
from .result import Result, Transformed
from .samples import CrossSamples
from .sampling import ccs_sample
from .shards import ShardedSamples, open_result
from .solver import icurc, rcurc
from .synthetic import SyntheticProblem, synthetic
from .synthetic_ratings import SyntheticRatings, synthetic_ratings

if TYPE_CHECKING:
    from .estimator import RobustCURCompletion as RobustCURCompletion
    from .shards import shard_file as shard_file
    from .shards import shard_triplets as shard_triplets

__all__ = [
    "CURMatrix",
    "ConvergenceWarning",
    "CrossSamples",
    "IterationState",
    "LowRankMatrix",
    "RankCurve",
    "Ratings",
    "ReferenceState",
    "Result",
    "SamplePlan",
    "ShardedSamples",
    "SyntheticProblem",
    "SyntheticRatings",
    "Transformed",
    "UnitDiagnostics",
    "__version__",
    "ccs_sample",
    "complete_ratings",
    "hard_threshold",
    "icurc",
    "ircur",
    "open_result",
    "plan_samples",
    "rcurc",
    "rcurc_reference",
    "robust_pca",
    "shard_file",
    "shard_triplets",
    "synthetic",
    "synthetic_ratings",
    "truncated_svd",
    "union_sum",
]


def __getattr__(name: str) -> Any:
    """What is imported when it is asked for: what reads files, and the estimator, which needs scikit-learn and is therefore
    not in ``__all__``."""
    if name == "RobustCURCompletion":
        from .estimator import RobustCURCompletion

        return RobustCURCompletion
    if name in ("shard_file", "shard_triplets"):
        from . import shards

        return getattr(shards, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
