"""The last step of every solve: the verdict, and the result."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path

from ..errors import ConvergenceWarning
from ..extend.diagnostics import Summary
from ..judge.expected_error import expected_error
from ..judge.verdict import judge_result
from ..result.matrix import CURMatrix
from ..result.result import Result
from .output import diagnostics_of
from .solved import SolvedCore
from .store import Arrays
from .supply import Supply

log = logging.getLogger("rcurc_gpu")

Summaries = tuple[dict[str, Summary], dict[str, Summary]]
_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


def concluded(
    solved: SolvedCore, supply: Supply, factors: dict[str, Arrays], summaries: Summaries, swept: bool, seconds: float
) -> Result:
    """Judge the whole solve and make its result.

    Parameters
    ----------
    solved : SolvedCore
    supply : Supply
    factors : dict
        The factor and the diagnostics of the columns ("r") and the rows ("c").
    summaries : (dict of Summary, dict of Summary)
        Of all columns and rows, and of those outside of the core.
    swept : bool
        Whether the basis comes from all observations.
    seconds : float
        Since the start of the solve.
    """
    view = supply.view
    s, core = solved.settings, solved.core
    n1, n2 = view.shape
    # a sweep averages over all observations of a chosen row (column), and not over its part in the intersection
    per_unit = (n2 * view.rate_rows, n1 * view.rate_cols) if swept else None
    whole, outside = ((found["r"], found["c"]) for found in summaries)
    expected = expected_error(solved.facts, per_unit, *whole)
    verdict = judge_result(solved.verdict, *whole, outside, expected, s.accuracy)
    curve = None if solved.curve is None else replace(solved.curve, chosen=core.rank)
    verdict = replace(verdict, asked=solved.asked, rank=core.rank, chosen=curve is not None, outliers=s.outliers)
    return Result(
        cur=CURMatrix(factors["c"]["factor"], factors["r"]["factor"], view.rows, view.cols),
        converged=verdict.ok,
        message=verdict.message,
        cause=verdict.cause,
        history=core.history,
        columns=diagnostics_of(factors["r"]),
        rows=diagnostics_of(factors["c"]),
        noise=core.sigma,
        threshold=solved.schedule.floor,
        expected_error=expected,
        agreeing=solved.consensus,
        rank_curve=curve,
        method=s.method,
        device=solved.device,
        kernels=solved.kernels,
        seconds=seconds,
        samples=supply.samples,
        schedule=solved.schedule,
        chunk_bytes=s.chunk_bytes,
        verdict=verdict,
    )


def announced(result: Result) -> Result:
    """Return the result; if it is not confirmed, issue a warning at the user's line of code."""
    if not result.converged:
        # skip the frames of this package, so that Python shows the line of the user's code
        level, frame = 1, sys._getframe()
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
            level, frame = level + 1, frame.f_back
        warnings.warn(result.message, ConvergenceWarning, stacklevel=level)
    log.info("%r", result)
    return result
