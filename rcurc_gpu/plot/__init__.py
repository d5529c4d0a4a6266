"""Pictures of samples, problems and results; needs matplotlib (the extra ``plot``)."""

from .figures import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILLION, new_figure
from .panels import column_diagnostics, convergence, demo_figure, sampling_pattern, singular_values, strengths
from .result import intervals, outlier_map, pictures, result_figure, unit_fit, worst_units

__all__ = ["column_diagnostics", "convergence", "demo_figure", "sampling_pattern", "singular_values", "strengths"]
__all__ += ["intervals", "strengths"]
# Of a result in a file:
__all__ += ["outlier_map", "pictures", "result_figure", "unit_fit", "worst_units"]
# For figures of other rooms:
__all__ += ["BLACK", "BLUE", "GREEN", "GREY", "ORANGE", "VERMILLION", "new_figure"]
