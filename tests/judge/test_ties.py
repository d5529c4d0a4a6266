"""Rows and columns that are not tied together: the gap, the groups, and what is said of them."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.backends.kernels import XP, choose
from rcurc_gpu.backends.plain.votes import agreeing
from rcurc_gpu.io import load_result, save_result
from rcurc_gpu.judge.groups import groups_apart, groups_in
from rcurc_gpu.judge.ties import FREE, ties_of

KERNELS = [XP, choose("auto", np.empty(0))]


def block_at(seen):
    """A block with a 1 wherever something was seen."""
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))]).astype(np.int64)
    return Block(indptr, np.nonzero(seen)[1].astype(np.int32), np.ones(int(seen.sum())), seen.shape[1])


def gauss_newton_gap(seen, left, right):
    """1 less the first singular value that is no gauge, of the dense matrix of all moves."""
    (m, n), r = seen.shape, left.shape[1]
    i, j = np.nonzero(seen)
    J = np.zeros((len(i), (m + n) * r))
    for c in range(r):
        J[np.arange(len(i)), i * r + c] = right[j, c]
        J[np.arange(len(i)), m * r + j * r + c] = left[i, c]
    G = J.T @ J

    def root(low, size):
        blocks = np.zeros((size * r, size * r))
        for u in range(size):
            part = slice(low + u * r, low + (u + 1) * r)
            at = slice(u * r, (u + 1) * r)
            blocks[at, at] = np.linalg.inv(np.linalg.cholesky(G[part, part]))
        return blocks

    M = root(0, m) @ G[: m * r, m * r :] @ root(m * r, n).T
    return 1 - np.linalg.svdvals(M)[r * r]


@pytest.mark.parametrize("kernels", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("rank", [1, 3])
def test_the_gap_is_that_of_the_dense_matrix(kernels, rank):
    rng = np.random.default_rng(rank)
    seen = rng.random((40, 30)) < 0.5
    left, right = rng.standard_normal((40, rank)), rng.standard_normal((30, rank))
    wanted = gauss_newton_gap(seen, left, right)
    assert ties_of(block_at(seen), left, right, kernels, 0).gap == pytest.approx(wanted, rel=0.15)
    turned = rng.standard_normal((rank, rank))  # neither the basis nor its scale counts
    assert ties_of(block_at(seen), left @ turned, 1e6 * right, kernels, 0).gap == pytest.approx(wanted, rel=0.15)


def test_both_kernels_agree():
    rng = np.random.default_rng(0)
    block, left, right = block_at(rng.random((60, 50)) < 0.4), rng.standard_normal((60, 4)), rng.standard_normal((50, 4))
    x = rng.standard_normal((50, 4))
    plain, compiled = KERNELS
    np.testing.assert_allclose(plain.grams(block, right), compiled.grams(block, right), rtol=1e-12)
    np.testing.assert_allclose(plain.couple(block, left, right, x), compiled.couple(block, left, right, x), rtol=1e-11)
    G = plain.grams(block, right)
    np.testing.assert_allclose(plain.inverses(G, 1e-3), compiled.inverses(G, 1e-3), rtol=1e-9)


@pytest.mark.parametrize("with_prior", [False, True])
def test_ties_are_the_same_elsewhere(elsewhere, with_prior):
    rng = np.random.default_rng(1)
    seen, left, right = rng.random((40, 50)) < 0.7, rng.standard_normal((40, 2)), rng.standard_normal((50, 2))
    block = replace(block_at(seen), value=(left @ right.T + 9 * (rng.random(seen.shape) < 0.1))[seen])
    prior = (np.asarray([0.5, 1.0]), np.asarray([2.0, 3.0])) if with_prior else None

    def ties(move):
        arrays = (block.mapped(move), move(left), move(right), 1e-9, (move(np.ones(40)), move(np.ones(50))))
        tied = agreeing(*arrays)
        given = None if prior is None else tuple(map(move, prior))
        return tied, ties_of(tied, *arrays[1:3], choose("auto", arrays[1]), 0, given)

    (here, expected), (there, found) = ties(np.asarray), ties(elsewhere.array)
    np.testing.assert_array_equal(elsewhere.numpy(there.index), here.index)
    assert here.n_obs < block.n_obs
    assert found.gap == pytest.approx(expected.gap, rel=1e-8)
    for name in ("rows", "cols", "noise_rows", "noise_cols"):
        a, b = elsewhere.numpy(getattr(found, name)), getattr(expected, name)
        np.testing.assert_allclose(a, b, atol=1e-8 * np.abs(b).max())
    np.testing.assert_allclose(found.row_skew, expected.row_skew, rtol=1e-8)


def test_groups_are_found_elsewhere(elsewhere):
    _, Y, rows, cols = grouped(0.0, 0, 1, shape=(60, 50))
    everything = np.isfinite(Y)
    given = (elsewhere.array(np.where(everything, Y, 0)), np.arange(60), np.arange(50))
    samples = rg.CrossSamples.from_dense(*given, *(elsewhere.array(everything) for _ in range(2)))
    with pytest.warns(rg.ConvergenceWarning, match="2 groups"):
        result = rg.rcurc(samples, 1, gamma=0.5, max_iter=60)  # little: it is slow there
    assert rand_index(result.groups.rows, rows) == rand_index(result.groups.columns, cols) == 1


@pytest.mark.parametrize("rank", [1, 3, 8])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_groups_that_never_met_are_found(rank, n_groups):
    rng = np.random.default_rng(10 * rank + n_groups)
    rows, cols = rng.integers(0, n_groups, 200), rng.integers(0, n_groups, 180)
    seen = (rng.random((200, 180)) < 0.6) & (rows[:, None] == cols)
    left, right = rng.standard_normal((200, rank)), rng.standard_normal((180, rank))
    ties = ties_of(block_at(seen), left, right, KERNELS[1], 0)
    assert ties.gap < 1e-6
    for groups in (groups_in(ties, left, right), groups_apart(block_at(seen), KERNELS[1], 0)):
        assert rand_index(groups.rows, rows) == rand_index(groups.columns, cols) == 1
        assert groups.n_groups == n_groups


@pytest.mark.parametrize("rate", [0.1, 0.2, 0.6])
def test_no_groups_where_there_are_none(rate):
    rng = np.random.default_rng(3)
    seen = rng.random((300, 300)) < rate
    assert groups_apart(block_at(seen), KERNELS[1], 0) is None
    ties = ties_of(block_at(seen), rng.standard_normal((300, 3)), rng.standard_normal((300, 3)), KERNELS[1], 0)
    assert ties.gap > 0.1 > FREE


def rand_index(a, b):
    """Share of the pairs that are together, or apart, in both."""
    return float(np.mean((a[:, None] == a) == (b[:, None] == b)))


def grouped(across, seed, rank=3, noise=0.0, outliers=0.0, shape=(200, 180)):
    """Two groups of rows and columns; the matrix, what was seen of it, and the groups."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((shape[1], rank)).T
    rows, cols = np.arange(shape[0]) % 2, np.arange(shape[1]) % 2
    Y = X + noise * X.std() * rng.standard_normal(X.shape)
    wrong = rng.random(X.shape) < outliers
    Y[wrong] += rng.uniform(-10, 10, int(wrong.sum())) * X.std()
    seen = rng.random(X.shape) < np.where(rows[:, None] == cols, 0.6, across)
    return X, np.where(seen, Y, np.nan), rows, cols


