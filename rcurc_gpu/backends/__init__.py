"""Where arrays live, and what computes on them: plain array code, Numba or CUDA. Knows nothing of matrices to recover."""

from . import operators
from .arrays import asarray_on, namespace_for_device, place_for, to_numpy
from .blocks import Block, blank_rows, others
from .kernels import XP, Kernels, choose
from .operators import hard_threshold, product_svd, truncated_svd, union_sum
from .plain.grid import Grid
from .plain.passes import N_NUMBERS, EntryIds, FitPass
from .plain.regression import Schedule
from .random import seed_to_int, uniform_at

__all__ = [
    "N_NUMBERS",
    "XP",
    "Block",
    "EntryIds",
    "FitPass",
    "Grid",
    "Kernels",
    "Schedule",
    "asarray_on",
    "blank_rows",
    "choose",
    "hard_threshold",
    "namespace_for_device",
    "operators",
    "others",
    "place_for",
    "product_svd",
    "seed_to_int",
    "to_numpy",
    "truncated_svd",
    "uniform_at",
    "union_sum",
]
