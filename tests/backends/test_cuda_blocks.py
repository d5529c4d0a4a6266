"""Blocks taken apart and put together by CUDA kernels, to the bit as by plain code on NumPy; needs RCURC_TEST_DEVICE."""

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu.backends.blocks import Block, join_units, others, places_of
from rcurc_gpu.backends.kernels import XP
from rcurc_gpu.backends.plain.verdicts import ILL_CONDITIONED
from rcurc_gpu.samples.intersection import _ODD, fingerprints

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy

from rcurc_gpu.backends.cuda import blocks
from rcurc_gpu.backends.cuda.verdicts import UnitTable
from rcurc_gpu.backends.kernels import cuda_kernels

EMULATED = DEVICE == "emulator"
if EMULATED:
    import hostgpu

SEEDS = range(3) if EMULATED else [0]  # of the order of threads and blocks
SHAPES = [(40, 57), (7, 1), (0, 5), (3, 0), (700, 90), (5, 400)]


def random_block(n_units, length, dtype, with_sigma=False, seed=0):
    """Units with very different numbers of entries, some with none."""
    rng = np.random.default_rng(seed)
    seen = rng.random((n_units, length)) < rng.random((n_units, 1)) * (rng.random((n_units, 1)) > 0.2)
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]).astype(np.int64)
    index = np.nonzero(seen)[1].astype(np.int32)
    value = rng.standard_normal(len(index)).astype(dtype)
    return Block(indptr, index, value, length, np.abs(value) if with_sigma else None)


def there(block):
    return block.mapped(cupy.asarray)


def same(found, expected):
    assert found.length == expected.length
    for name in ("indptr", "index", "value", "sigma"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None)
        if b is not None:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a.get(), b)


