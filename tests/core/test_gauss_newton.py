"""Gauss-Newton steps recover what gradients do not; nothing is confirmed that is wrong."""

import numpy as np
import pytest

import rcurc_gpu as rg
from bench.phase import FAMILIES, uniform
from rcurc_gpu.result.matrix import LowRankMatrix
from rcurc_gpu.solve.search import CoreSearch

# family, ratio, seed: just above the new limits.
HARD = [("10 %", 2.3, 0), ("20 %", 2.6, 0), ("30 %", 3.6, 0)]


@pytest.mark.parametrize(("family", "ratio", "seed"), HARD)
def test_few_observations_are_enough(family, ratio, seed):
    samples, error_of = FAMILIES[family].make(ratio, seed)
    result = rg.rcurc(samples, 5)
    assert error_of(result.cur) < 1e-9
    assert result.converged


@pytest.mark.filterwarnings("ignore::rcurc_gpu.ConvergenceWarning")
@pytest.mark.parametrize(("family", "ratio", "seed"), HARD[1:])  # the first is found by many sweeps of the noise model, too
def test_without_the_steps_they_are_not(family, ratio, seed, monkeypatch):
    monkeypatch.setattr(CoreSearch, "_steps_are_suited", lambda self: False)
    samples, error_of = FAMILIES[family].make(ratio, seed)
    result = rg.rcurc(samples, 5)
    assert error_of(result.cur) > 1e-3
    assert not result.converged


@pytest.mark.parametrize("seed", range(3))
def test_singular_values_a_hundred_times_apart_are_confirmed(seed):
    samples, error_of = FAMILIES["condition 100"].make(5.0, seed)
    result = rg.rcurc(samples, 5)
    assert error_of(result.cur) < 1e-9
    assert result.converged


@pytest.mark.parametrize("ratio", [2.6, 5.0])
def test_components_that_are_too_many_vanish(ratio):
    samples, error_of = FAMILIES["rank too large"].make(ratio, 0)
    result = rg.rcurc(samples, 10)
    assert result.rank == 5
    assert result.converged
    assert error_of(result.cur) < 1e-6


def test_the_rank_need_not_be_known():
    """A first look takes these data for noise."""
    samples, error_of = FAMILIES["20 %"].make(2.6, 0)
    result = rg.rcurc(samples)
    assert (result.rank, result.converged) == (5, True)
    assert error_of(result.cur) < 1e-9


# rank, alpha, c, seed: the first look calls the noise clear, or one that an iteration does not tell from exact data
LIKE_NOISE = [(3, 0.2, 1.0, 0), (6, 0.2, 1.0, 1), (6, 0.3, 2.0, 2), (4, 0.3, 1.0, 5)]


@pytest.mark.parametrize(("rank", "alpha", "c", "seed"), LIKE_NOISE)
def test_exact_data_that_look_noisy_at_first_are_recovered(rank, alpha, c, seed):
    """Outliers hardly larger than the entries, and few observations."""
    size = {"shape": (160, 160), "rank": rank, "n_rows": 160, "n_cols": 160, "rate": 3 * rank / 160}
    problem = rg.synthetic(**size, alpha=alpha, c=c, seed=seed)
    result = rg.rcurc(problem.samples)
    assert problem.relative_error(result.cur) < 1e-9
    assert (result.rank, result.converged, result.has_noise_model) == (rank, True, False)


@pytest.mark.filterwarnings("ignore::rcurc_gpu.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(3))
def test_too_few_observations_are_not_confirmed(seed):
    samples, error_of = FAMILIES["20 %"].make(1.3, seed)
    result = rg.rcurc(samples, 5)
    assert error_of(result.cur) > 1e-3
    assert not result.converged


def small():
    """A problem that takes Gauss-Newton steps: samples and the true matrix, by its errors."""
    return uniform(0.2, n=60)(4.0, 1)


@pytest.mark.parametrize("kernels", ["xp", "auto"])
def test_all_kernels(kernels):
    samples, error_of = small()
    assert error_of(rg.rcurc(samples, 5, kernels=kernels).cur) < 1e-9


def test_other_arrays(elsewhere):
    samples, error_of = small()
    moved = rg.CrossSamples.from_dense(*dense(samples, elsewhere))
    cur = rg.rcurc(moved, 5).cur
    assert error_of(LowRankMatrix(*(elsewhere.numpy(x) for x in (cur.left, cur.right)))) < 1e-9


def dense(samples, place):
    """Arguments of `from_dense` that give the same samples on another device."""
    n1, n2 = samples.shape
    block = samples.c_block
    Y, seen = np.zeros((n1, n2)), np.zeros((n1, n2), dtype=bool)
    row = np.repeat(np.arange(n1), block.counts)
    Y[row, block.index], seen[row, block.index] = block.value, True
    return place.array(Y), np.arange(n1), np.arange(n2), place.array(seen), place.array(seen)


def test_an_interrupted_solve_goes_on(tmp_path):
    samples, _ = FAMILIES["20 %"].make(2.6, 0)
    seen = []

    def stop(state):
        seen.append(state)
        if len(seen) == 170:  # in the steps, after 150 iterations
            raise KeyboardInterrupt

    whole = rg.rcurc(samples, 5)
    with pytest.raises(KeyboardInterrupt):
        rg.rcurc(samples, 5, callback=stop, checkpoint=tmp_path / "c")
    resumed = rg.rcurc(samples, 5, callback=lambda state: None, checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(resumed.cur.left, whole.cur.left)
