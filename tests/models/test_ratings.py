import re

import numpy as np
import pytest

import rcurc_gpu as rg


@pytest.fixture(scope="module")
def made():
    return rg.synthetic_ratings((300, 400), n=20_000, rank=2, wrong=0.1, seed=0)


@pytest.fixture(scope="module")
def found(made):
    return rg.complete_ratings(made.i, made.j, made.values, made.shape, scale=(1, 5))


def error(result, made):
    """Root mean square distance of the predictions from what is true of the rated pairs."""
    return np.sqrt(np.mean((result.predict(made.i, made.j) - np.clip(made.expected, 1, 5)) ** 2))


def offsets_error(made):
    """The same for the best offsets of rows and columns in the least-squares sense, told which ratings are right."""
    right = ~made.is_wrong
    i, j, y = made.i[right], made.j[right], made.values[right]
    rows, cols = np.zeros(made.shape[0]), np.zeros(made.shape[1])
    for _ in range(50):
        rows = np.bincount(i, y - cols[j], len(rows)) / np.maximum(np.bincount(i, minlength=len(rows)), 1)
        cols = np.bincount(j, y - rows[i], len(cols)) / np.maximum(np.bincount(j, minlength=len(cols)), 1)
    return np.sqrt(np.mean((rows[made.i] + cols[made.j] - np.clip(made.expected, 1, 5)) ** 2))


# ---------------------------------------------------------------- predictions


def test_predictions_are_nearer_to_the_truth_than_offsets_that_were_told_what_is_wrong(made, found):
    assert error(found, made) < 0.8 * offsets_error(made)


def test_the_held_out_error_says_that_the_factors_help(found):
    assert found.held_out_error < 0.97 * found.offsets_error


def test_gross_errors_do_little_harm(made, found):
    values = np.where(made.is_wrong, 10 * made.values, made.values)
    gross = rg.complete_ratings(made.i, made.j, values, made.shape, scale=(1, 5))
    assert error(gross, made) < 1.1 * error(found, made)


def test_one_rating_beyond_all_measure_does_no_harm(made, found):
    values = made.values.copy()
    values[17] = 1e300
    assert error(rg.complete_ratings(made.i, made.j, values, made.shape, scale=(1, 5)), made) < 1.02 * error(found, made)


def test_a_rank_that_is_too_large_is_shrunk_away(made):
    errors = [error(rg.complete_ratings(made.i, made.j, made.values, made.shape, rank), made) for rank in (2, 12)]
    assert errors[1] < 1.1 * errors[0]


def test_where_there_is_nothing_but_offsets_the_factors_are_about_0():
    rng = np.random.default_rng(0)
    i, j = np.nonzero(rng.random((200, 300)) < 0.15)
    rows, cols = rng.standard_normal(200), rng.standard_normal(300)
    result = rg.complete_ratings(i, j, rows[i] + cols[j] + rng.standard_normal(len(i)), (200, 300))
    truth = rows[:, None] + cols
    assert np.sqrt(np.mean((result.left @ result.right.T) ** 2)) < 0.15  # least squares at rank 10: above 1
    assert np.sqrt(np.mean((result.predict(*np.ogrid[:200, :300]) - truth) ** 2)) < 0.3


def test_rows_and_columns_without_ratings_get_what_is_typical(made):
    shape = (made.shape[0] + 1, made.shape[1] + 1)
    result = rg.complete_ratings(made.i, made.j, made.values, shape)
    x = result.predict(*np.ogrid[: shape[0], : shape[1]])
    assert np.isfinite(x).all()
    np.testing.assert_allclose(x[-1], result.mean + result.col_offset)
    np.testing.assert_allclose(x[:, -1], result.mean + result.row_offset)
    assert x[-1, -1] == result.mean


