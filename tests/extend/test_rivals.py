"""Outliers that agree with each other: units where they may have won are found, and no wrong result is confirmed."""

import warnings
from collections import Counter

import numpy as np
import pytest

import rcurc_gpu as rg
from bench.redteam import problem as red_team_problem
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.kernels import RunContext, choose
from rcurc_gpu.backends.plain.regression import Schedule
from rcurc_gpu.extend.diagnostics import CONTESTED, OK, UnitDiagnostics
from rcurc_gpu.extend.rivals import consensus_share, contestable, contested, margin, rivals
from rcurc_gpu.extend.tasks import Task
from rcurc_gpu.shards import ShardedSamples

RANK = 3
SCHEDULE = Schedule(20.0, 1e-6, 0.6)


def units_of(rng, votes, length=60):
    """Units whose entries are of two solutions, and some of none: `votes` has how many of each."""
    basis = np.linalg.qr(rng.standard_normal((length, RANK)))[0]
    solutions = rng.standard_normal((2, len(votes), RANK)) * length**0.5
    index, value = [], []
    for k, counts in enumerate(votes):
        places = np.sort(rng.choice(length, sum(counts), replace=False))
        whose = rng.permutation(np.repeat([0, 1, 2], counts))
        fits = [basis[places] @ solutions[0, k], basis[places] @ solutions[1, k], rng.uniform(-20, 20, len(places))]
        index.append(places)
        value.append(np.choose(whose, fits))
    indptr = np.concatenate([[0], np.cumsum([sum(counts) for counts in votes])])
    block = Block(indptr, np.concatenate(index).astype(np.int32), np.concatenate(value), length)
    return block, basis, solutions


def on(xp, block):
    return Block(xp.array(block.indptr), xp.array(block.index), xp.array(block.value), block.length)


VOTES = [(20, 10, 0), (20, 0, 10), (12, 12, 4), (5, 14, 0), (30, 0, 0), (9, 6, 3), (20, RANK + 1, 0), (20, RANK + 2, 0)]


def task_of(block, basis, usable, kernels="xp", schedule=SCHEDULE):
    run = RunContext(basis[:0, 0], choose(kernels, basis))
    return Task(block, basis, usable, np.arange(block.n_units), np.arange(block.length), False, schedule, run)


def test_the_votes_are_counted(xp):
    block, basis, solutions = units_of(np.random.default_rng(0), VOTES)
    task = task_of(on(xp, block), xp.array(basis), xp.array(np.ones(len(basis))), "auto")
    for first in (0, 1):
        winner, rival = rivals(task, np.arange(len(VOTES)), xp.array(solutions[first]))
        wins = [counts[first] for counts in VOTES]
        loses = [counts[1 - first] for counts in VOTES]
        np.testing.assert_array_equal(winner, wins)
        np.testing.assert_array_equal(rival, [k if k >= RANK + 2 else 0 for k in loses])


def test_some_units_and_unusable_positions():
    block, basis, solutions = units_of(np.random.default_rng(1), VOTES)
    usable = np.ones(len(basis))
    usable[::4] = 0
    some = np.asarray([0, 2, 3])
    winner, rival = rivals(task_of(block, basis, usable), some, solutions[0][some])
    for k, unit in enumerate(some):
        mine = slice(block.indptr[unit], block.indptr[unit + 1])
        places, value = block.index[mine], block.value[mine]
        for found, solution in ((winner, 0), (rival, 1)):
            right = np.abs(value - basis[places] @ solutions[solution, unit]) < 1e-6
            assert found[k] == np.count_nonzero(right & (usable[places] > 0))


def test_noise_is_no_rival():
    """Nor are the entries that it puts just beyond the threshold."""
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.standard_normal((400, RANK)))[0]
    solutions = rng.standard_normal((50, RANK)) * 20
    value = basis @ solutions.T + 0.1 * rng.standard_normal((400, 50))
    block = Block(np.arange(51) * 400, np.tile(np.arange(400, dtype=np.int32), 50), value.T.ravel(), 400)
    schedule = Schedule(5.0, 0.2, 0.6)  # two standard deviations
    winner, rival = rivals(task_of(block, basis, np.ones(400), schedule=schedule), np.arange(50), solutions)
    assert consensus_share(winner, rival) < 0.01


