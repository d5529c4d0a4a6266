"""The intersection laid out by CUDA kernels, against the plain code on NumPy; needs RCURC_TEST_DEVICE."""

import numpy as np
import pytest
from conftest import DEVICE, SKIP_CUPY

from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.kernels import XP

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy

from rcurc_gpu.backends.cuda.grid import CudaDenseGrid, CudaGrid
from rcurc_gpu.backends.kernels import cuda_kernels

EMULATED = DEVICE == "emulator"
if EMULATED:
    import hostgpu

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def intersection(m, n, rate, dtype, zeros=0.2):
    """A block with some values of 0, and who sees each entry."""
    rng = np.random.default_rng(m)
    seen = rng.random((m, n)) < rate
    value = rng.standard_normal(int(seen.sum())) * (rng.random(int(seen.sum())) >= zeros)
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]).astype(np.int64)
    block = Block(indptr, np.nonzero(seen)[1].astype(np.int32), value.astype(dtype), n)
    return block, rng.integers(1, 4, block.n_obs).astype(np.int8)


def both(block, seen_by, share, drawn=lambda n: None):
    """What the plain code on NumPy gives, and what the kernels do."""
    ids = 3 * np.arange(block.n_units) + 1, 2 * np.arange(block.length)
    asked = []

    def steps(count):
        asked.append(count)
        return 1.5, 2.5, 3.5

    rest = ((9, share), steps, drawn)
    expected = XP.lay_out(block, seen_by, ids, *rest)
    there = block.mapped(cupy.asarray), cupy.asarray(seen_by), tuple(map(cupy.asarray, ids))
    found = cuda_kernels().lay_out(*there, *rest)
    assert len(set(asked)) == 1
    return expected, found


@pytest.mark.smoke
@pytest.mark.parametrize("seed", range(3) if EMULATED else [0])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("shape", "rate", "layout"), [((40, 57), 0.2, CudaGrid), ((60, 33), 0.9, CudaDenseGrid), ((1, 1), 1.0, None)]
)
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_layout_is_that_of_the_plain_code(shape, rate, layout, share, dtype, seed):
    block, seen_by = intersection(*shape, rate, dtype)
    if EMULATED:
        hostgpu.set_seed(seed)
    expected, found = both(block, seen_by, share)
    assert layout is None or type(found.grid) is layout
    assert found.n_fit == expected.n_fit
    np.testing.assert_allclose(found.total, expected.total, rtol=TOLERANCE[dtype])
    np.testing.assert_array_equal(found.weight.get(), expected.weight)
    for name in ("held", "sample"):
        for a, b in zip(getattr(found, name), getattr(expected, name), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a.get(), b)
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((size, 3)).astype(dtype) for size in shape)
    told, by_plain = found.grid.tally(cupy.asarray(left), cupy.asarray(right), 1.0), expected.grid.tally(left, right, 1.0)
    np.testing.assert_allclose(told.square, by_plain.square, rtol=10 * TOLERANCE[dtype])
    for a, b in zip(told[1:], by_plain[1:], strict=True):
        np.testing.assert_array_equal(a, b)
    kept, _, _ = found.grid.inlying(cupy.asarray(left), cupy.asarray(right), np.inf)
    by_plain, _, _ = expected.grid.inlying(left, right, np.inf)
    product = expected.grid.rmul(by_plain, left)
    np.testing.assert_allclose(
        found.grid.rmul(kept, cupy.asarray(left)).get(), product, atol=TOLERANCE[dtype] * 30 * np.abs(product).max()
    )


def test_a_part_of_the_sample_is_drawn_and_zeros_are_where_there_is_nothing_else():
    block, seen_by = intersection(40, 57, 0.5, "float64")
    for zeros in (False, True):
        block = Block(block.indptr, block.index, 0 * block.value if zeros else block.value, block.length)
        expected, found = both(block, seen_by, 0.1, lambda n: np.arange(0, n, 3))
        for a, b in zip(found.sample, expected.sample, strict=True):
            np.testing.assert_array_equal(a.get(), b)
        assert len(expected.sample[0]) > 100