@pytest.fixture(params=SEEDS)
def orders(request):
    if EMULATED:
        hostgpu.set_seed(request.param)
    yield
    if EMULATED:
        hostgpu.set_seed(0)


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("with_sigma", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_some_units_and_some_entries(shape, with_sigma, dtype, orders):
    block, rng = random_block(*shape, dtype, with_sigma), np.random.default_rng(1)
    units = rng.permutation(shape[0])[: shape[0] // 2]
    flags, places = rng.random(block.n_obs) < 0.4, rng.random(shape[1]) < 0.5
    same(there(block).take_units(units), block.take_units(units))
    same(there(block).where(cupy.asarray(flags)), block.where(flags))
    same(there(block).at_positions(places), block.at_positions(places))
    same(there(block).at_positions(places, units), block.at_positions(places, units))
    for drawn in (lambda n: None, lambda n: np.arange(0, n, 3)):
        found, expected = there(block).triplets(cupy.asarray(flags), drawn), block.triplets(flags, drawn)
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a.get(), b)


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_units_and_positions_are_exchanged(shape, dtype, orders):
    block = random_block(*shape, dtype, with_sigma=dtype != "int64")
    same(there(block).transpose(), block.transpose())
    units = np.random.default_rng(4).permutation(shape[0])[: shape[0] // 2]
    same(there(block).transpose(units), block.take_units(units).transpose())
    same(there(block).transpose(units), block.transpose(units))


@pytest.mark.parametrize("with_sigma", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_two_blocks_become_one(shape, with_sigma, orders):
    first, second = (random_block(*shape, "float64", with_sigma, seed) for seed in (0, 1))
    found, code = cuda_kernels().join(there(first), there(second))
    expected, expected_code = XP.join(first, second)
    same(found, expected)
    np.testing.assert_array_equal(code.get(), expected_code)
    rows = np.random.default_rng(5).permutation(shape[0])[: shape[0] // 2]  # of the second block, some units
    first = first.take_units(np.arange(len(rows)))
    found, code = cuda_kernels().join(there(first), there(second), rows)
    expected, expected_code = XP.join(first, second.take_units(rows))
    same(found, expected)
    np.testing.assert_array_equal(code.get(), expected_code)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_fingerprints(shape, dtype, orders):
    block = random_block(*shape, dtype)
    of_units, of_positions = blocks.fingerprints(there(block), _ODD)
    np.testing.assert_array_equal(of_units.get(), fingerprints(block))
    np.testing.assert_array_equal(of_positions.get(), fingerprints(block.transpose()))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("sizes", [(1, 70_000), (333, 1)])
def test_the_largest_sizes_of_two_vectors(sizes, dtype, orders):
    x, y = (np.random.default_rng(n).standard_normal(n).astype(dtype) for n in sizes)
    assert blocks.largest_sizes(cupy.asarray(x), cupy.asarray(y)) == (np.abs(x).max(), np.abs(y).max())


@pytest.mark.smoke
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", [(7, 3), (40, 1), (300,)])
def test_rows_of_the_core_and_of_the_rest_become_one_factor(shape, dtype, orders):
    rng, n = np.random.default_rng(3), shape[0]
    for k in (0, n // 3, n):
        chosen = rng.permutation(n)[:k]
        core, rest = (rng.standard_normal((size, *shape[1:])).astype(dtype) for size in (k, n - k))
        scale = rng.uniform(0.5, 2, shape[1:]).astype(dtype)
        for factor in (None, scale):
            expected = join_units(core, rest, chosen, n, factor)
            found = join_units(
                cupy.asarray(core), cupy.asarray(rest), chosen, n, None if factor is None else cupy.asarray(factor)
            )
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found.get(), expected)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_some_rows_of_the_rest_are_exchanged_on_the_way(dtype, orders):
    rng = np.random.default_rng(3)
    core, rest, more, scale = (rng.standard_normal(shape).astype(dtype) for shape in ((4, 3), (9, 3), (2, 3), 3))
    chosen, again = np.asarray([0, 5, 6, 12]), np.asarray([3, 8])
    places = places_of(chosen, 13)
    places[others(chosen, 13)[again]] = [-10, -11]
    found = blocks.join_rows(*map(cupy.asarray, (core, rest)), places, cupy.asarray(scale), more)
    rest[again] = more
    np.testing.assert_array_equal(found.get(), join_units(core, rest, chosen, 13, scale))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_product_leaves_of_some_entries(shape, dtype, orders):
    block, rng = random_block(*shape, dtype), np.random.default_rng(1)
    own, other = (rng.standard_normal((size, 3)).astype(dtype) for size in (shape[0] + 2, shape[1] + 1))
    units = rng.permutation(shape[0])[: shape[0] // 2]
    factors = (cupy.asarray(own), units + 2), (cupy.asarray(other), np.arange(shape[1]) + 1)
    for places in (None, rng.random(shape[1]) < 0.5):
        found = blocks.residuals(there(block), units, places, *factors)
        some = block.take_units(units) if places is None else block.at_positions(places, units)
        rest = some.value - np.sum(own[units + 2][some.unit_of_entry()] * other[some.index + 1], axis=1)
        np.testing.assert_array_equal(found.indptr, some.indptr)
        np.testing.assert_array_equal(found.index, some.index)
        np.testing.assert_allclose(found.value, rest, rtol=1.01 * 2**-8, atol=1e-6)


@pytest.mark.parametrize("rank", [1, 3, 8, 32])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_units_that_rest_on_one_entry(rank, dtype, orders):
    rng = np.random.default_rng(rank)
    block, length = random_block(60, 6 * rank + 20, dtype, seed=rank), 6 * rank + 20
    basis, a = rng.standard_normal((length, rank)).astype(dtype), rng.standard_normal((60, rank)).astype(dtype)
    basis[2:, 0] *= rng.random(length - 2) < 0.05  # the first component is in few positions
    usable = (rng.random(length) < 0.9).astype(dtype)
    unit = block.unit_of_entry()
    value = np.sum(basis[block.index] * a[unit], axis=1) + (rng.random(block.n_obs) < 0.2)
    block = Block(block.indptr, block.index, value.astype(dtype), length)
    units = np.sort(rng.choice(60, 40, replace=False))
    expected = XP.rests_on_one(block, units, basis, a[units], usable, 1e-2)
    on_device = (cupy.asarray(x) for x in (basis, a[units], usable))
    found = cuda_kernels().rests_on_one(there(block), units, *on_device, 1e-2)
    np.testing.assert_array_equal(found, expected)
    # the same of some of the units of a table, which are marked there; the others, and those of the core, are not
    known = UnitTable(cupy.empty(0), 60, np.asarray([], np.int64), np.zeros((0, 6)))
    known.table[:] = 0
    on_device = (cupy.asarray(x) for x in (basis, a, usable))
    cuda_kernels().mark_lone(there(block), known, cupy.asarray(units), *on_device, 1e-2)
    marked = known.known()[:, 0]
    np.testing.assert_array_equal(marked[units] == ILL_CONDITIONED, expected)
    assert np.count_nonzero(marked) == expected.sum()
    assert rank == 1 or 0 < expected.sum() < len(units)
