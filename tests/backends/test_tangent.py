"""The sums of Gauss-Newton steps: what they are, and that all kernels agree."""

import numpy as np
import pytest

from rcurc_gpu.backends.arrays import asarray_on, to_numpy
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.kernels import XP, choose


def case(rng, m=40, n=30, r=3, rate=0.3):
    """Dense Y and weights of the fit with zeros, as a block; factors and a direction."""
    seen = rng.random((m, n)) < rate
    seen[4] = False  # a unit without observations
    Y, fit = rng.standard_normal((m, n)), (rng.random((m, n)) < 0.9) * seen
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
    index = np.nonzero(seen)[1].astype(np.int32)
    block = Block(indptr.astype(np.int64), index, Y[seen], n)
    left, right, X = rng.standard_normal((m, r)), rng.standard_normal((n, r)), rng.standard_normal((n, r))
    return Y, fit, block, fit[seen].astype(float), left, right, X


def expected(Y, fit, left, right, X, scale, most):
    e = Y - left @ right.T
    w = fit / (1 + (e / scale) ** 2) ** 2
    gram = np.einsum("ij,jq,jp->iqp", w, right, right)
    return gram, (w * e) @ right, (w * (left @ X.T)) @ right, (np.clip(Y, -most, most) * fit) @ X


def found(side, left, right, X, scale, most):
    weighted, gram, gradient = side.weigh(left, right, scale)
    return [to_numpy(x) for x in (gram, gradient, side.couple(weighted, left, X), side.clipped(X, most))]


@pytest.mark.parametrize("chunk_bytes", [None, 20_000])
def test_the_plain_sums_are_those_of_dense_matrices(xp, chunk_bytes):
    Y, fit, block, weight, *factors = case(np.random.default_rng(0))
    like = xp.array(np.zeros(1))
    side = XP.make_side(block.to(like), asarray_on(weight, like), chunk_bytes)
    got = found(side, *(asarray_on(x, like) for x in factors), 0.7, 0.5)
    for x, y in zip(got, expected(Y, fit, *factors, 0.7, 0.5), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compiled_sums_are_the_plain_ones(dtype, monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr("rcurc_gpu.backends.numba.tangent._PIECE", 50)  # several pieces
    *_, block, weight, left, right, X = case(np.random.default_rng(1), r=5)
    block = Block(block.indptr, block.index, block.value.astype(dtype), block.length)
    sides = (kernels.make_side(block, weight, None) for kernels in (choose("fused", np.zeros(1)), XP))
    for x, y in zip(*(found(side, left, right, X, 0.7, 0.5) for side in sides), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
