"""The core's iteration as kernels and CUDA graphs: sketches, small SVDs, and groups of iterations, against NumPy.

Like test_cuda_kernels.py this needs RCURC_TEST_DEVICE: the emulator in tests/hostgpu, or "cuda" for a GPU.
"""

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.plain.grid import make_grid
from rcurc_gpu.backends.plain.loop import Begin, PlainLoop, Recipe

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy

from rcurc_gpu.backends.cuda import calls as cuda
from rcurc_gpu.backends.cuda import sketch
from rcurc_gpu.backends.cuda.loop import CudaLoop

EMULATED = DEVICE == "emulator"
if EMULATED:
    import hostgpu

SEEDS = range(3) if EMULATED else [0]  # of the order of threads and blocks
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
SMALLEST = {"float64": -12, "float32": -6}  # exponent of the last column of a graded matrix: 1e-10 was seen in a core
dtypes = pytest.mark.parametrize("dtype", ["float64", "float32"])


def to_device(x):
    return Block(*map(cupy.asarray, (x.indptr, x.index, x.value)), x.length) if isinstance(x, Block) else cupy.asarray(x)


# ---------------------------------------------------------------- sketches


def graded(rows, width, dtype, seed=0):
    """A Gaussian matrix whose columns become small."""
    columns = np.logspace(0, SMALLEST[dtype], width)
    return (np.random.default_rng(seed).standard_normal((rows, width)) * columns).astype(dtype)


