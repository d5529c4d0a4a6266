"""`rcurc` and `icurc`: the arguments, and where the work is done."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .core.history import IterationState
from .errors import ArgumentTypeError
from .options import Settings, Where, documented
from .result.result import Result
from .samples.cross import CrossSamples
from .shards.samples import ShardedSamples
from .solve.driver import solve
from .solve.output import last_seed


@documented
def rcurc(
    samples: CrossSamples | ShardedSamples,
    rank: int | str,
    *,
    method: str = Settings.method,
    step_rows: float | None = Settings.step_rows,
    step_cols: float | None = Settings.step_cols,
    zeta0: float | None = Settings.zeta0,
    gamma: float | None = Settings.gamma,
    tol: float | None = Settings.tol,
    max_iter: int | None = Settings.max_iter,
    holdout: float = Settings.holdout,
    accuracy: float = Settings.accuracy,
    resolution: float = Settings.resolution,
    sweeps: int | None = Settings.sweeps,
    undetermined: str = Settings.undetermined,
    seed: Any = Settings.seed,
    device: str = Where.device,
    kernels: str = Settings.kernels,
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
    """
    given = dict(locals())  # every argument by its name
    _check_samples(samples)
    given["seed"] = last_seed(checkpoint, output) if seed is None else seed
    return solve(samples, rank, Settings.checked(samples.dtype, given), Where.checked(given))


@documented
def icurc(
    samples: CrossSamples | ShardedSamples,
    rank: int | str,
    *,
    method: str = Settings.method,
    step_rows: float | None = Settings.step_rows,
    step_cols: float | None = Settings.step_cols,
    step_core: float | None = Settings.step_core,
    tol: float | None = Settings.tol,
    max_iter: int | None = Settings.max_iter,
    holdout: float = Settings.holdout,
    accuracy: float = Settings.accuracy,
    sweeps: int | None = Settings.sweeps,
    undetermined: str = Settings.undetermined,
    seed: Any = Settings.seed,
    device: str = Where.device,
    kernels: str = Settings.kernels,
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
    """
    given = dict(locals())  # every argument by its name
    _check_samples(samples)
    given |= {"seed": last_seed(checkpoint, output) if seed is None else seed, "outliers": False}
    if method == "paper":
        rates = {"step_rows": samples.rate_rows, "step_cols": samples.rate_cols}
        rates["step_core"] = samples.rate_rows + samples.rate_cols
        given |= {name: 1 / rate for name, rate in rates.items() if given[name] is None}
    return solve(samples, rank, Settings.checked(samples.dtype, given), Where.checked(given))


def _check_samples(samples: Any) -> None:
    """Refuse what are no samples, with an error that says how to make some."""
    if not isinstance(samples, (CrossSamples, ShardedSamples)):
        hint = (
            "did you mean problem.samples?" if hasattr(samples, "samples") else "make one with CrossSamples.from_dense(...)"
        )
        raise ArgumentTypeError("samples", f"must be a CrossSamples, got {type(samples).__name__}; {hint}")
