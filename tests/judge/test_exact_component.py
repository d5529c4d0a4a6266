"""Rejected observations that agree exactly: a dozen of them are a component, whatever their signs; faults are none."""

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.judge.exact_component import FEWEST_EXACT, agreeing_exactly, with_other_sign

SHAPE = (70, 60)


def looked(seed, wrong, residual, rank=3, noise=1e-12):
    """Half of a matrix; `residual` of (fitted, rng) where `wrong` of rng says so."""
    rng = np.random.default_rng(seed)
    fitted = rng.standard_normal((SHAPE[0], rank)) @ rng.standard_normal((rank, SHAPE[1]))
    at, values = wrong(rng), residual(fitted, rng)
    i, j = np.nonzero(rng.random(SHAPE) < 0.5)
    left = np.where(at, values, noise * rng.standard_normal(SHAPE))
    return i, j, fitted[i, j], left[i, j], at[i, j]


def block(n_rows, n_cols):
    def wrong(rng):
        at = np.zeros(SHAPE, dtype=bool)
        at[np.ix_(*(rng.choice(n, k, replace=False) for n, k in zip(SHAPE, (n_rows, n_cols), strict=True)))] = True
        return at

    return wrong


def anywhere(rng):
    return rng.random(SHAPE) < 0.15


def component(fitted, rng):
    return 2 * np.outer(rng.standard_normal(SHAPE[0]), rng.standard_normal(SHAPE[1]))


def at_random(fitted, rng):
    return 5 * rng.standard_normal(SHAPE)


def whole_numbers(fitted, rng):
    return rng.integers(1, 6, SHAPE) * rng.choice([-1.0, 1.0], SHAPE)


def one_shift(fitted, rng):
    return np.full(SHAPE, 3.0)


def shift_of_a_column(fitted, rng):
    return np.broadcast_to(rng.uniform(1, 9, SHAPE[1]), SHAPE)


def shift_of_a_row(fitted, rng):
    return np.broadcast_to(rng.uniform(1, 9, (SHAPE[0], 1)), SHAPE)


def zeros(fitted, rng):
    return -fitted


def other_unit_of_a_row(fitted, rng):
    return fitted * rng.uniform(1, 9, (SHAPE[0], 1))


@pytest.mark.parametrize(("n_rows", "n_cols"), [(35, 5), (5, 35), (12, 8), (3, 30), (30, 3)])
@pytest.mark.parametrize("noise", [1e-12, 1e-4])
def test_a_component_is_found_where_signs_are_too_few(n_rows, n_cols, noise):
    for seed in range(5):
        seen = looked(seed, block(n_rows, n_cols), component, noise=noise)
        n, share, _ = agreeing_exactly(*seen, np.random.default_rng(seed))
        assert seen[4].sum() < 120
        assert n > 0.2 * min(seen[4].sum(), 50)
        assert share > 0.9


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("wrong", [block(20, 12), anywhere])
@pytest.mark.parametrize(
    "residual",
    [at_random, whole_numbers, one_shift, shift_of_a_column, shift_of_a_row, zeros, other_unit_of_a_row],
)
def test_outliers_and_faults_are_none(residual, wrong, rank):
    for seed in range(5):
        n, share, _ = agreeing_exactly(*looked(seed, wrong, residual, rank), np.random.default_rng(seed))
        assert n == 0 or share < 0.75


def test_fewer_than_a_handful_prove_nothing():
    i, j, fitted, residual, rejected = looked(0, block(20, 10), component)
    rejected &= np.cumsum(rejected) < FEWEST_EXACT
    assert agreeing_exactly(i, j, fitted, residual, rejected, np.random.default_rng(0)) == (0, 0.0, 0.0)


@pytest.mark.parametrize("unit", [1e-290, 1e-150, 1e150, 1e305])
def test_units_do_not_matter(unit):
    i, j, fitted, residual, rejected = looked(0, block(12, 8), component)
    n, share, size = agreeing_exactly(i, j, fitted, residual, rejected, np.random.default_rng(0))
    other = agreeing_exactly(i, j, unit * fitted, unit * residual, rejected, np.random.default_rng(0))
    assert other[:2] == (n, share)
    assert other[2] == pytest.approx(unit * size, rel=1e-6)
    assert with_other_sign(unit * fitted, -2 * unit * fitted * rejected, rejected)[0] == 0


def test_absolute_values_are_told_from_signs_turned_at_random():
    turned = looked(0, anywhere, lambda fitted, rng: -2 * fitted)
    assert with_other_sign(*turned[2:])[0] == 0
    fitted = turned[2]
    residual, rejected = np.where(fitted < 0, -2 * fitted, 1e-12), fitted < 0
    n, share, _ = with_other_sign(fitted, residual, rejected)
    assert n > 0.9 * rejected.sum()
    assert share > 0.99


@pytest.mark.parametrize("outliers", [0.0, 0.05])
def test_a_component_in_five_columns_is_not_confirmed(outliers):
    """In rows outside of I, in five columns of J and in fifteen others, where nobody sees it."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 180))
        X[np.ix_(np.arange(100, 140), np.r_[:5, 100:115])] += 2 * np.outer(rng.standard_normal(40), rng.standard_normal(20))
        Y = np.where(rng.random(X.shape) < outliers, 8 * rng.standard_normal(X.shape), X)
        Y[rng.random(X.shape) < 0.4] = np.nan
        samples = rg.CrossSamples.from_dense(Y, np.arange(100), np.arange(90))
        with pytest.warns(rg.ConvergenceWarning, match="structure of its own"):
            result = rg.rcurc(samples, 3)
        assert np.linalg.norm(result.cur.to_dense() - X) > 0.1 * np.linalg.norm(X)
        assert result.structure.components == ("rows",)
