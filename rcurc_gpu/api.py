"""What a user calls: `rcurc`, `icurc`, `robust_pca` and `ircur`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from .backends.random import Stream, generator
from .core.history import IterationState
from .errors import ArgumentTypeError, check_count, seed_to_int
from .options import Asked, Settings, Where, check_rank, documented
from .result.result import Result
from .samples.cross import CrossSamples
from .samples.dense import OVERSAMPLING, SMALL_MATRIX, DenseReader, cross_size, dense_source
from .shards.samples import ShardedSamples
from .solve.driver import solve
from .solve.output import last_seed


@documented
def rcurc(
    samples: CrossSamples | ShardedSamples,
    rank: int | str = Asked.rank,
    *,
    method: str = Settings.method,
    step_rows: float | None = Settings.step_rows,
    step_cols: float | None = Settings.step_cols,
    zeta0: float | None = Settings.zeta0,
    gamma: float | None = Settings.gamma,
    tol: float | None = Settings.tol,
    max_iter: int | None = Settings.max_iter,
    holdout: float = Settings.holdout,
    accuracy: float | None = Settings.accuracy,
    resolution: float = Settings.resolution,
    sweeps: int | None = Settings.sweeps,
    offsets: Any = Settings.offsets,
    intervals: bool = Settings.intervals,
    undetermined: str = Settings.undetermined,
    outliers: Any = Settings.outliers,
    seed: Any = Settings.seed,
    device: str = Where.device,
    kernels: str = Settings.kernels,
    svd: str = Settings.svd,
    chunk_bytes: int | None = Settings.chunk_bytes,
    callback: Callable[[IterationState], Any] | None = Settings.callback,
    progress: bool = Where.progress,
    checkpoint: str | os.PathLike[str] | None = Where.checkpoint,
    checkpoint_every: float = Where.checkpoint_every,
    output: str | os.PathLike[str] | None = Where.output,
    client: Any = Where.client,
    gather: bool = Where.gather,
) -> Result:
    """Recover a low-rank matrix from cross-concentrated samples, some of which are outliers.

    Returns
    -------
    Result

    Warns
    -----
    ConvergenceWarning
        If the result is not confirmed; `Result.message` says why.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), rank=2, n_rows=80, n_cols=80, rate=0.5, seed=0)
    >>> result = rg.rcurc(problem.samples)  # a fifth of what was seen is wrong
    >>> result.converged, result.rank
    (True, 2)
    >>> problem.relative_error(result.cur) < 1e-8  # the whole matrix, to rounding
    True
    >>> result.cur[10:12, [3, 5, 7]].shape  # any part of it, formed when asked for
    (2, 3)
    """
    given = dict(locals())  # every argument by its name
    _check_samples(samples)
    given["seed"] = last_seed(checkpoint, output) if seed is None else seed
    return solve(samples, rank, Settings.checked(samples.dtype, given), Where.checked(given))


@documented
def icurc(
    samples: CrossSamples | ShardedSamples,
    rank: int | str = Asked.rank,
    *,
    method: str = Settings.method,
    step_rows: float | None = Settings.step_rows,
    step_cols: float | None = Settings.step_cols,
    step_core: float | None = Settings.step_core,
    tol: float | None = Settings.tol,
    max_iter: int | None = Settings.max_iter,
    holdout: float = Settings.holdout,
    accuracy: float | None = Settings.accuracy,
    sweeps: int | None = Settings.sweeps,
    offsets: Any = Settings.offsets,
    intervals: bool = Settings.intervals,
    undetermined: str = Settings.undetermined,
    seed: Any = Settings.seed,
    device: str = Where.device,
    kernels: str = Settings.kernels,
    svd: str = Settings.svd,
    chunk_bytes: int | None = Settings.chunk_bytes,
    callback: Callable[[IterationState], Any] | None = Settings.callback,
    progress: bool = Where.progress,
    checkpoint: str | os.PathLike[str] | None = Where.checkpoint,
    checkpoint_every: float = Where.checkpoint_every,
    output: str | os.PathLike[str] | None = Where.output,
    client: Any = Where.client,
    gather: bool = Where.gather,
) -> Result:
    """Recover a low-rank matrix from cross-concentrated samples that are all right (no outliers).

    Iterative CUR Completion, the sister of `rcurc` by some of the same authors: nothing is thresholded. Where one
    observation in a thousand is far off, `rcurc` is the better choice.

    Parameters
    ----------
    method : {"fast", "paper"}
        "paper" takes gradient steps everywhere, as the authors do. "fast" takes them for the core alone and then solves
        a least-squares problem for each remaining column and row.
    step_rows, step_cols, step_core : float, optional
        eta_R, eta_C and eta_U, the steps of R, of C and of their intersection. By default 1 / p_R, 1 / p_C and
        1 / (p_R + p_C) ("paper"), 1 / p_u for the intersection ("fast"; p_u is its observed share).

    Returns
    -------
    Result
        `Result.threshold` is what the judgement takes for an agreement; the fit leaves nothing out.

    Warns
    -----
    ConvergenceWarning
        If the result is not confirmed; `Result.message` says why.

    Examples
    --------
    >>> import rcurc_gpu as rg
    >>> problem = rg.synthetic((400, 300), 2, alpha=0, n_rows=60, n_cols=60, rate=0.5, seed=0)
    >>> result = rg.icurc(problem.samples)
    >>> result.converged
    True
    >>> problem.relative_error(result.cur) < 1e-8
    True
    """
    given = dict(locals())  # every argument by its name
    _check_samples(samples)
    given |= {"seed": last_seed(checkpoint, output) if seed is None else seed, "outliers": False}
    if method == "paper":
        rates = {"step_rows": samples.rate_rows, "step_cols": samples.rate_cols}
        rates["step_core"] = samples.rate_rows + samples.rate_cols
        given |= {name: 1 / rate for name, rate in rates.items() if given[name] is None}
    return solve(samples, rank, Settings.checked(samples.dtype, given), Where.checked(given))


@documented
def robust_pca(
    Y: Any,
    rank: int | str = Asked.rank,
    *,
    n_rows: int | None = None,
    n_cols: int | None = None,
    sigma: Any = None,
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
        How many rows and columns to use; by default all of a matrix of up to 250,000 entries, else 4 r log(n), at least 128.
        More of them cost more, and reduce the effect of noise as the square root of their number.
    sigma : array (n1, n2), or one that broadcasts to it, optional
        Standard deviation of the noise of each entry, in any unit, if you know your instruments: (n2,) for a number for each
        column, (n1, 1) for each row. Only ratios matter. Without noise it changes nothing.
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

    Examples
    --------
    >>> import numpy as np
    >>> import rcurc_gpu as rg
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 200))
    >>> Y = np.where(rng.random(truth.shape) < 0.1, 50.0, truth)  # a tenth is wrong
    >>> Y[rng.random(truth.shape) < 0.2] = np.nan  # a fifth is missing
    >>> result = rg.robust_pca(Y)
    >>> bool(np.allclose(result.cur, truth))
    True
    >>> bool(result.outliers_of(Y).nnz == np.sum(Y == 50))
    True
    """
    Y = dense_source(Y)
    number = seed_to_int(last_seed(options.get("checkpoint"), options.get("output")) if seed is None else seed)
    rank = check_rank(rank, min(Y.shape), "min(n1, n2)")
    least = 1 if isinstance(rank, str) else rank
    small = Y.shape[0] * Y.shape[1] <= SMALL_MATRIX
    sizes = [
        (n if small else cross_size(rank, n)) if k is None else check_count(name, k, least, n)
        for name, k, n in zip(("n_rows", "n_cols"), (n_rows, n_cols), Y.shape, strict=True)
    ]
    rng = generator(number, Stream.ROBUST_PCA)
    rows, cols = (np.sort(rng.choice(n, k, replace=False)) for n, k in zip(Y.shape, sizes, strict=True))
    samples = DenseReader(Y, None).cross(rows, cols, sigma)
    return rcurc(samples, rank, seed=number, **options)


