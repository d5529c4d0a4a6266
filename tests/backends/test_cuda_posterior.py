"""The CUDA kernel of the noise model agrees with the plain code on NumPy, whatever the order of the threads, in one launch.

Like test_cupy.py this needs RCURC_TEST_DEVICE: the emulator in tests/hostgpu, or "cuda" for a GPU.
"""

from dataclasses import replace

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.plain.posterior import Fit, Model, Noise, Positions, packed_size, positions_of, posterior

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy

from rcurc_gpu.backends.cuda import calls as cuda

EMULATED = DEVICE == "emulator"
if EMULATED:
    import hostgpu

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}
EXACT = [Fit.N_FIT, Fit.N_INLIERS, Fit.N_INFORMATIVE]
COUNTS = [0, 3, 40, 77, 31, 32, 33, 260, 1, 1300]  # the last is taken by all warps of a block
LENGTH = 1400


def problem(K, dtype, offsets=True, counts=COUNTS, seed=0):
    """Units with so many observations, with noise, outliers and weights: block, weight, model, start."""
    rng = np.random.default_rng(seed)
    q, p = np.tril_indices(K)
    A = 0.05 * rng.standard_normal((LENGTH, K, K))
    mean, covariance = rng.standard_normal((LENGTH, K)), (A @ A.transpose(0, 2, 1))[:, q, p]
    at = positions_of(mean, covariance, rng.uniform(0.5, 2, LENGTH), 0.3 * offsets, offsets)
    index = np.concatenate([np.sort(rng.choice(LENGTH, n, replace=False)) for n in counts]).astype(np.int32)
    Z = rng.standard_normal((len(counts), K))
    y = np.sum(at.x[index] * np.repeat(Z, counts, axis=0), axis=1) + at.shift[index] + 0.1 * rng.standard_normal(len(index))
    y = y + 20 * (rng.random(len(y)) < 0.1)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    weight = rng.choice([0.0, 1.0, 2.0], len(y), p=[0.1, 0.8, 0.1]).astype(dtype)
    names = ("x", "shift", "second", "cross", "covariance", "scale")
    at = Positions(*(getattr(at, name).astype(dtype, order="C") for name in names), offsets)
    model = Model(at, Noise(0.02, 6.0, 0.1, 50.0, 0.7, 0.2), rng.uniform(0.5, 2, K).astype(dtype))
    # near the truth, or else which observations are outliers would hang on rounding
    covariance0 = np.tile(0.01 * np.eye(K)[q, p], (len(counts), 1))
    start = (Z + 0.02 * rng.standard_normal(Z.shape), covariance0, rng.uniform(0.5, 2, len(counts)))
    return Block(indptr, index, y.astype(dtype), LENGTH), weight, model, tuple(x.astype(dtype, order="C") for x in start)


def on_device(block, weight, units, model, start, *others):
    at = model.at.to(cupy.empty(0))
    there = Model(at, model.noise, cupy.asarray(model.precision))
    if EMULATED:
        hostgpu.reset_stats()
    found = cuda.posterior(
        block.mapped(cupy.asarray), None if weight is None else cupy.asarray(weight), units, there,
        tuple(map(cupy.asarray, start)), *others,
    )  # fmt: skip
    if EMULATED and len(units):
        assert hostgpu.stats()["launches_by_kernel"] == {"posterior": 1}
    return [x.get() for x in found]


def check(block, weight, units, model, start, *others):
    """Compare with the plain code: numbers of observations are equal, all else is to rounding."""
    dtype = model.at.x.dtype
    start = tuple(x[units] for x in start)
    expected = posterior(block, weight, units, model, start, *others)
    found = on_device(block, weight, units, model, start, *others)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == dtype
        assert mine.shape == theirs.shape
    np.testing.assert_array_equal(found[2][:, EXACT], expected[2][:, EXACT])
    tables = zip(found[2].T, expected[2].T, strict=True)  # each column by its own size
    for mine, theirs in [*zip(found[:2], expected[:2], strict=True), *tables]:
        size = max(np.abs(theirs).max(initial=0), 1e-30)
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=TOLERANCE[dtype.name] * size)
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("K", [1, 2, 6, 17, 32])
def test_posterior_for_any_number_of_unknowns(dtype, K):
    block, weight, model, start = problem(K, dtype, offsets=K > 1)
    check(block, weight, np.arange(len(COUNTS)), model, start, (1.0,), True)


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize(("heats", "measure"), [((2.0, 1.0, 1.0), True), ((2.0, 1.0), False), ((), True)])
def test_posterior_with_and_without_offsets_steps_and_measure(offsets, heats, measure):
    block, weight, model, start = problem(4, "float64", offsets)
    units = np.asarray([9, 2, 0, 7, 3])
    found = check(block, weight, units, model, start, heats, measure)
    if not heats:
        np.testing.assert_array_equal(found[0], start[0][units])
        np.testing.assert_array_equal(found[1], start[1][units])


def test_posterior_of_values_in_single_precision():
    """Shards keep them so; the sums are in double precision."""
    block, _, model, start = problem(5, "float64")
    block = replace(block, value=block.value.astype(np.float32))
    check(block, None, np.arange(len(COUNTS)), model, start, (1.0, 1.0), True)


@pytest.mark.parametrize("seed", range(3) if EMULATED else [0])
def test_posterior_does_not_depend_on_the_order_of_threads_or_on_other_units(seed):
    block, weight, model, start = problem(6, "float64")
    units = np.arange(len(COUNTS))
    first = check(block, weight, units, model, start, (2.0, 1.0), True)
    if EMULATED:
        hostgpu.set_seed(seed + 1)
    again = check(block, weight, units, model, start, (2.0, 1.0), True)
    alone = check(block, weight, units[-1:], model, start, (2.0, 1.0), True)
    for a, b, c in zip(first, again, alone, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a[-1:], c)


def test_without_observations_the_prior_stays():
    block, weight, model, start = problem(4, "float64", counts=[0, 5])
    mean, covariance, table = check(block, weight, np.asarray([0]), model, start, (1.0,), False)
    np.testing.assert_array_equal(mean, 0)
    np.testing.assert_allclose(covariance[0, np.cumsum(np.arange(1, 5)) - 1], 1 / model.precision)
    assert table[0, Fit.N_FIT] == 0
    empty = on_device(block, weight, np.zeros(0, np.int64), model, tuple(x[:0] for x in start), (1.0,), False)
    assert [x.shape for x in empty] == [(0, 4), (0, packed_size(4)), (0, len(Fit))]
