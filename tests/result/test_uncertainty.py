"""Standard deviations and intervals: against the truth, and against the variance computed term by term."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu import CURMatrix, LowRankMatrix
from rcurc_gpu.backends.plain.posterior import Noise
from rcurc_gpu.result.uncertainty import Uncertainty, uncertainty_arrays

SHAPE, RANK = (400, 350), 4


class Noisy:
    """A matrix of low rank with offsets, seen in part with noise and outliers, and solved."""

    def __init__(self, noise, kind="normal", seed=0, offsets=True, scale=1.0, **options):
        rng = np.random.default_rng(seed)
        n1, n2 = SHAPE
        X = rng.standard_normal((n1, RANK)) @ rng.standard_normal((RANK, n2))
        if offsets:
            X = X + 3 + rng.standard_normal((n1, 1)) + rng.standard_normal((1, n2))
        self.rng, self.kind, self.X = rng, kind, scale * X
        self.sigma = noise * np.abs(self.X).mean()
        self.Y = self.observed()
        wrong = rng.random(SHAPE) < 0.1
        self.Y[wrong] += rng.uniform(-10, 10, wrong.sum()) * np.abs(self.X).mean()
        self.seen = rng.random(SHAPE) < 0.4
        i, j = np.nonzero(self.seen)
        samples = rg.CrossSamples.from_triplets(i, j, self.Y[i, j], SHAPE, np.arange(n1), np.arange(n2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rg.ConvergenceWarning)
            self.result = rg.rcurc(samples, **options)

    def observed(self):
        """The matrix with fresh noise, without outliers."""
        draw = self.rng.standard_t(5, SHAPE) if self.kind == "t" else self.rng.standard_normal(SHAPE)
        return self.X + self.sigma * draw


@pytest.fixture(scope="module")
def solved():
    return Noisy(0.1)


@pytest.mark.parametrize("kind", ["normal", "t"])
@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_intervals_of_95_percent_hold_95_percent(noise, kind):
    problem = Noisy(noise, kind, seed=1)
    i, j = np.nonzero(~problem.seen)
    for new, truth in ((False, problem.X), (True, problem.observed())):
        lower, upper = problem.result.interval(i, j, new=new)
        inside = np.mean((lower <= truth[i, j]) & (truth[i, j] <= upper))
        assert 0.92 <= inside <= 0.98, f"new={new}"


def test_intervals_of_other_levels_nest_and_hold_what_they_say(solved):
    i, j = np.nonzero(~solved.seen)
    fresh, last = solved.observed()[i, j], 0.0
    for level in (0.5, 0.8, 0.95):
        lower, upper = solved.result.interval(i, j, level)
        assert abs(np.mean((lower <= fresh) & (fresh <= upper)) - level) <= 0.03
        assert (upper - lower).min() > last
        last = (upper - lower).min()


def full(packed, k):
    """Symmetric matrices (n, k, k)."""
    out = np.zeros((len(packed), k, k))
    place = 0
    for q in range(k):
        for p in range(q + 1):
            out[:, q, p] = out[:, p, q] = packed[:, place]
            place += 1
    return out


def by_hand(cur, i, j):
    """Variance of u.v + a + b for independent (u, a) and (v, b), one entry after the other."""
    known = cur.uncertainty
    k = cur.rank - 2 * known.offsets
    K = k + known.offsets
    S, T = full(np.asarray(known.left, float), K)[i], full(np.asarray(known.right, float), K)[j]
    u, v = cur.left[i, :k] / known.left_unit, cur.right[j, :k] / known.right_unit
    out = np.empty(len(i))
    for n in range(len(i)):
        # the gradient of the entry is (v, 1) for its row and (u, 1) for its column; then the product of both errors
        row, col = (np.append(x[n], 1.0) if known.offsets else x[n] for x in (v, u))
        out[n] = row @ S[n] @ row + col @ T[n] @ col + np.trace(S[n][:k, :k] @ T[n][:k, :k])
    # an observation with noise of Student's t tells (nu + 1) / (nu + 3) of what one with known weight does
    return known.factor * known.unit * np.sqrt(out * (known.noise.tail + 3) / (known.noise.tail + 1))


@pytest.mark.parametrize("options", [{"offsets": True}, {"offsets": False}])
def test_standard_deviations_agree_with_the_variance_computed_by_hand(solved, options):
    cur = rg.rcurc(solved.result.samples, **options).cur
    assert cur.uncertainty.offsets == options["offsets"]
    rng = np.random.default_rng(0)
    i, j = rng.integers(SHAPE[0], size=200), rng.integers(SHAPE[1], size=200)
    values, std = cur.entries(i, j, return_std=True)
    np.testing.assert_array_equal(values, cur.entries(i, j))
    np.testing.assert_allclose(std, by_hand(cur, i, j), rtol=1e-5)


def test_many_entries_are_done_in_pieces_of_the_same_result(solved, monkeypatch):
    cur, i, j = solved.result.cur, np.arange(50)[:, None], np.arange(30)[None, :]
    whole = cur.variances(i, j)
    monkeypatch.setattr("rcurc_gpu.result.uncertainty._NUMBERS_AT_ONCE", 500)
    monkeypatch.setattr("rcurc_gpu.result.uncertainty.is_all_faster", lambda m, n, size: False)
    for once, pieces in zip(whole, cur.variances(i, j), strict=True):
        assert once.shape == (50, 30)
        np.testing.assert_allclose(once, pieces, rtol=1e-12)
    assert cur.variances([], [])[0].shape == (0,)


@pytest.mark.parametrize("scale", [1.0, 1e150])
def test_the_transpose_has_the_same_standard_deviations(scale):
    cur = Noisy(0.1, scale=scale).result.cur
    i, j = np.arange(40), np.arange(40)[::-1]
    if scale != 1:
        assert cur.uncertainty.unit != 1  # observations of such a size are divided by something
    for there, back in zip(cur.T.entries(j, i, return_std=True), cur.entries(i, j, return_std=True), strict=True):
        np.testing.assert_allclose(there, back, rtol=1e-6)
    np.testing.assert_allclose(cur.T.T.entries(i, j, return_std=True), cur.entries(i, j, return_std=True), rtol=1e-6)
    assert isinstance(LowRankMatrix(cur.left, cur.right, cur.uncertainty).T.entries(0, 0, return_std=True), tuple)


def test_standard_deviations_grow_with_the_unit_of_the_data():
    one, large = Noisy(0.1).result, Noisy(0.1, scale=1e150).result
    i, j = np.arange(40), np.arange(40)
    np.testing.assert_allclose(
        large.cur.entries(i, j, return_std=True)[1] / 1e150, one.cur.entries(i, j, return_std=True)[1], rtol=0.05
    )


def test_what_is_saved_knows_its_standard_deviations(solved, tmp_path):
    cur = solved.result.cur
    cur.save(tmp_path / "X.npz")
    loaded = CURMatrix.load(tmp_path / "X.npz")
    for a, b in zip(loaded.entries([0, 5], [3, 4], True), cur.entries([0, 5], [3, 4], True), strict=True):
        np.testing.assert_array_equal(a, b)
    for name in ("left_precision", "right_precision", "centre", "noise", "offsets", "factor"):
        np.testing.assert_array_equal(
            np.asarray(getattr(loaded.uncertainty, name)), np.asarray(getattr(cur.uncertainty, name))
        )


KNOWN = Uncertainty(np.ones((3, 1)), np.ones((2, 1)), np.ones(3), np.ones(2), Noise(1.0, 4.0, 0.1, 10.0), False, 1.0)


def test_files_without_priors_are_loaded(tmp_path):
    known = replace(KNOWN, right_unit=2.0)
    arrays = uncertainty_arrays(known)
    arrays["noise_model"] = arrays["noise_model"][:7]  # as the first version wrote it
    cur = CURMatrix(np.ones((3, 1)), np.ones((2, 1)), [0], [0])
    from rcurc_gpu import files

    files.write_npz(
        tmp_path / "X.npz", "CURMatrix", {"left": cur.left, "right": cur.right, "rows": [0], "cols": [0]} | arrays
    )
    loaded = CURMatrix.load(tmp_path / "X.npz").uncertainty
    assert loaded.left_precision is loaded.right_precision is None
    assert (loaded.left_unit, loaded.right_unit, loaded.centre) == (1.0, 2.0, 0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"noise_model": np.ones(6)},
        {"noise_model": np.full(9, np.nan)},
        {"left_covariance": np.ones((2, 1))},
        {"left_precision": np.ones(2)},
        {"left_precision": -np.ones(1)},
    ],
    ids=str,
)
def test_a_damaged_noise_model_is_refused(change):
    from rcurc_gpu.result.uncertainty import uncertainty_from

    with pytest.raises(ValueError, match="the noise model in the file is damaged"):
        uncertainty_from(uncertainty_arrays(KNOWN) | change, (3, 2))


def test_without_noise_or_intervals_it_is_said(solved):
    exact = rg.rcurc(rg.synthetic((200, 180), 2, 0.1, n_rows=80, n_cols=80, rate=0.5, seed=0).samples)
    with pytest.raises(ValueError, match="only with noise and intervals=True"):
        exact.cur.entries(0, 0, return_std=True)
    lower, upper = exact.interval([0, 1], [2, 3])
    assert (lower < upper).all()
    with pytest.raises(ValueError, match="solve with intervals=True"):
        Noisy(0.1, intervals=False).result.interval(0, 0)
    with pytest.raises(ValueError, match="level must be"):
        solved.result.interval(0, 0, level=1.0)


# ---------------------------------------------------------------- new columns and rows


def new_units(problem, axis, k=60, share=0.4, seed=5):
    """Columns that the solve has not seen: factors of the problem's rows from its matrix, other coefficients and offsets."""
    rng = np.random.default_rng(seed)
    X = problem.X if axis == 1 else problem.X.T
    centred = X - X.mean(axis=1, keepdims=True)
    W, s, _ = np.linalg.svd(centred, full_matrices=False)
    basis = np.c_[W[:, : RANK + 1] * s[: RANK + 1] / np.sqrt(X.shape[1]), X.mean(axis=1)]
    # an affine combination of columns is again offsets and components: weights of the mean add up to one
    new = basis @ np.r_[rng.standard_normal((RANK + 1, k)), np.ones((1, k))]
    seen = new + problem.sigma * rng.standard_normal(new.shape)
    wrong = rng.random(new.shape) < 0.1
    seen[wrong] += rng.uniform(-10, 10, wrong.sum()) * np.abs(X).mean()
    seen[rng.random(new.shape) > share] = np.nan
    return (new, seen) if axis == 1 else (new.T, seen.T)


