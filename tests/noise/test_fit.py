"""The noise model on data with known truth."""

import warnings

import numpy as np
import pytest

import rcurc_gpu as rg
from bench.growing import covered, growing, told


def table(shape=(150, 120), rank=3, noise=0.1, offsets=2.0, holes=0.3, outliers=0.1, seed=0):
    """A table with offsets of rows and columns, noise, holes and glitches: the truth, and what is given."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1])) / rank**0.5
    X += 5 * bool(offsets) + offsets * rng.standard_normal((shape[0], 1)) + offsets * rng.standard_normal(shape[1])
    Y = X + noise * rng.standard_normal(shape)
    glitch = rng.random(shape) < outliers
    Y[glitch] += rng.choice([-1, 1], glitch.sum()) * rng.uniform(3, 20, glitch.sum())
    return X, np.where(rng.random(shape) < holes, np.nan, Y), glitch


def error(result, X):
    return np.linalg.norm(result.cur.to_dense() - X) / np.linalg.norm(X)


@pytest.mark.parametrize("seed", [0, 1])
def test_rank_offsets_and_noise_are_found(seed):
    X, Y, _ = table(seed=seed)
    result = rg.robust_pca(Y)
    assert result.converged
    assert result.rank == 3
    assert result.cur.rank == 5
    assert abs(result.noise - 0.1) < 0.02
    assert 0.7 < error(result, X) / result.expected_error < 1.4


@pytest.mark.parametrize(("shape", "seed"), [((1000, 40), 4), ((1000, 40), 5), ((40, 1000), 13), ((500, 30), 17)])
def test_no_column_of_a_long_table_has_a_component_of_its_own(shape, seed):
    """It would take in the outliers there: errors were eleven times as large, and half of them not expected."""
    X, Y, _ = table(shape, rank=4, noise=0.05, seed=seed)
    result = rg.robust_pca(Y)
    assert result.converged
    assert result.rank == 4
    assert 0.8 < error(result, X) / result.expected_error < 1.25


@pytest.mark.parametrize("offsets", ["auto", False])
def test_without_offsets_in_the_data_none_are_needed(offsets):
    X, Y, _ = table(offsets=0.0)
    result = rg.robust_pca(Y, offsets=offsets)
    assert result.rank == 3
    assert result.cur.rank == 3 or offsets == "auto"
    assert error(result, X) < 1.4 * result.expected_error


@pytest.mark.parametrize("more", [0, 2, 5, 10])
def test_a_rank_too_large_costs_nothing(more):
    X, Y, _ = table(seed=2)
    best = error(rg.robust_pca(Y, 3), X)
    result = rg.robust_pca(Y, 3 + more)
    assert error(result, X) <= 1.05 * best
    assert np.abs(result.cur.to_dense()).max() <= 3 * np.nanmax(np.abs(X))


def test_a_rank_too_small_is_said():
    _, Y, _ = table(seed=2)
    with pytest.warns(rg.ConvergenceWarning, match="Rank 2 is too small"):
        assert rg.robust_pca(Y, 2).cause == "rank too small"


@pytest.mark.parametrize("rank", [5, 15])
@pytest.mark.parametrize(("noise", "most"), [(0.05, 1.03), (0.2, 1.06)])
def test_outliers_cost_next_to_nothing(rank, noise, most):
    """Beside the same model that is told which entries are outliers.

    With 20 % noise one outlier in sixteen lies within three standard deviations: nobody can tell it. By the Fisher
    information of the mixture the best possible ratio is 1.012 with 5 % noise and 1.035 with 20 %.
    """
    p = rg.synthetic((700, 700), rank, 0.2, 10, noise=noise, n_rows=300, n_cols=300, rate=0.4, seed=1)
    s = p.samples
    R, C = s.R.tocoo(), s.C.tocoo()
    i, j = np.concatenate([s.rows[R.row], C.row]), np.concatenate([R.col, s.cols[C.col]])
    y = np.concatenate([R.data, C.data])
    _, once = np.unique(i * 700 + j, return_index=True)
    good = once[~p.is_outlier(i[once], j[once])]
    told = rg.CrossSamples.from_triplets(i[good], j[good], y[good], (700, 700), s.rows, s.cols)
    found, oracle = rg.rcurc(s), rg.icurc(told)
    assert found.rank == oracle.rank == rank
    assert p.relative_error(found.cur) <= most * p.relative_error(oracle.cur)


def test_a_row_without_observations_has_its_prior_and_a_wide_interval():
    X, Y, _ = table(seed=3)
    Y[7] = np.nan
    result = rg.robust_pca(Y)
    assert np.isfinite(result.cur.to_dense()).all()
    assert 7 in result.rows.undetermined
    lower, upper = result.interval(np.arange(150)[:, None], np.arange(120))
    assert np.median(upper[7] - lower[7]) > 5 * np.median(upper - lower)
    assert np.mean((lower[7] < X[7]) & (X[7] < upper[7])) > 0.8


@pytest.mark.parametrize("seed", [7, 8, 9])
def test_a_row_of_which_most_is_wrong_has_its_prior_and_a_wide_interval(seed):
    """No solution explains half of it: what fits three of twelve observations is chance."""
    X, Y, _ = table(seed=seed, outliers=0.05)
    Y[7] = np.nan
    Y[7, :12] = X[7, :12] + np.random.default_rng(seed).uniform(5, 40, 12) * np.tile([1, -1], 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)  # the row may be of another size than all others
        result = rg.robust_pca(Y)
    assert 7 in result.rows.undetermined
    lower, upper = result.interval(np.full(120, 7), np.arange(120))
    assert np.mean((lower < X[7]) & (X[7] < upper)) > 0.8


def test_no_row_is_lost_to_a_few_outliers_that_agree_with_it_alone():
    """A row of a few observations, most of them wrong, must not follow these."""
    X, Y, _ = table(seed=4, outliers=0.0)
    Y[11] = np.nan
    Y[11, :5] = X[11, :5]
    Y[11, 5:8] = X[11, 5:8] + 60
    result = rg.robust_pca(Y)
    assert np.abs(result.cur[11, :] - X[11]).max() < 10


def test_seeds_decide_how_a_fit_is_judged_and_not_which_it_is():
    _, Y, _ = table(seed=5)
    first, again, *others = (rg.robust_pca(Y, seed=seed) for seed in (0, 0, 1, 2))
    for result in (again, *others):
        np.testing.assert_array_equal(first.cur.to_dense(), result.cur.to_dense())
    factors = [result.cur.uncertainty.factor for result in (first, again, *others)]
    assert factors[0] == factors[1]
    assert len(set(factors)) == 3
    assert max(factors) < 1.2 * min(factors)


def small_cross(seed):
    """A small cross of which a first look cannot tell whether there is any noise: it is small, and found last."""
    rng = np.random.default_rng(seed)
    shape, rank = (260, 120), 3
    X = rng.standard_normal((shape[0], rank)) * [1.0, 0.6, 0.35] @ rng.standard_normal((rank, shape[1]))
    X += rng.standard_normal((shape[0], 1)) + rng.standard_normal(shape[1]) + 4
    Y = X + 0.01 * rng.standard_normal(shape)
    rows, cols = (np.sort(rng.choice(n, max(3 * n // 10, 30), replace=False)) for n in shape)
    seen = rng.random(shape) < 0.4
    bad = rng.random(shape) < 0.1
    Y[bad] += rng.choice([-1, 1], bad.sum()) * rng.uniform(6, 20, bad.sum()) * Y.std()
    return X, rg.CrossSamples.from_dense(np.where(seen, Y, np.nan), rows=rows, cols=cols)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_search_for_the_rank_does_not_limit_the_noise_model(seed):
    """Where a first look leaves it open whether data are exact, a core is sought; its rank made errors 60 times as large."""
    X, samples = small_cross(seed)
    for solver_seed in (0, 1):
        result = rg.rcurc(samples, seed=solver_seed)
        assert result.rank == 3
        assert error(result, X) < 0.01


def test_no_core_is_tried_where_noise_is_clear():
    X, Y, _ = table(seed=6)
    result = rg.robust_pca(Y)
    assert result.converged
    assert result.n_iter == 0
    assert 0.7 < error(result, X) / result.expected_error < 1.4


def test_exact_data_that_look_noisy_are_solved_exactly():
    """With 30 % outliers as large as the entries, the model takes some of them for noise."""
    p = rg.synthetic((400, 400), 14, 0.3, 1, n_rows=340, n_cols=340, rate=0.75, seed=3)
    result = rg.rcurc(p.samples)
    assert result.rank == 14
    assert p.relative_error(result.cur) < 1e-8


def test_sweeps_can_be_turned_off():
    _, Y, _ = table()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        result = rg.robust_pca(Y, 5, sweeps=0)
    assert not result.has_noise_model
    assert len(result.strengths) == 5
    assert result.cur.uncertainty is None


def test_intervals_can_be_turned_off():
    _, Y, _ = table()
    result = rg.robust_pca(Y, intervals=False)
    assert result.cur.uncertainty is None
    with pytest.raises(ValueError, match="intervals=True"):
        result.interval(0, 0)


def test_large_data_are_fitted_in_part():
    p = rg.synthetic((6000, 6000), 3, 0.2, 10, noise=0.05, n_rows=120, n_cols=120, rate=0.3, seed=0)
    result = rg.rcurc(p.samples)
    assert result.converged
    assert result.rank == 3
    assert 0.8 < p.relative_error(result.cur) / result.expected_error < 1.3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_columns_of_another_size_are_not_outliers(seed):
    # a table of features: shares beside lengths and areas
    rng = np.random.default_rng(seed)
    size = np.where(np.arange(30) < 24, 0.3 * rng.random(30), np.array([2.0, 4.0, 7.0])[np.arange(30) % 3])
    X = size * (1 + 0.1 * rng.standard_normal((300, 2)) @ rng.standard_normal((2, 30)))
    Y = X + 0.01 * rng.standard_normal(X.shape)
    bad = rng.random(X.shape) < 0.1
    Y[bad] = np.where(rng.random(bad.sum()) < 0.5, -X[bad], 0.0)
    Y[rng.random(X.shape) < 0.2] = np.nan
    result = rg.robust_pca(Y)
    assert result.converged
    assert error(result, X) < 0.02


@pytest.mark.parametrize(("kind", "share", "seed"), [("signed", 0.02, 31), ("signed", 0.1, 32), ("positive", 0.02, 36)])
def test_errors_of_so_many_per_cent_are_found_and_large_values_count_for_less(kind, share, seed):
    X, Y, sigma = growing(kind, share, seed)
    result = rg.robust_pca(Y)
    noise = result.cur.uncertainty.noise
    assert noise.growth * noise.variance == pytest.approx(share**2, rel=0.35)
    places = np.asarray(np.nonzero(np.isnan(Y)))
    for part in np.array_split(covered(result, X, sigma, places, 1), 5):  # of all sizes, where 0.75 to 1 were inside
        assert 0.9 <= np.mean(part) <= 0.99
    # told the size of each error is the best that can be done
    assert error(result, X) <= 1.2 * error(told(Y, sigma), X)


def test_noise_that_is_the_same_everywhere_stays_that():
    for seed in range(34, 37):
        result = rg.robust_pca(growing("alike", 0.05, seed)[1])
        assert result.cur.uncertainty.noise.growth == 0


def test_files_keep_how_noise_grows(tmp_path):
    result = rg.robust_pca(growing("signed", 0.05, 38)[1])
    assert result.cur.uncertainty.noise.growth > 0
    result.cur.save(tmp_path / "X.npz")
    again = rg.CURMatrix.load(tmp_path / "X.npz")
    assert again.uncertainty.noise == result.cur.uncertainty.noise


@pytest.mark.parametrize("seed", [2, 4, 6])
def test_a_loud_column_does_not_keep_a_component_from_the_others(seed):
    """It has the component nearly alone, as a column of outliers would. Errors were 0.27 to 0.35, and confirmed."""
    rng = np.random.default_rng(seed)
    left, right = np.exp(rng.standard_normal((150, 3))), np.exp(0.5 * rng.standard_normal((3, 100)))
    right[2, 7] *= 10
    X = left @ right
    Y = X + 0.1 * rng.standard_normal(X.shape)
    Y[rng.random(X.shape) > 0.8] = np.nan
    assert error(rg.robust_pca(Y), X) < 0.01
