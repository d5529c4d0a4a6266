"""What was observed: blocks, the cross, how it is built, chosen, drawn and planned. Knows nothing of algorithms."""

from .building import check_finite, float_values, host_array, new_block, sigma_matrix, triplet_index
from .cells import Cells, chosen_first, seen
from .choosing import choose_cross
from .cross import CrossSamples
from .dense import cross_size
from .describe import facts_and_warnings
from .drawing import ccs_sample
from .foreign import advice_on, check_kind, column_names, is_frame, library_of, no_table, plain_array, vector_of
from .planning import SamplePlan, plan_samples
from .view import Samples

__all__ = ["CrossSamples", "SamplePlan", "Samples", "ccs_sample", "choose_cross", "cross_size", "plan_samples"]
# Seen from afar, for pictures:
__all__ += ["Cells", "chosen_first", "seen"]
# In words, for commands:
__all__ += ["facts_and_warnings"]
# From what a user gives:
__all__ += ["check_finite", "float_values", "host_array", "new_block", "plain_array", "sigma_matrix", "triplet_index"]
__all__ += ["advice_on", "check_kind", "column_names", "is_frame", "library_of", "no_table", "vector_of"]