@pytest.mark.parametrize("axis", [0, 1])
def test_new_columns_and_rows_are_completed_within_their_intervals(solved, axis):
    X, Y = new_units(solved, axis)
    transform = solved.result.transform_columns if axis == 1 else solved.result.transform_rows
    out = transform(Y)
    assert out.matrix.shape == X.shape
    assert len(out.diagnostics.undetermined) == 0
    i, j = np.indices(X.shape)
    values, std = out.matrix.entries(i, j, return_std=True)
    np.testing.assert_allclose(values, out.matrix.to_dense(), rtol=1e-9, atol=1e-9)
    inside = np.abs(values - X) <= 1.96 * std
    assert 0.9 <= inside.mean() <= 0.99
    assert np.linalg.norm(values - X) / np.linalg.norm(X) <= 0.04


def test_columns_of_the_solve_come_out_again_as_the_solve_has_them(solved):
    some = np.arange(0, SHAPE[1], 25)
    Y = np.where(solved.seen, solved.Y, np.nan)[:, some]
    out = solved.result.transform_columns(Y)
    before, std = solved.result.cur.entries(*np.ix_(np.arange(SHAPE[0]), some), return_std=True)
    assert np.mean(np.abs(out.matrix.to_dense() - before) / std) <= 0.2


def test_new_columns_with_few_observations_get_the_prior_and_wide_intervals(solved):
    Y = np.full((SHAPE[0], 3), np.nan)
    Y[:2, 1] = solved.X[:2, 4]
    Y[:, 2] = solved.X[:, 4]
    out = solved.result.transform_columns(Y)
    assert list(out.diagnostics.undetermined) == [0, 1]
    i, j = np.indices(Y.shape)
    values, std = out.matrix.entries(i, j, return_std=True)
    assert np.isfinite(values).all()
    # nothing is known of the first: the offsets of the rows, and what columns differ by
    np.testing.assert_allclose(values[:, 0], solved.X.mean(axis=1), atol=1.0)
    spread = solved.X.std(axis=1)
    assert 0.7 <= np.median(std[:, 0] / spread) <= 1.4
    assert (std.mean(axis=0)[:2] > 5 * std[:, 2].mean()).all()
    assert np.mean(np.abs(values[:, 0] - solved.X[:, 7]) <= 1.96 * std[:, 0]) >= 0.8
    blank = solved.result.transform_columns(Y, undetermined="nan").matrix.to_dense()
    assert np.isnan(blank[:, :2]).all()
    np.testing.assert_array_equal(blank[:, 2], out.matrix.to_dense()[:, 2])
    with pytest.raises(ValueError, match="undetermined must be one of"):
        solved.result.transform_columns(Y, undetermined="median")


