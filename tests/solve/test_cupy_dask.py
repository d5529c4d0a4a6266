"""Workers of a Dask cluster that have GPUs."""

import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from clusters import local_cluster, wait_for, within
from conftest import DEVICE, SKIP_CUPY

import rcurc_gpu as rg
from rcurc_gpu import progress
from rcurc_gpu.shards import ShardedSamples
from rcurc_gpu.solve import cluster, driver

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)
if DEVICE == "emulator":
    import hostgpu

RANK = 3
emulated = pytest.mark.skipif(DEVICE != "emulator", reason="one GPU serves both workers, so what they do is not told apart")
# what a worker does before anything else: the emulator has to be there before CuPy is imported
PRELOAD = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import hostgpu
if not hostgpu.installed():
    hostgpu.install()
"""


@pytest.fixture(autouse=True)
def no_hanging():
    with within(600):  # workers may have to compile kernels
        yield


@pytest.fixture(scope="module")
def client():
    with local_cluster(method="spawn", preload=[PRELOAD] * (DEVICE == "emulator")) as client:
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


def test_workers_use_their_gpus_if_asked_to(client, problem, expected):
    if DEVICE == "emulator":
        client.run(hostgpu.reset_stats)
    found = rg.rcurc(cut(problem.samples), RANK, client=client, device="cuda")
    assert (found.device, found.kernels) == ("cuda:0", "cuda")
    assert isinstance(found.cur.left, np.ndarray)
    assert_close(found, expected)
    if DEVICE == "emulator":
        launched = [worker["launches_by_kernel"] for worker in client.run(hostgpu.stats).values()]
        assert sum("threshold" in kernels for kernels in launched) == 1  # the core, on one of them
        assert all(kernels["regress"] > 0 for kernels in launched)


@pytest.fixture
def no_gpu_here(monkeypatch):
    """As where the client runs on a machine without one."""

    def fail(*_):
        raise AssertionError("workers have GPUs")

    monkeypatch.setattr(cluster, "InProcess", lambda: SimpleNamespace(find_core=fail))
    monkeypatch.setattr(driver, "place_for", lambda device, like: like[:0] if device == "auto" else fail())


@emulated
def test_only_workers_need_a_gpu(client, no_gpu_here, tmp_path):
    noisy = rg.synthetic((110, 120), RANK, 0.1, 10, 0.02, n_rows=50, n_cols=45, rate=0.7, seed=7)
    options = {"accuracy": 0.1, "sweeps": None}
    found = rg.rcurc(cut(noisy.samples), RANK, client=client, device="cuda", output=tmp_path / "result", **options)
    assert found.device == "cuda:0"
    assert_close(found, rg.rcurc(noisy.samples, RANK, **options))


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_gpus_of_workers_are_left_alone(client, problem, expected, device):
    """Observations are on the host, in shards: by default they are solved on the CPU, as everywhere."""
    found = rg.rcurc(cut(problem.samples), RANK, client=client, device=device)
    assert (found.device, found.kernels) == ("cpu", expected.kernels)
    assert_close(found, expected)


@emulated
def test_a_core_that_is_lost_with_all_workers_is_solved_again(client, problem, expected, no_gpu_here, monkeypatch):
    monkeypatch.setattr(cluster, "_LOOK", 0.2)
    killed = []

    def kill_all():
        wait_for(lambda: any("solve_core" in str(key) for keys in client.processing().values() for key in keys))
        killed.extend(client.run(os.getpid).values())
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    def stage(self, name, total=None):
        if name == "core, on a worker" and not killed:
            thread.start()

    thread = threading.Thread(target=kill_all)
    monkeypatch.setattr(progress.Progress, "stage", stage)
    found = rg.rcurc(cut(problem.samples), RANK, client=client, device="cuda")
    thread.join()
    assert len(killed) == 2
    assert found.device == "cuda:0"
    assert_close(found, expected)
