"""What a solve gives back."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import is_dask_array
from scipy.special import ndtri

from ..backends.arrays import Array, array_namespace, asarray_on, gather, take_rows, to_numpy
from ..backends.blocks import Block, blank_rows, join_blocks
from ..backends.kernels import RunContext, choose
from ..backends.plain.posterior import positions_of
from ..backends.plain.regression import Schedule
from ..core.history import IterationState, RankCurve
from ..errors import ArgumentError, check_choice
from ..extend.diagnostics import OK, UnitDiagnostics
from ..extend.extension import extend
from ..extend.tasks import Extension, Task
from ..judge.groups import Groups
from ..judge.structure import Structure
from ..judge.words import Verdict
from ..noise.estimate import UnitModel, Units, diagnosed, expected_square, factor_rows
from ..noise.precision import SigmaScale
from ..options import Settings
from ..samples.building import block_from_entries, index_vector, new_block
from ..samples.cross import as_sparse
from ..samples.view import Samples
from .matrix import CURMatrix, LowRankMatrix
from .outliers import outlier_table, outlying_blocks, outlying_in_matrix
from .rules import OutlierRule, rule_of
from .uncertainty import Uncertainty, check_level


@dataclass(frozen=True, eq=False)
class Transformed:
    """New columns (rows) completed with the core of an earlier solve.

    Attributes
    ----------
    matrix : LowRankMatrix
        All n1 entries of each new column, (n1, k); or all n2 of each new row, (k, n2). With noise it knows its standard
        deviations: ``matrix.entries(i, j, return_std=True)``.
    diagnostics : UnitDiagnostics
        How well each of them is determined.
    """

    matrix: LowRankMatrix
    diagnostics: UnitDiagnostics


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """What a solve found: in memory a `Result`, which says what the fields mean, in a file an `io.Completion`."""

    cur: CURMatrix
    converged: bool
    message: str
    cause: str
    history: list[IterationState]
    columns: UnitDiagnostics
    rows: UnitDiagnostics
    noise: float
    threshold: float
    expected_error: float
    rank_curve: RankCurve | None
    method: str
    device: str
    kernels: str
    seconds: float

    @property
    def n_iter(self) -> int:
        """Iterations of the core."""
        return len(self.history)

    prediction_error: float = float("nan")
    noise_strengths: np.ndarray | None = None

    @property
    def has_noise_model(self) -> bool:
        """Whether the noise model made the result: there is noise, and the model was not turned off."""
        return self.noise_strengths is not None

    @cached_property
    def strengths(self) -> np.ndarray:
        """Standard deviation of what each component adds to an entry, largest first, on the host (r,).

        Offsets of rows and columns are not counted. Without noise these are singular values over the root of the number of
        entries; rows and columns that could not be determined are left out.
        """
        if self.noise_strengths is not None:
            return self.noise_strengths
        refuse_dask(self.cur)
        xp = array_namespace(self.cur.left)
        sizes = [int(xp.sum(xp.astype(xp.isfinite(f[:, 0]), xp.int64))) for f in (self.cur.left, self.cur.right)]
        return np.asarray(self.cur.singular_values() / max(math.prod(sizes), 1) ** 0.5)

    @property
    def rank(self) -> int:
        """Components of the recovered matrix; offsets are not counted."""
        return self.cur.rank if self.noise_strengths is None else len(self.noise_strengths)

    def _check_sigma(self, used: bool = True) -> None:
        """Refuse a `sigma` where there is nothing to compare it with."""
        if not used:
            raise ArgumentError("sigma", "is for new=True: the matrix itself has no noise")
        known = self.cur.uncertainty
        if self.has_noise_model and (known is None or known.sigma is None):
            raise ArgumentError("sigma", "is for results of samples with sigma, solved with intervals=True")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result(Outcome):
    """The recovered matrix and how far it can be trusted.

    Attributes
    ----------
    cur : CURMatrix
        The matrix.
    converged : bool
        Without noise: the stopping rule fired, the held-out entries agree, and every row and column is determined. With
        noise: the fit stands still, and held-out entries agree with the predicted uncertainty. In both cases the expected
        error is below the accuracy, if one was asked for.
    message : str
        One sentence: how good it is, or what is wrong and what to try.
    cause : str
        A word or two for what is wrong; empty if nothing is.
    n_iter : int
        Iterations of the core.
    history : list of IterationState
        e_k, threshold, outlier share, change of the core and seconds for each of them. In ``method="fast"`` they speak
        of the intersection, in ``method="paper"`` of the whole cross.
    columns, rows : UnitDiagnostics
        For every column and row of the matrix.
    noise : float
        Standard deviation of the inlying residuals.
    threshold : float
        Residuals above this are outliers where the noise is typical; `outlier_table` goes by the local noise.
    expected_error : float
        Relative error of the matrix to expect, over all of it.
    prediction_error : float
        The same of a prediction of new observations, noise included.
    has_noise_model : bool
        Whether the noise model made the result: there is noise, and the model was not turned off.
    strengths : float array (r,)
        Standard deviation of what each component adds to an entry, largest first.
    noise_strengths : float array (r,) or None
        The same as the noise model has them; None without noise.
    agreeing : float or None
        Share of the observations, among those that agree with something, that agree on something else than their row or
        column: about 0 for outliers at random. None if all observations are taken for right.
    rank_curve : RankCurve or None
        Held-out error by rank, for ``rank="auto"``.
    method : str
    device : str
        Where it was computed.
    kernels : str
        What computed it: "xp" (plain array code), "numba" or "cuda".
    seconds : float
    samples : CrossSamples or ShardedSamples
        What was solved.
    verdict : Verdict or None
        What `converged`, `cause` and `message` say, with the figures behind it.
    structure : Structure or None
        What the observations taken for outliers have in common: whether they are a further component, and rows, columns
        and a block with far more of them than the rest. None if they were not looked at, because the core is wrong anyway.
    groups : Groups or None
        Groups of rows and columns that the observations do not tie together: `groups.rows` and `groups.columns` have the
        number of each one's group (-1: none). What is between them cannot be known. None if all are tied together.
    """

    agreeing: float | None
    samples: Samples
    schedule: Schedule
    chunk_bytes: int | None
    verdict: Verdict | None = None
    structure: Structure | None = None
    groups: Groups | None = None

    def __repr__(self) -> str:
        return (
            f"Result(converged={self.converged}, rank={self.rank}, n_iter={self.n_iter}, "
            f"expected_error={self.expected_error:.1e}, seconds={self.seconds:.2f}, message={self.message!r})"
        )

    def interval(self, i: Any, j: Any, level: float = 0.95, *, new: bool = True, sigma: Any = None) -> tuple[Array, Array]:
        """Intervals that hold entries with a probability.

        Parameters
        ----------
        i, j : integers or integer arrays, broadcast against each other
        level : float in (0, 1)
            The probability.
        new : bool
            Whether of a new observation of the entry, noise included, or of the matrix itself. Outliers are not included.
        sigma : float or array, optional
            Standard deviation of the noise of the new observation, in the unit of the `sigma` of the samples; by default
            the median one of these. Only for samples that have it.

        Returns
        -------
        lower, upper : float arrays
            Held-out entries calibrated them. Without noise, from `expected_error`, the same width everywhere but between
            `groups`, where it is that of entries of which nothing is known.
        """
        refuse_dask(self.cur)
        level = check_level(level)
        known = self.cur.uncertainty
        middle = self.cur.entries(i, j)
        if sigma is not None:
            self._check_sigma(new)
        if known is not None:
            matrix, noise = (x / known.factor**2 for x in self.cur.variances(i, j))
            if sigma is not None:
                noise = noise * known.coarseness(sigma, middle) ** 2
            half = known.half_width(matrix / known.widening, noise if new else None, level)
        elif self.has_noise_model:
            raise ValueError("intervals were not kept; solve with intervals=True")
        else:
            size = float(np.sqrt(np.mean(np.square(self.cur.singular_values())) * self.rank / np.prod(self.cur.shape)))
            square = (self.expected_error * size) ** 2 + (self.noise**2 if new else 0.0)
            half = float(ndtri(0.5 + 0.5 * level)) * square**0.5
            if self.groups is not None:
                # between groups the entry may be anything of the size of the others, whatever was recovered there
                apart = asarray_on(self.groups.apart_at(i, j).astype(np.float64), middle, middle.dtype)
                half = half + float(ndtri(0.5 + 0.5 * level)) * apart * (size**2 + middle**2) ** 0.5
        return middle - half, middle + half

    @cached_property
    def outlier_rule(self) -> OutlierRule:
        """What an outlier is: by the noise model and by how the noise depends on the size of the values."""
        refuse_dask(self.cur)
        return rule_of(self.samples, self.cur, self.threshold, self.has_noise_model)

    def outlier_table(self, probability: float = 0.5, least: float = 0.0) -> np.ndarray:
        """The observations that are outliers under the fitted noise, the most extreme first.

        Noise has a local scale: by row and column, if there is a noise model, and by the size of the recovered value, as
        rounding and multiplicative errors do. An observation is either the recovered value with noise, or an outlier, which
        may be anything.

        Parameters
        ----------
        probability : float in [0, 1]
            Observations that are outliers with this probability or more are listed.
        least : float
            Smaller residuals are not listed, however small the noise is.

        Returns
        -------
        structured array (k,)
            With the fields ``row``, ``column``, ``value`` (as observed), ``fitted`` (the recovered one), ``residual`` (their
            difference), ``score`` (its size in units of the local noise) and ``probability``. Each observation is there
            once, the largest score first. Entries of rows and columns that are NaN are not judged.
        """
        table = outlier_table(self.samples, self.cur, self.outlier_rule.with_limits(probability, least))
        return table[np.lexsort((table["column"], table["row"], -table["score"]))]

    def outlier_frame(
        self, probability: float = 0.5, least: float = 0.0, *, row_labels: Any = None, column_labels: Any = None
    ) -> Any:
        """The same as `outlier_table`, as a pandas DataFrame.

        Parameters
        ----------
        probability, least : float
            As in `outlier_table`.
        row_labels, column_labels : sequences of n1 and n2 labels, optional
            What to call rows and columns, in place of their numbers; an index of a DataFrame, for example.

        Returns
        -------
        pandas.DataFrame
        """
        import pandas as pd

        frame = pd.DataFrame(self.outlier_table(probability, least))
        given = (("row", "row_labels", row_labels), ("column", "column_labels", column_labels))
        for (name, option, labels), size in zip(given, self.cur.shape, strict=True):
            if labels is None:
                continue
            if len(labels) != size:
                raise ValueError(f"{option} must be {size} labels, one for each {name}, got {len(labels)}")
            frame[name] = pd.Index(labels).take(frame[name].to_numpy())
        return frame

    def outliers(self) -> tuple[Any, Any]:
        """The outliers found, ``Y - X`` where `outlier_table` has an entry, as sparse matrices.

        Returns
        -------
        S_R : (|I|, n2) in CSC form, S_C : (n1, |J|) in CSR form
            Of the type of ``samples.R`` and ``samples.C``. Entries of undetermined rows and columns are not judged.
        """
        parts: dict[str, list[Block]] = {"r": [], "c": []}
        for side, _, block, found in outlying_blocks(self.samples, self.cur, self.outlier_rule):
            parts[side].append(block_from_entries(found.unit, found.index, found.residual, block.n_units, block.length))
        r, c = (blocks[0] if len(blocks) == 1 else join_blocks(blocks) for blocks in parts.values())
        return as_sparse(r, units_last=True), as_sparse(c, units_last=False)

    def outliers_of(self, Y: Any, *, sigma: Any = None) -> Any:
        """The outliers of a whole matrix: ``Y - X`` where that is an outlier by the same rule as in `outlier_table`.

        Parameters
        ----------
        Y : array (n1, n2)
            Of the kind of the factors, or on the host: NumPy, a memory map, HDF5, Zarr. NaN means not known.
        sigma : array (n1, n2), or one that broadcasts to it, optional
            Standard deviation of the noise of each entry, in the unit of the `sigma` of the samples; by default the median
            one of these everywhere. Only for samples that have it.

        Returns
        -------
        S : (n1, n2) in CSR form
            A SciPy sparse array, or a cupyx matrix if the factors are on a GPU.
        """
        if sigma is not None:
            self._check_sigma()
        return outlying_in_matrix(Y, self.cur, self.outlier_rule, sigma)

    def transform_columns(
        self, Y_new: Any, mask: Any = None, *, rows: Any = None, undetermined: str = Settings.undetermined, sigma: Any = None
    ) -> Transformed:
        """Complete new columns from what was observed of them on the chosen rows I, or on other rows.

        With noise, their coefficients and offsets are estimated as those of the other columns were, with the same prior.

        Parameters
        ----------
        Y_new : array (|I|, k), or a sparse matrix whose stored entries were observed
            NaN means not observed.
        mask : bool array (|I|, k), optional
        rows : index vector, optional
            The rows of the matrix that `Y_new` has, if these are not I.
        undetermined : {"prior", "nan", "keep"}
            What to put where a column cannot be determined, as in the solvers: by default what is typical of all others.
        sigma : array of the shape of `Y_new`, or one that broadcasts to it, optional
            Standard deviation of the noise of each entry, in the unit of the `sigma` of the samples; by default the median
            one of these everywhere. Only for samples that have it.

        Returns
        -------
        Transformed
            With ``matrix`` of shape (n1, k).
        """
        return self._transform(Y_new, mask, "rows", rows, undetermined, sigma)

    def transform_rows(
        self, Y_new: Any, mask: Any = None, *, cols: Any = None, undetermined: str = Settings.undetermined, sigma: Any = None
    ) -> Transformed:
        """Complete new rows from what was observed of them on the chosen columns J, or on other columns.

        As `transform_columns`, with `Y_new` (k, |J|), or one column for each of `cols`, and ``matrix`` (k, n2).
        """
        return self._transform(Y_new, mask, "cols", cols, undetermined, sigma)

    def _transform(self, Y_new: Any, mask: Any, name: str, index: Any, undetermined: str, sigma: Any) -> Transformed:
        """Complete columns that were seen at some rows (`name` is "rows"), or rows that were seen at some columns."""
        refuse_dask(self.cur)
        check_choice("undetermined", undetermined, ("prior", "nan", "keep"))
        columns, left, right = name == "rows", self.cur.left, self.cur.right
        chosen, what = (self.samples.rows, "the chosen rows I") if columns else (self.samples.cols, "the chosen columns J")
        factor, known, peers = (left, self.rows, self.columns) if columns else (right, self.columns, self.rows)
        if index is not None:
            chosen, what = index_vector(name, index, factor.shape[0]), name
        if sigma is not None:
            self._check_sigma()
        block = new_block("Y_new", Y_new, mask, len(chosen), what, left, units_last=columns, sigma=sigma)
        model = self.cur.uncertainty
        if model is not None and model.left_precision is not None:
            new, diagnostics, model = estimated(block, self.cur, model, chosen, columns, self.chunk_bytes)
        else:
            at = Positions(factor, chosen, known.status[chosen] == OK)
            extension = complete(block, at, typical_share(peers), self.schedule, columns, self.chunk_bytes, self.agreeing)
            new, diagnostics, model = extension.coefficients, extension.diagnostics, None
            if undetermined == "prior":
                new = _typical_rows(new, diagnostics.undetermined, right if columns else left, peers)
        if undetermined == "nan":
            new = blank_rows(new, diagnostics.undetermined)
        matrix = LowRankMatrix(factor, new, model) if columns else LowRankMatrix(new, factor, model)
        return Transformed(matrix, diagnostics)


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
    names = ("right", "right_scale") if columns else ("left", "left_scale")
    return new, diagnostics, replace(known, **dict(zip(names, arrays, strict=True)))


def _at_positions(block: Block, kept: np.ndarray) -> Block:
    """A block with the positions `kept` (length,) alone."""
    xp = array_namespace(block.value)
    index, unit = xp.astype(block.index, xp.int64), block.unit_of_entry()
    numbers = asarray_on(np.cumsum(kept) - 1, block.value)
    (entry,) = xp.nonzero(gather(asarray_on(kept, block.value), index))
    new = gather(numbers, gather(index, entry))
    value, sigma = (None if x is None else gather(x, entry) for x in (block.value, block.sigma))
    return block_from_entries(gather(unit, entry), new, value, block.n_units, int(kept.sum()), sigma)


def refuse_dask(cur: LowRankMatrix) -> None:
    """What follows works on factors that are here."""
    if is_dask_array(cur.left):
        raise TypeError("the factors are Dask arrays on the workers of a cluster; solve with gather=True or output=...")


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
