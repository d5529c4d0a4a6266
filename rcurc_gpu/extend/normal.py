"""Chosen rows (columns) from all columns (rows): normal equations, which add up over parts of the data.

A chosen row (of I) has observations in every column. So each part of the columns, wherever it is, gives its share of the
row's Gram matrix and right-hand side.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, bring, default_chunk_bytes, device_of, take_rows, to_numpy
from ..backends.kernels import XP
from ..backends.plain.passes import entry_ids_on
from ..backends.plain.regression import with_ridge
from ..backends.streaming import through
from .tasks import Task


@dataclass(frozen=True, eq=False)
class Normal:
    """Normal equations of k units for the change of their coefficients, on the host; sums over parts of the data.

    Attributes
    ----------
    sums : float array (k, r * r + r + 2)
        For each unit: Gram matrix and right-hand side of its inliers, observations in the fit, inliers.
    basis : float array (r, r)
        Gram matrix of the whole basis.
    """

    sums: np.ndarray
    basis: np.ndarray

    def __add__(self, other: Normal) -> Normal:
        return Normal(self.sums + other.sums, self.basis + other.basis)


def normal_equations(task: Task, start: Array) -> Normal:
    """Normal equations of all units of a block, by their entries within the threshold of the coefficients they have.

    Parameters
    ----------
    task : Task
        Its units are chosen rows (columns), with the columns (rows) of a part of the data as positions; the floor of its
        schedule is the threshold.
    start : float array (n_units, r)
        The coefficients they have, where the basis is.
    """
    basis, run = task.basis, task.run
    kernels = run.kernels if run.kernels.name == "numba" else XP  # there is no CUDA kernel for this
    ids = entry_ids_on(basis, task.unit_ids, task.index_ids, task.transposed, run.seed, run.holdout)
    xp = array_namespace(basis)
    r, units = task.rank, np.arange(task.block.n_units)
    plan = kernels.plan(task.block, units, r, run.chunk_bytes or default_chunk_bytes(basis))

    def arguments(chosen: np.ndarray, there: Array | None) -> tuple[Any, ...]:
        here = ids if there is None else replace(ids, unit=there)
        a = take_rows(start, xp.asarray(chosen, device=device_of(start)))
        return basis, task.usable, here, a, task.schedule.floor

    found = [sums for _, (sums,) in through(task.block, list(plan), task.unit_ids, basis, kernels.normal, arguments)]
    sums = plan.join(found) if found else xp.zeros((0, r * r + r + 2), dtype=basis.dtype, device=device_of(basis))
    whole = basis.T @ (basis * task.usable[:, None])
    return Normal(*(to_numpy(x).astype(np.float64, copy=False) for x in (sums, whole)))


def solve_normal_equations(normal: Normal, start: Array) -> tuple[Array, np.ndarray]:
    """New coefficients (k, r), of the kind of `start`, and whether they are determined (k,), on the host."""
    k, r = start.shape
    G = np.reshape(normal.sums[:, : r * r], (k, r, r))
    b, n_in = normal.sums[:, r * r : r * r + r], normal.sums[:, -1]
    a = to_numpy(start).astype(np.float64) + np.linalg.solve(with_ridge(G)[0], b[:, :, None])[:, :, 0]
    # The condition is measured as in `passes._measure`: in coordinates in which the whole basis is orthonormal.
    values, vectors = np.linalg.eigh(normal.basis)
    least = np.finfo(normal.basis.dtype).eps * np.abs(values).max() + np.finfo(normal.basis.dtype).smallest_normal
    white = (vectors / np.sqrt(np.maximum(values, least))).T
    inner, size = with_ridge(white @ G @ white.T)
    trace = np.trace(np.linalg.inv(inner), axis1=1, axis2=2)
    eps = float(array_namespace(start).finfo(start.dtype).eps)
    # r + 1 entries always nearly agree; and a condition number above 1 / eps^0.5 leaves less than half of the digits
    good = (n_in >= r + 2) & (size * trace < r / eps**0.5) & np.isfinite(a).all(axis=1)
    return bring(a.astype(str(start.dtype).rpartition(".")[2]), start), good
