"""The whole solver in another array namespace, on a device to which nothing may be transferred implicitly."""

import array_api_strict
import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backend import device_name, namespace_for_device, sparse_module, to_numpy

DEVICE = array_api_strict.Device("device1")


@pytest.fixture(scope="module")
def problem():
    return rg.synthetic((200, 220), 3, 0.15, 5, n_rows=90, n_cols=80, rate=0.5, seed=1)


@pytest.fixture(scope="module")
def strict(problem):
    return problem.samples.to_namespace(array_api_strict, DEVICE)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "paper"},
        {"sweeps": 1},
        {"rank": "auto"},
        {"rank": 4},
        {"holdout": 0.0},
        {"chunk_bytes": 20_000},
        {"max_iter": 3},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::rcurc_gpu.ConvergenceWarning")
def test_the_solver_runs_there_and_agrees_with_numpy(problem, strict, options):
    options = {"rank": 3, "seed": 0} | options
    there, here = rg.rcurc(strict, **options), rg.rcurc(problem.samples, **options)
    assert array_api_strict.Device("device1") == there.cur.left.device == there.cur.right.device
    np.testing.assert_allclose(to_numpy(there.cur.left), here.cur.left, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(to_numpy(there.cur.right), here.cur.right, rtol=1e-9, atol=1e-12)
    assert (there.converged, there.message, there.n_iter) == (here.converged, here.message, here.n_iter)


def test_a_sparse_core_and_second_looks_run_there(monkeypatch):
    from rcurc_gpu import core

    problem = rg.synthetic((300, 300), 2, 0.3, 10, n_rows=120, n_cols=120, rate=0.15, seed=2)
    there = problem.samples.to_namespace(array_api_strict, DEVICE)
    monkeypatch.setattr(
        core, "make_grid", lambda *a: __import__("rcurc_gpu.grid", fromlist=["x"]).PaddedGrid.of(*a[:2], 1 << 20)
    )
    first, second = (rg.rcurc(s, 2, undetermined="keep") for s in (there, problem.samples))
    np.testing.assert_allclose(to_numpy(first.cur.left), second.cur.left, rtol=1e-8, atol=1e-12)


def test_results_stay_where_they_are(problem, strict):
    result = rg.rcurc(strict, 3)
    xp = array_api_strict
    block = result.cur[5:9, [1, 2]]
    assert block.device == DEVICE
    x = xp.ones((220,), dtype=xp.float64, device=DEVICE)
    assert (result.cur @ x).device == DEVICE
    assert result.cur.entries([1, 2], [3, 4]).device == DEVICE
    Y = xp.asarray(problem.W[problem.samples.rows] @ np.ones((3, 2)), device=DEVICE)
    out = result.transform_columns(Y)
    np.testing.assert_allclose(to_numpy(out.matrix.to_dense()), problem.W @ np.ones((3, 2)), atol=1e-8)
    with pytest.raises(TypeError, match="no sparse matrices"):
        result.outliers()


def test_devices_have_names(strict):
    assert device_name(np.zeros(1)) == "cpu"
    assert "device1" in strict.device
    with pytest.raises(ValueError, match="device must be 'auto', 'cpu' or 'cuda', got 'tpu'"):
        namespace_for_device("tpu")
    assert namespace_for_device("cpu") == (np, "cpu")
    assert sparse_module(np.zeros(1)).__name__ == "scipy.sparse"
