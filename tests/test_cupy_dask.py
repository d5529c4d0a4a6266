"""Workers of a Dask cluster that have GPUs."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from clusters import local_cluster, wait_for, within
from conftest import DEVICE, SKIP_CUPY

import rcurc_gpu as rg
from rcurc_gpu.shards import ShardedSamples, cluster, on_worker

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

RANK = 3
# what a worker does before anything else: the emulator has to be there before CuPy is imported
PRELOAD = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport hostgpu\nhostgpu.install()\n"


@pytest.fixture(autouse=True)
def no_hanging():
    with within(600):  # workers may have to compile kernels
        yield


@pytest.fixture(scope="module")
def client():
    with local_cluster(**({"preload": [PRELOAD]} if DEVICE == "emulator" else {})) as client:
        yield client


@pytest.fixture(scope="module")
def problem():
    return rg.synthetic((110, 120), RANK, 0.1, 10, n_rows=50, n_cols=45, rate=0.7, seed=7)


@pytest.fixture(scope="module")
def expected(problem):
    """The truth, and what NumPy makes of it."""
    found = rg.rcurc(problem.samples, RANK)
    assert problem.relative_error(found.cur) < 1e-8
    return found


def cut(samples):
    found = ShardedSamples.of(samples, 12_000)
    assert min(len(found.r_shards), len(found.c_shards)) > 1
    return found


def assert_close(found, expected):
    X, Y = np.asarray(found.cur.to_dense()), expected.cur.to_dense()
    assert np.linalg.norm(X - Y) <= 1e-10 * np.linalg.norm(Y)
    assert (found.converged, found.n_iter) == (expected.converged, expected.n_iter)
    for side in ("columns", "rows"):
        for name in ("status", "n_obs", "n_inliers"):
            one, other = (np.asarray(getattr(getattr(r, side), name)) for r in (found, expected))
            np.testing.assert_array_equal(one, other)


def kernels_run():
    """How many kernels ran on the emulator of a worker; its own kernels have our names."""
    import hostgpu

    return hostgpu.stats()


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_workers_use_their_gpus(client, problem, expected, device, tmp_path):
    found = rg.rcurc(cut(problem.samples), RANK, client=client, device=device)
    print(client.run(kernels_run))
    assert (found.device, found.kernels) == ("cuda:0", "cuda")
    assert isinstance(found.cur.left, np.ndarray)
    assert_close(found, expected)
