"""Where arrays live, and what computes on them: plain array code, Numba or CUDA. Knows nothing of matrices to recover."""

from . import operators
from .arrays import MAD_TO_SIGMA, array_namespace, asarray_on, native, to_numpy
from .blocks import Block, blank_rows, join_units, others
from .devices import ESTIMATED_CROSSOVER, device_for_file, namespace_for_device, place_for
from .kernels import XP, Kernels, choose, cuda_kernels, picture_kernels
from .operators import hard_threshold, product_svd, truncated_svd, union_sum
from .plain.grid import Grid
from .plain.loop import Begin, Recipe
from .plain.passes import Column, EntryIds, FitPass, Iterates
from .plain.posterior import Model, Noise, laid_out, positions_of, posterior_of_matrix, product_variance
from .plain.regression import Schedule
from .plain.robust import AGREES
from .plain.ties import TieProblem
from .plain.verdicts import Limits
from .random import DataStream, Stream, generator, stream_key, uniform_at

__all__ = ["Block", "array_namespace", "asarray_on", "blank_rows", "join_units", "native", "others", "to_numpy"]
__all__ += ["ESTIMATED_CROSSOVER", "device_for_file", "namespace_for_device", "place_for"]
# Linear algebra and random numbers:
__all__ += ["hard_threshold", "operators", "product_svd", "truncated_svd", "union_sum"]
__all__ += ["DataStream", "Stream", "generator", "stream_key", "uniform_at"]
# Kernels, and what they take:
__all__ += [
    "XP",
    "Begin",
    "Column",
    "EntryIds",
    "FitPass",
    "Grid",
    "Iterates",
    "Kernels",
    "Limits",
    "Model",
    "Noise",
    "Recipe",
    "Schedule",
    "TieProblem",
]
__all__ += ["AGREES", "choose", "cuda_kernels", "laid_out", "picture_kernels", "positions_of", "posterior_of_matrix"]
# Statistics:
__all__ += ["MAD_TO_SIGMA", "product_variance"]
