"""Pictures of samples, problems and results; needs matplotlib (the extra ``plot``)."""

from .panels import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    VERMILLION,
    column_diagnostics,
    convergence,
    demo_figure,
    new_figure,
    rank_curve,
    sampling_pattern,
    singular_values,
)
from .result import outlier_map, pictures, result_figure, unit_fit, worst_units

__all__ = [
    "BLACK",
    "BLUE",
    "GREEN",
    "GREY",
    "ORANGE",
    "VERMILLION",
    "column_diagnostics",
    "convergence",
    "demo_figure",
    "new_figure",
    "outlier_map",
    "pictures",
    "rank_curve",
    "result_figure",
    "sampling_pattern",
    "singular_values",
    "unit_fit",
    "worst_units",
]
