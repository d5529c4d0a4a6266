"""Robust CUR completion: recover a huge low-rank matrix from few, partly wrong entries."""

from typing import TYPE_CHECKING

from ._lazy import later, serve_old_names
from ._version import __version__
from .api import icurc, ircur, rcurc, robust_pca
from .backends.operators import hard_threshold, truncated_svd, union_sum
from .core.history import IterationState, RankCurve
from .errors import ConvergenceWarning
from .extend.diagnostics import UnitDiagnostics
from .judge.words import Cause, Verdict
from .models.ratings import Ratings, complete_ratings
from .result.matrix import CURMatrix, LowRankMatrix
from .result.result import Result, Transformed
from .samples.cross import CrossSamples
from .samples.drawing import ccs_sample
from .samples.planning import SamplePlan, plan_samples
from .shards import ShardedSamples
from .solve.output import open_result
from .testing.ratings import SyntheticRatings, synthetic_ratings
from .testing.reference import ReferenceState, rcurc_reference
from .testing.synthetic import SyntheticProblem, synthetic

if TYPE_CHECKING:
    from .models.estimator import RobustCURCompletion as RobustCURCompletion
    from .shards import shard_file as shard_file
    from .shards import shard_triplets as shard_triplets

__all__ = [
    "CURMatrix",
    "Cause",
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
    "Verdict",
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

# What reads files, and the estimator, which needs scikit-learn and is therefore not in ``__all__``.
__getattr__ = later(
    __name__, {"RobustCURCompletion": ".models.estimator", "shard_file": ".shards", "shard_triplets": ".shards"}
)
serve_old_names()
