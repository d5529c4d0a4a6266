"""What happens with bad input: an error that names the argument, what came and what was expected.

Every row of `TABLE` is a test, and a row of the table in CONTRIBUTING.md.
"""

import pickle
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import array_api_strict
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from rcurc_gpu import CrossSamples, CURMatrix, LowRankMatrix, ccs_sample, rcurc, synthetic, truncated_svd
from rcurc_gpu.errors import ArgumentError, ArgumentTypeError, NothingObservedError, WordedError

NAN, INF = np.nan, np.inf
ELSEWHERE = array_api_strict.Device("device1")
Y = np.arange(1.0, 31.0).reshape(5, 6)


class Row(NamedTuple):
    """A line of the table: the input in words, a call with it, the error and a part of its message."""

    words: str
    call: Callable[[], Any]
    error: type[Exception]
    message: str


def holding(x, place=(1, 2)):
    """Y with `x` at a place."""
    out = Y.copy()
    out[place] = x
    return out


def dense(Y=Y, rows=(1, 3), cols=(2, 0, 4), **masks):
    return CrossSamples.from_dense(Y, rows, cols, **masks)


def triplets(i=(1, 3), j=(2, 2), values=(1.0, 2.0), shape=(5, 6), **options):
    i, j, values = (list(x) if isinstance(x, tuple) else x for x in (i, j, values))
    return CrossSamples.from_triplets(i, j, values, shape, **options)


def blocks(R=None, C=None, rows=(1, 3), cols=(2, 0, 4), **options):
    R = scipy.sparse.csr_array(Y[[1, 3]]) if R is None else R
    C = scipy.sparse.csr_array(Y[:, [2, 0, 4]]) if C is None else C
    return CrossSamples.from_blocks(R, C, rows, cols, **options)


def drawn(Y=Y, n_rows=2, n_cols=3, rate_rows=0.9, rate_cols=0.9, seed=0):
    return ccs_sample(Y, n_rows, n_cols, rate_rows, rate_cols, seed)


def made(shape=(20, 30), rank=2, seed=0, **options):
    return synthetic(shape, rank, seed=seed, **options)


@cache
def good():
    return synthetic((60, 70), 2, alpha=0.1, n_rows=30, n_cols=32, rate=0.7, seed=0)


@cache
def solved():
    return rcurc(good().samples, 2)


def solve(samples=None, rank=2, **options):
    return rcurc(good().samples if samples is None else samples, rank, **options)


def strict(x, device=ELSEWHERE):
    return array_api_strict.asarray(np.asarray(x), device=device)


