"""What a solve gives back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from array_api_compat import is_dask_array

from ..backends.arrays import Array, array_namespace, asarray_on, is_array, sparse_module, take_rows
from ..backends.blocks import Block, join_blocks
from ..backends.kernels import choose
from ..backends.plain.regression import Schedule
from ..core.history import IterationState
from ..extend.diagnostics import OK, UnitDiagnostics
from ..extend.tasks import Extension, Task, extend
from ..judge.rank import RankCurve
from ..judge.words import Verdict
from ..samples.building import (
    block_from_dense,
    block_from_entries,
    check_finite,
    check_same_place,
    float_values,
    host_array,
    index_vector,
    observation_mask,
    refuse_masked,
    resolve_duplicates,
)
from ..samples.cross import CrossSamples
from ..samples.dense import outlying_entries
from .matrix import CURMatrix, LowRankMatrix, blank_rows

if TYPE_CHECKING:
    from ..shards import ShardedSamples

_ENTRIES_AT_ONCE = 1 << 18


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


@dataclass(frozen=True, eq=False)
class Result:
    """The recovered matrix and how far it can be trusted.

    Attributes
    ----------
    cur : CURMatrix
        The matrix.
    converged : bool
        The stopping rule fired, the held-out entries agree, every row and column is determined, and the expected error
        is below the accuracy asked for.
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
        Relative error to expect from the noise.
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
    agreeing: float | None
    rank_curve: RankCurve | None
    method: str
    device: str
    kernels: str
    seconds: float
    samples: CrossSamples | ShardedSamples = field(repr=False)
    schedule: Schedule = field(repr=False)
    chunk_bytes: int | None = field(repr=False)
    verdict: Verdict | None = field(default=None, repr=False)

    @property
    def n_iter(self) -> int:
        """Iterations of the core."""
        return len(self.history)

    @property
    def rank(self) -> int:
        """Rank of the recovered matrix."""
        return self.cur.rank

    def __repr__(self) -> str:
        return (
            f"Result(converged={self.converged}, rank={self.rank}, n_iter={self.n_iter}, "
            f"expected_error={self.expected_error:.1e}, seconds={self.seconds:.2f}, message={self.message!r})"
        )

    def outliers(self) -> tuple[Any, Any]:
        """The outliers found, ``Y - X`` where it exceeds the threshold, as sparse matrices.

        Returns
        -------
        S_R : (|I|, n2) in CSC form, S_C : (n1, |J|) in CSR form
            Of the type of ``samples.R`` and ``samples.C``. Entries of undetermined rows and columns are not judged.
        """
        s = self.samples
        refuse_dask(self.cur)
        rows, cols = asarray_on(s.rows, self.cur.left), asarray_on(s.cols, self.cur.left)
        sparse = sparse_module(self.cur.left)
        r = self._outlying("r", take_rows(self.cur.left, rows), self.cur.right)
        c = self._outlying("c", take_rows(self.cur.right, cols), self.cur.left)
        csc = getattr(sparse, "csc_array", None) or sparse.csc_matrix
        csr = getattr(sparse, "csr_array", None) or sparse.csr_matrix
        return (
            csc((r.value, r.index, r.indptr), shape=(len(s.rows), s.shape[1])),
            csr((c.value, c.index, c.indptr), shape=(s.shape[0], len(s.cols))),
        )

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
        return outlying_entries(Y, self.cur, self.threshold)

    def _outlying(self, side: str, basis: Array, coefficients: Array) -> Block:
        parts = [
            self._outlying_in(block, basis, coefficients[start : start + block.n_units, :])
            for start, block in self.samples.blocks(side)
        ]
        return parts[0] if len(parts) == 1 else join_blocks(parts)

    def _outlying_in(self, block: Block, basis: Array, coefficients: Array) -> Block:
        xp = array_namespace(block.value)
        unit = block.unit_of_entry()
        units, index, value = [], [], []
        for start in range(0, max(block.n_obs, 1), _ENTRIES_AT_ONCE):
            part = slice(start, start + _ENTRIES_AT_ONCE)
            x = xp.sum(take_rows(basis, block.index[part]) * take_rows(coefficients, unit[part]), axis=1)
            residual = block.value[part] - x
            out = xp.abs(residual) >= self.threshold  # False where x is NaN
            units.append(unit[part][out])
            index.append(block.index[part][out])
            value.append(residual[out])
        return block_from_entries(xp.concat(units), xp.concat(index), xp.concat(value), block.n_units, block.length)

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
        refuse_dask(self.cur)
        chosen = self.samples.rows if rows is None else index_vector("rows", rows, self.cur.shape[0])
        what = "the chosen rows I" if rows is None else "rows"
        block = new_block("Y_new", Y_new, mask, len(chosen), what, self.cur.left, units_last=True)
        return self._transform(block, self.cur.left, chosen, self.rows, self.columns, columns=True)

    def transform_rows(self, Y_new: Any, mask: Any = None, *, cols: Any = None) -> Transformed:
        """Complete new rows from what was observed of them on the chosen columns J, or on other columns.

        As `transform_columns`, with `Y_new` (k, |J|), or one column for each of `cols`, and ``matrix`` (k, n2).
        """
        refuse_dask(self.cur)
        chosen = self.samples.cols if cols is None else index_vector("cols", cols, self.cur.shape[1])
        what = "the chosen columns J" if cols is None else "cols"
        block = new_block("Y_new", Y_new, mask, len(chosen), what, self.cur.left, units_last=False)
        return self._transform(block, self.cur.right, chosen, self.columns, self.rows, columns=False)

    def _transform(
        self,
        block: Block,
        factor: Array,
        chosen: np.ndarray,
        known: UnitDiagnostics,
        peers: UnitDiagnostics,
        columns: bool,
    ) -> Transformed:
        determined = known.status[chosen] == OK
        typical = typical_share(peers)
        rest = (self.schedule, self.chunk_bytes, columns, self.agreeing)
        extension = complete(block, factor, chosen, determined, typical, *rest)
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


