"""One fit pass over all units of a block that is where the basis is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, default_chunk_bytes, device_of, take_rows
from ..backends.blocks import Block
from ..backends.kernels import Kernels
from ..backends.plain.passes import FitPass, entry_ids_on


def regress_all(
    block: Block,
    basis: Array,
    fit_pass: FitPass,
    kernels: Kernels,
    chunk_bytes: int | None,
    unit_ids: np.ndarray | None = None,
) -> tuple[Array, Array]:
    """One fit pass over all units of a block, on an orthonormal basis, with nothing held out; see `passes.regress`.

    `unit_ids`, by default 0, 1, ..., select the random numbers of each unit.
    """
    xp = array_namespace(basis)
    r, units = basis.shape[1], np.arange(block.n_units)
    ids = entry_ids_on(basis, units if unit_ids is None else unit_ids, np.arange(block.length), False, 0, 0.0)
    white = xp.eye(r, dtype=basis.dtype, device=device_of(basis))
    plan = kernels.plan(block, units, r, chunk_bytes or default_chunk_bytes(basis))
    parts = []
    for chosen in plan:
        start = None if fit_pass.start is None else take_rows(fit_pass.start, asarray_on(chosen, fit_pass.start))
        here = replace(fit_pass, start=start)
        parts.append(kernels.regress(block, chosen, basis, xp.ones_like(basis[:, 0]), white, ids, here))
    a, table = (plan.join(list(column)) for column in zip(*parts, strict=True))
    return a, table
