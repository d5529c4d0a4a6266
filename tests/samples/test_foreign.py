"""Data as people have it: each kind of table, array and list is solved as the plain array is, or the error names the fix."""

import decimal
import warnings

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

import rcurc_gpu as rg
from rcurc_gpu.samples.foreign import to_host

_rng = np.random.default_rng(0)
X = _rng.standard_normal((60, 3)) @ _rng.standard_normal((3, 40))
Y = np.where(_rng.random(X.shape) < 0.05, 50.0, X)
Y[_rng.random(X.shape) < 0.1] = np.nan
NAMES = [f"c{k}" for k in range(40)]
FRAME = pd.DataFrame(Y, columns=NAMES)
LISTS = [[None if np.isnan(v) else v for v in row] for row in Y.tolist()]


KINDS = {
    "pandas": lambda: FRAME,
    "pandas nullable": lambda: FRAME.convert_dtypes(),
    "pandas objects": lambda: FRAME.astype(object).where(FRAME.notna(), None),
    "polars": lambda: pl.DataFrame(LISTS, schema=NAMES, orient="row"),
    "pyarrow": lambda: pa.Table.from_pandas(FRAME),
    "xarray": lambda: xr.DataArray(Y, dims=("day", "site")),
    "masked": lambda: np.ma.masked_invalid(Y),
    "objects": lambda: np.array(LISTS, dtype=object),
    "lists": lambda: LISTS,
    "Dask": lambda: da.from_array(Y, chunks=(25, 40)),
    "xarray of Dask": lambda: xr.DataArray(da.from_array(Y, chunks=(25, 10))),
}


@pytest.fixture(scope="module")
def expected():
    return rg.robust_pca(Y)


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_are_taken_as_the_plain_array_is(kind, expected):
    data = KINDS[kind]()
    np.testing.assert_array_equal(rg.robust_pca(data).cur.left, expected.cur.left)
    rows, cols = np.arange(5, 35), np.arange(0, 40, 2)
    one, other = (rg.CrossSamples.from_dense(y, rows, cols) for y in (data, Y))
    np.testing.assert_array_equal(one.r_block.value, other.r_block.value)
    np.testing.assert_array_equal(one.c_block.index, other.c_block.index)
    one, other = (rg.ccs_sample(y, 30, 20, 0.8, 0.8, seed=0) for y in (data, Y))
    np.testing.assert_array_equal(one.r_block.value, other.r_block.value)
    assert (expected.outliers_of(data) != expected.outliers_of(Y)).nnz == 0
    assert np.abs(expected.cur.to_dense() - X).max() < 1e-7


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimator_takes_them(kind):
    found = rg.RobustCURCompletion().set_output(transform="default").fit_transform(KINDS[kind]())
    np.testing.assert_allclose(found, X, atol=1e-7)


def test_new_rows_may_be_of_any_kind(expected):
    seen = np.arange(40)
    wanted = expected.transform_rows(Y[:4], cols=seen).matrix.to_dense()
    for make in (pd.DataFrame, np.ma.masked_invalid, xr.DataArray):
        np.testing.assert_array_equal(expected.transform_rows(make(Y[:4]), cols=seen).matrix.to_dense(), wanted)


def test_triplets_may_be_series_of_any_library():
    i, j = np.nonzero(~np.isnan(Y))
    plain = rg.CrossSamples.from_triplets(i, j, Y[i, j], Y.shape)
    for make in (pd.Series, pl.Series, pa.array, list, lambda x: pd.Series(x).convert_dtypes()):
        found = rg.CrossSamples.from_triplets(make(i), make(j), make(Y[i, j]), Y.shape)
        np.testing.assert_array_equal(found.r_block.value, plain.r_block.value)


