"""Device memory that fails at each allocation of a step of a solve: the result is right, or there is an error."""

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import DEVICE

import rcurc_gpu as rg
from rcurc_gpu.backends.arrays import is_out_of_memory
from rcurc_gpu.backends.kernels import XP
from rcurc_gpu.doctor.selftest import Place, largest_difference
from rcurc_gpu.doctor.step_checks import STEPS, _data

if DEVICE != "emulator":
    pytest.skip("memory fails when it is told to on the emulator only: RCURC_TEST_DEVICE=emulator", allow_module_level=True)

import cupy

from rcurc_gpu.backends.kernels import cuda_kernels


class Failing:
    """An allocator that fails once, at its n-th call."""

    def __init__(self, n):
        self.pool, self.n, self.calls = cupy.get_default_memory_pool(), n, 0

    def __call__(self, size):
        self.calls += 1
        if self.calls == self.n:
            raise cupy.cuda.memory.OutOfMemoryError(size, 0, 0)
        return self.pool.malloc(size)

    def __enter__(self):
        cupy.cuda.set_allocator(self)
        return self

    def __exit__(self, *error):
        cupy.cuda.set_allocator(self.pool.malloc)


def attempt(run, n):
    """What `run` gives if the n-th allocation fails, None if it says that there is no memory; and how many there were."""
    with Failing(n) as failing:
        try:
            return run(), failing.calls
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return None, failing.calls


@pytest.mark.parametrize("step", STEPS)
def test_each_allocation_of_a_step_may_fail(step):
    """An error, and no wrong numbers then or later: counters of kernels are as they were."""
    data, kernels = _data("float64", 60), cuda_kernels()
    there = Place(cupy, "cuda:0").put(data)

    def run():
        return STEPS[step](kernels, SimpleNamespace(**there))

    expected = STEPS[step](XP, SimpleNamespace(**data))
    found, total = attempt(run, 0)
    assert largest_difference(found, expected) < 1e-10
    outcomes = []
    for n in range(1, total + 1):
        found, _ = attempt(run, n)
        outcomes.append(found is None)
        assert found is None or largest_difference(found, expected) < 1e-10
    assert any(outcomes)
    assert largest_difference(run(), expected) < 1e-10


def test_an_allocation_of_a_solve_that_fails_ends_it_or_does_no_harm():
    """Observations that are on the device stay there, so that most are errors; chunks of a fit pass are halved instead."""
    problem = rg.synthetic((90, 80), 2, 0.2, 10, n_rows=40, n_cols=40, rate=0.5, seed=3)
    samples = problem.samples.to_namespace(cupy)

    def run():
        return rg.rcurc(samples, 2)

    expected, total = attempt(run, 0)
    assert problem.relative_error(expected.cur) < 1e-8
    for n in np.random.default_rng(0).integers(1, total, 8).tolist():
        found, _ = attempt(run, n)
        if found is not None:
            assert found.converged
            np.testing.assert_allclose(found.cur.to_dense().get(), expected.cur.to_dense().get(), atol=1e-10)
    np.testing.assert_array_equal(run().cur.left.get(), expected.cur.left.get())
