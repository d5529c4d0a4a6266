"""Robust PCA of a matrix that is known everywhere, or nearly so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..api import rcurc
from ..backends.random import Stream, generator, seed_to_int
from ..errors import check_count
from ..options import Settings, check_rank, documented
from ..result.result import Result
from ..samples.dense import DenseReader, dense_source
from .output import last_seed

# Rows (columns) over r log(n), as in IRCUR. At 3000 x 3000 and rank 5 that is 161 of them, and an error of 7e-12. More cost
# more, and average more noise.
OVERSAMPLING = 4.0
_LEAST = 128  # rows (columns) of a cross, if there are as many: with fewer, small ranks have too little to be judged by
_UNKNOWN_RANK = 10  # assumed for the size of a cross when the rank is to be found; a larger one may then not be confirmed


@documented
def robust_pca(
    Y: Any,
    rank: int | str,
    *,
    n_rows: int | None = None,
    n_cols: int | None = None,
    seed: Any = Settings.seed,
    **options: Any,
) -> Result:
    """Split a matrix into a low-rank part and outliers, from a cross of it alone.

    Some rows and columns are drawn at random and `rcurc` is run on all their entries, with its options.

    Parameters
    ----------
    Y : array (n1, n2)
        NumPy, CuPy, any array-API array, a memory map, HDF5, Zarr. NaN means not known.
    n_rows, n_cols : int, optional
        How many rows and columns to use; by default 4 r log(n), at least 128. More of them cost more, and reduce the effect
        of noise as the square root of their number.
    seed : int, None or numpy.random.Generator
        Fixes the rows and columns, and the result on one device.

    Returns
    -------
    Result
        `Result.cur` is the low-rank part and ``Result.outliers_of(Y)`` the rest, beyond the noise.

    Warns
    -----
    ConvergenceWarning
        If the result is not confirmed; `Result.message` says why.
    """
    Y = dense_source(Y)
    number = seed_to_int(last_seed(options.get("checkpoint"), options.get("output")) if seed is None else seed)
    rank = check_rank(rank, min(Y.shape), "min(n1, n2)")
    least = 1 if isinstance(rank, str) else rank
    sizes = [
        cross_size(rank, n) if k is None else check_count(name, k, least, n)
        for name, k, n in zip(("n_rows", "n_cols"), (n_rows, n_cols), Y.shape, strict=True)
    ]
    rng = generator(number, Stream.ROBUST_PCA)
    rows, cols = (np.sort(rng.choice(n, k, replace=False)) for n, k in zip(Y.shape, sizes, strict=True))
    samples = DenseReader(Y, None).cross(rows, cols)
    return rcurc(samples, rank, seed=number, **options)


def cross_size(rank: int | str, n: int) -> int:
    """How many of `n` rows are enough for a rank."""
    known = _UNKNOWN_RANK if isinstance(rank, str) else rank
    return min(max(math.ceil(OVERSAMPLING * known * math.log(n)), _LEAST), n)