def test_a_dask_array_is_read_where_it_is_looked_at():
    looked = []

    def make(block_info):
        (low, high), (left, right) = block_info[None]["array-location"]
        looked.append((high - low) * (right - left))
        return X[low:high, left:right]

    lazy = da.map_blocks(make, chunks=((10,) * 6, (40,)), dtype=float, meta=np.empty((0, 0)))
    samples = rg.CrossSamples.from_dense(lazy, [3, 12], np.arange(5))
    np.testing.assert_array_equal(samples.R.toarray(), X[[3, 12]])
    assert max(looked) == 400  # a chunk at a time
    masked = rg.CrossSamples.from_dense(lazy, [3, 12], np.arange(5), mask_cols=X[:, :5] > 0)
    assert masked.c_block.n_obs == (X[:, :5] > 0).sum()


def test_the_cross_of_a_dask_array_is_solved_in_shards_that_are_computed_when_they_are_needed():
    rows, cols = np.arange(0, 60, 2), np.arange(5, 30)
    lazy = da.from_array(Y, chunks=(20, 15))
    shards = rg.ShardedSamples.from_dask(lazy, rows, cols, shard_bytes=3000)
    assert len(shards.r_shards) > 2
    found, plain = rg.rcurc(shards, 3), rg.rcurc(rg.CrossSamples.from_dense(Y, rows, cols), 3)
    assert found.converged
    np.testing.assert_allclose(found.cur.to_dense(), plain.cur.to_dense(), atol=1e-7)
    with pytest.raises(TypeError, match=r"Y must be a Dask array, got ndarray; CrossSamples\.from_dense takes others"):
        rg.ShardedSamples.from_dask(Y, rows, cols)


def test_masks_and_noise_may_be_frames():
    seen = ~np.isnan(Y[:30])
    found = rg.CrossSamples.from_dense(np.nan_to_num(Y), range(30), range(20), mask_rows=pd.DataFrame(seen).convert_dtypes())
    np.testing.assert_array_equal(found.r_block.counts, seen.sum(axis=0))
    noisy = rg.CrossSamples.from_dense(Y, range(30), range(20), sigma=pd.DataFrame(np.ones(Y.shape)))
    assert noisy.has_sigma


def test_a_frame_of_single_precision_stays_one():
    assert to_host("Y", pd.DataFrame(np.ones((2, 2), np.float32))).dtype == np.float32
    assert to_host("Y", pl.DataFrame({"a": [1, None]})).dtype == np.float64
    np.testing.assert_array_equal(to_host("i", [1, 2]), [1, 2])


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (lambda: FRAME.assign(city="Oslo"), TypeError, r"column 'city' has 'Oslo'; .* Y\.set_index\('city'\)"),
        (lambda: FRAME.assign(day=pd.Timestamp("2024-01-01")), TypeError, "its column 'day' has"),
        (lambda: pl.DataFrame({"a": [1.0], "b": ["x"]}), TypeError, "its column 'b' has 'x'; leave the column out"),
        (lambda: pa.table({"a": [1.0], "b": ["x"]}), TypeError, "its column 'b' has 'x'; leave the column out"),
        (lambda: [[1.0, "a"], [None, 2.0]], TypeError, "Y must be real numbers, got 'a'"),
        (lambda: [[1.0], [1.0, 2.0]], ValueError, "Y must be an array or nested lists of equal lengths"),
        (lambda: xr.Dataset({"a": (("x", "y"), Y)}), TypeError, r"got a Dataset of several; choose one, as in Y\['name'\]"),
        (lambda: np.ma.masked_array([["a"]]), TypeError, "Y must be real numbers, got a masked array of <U1"),
        (
            lambda: da.from_array(Y, chunks=20)[da.from_array(Y, chunks=20)[:, 0] > 0],
            ValueError,
            r"unknown chunk sizes; call Y\.compute_chunk_sizes\(\) first",
        ),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_with_the_fix(data, error, message):
    with pytest.raises(error, match=message):
        rg.robust_pca(data())


def doors(data):
    """Calls of all functions that take a table."""
    return (
        ("data", lambda: rg.complete(data)),
        ("Y", lambda: rg.robust_pca(data)),
        ("X", lambda: rg.RobustCURCompletion().fit(data)),
    )


