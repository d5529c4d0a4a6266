"""The last step of every solve: the verdict, and the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..backends.arrays import Array
from ..extend.diagnostics import Summary, UnitDiagnostics
from ..judge.expected_error import expected_error
from ..judge.verdict import judge_result
from ..result.matrix import CURMatrix
from ..result.result import Result
from .found import FoundCore


def conclude(
    found: FoundCore,
    factors: tuple[Array, Array],
    columns: UnitDiagnostics,
    rows: UnitDiagnostics,
    summaries: tuple[Summary, Summary],
    outside: tuple[Summary, Summary],
    swept: bool,
    samples: Any,
    seconds: float,
) -> Result:
    """Judge everything.

    Parameters
    ----------
    found : FoundCore
    factors : float arrays (n1, r) and (n2, r)
        With NaN where the user wants it.
    columns, rows : UnitDiagnostics
    summaries, outside : (Summary, Summary)
        Of all columns and rows, and of those outside of the core.
    swept : bool
        Whether the basis comes from all observations.
    samples : CrossSamples or ShardedSamples
    """
    s, core = found.settings, found.checked.core
    n1, n2 = samples.shape
    per_unit = (n2 * samples.rate_rows, n1 * samples.rate_cols) if swept else None
    expected = expected_error(found.facts, per_unit, *summaries)
    verdict = judge_result(found.verdict, *summaries, outside, expected, s.accuracy)
    curve = None if found.curve is None else replace(found.curve, chosen=core.rank)
    verdict = replace(verdict, asked=found.asked, rank=core.rank, chosen=curve is not None, outliers=s.outliers)
    return Result(
        cur=CURMatrix(*factors, samples.rows, samples.cols),
        converged=verdict.ok,
        message=verdict.message,
        cause=verdict.cause,
        history=core.history,
        columns=columns,
        rows=rows,
        noise=core.sigma,
        threshold=found.checked.schedule.floor,
        expected_error=expected,
        agreeing=found.checked.agreeing,
        rank_curve=curve,
        method=s.method,
        device=found.device,
        kernels=found.kernels,
        seconds=seconds,
        samples=samples,
        schedule=found.checked.schedule,
        chunk_bytes=s.chunk_bytes,
        verdict=verdict,
    )
