"""Whether a result can be trusted: evidence, expected error, verdict and its words."""

from .groups import Groups
from .identified import model_ties
from .words import StillMoving, Untied

__all__ = ["Groups", "StillMoving", "Untied", "model_ties"]