def dependent(rows, width, dtype):
    """The second half of the columns repeats the first, and the last is 0."""
    x = np.random.default_rng(1).standard_normal((rows, width)).astype(dtype)
    x[:, width // 2 : 2 * (width // 2)] = x[:, : width // 2]
    x[:, -1] = 0
    return x


def few_rows(rows, width, dtype):
    """Rows without observations are 0, and so may whole panels be."""
    x = graded(rows, width, dtype)
    x[rows // 3 :] = 0
    return x


def orthonormal(x, dtype):
    assert np.abs(x.T @ x - np.eye(x.shape[1])).max() <= TOLERANCE[dtype]


# one panel; several; and, seconds for the emulator, several that are too long for shared memory
SIZES = [*((width, rows) for width in (1, 6, 33, 40) for rows in (width, 100, 900)), (40, 5000)]


@dtypes
@pytest.mark.parametrize(("width", "rows"), SIZES)
@pytest.mark.parametrize("make", [graded, dependent, few_rows])
def test_qr(dtype, width, rows, make):
    x = make(rows, width, dtype)
    given = cupy.asarray(x)
    Q, R = (part.get().astype(np.float64) for part in sketch.qr(given))
    np.testing.assert_array_equal(given.get(), x)
    orthonormal(Q, dtype)
    assert np.abs(np.tril(R, -1)).max() == 0
    # each column to its own size
    assert np.all(np.abs(Q @ R - x).max(axis=0) <= TOLERANCE[dtype] * np.abs(x).max(axis=0))


def test_the_qr_of_a_matrix_that_is_not_in_order_and_the_product_with_another():
    x, y = np.random.default_rng(0).standard_normal((2, 4, 700))
    Q, R = sketch.qr(cupy.asarray(x).T)
    np.testing.assert_allclose((Q @ R).get(), x.T, atol=1e-13)
    for rows in (100, 700):  # one panel, and several
        tall = sketch.Tall(rows, 4, np.dtype("float64"))
        tall.orthonormalise(cupy.asarray(x[:, :rows].T.copy()), cupy.asarray(y[:, :rows].T.copy()))
        np.testing.assert_allclose(tall.turn.get(), y[:, :rows] @ tall.Q.get(), atol=1e-13)


def small(kind, width, dtype):
    rng = np.random.default_rng(width)
    x = rng.standard_normal((width, width)) * np.logspace(0, SMALLEST[dtype], width)
    if kind == "of the loop":  # nearly diagonal, a triangle, descending
        x = np.triu(np.diag(np.logspace(1, SMALLEST[dtype], width)) + 1e-3 * x).T
    elif kind == "zero":
        x[:] = 0
    elif kind == "of half the rank":
        x = x[:, : width // 2] @ rng.standard_normal((width // 2, width))
    elif kind == "with zero columns":
        x[:, width // 3 :] = 0
    elif kind == "equal values":
        x = np.linalg.qr(rng.standard_normal((width, width)))[0]
    return x.astype(dtype)


@dtypes
@pytest.mark.parametrize("width", [1, 2, 5, 6, 33, 40])
@pytest.mark.parametrize("kind", ["graded", "of the loop", "zero", "of half the rank", "with zero columns", "equal values"])
def test_small_svd(dtype, width, kind):
    x = small(kind, width, dtype)
    u, s, vt = (part.get().astype(np.float64) for part in sketch.svd(cupy.asarray(x)))
    largest = max(np.abs(x).max(initial=0) * width, 1e-30)
    orthonormal(u, dtype)
    orthonormal(vt.T, dtype)
    assert np.all(np.diff(s) <= 0)
    assert np.abs(u * s @ vt - x).max() <= TOLERANCE[dtype] * largest
    assert np.abs(s - np.linalg.svd(x.astype(np.float64), compute_uv=False)).max() <= TOLERANCE[dtype] * largest


def test_the_svd_of_nan_ends():
    assert np.isnan(sketch.svd(cupy.full((5, 5), np.nan))[1].get()).all()


# ---------------------------------------------------------------- groups of iterations


def core(m, n, rank, dtype, outliers=0.1, rate=0.5):
    """An intersection of low rank with outliers: its block, weights, a sample of entries, and where to begin."""
    rng = np.random.default_rng(m)
    X = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    X += (rng.random((m, n)) < outliers) * rng.uniform(-10, 10, (m, n))
    seen = rng.random((m, n)) < rate
    i, j = np.nonzero(seen)
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
    value = X[seen].astype(dtype)
    block = Block(indptr, j.astype(np.int32), value, n)
    some = rng.integers(0, len(i), 600)
    Q = np.linalg.qr(rng.standard_normal((n, rank + 1)))[0].astype(dtype)
    whole = (np.zeros((m, rank + 1), dtype), np.zeros(rank + 1, dtype), Q)
    return block, np.full(len(i), 1 / rate, dtype), (i[some], j[some], value[some]), whole


def loops(problem, layout, rank, zeta=None, floor=2.5, warm=False):
    """The plain loop on NumPy and the one of kernels, on the same problem."""
    block, weight, sample, whole = problem
    recipe = Recipe(rank, 6.0, 0.8, floor, sample, warm=warm)
    there = Recipe(rank, 6.0, 0.8, floor, tuple(map(to_device, sample)), warm=warm)
    grid = cuda.make_grid(to_device(block), to_device(weight), None, layout)
    loop = grid.loop(there, Begin(0, tuple(map(to_device, whole)), zeta))
    assert isinstance(loop, CudaLoop)
    return PlainLoop(make_grid(block, weight, None), recipe, Begin(0, whole, zeta)), loop


def matrix(whole):
    P, s, Q = (cupy.asnumpy(x).astype(np.float64) for x in whole)
    return P * s @ Q.T


def same(found, expected, table, dtype):
    """The same iterates and the same numbers, to the rounding of each."""
    size = TOLERANCE[dtype] * np.abs(matrix(expected.whole)).max()
    np.testing.assert_allclose(matrix(found.whole), matrix(expected.whole), rtol=0, atol=size)
    theirs = expected.table()
    np.testing.assert_array_equal(table[:, 1], theirs[:, 1])  # outliers
    np.testing.assert_allclose(table[:, [2, 4]], theirs[:, [2, 4]], rtol=100 * TOLERANCE[dtype])  # thresholds
    np.testing.assert_allclose(table[:, 3], theirs[:, 3], rtol=0, atol=TOLERANCE[dtype])  # change
    np.testing.assert_allclose(table[:, [0, *range(5, table.shape[1])]], theirs[:, [0, *range(5, table.shape[1])]],
                               rtol=100 * TOLERANCE[dtype], atol=TOLERANCE[dtype] * theirs.max())  # fmt: skip


@dtypes
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("rank", [1, 5, 16])
def test_groups_agree_with_the_plain_loop(dtype, layout, rank):
    plain, loop = loops(core(150, 170, rank, dtype), layout, rank)
    for n in (5, 5, 5, 3, 5):
        expected, found = plain.advance(n), loop.advance(n)
        assert found.k == expected.k == loop.k
        same(found, expected, found.table(), dtype)


def test_the_largest_rank_and_long_sketches():
    plain, loop = loops(core(200, 130, 32, "float64", rate=0.9), "sparse", 32)
    for _ in range(2):
        expected, found = plain.advance(2), loop.advance(2)
        same(found, expected, found.table(), "float64")


@pytest.mark.parametrize("options", [{"zeta": 3.0}, {"floor": 0.0}, {"warm": True}], ids=str)
def test_other_recipes(options):
    plain, loop = loops(core(80, 90, 3, "float64"), "dense", 3, **options)
    for _ in range(3):
        expected, found = plain.advance(5), loop.advance(5)
        same(found, expected, found.table(), "float64")


def test_how_iterations_are_grouped_does_not_change_them():
    problem = core(90, 80, 3, "float64")
    results = []
    for groups in ((5, 5, 5), (1,) * 15, (7, 7, 1), (3, 5, 5, 2)):
        _, loop = loops(problem, "sparse", 3)
        tables = [loop.advance(n).table() for n in groups]
        results.append((np.concatenate(tables).tobytes(), loop.P.tobytes(), loop.Q.tobytes()))
    assert len(set(results)) == 1


def test_what_comes_after_each_iteration():
    plain, loop = loops(core(60, 70, 2, "float64"), "dense", 2)
    expected, found = plain.advance(4, each=True), loop.advance(4, each=True)
    same(found, expected, found.table(), "float64")
    for mine, theirs in zip(found.each, expected.each, strict=True):
        projections = [x @ x.swapaxes(1, 2) for x in (cupy.asnumpy(mine), theirs)]  # signs are free
        np.testing.assert_allclose(*projections, atol=1e-12)


def test_a_core_goes_on_beyond_the_schedule_that_was_sent(monkeypatch):
    monkeypatch.setattr("rcurc_gpu.backends.cuda.loop._SCHEDULE", 7)
    plain, loop = loops(core(60, 70, 2, "float64"), "dense", 2)
    for _ in range(5):
        expected, found = plain.advance(5), loop.advance(5)
        same(found, expected, found.table(), "float64")


def test_a_start_is_not_overwritten():
    block, weight, sample, whole = core(60, 70, 2, "float64")
    there = tuple(map(to_device, whole))
    grid = cuda.make_grid(to_device(block), to_device(weight))
    grid.loop(Recipe(2, 6.0, 0.8, 2.5, tuple(map(to_device, sample))), Begin(0, there)).advance(3).table()
    for mine, theirs in zip(there, whole, strict=True):
        np.testing.assert_array_equal(mine.get(), theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_two_runs_are_equal_to_the_last_bit(seed):
    problem = core(700, 90, 5, "float64")  # sketches of several panels
    results = []
    for order in (0, seed + 1):
        if EMULATED:
            hostgpu.set_seed(order)
        _, loop = loops(problem, "dense", 5)
        tables = [loop.advance(2).table() for _ in range(3)]
        results.append((np.concatenate(tables).tobytes(), loop.P.tobytes(), loop.Q.tobytes()))
    assert len(set(results)) == 1


@pytest.mark.skipif(not EMULATED, reason="only the emulator counts")
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_a_group_is_one_launch_and_one_wait(layout):
    _, loop = loops(core(150, 170, 5, "float64"), layout, 5)
    loop.advance(5).table()
    for _ in range(3):
        hostgpu.reset_stats()
        loop.advance(5).table()
        stats = hostgpu.stats()
        assert (stats["graph_launches"], stats["synchronizations"], stats["graph_copies"]) == (1, 1, 1)
        assert stats["launches"] + stats["d2h_copies"] + stats["h2d_copies"] + stats["event_records"] == 0
        assert not stats["library_calls"]
        assert stats["graph_kernels"] <= 5 * 10
        assert stats["d2h_bytes"] <= 1024
