"""What a solve gives back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..backends.blocks import Block, join_blocks
from ..backends.plain.regression import Schedule
from ..judge.structure import Structure
from ..judge.words import Verdict
from ..options import Settings
from ..samples.building import block_from_entries
from ..samples.sparse import as_sparse
from ..samples.view import Samples
from .matrix import refuse_dask
from .outcome import Outcome
from .outliers import outlier_table, outlying_blocks, outlying_in_matrix
from .rules import OutlierRule, rule_of
from .transform import Fitting, New, Transformed, transformed


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
        of the intersection, in ``method="paper"`` of the whole cross. There are none where noise was so clear at first
        sight that the noise model alone was asked.
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
        Standard deviation of what each component adds to an entry, largest first. `rank_curve` is the same.
    noise_strengths : float array (r,) or None
        The same as the noise model has them; None without noise.
    agreeing : float or None
        Share of the observations, among those that agree with something, that agree on something else than their row or
        column: about 0 for outliers at random. None if all observations are treated as right.
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

    @cached_property
    def outlier_rule(self) -> OutlierRule:
        """What an outlier is: by the noise model and by how the noise depends on the size of the values."""
        refuse_dask(self.cur)
        return rule_of(self.samples, self.native_cur, self.threshold, self.has_noise_model)

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
        table = outlier_table(self.samples, self.native_cur, self.outlier_rule.with_limits(probability, least))
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
        for side, _, block, found in outlying_blocks(self.samples, self.native_cur, self.outlier_rule):
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
            self.check_sigma()
        return outlying_in_matrix(Y, self.native_cur, self.outlier_rule, sigma)

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
            With ``matrix`` of shape (n1, k). Its ``converged`` and ``message`` say whether the new columns can be trusted; a
            component that only they have, for example, looks like outliers that follow a pattern.
        """
        return transformed(self, self._fitting, New(Y_new, mask, "rows", rows, sigma), undetermined)

    def transform_rows(
        self, Y_new: Any, mask: Any = None, *, cols: Any = None, undetermined: str = Settings.undetermined, sigma: Any = None
    ) -> Transformed:
        """Complete new rows from what was observed of them on the chosen columns J, or on other columns.

        As `transform_columns`, with `Y_new` (k, |J|), or one column for each of `cols`, and ``matrix`` (k, n2).
        """
        return transformed(self, self._fitting, New(Y_new, mask, "cols", cols, sigma), undetermined)

    @property
    def _fitting(self) -> Fitting:
        """How new columns and rows are fitted."""
        expected = self.verdict is not None and self.verdict.structure_expected
        return Fitting(self.schedule, self.agreeing, self.chunk_bytes, expected)
