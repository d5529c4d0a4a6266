"""What a result says of its data does not depend on the unit of the data, also where squares are no numbers any more."""

from functools import cache

import numpy as np
import pytest

import rcurc_gpu as rg

SHAPE = (90, 80)
# Powers of two: multiplying by them is exact, so nothing but the range of the numbers changes.
UNITS = [("f4", -80), ("f4", 80), ("f8", -640), ("f8", 640)]
I, J = (x.ravel() for x in np.indices(SHAPE))  # noqa: E741


class Table:
    """A matrix of rank 2 with holes, outliers and (perhaps) noise; with `blind`, the last row was hardly seen."""

    def __init__(self, noise, blind):
        rng = np.random.default_rng(5)
        self.X = rng.standard_normal((SHAPE[0], 2)) @ rng.standard_normal((2, SHAPE[1]))
        Y = self.X + noise * rng.standard_normal(SHAPE)
        self.again = self.X + noise * rng.standard_normal(SHAPE)
        self.wrong = rng.random(SHAPE) < 0.08
        Y = np.where(self.wrong, np.where(rng.random(SHAPE) < 0.5, 20.0, -20.0), Y)
        self.seen = rng.random(SHAPE) < 0.7
        if blind:
            self.seen[-1, 3:] = False
        self.Y = np.where(self.seen, Y, np.nan)


@cache
def table(noise, blind=False):
    return Table(noise, blind)


@cache
def solved(dtype, exponent, noise, blind=False):
    with rg.errors.without_warning():  # of the row that was hardly seen
        return rg.robust_pca((table(noise, blind).Y * 2.0**exponent).astype(dtype), 2)


def in_unit(x, exponent):
    return np.asarray(x, dtype=np.float64) * 2.0**-exponent


@pytest.mark.parametrize(("dtype", "exponent"), UNITS)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_intervals_are_as_wide_in_any_unit(dtype, exponent, noise):
    result, data = solved(dtype, exponent, noise), table(noise)
    for new in (True, False):
        low, high = (in_unit(x, exponent) for x in result.interval(I, J, new=new))
        one_low, one_high = (in_unit(x, 0) for x in solved(dtype, 0, noise).interval(I, J, new=new))
        # of exact data in single precision they are rounding, which the solver's own scale changes
        np.testing.assert_allclose(high - low, one_high - one_low, rtol=1e-3 if noise or dtype == "f8" else 0.5)
        if noise:
            truth = (data.again if new else data.X).ravel()
            assert 0.92 <= np.mean((low <= truth) & (truth <= high)) <= 0.99


@pytest.mark.parametrize(("dtype", "exponent"), UNITS)
def test_standard_deviations_are_in_the_unit_of_the_data(dtype, exponent):
    for cur, factor in ((solved(dtype, exponent, 0.1).cur, 1.0), (-3 * solved(dtype, exponent, 0.1).cur, 3.0)):
        std = in_unit(cur.entries(I, J, return_std=True)[1], exponent)
        one = in_unit(solved(dtype, 0, 0.1).cur.entries(I, J, return_std=True)[1], 0)
        np.testing.assert_allclose(std, factor * one, rtol=1e-3)


@pytest.mark.parametrize(("dtype", "exponent"), UNITS)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_outliers_are_the_true_ones_in_any_unit(dtype, exponent, noise):
    result, data = solved(dtype, exponent, noise), table(noise)
    wrong = data.wrong & data.seen
    found = np.zeros(SHAPE, dtype=bool)
    outliers = result.outlier_table()
    found[outliers["row"], outliers["column"]] = True
    assert (found & wrong).sum() >= 0.99 * wrong.sum()
    assert (found & ~wrong).sum() <= 0.01 * wrong.sum()
    of_whole = result.outliers_of(in_dtype(data, dtype, exponent)).toarray()
    np.testing.assert_array_equal(found, of_whole != 0)
    one = solved(dtype, 0, noise).outlier_table()
    assert np.median(outliers["score"]) == pytest.approx(np.median(one["score"]), rel=0.5)


def in_dtype(data, dtype, exponent):
    return (data.Y * 2.0**exponent).astype(dtype)


@pytest.mark.parametrize(("dtype", "exponent"), UNITS)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_new_columns_are_as_sure_in_any_unit(dtype, exponent, noise):
    result, data = solved(dtype, exponent, noise), table(noise)
    new = result.transform_columns(in_dtype(data, dtype, exponent)[:, :5], rows=np.arange(SHAPE[0]))
    one = solved(dtype, 0, noise).transform_columns(in_dtype(data, dtype, 0)[:, :5], rows=np.arange(SHAPE[0]))
    assert new.converged
    assert np.linalg.norm(in_unit(new.matrix, exponent) - data.X[:, :5]) <= max(noise, 1e-4) * np.linalg.norm(data.X[:, :5])
    assert new.expected_error == pytest.approx(one.expected_error, rel=1e-3 if noise or dtype == "f8" else 0.5)


@pytest.mark.parametrize(("dtype", "exponent"), UNITS)
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_predictions_are_as_sure_in_any_unit(dtype, exponent, noise):
    found, one = (rg.io.Completion.of(solved(dtype, e, noise)).predict_at(I, J) for e in (exponent, 0))
    for name in ("expected_error", "lower", "upper"):
        left, right = in_unit(getattr(found, name), exponent), in_unit(getattr(one, name), 0)
        np.testing.assert_allclose(left, right, rtol=1e-3 if noise or dtype == "f8" else 0.5, atol=1e-3)


@pytest.mark.parametrize(("dtype", "exponent"), UNITS)
def test_what_is_not_determined_is_as_uncertain_in_any_unit(dtype, exponent):
    found, one = (rg.io.Completion.of(solved(dtype, e, 0.0, True)) for e in (exponent, 0))
    last = np.full(SHAPE[1], SHAPE[0] - 1)
    assert found.rows.status[-1] != 0
    errors = [in_unit(c.predict_at(last, np.arange(SHAPE[1])).expected_error, e) for c, e in ((found, exponent), (one, 0))]
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-2)
    typical = np.sqrt(np.mean(table(0.0, True).X ** 2))
    assert 0.3 * typical <= np.median(errors[0]) <= 3 * typical
