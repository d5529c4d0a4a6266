"""`rcurc` and `icurc`: the arguments, and where the work is done."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import is_cupy_array

from .backends.arrays import Array, device_scope, place_for, same_place
from .core.history import IterationState
from .errors import ArgumentError, ArgumentTypeError, ConvergenceWarning, check_number
from .files import UNREADABLE
from .options import Settings, Where, check_rank, documented
from .progress import Progress
from .result.result import Result
from .samples.cross import CrossSamples
from .shards.samples import ShardedSamples
from .solve.checkpoint import Checkpoint, identity_of, seed_in_checkpoint, settings_identity
from .solve.driver import Solve
from .solve.output import seed_in_output
from .solve.run import solve_in_shards
from .solve.scaling import at_home, in_units, state_at_home, unit_of

log = logging.getLogger("rcurc_gpu")


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
    return _solve(samples, rank, Settings.checked(samples.dtype, given), Where.checked(given), progress)


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
    return _solve(samples, rank, Settings.checked(samples.dtype, given), Where.checked(given), progress)


def _check_samples(samples: Any) -> None:
    """Refuse what are no samples, with an error that says how to make some."""
    if not isinstance(samples, (CrossSamples, ShardedSamples)):
        hint = (
            "did you mean problem.samples?" if hasattr(samples, "samples") else "make one with CrossSamples.from_dense(...)"
        )
        raise ArgumentTypeError("samples", f"must be a CrossSamples, got {type(samples).__name__}; {hint}")


def _solve(samples: CrossSamples | ShardedSamples, rank: Any, settings: Settings, where: Where, progress: bool) -> Result:
    """Compute where the user says, in units in which squares neither overflow nor vanish."""
    rank = check_rank(rank, min(len(samples.rows), len(samples.cols)), "min(|I|, |J|)")
    where = replace(where, checkpoint_every=check_number("checkpoint_every", where.checkpoint_every))
    if isinstance(samples, ShardedSamples) or where.client is not None or where.output is not None:
        return announced(solve_in_shards(samples, rank, settings, where, progress), stacklevel=4)
    if where.gather is not True:
        raise ValueError(f"gather is for a solve with a client, got gather={where.gather!r} and none")
    like = place_for(where.device, samples.r_block.value)
    keeper = None
    if where.checkpoint is not None:
        keeper = _keeper(where.checkpoint, samples, rank, settings, like, where.checkpoint_every)
    here = reachable(samples, like)
    with device_scope(like):
        unit = unit_of(here)
    with Progress(progress, _at_home(settings.callback, samples, unit)) as show, device_scope(like):
        if unit != 1:
            settings = settings.scaled(1 / unit)
            here = here.scaled(1 / unit)
        try:
            result = in_units(Solve(here, settings, show, like, keeper).run(rank), unit)
        finally:
            if keeper is not None:
                keeper.close()
    return announced(at_home(result, samples), stacklevel=4)


def last_seed(checkpoint: Any, output: Any) -> int | None:
    """The seed of a solve that has left its work in a file or a directory; None if there is none.

    Of what is no work of ours nothing is said here: who is going to use it does.
    """
    try:
        if output is not None:
            return seed_in_output(output)
        return None if checkpoint is None else seed_in_checkpoint(checkpoint)
    except UNREADABLE:
        return None


def _keeper(
    path: str | os.PathLike[str], samples: CrossSamples, rank: int | str, settings: Settings, like: Array, every: float
) -> Checkpoint:
    if settings.method != "fast":
        raise ArgumentError("checkpoint", f"is for method='fast', got method={settings.method!r}")
    return Checkpoint(path, identity_of(samples, settings_identity(settings, rank, like)), every)


def reachable(samples: CrossSamples, like: Array) -> CrossSamples:
    """The samples where a solve on the device of `like` takes them from: they stream to a CUDA device, to any other place
    they are copied."""
    return samples if is_cupy_array(like) or same_place(like, samples.r_block.value) else samples.to_namespace(np)


def announced(result: Result, stacklevel: int) -> Result:
    """The result, with a warning to the user's line if it is not confirmed."""
    if not result.converged:
        warnings.warn(result.message, ConvergenceWarning, stacklevel=stacklevel)
    log.info("%r", result)
    return result


def _at_home(
    callback: Callable[[IterationState], Any] | None, samples: CrossSamples, unit: float
) -> Callable[[IterationState], Any] | None:
    """The callback, for states on samples that were divided by `unit`."""
    return None if callback is None else lambda state: callback(state_at_home(state, samples, unit))
