"""cupy.linalg and friends over the stand-ins for cuBLAS and cuSOLVER."""

import cupy as cp
import cupyx.lapack
import cupyx.scipy.linalg
import numpy as np
import pytest
from cupy import cublas
from numpy.testing import assert_allclose

import hostgpu

DTYPES = [np.float32, np.float64]


def tolerance(dtype):
    return {"rtol": 2000 * np.finfo(dtype).eps, "atol": 200 * np.finfo(dtype).eps}


def close(actual, expected):
    """Compares, in the precision of the first one."""
    assert_allclose(cp.asnumpy(actual), expected, **tolerance(actual.dtype))


@pytest.fixture(params=DTYPES, ids=lambda dtype: dtype.__name__)
def dtype(request):
    return request.param


@pytest.fixture
def random(dtype):
    rng = np.random.default_rng(1)
    return lambda *shape: rng.standard_normal(shape).astype(dtype)


def definite(a):
    return a @ a.swapaxes(-2, -1) + a.shape[-1] * np.eye(a.shape[-2], dtype=a.dtype)


def test_products(random):
    a, b, stack = random(7, 4), random(4, 5), random(3, 6, 7)
    da, db, dstack = map(cp.asarray, (a, b, stack))
    close(da @ db, a @ b)
    close(da.T @ da, a.T @ a)
    close(da @ da.T, a @ a.T)
    close(dstack @ da, stack @ a)
    close(da @ db[:, 0], a @ b[:, 0])
    close(cp.dot(da[0], da[1]), a[0] @ a[1])
    close(cp.einsum("ij,kj->ik", da, da), a @ a.T)
    close(cp.tensordot(dstack, da, axes=([2], [0])), np.tensordot(stack, a, axes=([2], [0])))
    close(da[:, :2] @ db[:2], a[:, :2] @ b[:2])
    assert hostgpu.stats()["library_calls"]["cublas.gemmEx"] >= 4


def test_product_into_array(random):
    a, b = map(cp.asarray, (random(4, 3), random(3, 5)))
    out = cp.empty((4, 5), a.dtype)
    cp.matmul(a, b, out=out)
    close(out, a.get() @ b.get())


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (5, 5), (3, 6, 4), (2, 40, 33)])
@pytest.mark.parametrize("full", [False, True])
def test_svd(random, shape, full):
    a = random(*shape)
    u, s, vt = cp.linalg.svd(cp.asarray(a), full_matrices=full)
    k = min(shape[-2:])
    close(s, np.linalg.svd(a, compute_uv=False))
    close((u[..., :k] * s[..., None, :]) @ vt[..., :k, :], a)
    assert u.shape[-1] == (shape[-2] if full else k)
    assert u.dtype == s.dtype == vt.dtype == a.dtype
    close(cp.linalg.svd(cp.asarray(a), compute_uv=False), np.linalg.svd(a, compute_uv=False))


@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (3, 6, 4)])
def test_qr(random, shape, mode):
    a = random(*shape)
    result = cp.linalg.qr(cp.asarray(a), mode)
    if mode == "r":
        close(result.swapaxes(-2, -1) @ result, a.swapaxes(-2, -1) @ a)
        return
    q, r = result
    close(q @ r, a)
    identity = np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], q.shape[-1], q.shape[-1]))
    close(q.swapaxes(-2, -1) @ q, identity)
    close(cp.triu(r), r.get())


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigh(random, uplo):
    a = definite(random(6, 6))
    w, v = cp.linalg.eigh(cp.asarray(a), uplo)
    close((v * w) @ v.T, a)
    close(cp.linalg.eigvalsh(cp.asarray(a), uplo), np.linalg.eigvalsh(a))
    stack = np.stack([a, 2 * a])
    w, v = cp.linalg.eigh(cp.asarray(stack), uplo)
    close((v * w[:, None, :]) @ v.swapaxes(-2, -1), stack)


def test_cholesky(random):
    a = definite(random(6, 6))
    close(cp.linalg.cholesky(cp.asarray(a)), np.linalg.cholesky(a))
    stack = np.stack([a, 2 * a])
    close(cp.linalg.cholesky(cp.asarray(stack)), np.linalg.cholesky(stack))
    b = random(6, 2)
    close(cupyx.lapack.posv(cp.asarray(a), cp.asarray(b)), np.linalg.solve(a, b))


def test_solve(random):
    a, b = definite(random(6, 6)) + random(6, 6), random(6, 3)
    da, db = cp.asarray(a), cp.asarray(b)
    close(cp.linalg.solve(da, db), np.linalg.solve(a, b))
    close(cp.linalg.solve(da, db[:, 0]), np.linalg.solve(a, b[:, 0]))
    stack, right = np.stack([a, a.T]), np.stack([b, 2 * b])
    close(cp.linalg.solve(cp.asarray(stack), cp.asarray(right)), np.linalg.solve(stack, right))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("trans", [0, 1])
def test_triangular_solve(random, lower, trans, order):
    a = np.tril(random(6, 6)) + 4 * np.eye(6, dtype=random(1).dtype)
    a = np.asarray(a if lower else a.T, order=order)
    b = random(6, 3)
    solution = cupyx.scipy.linalg.solve_triangular(cp.asarray(a, order=order), cp.asarray(b), trans=trans, lower=lower)
    close(solution, np.linalg.solve(a.T if trans else a, b))
    calls = hostgpu.stats()["library_calls"]
    assert calls.get("cublas.strsm", 0) + calls.get("cublas.dtrsm", 0) == 1


def test_norms(random):
    a = random(7, 4)
    da = cp.asarray(a)
    close(cp.linalg.norm(da), np.linalg.norm(a))
    close(cp.linalg.norm(da[0]), np.linalg.norm(a[0]))
    close(cp.linalg.norm(da, axis=1), np.linalg.norm(a, axis=1))


def test_cublas_module(random):
    x, y, a = random(5), random(5), random(5, 3)
    dx, dy, da = map(cp.asarray, (x, y, a))
    close(cublas.dot(dx, dy), x @ y)
    close(cublas.nrm2(dx), np.linalg.norm(x))
    close(cublas.gemm("N", "T", da, da), a @ a.T)
    close(cublas.geam("N", "N", 2.0, da, 1.0, da), 3 * a)
    out = cp.asarray(random(3))
    cublas.gemv("T", 1.0, da, dx, 0.0, out)
    close(out, a.T @ x)


def test_what_has_a_factor_of_zero_is_not_read(random):
    """As in BLAS; here it could be NaN, and would stay."""
    y, a = cp.asarray(random(5)), cp.asarray(random(5, 5))
    nan = cp.full_like(y, np.nan)
    cublas.gemv("N", 1.0, a, y, 0.0, nan)
    close(nan, a.get() @ y.get())


def test_what_is_missing_says_so():
    from cupy_backends.cuda.libs import cusolver

    with pytest.raises(NotImplementedError, match=r"no stand-in for .*cusolver\.dgebrd"):
        cusolver.dgebrd(0)
    with pytest.raises(NotImplementedError, match=r"no stand-in for .*curand\."):
        cp.random.standard_normal(3)
