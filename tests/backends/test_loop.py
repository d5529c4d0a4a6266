"""The core's iterations in groups: the compiled loop against plain code, and small linear algebra against NumPy."""

import numpy as np
import pytest

from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.kernels import XP, choose
from rcurc_gpu.backends.linalg import qr
from rcurc_gpu.backends.plain.loop import NUMBERS, Begin, PlainLoop, Recipe

pytest.importorskip("numba")
from rcurc_gpu.backends.numba import loop as compiled
from rcurc_gpu.backends.numba import small_kernels, threads
from rcurc_gpu.backends.numba.parts import entry

orthonormal, small_svd = entry(small_kernels.orthonormal), entry(small_kernels.small_svd)
NUMBA = choose("fused", np.zeros(1))
TOLERANCE = {"float64": 1e-10, "float32": 2e-4}  # of 15 iterations


def problem(shape=(90, 110), rank=4, density=0.5, dtype="float64", seed=0, noise=0.0):
    """Observations of a low-rank matrix, a tenth of them wrong, with step sizes and a sample for medians."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    seen = rng.random(shape) < density
    i, j = np.nonzero(seen)
    values = X[seen] + noise * rng.standard_normal(len(i))
    wrong = rng.random(len(i)) < 0.1
    values[wrong] += rng.normal(0, 5, wrong.sum())
    values = values.astype(dtype)
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
    block = Block(indptr, j.astype(np.int32), values, shape[1])
    some = np.sort(rng.choice(len(i), 1500, replace=False))
    return block, np.full(len(i), 1 / density, dtype), (i[some], j[some], values[some])


def started(block, rank, extra=1, seed=1):
    m, n, dtype = block.n_units, block.length, block.value.dtype
    width = rank + extra
    Q = qr(np.random.default_rng(seed).standard_normal((n, width)).astype(dtype))[0]
    return Begin(0, (np.zeros((m, width), dtype), np.zeros(width, dtype), Q))


def loops(block, weight, recipe, begin):
    plain, fast = PlainLoop(XP.make_grid(block, weight, None), recipe, begin), NUMBA.make_grid(block, weight, None)
    fast = fast.loop(recipe, begin)
    assert isinstance(fast, compiled.CompiledLoop)
    return plain, fast


def iterate_of(group, rank):
    W, s, V = group.factors(rank)
    return (W * s) @ V.T


@pytest.mark.parametrize(
    ("density", "dtype", "svd_tol", "floor", "noise"),
    [
        (0.5, "float64", 0.0, 0.0, 0.0),
        (0.5, "float64", 0.0, 2.5, 0.05),
        (0.2, "float64", 0.0, 2.5, 0.0),
        (0.5, "float64", 1e-8, 0.0, 0.0),
        (0.5, "float32", 0.0, 2.5, 0.05),
    ],
)
def test_compiled_groups_are_those_of_plain_code(density, dtype, svd_tol, floor, noise):
    rank = 4 if density == 0.5 else 2
    block, weight, sample = problem(density=density, dtype=dtype, noise=noise, rank=rank)
    recipe = Recipe(rank, 10.0, 0.7, floor, sample, svd_tol)
    plain, fast = loops(block, weight, recipe, started(block, rank, 3 if svd_tol else 1))
    tolerance = TOLERANCE[dtype]
    for _ in range(3):
        expected, found = plain.advance(5, each=True), fast.advance(5, each=True)
        assert found.k == expected.k
        np.testing.assert_allclose(found.table(), expected.table(), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(iterate_of(found, rank), iterate_of(expected, rank), atol=tolerance)
        for bases, others in zip(found.each, expected.each, strict=True):
            assert bases.shape == others.shape
            # factors of equal columns up to signs: those of 0 before the first iteration are 0
            np.testing.assert_allclose(abs(bases), abs(others), atol=100 * tolerance)
        assert found.whole[0].dtype == found.whole[1].dtype == dtype
    if noise:  # the floor held the threshold up
        assert found.table()[-1, 4] > recipe.zeta(found.k)


@pytest.mark.parametrize("shared", [False, True])
def test_threads_groups_and_resuming_do_not_change_a_bit(monkeypatch, shared):
    block, weight, sample = problem((300, 500), seed=3)
    monkeypatch.setattr("rcurc_gpu.backends.numba.grid._PIECE", 1 << 13)
    monkeypatch.setattr(compiled, "_SHARED", 0 if shared else 1 << 40)
    recipe, begin = Recipe(4, 10.0, 0.8, 2.5, sample), started(block, 4)
    grid = NUMBA.make_grid(block, weight, None)
    assert len(grid.edges) > 5
    loop, single = grid.loop(recipe, begin), grid.loop(recipe, begin)
    found = loop.advance(5)
    monkeypatch.setattr(threads, "THREADS", 1)
    rows = np.concatenate([single.advance(1).table() for _ in range(5)])
    np.testing.assert_array_equal(rows, found.table())
    resumed = grid.loop(recipe, Begin(found.k, tuple(map(np.copy, found.whole)), float(found.table()[-1, NUMBERS - 1])))
    expected = loop.advance(5).table()
    np.testing.assert_array_equal(resumed.advance(5).table(), expected)
    plain = PlainLoop(XP.make_grid(block, weight, None), recipe, begin)
    plain.advance(5)
    np.testing.assert_allclose(expected, plain.advance(5).table(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("svd_tol", [0.0, 1e-9])
def test_pieces_on_several_threads_keep_every_iterate_as_one_thread_does(monkeypatch, svd_tol):
    """As `method="paper"` has it: a tolerance of the SVD, and the factors after each iteration."""
    block, weight, sample = problem((300, 500), seed=3)
    recipe, begin = Recipe(4, 10.0, 0.8, 2.5, sample, svd_tol=svd_tol), started(block, 4)
    found = []
    for shared in (0, 1 << 40):
        monkeypatch.setattr(compiled, "_SHARED", shared)
        group = NUMBA.make_grid(block, weight, None).loop(recipe, begin).advance(5, each=True)
        found.append((group.table(), *group.each))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_large_sketches_take_plain_code():
    block, weight, sample = problem()
    width = compiled.MOST_WIDTH + 1
    loop = NUMBA.make_grid(block, weight, None).loop(Recipe(width - 1, 10.0, 0.7, 0.0, sample), started(block, width - 1))
    assert isinstance(loop, PlainLoop)
    plain = PlainLoop(XP.make_grid(block, weight, None), loop.recipe, started(block, width - 1))
    np.testing.assert_allclose(loop.advance(2).table(), plain.advance(2).table(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("k", [1, 2, 5, 6, 13, 33])
@pytest.mark.parametrize("kind", ["any", "a row of 0", "two alike", "falling", "all 0"])
def test_small_factorisations(k, kind):
    rng = np.random.default_rng(k)
    for n in (k, k + 1, 200):
        A = rng.standard_normal((k, n))
        if kind == "a row of 0":
            A[k // 2] = 0
        elif kind == "two alike":
            A[-1] = A[0]
        elif kind == "falling":
            A *= 10.0 ** -np.arange(k)[:, None]
        elif kind == "all 0":
            A[:] = 0
        Q, R, U, V, s = A.copy(), np.empty((k, k)), np.empty((k, k)), np.empty((k, k)), np.empty(k)
        orthonormal(Q, R, np.empty(k))
        np.testing.assert_allclose(Q @ Q.T, np.eye(k), atol=1e-13)
        np.testing.assert_allclose(R.T @ Q, A, atol=1e-13 * max(n, 10))
        small_svd(R, U, s, V)
        for x in (U, V):
            np.testing.assert_allclose(x @ x.T, np.eye(k), atol=1e-12)
        np.testing.assert_allclose((U.T * s) @ V, R.T, atol=1e-12 * max(abs(R).max(), 1))
        np.testing.assert_allclose(s, np.linalg.svd(R)[1], atol=1e-12 * max(s[0], 1))


def test_numbers_that_are_not_finite_end():
    A, R, s = np.full((3, 9), np.nan), np.empty((3, 3)), np.empty(3)
    orthonormal(A, R, np.empty(3))
    small_svd(R, np.empty((3, 3)), s, np.empty((3, 3)))
    assert np.isnan(s).any()


@pytest.mark.parametrize("n", [1, 2, 1000, 1001])
def test_the_floor_is_the_median(n):
    rng = np.random.default_rng(n)
    i, j, y = np.zeros(n, np.int64), np.zeros(n, np.int64), rng.standard_normal(n) * 10.0 ** rng.integers(-300, 300, n)
    for values in (y, np.round(rng.standard_normal(n)), np.zeros(n)):
        block = Block(np.asarray([0, 1]), np.zeros(1, np.int32), np.ones(1), 1)
        grid, plain = (kernels.make_grid(block, np.ones(1), None) for kernels in (NUMBA, XP))
        for zeta in (0.0, 0.5):
            arguments = (np.zeros((1, 1)), np.ones((1, 1)), (i, j, values), zeta, 2.5)
            assert grid.floor_threshold(*arguments) == plain.floor_threshold(*arguments)
