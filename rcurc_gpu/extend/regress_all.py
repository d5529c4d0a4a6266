"""One look at all units of a block that is where the basis is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, default_chunk_bytes, device_of, take_rows
from ..backends.blocks import Block
from ..backends.kernels import Kernels
from ..backends.plain.passes import Look, names_on


def regress_all(
    block: Block,
    basis: Array,
    look: Look,
    kernels: Kernels,
    chunk_bytes: int | None,
    unit_names: np.ndarray | None = None,
) -> tuple[Array, Array]:
    """One look at all units of a block, on an orthonormal basis, with nothing held out; see `look.regress`.

    `unit_names`, by default 0, 1, ..., fix what is random.
    """
    xp = array_namespace(basis)
    r, units = basis.shape[1], np.arange(block.n_units)
    names = names_on(basis, units if unit_names is None else unit_names, np.arange(block.length), False, 0, 0.0)
    white = xp.eye(r, dtype=basis.dtype, device=device_of(basis))
    plan = kernels.plan(block, units, r, chunk_bytes or default_chunk_bytes(basis))
    parts = []
    for chosen in plan:
        start = None if look.start is None else take_rows(look.start, asarray_on(chosen, look.start))
        here = replace(look, start=start)
        parts.append(kernels.regress(block, chosen, basis, xp.ones_like(basis[:, 0]), white, names, here))
    a, table = (plan.join(list(column)) for column in zip(*parts, strict=True))
    return a, table
