"""Files of people who have labels and tables: read observations, keep results with their labels."""

from .completion import Completion, Outliers, Predictions, load_result, save_result
from .labels import LabelledSamples, Labels
from .pairs import read_pairs, write_outliers, write_predictions
from .read import read_observations

__all__ = [
    "Completion",
    "LabelledSamples",
    "Labels",
    "Outliers",
    "Predictions",
    "load_result",
    "read_observations",
    "read_pairs",
    "save_result",
    "write_outliers",
    "write_predictions",
]