DENSE = [
    Row("`Y` a vector", lambda: dense(np.ones(3)), ValueError, "Y must be two-dimensional, got shape (3,)"),
    Row("`Y` without rows", lambda: dense(np.ones((0, 3))), ValueError, "Y.shape[0] must be at least 1, got 0"),
    Row(
        "`Y` of lists of unequal lengths",
        lambda: dense([[1, 2], [3]]),
        ValueError,
        "Y must be an array or nested lists of equal lengths",
    ),
    Row("`Y` complex", lambda: dense(Y * 1j), TypeError, "Y must be real numbers, got dtype complex128"),
    Row(
        "`sigma` of another shape",
        lambda: dense(sigma=Y.T),
        ValueError,
        "sigma must have the shape of Y, (5, 6), or one that broadcasts to it, got (6, 5)",
    ),
    Row(
        "a negative `sigma`",
        lambda: dense(sigma=holding(-1.0)),
        ValueError,
        "sigma must be positive and finite in float64, got -1.0 at (1, 2)",
    ),
    Row(
        "`sigma` complex",
        lambda: dense(sigma=Y * 1j),
        TypeError,
        "sigma must be real numbers, got dtype complex128",
    ),
    Row("`Y` of strings", lambda: dense(Y.astype(str)), TypeError, "Y must be real numbers, got dtype <U32"),
    Row(
        "`Y` sparse, in `from_dense`",
        lambda: dense(scipy.sparse.csr_array(Y)),
        TypeError,
        "Y must be a dense array, got a sparse matrix; use CrossSamples.from_sparse",
    ),
    Row(
        "`Y` a data frame with a column of text",
        lambda: dense(pd.DataFrame(Y).assign(city="Oslo")),
        TypeError,
        "Y must hold numbers, but its column 'city' has 'Oslo'; leave the column out, or make it the index",
    ),
    Row(
        "inf in `Y`",
        lambda: dense(holding(INF)),
        ValueError,
        "Y must be finite where observed, got inf at (1, 2); leave missing entries out of the observations",
    ),
    Row(
        "NaN in `Y` where `mask_cols` is true",
        lambda: dense(holding(NAN, (4, 2)), mask_cols=np.ones((5, 3), bool)),
        ValueError,
        "Y must be finite where observed, got nan at (4, 2)",
    ),
    Row(
        "`Y` all NaN",
        lambda: dense(NAN * Y),
        ValueError,
        "no entry of the chosen rows (R) was observed: both blocks need observations",
    ),
    Row(
        "`mask_cols` all false",
        lambda: dense(mask_cols=np.zeros((5, 3), bool)),
        ValueError,
        "no entry of the chosen columns (C) was observed: both blocks need observations",
    ),
    Row(
        "`mask_rows` of another shape",
        lambda: dense(mask_rows=np.ones((6, 2), bool)),
        ValueError,
        "mask_rows must have shape (2, 6), got (6, 2)",
    ),
    Row(
        "`mask_cols` of numbers",
        lambda: dense(mask_cols=np.ones((5, 3))),
        TypeError,
        "mask_cols must be boolean, got dtype float64",
    ),
    Row(
        "`mask_rows` of another array library than `Y`",
        lambda: dense(strict(Y), mask_rows=np.ones((2, 6), bool)),
        TypeError,
        "mask_rows must be an array of the same library and device as Y "
        "(array_api_strict on array_api_strict.Device('device1')), got numpy on cpu",
    ),
    Row(
        "`mask_rows` on another device than `Y`",
        lambda: dense(strict(Y), mask_rows=strict(np.ones((2, 6), bool), array_api_strict.Device("CPU_DEVICE"))),
        TypeError,
        "mask_rows must be an array of the same library and device as Y (array_api_strict on "
        "array_api_strict.Device('device1')), got array_api_strict on array_api_strict.Device('CPU_DEVICE')",
    ),
]
CROSS = [
    Row("`rows` missing", lambda: dense(rows=None), ValueError, "rows must be a vector of integers, got None"),
    Row("`rows` a matrix", lambda: dense(rows=[[1]]), ValueError, "rows must be a vector of integers, got shape (1, 1)"),
    Row("`rows` empty", lambda: dense(rows=[]), ValueError, "rows is empty: at least one index is needed"),
    Row("`rows` not whole", lambda: dense(rows=[1.0]), TypeError, "rows must hold integers, got dtype float64"),
    Row("`rows` boolean", lambda: dense(rows=[True, False]), TypeError, "rows must hold integers, got dtype bool"),
    Row("`rows` negative", lambda: dense(rows=[1, -1]), ValueError, "rows must lie in 0..4, got -1"),
    Row("`cols` beyond the end", lambda: dense(cols=[1, 6]), ValueError, "cols must lie in 0..5, got 6"),
    Row(
        "`cols` beyond int64",
        lambda: dense(cols=np.array([2**63 + 1], dtype=np.uint64)),
        ValueError,
        "cols must lie in 0..5, got 9223372036854775809",
    ),
    Row(
        "`cols` with repeats",
        lambda: dense(cols=[1, 1, 2, 2, 2]),
        ValueError,
        "cols must not repeat an index, got 2 (3 times)",
    ),
]
LISTS = [
    Row("`i` negative", lambda: triplets(i=(1, -3)), ValueError, "i must lie in 0..4, got -3"),
    Row("`j` beyond the end", lambda: triplets(j=(6, 2)), ValueError, "j must lie in 0..5, got 6"),
    Row("`i` not whole", lambda: triplets(i=(1.0, 3.0)), TypeError, "i must hold integers, got dtype float64"),
    Row("`j` boolean", lambda: triplets(j=(True, False)), TypeError, "j must hold integers, got dtype bool"),
    Row(
        "`j` of another length than `values`",
        lambda: triplets(j=(2,)),
        ValueError,
        "j and values must be vectors of one length, got (1,) and (2,)",
    ),
    Row(
        "`values` a matrix",
        lambda: triplets(values=np.ones((2, 1))),
        ValueError,
        "i and values must be vectors of one length, got (2,) and (2, 1)",
    ),
    Row(
        "`i`, `j`, `values` empty",
        lambda: triplets((), (), ()),
        ValueError,
        "values is empty: there are no observations",
    ),
    Row(
        "NaN in `values`",
        lambda: triplets(values=(1.0, NAN)),
        ValueError,
        "values must be finite where observed, got nan at index 1",
    ),
    Row(
        "`values` complex",
        lambda: triplets(values=(1.0, 1j)),
        TypeError,
        "values must be real numbers, got dtype complex128",
    ),
    Row(
        "`i` of another array library than `values`",
        lambda: triplets(i=np.array([1, 3]), values=strict([1.0, 2.0])),
        TypeError,
        "i must be an array of the same library and device as values",
    ),
    Row(
        "`sigma` of another length than `values`",
        lambda: triplets(sigma=[1.0]),
        ValueError,
        "sigma must be a vector with a number for each of 2 values, got shape (1,)",
    ),
    Row(
        "`sigma` one number, in `from_triplets`",
        lambda: triplets(sigma=1.0),
        ValueError,
        "sigma must be a vector with a number for each of 2 values, got shape ()",
    ),
    Row(
        "0 in `sigma`",
        lambda: triplets(sigma=[1.0, 0.0]),
        ValueError,
        "sigma must be positive and finite in float64, got 0.0 at index 1",
    ),
    Row(
        "NaN in `sigma`",
        lambda: triplets(sigma=[NAN, 1.0]),
        ValueError,
        "sigma must be positive and finite in float64, got nan at index 0",
    ),
    Row(
        "`sigma` of strings",
        lambda: triplets(sigma=["a", "b"]),
        TypeError,
        "sigma must be real numbers, got dtype <U1",
    ),
    Row("`shape` one number", lambda: triplets(shape=5), TypeError, "shape must be a pair (n1, n2), got 5"),
    Row("`shape` with a 0", lambda: triplets(shape=(5, 0)), ValueError, "shape[1] must be at least 1, got 0"),
    Row("`shape` not whole", lambda: triplets(shape=(5.5, 6)), TypeError, "shape[0] must be an integer, got 5.5"),
    Row(
        "one entry with two values",
        lambda: triplets(i=(1, 1)),
        ValueError,
        "entry (1, 2) was observed with different values, 1 and 2; combine them first, or pass "
        "duplicates='mean' or 'median' to from_triplets, from_sparse, from_blocks or complete",
    ),
    Row(
        "an unknown word for `duplicates`",
        lambda: triplets(duplicates="sum"),
        ValueError,
        "duplicates must be one of 'error', 'mean', 'median', got 'sum'",
    ),
    Row(
        "all observations outside of the cross",
        lambda: triplets(rows=[0], cols=[0]),
        ValueError,
        "no entry of the chosen rows (R) was observed: both blocks need observations",
    ),
    Row(
        "`Y` dense, in `from_sparse`",
        lambda: CrossSamples.from_sparse(Y),
        TypeError,
        "Y must be a sparse matrix (scipy.sparse or cupyx.scipy.sparse), got ndarray",
    ),
    Row(
        "`R` and `C` that do not fit `rows` and `cols`",
        lambda: blocks(rows=[1], cols=[2, 0, 4]),
        ValueError,
        "R must have one row for each of rows (1) and C one column for each of cols (3), got R (2, 6) and C (5, 3)",
    ),
    Row(
        "`R` and `C` that disagree",
        lambda: blocks(C=scipy.sparse.csr_array(2 * Y[:, [2, 0, 4]])),
        ValueError,
        "entry (1, 0) was observed with different values, 7 and 14",
    ),
    Row(
        "`R` dense",
        lambda: blocks(R=Y[[1, 3]]),
        TypeError,
        "R must be a sparse matrix (scipy.sparse or cupyx.scipy.sparse), got ndarray",
    ),
    Row(
        "NaN in `C`",
        lambda: blocks(C=scipy.sparse.csr_array(holding(NAN)[:, [2, 0, 4]])),
        ValueError,
        "C must be finite where observed, got nan at (1, 0)",
    ),
    Row(
        "`R` without observations",
        lambda: blocks(R=scipy.sparse.csr_array((2, 6))),
        ValueError,
        "no entry of the chosen rows (R) was observed",
    ),
]
DRAWN = [
    Row(
        "`Y` sparse, in `ccs_sample`",
        lambda: drawn(scipy.sparse.csr_array(Y)),
        TypeError,
        "Y must know all its entries, got a sparse matrix; use CrossSamples.from_sparse",
    ),
    Row(
        "`Y` with three axes", lambda: drawn(np.ones((2, 3, 4))), TypeError, "Y.shape must be a pair (n1, n2), got (2, 3, 4)"
    ),
    Row(
        "inf in `Y`, in `ccs_sample`",
        lambda: drawn(np.full((5, 6), -INF)),
        ValueError,
        "Y must be finite where observed, got -inf at",
    ),
    Row("`n_rows` 0", lambda: drawn(n_rows=0), ValueError, "n_rows must be at least 1 and at most 5, got 0"),
    Row(
        "`n_cols` larger than the matrix",
        lambda: drawn(n_cols=7),
        ValueError,
        "n_cols must be at least 1 and at most 6, got 7",
    ),
    Row("`rate_rows` 0", lambda: drawn(rate_rows=0), ValueError, "rate_rows must be in (0, 1], got 0"),
    Row("`rate_cols` above 1", lambda: drawn(rate_cols=1.5), ValueError, "rate_cols must be in (0, 1], got 1.5"),
    Row("`seed` negative", lambda: drawn(seed=-1), ValueError, "seed must not be negative, got -1"),
    Row(
        "`seed` a bool",
        lambda: drawn(seed=True),
        TypeError,
        "seed must be None, an int or a numpy.random.Generator, got bool",
    ),
    Row(
        "`entries` that gives a block instead of pairs",
        lambda: drawn(type("Y", (), {"shape": (5, 6), "entries": lambda self, i, j: Y[np.ix_(i, j)]})()),
        ValueError,
        "Y must give one value for each position, got shape",
    ),
    Row("`alpha` above 1", lambda: made(alpha=1.2), ValueError, "alpha must be in [0, 1], got 1.2"),
    Row("`noise` negative", lambda: made(noise=-1), ValueError, "noise must be in [0, inf), got -1"),
    Row("`rate` of three numbers", lambda: made(rate=(1, 1, 1)), ValueError, "rate must be a number or a pair"),
    Row("`dtype` of integers", lambda: made(dtype=int), TypeError, "dtype must be float32 or float64, got int64"),
    Row(
        "`rank` larger than the matrix, in `synthetic`",
        lambda: made(rank=21),
        ValueError,
        "rank must be at least 1 and at most 20, got 21",
    ),
    Row(
        "a dense matrix for `relative_error`",
        lambda: good().relative_error(np.ones((60, 70))),
        TypeError,
        "matrix must be a CURMatrix or LowRankMatrix (result.cur), got ndarray",
    ),
    Row(
        "a matrix of another shape for `relative_error`",
        lambda: good().relative_error(solved().cur.T),
        ValueError,
        "matrix must have the problem's shape (60, 70), got (70, 60)",
    ),
]
SOLVE = [
    Row(
        "`samples` a matrix",
        lambda: rcurc(Y, 2),
        TypeError,
        "samples must be a CrossSamples, got ndarray; make one with CrossSamples.from_dense(...)",
    ),
    Row("`rank` 0", lambda: solve(rank=0), ValueError, "rank must be at least 1, got 0"),
    Row("`rank` negative", lambda: solve(rank=-1), ValueError, "rank must be at least 1, got -1"),
    Row("`rank` 1.5", lambda: solve(rank=1.5), TypeError, "rank must be an integer, got 1.5"),
    Row("`rank` `True`", lambda: solve(rank=True), TypeError, "rank must be an integer, got True"),
    Row(
        "`rank` a word",
        lambda: solve(rank="two"),
        ValueError,
        "rank must be a positive integer or 'auto', got 'two'",
    ),
    Row(
        "`rank` larger than the intersection",
        lambda: solve(rank=31),
        ValueError,
        "rank must be at most min(|I|, |J|) = 30, got 31: choose more rows and columns",
    ),
    Row(
        "an unknown `method`",
        lambda: solve(method="slow"),
        ValueError,
        "method must be one of 'fast', 'paper', got 'slow'",
    ),
    Row(
        "an unknown word for `undetermined`",
        lambda: solve(undetermined="drop"),
        ValueError,
        "undetermined must be one of 'prior', 'nan', 'keep', got 'drop'",
    ),
    Row("`gamma` 0", lambda: solve(gamma=0), ValueError, "gamma must be in (0, 1), got 0"),
    Row("`gamma` 1", lambda: solve(gamma=1.0), ValueError, "gamma must be in (0, 1), got 1.0"),
    Row("`gamma` NaN", lambda: solve(gamma=NAN), ValueError, "gamma must be in (0, 1), got nan"),
    Row("`gamma` a word", lambda: solve(gamma="fast"), TypeError, "gamma must be a number, got 'fast'"),
    Row("`zeta0` 0", lambda: solve(zeta0=0), ValueError, "zeta0 must be in (0, inf), got 0"),
    Row("`step_rows` negative", lambda: solve(step_rows=-2), ValueError, "step_rows must be in (0, inf), got -2"),
    Row("`step_cols` inf", lambda: solve(step_cols=INF), ValueError, "step_cols must be in (0, inf), got inf"),
    Row("`tol` negative", lambda: solve(tol=-1e-6), ValueError, "tol must be in [0, inf), got -1e-06"),
    Row("`holdout` above a half", lambda: solve(holdout=0.6), ValueError, "holdout must be in [0, 0.5], got 0.6"),
    Row("`holdout` missing", lambda: solve(holdout=None), TypeError, "holdout must be a number, got None"),
    Row("`accuracy` 0", lambda: solve(accuracy=0), ValueError, "accuracy must be in (0, inf), got 0"),
    Row(
        '`svd` "cusolver" for NumPy',
        lambda: solve(svd="cusolver"),
        ValueError,
        "svd must be 'auto' where arrays of numpy are computed with, got 'cusolver': it needs a GPU",
    ),
    Row("`max_iter` 0", lambda: solve(max_iter=0), ValueError, "max_iter must be at least 1, got 0"),
    Row("`max_iter` not whole", lambda: solve(max_iter=2.5), TypeError, "max_iter must be an integer, got 2.5"),
    Row("`intervals` a word", lambda: solve(intervals="no"), TypeError, "intervals must be True or False, got 'no'"),
    Row("`progress` a word", lambda: solve(progress="no"), TypeError, "progress must be True or False, got 'no'"),
    Row("`gather` a number", lambda: solve(gather=0), TypeError, "gather must be True or False, got 0"),
    Row("`chunk_bytes` 0", lambda: solve(chunk_bytes=0), ValueError, "chunk_bytes must be at least 1, got 0"),
    Row("`sweeps` negative", lambda: solve(sweeps=-1), ValueError, "sweeps must be at least 0, got -1"),
    Row("`seed` a word", lambda: solve(seed="x"), TypeError, "seed must be None, an int or a numpy.random.Generator"),
    Row("`callback` not callable", lambda: solve(callback=3), TypeError, "callback must be callable, got int"),
    Row(
        "all observations 0",
        lambda: rcurc(dense(np.zeros((5, 6))), 1),
        ValueError,
        "all observations of the intersection are 0: there is nothing to recover",
    ),
    Row(
        "no observation in the intersection",
        lambda: rcurc(dense(np.where(np.isin(Y, Y[np.ix_([1, 3], [2, 0, 4])]), NAN, Y)), 1),
        ValueError,
        "no observation lies in the intersection of rows and cols: the core cannot be found",
    ),
    Row("`rank` 0, in `describe`", lambda: good().samples.describe(0), ValueError, "rank must be at least 1, got 0"),
    Row(
        "`rank` larger than the matrix, in `truncated_svd`",
        lambda: truncated_svd(Y, 6),
        ValueError,
        "rank must be at least 1 and at most 5, got 6",
    ),
]
RESULT = [
    Row(
        "new columns of another length",
        lambda: solved().transform_columns(np.ones((32, 2))),
        ValueError,
        "Y_new must have 30 rows, one for each of the chosen rows I, got 32",
    ),
    Row(
        "new rows of another length",
        lambda: solved().transform_rows(np.ones((2, 30))),
        ValueError,
        "Y_new must have 32 columns, one for each of the chosen columns J, got 30",
    ),
    Row(
        "inf in new columns",
        lambda: solved().transform_columns(np.where(np.eye(30, 2) > 0, INF, 1.0)),
        ValueError,
        "Y_new must be finite where observed, got inf at (0, 0)",
    ),
    Row(
        "new columns of another array library than the result",
        lambda: solved().transform_columns(strict(np.ones((30, 2)))),
        TypeError,
        "Y_new must be an array of the same library and device as the recovered matrix (numpy on cpu)",
    ),
    Row(
        "`mask` for sparse new columns",
        lambda: solved().transform_columns(scipy.sparse.csr_array((30, 2)), np.ones((30, 2), bool)),
        TypeError,
        "mask must be None where Y_new is a sparse matrix: its stored entries are the observations",
    ),
    Row(
        "one entry of new columns with two values",
        lambda: solved().transform_columns(scipy.sparse.coo_array(([1.0, 2.0], ([3, 3], [1, 1])), shape=(30, 2))),
        ValueError,
        "entry (3, 1) was observed with different values, 1 and 2",
    ),
    Row(
        "`cur[i, j]` out of range",
        lambda: solved().cur[60, 0],
        IndexError,
        "index 60 is out of bounds for axis 0 with size 60",
    ),
    Row("`cur[i, j, k]`", lambda: solved().cur[3, 4, 5], IndexError, "a matrix takes at most two indices, cur[i, j]"),
    Row(
        "`cur @ x` with `x` of another array library",
        lambda: solved().cur @ strict(np.ones(70)),
        TypeError,
        "the array to multiply with must be an array of the same library and device as the matrix (numpy on cpu)",
    ),
    Row(
        "factors of different ranks",
        lambda: LowRankMatrix(np.ones((5, 2)), np.ones((6, 3))),
        ValueError,
        "left and right must be matrices with the same number of columns, got (5, 2) and (6, 3)",
    ),
]
TABLE = DENSE + CROSS + LISTS + DRAWN + SOLVE + RESULT


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.words)
def test_bad_input_is_refused_with_a_message_that_says_why(row):
    with pytest.raises(row.error, match=re.escape(row.message)) as caught:
        row.call()
    assert type(caught.value) is row.error or isinstance(caught.value, (WordedError, NothingObservedError))