@documented
def ircur(
    Y: Any,
    rank: int | str = Asked.rank,
    *,
    oversampling: float = OVERSAMPLING,
    zeta0: float | None = Settings.zeta0,
    gamma: float = 0.7,
    tol: float = 1e-5,
    max_iter: int = 100,
    accuracy: float | None = Settings.accuracy,
    undetermined: str = Settings.undetermined,
    outliers: Any = Settings.outliers,
    seed: Any = Settings.seed,
    device: str = Where.device,
    kernels: str = Settings.kernels,
    chunk_bytes: int | None = Settings.chunk_bytes,
    callback: Callable[[IterationState], Any] | None = Settings.callback,
    progress: bool = Where.progress,
) -> Result:
    """Split a fully observed matrix into a low-rank part and outliers, with new rows and columns in every iteration.

    Iterated Robust CUR, by Cai, Hamm, Huang, Li and Wang: the paper takes it for the truth in videos. `robust_pca` is faster
    and more accurate (3000 x 3000: 0.13 s and 7e-12 against 0.82 s and 2e-6); this is here for comparisons.

    Parameters
    ----------
    Y : array (n1, n2)
        NumPy, CuPy, any array-API array, a memory map, HDF5, Zarr; without holes.
    rank : int or "auto"
        At most a quarter of the rows and columns, less two. "auto" chooses it by held-out entries of a cross, as
        `robust_pca` does.
    oversampling : float
        oversampling * r * log(n) rows and columns are drawn, with replacement; those drawn twice count once. No more than
        three quarters are taken, so that others are left to judge by.
    zeta0 : float, optional
        First threshold; by default a little above max|Y|, so that nothing is an outlier at first. (The authors take max|Y|
        itself; then entries of this size, such as pixels that are always white, are outliers from the start and remain so.)
    gamma : float in (0, 1)
        Decay of the threshold.
    tol : float
        Stop when the relative residuals of the rows and of the columns, with the outliers taken out, sum up to less.
    max_iter : int
        Iterations, at most.
    seed : int, None or numpy.random.Generator
        Fixes the result on one device.
    device : {"auto", "cpu", "cuda", "cuda:1", ...}
        Where to compute; "auto" is where `Y` is. Rows and columns of a matrix on the host go to the device as they are
        needed.

    Returns
    -------
    Result
        Judged on rows and columns that the last iteration did not use, which are its `samples`. `tol` is compared with
        the `error` in `history`.

    Warns
    -----
    ConvergenceWarning
        If the result is not confirmed; `Result.message` says why.

    Examples
    --------
    >>> import numpy as np
    >>> import rcurc_gpu as rg
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 200))
    >>> Y = np.where(rng.random(truth.shape) < 0.05, 20.0, truth)
    >>> result = rg.ircur(Y, rank=2)
    >>> bool(np.allclose(result.cur, truth, atol=1e-3))
    True
    """
    given = dict(locals())  # every argument by its name
    from .solve.ircur import solve_ircur  # here, and not above: few call it, and every import would pay

    return solve_ircur(Y, rank, given)


def _check_samples(samples: Any) -> None:
    """Refuse what are no samples, with an error that says how to make some."""
    if not isinstance(samples, (CrossSamples, ShardedSamples)):
        hint = (
            "did you mean problem.samples?" if hasattr(samples, "samples") else "make one with CrossSamples.from_dense(...)"
        )
        raise ArgumentTypeError("samples", f"must be a CrossSamples, got {type(samples).__name__}; {hint}")