def test_a_lead_is_asked_for_that_chance_does_not_give():
    """With shares q and 1 - q, the odds of a lead of k for the wrong one are (q / (1 - q))^k."""
    for share in (0.1, 0.3, 0.45):
        assert (share / (1 - share)) ** margin(share) == pytest.approx(1e-3)
    assert margin(0.0) == margin(0.02)
    assert margin(0.5) == margin(0.49) > 100


def test_units_without_a_clear_winner_are_marked():
    n_in = np.asarray([30, 20, 20, 30])
    other = np.zeros(4)
    status = np.asarray([OK, OK, OK, 2], dtype=np.int8)
    d = UnitDiagnostics(status, np.full(4, 36), n_in, other, other, n_in)
    np.testing.assert_array_equal(contestable(d, 0.3, 0.0, 0.8), [1, 2])
    units = np.asarray([1, 2])
    found = contested(d, units, np.asarray([20, 20]), np.asarray([16, 0]), 0.3)
    np.testing.assert_array_equal(found.status, [OK, CONTESTED, OK, 2])
    np.testing.assert_array_equal(d.status, status)
    assert found.reasons()["about as many observations agree on something else"] == 1


# ---------------------------------------------------------------- whole solves


def problem(k):
    """A matrix in which a part of the observations is wrong in one way: another unit, another sign, 0."""
    rng = np.random.default_rng([k, 7])
    n1, n2 = (int(n) for n in rng.integers(80, 400, 2))
    rank = int(rng.integers(1, 6))
    m, n = (max(int(rng.uniform(0.25, 0.6) * size), 6 * rank + 5) for size in (n1, n2))
    X = rng.standard_normal((n1, rank)) @ rng.standard_normal((n2, rank)).T
    share, factor = rng.choice([0.05, 0.1, 0.2, 0.33]), rng.choice([2.0, -1.0, 0.5, 10.0, 0.0])
    Y = np.where(rng.random(X.shape) < share, factor * X, X)
    Y[rng.random(X.shape) > rng.uniform(0.25, 0.9)] = np.nan
    rows, cols = np.sort(rng.choice(n1, m, replace=False)), np.sort(rng.choice(n2, n, replace=False))
    return X, rg.CrossSamples.from_dense(Y, rows, cols), rank


