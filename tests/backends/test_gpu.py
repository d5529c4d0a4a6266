"""What only real hardware can show. None of this has ever run; on a machine with a GPU it does, by itself."""

import os

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.streaming import through
from rcurc_gpu.doctor.run import diagnose

cupy = pytest.importorskip("cupy", reason="CuPy is not installed: there is no GPU to test on")

pytestmark = pytest.mark.gpu


# RCURC_GPU_TEST_SIZE=200 makes these small enough for the emulator, to see that at least the tests are in order.
SIZE = int(os.environ.get("RCURC_GPU_TEST_SIZE", "20000"))


@pytest.fixture(scope="module")
def problem():
    chosen = min(500, SIZE // 2)
    return rg.synthetic((SIZE, SIZE * 3 // 4), 5, 0.1, 10, n_rows=chosen, n_cols=chosen, rate=0.7, seed=0)


@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("kernels", ["xp", "fused"])
def test_a_large_problem_is_solved_and_the_same_twice(problem, where, kernels):
    samples = problem.samples if where == "host" else problem.samples.to_namespace(cupy)
    results = [rg.rcurc(samples, 5, device="cuda", kernels=kernels) for _ in range(2)]
    for result in results:
        assert result.converged
        assert result.kernels == ("xp" if kernels == "xp" else "cuda")
        assert problem.relative_error(result.cur) <= 1e-6
    np.testing.assert_array_equal(cupy.asnumpy(results[0].cur.right), cupy.asnumpy(results[1].cur.right))


def test_float32_is_as_good_as_it_can_be():
    n, chosen = min(SIZE, 3000), min(SIZE // 2, 500)
    problem = rg.synthetic((n, n), 2, 0.1, 10, n_rows=chosen, n_cols=chosen, rate=0.7, dtype="float32", seed=0)
    result = rg.rcurc(problem.samples, 2, device="cuda")
    assert problem.relative_error(result.cur) <= 1e-4


def test_chunks_that_are_copied_while_others_are_computed_are_whole():
    """Two streams and pinned memory that is used again: a missing wait would mix the chunks up."""
    from rcurc_gpu.backends.blocks import Block

    n_units, length = min(SIZE, 4000), min(SIZE, 5000)
    value = np.arange(n_units * length, dtype=np.float64)
    block = Block(np.arange(n_units + 1) * length, np.tile(np.arange(length, dtype=np.int32), n_units), value, length)

    slow = cupy.ones((2000, 2000))
    for _ in range(20):
        slow = slow @ slow / 2000
    factor = slow[0, 0]  # made on this stream, and not yet there when the first chunk is

    def work(there, local, chosen):
        matrix = there.value.reshape(len(local), length) * factor
        for _ in range(20):  # keep the device busy while the next chunk comes
            total = matrix.sum(axis=1)
        return total[:, None], cupy.asarray(chosen)[:, None]

    chunks = np.array_split(np.arange(n_units), 37)
    for chosen, (total, _) in through(block, chunks, np.arange(n_units), cupy.zeros(1), work, lambda chosen, ids: (chosen,)):
        np.testing.assert_allclose(total[:, 0], value.reshape(n_units, length)[chosen].sum(axis=1))


def test_the_last_device_serves_as_well(problem):
    last = cupy.cuda.runtime.getDeviceCount() - 1
    result = rg.rcurc(problem.samples, 5, device=f"cuda:{last}")
    assert result.device == f"cuda:{last}"
    assert problem.relative_error(result.cur) <= 1e-6


def test_the_doctor_is_content():
    report = diagnose("cuda", "RCURC_GPU_TEST_SIZE" in os.environ, lambda line: None)
    assert [check for check in report["checks"] if not check["passed"]] == []