SIGNS = FRAME > 0
NOT_VALUES = {
    "a comparison": (SIGNS, "is a table of True and False"),
    "a boolean array": (SIGNS.to_numpy(), "is a table of True and False"),
    "nullable booleans without a gap": (SIGNS.astype("boolean"), "is a table of True and False"),
    "objects": (SIGNS.astype(object), "is a table of True and False"),
    "polars": (pl.DataFrame({"a": [True, False], "b": [True, True]}), "is a table of True and False"),
    "dates": (np.full((9, 9), np.datetime64("2024-01-01")), "dates can be labels of rows or columns, not values"),
    "durations": (
        np.full((9, 9), np.timedelta64(1, "D")),
        r"divide durations by one of them, such as .*timedelta64\(1, 's'\)",
    ),
    "a column of durations": (FRAME.assign(t=pd.Timedelta("20s")), "its column 't' has 0:00:20; divide durations"),
    "a column of dates": (
        FRAME.assign(t=pd.Timestamp("2024-01-01")),
        "its column 't' has 2024-01-01 00:00:00; dates can be",
    ),
    "a complex column": (FRAME.assign(t=1j), "its column 't' has 1j; take the real part, or the absolute value; leave"),
    "decimal commas": (FRAME.assign(t="3,14"), r"its column 't' has '3,14'; decimal commas are not read: pandas\.read_csv"),
    "categories": (FRAME.assign(t=pd.Categorical(["a"] * len(FRAME))), "its column 't' has 'a'; leave the column out"),
}


@pytest.mark.parametrize("kind", NOT_VALUES)
def test_values_that_are_no_measurements_are_refused_at_every_door(kind):
    data, message = NOT_VALUES[kind]
    for name, call in doors(data):
        with pytest.raises(TypeError, match=f"^{name} .*{message}"):
            call()


@pytest.mark.parametrize(
    "data",
    [
        FRAME.map(lambda v: None if v != v else decimal.Decimal(repr(v))),
        FRAME.astype(str),
        FRAME.assign(on=[k % 2 == 0 for k in range(len(FRAME))]),
        FRAME.assign(kind=pd.Categorical([k % 3 for k in range(len(FRAME))])),
    ],
    ids=["Decimal", "texts of numbers", "one column of booleans", "categories that are numbers"],
)
def test_what_stands_for_numbers_is_taken_at_every_door(data):
    wanted = np.asarray(data.astype(float))
    np.testing.assert_array_equal(to_host("Y", data).astype(float), wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        for _, call in doors(data):
            call()


def test_booleans_with_gaps_of_their_own_are_values():
    gaps = FRAME.isna() | (FRAME.max().max() / 2 < FRAME)
    np.testing.assert_array_equal(
        to_host("Y", SIGNS.astype("boolean").mask(gaps)), SIGNS.astype(float).mask(gaps).to_numpy()
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1.5", "2.5"], r"values must be real numbers, got dtype <U3; \.astype\(float\) makes numbers of texts"),
        (["1,5", "2,5"], "got dtype <U3; decimal commas are not read"),
        ([1j, 2j], "got dtype complex128; take the real part"),
        (np.asarray([1, 2], "m8[s]"), "divide durations"),
        (np.asarray([1, 2], "M8[s]"), "dates can be labels"),
    ],
)
def test_ratings_that_are_no_numbers_are_refused_with_the_fix(values, message):
    with pytest.raises(TypeError, match=message):
        rg.complete_ratings([0, 1], [0, 1], values, (2, 2))


def test_labels_for_numbers_of_rows_are_refused_with_the_fix():
    with pytest.raises(
        TypeError, match=r"i must hold integers, got dtype <U2; numpy\.unique\(labels, return_inverse=True\)"
    ):
        rg.complete_ratings(["u1", "u2"], [0, 1], [1.0, 2.0], (2, 2))


@pytest.mark.parametrize("data", ["table.csv", None, {"a": [1.0]}])
def test_what_is_no_table_at_all_is_named(data):
    for name, call in doors(data)[:2]:
        with pytest.raises(TypeError, match=f"^{name} must be a (table|matrix), got"):
            call()