def test_predictions_stay_on_the_scale_if_there_is_one(made, found):
    everywhere = np.ogrid[: made.shape[0], : made.shape[1]]
    free = rg.complete_ratings(made.i, made.j, made.values, made.shape).predict(*everywhere)
    assert free.max() > 5
    np.testing.assert_array_equal(found.predict(*everywhere), np.clip(free, 1, 5))


def test_the_unit_of_the_ratings_does_not_matter(made):
    one, other = (
        rg.complete_ratings(made.i, made.j, unit * made.values, made.shape, rank=2, sweeps=3) for unit in (1.0, 1e-200)
    )
    np.testing.assert_allclose(other.predict(made.i, made.j), 1e-200 * one.predict(made.i, made.j), rtol=1e-6)
    np.testing.assert_allclose(other.surprise, one.surprise, rtol=1e-4, atol=1e-6)
    assert other.noise == pytest.approx(1e-200 * one.noise, rel=1e-6)


def test_the_same_seed_gives_the_same_and_the_arguments_stay_as_they_are(made, found):
    arguments = [x.copy() for x in (made.i, made.j, made.values)]
    again = rg.complete_ratings(*arguments, made.shape, scale=(1, 5))
    np.testing.assert_array_equal(again.surprise, found.surprise)
    for argument, before in zip(arguments, (made.i, made.j, made.values), strict=True):
        np.testing.assert_array_equal(argument, before)


def test_a_matrix_of_low_rank_without_noise_is_recovered():
    problem = rg.synthetic((200, 200), rank=2, alpha=0.1, n_rows=90, n_cols=90, rate=0.5, seed=0)
    R, C = problem.samples.R.tocoo(), problem.samples.C.tocoo()
    places = np.append(problem.samples.rows[R.row] * 200 + R.col, C.row * 200 + problem.samples.cols[C.col])
    i, j = np.divmod(np.unique(places), 200)
    truth = problem.W @ problem.V.T
    x = rg.complete_ratings(i, j, problem.entries(i, j), (200, 200), rank=2).predict(*np.ogrid[:200, :200])
    assert np.linalg.norm(x - truth) < 1e-8 * np.linalg.norm(truth)


@pytest.mark.parametrize("seed", range(3))
def test_offsets_of_whole_numbers_are_found(seed):
    """Most medians of rows are the same number then; offsets that all begin there must not stay there."""
    rng = np.random.default_rng(seed)
    i, j = np.nonzero(rng.random((200, 150)) < 0.3)
    rows = 0.4 * rng.standard_normal(200)
    values = np.clip(np.round(3 + rows[i] + 0.8 * rng.standard_normal(len(i))), 1, 5)
    result = rg.complete_ratings(i, j, values, (200, 150))
    assert np.corrcoef(result.row_offset, rows)[0, 1] > 0.9
    assert np.std(result.row_offset) > 0.8 * np.std(rows)
    assert np.sqrt(np.mean((result.left @ result.right.T) ** 2)) < 0.1


# ---------------------------------------------------------------- intervals


def spoilt(values, kind, rng):
    """`values` of 1 to 5 with a tenth made wrong."""
    wrong = {"none": values, "random": rng.integers(1, 6, len(values)), "turned": 6 - values, "tenfold": 10 * values}[kind]
    return np.where(rng.random(len(values)) < 0.1, wrong, values)


@pytest.mark.parametrize("kind", ["none", "random", "turned", "tenfold"])
def test_intervals_hold_new_ratings_as_often_as_they_say(kind):
    rng = np.random.default_rng(0)
    made = rg.synthetic_ratings((300, 400), n=24_000, rank=2, wrong=0.0, seed=1)
    new = rng.random(len(made.values)) < 0.2
    result = rg.complete_ratings(
        made.i[~new], made.j[~new], spoilt(made.values[~new], kind, rng), made.shape, scale=(1, 5), holdout=0.05
    )
    lower, upper = result.interval(made.i[new], made.j[new])
    assert 0.92 < np.mean((lower <= made.values[new]) & (made.values[new] <= upper)) < 0.97
    assert lower.min() >= 1
    assert upper.max() <= 5
    narrow = result.interval(made.i[new], made.j[new], level=0.5)
    assert (lower <= narrow[0]).all()
    assert (narrow[1] <= upper).all()
    assert 0.4 < np.mean((narrow[0] <= made.values[new]) & (made.values[new] <= narrow[1])) < 0.6