def solved(Y, **options):
    i, j = np.nonzero(np.isfinite(Y))
    samples = rg.CrossSamples.from_triplets(i, j, Y[i, j], shape=Y.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        return rg.rcurc(samples, **options)


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("rank", ["auto", 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_between_groups_is_never_confirmed(noise, rank, seed):
    _, Y, rows, cols = grouped(0.0, seed, noise=noise, outliers=0.05)
    result = solved(Y, rank=rank)
    assert not result.converged
    assert result.cause == "unidentified"
    assert "fall into 2 groups (" in result.message
    for found, true in ((result.groups.rows, rows), (result.groups.columns, cols)):
        named = found >= 0  # those that are not determined inside of their group are in none
        assert named.mean() > 0.9
        assert rand_index(found[named], true[named]) == 1


def test_with_enough_seen_across_it_is_confirmed_and_right():
    X, Y, _, _ = grouped(0.2, 0)
    result = solved(Y, rank=3)
    assert result.converged, result.message
    assert result.groups is None
    assert np.linalg.norm(result.cur.to_dense() - X) < 1e-6 * np.linalg.norm(X)


def test_intervals_are_wide_between_groups_and_narrow_inside():
    X, Y, rows, cols = grouped(0.0, 2, noise=0.02)
    result = solved(Y)
    i, j = np.meshgrid(np.arange(200), np.arange(180), indexing="ij")
    lower, upper = (np.asarray(x).reshape(X.shape) for x in result.interval(i.ravel(), j.ravel(), new=False))
    inside = rows[:, None] == cols
    assert np.median((upper - lower)[inside]) < 0.2 * X.std()
    assert np.median((upper - lower)[~inside]) > X.std()
    assert np.mean(((lower <= X) & (upper >= X))[~inside]) > 0.85


def test_groups_outside_of_the_core_are_known_too():
    X, Y, rows, cols = grouped(0.0, 4)
    chosen_rows, chosen_cols = np.arange(120), np.arange(110)
    seen = np.isfinite(Y)
    seen[120:, 110:] = False
    i, j = np.nonzero(seen)
    samples = rg.CrossSamples.from_triplets(i, j, Y[i, j], shape=X.shape, rows=chosen_rows, cols=chosen_cols)
    with pytest.warns(rg.ConvergenceWarning, match="2 groups"):
        result = rg.rcurc(samples, 3)
    assert rand_index(result.groups.rows, rows) == rand_index(result.groups.columns, cols) == 1


def test_without_noise_intervals_are_wide_between_groups_too(tmp_path):
    X, Y, rows, cols = grouped(0.0, 3)
    result = solved(Y, rank=3)
    lower, upper = result.interval(np.arange(200)[:, None], np.arange(180))
    save_result(tmp_path / "r.npz", result)
    kept = load_result(tmp_path / "r.npz")
    np.testing.assert_array_equal(kept.groups.rows, result.groups.rows)
    np.testing.assert_allclose(kept.interval(np.arange(200), 3)[0], lower[:, 3])
    inside = rows[:, None] == cols
    assert (upper - lower)[inside].max() < 1e-6
    assert np.median((upper - lower)[~inside]) > X.std()
    assert np.mean(((lower <= X) & (upper >= X))[~inside]) > 0.9
