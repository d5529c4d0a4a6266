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
from .result.matrix import CURMatrix, LowRankMatrix
from .result.result import Result, Transformed
from .samples.cross import CrossSamples
from .samples.drawing import ccs_sample
from .samples.planning import SamplePlan, plan_samples
from .shards import ShardedSamples
from .solve.output import open_result

if TYPE_CHECKING:
    from .models import Ratings, complete_ratings
    from .models import RobustCURCompletion as RobustCURCompletion
    from .shards import shard_file, shard_triplets
    from .testing.ratings import SyntheticRatings, synthetic_ratings
    from .testing.reference import ReferenceState, rcurc_reference
    from .testing.synthetic import SyntheticProblem, synthetic

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

# What few programs need is imported when it is asked for. The estimator needs scikit-learn, so it is not in ``__all__``.
_TESTING = ("ReferenceState", "SyntheticProblem", "SyntheticRatings", "rcurc_reference", "synthetic", "synthetic_ratings")
_LATER = dict.fromkeys(_TESTING, ".testing") | dict.fromkeys(("shard_file", "shard_triplets"), ".shards")
_LATER |= dict.fromkeys(("Ratings", "RobustCURCompletion", "complete_ratings"), ".models")
__getattr__ = later(__name__, _LATER)
serve_old_names()
