"""Whether a result can be trusted: evidence, expected error, verdict and its words."""

from .faults import Untied
from .groups import Groups
from .identified import model_ties
from .noise_faults import StillMoving

__all__ = ["Groups", "StillMoving", "Untied", "model_ties"]
