"""The whole solver in another array namespace, on a device to which nothing may be transferred implicitly."""

import re
from dataclasses import replace

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.arrays import device_name, sparse_module
from rcurc_gpu.backends.devices import namespace_for_device
from rcurc_gpu.backends.kernels import XP
from rcurc_gpu.backends.plain.grid import PaddedGrid
from rcurc_gpu.solve import engine


@pytest.fixture(scope="module")
def problem():
    return rg.synthetic((120, 130), 3, 0.15, 5, n_rows=60, n_cols=55, rate=0.6, seed=1)


@pytest.fixture(scope="module")
def there(problem, elsewhere):
    return problem.samples.to_namespace(*elsewhere)


def assert_same_matrix(place, found, expected, tolerance=1e-9):
    """To `tolerance` of its norm, and NaN in the same rows and columns. Factors may differ in sign."""
    X, Y = place.numpy(found.left) @ place.numpy(found.right).T, expected.left @ expected.right.T
    np.testing.assert_array_equal(np.isnan(X), np.isnan(Y))
    assert np.linalg.norm(np.nan_to_num(X - Y)) <= tolerance * np.linalg.norm(np.nan_to_num(Y))


def words(result):
    """The message without its floating-point numbers, which may differ in the last digit."""
    return re.sub(r"\d\.\de[+-]\d+", "#", result.message)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "paper"},
        {"sweeps": 1},
        {"rank": "auto"},
        {"rank": 4},
        {"holdout": 0.0},
        {"chunk_bytes": 100_000},
        {"max_iter": 3},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::rcurc_gpu.ConvergenceWarning")
def test_the_solver_runs_there_and_agrees_with_numpy(problem, elsewhere, there, options):
    options = {"rank": 3, "seed": 0} | options
    found, here = rg.rcurc(there, **options), rg.rcurc(problem.samples, **options)
    assert_same_matrix(elsewhere, found.cur, here.cur)
    assert (found.converged, words(found), found.n_iter) == (here.converged, words(here), here.n_iter)


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore::rcurc_gpu.ConvergenceWarning")
def test_noise_is_swept_there_as_with_numpy(elsewhere):
    problem = rg.synthetic((120, 130), 2, 0.1, 10, noise=0.02, n_rows=60, n_cols=55, rate=0.6, seed=3)
    found, here = (rg.rcurc(s, 2, accuracy=0.1) for s in (problem.samples.to_namespace(*elsewhere), problem.samples))
    assert_same_matrix(elsewhere, found.cur, here.cur)
    assert (found.converged, words(found), found.n_iter) == (here.converged, words(here), here.n_iter)
    assert here.noise > 0
    assert found.expected_error == pytest.approx(here.expected_error, rel=1e-6)


@pytest.mark.smoke
def test_float32_stays_float32_there(elsewhere):
    problem = rg.synthetic((120, 130), 2, 0.1, 10, n_rows=60, n_cols=55, rate=0.6, seed=3, dtype=np.float32)
    result = rg.rcurc(problem.samples.to_namespace(*elsewhere), 2)
    assert elsewhere.numpy(result.cur.left).dtype == elsewhere.numpy(result.cur.right).dtype == np.float32
    assert result.converged
    assert problem.relative_error(result.cur) <= 1e-4


@pytest.mark.filterwarnings("ignore::rcurc_gpu.ConvergenceWarning")
def test_a_sparse_core_and_second_looks_run_there(elsewhere, monkeypatch):
    problem = rg.synthetic((150, 140), 2, 0.3, 10, n_rows=80, n_cols=80, rate=0.3, seed=2)
    there = problem.samples.to_namespace(*elsewhere)
    padded = replace(XP, make_grid=lambda block, weight, _: PaddedGrid.of(block, weight, 1 << 20))
    monkeypatch.setattr(engine, "choose", lambda *_: padded)
    found, here = (rg.rcurc(s, 2, undetermined="keep") for s in (there, problem.samples))
    assert_same_matrix(elsewhere, found.cur, here.cur, 1e-8)


@pytest.mark.smoke
def test_results_stay_where_they_are(problem, elsewhere, there):
    result = rg.rcurc(there, 3)
    X = problem.W @ problem.V.T
    np.testing.assert_allclose(elsewhere.numpy(result.cur[5:9, [1, 2]]), X[5:9, [1, 2]], atol=1e-7)
    np.testing.assert_allclose(elsewhere.numpy(result.cur @ elsewhere.array(np.ones(130))), X.sum(axis=1), atol=1e-6)
    np.testing.assert_allclose(elsewhere.numpy(result.cur.entries([1, 2], [3, 4])), X[[1, 2], [3, 4]], atol=1e-7)
    out = result.transform_columns(elsewhere.array(problem.W[problem.samples.rows] @ np.ones((3, 2))))
    np.testing.assert_allclose(elsewhere.numpy(out.matrix.to_dense()), problem.W @ np.ones((3, 2)), atol=1e-7)
    if "strict" in elsewhere.namespace.__name__:
        with pytest.raises(TypeError, match="no sparse matrices"):
            result.outliers()


def test_devices_have_names(elsewhere, there):
    assert device_name(np.zeros(1)) == "cpu"
    assert there.device == device_name(elsewhere.array(0.0)) != "cpu"
    with pytest.raises(ValueError, match=r"device must be 'auto', 'cpu', 'cuda' or 'cuda:1' .*, got 'tpu'"):
        namespace_for_device("tpu")
    assert namespace_for_device("cpu") == (np, "cpu")
    assert sparse_module(np.zeros(1)).__name__ == "scipy.sparse"
