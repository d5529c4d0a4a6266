"""Torch tensors, and other arrays that share their memory by DLPack: taken in and handed back without a copy.

Needs the extra 'test-torch', which is not part of 'test'. Tensors on the CPU only: those on a GPU go the same way through
CuPy, and no test has seen one.
"""

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.arrays import hand_back, home_of, is_foreign, native

torch = pytest.importorskip("torch", reason="the extra 'test-torch' is not installed")

RANK = 2


@pytest.fixture(scope="module")
def problem():
    return rg.synthetic((110, 120), RANK, 0.1, 10, n_rows=50, n_cols=45, rate=0.6, seed=7)


@pytest.fixture(scope="module")
def dense(problem):
    """The observed entries of the whole matrix, NaN elsewhere."""
    Y = np.full(problem.shape, np.nan)
    s = problem.samples
    R, C = s.R.tocoo(), s.C.tocoo()
    Y[s.rows[R.row], R.col] = R.data
    Y[C.row, s.cols[C.col]] = C.data
    return Y


@pytest.fixture(scope="module")
def host_samples(problem, dense):
    return rg.CrossSamples.from_dense(dense, problem.samples.rows, problem.samples.cols)


@pytest.fixture(scope="module")
def samples(host_samples, dense):
    s = host_samples
    return rg.CrossSamples.from_dense(torch.from_numpy(dense.copy()), torch.from_numpy(s.rows.copy()), s.cols)


@pytest.fixture(scope="module")
def result(samples):
    return rg.rcurc(samples, RANK)


@pytest.fixture(scope="module")
def host_result(host_samples):
    return rg.rcurc(host_samples, RANK)


def are_tensors(*arrays, dtype=torch.float64):
    return all(type(x) is torch.Tensor and x.dtype == dtype and x.device.type == "cpu" for x in arrays)


class Shared:
    """An array of no library: it only knows how to share its memory."""

    def __init__(self, x):
        self.x = x

    @property
    def shape(self):
        return self.x.shape

    def __dlpack__(self, **how):
        return self.x.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


# ---------------------------------------------------------------- views


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_a_tensor_is_looked_at_where_it_is(dtype):
    tensor = torch.ones(3, 4, dtype=dtype)
    view = native(tensor)
    assert type(view) is np.ndarray
    assert view.__array_interface__["data"][0] == tensor.data_ptr()
    back = hand_back(np.ones(3), home_of(tensor))
    assert are_tensors(back)


def test_what_comes_back_shares_memory_unless_it_must_not_be_written_to():
    home, x = home_of(torch.ones(1)), np.arange(3.0)
    assert hand_back(x, home).data_ptr() == x.__array_interface__["data"][0]
    x.flags.writeable = False
    back = hand_back(x, home)
    back += 1
    np.testing.assert_array_equal(x, [0, 1, 2])


def test_tensors_with_a_gradient_are_taken_for_their_values():
    tensor = torch.ones(3, dtype=torch.float64, requires_grad=True)
    np.testing.assert_array_equal(native(tensor * 2), [2, 2, 2])


def test_numpy_arrays_and_numbers_are_not_foreign(elsewhere):
    for x in (np.ones(2), np.float64(1), 3.0, [1.0], elsewhere.array([1.0]), torch.Tensor):
        assert not is_foreign(x)
        assert native(x) is x
        assert home_of(x) is None


def test_a_tensor_that_numpy_cannot_look_at_is_an_error_that_names_it():
    with pytest.raises(TypeError, match=r"Y must share its memory .*, got a torch array of torch\.bfloat16"):
        rg.CrossSamples.from_dense(torch.ones(5, 5, dtype=torch.bfloat16), [0, 1], [0, 1])


# ---------------------------------------------------------------- ways in


def test_samples_are_those_of_numpy(host_samples, samples):
    for name in ("r_block", "c_block"):
        for part in ("indptr", "index", "value"):
            found, expected = (getattr(getattr(s, name), part) for s in (samples, host_samples))
            assert type(found) is np.ndarray
            np.testing.assert_array_equal(found, expected)