def test_new_columns_may_be_seen_at_other_rows_and_blank_rows_do_not_count(solved):
    X, Y = new_units(solved, 1, k=5, share=0.8)
    rows = np.arange(20, 220)
    part = solved.result.transform_columns(Y[rows], rows=rows)
    left = solved.result.cur.left.copy()
    left[100] = np.nan
    cur = CURMatrix(
        left, solved.result.cur.right, solved.result.cur.rows, solved.result.cur.cols, solved.result.cur.uncertainty
    )
    blank = replace(solved.result, cur=cur).transform_columns(Y[rows], rows=rows).matrix
    without = solved.result.transform_columns(np.delete(Y[rows], 80, axis=0), rows=np.delete(rows, 80)).matrix
    assert np.linalg.norm(part.matrix.to_dense() - X) / np.linalg.norm(X) <= 0.05
    np.testing.assert_allclose(
        np.delete(blank.to_dense(), 100, axis=0), np.delete(without.to_dense(), 100, axis=0), rtol=1e-9
    )
    assert np.isnan(blank[100, :]).all()


def test_no_new_columns_are_none(solved):
    found = solved.result.transform_columns(np.zeros((SHAPE[0], 0)), rows=np.arange(SHAPE[0]))
    assert found.matrix.shape == (SHAPE[0], 0)
    assert found.expected_error == solved.result.expected_error


