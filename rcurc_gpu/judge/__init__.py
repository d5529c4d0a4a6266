"""Whether a result can be trusted: evidence, expected error, verdict and its words."""

from .ties import Groups, model_ties
from .words import Untied

__all__ = ["Groups", "Untied", "model_ties"]
