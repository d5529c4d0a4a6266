"""Several GPUs: data stay on theirs, and work is done where it was asked for. The emulator has two devices."""

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY

import rcurc_gpu as rg
from rcurc_gpu.backends.devices import namespace_for_device

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import array_api_compat.cupy
import cupy

if cupy.cuda.runtime.getDeviceCount() < 2:
    pytest.skip("needs two GPUs", allow_module_level=True)

RANK = 2


@pytest.fixture(scope="module")
def problem():
    return rg.synthetic((110, 120), RANK, 0.1, 10, n_rows=50, n_cols=45, rate=0.6, seed=7)


@pytest.fixture(scope="module")
def noisy():
    return rg.synthetic((110, 120), RANK, 0.1, 10, 0.05, n_rows=50, n_cols=45, rate=0.6, seed=7)


def second(samples):
    return samples.to_namespace(array_api_compat.cupy, device=cupy.cuda.Device(1))


@pytest.fixture
def only_second():
    """The first device, which is the current one, gets no array while a test runs."""
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    before = pool.total_bytes()
    yield
    assert cupy.cuda.runtime.getDevice() == 0
    assert pool.total_bytes() == before


@pytest.mark.smoke
@pytest.mark.usefixtures("only_second")
def test_data_on_the_second_device_are_solved_there(problem):
    there = second(problem.samples)
    assert there.device == "cuda:1"
    result = rg.rcurc(there, RANK)
    assert result.converged
    assert result.device == "cuda:1"
    assert result.kernels == "cuda"
    assert (result.cur.left.device.id, result.cur.right.device.id) == (1, 1)
    expected = rg.rcurc(problem.samples, RANK)
    np.testing.assert_allclose(result.cur.left.get() @ result.cur.right.get().T, expected.cur.to_dense(), atol=1e-8)


@pytest.mark.usefixtures("only_second")
@pytest.mark.parametrize("method", ["fast", "paper"])
def test_data_on_the_host_go_to_the_device_that_is_asked_for(problem, method):
    result = rg.rcurc(problem.samples, RANK, device="cuda:1", method=method, chunk_bytes=20_000)
    assert result.device == "cuda:1"
    assert type(result.cur.left) is np.ndarray
    assert problem.relative_error(result.cur) < 1e-4


@pytest.mark.usefixtures("only_second")
def test_noise_outliers_and_new_columns_stay_there_as_well(noisy):
    s = noisy.samples
    result = rg.rcurc(second(s), RANK, accuracy=0.1)
    assert result.device == "cuda:1"
    with cupy.cuda.Device(1):  # where a user's own operations would run
        new = cupy.asarray(noisy.W[s.rows] @ noisy.V[:3].T)
        found = result.transform_columns(new).matrix
        assert (found.left.device.id, found.right.device.id) == (1, 1)
        S_R, _ = result.outliers()
        assert S_R.data.device.id == 1
        middle, std = result.cur.entries([1, 2], [3, 4], return_std=True)
        assert (middle.device.id, std.device.id) == (1, 1)


def test_from_the_second_device_to_the_first(problem):
    result = rg.rcurc(second(problem.samples), RANK, device="cuda:0")
    assert result.device == "cuda:0"
    assert result.cur.left.device.id == 1  # what comes out is where the data are
    assert problem.relative_error(result.cur) < 1e-8


def test_a_device_that_is_not_there_is_named():
    count = cupy.cuda.runtime.getDeviceCount()
    with pytest.raises(ValueError, match=f"there are only {count} CUDA devices"):
        namespace_for_device(f"cuda:{count}")