def test_triplets_and_masks_are_taken_as_well(host_samples, dense):
    s = host_samples
    i, j = np.nonzero(~np.isnan(dense))
    parts = tuple(map(torch.from_numpy, (i, j, dense[i, j])))
    by_triplets = rg.CrossSamples.from_triplets(*parts, dense.shape, s.rows, s.cols)
    seen = ~np.isnan(dense)
    masks = torch.from_numpy(seen[s.rows]), torch.from_numpy(seen[:, s.cols])
    by_masks = rg.CrossSamples.from_dense(torch.from_numpy(np.nan_to_num(dense)), s.rows, s.cols, *masks)
    for found in (by_triplets, by_masks):
        np.testing.assert_array_equal(found.r_block.value, s.r_block.value)
        np.testing.assert_array_equal(found.c_block.value, s.c_block.value)
        assert torch.is_tensor(found.home)


def test_samples_are_drawn_from_a_tensor(problem):
    X = problem.W @ problem.V.T
    expected = rg.ccs_sample(X, 50, 45, 0.6, 0.6, seed=1)
    found = rg.ccs_sample(torch.from_numpy(X), 50, 45, 0.6, 0.6, seed=1)
    np.testing.assert_array_equal(found.r_block.value, expected.r_block.value)
    assert are_tensors(rg.rcurc(found, RANK).cur.left)


def test_samples_keep_no_memory_of_the_user(dense, problem):
    s, tensor = problem.samples, torch.from_numpy(dense.copy())
    made = rg.CrossSamples.from_dense(tensor, s.rows, s.cols)
    before = made.r_block.value.copy()
    tensor.zero_()
    np.testing.assert_array_equal(made.r_block.value, before)
    assert made.home.untyped_storage().nbytes() == 0


def test_an_array_that_only_speaks_dlpack_gives_a_result_of_numpy(problem, dense, host_result):
    s = problem.samples
    made = rg.CrossSamples.from_dense(Shared(dense), s.rows, s.cols)
    found = rg.rcurc(made, RANK)
    assert type(found.cur.left) is np.ndarray
    np.testing.assert_array_equal(found.cur.left, host_result.cur.left)


# ---------------------------------------------------------------- results


def test_the_result_is_that_of_numpy_in_tensors(result, host_result):
    assert result.converged
    assert result.kernels == host_result.kernels  # compiled ones, not plain code on tensors
    assert are_tensors(result.cur.left, result.cur.right)
    np.testing.assert_array_equal(result.cur.left.numpy(), host_result.cur.left)
    np.testing.assert_array_equal(result.cur.right.numpy(), host_result.cur.right)


def test_single_precision_stays_single(problem, dense):
    s = problem.samples
    made = rg.CrossSamples.from_dense(torch.from_numpy(dense.astype(np.float32)), s.rows, s.cols)
    found = rg.rcurc(made, RANK)
    assert are_tensors(found.cur.left, found.cur[:, 0], dtype=torch.float32)
    assert problem.relative_error(found.cur) < 1e-4


def test_the_matrix_is_read_in_tensors(problem, result):
    cur, X = result.cur, problem.W @ problem.V.T
    assert are_tensors(cur[3, 4], cur[3, :], cur[:, [4, 5]], cur.C, cur.U, cur.R, cur.to_dense())
    np.testing.assert_allclose(cur[torch.tensor([3, 1]), 2:9].numpy(), X[[3, 1], 2:9], atol=1e-7)
    np.testing.assert_allclose(cur.entries(torch.tensor([3, 1]), [4, 5]).numpy(), X[[3, 1], [4, 5]], atol=1e-7)
    np.testing.assert_allclose((cur @ torch.ones(120, 2, dtype=torch.float64)).numpy(), X @ np.ones((120, 2)), atol=1e-6)
    lower, upper = result.interval(torch.tensor([3, 1]), torch.tensor([4, 5]))
    assert are_tensors(lower, upper)
    np.testing.assert_allclose(cur.singular_values(), np.linalg.svdvals(X)[:RANK], rtol=1e-6)
    assert problem.relative_error(cur) <= 1e-8
    out = torch.empty(cur.shape, dtype=torch.float64)
    assert cur.to_dense(out=out) is out
    np.testing.assert_allclose(out.numpy(), X, atol=1e-6)


