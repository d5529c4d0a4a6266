"""Chunks of observations on their way through a CUDA device: order, memory, and what happens when that runs out."""

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu.backends.arrays import to_numpy
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.streaming import through

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy

emulated = pytest.mark.skipif(DEVICE != "emulator", reason="only the emulator counts and limits memory exactly")


def make_block(n_units=300, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 200, n_units)
    counts[3] = 0
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    index = np.concatenate([np.arange(count) for count in counts]).astype(np.int32)
    return Block(indptr, index, rng.standard_normal(len(index)), 200)


def sums(block, local, chosen, ids):
    """The sum of each unit, and its number and name: something that shows what came where."""
    assert isinstance(block.value, cupy.ndarray)
    total = cupy.asarray([float(block.value[block.indptr[u] : block.indptr[u + 1]].sum()) for u in local.tolist()])
    name = cupy.asarray(chosen) if ids is None else ids
    return total[:, None], cupy.stack([cupy.asarray(chosen), name], axis=1)


def number_and_ids(chosen, ids):
    """What the kernels here get beside a block."""
    return chosen, ids


def expected_sums(block, units):
    return np.asarray([block.value[block.indptr[u] : block.indptr[u + 1]].sum() for u in units])[:, None]


CHUNKS = (
    [np.arange(300)],
    [np.arange(0, 100), np.arange(100, 300)],
    [np.asarray([5, 7, 8]), np.asarray([3]), np.asarray([299])],
)


@pytest.mark.parametrize("chunks", CHUNKS, ids=len)
@pytest.mark.parametrize("where", ["host", "device"])
def test_everything_comes_back_in_order(chunks, where):
    block = make_block()
    ids = np.arange(300) + 1000
    there = block.to(cupy.zeros(1)) if where == "device" else block
    done = list(through(there, chunks, ids, cupy.zeros(1), sums, number_and_ids))
    units = np.concatenate([chosen for chosen, _ in done])
    np.testing.assert_array_equal(units, np.concatenate(chunks))
    found = [np.concatenate([to_numpy(part[k]) for _, part in done]) for k in (0, 1)]
    np.testing.assert_allclose(found[0], expected_sums(block, units))
    np.testing.assert_array_equal(found[1][:, 0], units)
    np.testing.assert_array_equal(found[1][:, 1], units + (1000 if where == "host" else 0))
    assert all(isinstance(part[0], np.ndarray if where == "host" else cupy.ndarray) for _, part in done)


class Short:
    """Work that finds no memory for more than some units, and remembers what it was asked for."""

    def __init__(self, most):
        self.most, self.asked = most, []

    def __call__(self, block, local, chosen, ids):
        self.asked.append(len(chosen))
        if len(chosen) > self.most:
            raise cupy.cuda.memory.OutOfMemoryError(1, 1, 1)
        return sums(block, local, chosen, ids)


@pytest.mark.parametrize("where", ["host", "device"])
def test_without_memory_chunks_become_smaller(where):
    block = make_block()
    there = block.to(cupy.zeros(1)) if where == "device" else block
    work = Short(40)
    done = list(
        through(there, [np.arange(0, 150), np.arange(150, 300)], np.arange(300), cupy.zeros(1), work, number_and_ids)
    )
    np.testing.assert_array_equal(np.concatenate([chosen for chosen, _ in done]), np.arange(300))
    np.testing.assert_allclose(np.concatenate([to_numpy(a) for _, (a, _) in done]), expected_sums(block, range(300)))
    assert sum(count > 40 for count in work.asked) <= 4  # learned, not tried again for every chunk


@pytest.mark.parametrize("where", ["host", "device"])
def test_one_unit_that_does_not_fit_is_an_error(where):
    block = make_block()
    there = block.to(cupy.zeros(1)) if where == "device" else block
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        list(through(there, [np.arange(64)], np.arange(300), cupy.zeros(1), Short(0), number_and_ids))


@emulated
def test_the_device_holds_two_chunks_and_no_more():
    import hostgpu

    block = make_block(3000)
    chunks = np.array_split(np.arange(3000), 30)
    cupy.get_default_memory_pool().free_all_blocks()
    before = hostgpu.stats()["live_bytes"]
    hostgpu.reset_stats()
    for _ in through(block, chunks, np.arange(3000), cupy.zeros(1), sums, number_and_ids):
        pass
    assert hostgpu.stats()["peak_bytes"] - before < 0.3 * block.nbytes


@emulated
def test_memory_that_is_really_short_is_enough():
    import hostgpu

    block = make_block(3000)
    cupy.get_default_memory_pool().free_all_blocks()
    hostgpu.set_memory_limit(hostgpu.stats()["live_bytes"] + block.nbytes // 4)
    try:
        done = list(through(block, [np.arange(3000)], np.arange(3000), cupy.zeros(1), sums, number_and_ids))
    finally:
        hostgpu.set_memory_limit(8 << 30)
    assert len(done) >= 4
    np.testing.assert_allclose(np.concatenate([a for _, (a, _) in done]), expected_sums(block, range(3000)))


def test_a_caller_that_goes_away_leaves_nothing_running():
    block = make_block()
    stream = through(block, np.array_split(np.arange(300), 10), np.arange(300), cupy.zeros(1), sums, number_and_ids)
    next(stream)
    stream.close()
    assert len(list(through(block, [np.arange(300)], np.arange(300), cupy.zeros(1), sums, number_and_ids))) == 1
