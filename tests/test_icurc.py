"""Completion without outliers: `icurc` against the truth, against its authors' recursion, and against `rcurc`."""

import warnings

import numpy as np
import pytest

import rcurc_gpu as rg


def problem(size=600, rank=5, alpha=0.0, noise=0.0, rate=0.3, seed=0, **more):
    return rg.synthetic(
        (size, size), rank, alpha, 10, noise, n_rows=size // 3, n_cols=size // 3, rate=rate, seed=seed, **more
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("rank", [2, 5, 10])
@pytest.mark.parametrize(("method", "error"), [("fast", 1e-8), ("paper", 1e-5)])
def test_the_whole_matrix_is_recovered(method, error, rank, seed):
    p = problem(900, rank, seed=seed)
    result = rg.icurc(p.samples, rank, method=method)
    assert p.relative_error(result.cur) <= error
    assert result.converged
    assert result.rank == rank


def dense_icurc(p, rank, iterations):
    """The authors' recursion on dense blocks with full SVDs, for samples of one rate in both blocks."""
    s = p.samples
    I, J = s.rows, s.cols  # noqa: E741
    n1, n2 = s.shape
    R, C = np.full((len(I), n2), np.nan), np.full((n1, len(J)), np.nan)
    for block, out in ((s.r_block, R.T), (s.c_block, C)):
        out[block.unit_of_entry(), block.index] = block.value
    U = np.where(np.isnan(R[:, J]), C[I], R[:, J])  # what either sees
    eta = 1 / s.rate_rows, 1 / s.rate_cols, 1 / (s.rate_rows + s.rate_cols)
    X_R, X_C = np.zeros_like(R), np.zeros_like(C)
    for _ in range(iterations):
        new_R = X_R + eta[0] * np.nan_to_num(R - X_R)
        new_C = X_C + eta[1] * np.nan_to_num(C - X_C)
        new_U = X_R[:, J] + eta[2] * np.nan_to_num(U - X_R[:, J])
        w, sv, vt = np.linalg.svd(new_U, full_matrices=False)
        w, sv, vt = w[:, :rank], sv[:rank], vt[:rank]
        new_R[:, J] = new_C[I] = (w * sv) @ vt
        X_R, X_C = w @ (w.T @ new_R), (new_C @ vt.T) @ vt
    return X_C @ (vt.T / sv) @ (w.T @ X_R)


@pytest.mark.parametrize("iterations", [1, 4, 9])
def test_the_papers_method_takes_its_authors_steps(iterations):
    p = problem(200, 3, rate=0.5)
    with pytest.warns(rg.ConvergenceWarning):
        result = rg.icurc(p.samples, 3, method="paper", max_iter=iterations, tol=0, holdout=0, undetermined="keep")
    expected = dense_icurc(p, 3, iterations)
    assert np.linalg.norm(result.cur.to_dense() - expected) <= 1e-8 * np.linalg.norm(expected)


def test_it_agrees_with_rcurc_where_there_are_no_outliers():
    p = problem(rate=0.25, seed=3)
    one, other = rg.icurc(p.samples, 5), rg.rcurc(p.samples, 5)
    assert np.linalg.norm(one.cur.to_dense() - other.cur.to_dense()) <= 1e-8 * np.linalg.norm(other.cur.to_dense())


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_with_noise_it_is_as_good_as_least_squares_can_be(noise):
    p = problem(noise=noise, seed=4)
    result = rg.icurc(p.samples, 5, accuracy=0.1)
    assert result.converged
    # told the true column space, and with every observation of a column: what noise leaves is about this
    per_unit = p.samples.r_block.counts.mean()
    rms = np.sqrt(np.mean((p.W @ p.V.T) ** 2))
    oracle = noise * p.mean_abs * np.sqrt(5 / per_unit) / rms
    assert p.relative_error(result.cur) <= 3 * oracle
    assert p.relative_error(result.cur) <= 2 * result.expected_error


@pytest.mark.parametrize("method", ["fast", "paper"])
@pytest.mark.parametrize("alpha", [0.002, 0.02, 0.1])
def test_outliers_are_noticed_and_rcurc_is_named(alpha, method):
    p = problem(alpha=alpha, seed=5)
    with pytest.warns(rg.ConvergenceWarning, match="use rcurc"):
        result = rg.icurc(p.samples, 5, method=method)
    assert not result.converged
    assert rg.rcurc(p.samples, 5).converged


def test_few_observations_are_completed_as_by_rcurc():
    """Plain gradient steps overshoot here; the fallback does not."""
    p = problem(900, 5, rate=0.1, seed=6)
    assert p.relative_error(rg.icurc(p.samples, 5).cur) <= 1e-8


def test_the_rank_is_found():
    p = problem(rank=4, seed=7)
    result = rg.icurc(p.samples, "auto")
    assert result.rank == 4
    assert p.relative_error(result.cur) <= 1e-8


@pytest.mark.parametrize("method", ["fast", "paper"])
def test_it_runs_elsewhere(elsewhere, method):
    p = problem(150, 2, rate=0.6, seed=8)
    samples = p.samples.to_namespace(
        elsewhere.namespace, **({} if "cupy" in str(elsewhere) else {"device": elsewhere.device})
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        result = rg.icurc(samples, 2, method=method)
    X = elsewhere.numpy(result.cur.to_dense())
    assert np.linalg.norm(X - p.W @ p.V.T) <= 1e-5 * np.linalg.norm(X)


def test_plain_and_compiled_agree():
    p = problem(seed=9)
    one, other = (rg.icurc(p.samples, 5, kernels=kernels).cur.to_dense() for kernels in ("xp", "fused"))
    assert np.linalg.norm(one - other) <= 1e-9 * np.linalg.norm(one)


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match="samples must be a CrossSamples"):
        rg.icurc(np.zeros((3, 3)), 1)
    with pytest.raises(ValueError, match="step_core must be in"):
        rg.icurc(problem(100, 2).samples, 2, step_core=-1)
    with pytest.raises(TypeError, match="gamma"):
        rg.icurc(problem(100, 2).samples, 2, gamma=0.5)