def test_the_standard_deviation_is_that_of_a_new_rating_and_larger_where_less_is_known(made):
    shape = (made.shape[0] + 1, made.shape[1] + 1)
    result = rg.complete_ratings(made.i, made.j, made.values, shape)
    x, std = result.predict(*np.ogrid[: shape[0], : shape[1]], return_std=True)
    np.testing.assert_array_equal(x, result.predict(*np.ogrid[: shape[0], : shape[1]]))
    assert x.shape == std.shape == shape
    assert (std > 0.8 * result.noise).all()
    assert std[-1, -1] > np.quantile(std[:-1, :-1], 0.9)
    lower, upper = result.interval(*np.ogrid[: shape[0], : shape[1]], level=0.6827)  # one standard deviation
    np.testing.assert_allclose(upper - lower, 2 * std, rtol=1e-4)
    np.testing.assert_allclose(0.5 * (lower + upper), x, rtol=1e-9)


def test_without_held_out_ratings_intervals_are_those_of_the_model(made, found):
    alone = rg.complete_ratings(made.i, made.j, made.values, made.shape, scale=(1, 5), holdout=0)
    std, calibrated = (x.predict(made.i, made.j, return_std=True)[1] for x in (alone, found))
    assert np.median(std) == pytest.approx(np.median(calibrated), rel=0.2)
    with pytest.raises(ValueError, match=r"level must be in \(0, 1\), got 1"):
        alone.interval(0, 0, level=1)


# ---------------------------------------------------------------- suspicious ratings


def test_gross_errors_are_the_most_suspicious_ratings(made):
    values = np.where(made.is_wrong, 10 * made.values, made.values)
    result = rg.complete_ratings(made.i, made.j, values, made.shape)
    listed = result.suspicious()
    assert made.is_wrong[listed[: np.count_nonzero(made.is_wrong)]].mean() > 0.99
    assert set(np.flatnonzero(made.is_wrong)) <= set(listed)


def test_random_ratings_are_much_more_frequent_among_the_suspicious(made, found):
    listed = found.suspicious()
    assert 0 < len(listed) < 0.1 * len(made.i)
    assert made.is_wrong[listed].mean() > 5 * made.is_wrong.mean()
    assert (np.diff(found.surprise[listed]) <= 0).all()
    assert found.surprise[listed].min() > 3 >= np.delete(found.surprise, listed).max()


def test_a_higher_level_lists_the_first_of_the_same_ratings(found):
    few, many = found.suspicious(4.0), found.suspicious(2.0)
    assert 0 < len(few) < len(many)
    np.testing.assert_array_equal(many[: len(few)], few)


# ---------------------------------------------------------------- the least there can be


@pytest.mark.parametrize(
    ("i", "j", "values", "shape", "expected"),
    [
        ([0], [0], [3], (1, 1), 3),
        ([2], [3], [-4.5], (5, 6), -4.5),
        (*np.divmod(np.arange(100), 10), np.full(100, 4), (10, 10), 4),
        (*np.divmod(np.arange(100), 10), np.zeros(100), (10, 10), 0),
        ([0, 0, 0, 0], [0, 0, 0, 1], [3, 3, 3, 3], (2, 2), 3),
    ],
)
def test_ratings_that_are_all_the_same_are_predicted(i, j, values, shape, expected):
    result = rg.complete_ratings(i, j, values, shape)
    np.testing.assert_allclose(result.predict(*np.ogrid[: shape[0], : shape[1]]), expected, atol=1e-6)
    assert len(result.suspicious()) == 0
    assert result.start is None


