"""cupy.ndarray, ufuncs, and kernels that CuPy generates."""

import cupy as cp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hostgpu


@pytest.fixture
def host():
    return np.arange(12.0).reshape(3, 4)


@pytest.fixture
def device(host):
    return cp.asarray(host)


def test_it_is_the_real_cupy(device):
    assert cp.is_available()
    assert type(device) is cp.ndarray
    assert cp.cuda.runtime.getDeviceCount() == 2
    assert cp.__file__.endswith("cupy/__init__.py")


def test_round_trip(host, device):
    assert_array_equal(device.get(), host)
    assert_array_equal(cp.asnumpy(device), host)
    assert_array_equal(cp.asnumpy(device.T), host.T)


def test_no_implicit_conversion(device):
    with pytest.raises(TypeError, match="Implicit conversion"):
        np.asarray(device)
    with pytest.raises(TypeError, match="Unsupported type"):
        device + np.ones(4)


def test_arithmetic(host, device):
    assert_array_equal((device * 2 + 1).get(), host * 2 + 1)
    assert_array_equal((device.T * 2).get(), host.T * 2)
    assert_array_equal((device[::-1, ::2] - 1).get(), host[::-1, ::2] - 1)
    assert_array_equal(cp.where(device > 4, device, 0).get(), np.where(host > 4, host, 0))
    assert_allclose(cp.exp(device).get(), np.exp(host), rtol=1e-15)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "argmin", "cumsum"])
def test_reductions(host, device, name):
    for axis in (None, 0, 1):
        result = getattr(device, name)(axis=axis)
        assert_allclose(result.get(), getattr(host, name)(axis=axis), rtol=1e-14)


def test_indexing(host, device):
    rows = cp.asarray([0, 2])
    assert_array_equal(device[rows].get(), host[[0, 2]])
    assert_array_equal(device[device > 4].get(), host[host > 4])
    device[device > 4] = -1
    assert_array_equal(device.get(), np.where(host > 4, -1, host))
    assert_array_equal(cp.concatenate([device, device]).get(), np.concatenate([device.get()] * 2))


def test_scatter_add():
    total = cp.zeros(4)
    cp.add.at(total, cp.asarray([0, 1, 1, 3]), cp.asarray([1.0, 2.0, 3.0, 4.0]))
    assert_array_equal(total.get(), [1, 5, 0, 4])
    counts = cp.bincount(cp.asarray([0, 1, 1, 3]), minlength=5)
    assert_array_equal(counts.get(), [1, 2, 0, 1, 0])


def test_elementwise_kernel(host, device):
    kernel = cp.ElementwiseKernel("T y, bool m, T zeta", "T z", "z = m ? y * zeta : y", "masked")
    result = kernel(device, device > 4, 3.0)
    assert_array_equal(result.get(), np.where(host > 4, 3 * host, host))
    result = kernel(device.T, device.T > 4, cp.arange(3.0))
    assert_array_equal(result.get(), np.where(host.T > 4, host.T * np.arange(3.0), host.T))
    assert hostgpu.stats()["launches_by_kernel"]["masked"] == 2
    with pytest.raises(TypeError, match="Type is mismatched"):
        kernel(device, device > 4, cp.arange(4, dtype=np.float32))


def test_reduction_kernel(host, device):
    kernel = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
    assert_allclose(float(kernel(device)), np.linalg.norm(host), rtol=1e-15)
    large = np.random.default_rng(0).standard_normal(10007)
    assert_allclose(float(kernel(cp.asarray(large))), np.linalg.norm(large), rtol=1e-13)


def test_override_protocol():
    class Wrapper:
        def __cupy_override_elementwise_kernel__(self, kernel, *args, **kwargs):
            return kernel.name, len(args)

    assert cp.exp(Wrapper()) == ("cupy_exp", 1)
    kernel = cp.ElementwiseKernel("T y", "T z", "z = y", "identity")
    assert kernel(Wrapper()) == ("identity", 1)


def test_array_api_compat(device):
    array_api_compat = pytest.importorskip("array_api_compat")
    xp = array_api_compat.array_namespace(device)
    assert xp.__name__ == "array_api_compat.cupy"
    singular = xp.linalg.svd(device, full_matrices=False).S
    assert_allclose(singular.get(), np.linalg.svd(device.get())[1], atol=1e-12)
