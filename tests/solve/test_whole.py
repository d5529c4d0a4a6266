"""Robust PCA of a fully observed matrix, `robust_pca` and `ircur`, against the truth and against each other."""

import warnings

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.solve.ircur import _draw

BOTH = pytest.mark.parametrize("solve", [rg.robust_pca, rg.ircur], ids=["robust_pca", "ircur"])


def matrix(n1=500, n2=400, rank=5, alpha=0.2, c=10.0, noise=0.0, seed=0):
    """X, the outliers S and Y = X + S + noise; sizes in units of mean|X|."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n1, rank)) @ rng.standard_normal((rank, n2))
    a = c * np.abs(X).mean()
    S = np.where(rng.random(X.shape) < alpha, rng.uniform(-a, a, X.shape), 0)
    return X, S, X + S + noise * np.abs(X).mean() * rng.standard_normal(X.shape)


def error(result, X):
    return np.linalg.norm(np.asarray(result.cur.to_dense()) - X) / np.linalg.norm(X)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("rank", "alpha", "c"), [(5, 0.2, 10), (5, 0.3, 1), (10, 0.1, 10), (2, 0.3, 10), (5, 0.1, 100)])
def test_both_recover_and_robust_pca_is_closer(rank, alpha, c, seed):
    X, _, Y = matrix(800, 700, rank, alpha, c, seed=seed)
    one, other = rg.robust_pca(Y, rank), rg.ircur(Y, rank)
    assert one.converged
    assert other.converged
    assert error(one, X) <= 1e-8
    assert error(other, X) <= 1e-4
    assert error(one, X) < error(other, X)
    assert other.method == "ircur"
    assert other.history[-1].error < 1e-5


def dense_ircur(Y, rank, iterations, seed, oversampling=4.0):
    """Its authors' algorithm with whole matrices, pseudo-inverses and full SVDs."""
    rng = np.random.default_rng([seed, 5])
    zeta, L = 1.001 * np.abs(Y).max(), np.zeros_like(Y)
    for _ in range(iterations):
        I, J = (_draw(rng, n, oversampling * rank * np.log(n)) for n in Y.shape)  # noqa: E741
        S = np.where(np.abs(Y - L) >= zeta, Y - L, 0)
        C, R, U = (Y - S)[:, J], (Y - S)[I], (Y - S)[np.ix_(I, J)]
        w, s, vt = np.linalg.svd(U)
        L = C @ np.linalg.pinv((w[:, :rank] * s[:rank]) @ vt[:rank], rcond=1e-10) @ R
        zeta *= 0.7
    return L