def test_what_is_wrong_with_an_argument_can_be_asked_for():
    for call, kind in ((lambda: solve(rank=0), ArgumentError), (lambda: solve(gamma="fast"), ArgumentTypeError)):
        with pytest.raises(kind) as caught:
            call()
        error = pickle.loads(pickle.dumps(caught.value))  # as from a worker
        assert str(error) == str(caught.value) == f"{error.argument} {error.problem}"
    assert (error.argument, error.problem, error.got) == ("gamma", "must be a number, got 'fast'", "fast")


def test_no_input_stands_in_the_table_twice():
    words = [row.words for row in TABLE]
    assert sorted(set(words)) == sorted(words)


def line(row):
    """The row as CONTRIBUTING.md has it; what the message goes on to say may follow as an ellipsis."""
    message = row.message.replace("|", r"\|")
    return rf"\| {re.escape(row.words)} \| `{row.error.__name__}: {re.escape(message)}( \.\.\.)?` \|"


def test_the_table_in_contributing_is_this_table():
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    missing = [row.words for row in TABLE if not re.search(line(row), text)]
    assert missing == []
    assert len(re.findall(r"^\| .* \| `\w+Error: .*` \|$", text, re.MULTILINE)) == len(TABLE) + len(FILES)
    assert all(words in text for words in FILES)


# ---------------------------------------------------------------- files


FILES = ("a truncated file", "a file of another kind", "a missing file")  # rows of the table with a test of their own


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "samples.npz"
    dense().save(path)
    return path


def test_a_truncated_file_says_so(saved):
    saved.write_bytes(saved.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"samples\.npz' is not a CrossSamples file, or is truncated"):
        CrossSamples.load(saved)


def test_a_file_of_another_kind_says_what_it_is(saved):
    with pytest.raises(ValueError, match=r"is not a CURMatrix file of version 1: it says 'rcurc-gpu CrossSamples 1'"):
        CURMatrix.load(saved)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"):
        CURMatrix.load(tmp_path / "nothing.npz")
