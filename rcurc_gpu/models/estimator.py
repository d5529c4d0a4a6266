"""Robust CUR completion as an estimator in scikit-learn's conventions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import ndtr

from ..api import rcurc
from ..backends import Block, asarray_on, native, product_svd, to_numpy
from ..errors import ConvergenceWarning, check_choice, warn_caller
from ..extend import OK
from ..options import Asked, Settings, Where, documented
from ..result import Result, outlying_in, outlying_in_matrix, outlying_once
from ..samples import CrossSamples, check_kind, host_array, is_frame, plain_array
from .tables import REPLACE, cross_of_table

try:
    from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f"RobustCURCompletion needs scikit-learn 1.6 or newer ({error}); install the extra 'sklearn' "
        "(pip install 'rcurc-gpu[sklearn]')"
    ) from error

_UNDETERMINED = ("prior", "nan", "median")


@documented
class RobustCURCompletion(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Completes a matrix that is of low rank, but for missing entries, outliers and noise.

    An imputer: ``fit_transform(X)`` fills the NaN of `X`, and `transform` those of new rows, by what the columns have in
    common in all rows. Entries that are wrong do no harm, and are replaced, too; ``replace="missing"`` keeps them.

    The columns should be of about the same size (put `sklearn.preprocessing.RobustScaler` before, it leaves NaN alone). Rows
    and columns with few observations are drawn to what is typical, and those with none are that: by default there is an
    answer everywhere. How sure it is, `predict` says with ``return_std=True``.

    Parameters
    ----------
    n_rows, n_cols : int, optional
        How many rows and columns the core is made of, drawn at random. By default all of them up to about a thousand, more
        if little was observed; and where observations concentrate on some rows and columns, these. Of the others, only
        what was observed in these rows and columns counts in the fit.
    replace : {"missing", "outliers", "all"}
        What `transform` replaces: missing entries; also observations that are outliers rather than the fitted value with
        noise, which is the default; or everything, which also takes out the noise.
    undetermined : {"prior", "nan", "median"}
        What to put into missing entries of rows and columns that could not be determined: what the fit expects of any row
        or column; NaN; or the median of what `fit` saw in the column (NaN if it saw nothing). A ConvergenceWarning says how
        many entries are NaN or medians.
    accuracy : float, optional
        Relative error that is good enough: `converged_` is then only true if the expected one is below this. By default
        noise is no failure.
    random_state : int, RandomState instance or None
        Fixes the result.
    device : {"auto", "cpu", "cuda", "cuda:1", ...}
        Where to compute; "auto" is a CPU. What is given and returned is on the host.

    Attributes
    ----------
    result_ : Result
        All that is known of the fit, as `rcurc` gives it.
    components_ : array (k, n_features)
        Orthonormal rows, largest singular value first: what the rows of the completed matrix are made of. There are `rank_`
        of them, and two more if the fit has offsets. NaN where a column is undetermined, with ``undetermined="nan"`` or
        "median".
    singular_values_ : array (k,)
        Of the completed matrix, without what is undetermined.
    rank_ : int
        Components that were found, offsets not counted.
    prediction_error_ : float
        Relative error to expect of a prediction of new observations, noise included, over the whole matrix.
    converged_ : bool
        Whether the fit is confirmed by held-out entries; if not, `fit` warns, and ``result_.message`` says why.
    outliers_ : scipy.sparse.csr_array (n_samples, n_features)
        Observation minus completed value, where the observation is rather an outlier; ``result_.outlier_table()`` says with
        which probability. After a fit on `CrossSamples` those of the cross.
    medians_ : array (n_features,)
        Of the observations, with ``undetermined="median"``.
    n_features_in_ : int
    feature_names_in_ : array (n_features,)
        If `X` had names of columns that are strings.

    See Also
    --------
    rcurc : what does the work.

    Examples
    --------
    >>> import numpy as np
    >>> from rcurc_gpu import RobustCURCompletion
    >>> truth = np.outer(np.arange(1.0, 41.0), np.arange(1.0, 11.0))
    >>> X = truth.copy()
    >>> X[3, 4] = np.nan
    >>> X[0, 0] = 1e6
    >>> completed = RobustCURCompletion(rank=1).fit_transform(X)
    >>> bool(np.allclose(completed, truth))
    True
    """

    def __init__(
        self,
        rank: int | str = Asked.rank,
        *,
        n_rows: int | None = None,
        n_cols: int | None = None,
        replace: str = "outliers",
        undetermined: str = "prior",
        method: str = Settings.method,
        accuracy: float | None = Settings.accuracy,
        outliers: Any = Settings.outliers,
        random_state: Any = 0,
        device: str = Where.device,
        kernels: str = Settings.kernels,
        progress: bool = Where.progress,
    ) -> None:
        self.rank = rank
        self.n_rows = n_rows
        self.n_cols = n_cols
        self.replace = replace
        self.undetermined = undetermined
        self.method = method
        self.accuracy = accuracy
        self.outliers = outliers
        self.random_state = random_state
        self.device = device
        self.kernels = kernels
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> RobustCURCompletion:
        """Find the low-rank matrix behind what was observed.

        Parameters
        ----------
        X : array, data frame or sparse matrix (n_samples, n_features), or CrossSamples
            NaN means not observed; of a sparse matrix the stored entries are the observations, also a stored 0.
        y :
            Not used.

        Returns
        -------
        self

        Warns
        -----
        ConvergenceWarning
            If the result is not confirmed; ``result_.message`` says why.
        """
        check_choice("replace", self.replace, REPLACE)
        check_choice("undetermined", self.undetermined, _UNDETERMINED)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if isinstance(X, CrossSamples):
            samples = X
            self.n_features_in_ = samples.shape[1]
            if hasattr(self, "feature_names_in_"):  # of an earlier fit
                del self.feature_names_in_
        else:
            X = self._validated(X, ensure_min_samples=2, ensure_min_features=2)
            entries = _observations(X)
            if len(entries[0]) == 0:
                raise ValueError("X has no observation: all of it is missing")
            samples = cross_of_table(entries, X.shape, self.rank, seed, (self.n_rows, self.n_cols))
        options = {name: getattr(self, name) for name in ("method", "accuracy", "outliers", "device", "kernels", "progress")}
        self.result_ = rcurc(samples, self.rank, seed=seed, undetermined=self._for_solver, **options)
        self.rank_, self.converged_ = self.result_.rank, self.result_.converged
        self.prediction_error_ = float(self.result_.prediction_error)
        self.components_, self.singular_values_ = _components(self.result_)
        self.outliers_ = _outliers(self.result_, X)
        if self.undetermined == "median":
            self.medians_ = _medians(X, self.n_features_in_)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Complete rows, those of the fit or new ones, from what was observed of each.

        Parameters
        ----------
        X : array, data frame or sparse matrix (n, n_features)
            As in `fit`.

        Returns
        -------
        array (n, n_features)
            Dense, also for a sparse matrix; `replace` says what is taken from the model and what from `X`.

        Warns
        -----
        ConvergenceWarning
            If missing entries are in rows or columns that could not be determined, and `undetermined` is "nan" or "median".
        """
        check_is_fitted(self, "result_")
        replace = check_choice("replace", self.replace, REPLACE)
        check_choice("undetermined", self.undetermined, _UNDETERMINED)
        if isinstance(X, CrossSamples):
            raise TypeError(
                "X must be a matrix, got CrossSamples; after fit(samples), predict gives single entries and result_.cur the "
                "completed matrix"
            )
        X = self._validated(X, reset=False)
        Y = _with_nan(X) if scipy.sparse.issparse(X) else X
        there, cols = asarray_on(Y, self.result_.native_cur.right), np.arange(self.n_features_in_)
        done = self.result_.transform_rows(there, cols=cols, undetermined=self._for_solver)
        fitted = to_numpy(done.matrix.to_dense()).astype(Y.dtype, copy=False)
        wanted = np.isnan(Y) if replace != "all" else np.ones(Y.shape, dtype=bool)
        if replace == "outliers":
            new_rows = done.matrix.mapped(native)
            rule = dataclasses.replace(self.result_.outlier_rule, cur=new_rows)
            i, j = outlying_in_matrix(there, new_rows, rule).nonzero()
            judged = (done.diagnostics.status[i] == OK) & (self.result_.columns.status[j] == OK)
            wanted[i[judged], j[judged]] = True  # what is not determined contradicts no observation
        out = np.where(wanted, fitted, Y)
        return self._without_undetermined(out, done.diagnostics.undetermined)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Entries of the completed matrix that was fitted.

        Parameters
        ----------
        X : int array (k, 2)
            Numbers of rows and columns, one pair for each entry: as for a recommender, samples are pairs, not rows of the
            matrix. For rows of the matrix there is `transform`.
        return_std : bool
            Also return standard deviations.

        Returns
        -------
        values : array (k,)
            The model's values, whatever was observed there. Where a row or column is undetermined, what the fit expects of
            any, or NaN with ``undetermined="nan"`` or "median".
        std : array (k,)
            With `return_std`: standard deviation of each value, as an estimate of the matrix; a new observation has noise,
            too (``result_.interval``). Without noise it is the same for all, from the expected error.
        """
        check_is_fitted(self, "result_")
        pairs = np.asarray(X)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise ValueError(f"X must be pairs (row, column), an array of shape (k, 2), got shape {pairs.shape}")
        if pairs.dtype.kind not in "iu":
            raise TypeError(f"X must hold integers, pairs (row, column), got dtype {pairs.dtype}")
        for name, numbers, most in zip(("row", "column"), pairs.T, self.result_.cur.shape, strict=True):
            outside = numbers[(numbers < 0) | (numbers >= most)]
            if outside.size:
                raise ValueError(f"X has the {name} {outside[0]}; those of the matrix are 0 to {most - 1}")
        i, j = pairs.T
        values = to_numpy(self.result_.cur.entries(i, j))
        if not return_std:
            return values
        if self.result_.cur.uncertainty is not None:
            return values, to_numpy(self.result_.cur.entries(i, j, return_std=True)[1])
        lower, upper = self.result_.interval(i, j, float(ndtr(1) - ndtr(-1)), new=False)
        return values, 0.5 * to_numpy(upper - lower)

    @property
    def _for_solver(self) -> str:
        """What the solver puts where it determines nothing; medians take the place of NaN."""
        return "prior" if self.undetermined == "prior" else "nan"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validated(self, X: Any, **options: Any) -> Any:
        if not (isinstance(X, np.ndarray) and X.dtype == object):  # of which scikit-learn has its own opinion
            X = plain_array("X", X)
            if isinstance(X, np.ndarray) or is_frame(X):  # scikit-learn takes dates and durations for numbers
                check_kind("X", host_array("X", X) if is_frame(X) else X, "iufcOUSV")
        types = [np.float64, np.float32]
        return validate_data(self, X, accept_sparse="csr", dtype=types, ensure_all_finite="allow-nan", **options)

    def _without_undetermined(self, out: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """`out`, with a warning if NaN is left, and with medians in its place if they are wanted."""
        left = np.isnan(out)
        if not left.any():
            return out
        cols = len(self.result_.columns.undetermined)
        fate = "stay NaN"
        if self.undetermined == "median":
            check_is_fitted(self, "medians_")
            out = np.where(left, self.medians_.astype(out.dtype), out)
            fate = "were filled with the medians of their columns"
        warn_caller(
            f"{len(rows)} of {len(out)} rows and {cols} of {out.shape[1]} columns could not be determined; {left.sum()} "
            f"entries there {fate}",
            ConvergenceWarning,
        )
        return out


def _observations(X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of what was observed in a matrix; a stored NaN is as good as none."""
    if isinstance(X, CrossSamples):  # both blocks, and what both have once
        r, c = X.r_block, X.c_block
        i = np.concatenate([X.rows[to_numpy(r.index)], to_numpy(c.unit_of_entry())])
        j = np.concatenate([to_numpy(r.unit_of_entry()), X.cols[to_numpy(c.index)]])
        values = np.concatenate([to_numpy(r.value), to_numpy(c.value)])
        _, first = np.unique(i * X.shape[1] + j, return_index=True)
        return i[first], j[first], values[first]
    if scipy.sparse.issparse(X):
        coo: Any = X.tocoo()  # type: ignore[attr-defined]  # the stubs' class of all of them has none
        seen = ~np.isnan(coo.data)
        return coo.row[seen].astype(np.int64), coo.col[seen].astype(np.int64), coo.data[seen]
    i, j = np.nonzero(~np.isnan(X))
    return i, j, X[i, j]


def _with_nan(X: Any) -> np.ndarray:
    """A sparse matrix as a dense one, NaN where nothing is stored."""
    i, j, values = _observations(X)
    out = np.full(X.shape, np.nan, dtype=X.dtype)
    out[i, j] = values
    return out


def _components(result: Result) -> tuple[np.ndarray, np.ndarray]:
    """Right singular vectors (r, n_features) and singular values (r,) of the determined part of the matrix."""
    left, right = to_numpy(result.cur.left), to_numpy(result.cur.right)
    rows, cols = (np.isfinite(factor).all(axis=1) for factor in (left, right))
    rank = min(result.cur.rank, *left.shape[:1], *right.shape[:1])  # offsets are two more, and a matrix may be too small
    out = np.full((rank, len(right)), np.nan, dtype=right.dtype)
    if min(rows.sum(), cols.sum()) < max(result.cur.rank, 1) or rank == 0:
        return out, np.full(rank, np.nan, dtype=right.dtype)
    _, s, V = product_svd(left[rows], right[cols])
    # the sign of a singular vector is arbitrary: the largest entry is positive, as in scikit-learn's PCA
    sign = np.sign(V[np.argmax(np.abs(V), axis=0), np.arange(rank)])
    out[:, cols] = (V * sign).T
    return out, s


def _outliers(result: Any, X: Any) -> Any:
    """Observations minus completed values, where that is an outlier, (n_samples, n_features)."""
    if isinstance(X, CrossSamples):
        i, j, _, residual = outlying_once(result.samples, result.native_cur, result.outlier_rule)
    elif scipy.sparse.issparse(X):
        rows: Any = Block(X.indptr, X.indices, X.data, X.shape[1])  # type: ignore[attr-defined]
        found = outlying_in(rows, result.native_cur.right, result.native_cur.left, result.outlier_rule)
        i, j, residual = (to_numpy(x) for x in (found.unit, found.index, found.residual))
    else:
        return result.outliers_of(X)
    return scipy.sparse.csr_array((residual, (i, j)), shape=X.shape)


def _medians(X: Any, n_features: int) -> np.ndarray:
    """Median of what was observed of each column; NaN where nothing was."""
    _, j, values = _observations(X)
    order = np.lexsort((values, j))
    count = np.bincount(j, minlength=n_features)
    start = np.cumsum(count) - count
    seen = count > 0
    out = np.full(n_features, np.nan, dtype=values.dtype)
    low, high = ((start + (count - 1) // 2)[seen], (start + count // 2)[seen])
    out[seen] = 0.5 * (values[order[low]] + values[order[high]])
    return out
