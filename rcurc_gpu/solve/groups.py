"""Groups of rows and columns that are not tied together: of the core first, then of everything else."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.blocks import Block, usual_labels
from ..backends.kernels import RunContext
from ..judge.groups import Groups
from ..shards.source import Shard
from .jobs import Engine, Job, Nothing, Stage
from .solved import Extended, SolvedCore
from .store import Arrays
from .supply import Supply


def all_groups(solved: SolvedCore, found: Extended, supply: Supply, engine: Engine) -> Groups | None:
    """The groups of all rows and columns: those outside of the core belong to the group that most of their entries meet."""
    core = solved.groups
    if found.noise is not None and found.noise.groups is not None:
        core = Groups(*(np.asarray(x, dtype=np.int64) for x in found.noise.groups))
    if core is None or core.n_groups < 2:
        return None
    view = supply.view
    labels = []
    for side, inner, chosen, own in (("c", core.columns, view.rows, core.rows), ("r", core.rows, view.cols, core.columns)):
        jobs = [Job(shard, Nothing(), None, (inner,)) for shard in supply.shards[side]]
        parts = engine.map(Stage(grouped, "groups", kept=False), jobs, lambda count: None)
        whole = np.concatenate([numbers["labels"] for _, numbers in parts])
        whole[chosen] = own
        labels.append(whole)
    return Groups(*labels)


def grouped(shard: Shard, block: Block, side: Any, run: RunContext, inner: np.ndarray) -> tuple[Arrays, Arrays]:
    """The group of each unit of a shard, by those of its positions; -1 of none."""
    return {}, {"labels": usual_labels(block, inner)}
