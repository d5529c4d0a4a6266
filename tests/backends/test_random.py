"""Random numbers that belong to a position: uniform, independent, and the same everywhere."""

import numpy as np
import pytest

from rcurc_gpu.backends.random import normal_at, seed_to_int, uniform_at

SIDE = 300
I, J = np.divmod(np.arange(SIDE * SIDE), SIDE)  # noqa: E741
N = SIDE * SIDE


def correlation(x, y):
    return abs(np.corrcoef(x.reshape(-1), y.reshape(-1))[0, 1])


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_positions_have_uniform_numbers(seed):
    u = uniform_at(I, J, seed)
    assert u.min() >= 0
    assert u.max() < 1
    counts = np.histogram(u, bins=20, range=(0, 1))[0]
    assert (np.abs(counts - N / 20) < 5 * (N / 20) ** 0.5).all()


def test_neighbours_streams_and_seeds_are_independent():
    u = uniform_at(I, J, 0).reshape(SIDE, SIDE)
    bound = 5 / N**0.5
    for step in (1, 2, 4, 16, 128):
        assert correlation(u[:, step:], u[:, :-step]) < 5 / (N - step * SIDE) ** 0.5
        assert correlation(u[step:], u[:-step]) < 5 / (N - step * SIDE) ** 0.5
    assert correlation(u[np.triu_indices(SIDE, 1)], u.T[np.triu_indices(SIDE, 1)]) < 2 * bound
    for seed, stream in ((0, 1), (0, 2), (1, 0), (2**62, 0)):
        assert correlation(u, uniform_at(I, J, seed, stream)) < bound


def test_normal_numbers_have_the_moments_of_the_normal_distribution():
    x = normal_at(I, J, 3)
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert np.mean(x**power) == pytest.approx(moment, abs=5 * (variance / N) ** 0.5)


def test_a_position_has_its_number_alone_and_in_company_and_on_every_library(xp):
    u = uniform_at(I, J, 7, 2)
    order = np.random.default_rng(0).permutation(N)[:1000]
    found = uniform_at(xp.array(I[order]), xp.array(J[order]), 7, 2)
    np.testing.assert_array_equal(xp.numpy(found), u[order])
    table = uniform_at(xp.array(np.arange(5)[:, None]), xp.array(np.arange(6)[None, :]), 7, 2)
    np.testing.assert_array_equal(xp.numpy(table), u.reshape(SIDE, SIDE)[:5, :6])


def test_large_positions_do_not_collide():
    big = np.array([0, 1, 2**31, 2**32 - 1])
    u = uniform_at(big[:, None], big[None, :], 0)
    assert len(np.unique(u)) == 16


def test_seeds():
    assert seed_to_int(5) == seed_to_int(np.uint8(5)) == 5
    assert seed_to_int(np.random.default_rng(1)) == seed_to_int(np.random.default_rng(1))
    assert seed_to_int(None) != seed_to_int(None)
    assert 0 <= seed_to_int(None) < 2**63
