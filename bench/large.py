"""The synthetic problem in shards on disk, at sizes that no memory holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import rcurc_gpu as rg
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.shards import ShardedSamples
from rcurc_gpu.shards.folder import Cross, FolderWriter, workspace

RANK, ALPHA, C = 5, 0.2, 10.0


def truth(size: int, noise: float = 0.0, seed: int = 0) -> rg.SyntheticProblem:
    """Factors of a size x size matrix; its own samples are a formality."""
    return rg.synthetic((size, size), RANK, ALPHA, C, noise, n_rows=20, n_cols=20, rate=0.001, seed=seed)


def make(folder: Path, problem: rg.SyntheticProblem, chosen: int, rate: float, shard_obs: int) -> ShardedSamples:
    """Draw samples of `problem` shard by shard into a new directory."""
    size = problem.shape[0]
    rng = np.random.default_rng([problem.seed, 7])
    rows, cols = (np.sort(rng.choice(size, chosen, replace=False)) for _ in range(2))
    step = max(round(shard_obs / (rate * chosen)), 1)
    with workspace(folder):
        writer = FolderWriter(folder, Cross(problem.shape, rows, cols), problem.dtype)
        for side, fixed in (("r", rows), ("c", cols)):
            for start in range(0, size, step):
                writer.add(side, start, _drawn(problem, side, start, min(start + step, size), fixed, rate, rng))
        writer.finish()
    return ShardedSamples.open(folder)


def _drawn(
    problem: rg.SyntheticProblem, side: str, start: int, stop: int, fixed: np.ndarray, rate: float, rng: np.random.Generator
) -> Block:
    """Entries of the units start..stop, each seen with probability `rate`: gaps between them are geometric."""
    n_units, length = stop - start, len(fixed)
    cells = n_units * length
    gaps = rng.geometric(rate, size=int(rate * cells + 8 * (rate * cells) ** 0.5) + 16)
    place = np.cumsum(gaps) - 1
    place = place[place < cells]
    unit, index = np.divmod(place, length)
    other = fixed[index]
    value = problem.entries(other, start + unit) if side == "r" else problem.entries(start + unit, other)
    indptr = np.searchsorted(unit, np.arange(n_units + 1)).astype(np.int64)
    return Block(indptr, index.astype(np.int32), value, length)
