"""What was observed: blocks, the cross, how it is built, chosen, drawn and planned. Knows nothing of algorithms."""

from .building import check_finite, check_observed, float_values, host_array, new_block, refuse_masked, triplet_index
from .cells import Cells, chosen_first, seen
from .choosing import choose_cross
from .cross import CrossSamples
from .drawing import ccs_sample
from .planning import SamplePlan, plan_samples
from .view import Samples

__all__ = [
    "Cells",
    "CrossSamples",
    "SamplePlan",
    "Samples",
    "ccs_sample",
    "check_finite",
    "check_observed",
    "choose_cross",
    "chosen_first",
    "float_values",
    "host_array",
    "new_block",
    "plan_samples",
    "refuse_masked",
    "seen",
    "triplet_index",
]
