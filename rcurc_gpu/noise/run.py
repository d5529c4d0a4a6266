"""`posterior` of many units of a block, some at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..backends.arrays import Array, array_namespace, default_chunk_bytes, device_of
from ..backends.blocks import Block
from ..backends.plain.posterior import Fit, Model

if TYPE_CHECKING:
    from ..backends.kernels import RunContext

_MATRICES = 12  # that plain code has in memory at a time, a number for each unit and position in each


def run_posterior(
    run: RunContext,
    block: Block,
    weight: Array | None,
    units: np.ndarray,
    model: Model,
    start: tuple[Array, Array, Array],
    temperatures: tuple[float, ...],
    measure: bool,
) -> tuple[Array, Array, Array]:
    """`posterior` of units of a block in chunks; `start` has a row for each of them, and so has what is returned."""
    xp, n = array_namespace(model.at.x), len(units)
    if n == 0:
        return start[0], start[1], xp.zeros((0, len(Fit)), dtype=model.at.x.dtype, device=device_of(model.at.x))
    at_once = n
    if run.kernels.name == "xp":  # units are laid out as rows of matrices
        room = run.chunk_bytes or default_chunk_bytes(model.at.x)
        at_once = max(room // (8 * _MATRICES * max(block.length, 1)), 1)
    parts = []
    for low, high in pairwise([*range(0, n, at_once), n]):
        begin = tuple(x[low:high, ...] for x in start)
        parts.append(run.kernels.posterior(block, weight, units[low:high], model, begin, temperatures, measure))
    mean, covariance, table = parts[0] if len(parts) == 1 else (xp.concat(list(x)) for x in zip(*parts, strict=True))
    return mean, covariance, table
