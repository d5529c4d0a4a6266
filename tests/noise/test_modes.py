"""Rows with hardly more right observations than unknowns: several solutions explain them, and the result says so."""

import warnings

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.arrays import to_numpy
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.kernels import RunContext, choose
from rcurc_gpu.backends.plain.posterior import Model, Noise, positions_of
from rcurc_gpu.noise.modes import Found, with_modes
from rcurc_gpu.noise.run import run_posterior


def table(seed, rank, noise, shape=(2000, 20)):
    """A long table with a tenth of its entries wrong and half of them missing, and the truth."""
    rng = np.random.default_rng([seed, 20])
    X = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1])) / rank**0.5
    out = rng.random(shape) < 0.1
    Y = np.where(out, 10 * np.abs(X).mean() * rng.uniform(-1, 1, shape), X) + noise * rng.standard_normal(shape)
    return X, np.where(rng.random(shape) < 0.5, Y, np.nan)


@pytest.mark.parametrize(("seed", "rank", "noise"), [(0, 2, 0.01), (2, 4, 0.01), (5, 4, 0.05), (11, 4, 0.01), (22, 3, 0.05)])
def test_a_long_table_of_few_columns_is_as_wrong_as_it_says(seed, rank, noise):
    """One solution for each row, as sure as its noise, made errors of 2.4 to 3.5 times the expected one."""
    X, Y = table(seed, rank, noise)
    result = rg.robust_pca(Y, seed=seed)
    assert result.converged
    assert np.linalg.norm(result.cur.to_dense() - X) < 1.6 * result.expected_error * np.linalg.norm(X)


def cross_of(Y):
    """Every third row is chosen, and all columns: most rows are estimated on their own."""
    return rg.CrossSamples.from_dense(Y, np.arange(0, len(Y), 3), np.arange(Y.shape[1]))


def solved(samples):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        return rg.rcurc(samples, 3)


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_are_not_chosen_are_as_wrong_as_they_say(seed):
    X, Y = table(100 + seed, 3, 0.02, (900, 24))
    result = solved(cross_of(Y))
    assert np.linalg.norm(result.cur.to_dense() - X) < 1.6 * result.expected_error * np.linalg.norm(X)


def test_on_a_device_they_are_the_same(elsewhere):
    samples = cross_of(table(103, 3, 0.02, (300, 24))[1])
    there = solved(samples.to_namespace(elsewhere.namespace, elsewhere.device))
    there, here = to_numpy(there.cur.to_dense()), solved(samples).cur.to_dense()
    np.testing.assert_allclose(there, here, atol=1e-6 * np.abs(here).max())


def mixed(observed, noise=1e-4):
    """Rows with one unknown, seen at positions that all are 1: what mean field finds, and what mixtures make of it."""
    n, length = len(observed), max(map(len, observed))
    at = positions_of(np.ones((length, 1)), np.zeros((length, 1)), np.ones(length), 0.0, False)
    model = Model(at, Noise(noise, 4.0, 0.1, 20.0), np.ones(1))
    counts, units, scale = [len(row) for row in observed], np.arange(n), np.ones(n)
    index = np.concatenate([np.arange(count) for count in counts]).astype(np.int32)
    block = Block(np.concatenate([[0], np.cumsum(counts)]), index, np.concatenate(observed).astype(float), length)
    run = RunContext(np.empty(0), choose("xp", np.empty(0)))
    start = np.zeros((n, 1)), np.zeros((n, 1)), scale
    known = Found(*run_posterior(run, block, None, units, model, start, (64.0, 8.0, 1.0, 1.0), False))
    return known, with_modes(run, block, None, units, units, model, scale, known)


def test_two_values_that_disagree_both_count():
    """Nobody can tell which of the two is wrong."""
    _, found = mixed([[1.0, -0.8]])
    assert -0.7 < found.mean[0, 0] < 0.9
    assert found.covariance[0, 0] > 0.2 * 1.8**2


def test_what_two_of_three_observations_say_is_believed():
    _, found = mixed([[1.0, 1.001, -0.8]])
    assert found.mean[0, 0] == pytest.approx(1.0, abs=0.01)
    assert found.covariance[0, 0] < 1e-3


def test_a_row_that_enough_observations_tell_stays_as_it_is():
    known, found = mixed([[0.7] * 10, [1.0, -0.8]])
    assert found.mean[0] == known.mean[0]
    assert found.covariance[0] == known.covariance[0]
    assert found.mean[1] != known.mean[1]


def test_noise_as_large_as_the_entries_leaves_nothing_to_mix():
    known, found = mixed([[1.0, -0.8]], noise=0.5)
    assert found is known
