"""The rules for single units: compiled code decides as the plain code does, and the plain code as one would by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcurc_gpu.backends.arrays import to_numpy
from rcurc_gpu.backends.blocks import Block, join_units, put_rows
from rcurc_gpu.backends.plain import verdicts
from rcurc_gpu.backends.plain.votes import split
from rcurc_gpu.extend.diagnostics import DIAGNOSTIC_NAMES, OK, Summary, UnitDiagnostics

RANK, FLOOR = 4, 1e-3


def table_of(rng, n, dtype=np.float64):
    """A table of fit passes with everything in it that may come: no inliers, no spread, spreads that are no numbers."""
    n_fit = rng.integers(0, 50, n)
    n_in = rng.binomial(n_fit, np.where(rng.random(n) < 0.1, 0.3, 0.8))
    spread = FLOOR * 10.0 ** rng.uniform(-4, 1, n)
    spread[rng.random(n) < 0.05], spread[rng.random(n) < 0.02], spread[rng.random(n) < 0.02] = 0, np.nan, np.inf
    error = spread * 10.0 ** rng.uniform(-1, 4, n)
    held = rng.integers(0, 4, n)
    columns = (n_fit, n_in, spread, rng.random(n) < 0.05, error, rng.binomial(n_in, 0.9), held, rng.binomial(held, 0.7))
    return np.stack(columns, axis=1).astype(dtype)


def limits_of(rng, mended=True, contests=True):
    zeta0 = FLOOR * 10.0 ** rng.uniform(0, 8)
    coherence = 1e300 if rng.random() < 0.5 else rng.uniform(0.01, 1)
    numbers = (rng.uniform(0.5, 1), FLOOR * rng.uniform(0, 1), FLOOR, zeta0, rng.uniform(10, 200), coherence)
    return verdicts.Limits(RANK, *numbers, rng.choice([0.0, 0.05]), rng.uniform(0, 0.5), contests, mended, RANK + 1)


def diagnosed(table, diagnose=verdicts.diagnose, floor=FLOOR):
    d, held = UnitDiagnostics.blank(len(table)), np.empty((len(table), 2), np.int32)
    counts = diagnose(table, RANK, floor, (*d.columns, held))
    return d, counts, held


@pytest.fixture
def compiled(monkeypatch):
    """The compiled functions, for however few units."""
    numba = pytest.importorskip("rcurc_gpu.backends.numba.verdicts")
    monkeypatch.setattr(numba, "_MANY", 0)
    monkeypatch.setattr(numba, "_LEAST_PIECE", 1)
    return numba


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("floor", [FLOOR, 0.0])
def test_compiled_code_reads_tables_as_plain_code_does(compiled, dtype, floor):
    table = table_of(np.random.default_rng(0), 3000, dtype)
    expected, found = (diagnosed(table, code.diagnose, floor) for code in (verdicts, compiled))
    for name in DIAGNOSTIC_NAMES:
        np.testing.assert_array_equal(getattr(found[0], name), getattr(expected[0], name), name)
    for x, y in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(x, y)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), mended=st.booleans(), contests=st.booleans())
def test_compiled_code_judges_as_plain_code_does(seed, mended, contests):
    numba = pytest.importorskip("rcurc_gpu.backends.numba.verdicts")
    rng = np.random.default_rng(seed)
    d, _, _ = diagnosed(table_of(rng, 400))
    limits = limits_of(rng, mended, contests)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numba, "_MANY", 0)
        found = numba.judge(d.columns, limits)
    for x, y in zip(found, verdicts.judge(d.columns, limits), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def test_the_tally_gives_the_medians():
    table = table_of(np.random.default_rng(1), 5000)
    _, counts, held = diagnosed(table)
    enough = table[:, 0] >= RANK + 2
    share = table[enough, 1] / table[enough, 0]
    half = np.searchsorted(np.cumsum(counts[0]), 0.5 * counts[0].sum()) / verdicts.BINS
    assert half == pytest.approx(np.median(share), abs=1 / verdicts.BINS)
    assert counts.sum(axis=1).tolist() == [np.count_nonzero(enough), len(table)]
    np.testing.assert_array_equal(held, table[:, 6:])


def test_units_are_judged_as_by_hand():
    """Rank 4, typical share 0.8, spread 1e-6, no noise; (observations, inliers, informative, spread, error) of each."""
    limits = verdicts.Limits(RANK, 0.8, 1e-6, 1e-5, 1e3, 100.0, 1e300, 0.0, 0.02, False, True, RANK + 1)
    units = [
        (30, 24, 24, 1e-6, 1e-6),  # as all others
        (5, 5, 5, 1e-6, 1e-6),  # fewer observations than rank + 2
        (30, 5, 5, 1e-6, 1e-6),  # fewer inliers than half of what is typical
        (30, 12, 12, 1e-6, 1e-6),  # more than 2.5 deviations below 24, and may be beaten; proof, by exact agreement
        (30, 12, 2, 1e-6, 1e-6),  # the same, but zeros are no proof
        (30, 24, 24, 1e-4, 1e-4),  # inliers spread wide
        (30, 24, 24, 0.0, 0.0),  # no spread: nothing tells how well it is known
        (30, 24, 24, 1e-6, 1e-2),  # an error far above the spread: a component rests on little
    ]
    n_obs, n_in, informative, spread, error = (np.asarray(x) for x in zip(*units, strict=True))
    status = np.where(n_obs < RANK + 2, 1, 0).astype(np.int8)
    status, bits = verdicts.judge((status, n_obs, n_in, spread, error, informative), limits)
    assert status.tolist() == [0, 1, 2, 0, 2, 0, 0, 0]
    assert (bits & verdicts.DOUBTFUL > 0).tolist() == [False, False, True, True, True, True, False, False]
    assert (bits & verdicts.FAILED > 0).tolist() == [False, False, True] + [False] * 5
    assert (bits & verdicts.UNKNOWN > 0).tolist() == [False] * 6 + [True, False]
    assert (bits & verdicts.SKEWED > 0).tolist() == [False] * 7 + [True]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_votes_are_split_as_by_hand(compiled, dtype):
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 40, 300)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    index = np.concatenate([np.sort(rng.choice(60, n, replace=False)) for n in counts]).astype(np.int32)
    basis, usable = rng.standard_normal((60, RANK)).astype(dtype), (rng.random(60) < 0.8).astype(dtype)
    units = np.sort(rng.choice(300, 200, replace=False))
    a = rng.standard_normal((200, RANK)).astype(dtype)
    of_all = np.zeros((300, RANK), dtype)
    of_all[units] = a
    off = rng.choice([0.0, 0.5, 1.5, 3.0], len(index))  # thresholds from the solution
    value = (np.sum(basis[index] * np.repeat(of_all, counts, axis=0), axis=1) + off * 0.1).astype(dtype)
    block = Block(indptr, index, value, 60)
    for code in (split, compiled.split):
        winner, rejected = code(block, units, basis, usable, a, 0.1)
        for k, unit in enumerate(units):
            mine = slice(indptr[unit], indptr[unit + 1])
            votes = usable[index[mine]] > 0
            assert winner[k] == np.count_nonzero(votes & (off[mine] < 1))
            out = slice(rejected.indptr[k], rejected.indptr[k + 1])
            np.testing.assert_array_equal(rejected.index[out], index[mine][votes & (off[mine] > 2)])
            np.testing.assert_array_equal(rejected.value[out], value[mine][votes & (off[mine] > 2)])


def test_few_chosen_rows_among_many_are_joined(xp):
    """Run by run, where there are few; the other way is tested with the matrix."""
    rng = np.random.default_rng(3)
    whole, chosen = rng.standard_normal((1000, 3)), np.asarray([999, 0, 500, 501])
    rest = np.delete(whole, chosen, axis=0)
    joined = join_units(xp.array(whole[chosen]), xp.array(rest), chosen, 1000)
    np.testing.assert_array_equal(to_numpy(joined), whole)
    joined = put_rows(joined, np.asarray([7, 3]), xp.array(whole[[3, 7]]))
    np.testing.assert_array_equal(to_numpy(joined)[[7, 3]], whole[[3, 7]])


def test_a_summary_in_two_parts_is_that_of_each():
    rng = np.random.default_rng(4)
    d, _, _ = diagnosed(table_of(rng, 200))
    d.standard_error[~np.isfinite(d.standard_error)] = 1.0
    chosen = np.sort(rng.choice(200, 20, replace=False))
    whole, outside = Summary.parted(d, chosen, 1000)
    rest = Summary.of(d.take(np.setdiff1d(np.arange(200), chosen)))
    assert whole == Summary.of(d, start=1000)
    assert (outside.by_status, outside.n_obs, outside.n_inliers) == (rest.by_status, rest.n_obs, rest.n_inliers)
    assert outside.square == pytest.approx(rest.square, rel=1e-13)
    assert whole.square == pytest.approx(np.sum(d.standard_error[d.status == OK] ** 2))
    lost = np.setdiff1d(d.undetermined, chosen)
    assert outside.first == 1000 + lost[0]
