"""The last step of every solve: the verdict, and the result."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from ..errors import ConvergenceWarning, warn_caller
from ..judge.causes import Cause
from ..judge.expected_error import expected_error
from ..judge.groups import Groups
from ..judge.verdict import judge_noise, judge_result, with_structure
from ..result.matrix import CURMatrix
from ..result.result import Result
from .output import diagnostics_of
from .solved import Extended, SolvedCore, threshold_of, uncertainty_of
from .store import Arrays
from .supply import Supply

log = logging.getLogger("rcurc_gpu")


def concluded(
    solved: SolvedCore, supply: Supply, factors: dict[str, Arrays], found: Extended, scale: float, seconds: float
) -> Result:
    """Judge the whole solve and make its result.

    Parameters
    ----------
    solved : SolvedCore
    supply : Supply
    factors : dict
        The factor and the diagnostics of the columns ("r") and the rows ("c").
    found : Extended
        What is known of all columns and rows.
    scale : float
        Observations were divided by this.
    seconds : float
        Since the start of the solve.
    """
    view, noise = supply.view, found.noise
    s, core = solved.settings, solved.core
    whole, outside = ((x["r"], x["c"]) for x in (found.whole, found.outside))
    if noise is None:
        expected = expected_error(solved.facts, *whole)
        prediction = (expected**2 + solved.facts.noise / max(solved.facts.per_entry, 1e-300)) ** 0.5
        verdict = judge_result(
            solved.verdict, *whole, outside, expected, s.accuracy, s.undetermined, solved.evidence.has_few_values
        )
        rank, sigma = core.rank, core.sigma
    else:
        if solved.verdict.cause is Cause.TOO_FEW_OBSERVATIONS and len(noise.strengths) < solved.asked:
            # what is left may be components that too few observations do not show: the matrix is off by as much then
            noise = replace(noise, expected_error=max(noise.expected_error, noise.prediction_error))
        expected, prediction = noise.expected_error, noise.prediction_error
        verdict = judge_noise(solved.verdict, *whole, noise, s.accuracy)
        rank, sigma = len(noise.strengths), noise.noise.variance**0.5
    threshold = threshold_of(solved, found)
    verdict = replace(verdict, asked=solved.asked, rank=rank, chosen=solved.chosen, outliers=bool(s.outliers))
    verdict = with_structure(verdict, found.structure, expected=s.outliers == "structured")
    return Result(
        cur=CURMatrix(
            factors["c"]["factor"], factors["r"]["factor"], view.rows, view.cols, uncertainty_of(factors, noise, scale)
        ),
        converged=verdict.ok,
        message=verdict.message,
        cause=verdict.cause,
        history=core.history,
        columns=diagnostics_of(factors["r"]),
        rows=diagnostics_of(factors["c"]),
        noise=sigma,
        threshold=threshold,
        expected_error=expected,
        prediction_error=prediction,
        noise_strengths=None if noise is None else scale * np.asarray(noise.strengths),
        agreeing=solved.consensus,
        method=s.method,
        device=solved.device,
        kernels=solved.kernels,
        seconds=seconds,
        samples=supply.samples,
        schedule=replace(solved.schedule, floor=threshold, zeta0=max(solved.schedule.zeta0, threshold)),
        chunk_bytes=s.chunk_bytes,
        verdict=verdict,
        structure=found.structure,
    )


def in_groups(result: Result, groups: Groups) -> Result:
    """The result of rows and columns that are not tied together: what is between the groups is as uncertain as it can be."""
    known = result.cur.uncertainty
    if known is not None:
        known = replace(known, left_group=groups.rows, right_group=groups.columns)
        result = replace(result, cur=result.cur.with_uncertainty(known))
    return replace(result, groups=groups)


def announced(result: Result) -> Result:
    """Return the result; if it is not confirmed, issue a warning at the user's line of code."""
    if not result.converged:
        warn_caller(result.message, ConvergenceWarning)
    log.info(
        "rank %d, %.2f s, %sconfirmed: %s", result.rank, result.seconds, "" if result.converged else "not ", result.message
    )
    return result