def test_new_columns_of_data_in_another_unit(solved):
    large = Noisy(0.1, scale=1e150)
    X, Y = new_units(large, 1)
    out = large.result.transform_columns(Y)
    assert np.linalg.norm(out.matrix.to_dense() / 1e150 - X / 1e150) / np.linalg.norm(X / 1e150) <= 0.04
    i, j = np.indices(X.shape)
    values, std = out.matrix.entries(i, j, return_std=True)
    assert 0.9 <= np.mean(np.abs(values - X) <= 1.96 * std) <= 0.99


def test_new_columns_on_another_device_are_the_same(elsewhere):
    problem = Noisy(0.1)
    s = problem.result.samples
    i, j = np.nonzero(problem.seen)
    there = rg.CrossSamples.from_triplets(
        elsewhere.array(i), elsewhere.array(j), elsewhere.array(problem.Y[i, j]), SHAPE, s.rows, s.cols
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        result = rg.rcurc(there)
    np.testing.assert_allclose(elsewhere.numpy(result.cur.to_dense()), problem.result.cur.to_dense(), atol=1e-6)
    _, Y = new_units(problem, 1, k=4)
    Y[:, 0] = np.nan
    found, expected = result.transform_columns(elsewhere.array(Y)).matrix, problem.result.transform_columns(Y).matrix
    pairs = (np.arange(8), np.arange(8) % 4)
    for a, b in zip(found.entries(*pairs, return_std=True), expected.entries(*pairs, return_std=True), strict=True):
        np.testing.assert_allclose(elsewhere.numpy(a), b, rtol=1e-3, atol=1e-6)
    table, same = result.outlier_table(), problem.result.outlier_table()
    np.testing.assert_array_equal(table[["row", "column"]], same[["row", "column"]])


@pytest.mark.parametrize("undetermined", ["prior", "keep"])
def test_intervals_of_what_could_not_be_determined_are_as_wide_as_others_differ(undetermined):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((120, 2)) @ rng.standard_normal((2, 100))
    Y = X.copy()
    Y[[5, 17]] = np.nan
    Y[:, 7] = np.nan
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.robust_pca(Y, 2, undetermined=undetermined)
    i, j = (x.ravel() for x in np.indices(X.shape))
    lost = np.isin(i, [5, 17]) | (j == 7)
    for new in (True, False):
        lower, upper = result.interval(i, j, new=new)
        inside = (lower <= X[i, j]) & (X[i, j] <= upper)
        assert inside[lost].mean() >= 0.85
        assert inside[~lost].mean() >= 0.95
        assert (upper - lower)[~lost].max() <= 1e-8
    assert np.ptp(result.interval(5, 3)) == pytest.approx(np.ptp(result.interval(-115, [3])))


@pytest.fixture(scope="module")
def in_two_groups():
    """Rows and columns with even and with odd numbers, which were never seen together, and the group of each."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 2)) @ rng.standard_normal((2, 110))
    row, column = np.arange(120) % 2, np.arange(110) % 2
    Y = X + 0.1 * rng.standard_normal(X.shape)
    Y[row[:, None] != column] = np.nan
    with pytest.warns(rg.ConvergenceWarning):
        return X, row, rg.robust_pca(Y)


def test_new_columns_are_sure_in_the_group_that_they_were_seen_in(in_two_groups):
    X, row, result = in_two_groups
    assert result.groups.n_groups == 2
    rng = np.random.default_rng(1)
    own = rng.integers(0, 2, 300)  # more than the matrix has, in groups of their own order
    new = X[:, 2 * rng.integers(0, 50, 300) + own]
    seen = np.where(row[:, None] == own, new + 0.1 * rng.standard_normal(new.shape), np.nan)
    found = result.transform_columns(seen, rows=np.arange(len(X)))
    values, std = found.matrix.entries(*np.indices(new.shape), return_std=True)
    inside = row[:, None] == own
    assert 0.92 <= np.mean(np.abs(values - new)[inside] <= 1.96 * std[inside]) <= 0.99
    assert std[inside].max() < 0.2
    assert std[~inside].min() > 1.0


def test_what_belongs_to_no_group_is_as_unsure_as_what_is_between_groups(in_two_groups):
    _, row, result = in_two_groups
    none = np.where(np.arange(120) < 4, -1, row), np.where(np.arange(110) < 4, -1, np.arange(110) % 2)
    cur = result.cur.with_uncertainty(replace(result.cur.uncertainty, left_group=none[0], right_group=none[1]))
    assert cur.entries([0, 0, 10], [0, 10, 0], return_std=True)[1].min() > 1.0
    assert cur.entries(10, 10, return_std=True)[1] < 0.2
    part = cur.part(np.array([10, 0, 11]), np.array([11, 10, 0]))
    std = part.entries(*np.indices((3, 3)), return_std=True)[1]
    np.testing.assert_array_equal(std > 1.0, [[True, False, True], [True, True, True], [False, True, True]])
