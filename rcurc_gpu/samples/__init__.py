"""What was observed: blocks, the cross, how it is built, chosen, drawn and planned. Knows nothing of algorithms."""

from .cross import CrossSamples
from .drawing import ccs_sample
from .planning import SamplePlan, plan_samples

__all__ = ["CrossSamples", "SamplePlan", "ccs_sample", "plan_samples"]
