"""Whether a result can be trusted: evidence, expected error, verdict and its words."""

from ..core.history import RankCurve

__all__ = ["RankCurve"]
