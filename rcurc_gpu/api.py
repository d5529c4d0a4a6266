"""`rcurc` and `icurc`: the arguments, and where the work is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .core.history import IterationState
from .options import Where, check_settings
from .result.result import Result
from .samples.cross import CrossSamples
from .shards.samples import ShardedSamples
from .solve.driver import solve
from .solve.output import last_seed


def rcurc(
    samples: CrossSamples | ShardedSamples,
    rank: int | str,
    *,
    method: str = "fast",
    step_rows: float | None = None,
    step_cols: float | None = None,
    zeta0: float | None = None,
    gamma: float | None = None,
    tol: float | None = None,
    max_iter: int | None = None,
    holdout: float = 0.03,
    accuracy: float = 1e-2,
    resolution: float = 0.0,
    sweeps: int | None = None,
    undetermined: str = "nan",
    seed: Any = 0,
    device: str = "auto",
    kernels: str = "auto",
    chunk_bytes: int | None = None,
    callback: Callable[[IterationState], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    output: str | os.PathLike[str] | None = None,
    client: Any = None,
    gather: bool = True,
) -> Result:
    """Recover a low-rank matrix from cross-concentrated samples, some of which are outliers.

    Parameters
    ----------
    samples : CrossSamples or ShardedSamples
        What was observed. What comes out is of the same kind as its arrays (NumPy, CuPy, ...). Those in shards are worked
        on one after the other, each read once, and again for each sweep.
    rank : int or "auto"
        Rank of the matrix. "auto" chooses it by the error on held-out entries of the core.
    method : {"fast", "paper"}
        "paper" gives the iterates of the paper's Algorithm 1. "fast" takes its core and then solves a robust least-squares
        problem for each remaining column and row, with the threshold stopping at the noise.
    step_rows, step_cols : float, optional
        eta_R and eta_C. By default 1 / p_u ("fast"; p_u is the observed share of the intersection), 0.75 / p_R and
        0.75 / p_C ("paper").
    zeta0 : float, optional
        First threshold; by default 5 times the median size of an observation.
    gamma : float in (0, 1), optional
        Decay of the threshold. By default 0.8, then 0.9 and 0.95 if the held-out entries are not content ("fast"), 0.9
        ("paper").
    tol : float, optional
        Target of e_k, which is a squared relative error. "fast" stops when U moves by less than its square root.
    max_iter : int, optional
        Iterations of the core, for each gamma tried.
    holdout : float in [0, 0.5]
        Share of the observations that is kept out of the fit to judge it. 0 turns the judgement by held-out entries off.
    accuracy : float
        `converged` is only true if the relative error expected from the noise is below this.
    resolution : float
        Differences that do not matter, in the unit of the data, as one grey level in a video: what is left in the residuals
        is no reason for a larger rank if it is smaller than this.
    sweeps : int, optional
        Alternating sweeps over all observations after the extension ("fast"): they reduce the effect of noise. By default 1
        if there is noise, else none.
    undetermined : {"nan", "keep"}
        What to put where a column or row could not be determined: NaN, or the doubtful numbers.
    seed : int, None or numpy.random.Generator
        Fixes the result on one device. None takes any, and goes on with the one of a solve that was interrupted.
    device : {"auto", "cpu", "cuda", "cuda:1", ...}
        Where to compute; "auto" is where the samples are. Samples on the host go through a CUDA device in chunks, so they
        may be larger than its memory.
    kernels : {"auto", "xp", "fused"}
        What computes: plain array code, or compiled kernels (CUDA through CuPy, or Numba on a CPU). "auto" takes compiled
        ones where there are some. They differ in rounding only.
    chunk_bytes : int, optional
        Working memory of one chunk of columns or rows; by default 8 MiB on a CPU (its cache), 256 MiB on a GPU.
    callback : callable, optional
        Called with an `IterationState` after every iteration of the core; returning True ends it. With ``method="paper"``
        its method ``cur()`` gives the whole matrix of the iteration.
    progress : bool
        Show progress bars on standard error.
    checkpoint : path, optional
        A file to keep what was done, for ``method="fast"``. Ended in any way, the same call goes on from there and gives
        the same result. It stays when the solve is done; delete it when the result is safe. It is written whole or not
        at all, and a file that is none of this solve is left alone, with an error.
    checkpoint_every : float
        Seconds between two writes of it, at least; more where writing takes long.
    output : path, optional
        For samples in shards, or with a `client`: a directory for the factors, which are then read when they are looked
        at. What is done of a shard is kept there, so the same call goes on where an earlier one ended in any way. Workers
        write to it, so all of them must see it.
    client : dask.distributed.Client, optional
        Work on its workers, each shard where its data is. Samples in memory are cut into shards.
    gather : bool
        With a `client` and without `output`: True brings the factors here, False leaves them on the workers, as Dask
        arrays. Those that are lost with a worker later are made again if the shards are of a directory or of functions.

    Returns
    -------
    Result

    Warns
    -----
    ConvergenceWarning
        If the result is not confirmed; `Result.message` says why.
    """
    settings = check_settings(
        _checked(samples).dtype,
        method=method,
        zeta0=zeta0,
        gamma=gamma,
        step_rows=step_rows,
        step_cols=step_cols,
        tol=tol,
        max_iter=max_iter,
        holdout=holdout,
        accuracy=accuracy,
        sweeps=sweeps,
        undetermined=undetermined,
        chunk_bytes=chunk_bytes,
        seed=last_seed(checkpoint, output) if seed is None else seed,
        callback=callback,
        kernels=kernels,
        resolution=resolution,
    )
    where = Where(device, checkpoint, checkpoint_every, output, client, gather)
    return solve(samples, rank, settings, where, progress)


def icurc(
    samples: CrossSamples | ShardedSamples,
    rank: int | str,
    *,
    method: str = "fast",
    step_rows: float | None = None,
    step_cols: float | None = None,
    step_core: float | None = None,
    tol: float | None = None,
    max_iter: int | None = None,
    holdout: float = 0.03,
    accuracy: float = 1e-2,
    sweeps: int | None = None,
    undetermined: str = "nan",
    seed: Any = 0,
    device: str = "auto",
    kernels: str = "auto",
    chunk_bytes: int | None = None,
    callback: Callable[[IterationState], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    output: str | os.PathLike[str] | None = None,
    client: Any = None,
    gather: bool = True,
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
    samples, rank, tol, max_iter, holdout, accuracy, sweeps, undetermined, seed, device, kernels, chunk_bytes, \
callback, progress, checkpoint, checkpoint_every, output, client, gather :
        As in `rcurc`.

    Returns
    -------
    Result
        `Result.threshold` is what the judgement takes for an agreement; the fit leaves nothing out.

    Warns
    -----
    ConvergenceWarning
        If the result is not confirmed; `Result.message` says why.
    """
    _checked(samples)
    if method == "paper":
        step_rows = 1 / samples.rate_rows if step_rows is None else step_rows
        step_cols = 1 / samples.rate_cols if step_cols is None else step_cols
        step_core = 1 / (samples.rate_rows + samples.rate_cols) if step_core is None else step_core
    settings = check_settings(
        samples.dtype,
        method=method,
        step_rows=step_rows,
        step_cols=step_cols,
        tol=tol,
        max_iter=max_iter,
        holdout=holdout,
        accuracy=accuracy,
        sweeps=sweeps,
        undetermined=undetermined,
        chunk_bytes=chunk_bytes,
        seed=last_seed(checkpoint, output) if seed is None else seed,
        callback=callback,
        kernels=kernels,
        outliers=False,
        step_core=step_core,
    )
    where = Where(device, checkpoint, checkpoint_every, output, client, gather)
    return solve(samples, rank, settings, where, progress)


def _checked(samples: Any) -> CrossSamples | ShardedSamples:
    """`samples`, or an error that says how to make some."""
    if not isinstance(samples, (CrossSamples, ShardedSamples)):
        hint = (
            "did you mean problem.samples?" if hasattr(samples, "samples") else "make one with CrossSamples.from_dense(...)"
        )
        raise TypeError(f"samples must be a CrossSamples, got {type(samples).__name__}; {hint}")
    return samples
