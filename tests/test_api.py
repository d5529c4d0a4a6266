"""The solver against the truth, at the paper's settings, with default parameters."""

import itertools
import warnings

import numpy as np
import pytest

import rcurc_gpu as rg

CELLS = list(itertools.product((5, 10, 20), (0.1, 0.2, 0.3), (1, 10, 100)))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("rank", "alpha", "c"), CELLS)
def test_every_cell_is_recovered(rank, alpha, c, seed):
    problem = rg.synthetic((1500, 1500), rank, alpha, c, seed=[11, 12, 13][seed])
    result = rg.rcurc(problem.samples, rank)
    assert problem.relative_error(result.cur) <= 1e-6
    assert result.converged
    assert result.cause == ""


@pytest.mark.parametrize(("rank", "c"), list(itertools.product((5, 10, 15, 20, 25), (5, 10, 20))))
def test_the_papers_setting_is_recovered(rank, c):
    problem = rg.synthetic((3000, 3000), rank, 0.2, c, n_rows=900, n_cols=900, rate=0.25, seed=rank)
    result = rg.rcurc(problem.samples, rank)
    assert problem.relative_error(result.cur) <= 1e-6
    assert result.converged


@pytest.mark.parametrize(("rank", "rate"), [(5, 0.06), (10, 0.10)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_at_the_edge_the_core_and_every_column_with_enough_inliers_is_right(rank, rate, seed):
    problem = rg.synthetic((1500, 1500), rank, 0.2, 10, rate=rate, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        result = rg.rcurc(problem.samples, rank, undetermined="nan")
    assert problem.core_error(result.cur) <= 1e-6
    for errors, block, names, is_outlier in (
        (
            problem.column_errors(result.cur),
            problem.samples.r_block,
            problem.samples.rows,
            lambda unit, place: problem.is_outlier(place, unit),
        ),
        (problem.row_errors(result.cur), problem.samples.c_block, problem.samples.cols, problem.is_outlier),
    ):
        unit = block.unit_of_entry()
        inliers = np.bincount(unit[~is_outlier(unit, names[block.index])], minlength=block.n_units)
        enough = inliers >= np.maximum(2 * rank, 0.6 * block.counts)
        assert enough.mean() > 0.9
        assert (errors[enough] <= 1e-6).all()
        # what is not NaN is right
        assert np.nanmax(errors) <= 1e-6


@pytest.mark.parametrize("rank", [5, 20])
def test_float32_stays_float32_and_is_accurate(rank):
    problem = rg.synthetic((1500, 1500), rank, 0.2, 10, seed=3, dtype=np.float32)
    result = rg.rcurc(problem.samples, rank)
    assert result.cur.dtype == np.float32
    assert problem.relative_error(result.cur) <= 1e-4
    assert result.converged


def test_integers_are_converted_without_overflow():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 12, (300, 2)) @ rng.integers(0, 10, (2, 280))
    Y = X.astype(np.uint8)
    assert X.max() <= 255
    hit = rng.random(Y.shape) < 0.1
    Y[hit] = 255 - Y[hit]
    samples = rg.CrossSamples.from_dense(Y, np.arange(0, 300, 2), np.arange(0, 280, 2))
    result = rg.rcurc(samples, 2)
    assert np.abs(result.cur.to_dense() - X).max() < 1e-6


def test_the_same_seed_gives_the_same_bits_and_inputs_are_not_modified():
    problem = rg.synthetic((400, 420), 4, 0.2, 10, rate=0.4, seed=5)
    before = problem.samples.r_block.value.copy()
    first, second = (rg.rcurc(problem.samples, 4, seed=9) for _ in range(2))
    np.testing.assert_array_equal(first.cur.left, second.cur.left)
    np.testing.assert_array_equal(first.cur.right, second.cur.right)
    np.testing.assert_array_equal(problem.samples.r_block.value, before)
    again = rg.rcurc(problem.samples, 4, seed=np.random.default_rng(1))
    assert problem.relative_error(again.cur) <= 1e-6


@pytest.mark.parametrize("chunk_bytes", [1, 20_000, 1 << 30])
def test_the_size_of_chunks_does_not_matter(chunk_bytes):
    problem = rg.synthetic((200, 150), 2, 0.1, 10, n_rows=60, n_cols=50, rate=0.5, seed=5)
    result = rg.rcurc(problem.samples, 2, chunk_bytes=chunk_bytes)
    assert problem.relative_error(result.cur) <= 1e-8


def test_a_fully_chosen_matrix_has_nothing_to_extend():
    problem = rg.synthetic((80, 70), 2, 0.1, 10, n_rows=80, n_cols=70, rate=0.5, seed=5)
    for method in ("fast", "paper"):
        result = rg.rcurc(problem.samples, 2, method=method)
        assert problem.relative_error(result.cur) <= 1e-5


def test_history_tells_every_iteration():
    problem = rg.synthetic((400, 400), 3, 0.2, 10, rate=0.4, seed=5)
    result = rg.rcurc(problem.samples, 3)
    assert [state.iteration for state in result.history] == list(range(1, result.n_iter + 1))
    thresholds = [state.threshold for state in result.history]
    assert thresholds == sorted(thresholds, reverse=True)
    assert result.history[-1].error < 1e-15
    assert abs(result.history[-1].outlier_share - 0.2) < 0.02
    assert result.history[-1].change < 1e-9
    seconds = [state.seconds for state in result.history]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= result.seconds


def test_a_callback_sees_iterations_and_can_stop():
    problem = rg.synthetic((400, 400), 3, 0.2, 10, rate=0.4, seed=5)
    seen = []

    def stop_at_seven(state):
        seen.append(state)
        return state.iteration == 7

    for method in ("fast", "paper"):
        seen.clear()
        with pytest.warns(rg.ConvergenceWarning):
            result = rg.rcurc(problem.samples, 3, method=method, callback=stop_at_seven)
        assert [state.iteration for state in seen] == list(range(1, 8))
        assert result.n_iter == 7
        assert not result.converged


def test_undetermined_columns_are_typical_or_nan_or_kept_on_request():
    problem = rg.synthetic((300, 320), 3, 0.1, 10, rate=0.4, seed=5)
    s = problem.samples
    empty = np.setdiff1d(np.arange(320), s.cols)[4]
    R = s.R.tolil()
    R[:, [empty]] = 0
    R = R.tocsc()
    R.eliminate_zeros()
    samples = rg.CrossSamples.from_blocks(R, s.C, s.rows, s.cols)
    with pytest.warns(rg.ConvergenceWarning, match=rf"the first is {empty}"):
        result = rg.rcurc(samples, 3)
    assert list(result.columns.undetermined) == [empty]
    assert np.allclose(result.cur[:, empty], result.cur.C.mean(axis=1))
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.rcurc(samples, 3, undetermined="nan")
    assert np.isnan(result.cur[:, empty]).all()
    assert problem.relative_error(result.cur, undetermined="skip") <= 1e-8
    with pytest.warns(rg.ConvergenceWarning):
        kept = rg.rcurc(samples, 3, undetermined="keep")
    assert np.isfinite(kept.cur[:, empty]).all()


def test_observed_zeros_are_data():
    """A matrix that is mostly 0, with zeros observed: taking 0 for missing would lose it."""
    rng = np.random.default_rng(3)
    W = rng.random((200, 2)) * (rng.random((200, 2)) < 0.5)
    V = rng.random((200, 2)) * (rng.random((200, 2)) < 0.5)
    X = W @ V.T
    assert (X == 0).mean() > 0.4
    result = rg.rcurc(rg.ccs_sample(X, 100, 100, 0.6, 0.6, seed=1), 2)
    assert np.linalg.norm(result.cur.to_dense() - X) <= 1e-7 * np.linalg.norm(X)


@pytest.mark.parametrize(
    ("dtype", "unit"), [("f4", 1e-30), ("f4", 1e-9), ("f4", 1e15), ("f8", 1e-160), ("f8", 1e-30), ("f8", 1e150)]
)
@pytest.mark.parametrize("noise", [0.0, 0.001])
def test_units_do_not_matter(dtype, unit, noise):
    rng = np.random.default_rng(0)
    W, V = rng.standard_normal((200, 3)), rng.standard_normal((3, 190))
    X = W @ V
    Y = X + noise * rng.standard_normal(X.shape)
    Y = np.where(rng.random(X.shape) < 0.1, rng.uniform(-10, 10, X.shape), Y)
    result = rg.rcurc(rg.ccs_sample((Y * unit).astype(dtype), 80, 80, 0.6, 0.6, seed=0), 3)
    assert result.converged
    limit = max(1e-4 if dtype == "f4" else 1e-8, 2 * noise)
    found = result.cur.to_dense().astype(float) / unit
    assert np.linalg.norm(found - X) <= limit * np.linalg.norm(X)
    cols = (X[result.samples.rows, :7] * unit).astype(dtype)
    rows = (X[:7][:, result.samples.cols] * unit).astype(dtype)
    for new, truth in ((result.transform_columns(cols), X[:, :7]), (result.transform_rows(rows), X[:7])):
        assert np.linalg.norm(new.matrix.to_dense().astype(float) / unit - truth) <= limit * np.linalg.norm(truth)