@pytest.mark.parametrize("iterations", [1, 5, 12])
def test_ircur_takes_its_authors_steps(iterations):
    _, _, Y = matrix(120, 150, 2, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        result = rg.ircur(Y, 2, max_iter=iterations, tol=0, undetermined="keep", seed=7)
    expected = dense_ircur(Y, 2, iterations, 7)
    assert result.n_iter == iterations
    assert np.linalg.norm(result.cur.to_dense() - expected) <= 1e-7 * np.linalg.norm(expected)


@BOTH
def test_the_outliers_of_the_whole_matrix_are_found(solve):
    X, S, Y = matrix(seed=1)
    result = solve(Y, 5)
    found = result.outliers_of(Y)
    assert found.shape == Y.shape
    large = np.abs(S) > 10 * result.threshold
    assert (found.toarray() != 0)[large].all()
    assert not (found.toarray() != 0)[S == 0].any()
    assert np.abs(found.toarray() - S).max() <= max(result.threshold, 1e-4 * np.abs(X).max())  # smaller ones are not told


@BOTH
def test_noise_is_told_from_outliers(solve):
    X, _, Y = matrix(800, 700, noise=0.02, seed=2)
    result = solve(Y, 5, accuracy=0.1)
    assert result.converged
    assert error(result, X) <= 0.02
    assert error(result, X) <= 3 * result.expected_error
    assert abs(result.noise / (0.02 * np.abs(X).mean()) - 1) < 0.3


def test_more_rows_and_columns_reduce_the_effect_of_noise():
    X, _, Y = matrix(900, 900, 3, noise=0.05, seed=3)
    few, many = (rg.robust_pca(Y, 3, n_rows=k, n_cols=k, accuracy=0.1) for k in (100, 600))
    assert len(few.samples.rows) == 100
    assert error(many, X) < 0.6 * error(few, X)


@BOTH
def test_the_rank_is_found(solve):
    X, _, Y = matrix(rank=3, seed=4)
    result = solve(Y, "auto")
    assert result.rank == 3
    assert result.rank == 3
    assert error(result, X) <= 1e-4


@BOTH
@pytest.mark.parametrize("shape", [(300, 300), (60, 50)])
def test_noise_is_not_confirmed(solve, shape):
    noise = np.random.default_rng(0).standard_normal(shape)
    with pytest.warns(rg.ConvergenceWarning):
        assert not solve(noise, 3).converged


@BOTH
def test_a_rank_that_is_too_small_is_not_confirmed(solve):
    _, _, Y = matrix(rank=6, seed=5)
    with pytest.warns(rg.ConvergenceWarning):
        assert not solve(Y, 3).converged


def test_ircur_with_too_many_iterations_to_go_says_so():
    _, _, Y = matrix(seed=6)
    with pytest.warns(rg.ConvergenceWarning, match="not settled after 4 iterations"):
        assert rg.ircur(Y, 5, max_iter=4).cause == "not settled"


@BOTH
def test_one_seed_gives_one_result_and_inputs_stay(solve):
    _, _, Y = matrix(200, 200, 2, seed=7)
    before = Y.copy()
    Y.flags.writeable = False
    size = {"n_rows": 130, "n_cols": 130} if solve is rg.robust_pca else {}  # else it takes all of so small a matrix
    one, same, other = (solve(Y, 2, seed=seed, **size) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.cur.left, same.cur.left)
    assert not np.array_equal(one.cur.rows, other.cur.rows)
    np.testing.assert_array_equal(Y, before)


@BOTH
def test_new_columns_are_completed(solve):
    X, _, Y = matrix(300, 260, 3, seed=8)
    result = solve(Y[:, :250], 3)
    new = result.transform_columns(Y[result.samples.rows, 250:])
    assert np.abs(new.matrix.to_dense() - X[:, 250:]).max() <= 1e-3 * np.abs(X).max()


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_other_types_of_numbers(solve, dtype):
    rng = np.random.default_rng(0)
    X = np.rint(rng.uniform(1, 3, (300, 1)) * rng.uniform(20, 60, (1, 260)))  # rounding is its noise
    Y = np.where(rng.random(X.shape) < 0.1, rng.integers(0, 255, X.shape), X).astype(dtype)
    result = solve(Y, 1, accuracy=0.1)
    assert result.cur.dtype == (np.float32 if dtype == np.float32 else np.float64)
    assert error(result, X) <= 0.01


@BOTH
@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_numbers_whose_squares_overflow(solve, scale):
    X, _, Y = matrix(200, 200, 2, seed=9)
    assert np.abs(solve(Y * scale, 2).cur.to_dense() / scale - X).max() <= 1e-4 * np.abs(X).max()


def test_entries_of_the_largest_size_are_not_lost_to_ircur():
    """Pixels that are always white."""
    rng = np.random.default_rng(1)
    X = np.minimum(np.outer(rng.uniform(0.5, 1.2, 300), np.full(260, 250.0)), 255.0)
    Y = np.where(rng.random(X.shape) < 0.1, rng.uniform(0, 255, X.shape), X)
    assert (X == 255).mean() > 0.1
    assert error(rg.ircur(Y, 1), X) <= 1e-4


class OnlySlices:
    """Like HDF5 and Zarr: not an array, and without two index vectors."""

    def __init__(self, Y):
        self.Y, self.shape, self.dtype = Y, Y.shape, Y.dtype

    def __getitem__(self, key):
        for part in key if isinstance(key, tuple) else (key,):
            assert isinstance(part, (int, slice))
        return self.Y[key]


@BOTH
@pytest.mark.parametrize("kind", ["sliced", "memmap", "list"])
def test_what_is_no_array_is_read_by_its_rows(solve, kind, tmp_path):
    X, _, Y = matrix(150, 120, 2, seed=10)
    if kind == "memmap":
        np.save(tmp_path / "Y.npy", Y)
    given = {"sliced": lambda: OnlySlices(Y), "memmap": lambda: np.load(tmp_path / "Y.npy", mmap_mode="r"), "list": Y.tolist}
    result, expected = solve(given[kind](), 2), solve(Y, 2)
    np.testing.assert_allclose(result.cur.to_dense(), expected.cur.to_dense(), rtol=1e-9, atol=1e-9)
    assert (result.outliers_of(given[kind]()) != expected.outliers_of(Y)).nnz <= 3
    assert error(result, X) <= 1e-4


@BOTH
def test_it_runs_elsewhere(elsewhere, solve):
    X, _, Y = matrix(90, 80, 2, seed=11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        result = solve(elsewhere.array(Y), 2)
    assert np.linalg.norm(elsewhere.numpy(result.cur.to_dense()) - X) <= 1e-4 * np.linalg.norm(X)


def test_holes_are_for_robust_pca():
    X, _, Y = matrix(seed=12)
    Y[np.random.default_rng(0).random(Y.shape) < 0.2] = np.nan
    assert error(rg.robust_pca(Y, 5), X) <= 1e-8
    with pytest.raises(ValueError, match=r"Y must be known everywhere, got nan at \(\d+, \d+\); robust_pca takes"):
        rg.ircur(Y, 5)


@BOTH
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros(5), "Y must be two-dimensional, got shape"),
        (np.zeros((30, 30)), "0"),
        (np.full((30, 30), "a"), "Y must be real numbers"),
        (np.full((30, 30), np.inf), "inf"),
        (np.ones((30, 0)), "Y.shape"),
        (np.ma.masked_array(np.full((30, 30), "a")), "Y must be real numbers, got a masked array of <U1"),
    ],
)
def test_bad_matrices_are_refused(solve, bad, message):
    with pytest.raises((ValueError, TypeError), match=message):
        solve(bad, 1)