def test_a_rating_may_be_given_twice(made):
    twice = [np.append(x, x[:500]) for x in (made.i, made.j, made.values)]
    twice[2][-500:] = np.clip(twice[2][-500:] + 1, 1, 5)
    result = rg.complete_ratings(*twice, made.shape, rank=2, holdout=0)
    assert np.isfinite(result.predict(made.i, made.j)).all()
    assert np.isnan(result.held_out_error)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"values": []}, ValueError, "i and values must be vectors of one length, got (3,) and (0,)"),
        ({"i": [], "j": [], "values": []}, ValueError, "values is empty: there are no ratings"),
        ({"i": [0, 1, 9]}, ValueError, "i must lie in 0..1, got 9"),
        ({"values": [1, 2, np.nan]}, ValueError, "values must be finite where observed, got nan at index 2"),
        ({"rank": 0}, ValueError, "rank must be at least 1, got 0"),
        ({"sweeps": 0.5}, TypeError, "sweeps must be an integer, got 0.5"),
        ({"holdout": 0.9}, ValueError, "holdout must be in [0, 0.5], got 0.9"),
        ({"scale": 5}, TypeError, "scale must be a pair of numbers (least, greatest), got 5"),
        ({"scale": (5, 1)}, ValueError, "scale must be a pair of numbers (least, greatest), got (5, 1)"),
    ],
)
def test_what_is_wrong_with_an_argument_is_said(change, kind, message):
    arguments = {"i": [0, 1, 1], "j": [0, 0, 2], "values": [1, 2, 3], "shape": (2, 3)} | change
    with pytest.raises(kind, match=re.escape(message)):
        rg.complete_ratings(**arguments)


@pytest.mark.parametrize(
    ("i", "kind", "message"),
    [([0.5], TypeError, "i must hold integers, got dtype float64"), ([300], ValueError, "i must lie in 0..299, got 300")],
)
def test_predictions_want_rows_that_are_there(found, i, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        found.predict(i, [0])


# ---------------------------------------------------------------- synthetic ratings


def test_synthetic_ratings_are_whole_numbers_at_different_places_with_heavy_tailed_counts():
    made = rg.synthetic_ratings(seed=1)
    assert len(np.unique(made.i * made.shape[1] + made.j)) == len(made.values) == 100_000
    assert set(made.values) == {1, 2, 3, 4, 5}
    for index, size in ((made.i, made.shape[0]), (made.j, made.shape[1])):
        counts = np.bincount(index, minlength=size)
        assert counts.max() > 8 * np.median(counts)
    assert made.is_wrong.mean() == pytest.approx(0.1, abs=0.005)
    right = ~made.is_wrong
    assert np.abs(made.values - made.expected)[right].mean() < 0.8 < np.abs(made.values - made.expected)[~right].mean()


def test_a_gain_by_chance_is_no_help():
    """Noise around offsets of users and items: there is nothing else to find."""
    helped = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        i, j = np.nonzero(rng.random((150, 120)) < 0.3)
        values = 3 + 0.5 * rng.standard_normal(150)[i] + 0.5 * rng.standard_normal(120)[j] + rng.standard_normal(len(i))
        found = rg.complete_ratings(i, j, values, (150, 120))
        assert found.gain_error > 0
        helped += found.helps
    assert helped <= 1


@pytest.mark.parametrize("shape", [(60, 40), (150, 100), (300, 80)])
def test_pure_noise_is_not_called_better(shape):
    better = 0
    for seed in range(10):
        rng = np.random.default_rng([seed, shape[0]])
        cells = rng.choice(shape[0] * shape[1], int(0.15 * (1 + seed % 3) * shape[0] * shape[1]), replace=False)
        values = np.clip(np.rint(3 + rng.standard_normal(len(cells))), 1, 5)
        found = rg.complete_ratings(cells // shape[1], cells % shape[1], values, shape, scale=(1, 5), seed=seed)
        better += found.helps
        assert not (found.helps and found.rank == 0)
    assert better == 0
