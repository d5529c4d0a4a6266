"""Robust least squares against plain least squares on the true inliers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcurc_gpu.backends.plain.passes import Column, FitPass, _measure, _subset
from rcurc_gpu.backends.plain.regression import Schedule, middle_residual, robust_regression, solve_normal


def problem(rng, units, m, r, outliers, noise=0.0, padding=0):
    D = rng.standard_normal((units, m, r))
    truth = rng.standard_normal((units, r))
    y = (D @ truth[:, :, None])[:, :, 0] + noise * rng.standard_normal((units, m))
    hit = rng.random((units, m)).argsort(axis=1) < outliers
    y = y + np.where(hit, rng.uniform(-20, 20, (units, m)), 0)
    fit = np.ones((units, m))
    if padding:
        fit[:, -padding:] = 0
        y[:, -padding:] = 0
    return D, y, fit, truth, hit


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_exact_data_with_outliers_is_solved_exactly(r, seed):
    D, y, fit, truth, _ = problem(np.random.default_rng(seed), 30, 20 * r + 20, r, 2 * r + 2, padding=3)
    a = robust_regression(D, y, fit, Schedule(5 * np.median(np.abs(y)), 1e-9, 0.6))
    wrong = np.abs(a - truth).max(axis=1) > 1e-9
    assert wrong.mean() <= 0.1


def test_with_noise_it_is_least_squares_on_the_inliers():
    D, y, fit, _, hit = problem(np.random.default_rng(1), 50, 80, 3, 12, noise=0.05)
    # outliers that are not small: those within the threshold are nobody's business
    y = y + np.where(hit, 30, 0)
    a = robust_regression(D, y, fit, Schedule(20.0, 0.3, 0.5))
    for k in range(50):
        expected = np.linalg.lstsq(D[k][~hit[k]], y[k][~hit[k]], rcond=None)[0]
        np.testing.assert_allclose(a[k], expected, atol=1e-10)


def test_a_start_is_used():
    """Two lines with as many points each: where it starts decides which one it finds."""
    x = np.linspace(1, 2, 40)
    y = np.concatenate([x, -x])[None, :]
    D = np.concatenate([x, x])[None, :, None]
    for slope in (1.0, -1.0):
        a = robust_regression(D, y, np.ones((1, 80)), Schedule(0.5, 1e-6, 0.5), np.asarray([[0.9 * slope]]))
        assert a[0, 0] == pytest.approx(slope)


def test_empty_units_give_finite_numbers():
    D = np.random.default_rng(0).standard_normal((3, 8, 2))
    fit = np.zeros((3, 8))
    fit[1] = 1
    a = robust_regression(D, D[:, :, 0] * fit, fit, Schedule(1.0, 1e-8, 0.5))
    np.testing.assert_allclose(a[1], [1, 0], atol=1e-10)
    np.testing.assert_array_equal(a[[0, 2]], 0)


def test_weighted_normal_equations():
    rng = np.random.default_rng(0)
    D, y, w = rng.standard_normal((4, 30, 3)), rng.standard_normal((4, 30)), rng.random((4, 30))
    root = np.sqrt(w)
    expected = [np.linalg.lstsq(D[k] * root[k][:, None], y[k] * root[k], rcond=None)[0] for k in range(4)]
    np.testing.assert_allclose(solve_normal(D, y, w), expected, atol=1e-10)


def test_quantiles_leave_padding_out():
    residual = np.asarray([[3.0, -1.0, 2.0, 100.0], [5.0, -7.0, 6.0, 8.0]])
    fit = np.asarray([[1.0, 1, 1, 0], [1, 1, 1, 1]])
    np.testing.assert_allclose(middle_residual(residual, fit, 0.5), [2, 6], atol=8 / 4096)


@pytest.mark.parametrize("seed", [2175, 3150, 12930, 17612])
def test_what_rounding_makes_of_a_singular_unit_is_called_so(seed):
    """The trace of its inverse came out negative, as if nothing could be more certain."""
    rng = np.random.default_rng(seed)
    r = int(rng.integers(2, 12))
    m = int(rng.integers(1, 2 * r))
    q = int(rng.integers(1, r + 1))  # the rank of its part of the basis
    D = rng.standard_normal((1, m, q)) @ rng.standard_normal((q, r))
    D = D * 10.0 ** rng.uniform(-8, 8, (1, m, 1)) * 10.0 ** rng.uniform(-3, 3, (1, 1, r))
    white = rng.standard_normal((r, r)) * 10.0 ** rng.uniform(-5, 5, (r, 1))
    D, white = (x.astype(np.float64 if seed % 2 else np.float32) for x in (D, white))
    nothing = np.zeros((1, m), D.dtype)
    fit_pass = FitPass(Schedule(1.0, 1e-6, 0.5), 0.0)
    table = _measure(D, nothing, nothing + 1, nothing != 0, np.zeros((1, r), D.dtype), white, fit_pass)
    assert table[0, Column.ILL] == 1
    assert np.all(np.isfinite(table))


@pytest.mark.parametrize("r", [1, 4, 9])
def test_a_random_subset_has_no_entry_twice_and_all_are_as_likely(r):
    units, m = 3000, 12
    places = _subset(np.full(units, m), np.arange(units), seed=0, k=2, r=r)
    assert places.min() == 0
    assert places.max() == m - 1
    assert all(len(set(row)) == r for row in places.tolist())
    share = np.bincount(places.ravel(), minlength=m) / units
    assert np.abs(share - r / m).max() < 0.04  # 4.4 standard deviations


def test_subsets_of_units_with_fewer_entries_stay_inside():
    assert _subset(np.asarray([1, 2, 3]), np.arange(3), seed=0, k=0, r=5).max(axis=1).tolist() <= [0, 1, 2]
