"""Robust CUR completion: recover a huge low-rank matrix from few, partly wrong entries."""

from ._version import __version__
from .cur import CURMatrix, LowRankMatrix
from .diagnostics import UnitDiagnostics
from .errors import ConvergenceWarning
from .history import IterationState
from .ircur import ircur
from .operators import hard_threshold, truncated_svd, union_sum
from .pca import robust_pca
from .rank import RankCurve
from .reference import ReferenceState, rcurc_reference
from .result import Result, Transformed
from .samples import CrossSamples
from .sampling import ccs_sample
from .solver import icurc, rcurc
from .synthetic import SyntheticProblem, synthetic

__all__ = [
    "CURMatrix",
    "ConvergenceWarning",
    "CrossSamples",
    "IterationState",
    "LowRankMatrix",
    "RankCurve",
    "ReferenceState",
    "Result",
    "SyntheticProblem",
    "Transformed",
    "UnitDiagnostics",
    "__version__",
    "ccs_sample",
    "hard_threshold",
    "icurc",
    "ircur",
    "rcurc",
    "rcurc_reference",
    "robust_pca",
    "synthetic",
    "truncated_svd",
    "union_sum",
]