@BOTH
def test_bad_arguments_are_named(solve):
    import scipy.sparse

    Y = np.ones((40, 40))
    with pytest.raises(TypeError, match="got a sparse matrix"):
        solve(scipy.sparse.csr_array(Y), 1)
    with pytest.raises(ValueError, match="rank must be at most min"):
        solve(Y, 41)
    with pytest.raises(TypeError, match="rank must be an integer"):
        solve(Y, 1.5)
    with pytest.raises(ValueError, match=r"rank must be .*'auto', got 'many'"):
        solve(Y, "many")


@pytest.mark.parametrize(("dtype", "fill"), [(np.float32, 9.96921e36), (np.float64, 1e300), (np.float64, -1e160)])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_fill_value_beyond_all_others_is_named(dtype, fill, noise):
    Y = matrix(100, 90, 2, noise=noise)[2].astype(dtype)
    Y[3, 4] = fill
    with pytest.raises(
        ValueError, match=r"samples must not have a value that is \de\+\d+ times .* leave it out \(NaN, or a mask\)"
    ):
        rg.robust_pca(Y, 2)


@pytest.mark.parametrize(("dtype", "fill"), [(np.float32, 1e20), (np.float64, 1e130)])
def test_a_fill_value_in_exact_data_is_an_outlier(dtype, fill):
    X, _, Y = matrix(100, 90, 2)
    Y[3, 4] = fill
    assert error(rg.robust_pca(Y.astype(dtype), 2), X) <= 1e-4


def test_arguments_of_one_are_named():
    Y = np.ones((40, 40))
    with pytest.raises(ValueError, match="n_rows must be at least 2 and at most 40, got 1"):
        rg.robust_pca(Y, 2, n_rows=1)
    with pytest.raises(TypeError, match="no_such"):
        rg.robust_pca(Y, 2, no_such=1)
    with pytest.raises(ValueError, match=r"oversampling must be in \[1, inf\)"):
        rg.ircur(Y, 2, oversampling=0.5)
    with pytest.raises(ValueError, match="Y must have at least 12 rows and columns"):
        rg.ircur(np.ones((8, 40)), 1)
    with pytest.raises(ValueError, match="Y must have the shape of the recovered matrix"):
        rg.robust_pca(matrix(60, 60, 1)[2], 1).outliers_of(np.zeros((3, 3)))


@pytest.mark.parametrize("scale", [1e-160, 1.0, 1e160])
def test_a_callback_of_ircur_sees_thresholds_in_the_unit_of_the_data(scale):
    _, _, Y = matrix(100, 90, 2, seed=9)
    seen = []
    result = rg.ircur(Y * scale, 2, callback=lambda state: seen.append(state.threshold))
    assert seen == [state.threshold for state in result.history]
    assert seen[0] == pytest.approx(1.001 * np.abs(Y).max() * scale)


def test_a_callback_ends_ircur():
    _, _, Y = matrix(seed=13)
    seen = []
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.ircur(Y, 5, callback=lambda state: seen.append(state) or len(seen) == 3)
    assert result.n_iter == 3
    assert [state.iteration for state in seen] == [1, 2, 3]
