"""The arguments of a solve, checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .backends.random import seed_to_int
from .core.history import IterationState
from .errors import check_choice, check_count, check_number


@dataclass(frozen=True)
class Settings:
    """The arguments of `rcurc`, checked.

    Attributes
    ----------
    resolution : float
        Differences below this do not matter.
    outliers : bool
        False if every observation is taken for right.
    step_core : float, optional
        The step of every entry of the intersection, if it does not follow from `step_rows` and `step_cols`.
    """

    method: str
    zeta0: float | None
    gamma: float | None
    step_rows: float | None
    step_cols: float | None
    tol: float
    max_iter: int | None
    holdout: float
    accuracy: float
    sweeps: int | None
    undetermined: str
    chunk_bytes: int | None
    seed: int
    callback: Callable[[IterationState], Any] | None
    kernels: str
    resolution: float = 0.0
    outliers: bool = True
    step_core: float | None = None

    def scaled(self, factor: float) -> Settings:
        """The settings for ``factor * Y``."""
        zeta0 = None if self.zeta0 is None else self.zeta0 * factor
        return replace(self, zeta0=zeta0, resolution=self.resolution * factor)


@dataclass(frozen=True)
class Where:
    """Where a solve computes and what it keeps; see `rcurc`."""

    device: str
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float
    output: str | os.PathLike[str] | None
    client: Any
    gather: bool


def check_settings(
    dtype: Any,
    *,
    method: str,
    zeta0: float | None = None,
    gamma: float | None = None,
    step_rows: float | None = None,
    step_cols: float | None = None,
    tol: float | None,
    max_iter: int | None,
    holdout: float,
    accuracy: float,
    sweeps: int | None,
    undetermined: str,
    chunk_bytes: int | None,
    seed: Any,
    callback: Any,
    kernels: str,
    resolution: float = 0.0,
    outliers: bool = True,
    step_core: float | None = None,
) -> Settings:
    """The arguments of `rcurc` for observations of a `dtype`, or an error that names the one that is wrong."""

    def optional(name: str, value: Any, low: float, high: float = float("inf")) -> float | None:
        return None if value is None else check_number(name, value, low, high, open_low=True, open_high=True)

    check_choice("method", method, ("fast", "paper"))
    single = "32" in str(dtype)
    default_tol = (1e-5 if single else 1e-10 if method == "fast" else 1e-6) ** 2
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, got {type(callback).__name__}")
    return Settings(
        method=method,
        zeta0=optional("zeta0", zeta0, 0),
        gamma=optional("gamma", gamma, 0, 1),
        step_rows=optional("step_rows", step_rows, 0),
        step_cols=optional("step_cols", step_cols, 0),
        tol=default_tol if tol is None else check_number("tol", tol),
        max_iter=None if max_iter is None else check_count("max_iter", max_iter),
        holdout=check_number("holdout", holdout, 0, 0.5),
        accuracy=check_number("accuracy", accuracy, 0, open_low=True),
        sweeps=None if sweeps is None else check_count("sweeps", sweeps, 0),
        undetermined=check_choice("undetermined", undetermined, ("nan", "keep")),
        chunk_bytes=None if chunk_bytes is None else check_count("chunk_bytes", chunk_bytes),
        seed=seed_to_int(seed),
        callback=callback,
        kernels=check_choice("kernels", kernels, ("auto", "xp", "fused")),
        resolution=check_number("resolution", resolution),
        outliers=outliers,
        step_core=optional("step_core", step_core, 0),
    )


def check_rank(rank: Any, most: int, reason: str) -> int | str:
    """A rank of at most `most`, for which there is a `reason`, or "auto"."""
    if isinstance(rank, str):
        if rank != "auto":
            raise ValueError(f"rank must be a positive integer or 'auto', got {rank!r}")
        return rank
    number = check_count("rank", rank)
    if number > most:
        raise ValueError(f"rank must be at most {reason} = {most}, got {number}: choose more rows and columns")
    return number
