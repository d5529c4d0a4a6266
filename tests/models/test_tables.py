"""Tables in, tables out: labels are kept the whole way, and values are those of the truth."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xarray as xr

import rcurc_gpu as rg

N1, N2 = 60, 40
_rng = np.random.default_rng(0)
X = _rng.standard_normal((N1, 3)) @ _rng.standard_normal((3, N2))
WRONG = _rng.random(X.shape) < 0.05
Y = np.where(WRONG, 50.0, X)
HOLES = _rng.random(X.shape) < 0.1
Y[HOLES] = np.nan
DAYS = pd.date_range("2024-01-01", periods=N1, name="day")
SITES = [f"s{k}" for k in range(N2)]
WIDE = pd.DataFrame(Y, index=DAYS, columns=pd.Index(SITES, name="site"))
LONG = WIDE.reset_index().melt("day", var_name="site", value_name="level").sample(frac=1, random_state=0)
TWICE = pd.DataFrame({"day": DAYS[5:6], "site": ["s7"], "level": [1234.0]})  # beside what is in LONG
POLARS = pl.DataFrame(
    {"day": DAYS.strftime("%Y-%m-%d").tolist()} | {s: [None if np.isnan(v) else v for v in WIDE[s]] for s in SITES}
)


def found_wrong(frame, row, column):
    """The places that a table of outliers names."""
    return set(zip(frame[row], frame[column], strict=True))


# ---------------------------------------------------------------- wide


@pytest.fixture(scope="module")
def wide():
    return rg.complete(WIDE)


def test_a_wide_frame_keeps_index_and_columns(wide):
    assert wide.converged
    pd.testing.assert_index_equal(wide.table.index, WIDE.index)
    pd.testing.assert_index_equal(wide.table.columns, WIDE.columns)
    np.testing.assert_allclose(wide.table, X, atol=1e-7)
    kept = ~HOLES & ~WRONG
    np.testing.assert_array_equal(wide.table.to_numpy()[kept], Y[kept])  # as they were observed, to the last digit
    assert np.isnan(WIDE.to_numpy()[HOLES]).all()  # the input is as it was


def test_what_is_replaced_is_a_choice():
    missing = rg.complete(WIDE, replace="missing").table.to_numpy()
    np.testing.assert_array_equal(missing[WRONG & ~HOLES], 50.0)
    np.testing.assert_allclose(missing[HOLES], X[HOLES], atol=1e-7)
    np.testing.assert_array_equal(np.asarray(rg.complete(WIDE, replace="all")), rg.complete(WIDE).result.cur.to_dense())


def test_the_table_of_outliers_has_labels(wide):
    assert list(wide.outliers.columns) == ["day", "site", "observed", "recovered", "score"]
    i, j = np.nonzero(WRONG & ~HOLES)
    assert found_wrong(wide.outliers, "day", "site") == {(DAYS[a], SITES[b]) for a, b in zip(i, j, strict=True)}
    assert wide.outliers["score"].is_monotonic_decreasing


def test_pairs_are_predicted_by_their_labels(wide):
    pairs = pd.DataFrame({"site": ["s3", "nowhere", "s39"], "day": DAYS[[0, 1, 59]], "note": "x"}, index=[7, 8, 9])
    found = wide.predict(pairs)
    assert list(found.columns) == ["day", "site", "value", "expected_error", "lower", "upper"]
    assert list(found.index) == [7, 8, 9]
    np.testing.assert_allclose(found["value"], [X[0, 3], np.nan, X[59, 39]], atol=1e-7)
    assert (found["lower"] <= found["value"])[[7, 9]].all()


def test_intervals_are_tables_and_hold_the_truth():
    noisy = WIDE + 0.1 * np.random.default_rng(1).standard_normal(X.shape)
    done = rg.complete(noisy)
    lower, upper = done.interval(0.9, new=False)
    pd.testing.assert_index_equal(lower.index, WIDE.index)
    inside = (lower.to_numpy() <= X) & (upper.to_numpy() >= X)
    assert 0.8 < inside.mean() < 0.97
    wider = done.interval(0.9)[1] - done.interval(0.9)[0]
    assert (wider > upper - lower).all(axis=None)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: POLARS, pl.DataFrame),
        (lambda: POLARS.to_arrow(), pa.Table),
        (lambda: POLARS.drop("day"), pl.DataFrame),
        (lambda: xr.DataArray(Y, dims=("day", "site"), coords={"site": SITES}), xr.DataArray),
        (lambda: WIDE.convert_dtypes(), pd.DataFrame),
        (lambda: WIDE.astype(object).where(WIDE.notna(), None), pd.DataFrame),
        (lambda: xr.DataArray(Y, dims=("day", "site"), coords={"site": SITES}).chunk(20), xr.DataArray),
        (lambda: np.ma.masked_invalid(Y), np.ndarray),
        (lambda: Y.tolist(), np.ndarray),
    ],
)
def test_other_tables_come_back_as_they_are(make, kind, wide):
    given = make()
    done = rg.complete(given)
    assert isinstance(done.table, kind)
    np.testing.assert_allclose(np.asarray(done), np.asarray(wide), atol=1e-12)
    if kind in (pl.DataFrame, pa.Table):
        assert list(getattr(done.table, "column_names", None) or done.table.columns) == list(
            getattr(given, "column_names", None) or given.columns
        )
        assert isinstance(done.outliers, kind)
    if kind is xr.DataArray:
        np.testing.assert_array_equal(done.table.coords["site"], SITES)
    lower, _ = done.interval()
    assert isinstance(lower, kind)


# ---------------------------------------------------------------- long


@pytest.mark.parametrize("convert", [lambda x: x, pl.from_pandas, lambda x: pa.Table.from_pandas(x, preserve_index=False)])
def test_a_long_frame_is_predicted_under_its_own_names(convert):
    done = rg.complete(convert(LONG), rows="day", columns="site", values="level")
    pairs = LONG.head(20)[["day", "site"]]
    found = done.predict(convert(pairs))
    assert type(found) is type(convert(pairs))
    frame = found if isinstance(found, pd.DataFrame) else found.to_pandas()
    assert list(frame.columns) == ["day", "site", "level", "expected_error", "lower", "upper"]
    truth = [X[DAYS.get_loc(day), SITES.index(site)] for day, site in pairs.itertuples(index=False)]
    np.testing.assert_allclose(frame["level"], truth, atol=1e-7)
    wrong = done.outliers if isinstance(done.outliers, pd.DataFrame) else done.outliers.to_pandas()
    assert list(wrong.columns) == ["day", "site", "observed", "recovered", "score"]
    assert len(wrong) == (WRONG & ~HOLES).sum()


def test_a_long_frame_becomes_a_wide_one():
    table = rg.complete(LONG, rows="day", columns="site", values="level").table
    assert (table.index.name, table.columns.name) == ("day", "site")
    assert table.index.is_monotonic_increasing
    np.testing.assert_allclose(table[SITES], X, atol=1e-7)


def test_noise_of_known_size_is_a_column_or_an_array():
    sigma = np.where(np.arange(N2) < 20, 0.05, 0.5)
    noisy = WIDE + sigma * np.random.default_rng(2).standard_normal(X.shape)
    long = noisy.reset_index().melt("day", var_name="site", value_name="level")
    long["err"] = sigma[long["site"].str[1:].astype(int)]
    by_array = rg.complete(noisy, sigma=sigma).result
    by_column = rg.complete(long, rows="day", columns="site", values="level", sigma="err").result
    for result in (by_array, by_column):
        assert result.samples.has_sigma
        assert np.abs(result.cur.to_dense()[:, :20] - X[:, :20]).mean() < 0.05


def test_coarse_entries_of_a_wide_table_are_no_outliers():
    rng = np.random.default_rng(3)
    truth = rng.standard_normal((100, 2)) @ rng.standard_normal((2, 80))
    sigma = np.where(rng.random(truth.shape) < 0.3, 1.0, 0.02)
    noisy = truth + sigma * rng.standard_normal(truth.shape)
    wrong = rng.random(truth.shape) < 0.03
    noisy[wrong] += 20.0
    for options in ({}, {"intervals": False}):
        done = rg.complete(noisy, 2, sigma=sigma, **options)
        replaced = np.asarray(done.table) != noisy
        assert (replaced & wrong).sum() >= 0.99 * wrong.sum()
        if not options:  # without intervals there is one threshold for all
            assert (replaced & ~wrong).sum() <= 0.001 * wrong.size


def test_an_interrupted_call_without_a_seed_is_taken_up_again(tmp_path):
    tables = [rg.complete(WIDE, seed=None, checkpoint=tmp_path / "c.npz").table for _ in range(2)]
    pd.testing.assert_frame_equal(*tables)


def test_a_table_does_not_change_with_what_was_given():
    given, sigma = np.array(Y), np.ones(Y.shape)
    done = rg.complete(given, sigma=sigma)
    expected = np.asarray(rg.complete(Y, sigma=np.ones(Y.shape)).table)
    given[:], sigma[:] = 0.0, 1e-9
    np.testing.assert_array_equal(np.asarray(done.table), expected)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: rg.complete(LONG, rows="day"),
            ValueError,
            "columns must be named, too: a long table needs rows=, columns=",
        ),
        (lambda: rg.complete(LONG), TypeError, "data must hold numbers, but its column"),
        (
            lambda: rg.complete(Y, rows="a", columns="b", values="c"),
            TypeError,
            "must be a data frame if its columns are named",
        ),
        (
            lambda: rg.complete(LONG, rows="day", columns="place", values="level"),
            ValueError,
            r"columns must name one column of the table, got 'place'; its columns are \['day', 'site', 'level'\]",
        ),
        (
            lambda: rg.complete(LONG.replace({"site": {"s3": None}}), rows="day", columns="site", values="level"),
            ValueError,
            "columns must have a label in each line, but 'site' has none in line",
        ),
        (lambda: rg.complete(LONG, rows="day", columns="level", values="site"), TypeError, "site must be real numbers"),
        (lambda: rg.complete(WIDE, replace="some"), ValueError, "replace must be one of 'missing', 'outliers', 'all'"),
        (lambda: rg.complete(WIDE * np.nan), ValueError, "data has no observation: all of it is missing"),
        (lambda: rg.complete(WIDE["s1"]), ValueError, "data must be a table of rows and columns, got shape"),
        (lambda: rg.complete(WIDE.stack()), ValueError, r"data\.unstack\(\) makes one of readings with two labels"),
        (lambda: rg.complete(WIDE.to_records()), TypeError, r"got records; pandas\.DataFrame\(\.\.\.\) makes a table"),
        (lambda: rg.complete(row for row in Y), TypeError, r"got generator; list\(data\) makes a list of it"),
        (
            lambda: rg.complete(WIDE.groupby("s1")),
            TypeError,
            "data must be an array or a table, got a DataFrameGroupBy of pandas",
        ),
        (lambda: rg.complete(POLARS.lazy()), TypeError, r"got a LazyFrame of polars; data\.collect\(\) makes one"),
        (lambda: rg.complete(xr.Dataset({"a": xr.DataArray(WIDE)})), TypeError, r"choose one, as in data\['name'\]"),
        (
            lambda: rg.complete(xr.Dataset.from_dataframe(LONG), rows="day", columns="site", values="level"),
            TypeError,
            r"if its columns are named, got a Dataset of xarray; data\.to_dataframe\(\) makes one",
        ),
        (
            lambda: rg.complete(pd.concat([LONG, TWICE]), rows="day", columns="site", values="level"),
            ValueError,
            r"data: the entry of row 2024-01-06T00:00:00, column 's7' was observed with different values, .* and 1234; "
            "duplicates='mean' or 'median' combines them",
        ),
        (lambda: rg.complete(__import__("dask.array").array.ones((9, 9))), TypeError, r"robust_pca\(data\) reads the part"),
        (lambda: rg.complete(__import__("scipy.sparse").sparse.eye_array(9)), TypeError, "from_sparse"),
    ],
)
def test_mistakes_are_named_with_the_fix(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_pairs_that_do_not_fit_are_errors(wide):
    with pytest.raises(ValueError, match=r"pairs must have the columns 'day' and 'site', got \['a', 'b', 'c'\]"):
        wide.predict(pd.DataFrame({"a": [1], "b": [2], "c": [3]}))
    with pytest.raises(
        ValueError, match="pairs must have labels of 'site' in its column 'site', and none of them is one: got 3, where"
    ):
        wide.predict(pd.DataFrame({"day": DAYS[:1], "site": [3]}))
    with pytest.raises(ValueError, match=r"two columns of labels, got list; pandas\.DataFrame\(pairs\) makes one"):
        wide.predict([("a", "b")])
    with pytest.raises(ValueError, match="got '2024-01-02', where the table has 2024-01-01T00:00:00"):
        wide.predict(pd.DataFrame({"day": ["2024-01-02"], "site": ["s1"]}))


def test_a_warning_points_to_the_callers_line():
    noise = pd.DataFrame(np.random.default_rng(0).standard_t(1, (12, 8)))
    with pytest.warns(rg.ConvergenceWarning) as caught:
        rg.complete(noise, accuracy=1e-9)
    assert caught[0].filename == __file__


def test_what_is_no_table_gets_an_error_with_the_way_out(levels_frame):
    long = levels_frame.rename_axis("site").reset_index().melt("site", var_name="day", value_name="level").dropna()
    with pytest.raises(TypeError, match=r"'site' has 's0'.* of a list of readings name the columns, with rows=, columns="):
        rg.complete(long)
    with pytest.raises(TypeError, match=r"data must be a table, got dict; pandas\.DataFrame\(data\) makes one"):
        rg.complete({"a": [1, 2]})
    far = levels_frame.copy()
    far.loc["s3", "d5"] = np.inf
    with pytest.raises(ValueError, match="data must be finite where it is not missing, got inf at row 's3', column 'd5'"):
        rg.complete(far)
    done = rg.complete(long, rows="site", columns="day", values="level")
    with pytest.raises(ValueError, match="labels of 'site' in its column 'a', and none of them is one: got 1, where"):
        done.predict(pd.DataFrame({"a": [1], "b": [2]}))


def test_a_table_of_pyarrow_keeps_the_index_that_pandas_gave_it(levels_frame):
    pa = pytest.importorskip("pyarrow")
    done = rg.complete(pa.Table.from_pandas(levels_frame.rename_axis("site")))
    assert done.table.column_names == ["site", *levels_frame.columns]
    assert done.table["site"].to_pylist() == list(levels_frame.index)
    assert done.given.rows.name == "site"
    plain = rg.complete(levels_frame).table
    np.testing.assert_allclose(np.column_stack([done.table[c] for c in levels_frame.columns]), plain, atol=1e-9)


@pytest.fixture(scope="module")
def levels_frame():
    """Sixty sites, forty days; some entries missing and some wrong."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 40))
    Y = np.where(rng.random(X.shape) < 0.04, 30.0, X)
    Y[rng.random(X.shape) < 0.2] = np.nan
    Y[0, 0] = X[0, 0]
    return pd.DataFrame(Y, [f"s{k}" for k in range(60)], [f"d{k}" for k in range(40)])


def test_a_label_that_stands_several_times_is_no_answer():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((40, 1)) @ rng.standard_normal((1, 8)) + 0.01 * rng.standard_normal((40, 8))
    done = rg.complete(pd.DataFrame(values, columns=list("abcdefga")))
    assert done.predict(pd.DataFrame({"row": [1], "column": ["b"]})).shape == (1, 6)
    with pytest.raises(ValueError, match="got 'a', which stands in the table several times"):
        done.predict(pd.DataFrame({"row": [1], "column": ["a"]}))
