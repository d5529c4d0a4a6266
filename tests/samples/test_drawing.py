"""Cross-concentrated sampling and the synthetic problem: rates, values, outliers, noise, truth, memory."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse

from rcurc_gpu import CrossSamples, CURMatrix, LowRankMatrix, ccs_sample, synthetic
from rcurc_gpu.samples import drawing as sampling

NAN = np.nan


def within(count, n, p, sigmas=5):
    """Whether `count` is a likely outcome of n draws with probability p."""
    return abs(count - n * p) <= sigmas * (n * p * (1 - p)) ** 0.5


def places(samples):
    """Row, column and value of every observation, block by block."""
    host = samples.to_namespace(np)
    R, C = host.R.tocoo(), host.C.tocoo()
    return (samples.rows[R.row], R.col, R.data), (C.row, samples.cols[C.col], C.data)


def assert_values_of(samples, Y):
    for i, j, values in places(samples):
        np.testing.assert_array_equal(values, Y[i, j])


def same(one, other):
    blocks = [(s.r_block, s.c_block) for s in (one.to_namespace(np), other.to_namespace(np))]
    return (
        np.array_equal(one.rows, other.rows)
        and np.array_equal(one.cols, other.cols)
        and all(
            np.array_equal(getattr(a, part), getattr(b, part))
            for a, b in zip(*blocks, strict=True)
            for part in ("indptr", "index", "value")
        )
    )


# ---------------------------------------------------------------- ccs_sample


@pytest.mark.parametrize(("rate_rows", "rate_cols"), [(0.1, 0.7), (0.5, 0.02), (0.9, 0.9)])
def test_each_entry_of_a_block_is_seen_with_the_rate_asked_for(rate_rows, rate_cols):
    samples = ccs_sample(np.ones((500, 400)), 60, 80, rate_rows, rate_cols, seed=1)
    assert within(samples.r_block.n_obs, 60 * 400, rate_rows)
    assert within(samples.c_block.n_obs, 80 * 500, rate_cols)
    # and that in every part of the block, also at its ends
    for block, rate in ((samples.r_block, rate_rows), (samples.c_block, rate_cols)):
        tenths = np.array_split(block.counts, 10)
        assert all(within(part.sum(), len(part) * block.length, rate) for part in tenths)
        position = np.bincount(block.index, minlength=block.length)
        assert all(within(count, block.n_units, rate) for count in position)


def test_rate_1_sees_everything():
    Y = np.arange(20.0).reshape(4, 5)
    samples = ccs_sample(Y, 2, 3, 1.0, 1.0, seed=0)
    np.testing.assert_array_equal(samples.R.toarray(), Y[samples.rows])
    np.testing.assert_array_equal(samples.C.toarray(), Y[:, samples.cols])


def test_the_two_blocks_are_drawn_independently():
    samples = ccs_sample(np.ones((300, 300)), 150, 150, 0.5, 0.4, seed=2)
    seen_by = samples.intersection.seen_by
    for code, probability in ((1, 0.5 * 0.6), (2, 0.5 * 0.4), (3, 0.5 * 0.4)):
        assert within(np.count_nonzero(seen_by == code), 150 * 150, probability)


def test_rows_and_columns_are_chosen_uniformly():
    chosen = np.zeros((2, 10))
    for seed in range(400):
        samples = ccs_sample(np.ones((10, 10)), 3, 4, 1.0, 1.0, seed=seed)
        assert (np.diff(samples.rows) > 0).all()
        chosen[0, samples.rows] += 1
        chosen[1, samples.cols] += 1
    assert all(within(count, 400, 0.3) for count in chosen[0])
    assert all(within(count, 400, 0.4) for count in chosen[1])


def test_the_pieces_in_which_it_is_drawn_do_not_show(monkeypatch):
    Y = np.random.default_rng(0).standard_normal((80, 70))
    monkeypatch.setattr(sampling, "_PIECE", 100)
    samples = ccs_sample(Y, 30, 30, 0.3, 0.3, seed=1)
    assert_values_of(samples, Y)
    assert within(samples.r_block.n_obs, 30 * 70, 0.3)
    assert within(samples.c_block.n_obs, 30 * 80, 0.3)


def test_a_seed_fixes_the_samples():
    Y = np.random.default_rng(0).standard_normal((60, 50))
    draw = [ccs_sample(Y, 20, 20, 0.4, 0.4, seed=seed) for seed in (7, 7, 8, np.int64(7))]
    assert same(draw[0], draw[1])
    assert same(draw[0], draw[3])
    assert not same(draw[0], draw[2])
    assert not same(ccs_sample(Y, 20, 20, 0.4, 0.4), ccs_sample(Y, 20, 20, 0.4, 0.4))


def test_a_generator_is_taken_and_advances():
    Y = np.random.default_rng(0).standard_normal((60, 50))
    one, other = np.random.default_rng(5), np.random.default_rng(5)
    first = ccs_sample(Y, 20, 20, 0.4, 0.4, seed=one)
    assert same(first, ccs_sample(Y, 20, 20, 0.4, 0.4, seed=other))
    assert not same(first, ccs_sample(Y, 20, 20, 0.4, 0.4, seed=one))


class Rows:
    """Gives whole rows only, as an HDF5 file might."""

    def __init__(self, Y):
        self.Y, self.shape, self.dtype = Y, Y.shape, Y.dtype

    def __getitem__(self, i):
        if not isinstance(i, int):
            raise TypeError(f"only rows, got {i!r}")
        return self.Y[i]


class Entries:
    """Gives entries, as a list."""

    def __init__(self, Y):
        self.Y, self.shape = Y, Y.shape

    def entries(self, i, j):
        return self.Y[i, j].tolist()


class Frame:
    """Looks like a data frame: indexing takes columns."""

    def __init__(self, Y):
        self.Y, self.shape, self.iloc = Y, Y.shape, None

    def __getitem__(self, name):
        return self.Y[:, name]

    def __array__(self, dtype=None, copy=None):
        return self.Y.copy()


def memmap(Y, tmp_path):
    file = np.memmap(tmp_path / "Y.bin", dtype=Y.dtype, mode="w+", shape=Y.shape)
    file[:] = Y
    return file


@pytest.mark.parametrize("hole", [False, True], ids=["all known", "NaN inside"])
@pytest.mark.parametrize("kind", ["memmap", "rows", "entries", "list", "frame", "CURMatrix"])
def test_every_kind_of_matrix_gives_the_samples_of_the_array(kind, hole, tmp_path):
    left, right = np.random.default_rng(0).standard_normal((2, 40, 2))
    Y = np.einsum("ir,jr->ij", left, right)
    if hole:
        Y[3:9, :] = Y[:, 20:25] = NAN
        left, right = left.copy(), right.copy()
        left[3:9], right[20:25] = NAN, NAN
    matrix = {
        "memmap": lambda: memmap(Y, tmp_path),
        "rows": lambda: Rows(Y),
        "entries": lambda: Entries(Y),
        "list": lambda: Y.tolist(),
        "frame": lambda: Frame(Y),
        "CURMatrix": lambda: CURMatrix(left, right, np.arange(2), np.arange(2)),
    }[kind]()
    samples, expected = (ccs_sample(x, 15, 12, 0.5, 0.3, seed=4) for x in (matrix, Y))
    np.testing.assert_array_equal(samples.rows, expected.rows)
    for found, wanted in zip(places(samples), places(expected), strict=True):
        np.testing.assert_array_equal(found[:2], wanted[:2])
        np.testing.assert_allclose(found[2], wanted[2], rtol=1e-13 if kind == "CURMatrix" else 0)


def test_arrays_of_any_library_stay_where_they_are(xp):
    Y = np.random.default_rng(0).standard_normal((30, 40))
    Y[5, :] = Y[:, 6] = NAN
    samples = ccs_sample(xp.array(Y), 10, 12, 0.5, 0.5, seed=1)
    assert xp.numpy(samples.r_block.value).dtype == np.float64
    assert same(samples, ccs_sample(Y, 10, 12, 0.5, 0.5, seed=1))


def test_nan_entries_are_skipped():
    Y = np.random.default_rng(0).standard_normal((50, 40))
    Y[np.random.default_rng(1).random(Y.shape) < 0.4] = NAN
    samples = ccs_sample(Y, 20, 20, 1.0, 1.0, seed=0)
    for block, dense in ((samples.R, Y[samples.rows]), (samples.C, Y[:, samples.cols])):
        assert block.nnz == np.count_nonzero(~np.isnan(dense))
        np.testing.assert_array_equal(block.toarray(), np.nan_to_num(dense))


def test_rows_in_float32_stay_float32():
    Y = np.random.default_rng(0).standard_normal((20, 10)).astype(np.float32)
    samples = ccs_sample(Rows(Y), 5, 5, 0.5, 0.5, seed=0)
    assert samples.dtype == np.float32
    assert_values_of(samples, Y)


def test_a_sparse_matrix_is_refused_because_its_zeros_are_no_observations():
    Y = scipy.sparse.csr_array(np.eye(10))
    with pytest.raises(TypeError, match=r"got a sparse matrix; use CrossSamples\.from_sparse"):
        ccs_sample(Y, 3, 3, 0.5, 0.5, seed=0)
    assert CrossSamples.from_sparse(Y, [0, 1], [0, 1]).n_obs == 2


def test_a_rate_that_sees_nothing_is_an_error_not_a_hang():
    with pytest.raises(ValueError, match=r"no entry of the chosen rows \(R\) was observed"):
        ccs_sample(np.ones((20, 20)), 5, 5, 1e-300, 0.5, seed=0)


# ---------------------------------------------------------------- synthetic


def dense_truth(problem):
    return problem.W @ problem.V.T


def dense_Y(problem):
    n1, n2 = problem.shape
    i, j = np.divmod(np.arange(n1 * n2), n2)
    return problem.entries(i, j).reshape(n1, n2)


def test_the_truth_is_the_product_of_gaussian_factors():
    problem = synthetic((150, 120), 4, seed=0)
    assert (problem.shape, problem.W.shape, problem.V.shape) == ((150, 120), (150, 4), (120, 4))
    for factor in (problem.W, problem.V):
        assert abs(factor.mean()) < 5 / factor.size**0.5
        assert abs(factor.var() - 1) < 5 * (2 / factor.size) ** 0.5
    X = dense_truth(problem)
    i, j = np.random.default_rng(1).integers((150, 120), size=(1000, 2)).T
    np.testing.assert_allclose(problem.truth(i, j), X[i, j], rtol=1e-12, atol=1e-12)
    assert problem.mean_abs == pytest.approx(np.abs(X).mean(), rel=1e-12)


def test_the_mean_of_a_large_matrix_is_estimated_within_a_percent():
    problem = synthetic((2500, 2000), 3, n_rows=5, n_cols=5, seed=0)
    assert problem.mean_abs == pytest.approx(np.abs(dense_truth(problem)).mean(), rel=0.01)


@pytest.mark.parametrize("alpha", [0.05, 0.4])
def test_a_share_alpha_of_the_entries_is_an_outlier_of_the_range_asked_for(alpha):
    problem = synthetic((400, 300), 3, alpha=alpha, c=7.0, seed=1)
    S = dense_Y(problem) - dense_truth(problem)
    is_outlier = np.abs(S) > 1e-9 * problem.mean_abs
    largest = 7.0 * problem.mean_abs
    assert within(is_outlier.sum(), S.size, alpha)
    assert np.abs(S).max() <= largest
    # uniform: each tenth of [-c, c] holds a tenth
    tenths = np.histogram(S[is_outlier], bins=10, range=(-largest, largest))[0]
    assert all(within(count, is_outlier.sum(), 0.1) for count in tenths)
    # in no pattern: every row and every column has its share
    assert all(within(count, 300, alpha) for count in is_outlier.sum(axis=1))
    assert all(within(count, 400, alpha) for count in is_outlier.sum(axis=0))
    i, j = np.divmod(np.arange(S.size), 300)
    np.testing.assert_array_equal(problem.is_outlier(i, j).reshape(S.shape), is_outlier)


def test_without_outliers_and_noise_the_samples_are_the_truth():
    problem = synthetic((80, 90), 2, alpha=0.0, seed=3)
    for i, j, values in places(problem.samples):
        np.testing.assert_allclose(values, dense_truth(problem)[i, j], rtol=1e-12, atol=1e-12)


def test_noise_has_the_level_asked_for_and_is_independent_of_place():
    problem = synthetic((300, 250), 2, alpha=0.0, noise=0.1, seed=4)
    noise = (dense_Y(problem) - dense_truth(problem)) / problem.mean_abs
    n = noise.size
    assert abs(noise.mean()) < 5 * 0.1 / n**0.5
    assert noise.std() == pytest.approx(0.1, rel=5 / (2 * n) ** 0.5)
    assert np.mean(noise**4) / 0.1**4 == pytest.approx(3, abs=5 * (96 / n) ** 0.5)  # as a Gaussian has it
    for a, b in ((noise[:, 1:], noise[:, :-1]), (noise[1:], noise[:-1])):
        assert abs(np.mean(a * b)) < 5 * 0.01 / n**0.5


def test_both_blocks_see_the_same_value():
    problem = synthetic((120, 100), 2, alpha=0.3, noise=0.1, n_rows=60, n_cols=50, rate=0.6, seed=5)
    Y = dense_Y(problem)
    assert_values_of(problem.samples, Y)
    assert np.count_nonzero(problem.samples.intersection.seen_by == 3) > 500


def test_sizes_and_rates_are_those_asked_for():
    problem = synthetic((100, 200), 2, seed=6)
    assert (len(problem.samples.rows), len(problem.samples.cols)) == (30, 60)
    assert within(problem.samples.r_block.n_obs, 30 * 200, 0.25)
    problem = synthetic((100, 200), 2, n_rows=50, n_cols=40, rate=(0.9, 0.1), seed=6)
    assert within(problem.samples.r_block.n_obs, 50 * 200, 0.9)
    assert within(problem.samples.c_block.n_obs, 40 * 100, 0.1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, "float32"])
def test_observations_have_the_type_asked_for(dtype):
    problem = synthetic((50, 60), 2, seed=7, dtype=dtype)
    assert problem.samples.dtype == np.dtype(dtype)
    assert problem.W.dtype == np.float64


def test_a_seed_fixes_the_problem():
    one, again, other = (synthetic((50, 60), 2, seed=seed) for seed in (1, 1, 2))
    assert same(one.samples, again.samples)
    assert not same(one.samples, other.samples)
    np.testing.assert_array_equal(one.W, again.W)
    generator = np.random.default_rng(3)
    assert not same(synthetic((50, 60), 2, seed=generator).samples, synthetic((50, 60), 2, seed=generator).samples)


# ---------------------------------------------------------------- errors against the truth


@pytest.fixture(scope="module")
def problem_and_guess():
    """A problem, and a matrix that is wrong by a few percent."""
    problem = synthetic((60, 50), 3, n_rows=20, n_cols=15, seed=8)
    rng = np.random.default_rng(0)
    left = problem.W + 0.05 * rng.standard_normal(problem.W.shape)
    right = problem.V + 0.05 * rng.standard_normal(problem.V.shape)
    return problem, left, right


def relative(found, truth):
    return np.linalg.norm(found - truth) / np.linalg.norm(truth)


def test_relative_error_is_that_of_the_dense_matrices(problem_and_guess):
    problem, left, right = problem_and_guess
    X = dense_truth(problem)
    guess = LowRankMatrix(left, right)
    assert problem.relative_error(guess) == pytest.approx(relative(left @ right.T, X), rel=1e-12)
    rows, cols = problem.samples.rows, problem.samples.cols
    inner = np.ix_(rows, cols)
    assert problem.core_error(guess) == pytest.approx(relative((left @ right.T)[inner], X[inner]), rel=1e-12)
    by_column = [relative(left[rows] @ right[j], X[rows, j]) for j in range(50)]
    np.testing.assert_allclose(problem.column_errors(guess), by_column, rtol=1e-10)
    by_row = [relative(right[cols] @ left[i], X[i, cols]) for i in range(60)]
    np.testing.assert_allclose(problem.row_errors(guess), by_row, rtol=1e-10)


def test_relative_error_sees_errors_of_rounding_without_cancellation(problem_and_guess):
    problem, _, _ = problem_and_guess
    mix = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3))).Q
    assert problem.relative_error(LowRankMatrix(problem.W @ mix, problem.V @ mix)) < 1e-14
    tiny = LowRankMatrix(problem.W * (1 + 1e-11), problem.V)
    assert problem.relative_error(tiny) == pytest.approx(1e-11, rel=1e-3)


def test_relative_error_takes_matrices_of_any_library_and_rank(xp, problem_and_guess):
    problem, left, right = problem_and_guess
    wide = np.hstack([left, np.ones((60, 2))]), np.hstack([right, np.ones((50, 2))])
    found = problem.relative_error(LowRankMatrix(xp.array(wide[0]), xp.array(wide[1])))
    assert found == pytest.approx(relative(wide[0] @ wide[1].T, dense_truth(problem)), rel=1e-12)


def test_undetermined_rows_make_the_error_nan_or_are_skipped(problem_and_guess):
    problem, left, right = problem_and_guess
    left, right = left.copy(), right.copy()
    left[[3, 40]], right[7] = NAN, NAN
    guess = LowRankMatrix(left, right)
    assert np.isnan(problem.relative_error(guess))
    i, j = np.setdiff1d(np.arange(60), [3, 40]), np.setdiff1d(np.arange(50), [7])
    expected = relative((left @ right.T)[np.ix_(i, j)], dense_truth(problem)[np.ix_(i, j)])
    assert problem.relative_error(guess, undetermined="skip") == pytest.approx(expected, rel=1e-12)
    assert np.flatnonzero(np.isnan(problem.column_errors(guess))).tolist() == [7]
    assert np.flatnonzero(np.isnan(problem.row_errors(guess))).tolist() == [3, 40]


def test_where_nothing_is_determined_every_error_is_nan(problem_and_guess):
    problem, left, right = problem_and_guess
    guess = LowRankMatrix(np.full_like(left, NAN), right)
    assert np.isnan(problem.relative_error(guess, undetermined="skip"))
    assert np.isnan(problem.column_errors(guess)).all()


# ---------------------------------------------------------------- memory


def peak_of(make):
    tracemalloc.start()
    try:
        made = make()
        return made, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_matrix_of_ten_billion_entries_takes_memory_for_its_observations_only():
    size = {"shape": (100_000, 100_000), "n_rows": 200, "n_cols": 200, "rate": 0.1}
    problem, peak = peak_of(lambda: synthetic(rank=5, seed=0, **size))
    assert within(problem.samples.r_block.n_obs, 200 * 100_000, 0.1)
    assert peak < 4 * problem.samples.nbytes  # 80 GB would be the matrix, 0.05 GB are the samples
    # of a higher rank the factors are larger, and nothing else
    other, other_peak = peak_of(lambda: synthetic(rank=20, seed=0, **size))
    factors = other.W.nbytes + other.V.nbytes - problem.W.nbytes - problem.V.nbytes
    assert other_peak - peak < 1.5 * factors
