"""Sorting, and what is made of it."""

import cupy as cp
import numpy as np
import pytest
from numpy.testing import assert_array_equal


@pytest.fixture(params=[np.float64, np.int64], ids=lambda dtype: dtype.__name__)
def host(request):
    values = np.random.default_rng(0).standard_normal((5, 40)) * 20
    return values.round(0).astype(request.param)


@pytest.mark.parametrize("axis", [-1, 0, None])
def test_sort(host, axis):
    d = cp.asarray(host)
    assert_array_equal(cp.sort(d, axis).get(), np.sort(host, axis))
    order = cp.argsort(d, axis).get()
    assert_array_equal(order, np.argsort(host, axis, kind="stable"))
    if axis is not None:
        d.sort(axis)
        assert_array_equal(d.get(), np.sort(host, axis))


def test_nan_is_last():
    x = np.array([3.0, np.nan, 1.0, np.inf])
    assert_array_equal(cp.sort(cp.asarray(x)).get(), np.sort(x))


@pytest.mark.parametrize("shape", [(100,), (20000,), (3, 12000)])
@pytest.mark.parametrize("kth", [0, 17])
def test_partition(shape, kth):
    """The large ones take the way over CuPy's partition kernels."""
    x = np.random.default_rng(2).standard_normal(shape)
    result = cp.partition(cp.asarray(x), kth).get()
    assert_array_equal(np.sort(result, axis=-1), np.sort(x, axis=-1))
    assert_array_equal(result[..., kth], np.partition(x, kth)[..., kth])
    assert (result[..., :kth] <= result[..., kth : kth + 1]).all()
    indices = cp.argpartition(cp.asarray(x), kth).get()
    chosen = np.take_along_axis(x, indices, axis=-1)
    assert_array_equal(chosen[..., kth], np.partition(x, kth)[..., kth])
    assert_array_equal(np.sort(indices, axis=-1), np.broadcast_to(np.arange(shape[-1]), shape))


def test_searchsorted(host):
    edges = np.arange(-50.0, 50.0, 7.0)
    d = cp.asarray(host.astype(np.float64))
    expected = np.searchsorted(edges, host.astype(np.float64))
    assert_array_equal(cp.searchsorted(cp.asarray(edges), d).get(), expected)