def complete(
    block: Block,
    factor: Array,
    chosen: np.ndarray,
    determined: np.ndarray,
    typical: float,
    schedule: Schedule,
    chunk_bytes: int | None,
    columns: bool,
    agreeing: float | None = None,
) -> Extension:
    """Coefficients of new units from what was observed of them.

    Parameters
    ----------
    block : Block
        The new units, seen at the positions `chosen`.
    factor : float array (n, r)
        The product of its rows with the coefficients of a unit is the unit.
    chosen : int64 vector
        I, or J.
    determined : bool array (len(chosen),)
        Which of these positions to trust.
    typical : float
        Share of inliers that a unit usually has.
    schedule, chunk_bytes :
        Of the solve that gave `factor`.
    columns : bool
        Whether the units are columns of the matrix.
    agreeing : float, optional
        `Result.agreeing`, to ask whether their solutions have rivals.
    """
    xp = array_namespace(factor)
    basis = take_rows(factor, asarray_on(chosen, factor))
    usable = asarray_on(determined.astype(np.float64), factor, factor.dtype)
    basis = xp.where(usable[:, None] > 0, basis, xp.zeros_like(basis))
    size = float(xp.max(xp.abs(basis))) or 1.0  # the basis may carry the units of the data, whose squares may vanish
    names = (np.arange(block.n_units), chosen)
    kernels = choose("auto", basis)
    task = Task(block, basis / size, usable, *names, columns, 0.0, 0, schedule, chunk_bytes, kernels, agreeing=agreeing)
    extension = extend(task, typical_share=typical)
    return replace(extension, coefficients=extension.coefficients / size)


def new_block(name: str, Y: Any, mask: Any, length: int, what: str, like: Array, units_last: bool) -> Block:
    """New units as a block, with a position for each of `what`; `units_last` if they are the columns of `Y`."""
    xp = array_namespace(like)
    if hasattr(Y, "tocoo"):
        if mask is not None:
            raise TypeError(f"mask must be None where {name} is a sparse matrix: its stored entries are the observations")
        coo = Y.tocoo()
        check_same_place(name, coo.data, "the recovered matrix", like)
        unit, index = (coo.col, coo.row) if units_last else (coo.row, coo.col)
        found = Y.shape[0] if units_last else Y.shape[1]
        _check_length(name, found, length, what, units_last)
        value = asarray_on(float_values(name, coo.data), like, like.dtype)
        check_finite(name, value, lambda k: (int(coo.row[k]), int(coo.col[k])))
        unit, index = (asarray_on(x, like, xp.int64) for x in (unit, index))
        key = index * Y.shape[1] + unit if units_last else unit * Y.shape[1] + index
        value = resolve_duplicates(key, value, Y.shape[1], "error")
        return block_from_entries(unit, index, value, Y.shape[1 if units_last else 0], length)
    refuse_masked(name, Y)
    Y = Y if is_array(Y) else asarray_on(host_array(name, Y), like)
    check_same_place(name, Y, "the recovered matrix", like)
    if Y.ndim != 2:
        raise ValueError(f"{name} must be two-dimensional, got shape {tuple(Y.shape)}")
    mask = observation_mask("mask", mask, Y, tuple(Y.shape))  # type: ignore[arg-type]
    if units_last:
        Y, mask = Y.T, None if mask is None else mask.T
    _check_length(name, Y.shape[1], length, what, units_last)
    Y = xp.astype(float_values(name, Y), like.dtype)

    def read(start: int, stop: int) -> tuple[Array, Array | None]:
        return Y[start:stop, :], None if mask is None else mask[start:stop, :]

    return block_from_dense(name, read, Y.shape[0], length, lambda unit, k: (k, unit) if units_last else (unit, k))


def _check_length(name: str, found: int, length: int, what: str, units_last: bool) -> None:
    if found != length:
        side = "rows" if units_last else "columns"
        raise ValueError(f"{name} must have {length} {side}, one for each of {what}, got {found}")
