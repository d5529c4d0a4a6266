"""Files of people who have labels and tables: read observations, keep results with their labels."""

from .completion import Completion, Observations, Outliers, Predictions
from .labels import LabelledSamples, Labels
from .matrices import MaskedMatrix, read_matrix
from .pairs import (
    INTERVAL_HEADER,
    OUTLIER_HEADER,
    PREDICTION_HEADER,
    WantedEntries,
    delimiter_of,
    named,
    read_pairs,
    write_outliers,
    write_predictions,
    write_table,
)
from .read import read_observations
from .result_file import load_result, save_result
from .tables import Table, kind_of, read_table
from .text import Columns

__all__ = ["Completion", "LabelledSamples", "Labels", "Outliers", "Predictions", "load_result", "read_observations"]
__all__ += ["read_pairs", "save_result", "write_outliers", "write_predictions"]
# For commands:
__all__ += ["Columns", "MaskedMatrix", "Table", "WantedEntries", "delimiter_of", "kind_of", "named", "read_matrix"]
__all__ += ["INTERVAL_HEADER", "OUTLIER_HEADER", "PREDICTION_HEADER", "read_table", "write_table"]
# For pictures:
__all__ += ["Observations"]
