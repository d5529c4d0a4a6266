"""Robust CUR completion: recover a huge low-rank matrix from few, partly wrong entries."""

from typing import TYPE_CHECKING

from ._lazy import later, serve_old_names
from ._version import __version__

if TYPE_CHECKING:
    from .api import icurc, ircur, rcurc, robust_pca
    from .backends.operators import hard_threshold, truncated_svd, union_sum
    from .core.history import IterationState
    from .errors import ConvergenceWarning
    from .extend.diagnostics import UnitDiagnostics
    from .judge.causes import Cause
    from .judge.words import Verdict
    from .models import CompletedTable, Ratings, complete, complete_ratings
    from .models import RobustCURCompletion as RobustCURCompletion
    from .result.matrix import CURMatrix, LowRankMatrix
    from .result.result import Result
    from .result.transform import Transformed
    from .samples.cross import CrossSamples
    from .samples.drawing import ccs_sample
    from .samples.planning import SamplePlan, plan_samples
    from .shards import ShardedSamples, shard_file, shard_triplets
    from .solve.output import open_result
    from .testing.ratings import SyntheticRatings, synthetic_ratings
    from .testing.reference import ReferenceState, rcurc_reference
    from .testing.synthetic import SyntheticProblem, synthetic

__all__ = [
    "CURMatrix",
    "Cause",
    "CompletedTable",
    "ConvergenceWarning",
    "CrossSamples",
    "IterationState",
    "LowRankMatrix",
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
    "complete",
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

# Everything is imported when it is asked for: so the package itself takes no time, the command can be stopped from its first
# moment on, and who needs little loads little. The estimator needs scikit-learn, so it is not in ``__all__``.
_HOMES = {
    ".api": ("icurc", "ircur", "rcurc", "robust_pca"),
    ".backends.operators": ("hard_threshold", "truncated_svd", "union_sum"),
    ".core.history": ("IterationState",),
    ".errors": ("ConvergenceWarning",),
    ".extend.diagnostics": ("UnitDiagnostics",),
    ".judge.causes": ("Cause",),
    ".judge.words": ("Verdict",),
    ".models": ("CompletedTable", "Ratings", "RobustCURCompletion", "complete", "complete_ratings"),
    ".result.matrix": ("CURMatrix", "LowRankMatrix"),
    ".result.result": ("Result",),
    ".result.transform": ("Transformed",),
    ".samples.cross": ("CrossSamples",),
    ".samples.drawing": ("ccs_sample",),
    ".samples.planning": ("SamplePlan", "plan_samples"),
    ".shards": ("ShardedSamples", "shard_file", "shard_triplets"),
    ".solve.output": ("open_result",),
    ".testing": (
        "ReferenceState",
        "SyntheticProblem",
        "SyntheticRatings",
        "rcurc_reference",
        "synthetic",
        "synthetic_ratings",
    ),
}
_LATER = {name: home for home, names in _HOMES.items() for name in names}
# Modules with names of their own, which `dir` shows and which load when they are touched.
_MODULES = ("io", "paper", "plot", "shards", "testing", "video")
__getattr__ = later(__name__, _LATER, _MODULES)
serve_old_names()


def __dir__() -> list[str]:
    return sorted([*__all__, "RobustCURCompletion", *_MODULES])
