"""New columns (rows), completed with what an earlier solve found, and whether they can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, gather, hand_back, home_of, take_rows, to_numpy
from ..backends.blocks import Block, blank_rows, usual_labels
from ..backends.kernels import RunContext, choose
from ..backends.plain.posterior import positions_of
from ..backends.plain.regression import Schedule
from ..backends.random import Stream, generator
from ..errors import check_choice
from ..extend.diagnostics import OK, UnitDiagnostics
from ..extend.extension import extend
from ..extend.tasks import Extension, Task
from ..judge.causes import Cause
from ..judge.exact_component import FEWEST_EXACT
from ..judge.new_units import NewUnits, judge_new
from ..judge.structure import Looked, component_scores
from ..judge.words import Verdict
from ..noise.estimate import UnitModel, Units, diagnosed, expected_square, factor_rows
from ..noise.part import on_host
from ..noise.precision import SigmaScale
from ..samples.building import block_from_entries, index_vector, new_block
from ..summary import Summarised, Summary, size_words
from .matrix import CURMatrix, LowRankMatrix, refuse_dask
from .outcome import Outcome
from .rules import Entries, outliers_among, rounding_of
from .uncertainty import Uncertainty

# Entries of the new units that are looked at. Half a dozen of each of a thousand columns are enough for their signs, and a
# call with a few columns stays far below a millisecond of this.
_LOOKED_AT = 50_000
_SURE_AT = 20_000  # entries of which the standard deviations say how well the new units are known


@dataclass(frozen=True, eq=False, repr=False)
class Transformed(Summarised):
    """New columns (rows) completed with the core of an earlier solve.

    Attributes
    ----------
    matrix : LowRankMatrix
        All n1 entries of each new column, (n1, k); or all n2 of each new row, (k, n2). With noise it knows its standard
        deviations: ``matrix.entries(i, j, return_std=True)``.
    diagnostics : UnitDiagnostics
        How well each of them is determined.
    expected_error : float
        Relative error to expect of them.
    verdict : Verdict
        Whether they can be trusted, and if not, why.
    """

    matrix: LowRankMatrix
    diagnostics: UnitDiagnostics
    expected_error: float
    verdict: Verdict

    def _summary(self) -> Summary:
        facts = {"matrix": f"{size_words(self.matrix.shape)}, {self.matrix.dtype}", "error": f"{self.expected_error:.2g}"}
        facts["undetermined"] = f"{self.diagnostics.n_undetermined} of {len(self.diagnostics.status):,}"
        return Summary(facts, self.message, self.converged)

    @property
    def converged(self) -> bool:
        """Whether the solve is confirmed, all new columns (rows) are determined, and they are like the others."""
        return self.verdict.ok

    @property
    def message(self) -> str:
        """How good they are, or what is wrong and what to try."""
        return self.verdict.message

    @property
    def cause(self) -> str:
        """A word or two for what is wrong; empty if nothing is."""
        return self.verdict.cause


@dataclass(frozen=True, eq=False)
class New:
    """What was observed of new units, as a caller gives it.

    Attributes
    ----------
    Y, mask, sigma :
        As in `Result.transform_columns`.
    name : str
        "rows" if columns were seen at some rows, "cols" if rows were seen at some columns.
    index : index vector or None
        Those rows (columns); I (J) by default.
    """

    Y: Any
    mask: Any
    name: str
    index: Any
    sigma: Any


@dataclass(frozen=True, eq=False)
class Fitting:
    """How a solve fitted columns and rows.

    Attributes
    ----------
    schedule, agreeing, chunk_bytes :
        Of the `Result`.
    structured : bool
        Whether outliers were expected to have structure.
    """

    schedule: Schedule
    agreeing: float | None
    chunk_bytes: int | None
    structured: bool


def transformed(result: Outcome, how: Fitting, new: New, undetermined: str) -> Transformed:
    """Complete new columns or rows, and judge them."""
    refuse_dask(result.cur)
    check_choice("undetermined", undetermined, ("prior", "nan", "keep"))
    cur, home = result.native_cur, home_of(result.cur.left)
    columns, left, right = new.name == "rows", cur.left, cur.right
    chosen, what = (cur.rows, "the chosen rows I") if columns else (cur.cols, "the chosen columns J")
    factor, known, peers = (left, result.rows, result.columns) if columns else (right, result.columns, result.rows)
    if new.index is not None:
        chosen, what = index_vector(new.name, new.index, factor.shape[0]), new.name
    if new.sigma is not None:
        result.check_sigma()
    block = new_block("Y_new", new.Y, new.mask, len(chosen), what, left, units_last=columns, sigma=new.sigma)
    model, rounding = cur.uncertainty, rounding_of(new.Y, block.value, left)
    schedule = replace(how.schedule, floor=max(how.schedule.floor, rounding), zeta0=max(how.schedule.zeta0, rounding))
    if model is not None and model.left_precision is not None:
        found, diagnostics, model = estimated(block, cur, model, chosen, columns, how.chunk_bytes)
    else:
        at = Positions(factor, chosen, known.status[chosen] == OK)
        extension = complete(block, at, typical_share(peers), schedule, columns, how.chunk_bytes, how.agreeing)
        found, diagnostics, model = extension.coefficients, extension.diagnostics, None
        if undetermined == "prior":
            found = _typical_rows(found, diagnostics.undetermined, right if columns else left, peers)
    if undetermined == "nan":
        found = blank_rows(found, diagnostics.undetermined)
    matrix = LowRankMatrix(factor, found, model) if columns else LowRankMatrix(found, factor, model)
    expected = result.expected_error if model is None else max(result.expected_error, _doubt(matrix))
    component = not how.structured and _has_component(
        _Seen(block, chosen, known.status[chosen] == OK, diagnostics), matrix, columns, max(result.threshold, rounding)
    )
    facts = NewUnits("columns" if columns else "rows", diagnostics, peers, component, model is not None)
    verdict = judge_new(facts, (Cause(result.cause), result.message), expected, undetermined)
    return Transformed(matrix.mapped(lambda x: hand_back(x, home)), diagnostics, expected, verdict)


@dataclass(frozen=True, eq=False)
class _Seen:
    """What was observed of new units.

    Attributes
    ----------
    block : Block
    chosen : int64 vector
        The rows (columns) where they were seen.
    known : bool array (len(chosen),)
        Which of these are determined.
    diagnostics : UnitDiagnostics
        Of the new units.
    """

    block: Block
    chosen: np.ndarray
    known: np.ndarray
    diagnostics: UnitDiagnostics


def _has_component(seen: _Seen, matrix: LowRankMatrix, columns: bool, threshold: float) -> bool:
    """Whether what new units reject has structure: a component of their own."""
    d = seen.diagnostics
    if int(np.maximum(d.n_obs - d.n_inliers, 0)[d.status == OK].sum()) < FEWEST_EXACT:
        return False
    rng = generator(0, Stream.REJECTED, 2)
    block = seen.block
    if block.n_obs > 1.5 * _LOOKED_AT:  # of some units; those with the most outliers show a component best
        some = rng.random(block.n_units) < _LOOKED_AT / block.n_obs
        out = np.where(d.status == OK, d.n_obs - d.n_inliers, 0)
        some[np.argsort(-out, kind="stable")[: int(some.sum())]] = True
    else:
        some = np.ones(block.n_units, dtype=bool)
    units = np.flatnonzero(some & (d.status == OK))
    block = on_host(block.take_units(units))
    unit, at = np.repeat(np.arange(len(units)), block.counts), block.index.astype(np.int64)
    part = matrix.part(seen.chosen, units) if columns else matrix.part(units, seen.chosen)
    known = seen.known & np.isfinite(part.left if columns else part.right).all(axis=1)  # blank ones say nothing
    fine = np.flatnonzero(known[at])
    unit, at, value = unit[fine], at[fine], block.value[fine]
    sigma = np.ones(len(fine)) if block.sigma is None else block.sigma[fine]
    i, j = (at, unit) if columns else (unit, at)
    fitted, residual, is_outlier = outliers_among(Entries(i, j, value, sigma), part, threshold)
    return component_scores([Looked(i, j, fitted, residual, is_outlier)], 0)[0].is_component


def _doubt(matrix: LowRankMatrix) -> float:
    """Relative error that is to be expected of new units, by the standard deviations of some entries."""
    n1, n2 = matrix.shape
    if 0 in (n1, n2):
        return 0.0
    rng = generator(0, Stream.REJECTED, 3)
    i, j = rng.integers(0, n1, _SURE_AT), rng.integers(0, n2, _SURE_AT)
    value, std = (np.asarray(to_numpy(x), dtype=np.float64) for x in matrix.entries(i, j, return_std=True))
    fine = np.isfinite(value) & np.isfinite(std)
    size = float(np.max(np.abs(value[fine]), initial=0.0)) or 1.0  # squares of tiny and huge numbers have no place
    square = float(np.mean((value[fine] / size) ** 2)) if fine.any() else 0.0
    return (float(np.mean((std[fine] / size) ** 2)) / square) ** 0.5 if square > 0 else float("inf")


def _typical_rows(new: Array, lost: np.ndarray, others: Array, peers: UnitDiagnostics) -> Array:
    """`new` rows of a factor, with the mean of the determined `others` for those that are `lost`."""
    if len(lost) == 0:
        return new
    xp = array_namespace(new)
    good = take_rows(others, asarray_on(np.flatnonzero(peers.status == OK), others))
    mean = xp.astype(xp.mean(good, axis=0), new.dtype) if good.shape[0] else xp.zeros_like(new[0, :])
    flag = np.zeros((new.shape[0], 1), dtype=bool)
    flag[lost] = True
    return xp.where(asarray_on(flag, new), mean, new)


def estimated(
    block: Block, cur: CURMatrix, known: Uncertainty, chosen: np.ndarray, columns: bool, chunk_bytes: int | None = None
) -> tuple[Array, UnitDiagnostics, Uncertainty]:
    """New units by the noise model of a result.

    Parameters
    ----------
    block : Block
        The new units, seen at the rows (columns) `chosen`.
    cur : CURMatrix
    known : Uncertainty
        Of `cur`, with the precisions of the priors.
    chosen : int64 vector
    columns : bool
        Whether the units are columns of the matrix.
    chunk_bytes : int, optional

    Returns
    -------
    factor : float array (k, r)
        Rows of the columns' (rows') factor.
    diagnostics : UnitDiagnostics
    uncertainty : Uncertainty
        Of the matrix whose columns (rows) are the new ones.
    """
    factor, unit = (cur.left, known.left_unit) if columns else (cur.right, known.right_unit)
    covariance, scale = (known.left, known.left_scale) if columns else (known.right, known.right_scale)
    precision = known.right_precision if columns else known.left_precision
    assert precision is not None
    own = asarray_on(chosen, factor)
    mean, doubt = (np.asarray(to_numpy(take_rows(x, own)), dtype=np.float64) for x in (factor, covariance))
    mean, noise_scale = mean / unit, np.asarray(to_numpy(scale), dtype=np.float64)[chosen]
    seen = np.asarray(np.isfinite(mean).all(axis=1))  # others were blanked: what was observed there says nothing
    if known.offsets:  # rows are (u, a, 1), columns (v, 1, b + m)
        mean = mean[:, :-1] if columns else np.concatenate([mean[:, :-2], mean[:, -1:] - known.centre], axis=1)
    if not seen.all():
        block, chosen = _at_positions(block, seen), chosen[seen]
        mean, doubt, noise_scale = mean[seen], doubt[seen], noise_scale[seen]
    at = positions_of(mean, doubt, noise_scale, known.centre, known.offsets)
    block = block if known.unit == 1 else block.scaled(1 / known.unit)
    like = asarray_on(np.empty(0), block.value)  # of double precision, as in the solve
    run = RunContext(like, choose("auto", like), chunk_bytes=chunk_bytes)
    noise, told = known.noise, SigmaScale.of(None if block.sigma is None else to_numpy(block.sigma))
    if told is not None and known.sigma is not None:  # that of a fine observation, as in the solve
        noise = replace(noise, variance=noise.variance * (told.fine / known.sigma) ** 2)
    model = UnitModel(at, chosen, columns, precision, noise, sigma=None if told is None else told.fine)
    units = Units(model, block, like, run)
    (mean_new, covariance_new, scale_new), table = units.estimated(np.arange(block.n_units))
    diagnostics = diagnosed(table, len(precision), expected_square(to_numpy(covariance_new), at)).scaled(known.unit)
    dtype = str(factor.dtype).rpartition(".")[2]
    new = factor_rows(mean_new, known.centre, known.offsets, columns, known.unit if columns else 1.0, dtype)
    xp = array_namespace(covariance_new)
    arrays = [xp.astype(x, xp.float32) for x in (covariance_new, scale_new)]
    names = ("right", "right_scale", "right_group") if columns else ("left", "left_scale", "left_group")
    groups = known.left_group if columns else known.right_group
    found = None if groups is None else usual_labels(block, groups[chosen])
    return new, diagnostics, replace(known, **dict(zip(names, (*arrays, found), strict=True)))


def _at_positions(block: Block, kept: np.ndarray) -> Block:
    """A block with the positions `kept` (length,) alone."""
    xp = array_namespace(block.value)
    index, unit = xp.astype(block.index, xp.int64), block.unit_of_entry()
    numbers = asarray_on(np.cumsum(kept) - 1, block.value)
    (entry,) = xp.nonzero(gather(asarray_on(kept, block.value), index))
    new = gather(numbers, gather(index, entry))
    value, sigma = (None if x is None else gather(x, entry) for x in (block.value, block.sigma))
    return block_from_entries(gather(unit, entry), new, value, block.n_units, int(kept.sum()), sigma)


def typical_share(peers: UnitDiagnostics) -> float:
    """Median share of inliers among the observations of a unit."""
    enough = peers.n_obs > 0
    return float(np.median(peers.n_inliers[enough] / peers.n_obs[enough])) if enough.any() else 1.0


@dataclass(frozen=True, eq=False)
class Positions:
    """Where new units are seen, and what they are made of there.

    Attributes
    ----------
    factor : float array (n, r)
        The product of its rows with the coefficients of a unit is the unit.
    chosen : int64 vector
        The rows of `factor` where units are seen: I, or J.
    determined : bool array (len(chosen),)
        Which of these to trust.
    """

    factor: Array
    chosen: np.ndarray
    determined: np.ndarray


def complete(
    block: Block,
    at: Positions,
    typical: float,
    schedule: Schedule,
    columns: bool,
    chunk_bytes: int | None = None,
    agreeing: float | None = None,
) -> Extension:
    """Coefficients of new units from what was observed of them.

    Parameters
    ----------
    block : Block
        The new units, seen at the positions `at`.
    at : Positions
    typical : float
        Share of inliers that a unit usually has.
    schedule, chunk_bytes :
        Of the solve that gave the factor.
    columns : bool
        Whether the units are columns of the matrix.
    agreeing : float, optional
        `Result.agreeing`, to ask whether their solutions have rivals.
    """
    factor, chosen = at.factor, at.chosen
    xp = array_namespace(factor)
    basis = take_rows(factor, asarray_on(chosen, factor))
    usable = asarray_on(at.determined.astype(np.float64), factor, factor.dtype)
    basis = xp.where(usable[:, None] > 0, basis, xp.zeros_like(basis))
    size = float(xp.max(xp.abs(basis))) or 1.0  # the basis may carry the units of the data, whose squares may vanish
    names = (np.arange(block.n_units), chosen)
    run = RunContext(basis[:0, 0], choose("auto", basis), chunk_bytes=chunk_bytes)
    task = Task(block, basis / size, usable, *names, columns, schedule, run, consensus=agreeing)
    extension = extend(task, typical_share=typical)
    return replace(extension, coefficients=extension.coefficients / size)
