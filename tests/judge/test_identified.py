"""What the data cannot tell, where most of them agree: weak ties, components outside of I, copies, models of exact data."""

import warnings

import numpy as np
import pytest

import rcurc_gpu as rg
from bench.redteam import problem
from rcurc_gpu.judge.causes import Evidence
from rcurc_gpu.judge.identified import untold
from rcurc_gpu.noise.model import Group


def solved(samples, rank, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        return rg.rcurc(samples, rank, **options)


def relative_error(result, X):
    return np.linalg.norm(result.cur.to_dense() - X) / np.linalg.norm(X)


# ---------------------------------------------------------------- a component that the chosen rows do not have


def local_component(seed, noise, inside):
    """A fourth component in columns of all kinds and in rows outside of I, or in all rows (`inside`)."""
    rng = np.random.default_rng(seed)
    n1, n2 = 240, 200
    rows, cols = np.arange(120), np.arange(100)
    X = rng.standard_normal((n1, 3)) @ rng.standard_normal((3, n2))
    u = rng.standard_normal(n1) * 2
    u[:120] *= inside
    X = X + np.outer(u, rng.standard_normal(n2))
    Y = X + noise * rng.standard_normal(X.shape)
    seen = rng.random(X.shape) < 0.6
    return X, rg.CrossSamples.from_dense(np.where(seen, Y, np.nan), rows, cols)


@pytest.mark.parametrize("noise", [0.02, 0.2])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_the_chosen_rows_do_not_tell_is_expected(noise, seed):
    """Columns outside of J may have any share of it: without that the error was twice what was expected, or more."""
    X, samples = local_component(seed, noise, inside=False)
    result = solved(samples, "auto")
    assert not result.converged
    if result.rank == 4:  # else it was taken for outliers, and that is said
        assert 0.6 < relative_error(result, X) / result.expected_error < 1.6


def test_what_they_tell_costs_nothing():
    X, samples = local_component(0, 0.1, inside=True)
    result = solved(samples, "auto")
    assert result.converged
    assert 0.6 < relative_error(result, X) / result.expected_error < 1.6


def test_untold_directions():
    rng = np.random.default_rng(0)
    turned = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    errors = np.broadcast_to(np.asarray([1e-4, 0, 1e-4, 0, 0, 1e-4]), (80, 6))
    rows, cols = rng.standard_normal((80, 3)), 2 * rng.standard_normal((60, 3))
    chosen = Group(rows @ turned, errors, np.ones(80))
    across = Group(cols @ turned, errors[:60], np.ones(60))
    assert untold(chosen, across, turned.T @ turned) == 0
    rows[:, 2] = 1e-2 * rng.standard_normal(80)  # no farther from 0 than its errors
    lost = untold(Group(rows @ turned, errors, np.ones(80)), across, turned.T @ turned)
    assert lost == pytest.approx(np.mean(cols[:, 2] ** 2), rel=0.1)
    rows[7, 2] = 5.0  # in a single row, which may be wrong
    assert untold(Group(rows @ turned, errors, np.ones(80)), across, turned.T @ turned) == pytest.approx(lost, rel=0.2)


# ---------------------------------------------------------------- weak ties


@pytest.mark.parametrize("seed", range(6))
def test_a_band_with_breaks_is_not_confirmed_beside_them(seed):
    """Rows and columns meet their neighbours alone. Where the fit breaks, few entries agree with both sides by chance."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((220, 3)) @ rng.standard_normal((3, 240))
    i, j = (np.arange(n) / n for n in X.shape)
    seen = (np.abs(i[:, None] - j) < 0.045) & (rng.random(X.shape) < 0.9)
    places = np.nonzero(seen)
    everything = tuple(map(np.arange, X.shape))
    samples = rg.CrossSamples.from_triplets(*places, X[places], shape=X.shape, rows=everything[0], cols=everything[1])
    result = solved(samples, 3)
    rest = np.ix_(result.rows.status == 0, result.columns.status == 0)
    right = np.linalg.norm((result.cur.to_dense() - X)[rest]) < 1e-2 * np.linalg.norm(X[rest])
    assert right or not (result.converged or "the rest is confirmed" in result.message)


def test_a_core_that_is_hardly_seen_with_noise():
    """Rows of I with columns outside of J are one group, rows outside of I with those of J the other."""
    rng = np.random.default_rng(3)
    rows, cols = np.arange(80), np.arange(80)
    X = rng.standard_normal((160, 2)) @ rng.standard_normal((2, 160))
    rate = np.full(X.shape, 0.7)
    rate[:80, :80] = 0.004
    Y = np.where(rng.random(X.shape) < rate, X + 0.05 * rng.standard_normal(X.shape), np.nan)
    result = solved(rg.CrossSamples.from_dense(Y, rows, cols), 2)
    assert not result.converged or relative_error(result, X) <= max(1e-2, 2 * result.expected_error)


# ---------------------------------------------------------------- copies


def copies(seed, rate, times=4):
    """Each row four times, seen in the same places."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 3)) @ rng.standard_normal((3, 220))
    Y = np.where(rng.random(X.shape) < rate, X, np.nan)
    X, Y = (np.repeat(A, times, axis=0) for A in (X, Y))
    return X, rg.CrossSamples.from_dense(Y, *map(np.arange, X.shape))


def test_copies_are_held_out_together():
    _, samples = copies(0, 0.3)
    first_rows, first_cols = samples.intersection.first_copies()
    np.testing.assert_array_equal(first_rows, np.arange(240) // 4 * 4)
    np.testing.assert_array_equal(first_cols, np.arange(220))


def test_rows_that_only_begin_alike_are_no_copies():
    Y = np.random.default_rng(0).standard_normal((6, 5))
    Y[3, :4], Y[4] = Y[1, :4], Y[2]
    first_rows, first_cols = rg.CrossSamples.from_dense(Y, *map(np.arange, Y.shape)).intersection.first_copies()
    np.testing.assert_array_equal(first_rows, [0, 1, 2, 3, 2, 5])
    np.testing.assert_array_equal(first_cols, np.arange(5))


@pytest.mark.parametrize("seed", range(4))
def test_copies_prove_nothing(seed):
    """Six different rows in a column: what they say is not enough, however often they say it."""
    X, samples = copies(seed, 0.1)
    result = solved(samples, 3)
    rest = np.ix_(result.rows.status == 0, result.columns.status == 0)
    right = np.linalg.norm((result.cur.to_dense() - X)[rest]) < 1e-2 * np.linalg.norm(X[rest])
    assert right or not (result.converged or "the rest is confirmed" in result.message)


def test_with_enough_different_rows_they_are_confirmed():
    X, samples = copies(0, 0.4)
    result = solved(samples, 3)
    assert result.converged, result.message
    assert relative_error(result, X) < 1e-6


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_zeros_for_half_of_the_entries_are_not_noise(seed):
    """The model would find half of the matrix, and be sure of it."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 220))
    Y = np.where(rng.random(X.shape) < 0.5, 0.0, X)
    Y[rng.random(X.shape) > 0.7] = np.nan
    result = solved(rg.CrossSamples.from_dense(Y, np.arange(100), np.arange(110)), 3)
    assert not result.converged or relative_error(result, X) < 1e-2


def test_counts_that_are_often_0_are():
    rng = np.random.default_rng(0)
    X = rng.gamma(2.0, 0.4, (200, 2)) @ rng.gamma(2.0, 0.4, (2, 220))
    Y = rng.poisson(X).astype(float)
    assert np.mean(Y == 0) > 0.2
    result = solved(rg.CrossSamples.from_dense(Y, np.arange(100), np.arange(110)), "auto")
    assert result.converged, result.message
    assert relative_error(result, X) <= 2 * result.expected_error


def test_few_values_are_told_whatever_share_agrees():
    for held in (0.5, 0.7, 0.9, 0.97):
        for chance in (0.0, 0.05, 0.3, 0.5):
            if chance < held:
                beyond = (held - chance) / (1 - chance)
                evidence = Evidence(0.0, held, held, 3, 0.0, 1.0, 1000, beyond)
                assert evidence.has_few_values == (chance > 0.1)


# ---------------------------------------------------------------- groups that never met, by any method


@pytest.mark.parametrize("noise", [0, 0.05])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_papers_method_names_groups_too(noise, seed):
    """Its core explains little where groups never met: they are why."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((120, 2)) @ rng.standard_normal((2, 110))
    row_group, col_group = np.arange(120) % 2, np.arange(110) % 2
    seen = (row_group[:, None] == col_group) & (rng.random(X.shape) < 0.6)
    Y = np.where(seen, X + noise * rng.standard_normal(X.shape), np.nan)
    samples = rg.CrossSamples.from_dense(Y, np.arange(120), np.arange(110))
    result = solved(samples, 2, method="paper")
    assert (result.converged, result.cause) == (False, "unidentified")
    same = result.groups.rows[:, None] == result.groups.columns
    assert np.array_equal(same, row_group[:, None] == col_group)


# ---------------------------------------------------------------- few observations


def test_what_is_fitted_to_a_wrong_row_does_not_confirm_it():
    """About ten observations of a row, half of them wrong: a row and a column agree by chance, and others with them."""
    p = problem("few observations, many outliers", 5005)
    result = solved(p.samples(), p.rank, seed=5005)
    rest = np.ix_(result.rows.status == 0, result.columns.status == 0)
    assert np.linalg.norm((result.cur.to_dense() - p.X)[rest]) < 1e-8 * np.linalg.norm(p.X[rest])
    assert result.rows.status.size - len(result.rows.undetermined) > 150


def test_changes_beyond_all_numbers_are_compared_all_the_same():
    rng = np.random.default_rng(11)
    X = np.outer(rng.standard_normal(300), rng.standard_normal(60))
    X[rng.random(X.shape) < 0.05] = -99
    X[rng.random(X.shape) > 0.04] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        assert not rg.robust_pca(X).converged
