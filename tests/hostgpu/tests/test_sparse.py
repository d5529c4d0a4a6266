"""cupyx.scipy.sparse over the stand-in for cuSPARSE."""

import cupy as cp
import cupyx.scipy.sparse as sparse
import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal


@pytest.fixture
def dtype():
    return np.float64


@pytest.fixture
def host(dtype):
    return scipy.sparse.random(9, 7, density=0.3, format="csr", dtype=dtype, random_state=4)


@pytest.fixture(params=["csr", "csc", "coo"])
def device(host, request):
    make = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "coo": sparse.coo_matrix}
    return make[request.param](host)


def test_from_scipy_and_back(host, device):
    assert device.shape == host.shape
    assert device.nnz == host.nnz
    assert_array_equal(device.get().toarray(), host.toarray())
    assert_array_equal(device.toarray().get(), host.toarray())


@pytest.mark.parametrize("make", [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix])
def test_from_dense_array(host, make):
    d = make(cp.asarray(host.toarray()))
    assert d.nnz == host.nnz
    assert_array_equal(d.toarray().get(), host.toarray())


@pytest.mark.parametrize("target", ["csr", "csc", "coo"])
def test_conversions(host, device, target):
    converted = device.asformat(target)
    assert converted.format == target
    assert_array_equal(converted.toarray().get(), host.toarray())
    assert_array_equal(device.T.toarray().get(), host.toarray().T)


def test_from_triplets(dtype):
    row, col = np.array([2, 0, 2, 1, 0]), np.array([1, 3, 1, 0, 2])
    data = np.arange(1, 6).astype(dtype)
    d = sparse.coo_matrix((cp.asarray(data), (cp.asarray(row), cp.asarray(col))), shape=(3, 4))
    expected = scipy.sparse.coo_matrix((data, (row, col)), shape=(3, 4))
    for made, wanted in ((d.tocsr(), expected.tocsr()), (d.tocsc(), expected.tocsc())):
        assert_array_equal(made.toarray().get(), wanted.toarray())
        assert_array_equal(made.indptr.get(), wanted.indptr)


def test_from_parts(host):
    d = sparse.csr_matrix((cp.asarray(host.data), cp.asarray(host.indices),
                           cp.asarray(host.indptr)), shape=host.shape)  # fmt: skip
    assert_array_equal(d.toarray().get(), host.toarray())
    d.sort_indices()
    assert_array_equal(d.indices.get(), host.sorted_indices().indices)


def test_unsorted_indices_are_sorted(dtype):
    data, indices, indptr = np.array([1, 2, 3], dtype), np.array([2, 0, 1]), np.array([0, 2, 3])
    d = sparse.csr_matrix(tuple(map(cp.asarray, (data, indices, indptr))), shape=(2, 3))
    d.sort_indices()
    assert_array_equal(d.indices.get(), [0, 2, 1])
    assert_array_equal(d.data.get(), [2, 1, 3])
    e = sparse.csc_matrix(tuple(map(cp.asarray, (data, indices, indptr))), shape=(3, 2))
    e.sort_indices()
    assert_array_equal(e.data.get(), [2, 1, 3])


def test_arithmetic_is_not_there(host):
    d = sparse.csr_matrix(host)
    with pytest.raises(NotImplementedError, match="no stand-in for .*cusparse"):
        d @ cp.ones(7, host.dtype)
