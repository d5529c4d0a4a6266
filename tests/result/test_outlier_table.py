"""Lists of outliers: precision and recall on data with known outliers, however they were stored; the table itself."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.result import outlying_in, outlying_once

SHAPE, RANK = (600, 500), 5


def stored(y, how, rng):
    """Values as a file would have them, and the largest error of each (for multiplicative noise: its standard deviation)."""
    if how == "exact":
        return y, np.full(y.shape, 1e-12)
    if how == "float32":
        return y.astype(np.float32), np.abs(y) * 2.0**-24
    if how == "2 %":
        return y * (1 + 0.02 * rng.standard_normal(y.shape)), 0.02 * np.abs(y)
    kept = np.array([float(how % v) for v in y.ravel()]).reshape(y.shape)
    if how.endswith("f"):
        return kept, np.full(y.shape, 0.5 * 10.0 ** -int(how[2]))
    return kept, 0.5 * 10.0 ** (np.floor(np.log10(np.abs(kept))) - int(how[2]) + 1)


class Planted:
    """Data with outliers in a tenth of the entries, uniform up to ten times the mean size, as `rg.synthetic` has them."""

    def __init__(self, how, cross, seed=0):
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((SHAPE[0], RANK)) @ rng.standard_normal((RANK, SHAPE[1]))
        size = 10 * np.abs(self.X).mean()
        S = np.where(rng.random(SHAPE) < 0.1, rng.uniform(-size, size, SHAPE), 0)
        self.Y, error = stored(self.X + S, how, rng)
        self.wrong = S != 0
        # an outlier that storage hides cannot be found by anybody
        self.visible = np.abs(S) > error
        self.seen = rng.random(SHAPE) < 0.6
        rows, cols = (np.arange(n) for n in SHAPE)
        if cross:
            rows, cols = (np.sort(rng.choice(n, 2 * n // 5, replace=False)) for n in SHAPE)
            inside = np.zeros(SHAPE, dtype=bool)
            inside[rows], inside[:, cols] = True, True
            self.seen &= inside
        i, j = np.nonzero(self.seen)
        self.samples = rg.CrossSamples.from_triplets(i, j, self.Y[i, j], SHAPE, rows, cols)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rg.ConvergenceWarning)
            self.result = rg.rcurc(self.samples)


@pytest.fixture(scope="module")
def noisy():
    return Planted("2 %", cross=True)


@pytest.mark.parametrize("how", ["exact", "%.2f", "%.3g", "%.6g", "%.8g", "float32", "2 %"])
@pytest.mark.parametrize("cross", [False, True], ids=["whole", "cross"])
def test_outliers_are_found_and_hardly_anything_else_however_the_data_were_stored(how, cross):
    problem = Planted(how, cross)
    table = problem.result.outlier_table()
    found = np.zeros(SHAPE, dtype=bool)
    found[table["row"], table["column"]] = True
    assert found.sum() == len(table)  # each once
    assert not (found & ~problem.seen).any()
    precision = (found & problem.wrong).sum() / found.sum()
    visible = problem.wrong & problem.visible & problem.seen
    recall = (found & visible).sum() / visible.sum()
    assert precision >= 0.95
    assert recall >= 0.97
    # far better than asked for, with these seeds
    assert precision >= 0.995
    assert recall >= 0.985


def test_the_table_says_what_was_observed_and_what_was_fitted(noisy):
    table = noisy.result.outlier_table()
    assert table.dtype.names == ("row", "column", "value", "fitted", "residual", "score", "probability")
    i, j = table["row"], table["column"]
    np.testing.assert_array_equal(table["value"], noisy.Y[i, j])
    np.testing.assert_allclose(table["fitted"], noisy.result.cur.entries(i, j), atol=1e-9)
    np.testing.assert_allclose(table["residual"], table["value"] - table["fitted"], atol=1e-12)
    assert (np.diff(table["score"]) <= 0).all()
    assert ((table["probability"] >= 0.5) & (table["probability"] <= 1)).all()


def test_scores_are_in_units_of_the_local_noise(noisy):
    """With two per cent of noise, the scale at an entry is two per cent of it, but for what the fit adds."""
    table = noisy.result.outlier_table()
    i, j = table["row"], table["column"]
    local = np.abs(table["residual"]) / table["score"]
    size = np.abs(noisy.X[i, j])
    large = size > np.median(np.abs(noisy.X))
    assert 0.8 <= np.median(local[large] / (0.02 * size[large])) <= 1.6
    quarter = size < np.quantile(size, 0.25)
    assert np.median(local[quarter]) < 0.5 * np.median(local[large])


def test_probability_and_least_size_choose_from_the_same_list(noisy):
    table = noisy.result.outlier_table()
    sure, more = noisy.result.outlier_table(probability=0.999), noisy.result.outlier_table(probability=0.1)
    assert len(sure) < len(table) < len(more)
    np.testing.assert_array_equal(sure, table[table["probability"] >= 0.999])
    np.testing.assert_array_equal(table, more[more["probability"] >= 0.5])
    large = noisy.result.outlier_table(least=5.0)
    np.testing.assert_array_equal(large, table[np.abs(table["residual"]) >= 5.0])
    for options, message in (
        ({"probability": 1.5}, "probability must be"),
        ({"least": -1.0}, "least must be"),
    ):
        with pytest.raises(ValueError, match=message):
            noisy.result.outlier_table(**options)


def test_all_lists_of_a_result_agree(noisy):
    result, samples = noisy.result, noisy.samples
    table = np.sort(result.outlier_table(), order=["row", "column"])
    S_R, S_C = (x.tocoo() for x in result.outliers())
    i = np.concatenate([samples.rows[S_R.row], S_C.row])
    j = np.concatenate([S_R.col, samples.cols[S_C.col]])
    pairs = np.unique(np.c_[i, j], axis=0)
    np.testing.assert_array_equal(pairs, np.c_[table["row"], table["column"]])
    dense = result.outliers_of(np.where(noisy.seen, noisy.Y, np.nan)).tocoo()
    np.testing.assert_array_equal(np.unique(np.c_[dense.row, dense.col], axis=0), pairs)
    i, j, value, residual = outlying_once(samples, result.cur, result.outlier_rule)
    np.testing.assert_array_equal(np.c_[i, j], pairs)
    np.testing.assert_array_equal(value, table["value"])
    np.testing.assert_array_equal(residual, table["residual"])


def test_a_mere_threshold_is_a_rule_too(noisy):
    i, _, _, residual = outlying_once(noisy.samples, noisy.result.cur, 3.0)
    assert np.abs(residual).min() >= 3.0
    away = np.abs(noisy.Y - noisy.result.cur.to_dense()) >= 3.0
    assert len(i) == (away & noisy.seen).sum()
    block, cur = noisy.samples.c_block, noisy.result.cur
    found = outlying_in(block, cur.right[noisy.samples.cols], cur.left, 3.0)
    np.testing.assert_allclose(found.score, np.abs(found.residual) / 3.0)
    assert (found.probability == 1).all()


def test_pieces_do_not_change_the_list(noisy, monkeypatch):
    table = noisy.result.outlier_table()
    monkeypatch.setattr("rcurc_gpu.result.outliers._ENTRIES_AT_ONCE", 1000)
    np.testing.assert_array_equal(noisy.result.outlier_table(), table)


def test_intervals_that_were_not_kept_leave_a_list_by_threshold():
    problem = Planted("2 %", cross=True)
    result = rg.rcurc(problem.samples, intervals=False)
    assert result.cur.uncertainty is None
    table = result.outlier_table()
    assert np.abs(table["residual"]).min() >= result.threshold
    assert problem.wrong[table["row"], table["column"]].mean() >= 0.95
    assert len(table) >= 0.9 * (problem.wrong & problem.seen).sum()


def test_without_outliers_next_to_nothing_is_listed():
    problem = rg.synthetic((400, 350), 4, 0.0, noise=0.1, n_rows=200, n_cols=200, rate=0.5, seed=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        table = rg.rcurc(problem.samples).outlier_table()
    assert len(table) <= 1e-3 * problem.samples.n_obs


def test_data_without_any_variation_have_no_outliers():
    samples = rg.CrossSamples.from_dense(np.outer(np.arange(1.0, 41), np.ones(30)), np.arange(40), np.arange(30))
    assert len(rg.rcurc(samples, 1).outlier_table()) == 0


def test_as_a_data_frame_with_labels(noisy):
    pytest.importorskip("pandas")
    table = noisy.result.outlier_table(least=4.0)
    frame = noisy.result.outlier_frame(least=4.0)
    assert list(frame.columns) == list(table.dtype.names)
    np.testing.assert_array_equal(frame["row"], table["row"])
    rows, cols = [f"sensor {k}" for k in range(SHAPE[0])], np.datetime64("2024-01-01") + np.arange(SHAPE[1])
    named = noisy.result.outlier_frame(least=4.0, row_labels=rows, column_labels=cols)
    assert list(named["row"]) == [rows[k] for k in table["row"]]
    np.testing.assert_array_equal(named["column"].to_numpy().astype("datetime64[D]"), cols[table["column"]])
    np.testing.assert_array_equal(named["score"], table["score"])
    with pytest.raises(ValueError, match="row_labels must be 600 labels, one for each row, got 3"):
        noisy.result.outlier_frame(row_labels=["a", "b", "c"])


def test_the_package_does_not_need_pandas():
    code = "import sys; sys.modules['pandas'] = None; import rcurc_gpu as rg; print(rg.Result.outlier_table.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "outlier_table", done.stderr