def solve(samples, rank, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        return rg.rcurc(samples, rank, **{"undetermined": "nan"} | options)


def relative_error(result, X):
    return np.linalg.norm(result.cur.to_dense() - X) / np.linalg.norm(X)


def test_no_wrong_result_is_confirmed():
    """Without a look at rivals, 7 of the 46 that were confirmed here were wrong."""
    counts = Counter()
    for k in range(60):
        X, samples, rank = problem(k)
        result = solve(samples, rank)
        counts[result.converged, bool(relative_error(result, X) <= 1e-2)] += 1
    assert counts[True, False] == 0
    assert counts[True, True] >= 25  # saying no to everything would be easy


def test_what_is_determined_is_right_and_what_is_not_says_why():
    """A quarter of the entries is doubled: rows and columns with few observations cannot be told."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 2)) @ rng.standard_normal((380, 2)).T
    Y = np.where(rng.random(X.shape) < 0.25, 2 * X, X)
    Y[rng.random(X.shape) > 0.3] = np.nan
    samples = rg.CrossSamples.from_dense(Y, np.arange(150), np.arange(140))
    result = solve(samples, 2)
    assert not result.converged
    assert result.cause == "undetermined"
    assert "about as many observations agree on something else" in result.message
    found = result.cur.to_dense()
    known = ~np.isnan(found)
    assert 0.5 < known.mean() < 1
    np.testing.assert_allclose(found[known], X[known], rtol=1e-6, atol=1e-8)
    in_shards = solve(ShardedSamples.of(samples, 4000), 2)
    np.testing.assert_array_equal(in_shards.rows.status, result.rows.status)
    np.testing.assert_array_equal(in_shards.columns.status, result.columns.status)
    assert in_shards.message == result.message


def test_outliers_that_come_together_are_found_where_they_are():
    """In a hundredth of the columns nearly half of the entries are doubled, and nowhere else."""
    confirmed = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((300, 3)) @ rng.standard_normal((300, 3)).T
        wrong = (rng.random(X.shape) < 0.45) & (np.arange(300) >= 297)
        Y = np.where(wrong, 2 * X, X)
        Y[rng.random(X.shape) > 0.4] = np.nan
        result = solve(rg.CrossSamples.from_dense(Y, np.arange(100), np.arange(100)), 3)
        found = result.cur.to_dense()
        np.testing.assert_allclose(found[:, :297], X[:, :297], rtol=1e-6, atol=1e-7)
        confirmed += result.converged and not relative_error(result, X) <= 1e-2
    assert confirmed == 0


def test_a_contested_core_is_not_tried_again_and_again():
    """Settled, with one column that is not determined: slower schedules would not settle, and would be no better."""
    rng = np.random.default_rng(1)
    X = 2 + rng.standard_normal((250, 2)) @ rng.standard_normal((2, 250))
    Y = np.where(rng.random(X.shape) < 0.2, 999.0, X)
    Y[rng.random(X.shape) > 0.4] = np.nan
    result = solve(rg.CrossSamples.from_dense(Y, np.arange(90), np.arange(90)), 3)
    assert result.cause in ("", "undetermined")
    found = result.cur.to_dense()
    known = ~np.isnan(found)
    assert known.mean() > 0.98
    np.testing.assert_allclose(found[known], X[known], rtol=1e-6, atol=1e-6)


def test_the_papers_method_is_judged_alike():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((400, 2)) @ rng.standard_normal((380, 2)).T
    Y = np.where(rng.random(X.shape) < 0.3, -X, X)
    Y[rng.random(X.shape) > 0.3] = np.nan
    result = solve(rg.CrossSamples.from_dense(Y, np.arange(150), np.arange(140)), 2, method="paper")
    assert not result.converged
    assert np.count_nonzero(result.rows.status == CONTESTED) > 0


def test_new_columns_are_asked_too():
    """As many of their observations are doubled as not."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((400, 2)) @ rng.standard_normal((380, 2)).T
    Y = np.where(rng.random(X.shape) < 0.25, 2 * X, X)
    result = solve(rg.CrossSamples.from_dense(Y[:, :300], np.arange(200), np.arange(150)), 2)
    assert 0.2 < result.agreeing < 0.3
    new = X[:200, 300:].copy()
    new[40:] = np.nan
    new[:20, :40] *= 2
    found = result.transform_columns(new)
    assert np.all(found.diagnostics.status[:40] == CONTESTED)
    assert np.all(found.diagnostics.status[40:] == OK)
    np.testing.assert_allclose(found.matrix.to_dense()[:, 40:], X[:, 340:], rtol=1e-6, atol=1e-8)


def test_outliers_at_random_contest_nothing():
    p = rg.synthetic((900, 800), 5, 0.3, 10, n_rows=250, n_cols=250, rate=0.3, seed=2)
    result = rg.rcurc(p.samples, 5)
    assert result.converged
    assert result.agreeing == 0
    assert p.relative_error(result.cur) <= 1e-6


def test_where_many_have_rivals_nothing_is_said_of_the_rest():
    """Large entries are missing. A seventh of the columns is torn, others went to the wrong side, an error of 41 %."""
    p = red_team_problem("missing not at random", 361)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        result = rg.rcurc(p.samples(), p.rank, seed=361)
    rest = np.ix_(result.rows.status == OK, result.columns.status == OK)
    assert np.linalg.norm((result.cur.to_dense() - p.X)[rest]) > 0.1 * np.linalg.norm(p.X[rest])
    assert not result.converged
    assert "rest is confirmed" not in result.message
