"""Random numbers that belong to a position: uniform, independent, and the same everywhere."""

import numpy as np
import pytest

from rcurc_gpu.backends.random import (
    N_PARTS,
    DataStream,
    PositionStream,
    Stream,
    generator,
    normal_at,
    stream_key,
    uniform_at,
)
from rcurc_gpu.errors import seed_to_int

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


@pytest.mark.parametrize("register", [Stream, DataStream, PositionStream])
def test_no_two_streams_are_the_same(register):
    # aliases, which an enumeration makes of equal numbers, are in __members__ too
    numbers = [int(stream) for stream in register.__members__.values()]
    assert len(set(numbers)) == len(numbers)


def test_each_restart_has_a_stream_of_its_own():
    taken = set(range(PositionStream.PART, PositionStream.PART + N_PARTS))
    assert taken & {int(stream) for stream in PositionStream} == {PositionStream.PART}


def test_normal_numbers_take_the_two_streams_that_are_registered():
    assert PositionStream.NOISE_ANGLE == PositionStream.NOISE + 1


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**32, 2**63 - 1])
def test_streams_give_the_numbers_of_the_versions_before(seed):
    old = {
        Stream.SAMPLE: [seed, 1],
        Stream.PILOT: [seed, 2],
        Stream.HEAD_START: [seed, 3],
        Stream.ROBUST_PCA: [seed, 4],
        Stream.IRCUR: [seed, 5],
        Stream.RIVALS: [seed, 6],
        Stream.START: seed,
        DataStream.STREET: (seed, 1),
        DataStream.MOVERS: (seed, 2),
    }
    for stream, entropy in old.items():
        np.testing.assert_array_equal(generator(seed, stream).random(9), np.random.default_rng(entropy).random(9))
    np.testing.assert_array_equal(generator(seed, DataStream.WHOLE).random(9), np.random.default_rng(seed).random(9))
    for frame in (0, 3):
        camera, before = generator(seed, DataStream.CAMERA, frame), np.random.default_rng((seed, 3, frame))
        np.testing.assert_array_equal(camera.random(9), before.random(9))


def test_keys_of_positions_are_those_of_the_versions_before():
    assert [int(s) for s in PositionStream] == [1, 2, 3, 4, 11, 21, 28, 29]
    assert stream_key(7, PositionStream.HOLDOUT) == stream_key(7, 11)
    found = uniform_at(np.array([0, 1, 5]), np.array([0, 2, 3]), 7, PositionStream.HOLDOUT)
    assert found.tolist() == [0.5949973810328616, 0.39711902296906043, 0.3952240134752075]
