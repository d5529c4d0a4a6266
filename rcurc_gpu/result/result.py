"""What a solve gives back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import is_dask_array
from scipy.special import ndtri

from ..backends.arrays import Array, array_namespace, asarray_on, take_rows
from ..backends.blocks import Block, blank_rows, join_blocks
from ..backends.kernels import RunContext, choose
from ..backends.plain.regression import Schedule
from ..core.history import IterationState, RankCurve
from ..extend.diagnostics import OK, UnitDiagnostics
from ..extend.extension import extend
from ..extend.tasks import Extension, Task
from ..judge.words import Verdict
from ..samples.building import block_from_entries, index_vector, new_block
from ..samples.cross import as_sparse
from ..samples.view import Samples
from .matrix import CURMatrix, LowRankMatrix
from .outliers import outlying_blocks, outlying_in_matrix
from .uncertainty import check_level


@dataclass(frozen=True, eq=False)
class Transformed:
    """New columns (rows) completed with the core of an earlier solve.

    Attributes
    ----------
    matrix : LowRankMatrix
        All n1 entries of each new column, (n1, k); or all n2 of each new row, (k, n2).
    diagnostics : UnitDiagnostics
        How well each of them is determined; undetermined ones are NaN.
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
    strengths: np.ndarray | None = None

    @property
    def rank(self) -> int:
        """Components of the recovered matrix; offsets are not counted."""
        return self.cur.rank if self.strengths is None else len(self.strengths)


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
        Residuals above this are outliers.
    expected_error : float
        Relative error of the matrix to expect, over all of it.
    prediction_error : float
        The same of a prediction of new observations, noise included.
    strengths : float array (r,) or None
        With noise: standard deviation of what each component adds to an entry, largest first. None without noise.
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
    """

    agreeing: float | None
    samples: Samples
    schedule: Schedule
    chunk_bytes: int | None
    verdict: Verdict | None = None

    def __repr__(self) -> str:
        return (
            f"Result(converged={self.converged}, rank={self.rank}, n_iter={self.n_iter}, "
            f"expected_error={self.expected_error:.1e}, seconds={self.seconds:.2f}, message={self.message!r})"
        )

    def interval(self, i: Any, j: Any, level: float = 0.95, *, new: bool = True) -> tuple[Array, Array]:
        """Intervals that hold entries with a probability.

        Parameters
        ----------
        i, j : integers or integer arrays, broadcast against each other
        level : float in (0, 1)
            The probability.
        new : bool
            Whether of a new observation of the entry, noise included, or of the matrix itself. Outliers are not included.

        Returns
        -------
        lower, upper : float arrays
            Held-out entries calibrated them. Without noise, from `expected_error`, the same width everywhere.
        """
        refuse_dask(self.cur)
        level = check_level(level)
        known = self.cur.uncertainty
        middle = self.cur.entries(i, j)
        if known is not None:
            matrix, noise = (x / known.factor**2 for x in self.cur.variances(i, j))
            half = known.half_width(matrix, noise if new else None, level)
        elif self.strengths is not None:
            raise ValueError("intervals were not kept; solve with intervals=True")
        else:
            size = float(np.sqrt(np.mean(np.square(self.cur.singular_values())) * self.rank / np.prod(self.cur.shape)))
            square = (self.expected_error * size) ** 2 + (self.noise**2 if new else 0.0)
            half = float(ndtri(0.5 + 0.5 * level)) * square**0.5
        return middle - half, middle + half

    def outliers(self) -> tuple[Any, Any]:
        """The outliers found, ``Y - X`` where it exceeds the threshold, as sparse matrices.

        Returns
        -------
        S_R : (|I|, n2) in CSC form, S_C : (n1, |J|) in CSR form
            Of the type of ``samples.R`` and ``samples.C``. Entries of undetermined rows and columns are not judged.
        """
        refuse_dask(self.cur)
        parts: dict[str, list[Block]] = {"r": [], "c": []}
        for side, _, block, found in outlying_blocks(self.samples, self.cur, self.threshold):
            parts[side].append(block_from_entries(found.unit, found.index, found.residual, block.n_units, block.length))
        r, c = (blocks[0] if len(blocks) == 1 else join_blocks(blocks) for blocks in parts.values())
        return as_sparse(r, units_last=True), as_sparse(c, units_last=False)

    def outliers_of(self, Y: Any) -> Any:
        """The outliers of a whole matrix: ``Y - X`` where it exceeds the threshold.

        Parameters
        ----------
        Y : array (n1, n2)
            Of the kind of the factors, or on the host: NumPy, a memory map, HDF5, Zarr. NaN means not known.

        Returns
        -------
        S : (n1, n2) in CSR form
            A SciPy sparse array, or a cupyx matrix if the factors are on a GPU.
        """
        refuse_dask(self.cur)
        return outlying_in_matrix(Y, self.cur, self.threshold)

    def transform_columns(self, Y_new: Any, mask: Any = None, *, rows: Any = None) -> Transformed:
        """Complete new columns from what was observed of them on the chosen rows I, or on other rows.

        Parameters
        ----------
        Y_new : array (|I|, k), or a sparse matrix whose stored entries were observed
            NaN means not observed.
        mask : bool array (|I|, k), optional
        rows : index vector, optional
            The rows of the matrix that `Y_new` has, if these are not I.

        Returns
        -------
        Transformed
            With ``matrix`` of shape (n1, k).
        """
        return self._transform(Y_new, mask, "rows", rows)

    def transform_rows(self, Y_new: Any, mask: Any = None, *, cols: Any = None) -> Transformed:
        """Complete new rows from what was observed of them on the chosen columns J, or on other columns.

        As `transform_columns`, with `Y_new` (k, |J|), or one column for each of `cols`, and ``matrix`` (k, n2).
        """
        return self._transform(Y_new, mask, "cols", cols)

    def _transform(self, Y_new: Any, mask: Any, name: str, index: Any) -> Transformed:
        """Complete columns that were seen at some rows (`name` is "rows"), or rows that were seen at some columns."""
        refuse_dask(self.cur)
        columns, left, right = name == "rows", self.cur.left, self.cur.right
        chosen, what = (self.samples.rows, "the chosen rows I") if columns else (self.samples.cols, "the chosen columns J")
        factor, known, peers = (left, self.rows, self.columns) if columns else (right, self.columns, self.rows)
        if index is not None:
            chosen, what = index_vector(name, index, factor.shape[0]), name
        block = new_block("Y_new", Y_new, mask, len(chosen), what, left, units_last=columns)
        at = Positions(factor, chosen, known.status[chosen] == OK)
        extension = complete(block, at, typical_share(peers), self.schedule, columns, self.chunk_bytes, self.agreeing)
        new = blank_rows(extension.coefficients, extension.diagnostics.undetermined)
        matrix = LowRankMatrix(factor, new) if columns else LowRankMatrix(new, factor)
        return Transformed(matrix, extension.diagnostics)


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