def test_outliers_are_those_of_numpy(result, host_result, dense):
    np.testing.assert_array_equal(result.outlier_table(), host_result.outlier_table())
    for found, expected in zip(result.outliers(), host_result.outliers(), strict=True):
        assert (found != expected).nnz == 0
    assert (result.outliers_of(torch.from_numpy(dense)) != host_result.outliers_of(dense)).nnz == 0


def test_new_columns_and_rows_are_completed_in_tensors(problem, result, host_result):
    rng, s = np.random.default_rng(0), problem.samples
    columns = (problem.W @ rng.standard_normal((RANK, 4)))[s.rows]
    rows = (rng.standard_normal((5, RANK)) @ problem.V.T)[:, s.cols]
    for Y, name in ((columns, "transform_columns"), (rows, "transform_rows")):
        Y[rng.random(Y.shape) > 0.6] = np.nan
        found, expected = getattr(result, name)(torch.from_numpy(Y)), getattr(host_result, name)(Y)
        assert are_tensors(found.matrix.left, found.matrix.right)
        np.testing.assert_array_equal(found.matrix.left.numpy(), expected.matrix.left)
        np.testing.assert_array_equal(found.matrix.right.numpy(), expected.matrix.right)


def test_with_noise_standard_deviations_are_tensors():
    noisy = rg.synthetic((110, 120), RANK, 0.1, 10, 0.05, n_rows=50, n_cols=45, rate=0.6, seed=7)
    s = noisy.samples
    i, j, y = (np.concatenate(x) for x in zip(_entries(s.R, s.rows, None), _entries(s.C, None, s.cols), strict=True))
    made = rg.CrossSamples.from_triplets(*map(torch.from_numpy, (i, j, y)), s.shape, s.rows, s.cols)
    found, expected = rg.rcurc(made, RANK, accuracy=0.1), rg.rcurc(s, RANK, accuracy=0.1)
    pairs = [x.cur.entries([1, 2, 3], [4, 5, 6], return_std=True) for x in (found, expected)]
    assert are_tensors(pairs[0][0])
    for there, here in zip(*pairs, strict=True):
        np.testing.assert_allclose(there.numpy(), here, rtol=1e-12)
    lower, upper = found.interval([1, 2], [3, 4])
    np.testing.assert_allclose(lower.numpy(), expected.interval([1, 2], [3, 4])[0], rtol=1e-10)
    assert bool((lower < upper).all())


def _entries(block, rows, cols):
    coo = block.tocoo()
    row, col = (np.asarray(x, dtype=np.int64) for x in (coo.row, coo.col))
    return row if rows is None else rows[row], col if cols is None else cols[col], coo.data


@pytest.mark.parametrize("solve", [rg.robust_pca, rg.ircur])
def test_robust_pca_of_a_tensor(problem, solve):
    X = problem.W @ problem.V.T
    rng = np.random.default_rng(3)
    Y = np.where(rng.random(X.shape) < 0.05, rng.uniform(-30, 30, X.shape), X)
    found, expected = solve(torch.from_numpy(Y), RANK), solve(Y, RANK)
    assert are_tensors(found.cur.left, found.cur.right)
    np.testing.assert_array_equal(found.cur.left.numpy(), expected.cur.left)
    assert problem.relative_error(found.cur) < 1e-4


def test_a_callback_sees_tensors(samples):
    seen = []
    rg.rcurc(samples, RANK, method="paper", callback=lambda state: seen.append(state.cur()))
    assert len(seen) > 5
    assert are_tensors(*(cur.left for cur in seen), *(cur.right for cur in seen))


def test_the_estimator_takes_samples_of_tensors(samples, dense):
    found = rg.RobustCURCompletion(RANK, replace="outliers").fit(samples)
    np.testing.assert_array_equal(np.isnan(found.transform(dense)), np.zeros_like(dense, dtype=bool))


def test_a_saved_matrix_is_loaded_into_tensors(result, tmp_path):
    result.cur.save(tmp_path / "X.npz")
    loaded = rg.CURMatrix.load(tmp_path / "X.npz", like=result.cur.left)
    assert are_tensors(loaded.left, loaded.right)
    assert torch.equal(loaded.left, result.cur.left)
