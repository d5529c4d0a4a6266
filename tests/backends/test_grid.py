"""The two layouts of the intersection do the same, and what NumPy does on dense arrays."""

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.plain.grid import DenseGrid, PaddedGrid, make_grid


@pytest.fixture
def case():
    """Observations in a 23 x 17 grid, one row and one column empty, with weights 0 (held out), 1 and 2."""
    rng = np.random.default_rng(2)
    seen = rng.random((23, 17)) < 0.4
    seen[5], seen[:, 3] = False, False
    Y = rng.standard_normal((23, 17))
    weight = rng.integers(0, 3, (23, 17)).astype(float)
    i, j = np.nonzero(seen)
    samples = rg.CrossSamples.from_triplets(i, j, Y[i, j], (23, 17), np.arange(23), np.arange(17))
    left, V = rng.standard_normal((23, 2)), rng.standard_normal((17, 2))
    return samples.intersection.block, Y, np.where(seen, weight, 0.0), weight[i, j], left, V


@pytest.mark.parametrize("layout", ["dense", "padded"])
@pytest.mark.parametrize("chunk_bytes", [1, 5000, 1 << 24])
def test_threshold_inlying_and_products(case, layout, chunk_bytes):
    block, Y, weight, weights, left, V = case
    grid = make_grid(block, weights, chunk_bytes, layout)
    assert type(grid) is {"dense": DenseGrid, "padded": PaddedGrid}[layout]
    fit = weight > 0
    E = np.where(fit, Y - left @ V.T, 0)
    zeta = np.asarray(1.2)

    G, S, Z, square, count = grid.threshold(left, V, zeta, None)
    inlier = fit & (np.abs(E) < zeta)
    expected = np.where(inlier, weight * E, 0)
    np.testing.assert_allclose(Z, expected @ V + left, atol=1e-12)
    assert square == pytest.approx((E**2).sum())
    assert count == (fit & ~inlier).sum()
    Q, P = np.random.default_rng(0).standard_normal((17, 3)), np.random.default_rng(1).standard_normal((23, 3))
    np.testing.assert_allclose(grid.mul(G, Q), expected @ Q, atol=1e-12)
    np.testing.assert_allclose(grid.rmul(G, P), expected.T @ P, atol=1e-12)

    # the numerator of e_k: the new residual, with the former outliers taken out
    E2 = np.where(fit, Y - 0.5 * left @ V.T, 0)
    outliers = np.where(fit & ~inlier, E, 0)
    _, _, _, square, _ = grid.threshold(0.5 * left, V, zeta, S)
    assert square == pytest.approx(((E2 - outliers) ** 2).sum())

    kept, by_row, by_col = grid.inlying(left, V, 1.2)
    np.testing.assert_array_equal(by_row, inlier.sum(axis=1))
    np.testing.assert_array_equal(by_col, inlier.sum(axis=0))
    np.testing.assert_allclose(grid.mul(kept, np.eye(17)), np.where(inlier, E, 0), atol=1e-12)


def test_a_sparse_intersection_is_not_made_dense():
    problem = rg.synthetic((3000, 3000), 1, 0.1, 10, n_rows=1500, n_cols=1500, rate=0.02, seed=0)
    block = problem.samples.intersection.block
    assert type(make_grid(block, np.ones(block.n_obs), None)) is PaddedGrid
    result = rg.rcurc(problem.samples, 1)
    assert problem.relative_error(result.cur) <= 1e-6
