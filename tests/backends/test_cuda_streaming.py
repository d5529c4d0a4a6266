"""Chunks of observations on their way through a CUDA device: order, memory, and what happens when that runs out."""

import gc

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu.backends.arrays import to_numpy
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.streaming import Streams, through

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy

from rcurc_gpu.backends.cuda.pipeline import Pipeline

emulated = pytest.mark.skipif(DEVICE != "emulator", reason="only the emulator counts and limits memory exactly")


@pytest.fixture(autouse=True, scope="module")
def nothing_left():
    """Large pieces of the pool would be cut up for what later tests keep, and hide how much memory these need."""
    yield
    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()


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
    name = cupy.asarray(chosen) if ids is None else ids[cupy.asarray(local)]
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


@pytest.mark.smoke
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


@pytest.mark.smoke
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


# ---------------------------------------------------------------- what goes on, and how much


def contiguous(n_units, per_unit=50, seed=0):
    """Units with as many observations each, in the block of a matrix of which a few units are chosen already."""
    rng = np.random.default_rng(seed)
    index = np.tile(np.arange(per_unit, dtype=np.int32), n_units)
    block = Block(np.arange(n_units + 1) * per_unit, index, rng.standard_normal(n_units * per_unit), per_unit)
    return block, np.delete(np.arange(n_units), rng.choice(n_units, n_units // 20, replace=False))


class Watched(Pipeline):
    """A pipeline that remembers what it was told, in order."""

    def __init__(self):
        super().__init__()
        self.told, self.uploads = [], 0

    def upload(self, *args):
        super().upload(*args)
        self.told.append(f"copy {self.uploads}")
        self.uploads += 1

    def compute(self, *args):
        super().compute(*args)
        self.told.append(f"work {self.uploads - 1}")

    def results(self):
        found = super().results()
        self.told.append("take")
        return found


def streams_made(monkeypatch):
    """A list that gets every stream that is made from now on."""
    made, real = [], cupy.cuda.Stream

    def counted(*args, **kwargs):
        made.append(real(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(cupy.cuda, "Stream", counted)
    return made


def watched():
    streams = Streams()
    streams._pipeline = Watched()
    return streams, streams._pipeline


def test_a_chunk_is_copied_while_another_is_computed_and_a_third_comes_back():
    block, units = contiguous(400)
    streams, line = watched()
    for _ in through(block, np.array_split(units, 6), np.arange(400), cupy.zeros(1), sums, number_and_ids, streams):
        pass
    # Copy i + 1 is asked for when work i is, and before the results of i - 1 are waited for.
    expected = ["copy 0", "work 0", "copy 1", "work 1"]
    for k in range(2, 6):
        expected += [f"copy {k}", "take", f"work {k}"]
    assert line.told == [*expected, "take", "take"]


def test_work_waits_for_the_copy_of_its_own_slot(monkeypatch):
    """And for nothing else: the other slot may be written meanwhile."""
    block, units = contiguous(400)
    streams, line = watched()
    waits, work = [], line._work

    class Stream:
        def wait_event(self, event):
            waits.append(event)
            work.wait_event(event)

        def __enter__(self):
            return work.__enter__()

        def __exit__(self, *args):
            return work.__exit__(*args)

        def __getattr__(self, name):
            return getattr(work, name)

    slots = list(line._slots)
    monkeypatch.setattr(line, "_work", Stream())
    for _ in through(block, np.array_split(units, 4), np.arange(400), cupy.zeros(1), sums, number_and_ids, streams):
        pass
    assert waits[1:] == [slot.uploaded for slot in slots] * 2  # the first wait is for what the caller did before


@emulated
def test_a_range_is_copied_as_it_is(monkeypatch):
    """A million observations in ten chunks and more, 5 % of the units left out: what the host writes, and what it keeps."""
    import hostgpu

    block, units = contiguous(20_000)
    assert block.n_obs == 1_000_000
    chunks = np.array_split(units, 12)
    largest = max(Pipeline().size_of(block, chunk) for chunk in chunks)
    streams, made = Streams(), streams_made(monkeypatch)
    hostgpu.reset_stats()
    for _ in range(3):  # three passes of one solve
        line = streams.pipeline()
        for _ in through(block, chunks, np.arange(20_000), cupy.zeros(1), first_values, number_and_ids, streams, True):
            pass
    assert line is streams.pipeline()
    assert line.n_gathered == 0
    assert len(made) == 3
    assert line.bytes_written <= 3 * 14 * block.n_obs
    assert hostgpu.stats()["h2d_bytes"] >= 3 * 12 * block.n_obs * 0.95
    assert 0 < line.pinned_bytes <= 3 * largest
    # a few doubtful units, far apart, are gathered instead
    for _ in through(block, [units[::100]], np.arange(20_000), cupy.zeros(1), first_values, number_and_ids, streams, True):
        pass
    assert line.n_gathered == 1


def first_values(block, local, chosen, ids):
    """Work that costs little."""
    assert isinstance(local, cupy.ndarray)
    return block.value[block.indptr[local]][:, None]


# ---------------------------------------------------------------- memory that runs out, anywhere


class Failing:
    """An allocator that fails once, at its n-th call."""

    def __init__(self, real, n=0):
        self.real, self.n, self.calls = real, n, 0

    def __call__(self, size):
        self.calls += 1
        if self.calls == self.n:
            raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
        return self.real(size)


def sums_with(failing_device, failing_pinned, block, chunks):
    """What comes back, with allocators in place."""
    real = cupy.get_default_memory_pool().malloc, cupy.get_default_pinned_memory_pool().malloc
    cupy.cuda.set_allocator(failing_device)
    cupy.cuda.set_pinned_memory_allocator(failing_pinned)
    try:
        return list(through(block, chunks, np.arange(60), cupy.zeros(1), sums, number_and_ids))
    finally:
        cupy.cuda.set_allocator(real[0])
        cupy.cuda.set_pinned_memory_allocator(real[1])


@emulated
@pytest.mark.parametrize("kind", ["device", "pinned"])
def test_every_allocation_may_fail_once(kind):
    block = make_block(60)
    chunks = np.array_split(np.arange(60), 4)
    pools = cupy.get_default_memory_pool().malloc, cupy.get_default_pinned_memory_pool().malloc

    def attempt(n):
        each = [Failing(pool, n if kind == name else 0) for pool, name in zip(pools, ("device", "pinned"), strict=True)]
        return sums_with(*each, block, chunks), each[kind == "pinned"].calls

    whole, n_calls = attempt(0)
    assert n_calls >= 4
    for n in range(2, n_calls + 1):  # the first is the test's own, for the place to compute
        done, _ = attempt(n)
        np.testing.assert_array_equal(np.concatenate([chosen for chosen, _ in done]), np.arange(60))
        np.testing.assert_allclose(
            np.concatenate([a for _, (a, _) in done]), np.concatenate([a for _, (a, _) in whole]), err_msg=str(n)
        )


def test_a_kernel_that_cannot_be_loaded_or_a_library_without_room_is_out_of_memory():
    from cupy_backends.cuda.api.driver import CUDADriverError
    from cupy_backends.cuda.api.runtime import CUDARuntimeError

    library = type("CUBLASError", (RuntimeError,), {})  # the emulator's cuBLAS has none

    def made(error, status):
        """Without the words of a driver that is not there."""
        found = error.__new__(error, status)
        found.status = status
        return found

    block = make_block()
    for error, short in ((CUDADriverError, 2), (CUDARuntimeError, 2), (library, 3)):
        asked = []

        def work(*args, error=error, short=short, asked=asked):
            asked.append(len(args[1]))
            if len(asked) == 1:
                raise made(error, short)
            return sums(*args)

        done = list(through(block, [np.arange(300)], np.arange(300), cupy.zeros(1), work, number_and_ids))
        assert [len(chosen) for chosen, _ in done] == [150, 150]

        def wrong(*args, error=error):
            raise made(error, 1)

        with pytest.raises(error):
            list(through(block, [np.arange(300)], np.arange(300), cupy.zeros(1), wrong, number_and_ids))
