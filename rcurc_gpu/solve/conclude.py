"""The last step of every solve: the verdict, and the result."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np

from ..backends.plain.posterior import Noise
from ..errors import ConvergenceWarning
from ..judge.expected_error import expected_error
from ..judge.verdict import judge_noise, judge_result
from ..noise.model import NoiseFacts, outlier_threshold
from ..result.matrix import CURMatrix
from ..result.result import Result
from ..result.uncertainty import Uncertainty
from .output import diagnostics_of
from .solved import Extended, SolvedCore
from .store import Arrays
from .supply import Supply

log = logging.getLogger("rcurc_gpu")

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


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
        verdict = judge_result(solved.verdict, *whole, outside, expected, s.accuracy, s.undetermined)
        rank, threshold, sigma = core.rank, solved.schedule.floor, core.sigma
    else:
        expected, prediction = noise.expected_error, noise.prediction_error
        verdict = judge_noise(solved.verdict, *whole, noise, s.accuracy)
        rank, sigma = len(noise.strengths), noise.noise.variance**0.5
        threshold = outlier_threshold(noise.noise)
    curve = None if solved.curve is None else replace(solved.curve, chosen=rank)
    verdict = replace(verdict, asked=solved.asked, rank=rank, chosen=solved.chosen, outliers=s.outliers)
    return Result(
        cur=CURMatrix(
            factors["c"]["factor"], factors["r"]["factor"], view.rows, view.cols, _uncertainty(factors, noise, scale)
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
        rank_curve=curve,
        method=s.method,
        device=solved.device,
        kernels=solved.kernels,
        seconds=seconds,
        samples=supply.samples,
        schedule=replace(solved.schedule, floor=threshold, zeta0=max(solved.schedule.zeta0, threshold)),
        chunk_bytes=s.chunk_bytes,
        verdict=verdict,
    )


def _uncertainty(factors: dict[str, Arrays], noise: NoiseFacts | None, scale: float) -> Uncertainty | None:
    """What intervals are made of, if it was kept."""
    if noise is None or "covariance" not in factors["r"]:
        return None
    c, r = factors["c"], factors["r"]
    factor = 1.0 if noise.confirmation is None else noise.confirmation.factor
    plain = Noise(*(float(x) for x in astuple(noise.noise)))  # NumPy's numbers do not mix with arrays on other devices
    known = Uncertainty(c["covariance"], r["covariance"], c["scale"], r["scale"], plain, noise.offsets, float(factor))
    left, right = (None if x is None else np.asarray(x) for x in (noise.row_precision, noise.col_precision))
    known = replace(known, right_unit=scale, centre=float(noise.centre), left_precision=left, right_precision=right)
    return replace(known, sigma=noise.sigma)


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
