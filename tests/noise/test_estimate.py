"""Single columns and rows, given the noise model."""

import numpy as np
import pytest

from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.kernels import RunContext, choose
from rcurc_gpu.backends.plain.posterior import Noise, positions_of
from rcurc_gpu.noise.estimate import UnitModel, Units

N_UNITS, N_POSITIONS, K = 40, 90, 3


def make(kernels, n_seen=45):
    """Units with a fifth of outliers, and the truth."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((N_POSITIONS, K))
    at = positions_of(x, np.zeros((N_POSITIONS, K * (K + 1) // 2)), np.ones(N_POSITIONS), 0.0, False)
    truth = rng.standard_normal((N_UNITS, K))
    index = np.sort(np.argsort(rng.random((N_UNITS, N_POSITIONS)))[:, :n_seen])
    value = np.einsum("uk,upk->up", truth, x[index]) + 0.01 * rng.standard_normal(index.shape)
    value[rng.random(value.shape) < 0.2] += 10
    block = Block(np.arange(N_UNITS + 1) * n_seen, index.ravel().astype(np.int32), value.ravel(), N_POSITIONS)
    model = UnitModel(at, np.arange(N_POSITIONS), True, np.ones(K), Noise(1e-4, 6.0, 0.2, 40.0))
    like = np.empty(0)
    return model, block, RunContext(like, choose(kernels, like)), truth


@pytest.mark.parametrize("kernels", ["xp", "fused"])
@pytest.mark.parametrize("n_seen", [12, 45])  # too few for a robust regression to begin with, and enough
def test_outliers_hardly_matter(kernels, n_seen):
    model, block, run, truth = make(kernels, n_seen)
    (mean, _, scale), _ = Units(model, block, run.like, run).estimated(np.arange(N_UNITS))
    assert np.median(np.abs(mean - truth)) < 0.01
    assert np.all((scale > 0.3) & (scale < 3))


@pytest.mark.parametrize("n_seen", [12, 45])
def test_a_unit_does_not_depend_on_those_beside_it(n_seen):
    model, block, run, _ = make("fused", n_seen)
    together, table = Units(model, block, run.like, run).estimated(np.arange(N_UNITS))
    for chosen in (np.arange(7, 12), np.asarray([0, 5, 39])):
        alone = block.take_units(chosen)
        found, own = Units(model, alone, run.like, run).estimated(np.arange(len(chosen)))
        np.testing.assert_array_equal(own, table[chosen])
        for a, b in zip(found, together, strict=True):
            np.testing.assert_array_equal(a, b[chosen])
