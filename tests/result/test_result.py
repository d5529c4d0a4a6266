"""Outliers and new columns and rows."""

import numpy as np
import pytest
import scipy.sparse

import rcurc_gpu as rg


@pytest.fixture(scope="module")
def solved():
    problem = rg.synthetic((400, 360), 3, 0.15, 10, n_rows=150, n_cols=140, rate=0.4, seed=6)
    return problem, rg.rcurc(problem.samples, 3)


def test_outliers_are_those_that_were_put_in(solved):
    problem, result = solved
    s = problem.samples
    for found, block, positions in zip(
        result.outliers(),
        (s.R.tocoo(), s.C.tocoo()),
        (lambda m: (s.rows[m.row], m.col), lambda m: (m.row, s.cols[m.col])),
        strict=True,
    ):
        assert found.shape == block.shape
        i, j = positions(block)
        expected = scipy.sparse.coo_array(
            (
                np.where(problem.is_outlier(i, j), problem.entries(i, j) - problem.truth(i, j), 0),
                (block.row, block.col),
            ),
            shape=block.shape,
        ).toarray()
        np.testing.assert_allclose(found.toarray(), expected, atol=1e-6)
        assert found.nnz == problem.is_outlier(i, j).sum()


def new_columns(problem, rng, k=30, share=0.4):
    coefficients = rng.standard_normal((k, 3))
    X = problem.W @ coefficients.T
    Y = X[problem.samples.rows].copy()
    hit = rng.random(Y.shape) < 0.15
    Y[hit] += rng.uniform(-10, 10, hit.sum())
    Y[rng.random(Y.shape) > share] = np.nan
    return X, Y


def test_new_columns_are_completed(solved):
    problem, result = solved
    X, Y = new_columns(problem, np.random.default_rng(0))
    kept = Y.copy()
    out = result.transform_columns(Y)
    np.testing.assert_array_equal(Y, kept)
    assert out.matrix.shape == X.shape
    np.testing.assert_allclose(out.matrix.to_dense(), X, atol=1e-7)
    assert len(out.diagnostics.undetermined) == 0


def test_dense_masked_and_sparse_input_agree(solved):
    problem, result = solved
    _, Y = new_columns(problem, np.random.default_rng(1), k=7)
    mask = ~np.isnan(Y)
    i, j = np.nonzero(mask)
    sparse = scipy.sparse.csr_array((Y[i, j], (i, j)), shape=Y.shape)
    first = result.transform_columns(Y).matrix.to_dense()
    np.testing.assert_array_equal(result.transform_columns(np.nan_to_num(Y), mask).matrix.to_dense(), first)
    np.testing.assert_array_equal(result.transform_columns(sparse).matrix.to_dense(), first)


def test_new_rows_are_completed(solved):
    problem, result = solved
    rng = np.random.default_rng(2)
    coefficients = rng.standard_normal((11, 3))
    X = coefficients @ problem.V.T
    Y = X[:, problem.samples.cols].copy()
    Y[rng.random(Y.shape) > 0.4] = np.nan
    Y[0] = np.nan
    out = result.transform_rows(Y, undetermined="nan")
    assert out.matrix.shape == X.shape
    assert list(out.diagnostics.undetermined) == [0]
    assert np.isnan(out.matrix[0, :]).all()
    np.testing.assert_allclose(out.matrix[1:, :], X[1:], atol=1e-7)
    # by default a row of which nothing is known is like the mean of all others
    out = result.transform_rows(Y)
    assert list(out.diagnostics.undetermined) == [0]
    np.testing.assert_allclose(out.matrix[0, :], (problem.W @ problem.V.T).mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(out.matrix[1:, :], X[1:], atol=1e-7)


def test_wrong_new_data_is_refused(solved):
    _, result = solved
    with pytest.raises(ValueError, match="Y_new must have 150 rows, one for each of the chosen rows I, got 149"):
        result.transform_columns(np.zeros((149, 2)))
    with pytest.raises(ValueError, match="Y_new must have 140 columns, one for each of the chosen columns J, got 3"):
        result.transform_rows(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="two-dimensional"):
        result.transform_columns(np.zeros(150))
    with pytest.raises(ValueError, match="must be finite"):
        result.transform_columns(np.full((150, 1), np.inf))
    with pytest.raises(ValueError, match="mask must have shape"):
        result.transform_columns(np.zeros((150, 2)), np.ones((150, 1), bool))


def test_a_result_says_in_words_how_it_went(solved):
    _, result = solved
    assert repr(result).startswith(f"Result: confirmed\n  {result.message}\n")
    assert "rank 3, float64" in repr(result)
    assert result.device == "cpu"
    assert result.method == "fast"


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_single_precision_go_through_a_fit_of_double_precision(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((150, 3)) * [100, 10, 1] @ rng.standard_normal((3, 60))
    wrong = rng.random(X.shape) < 0.1
    Y = np.where(wrong, X + 50 * rng.standard_normal(X.shape), X)
    result = rg.rcurc(rg.CrossSamples.from_dense(Y[:100], np.arange(100), np.arange(60)), 3)
    new = result.transform_rows(Y[100:].astype(np.float32))
    assert len(new.diagnostics.undetermined) == 0
    assert np.linalg.norm(new.matrix.to_dense() - X[100:]) < 1e-5 * np.linalg.norm(X[100:])
    found = result.outliers_of(Y[:100].astype(np.float32)).toarray() != 0
    big = np.abs(Y - X)[:100] > 0.01
    np.testing.assert_array_equal(found[big], True)
    assert not found[~wrong[:100]].any()
