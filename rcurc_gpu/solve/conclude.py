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
    message, curve = verdict.message, found.curve
    if curve is not None:
        curve = replace(curve, chosen=core.rank)
        message = message.replace(" or rank='auto'", "")  # that is what was done
    elif core.rank < found.asked and verdict.cause in ("", "undetermined", "noise"):
        message = (
            f"Rank {found.asked} was asked for, but the held-out entries confirm only rank {core.rank}, which was used. "
            f"{message}"
        )
    if not (verdict.ok or s.outliers):
        message += " All observations were taken for right; if some are outliers, use rcurc."
    return Result(
        cur=CURMatrix(*factors, samples.rows, samples.cols),
        converged=verdict.ok,
        message=message,
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
    )
