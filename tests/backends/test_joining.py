"""Two blocks with the same units become one."""

import numpy as np
import pytest

from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.kernels import XP, choose


def random_block(rng, n_units, length, density, with_sigma, dtype):
    seen = rng.random((n_units, length)) < density * rng.random((n_units, 1))
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]).astype(np.int64)
    index = np.nonzero(seen)[1].astype(np.int32)
    value = rng.standard_normal(len(index)).astype(dtype)
    return Block(indptr, index, value, length, np.abs(value) if with_sigma else None)


@pytest.mark.parametrize("with_sigma", [False, True])
@pytest.mark.parametrize("density", [0.0, 0.02, 0.3, 1.0])
def test_each_entry_once_compiled_or_not(density, with_sigma):
    rng = np.random.default_rng(3)
    for n_units, length, dtype in ((40, 57, np.float64), (7, 1, np.float32), (0, 5, np.float64), (5, 400, np.float32)):
        first, second = (random_block(rng, n_units, length, density, with_sigma, dtype) for _ in range(2))
        plain, compiled = (kernels.join(first, second) for kernels in (XP, choose("auto", first.value)))
        for name in ("indptr", "index", "value", "sigma"):
            a, b = getattr(plain[0], name), getattr(compiled[0], name)
            assert (a is None) == (b is None)
            if a is not None:
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)
        assert compiled[1].dtype == np.int8
        np.testing.assert_array_equal(plain[1], compiled[1])
