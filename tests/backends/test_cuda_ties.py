"""The ties between rows and columns by CUDA kernels, against the plain code on NumPy; needs RCURC_TEST_DEVICE."""

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.kernels import XP
from rcurc_gpu.judge.ties import ties_of

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy

from rcurc_gpu.backends.cuda import ties
from rcurc_gpu.backends.kernels import cuda_kernels

EMULATED = DEVICE == "emulator"
if EMULATED:
    import hostgpu

SEEDS = range(3) if EMULATED else [0]


def entries(m, n, rank, seed=0, groups=1, rate=0.5):
    """Where rows and columns were seen, in groups that never met if there are several, and their factors."""
    rng = np.random.default_rng(seed)
    seen = rng.random((m, n)) < rate
    seen &= np.equal.outer(np.arange(m) % groups, np.arange(n) % groups)
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
    index = np.nonzero(seen)[1].astype(np.int32)
    left, right = rng.standard_normal((m, rank)), rng.standard_normal((n, rank))
    return Block(indptr, index, np.ones(len(index)), n), left, right


def there(block, *arrays):
    return Block(*map(cupy.asarray, (block.indptr, block.index, block.value)), block.length), *map(cupy.asarray, arrays)


@pytest.mark.parametrize("rank", [1, 3, 8, 32])
def test_grams(rank):
    block, _, right = entries(30, 40, rank)
    found = cuda_kernels().grams(*there(block, right))
    np.testing.assert_allclose(found.get(), XP.grams(block, right), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "rank", "groups"), [((80, 70), 1, 1), ((90, 60), 3, 1), ((90, 60), 3, 2), ((60, 90), 6, 1)]
)
@pytest.mark.parametrize("prior", [False, True])
def test_ties_agree_with_the_plain_code(shape, rank, groups, prior):
    block, left, right = entries(*shape, rank, groups=groups)
    priors = (np.full(rank, 0.3), np.full(rank, 0.2)) if prior else None
    expected = ties_of(block, left, right, XP, 5, priors)
    on_device = None if priors is None else tuple(map(cupy.asarray, priors))
    found = ties_of(*there(block, left, right), cuda_kernels(), 5, on_device)
    assert abs(found.gap - expected.gap) <= 1e-9
    assert found.free == expected.free == (groups > 1 and not prior)
    for name in ("row_skew", "col_skew"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
    for name in ("rows", "cols", "noise_rows", "noise_cols"):
        mine, theirs = getattr(found, name).get(), getattr(expected, name)
        # The sign of an eigenvector is free; rounding that reorthogonalisation leaves grows with the steps.
        assert min(np.abs(mine - sign * theirs).max() for sign in (1, -1)) <= 1e-6 * np.abs(theirs).max()


def test_the_largest_rank_and_one_that_is_too_large():
    for rank in (32, 33):
        block, left, right = entries(60, 50, rank, rate=0.95)
        expected, found = ties_of(block, left, right, XP, 5), ties_of(*there(block, left, right), cuda_kernels(), 5)
        assert abs(found.gap - expected.gap) <= 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_threads_changes_nothing(seed):
    block, left, right = entries(90, 75, 3)
    results = []
    for order in (0, seed + 1):
        if EMULATED:
            hostgpu.set_seed(order)
        found = ties_of(*there(block, left, right), cuda_kernels(), 5)
        results.append((found.gap, found.rows.tobytes(), found.cols.tobytes(), found.row_skew.tobytes()))
    assert len(set(results)) == 1


@pytest.mark.skipif(not EMULATED, reason="only the emulator counts")
def test_few_launches_and_no_cusolver():
    block, left, right = entries(90, 75, 3)
    arguments = there(block, left, right)
    hostgpu.reset_stats()
    ties_of(*arguments, cuda_kernels(), 5)
    stats = hostgpu.stats()
    assert stats["launches"] + stats["graph_launches"] <= 60, stats["launches_by_kernel"]
    assert not any(name.startswith("cusolver") for name in stats["library_calls"])


@pytest.mark.parametrize("groups", [1, 2])
def test_room_for_vectors_is_doubled_and_changes_nothing(groups, monkeypatch):
    block, left, right = entries(90, 60, 3, groups=groups)
    found = []
    for room in (2, 61):
        monkeypatch.setattr(ties, "_FIRST_VECTORS", room)
        found.append(ties_of(*there(block, left, right), cuda_kernels(), 5))
    assert found[0].gap == found[1].gap
    for name in ("rows", "cols"):
        np.testing.assert_array_equal(getattr(found[0], name).get(), getattr(found[1], name).get())


@pytest.mark.skipif(not EMULATED, reason="only the emulator counts bytes exactly")
def test_a_short_look_takes_memory_for_few_vectors():
    """Sixty steps may be made; of well tied rows and columns about ten are."""
    m, n, K = 40, 6_000, 3
    block, left, right = entries(m, n, K, rate=0.8)
    given = there(block, left, right)
    with cupy.cuda.using_allocator(cupy.cuda.MemoryPool().malloc):  # the usual one may have room from earlier tests
        before = hostgpu.stats()["live_bytes"]
        hostgpu.reset_stats()
        ties_of(*given, cuda_kernels(), 5)
        taken = hostgpu.stats()["peak_bytes"] - before
    vectors = 2 * ties._FIRST_VECTORS * 8 * n * K
    others = 20 * block.n_obs + 3 * 8 * (m + n) * (
        K * K + K
    )  # the transpose, normal equations, their inverses, a few vectors
    assert vectors < taken < vectors + others < 2 * 61 * 8 * n * K
