"""Files of samples: whether their arrays are what `CrossSamples.save` writes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

PARTS = ("indptr", "index", "value")  # of a block, as files name them


def check_arrays(path: object, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays that `CrossSamples.save` cannot have written; `path` is the file they came from.

    Compiled kernels trust indices and would reach out of bounds.
    """

    def need(fine: object, what: str) -> None:
        if not fine:
            raise ValueError(f"{path!r} is damaged: {what}")

    shape = arrays["shape"]
    need(shape.shape == (2,) and shape.dtype.kind in "iu" and (shape > 0).all(), "shape is not a pair of positive numbers")
    count = arrays["n_unused"]
    need(count.ndim == 0 and count.dtype.kind in "iu" and count >= 0, "n_unused is not a count")
    n1, n2 = map(int, shape)
    for name, size in (("rows", n1), ("cols", n2)):
        chosen = arrays[name]
        need(chosen.dtype == np.int64 and chosen.ndim == 1 and chosen.size, f"{name} is not a vector of integers")
        need(chosen.min() >= 0 and chosen.max() < size, f"{name} does not lie in 0..{size - 1}")
        need(np.unique(chosen).size == chosen.size, f"{name} repeats an index")
    for name, units, length in (("r", n2, arrays["rows"].size), ("c", n1, arrays["cols"].size)):
        indptr, index, value = (arrays[f"{name}_{part}"] for part in PARTS)
        floats = value.dtype in (np.float32, np.float64) and value.ndim == 1
        need(floats, f"{name}_value is not a vector of float32 or float64")
        need(value.size, f"{name}_value is empty")
        need(np.isfinite(value).all(), f"{name}_value is not finite")
        need(index.dtype == np.int32 and index.shape == value.shape, f"{name}_index does not fit {name}_value")
        need(indptr.dtype == np.int64 and indptr.shape == (units + 1,), f"{name}_indptr does not fit the shape")
        ends = indptr[0] == 0 and indptr[-1] == value.size
        need(ends and (np.diff(indptr) >= 0).all(), f"{name}_indptr does not fit {name}_value")
        need(index.min() >= 0 and index.max() < length, f"{name}_index does not lie in 0..{length - 1}")
        ascends = np.diff(index.astype(np.int64)) > 0
        starts = indptr[1:-1]
        ascends[starts[(starts > 0) & (starts < value.size)] - 1] = True  # a new unit begins
        need(ascends.all(), f"{name}_index does not ascend within a unit")
        if ("r_sigma" in arrays) or ("c_sigma" in arrays):
            sigma = arrays.get(f"{name}_sigma", np.zeros(0))
            need(sigma.shape == value.shape and sigma.dtype == value.dtype, f"{name}_sigma does not fit {name}_value")
            need((np.isfinite(sigma) & (sigma > 0)).all(), f"{name}_sigma is not positive and finite")
    need(arrays["r_value"].dtype == arrays["c_value"].dtype, "r_value and c_value are of different types")
