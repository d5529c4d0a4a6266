"""Units of which a component rests on a single observation: whether that is an outlier, nothing tells.

A wrong solution can agree with as many observations as it has unknowns. Where most of a unit's observations say nothing of
a component (it lives in few rows, say), the rest of them may be so few that a wrong solution passes: each observation then
has a leverage of 1, which means that without it nothing would be known of the component. Nine rows in ten alike: 3 of 32
results were confirmed with errors of 10 % and more without this.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..backends.arrays import asarray_on, bring, take_rows
from ..backends.plain.verdicts import ILL_CONDITIONED, SKEWED, UNKNOWN
from .tasks import Extension, Task

MOST_UNKNOWN = 10_000  # units without spread, of which the trace is not known, that are looked at


def without_lone(task: Task, units: np.ndarray, extension: Extension, bits: np.ndarray) -> Extension:
    """Mark units of which a component rests on a single observation; `bits` (`verdicts`) say where that may be."""
    d = extension.diagnostics
    doubtful, unknown = (np.flatnonzero(bits & np.uint8(which)) for which in (SKEWED, UNKNOWN))
    if 0 < len(unknown) <= MOST_UNKNOWN:
        doubtful = np.union1d(doubtful, unknown)
    if len(doubtful) == 0:
        return extension
    block, places, _ = task.resident(units[doubtful])
    a = take_rows(extension.coefficients, asarray_on(doubtful, extension.coefficients))  # may be on the host
    a = bring(a, task.basis)
    lone = task.run.kernels.rests_on_one(block, places, task.basis, a, task.usable, task.schedule.floor)
    status = d.status.copy()
    status[doubtful[lone]] = ILL_CONDITIONED
    return replace(extension, diagnostics=replace(d, status=status))
