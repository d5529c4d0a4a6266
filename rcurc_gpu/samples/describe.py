"""A description of samples in words, with warnings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..backends.arrays import to_numpy
from ..errors import check_count
from ..summary import size_words
from .choosing import NEEDED_PER_RANK
from .view import Samples

Named = Callable[[str, int], str]  # what to call the row or column of a number


def describe(samples: Samples, rank: int | None) -> str:
    """Sizes, rates, observations per row and column, and warnings."""
    lines, warnings = facts_and_warnings(samples, rank)
    return "\n".join([*lines, *(f"warning: {text}" for text in warnings)])


def cross_facts(samples: Samples) -> dict[str, str]:
    """What a summary says of samples, from what is at hand: nothing is counted for it."""
    return {
        "matrix": size_words(samples.shape),
        "rows": f"{len(samples.rows):,} chosen, {samples.rate_rows:.3g} of their entries observed",
        "columns": f"{len(samples.cols):,} chosen, {samples.rate_cols:.3g} of their entries observed",
    }


def facts_and_warnings(samples: Samples, rank: int | None, named: Named = "{} {}".format) -> tuple[list[str], list[str]]:
    """The lines of `describe`, those with facts and those that warn; `named` says what to call a row or column."""
    if rank is not None:
        rank = check_count("rank", rank)
    n1, n2 = samples.shape
    core = samples.intersection.block
    core_rows, core_cols = core.counts, np.bincount(to_numpy(core.index), minlength=core.length)
    area = len(samples.rows) * len(samples.cols)
    lines = [
        f"{samples.n_obs:,} observations of a {n1:,} x {n2:,} matrix ({samples.n_obs / (n1 * n2):.3%} of its entries), "
        f"{samples.dtype} on {samples.device}",
        f"rows: {len(samples.rows):,} chosen, {samples.rate_rows:.2%} of their entries observed; "
        f"{_spread(samples.counts('r'))} per column",
        f"columns: {len(samples.cols):,} chosen, {samples.rate_cols:.2%} of their entries observed; "
        f"{_spread(samples.counts('c'))} per row",
        f"where they cross: {len(samples.rows):,} x {len(samples.cols):,}, {core.n_obs / area:.2%} observed; "
        f"{_spread(core_rows)} per row, {_spread(core_cols)} per column",
    ]
    if samples.n_unused:
        lines.append(f"unused: {samples.n_unused:,} observations lie outside the chosen rows and columns")
    return lines, _warnings(samples, rank, core_rows, core_cols, named)


def _spread(counts: np.ndarray) -> str:
    return f"{counts.min():,} (least) to {int(np.median(counts)):,} (median) observations"


def _warnings(samples: Samples, rank: int | None, core_rows: np.ndarray, core_cols: np.ndarray, named: Named) -> list[str]:
    least = 1 if rank is None else rank + 2
    out = []
    # chosen columns and rows are determined by the intersection, so what both blocks observe of them there counts
    per_column, per_row = samples.counts("r").copy(), samples.counts("c").copy()
    per_column[samples.cols], per_row[samples.rows] = core_cols, core_rows
    for name, counts in (("column", per_column), ("row", per_row)):
        few = np.flatnonzero(counts < least).tolist()
        if few:
            need = "no observation" if rank is None else f"fewer than rank + 2 = {least} observations"
            out.append(f"{len(few):,} {name}s have {need} (the first is {named(name, few[0])}) and cannot be determined")
    if rank is not None:
        most = min(len(samples.rows), len(samples.cols))
        if rank > most:
            out.append(f"rank {rank} is larger than the intersection allows ({most})")
        for name, counts in (("row", core_rows), ("column", core_cols)):
            typical = float(np.median(counts))
            if typical < NEEDED_PER_RANK * rank:
                out.append(
                    f"a {name} of the intersection has {typical:.0f} observations (median); recovery at rank {rank} "
                    f"needs about {NEEDED_PER_RANK * rank}"
                )
    return out
