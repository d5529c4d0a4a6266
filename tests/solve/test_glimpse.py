"""A first look at the data: how much of them it takes, and what a look at a piece of them may say."""

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.backends.blocks import Block
from rcurc_gpu.solve import glimpse


def block_of(matrix):
    """All entries of a matrix that are not 0."""
    counts = np.count_nonzero(matrix, axis=1)
    units, index = np.nonzero(matrix)
    return Block(np.r_[0, np.cumsum(counts)], index.astype(np.int32), matrix[units, index], matrix.shape[1])


@pytest.mark.parametrize("shape", [(200, 150), (400, 30), (20, 500)])
def test_a_piece_is_spread_over_the_whole_and_keeps_long_rows_and_columns(shape):
    matrix = np.where(np.random.default_rng(0).random(shape) < 0.5, 1.0 + np.arange(shape[0] * shape[1]).reshape(shape), 0)
    most = 2000
    piece, rows, cols = glimpse._piece(block_of(matrix), most)
    dense = np.zeros((piece.n_units, piece.length))
    dense[piece.unit_of_entry(), piece.index] = piece.value
    np.testing.assert_array_equal(dense, matrix[np.ix_(rows, cols)])
    assert 0.6 * most < piece.n_obs < 1.4 * most
    for numbers, n in ((rows, shape[0]), (cols, shape[1])):
        assert np.ptp(np.diff(numbers)) <= 1  # evenly
        assert numbers[-1] >= n - n / len(numbers) - 1
    assert min(len(rows), len(cols)) >= min(20, min(shape)) - 1 or most / max(shape) < 20


def large(X, seed=0):
    """Half of a matrix, a tenth of it wrong: four times as much as a quick look takes, at least."""
    rng = np.random.default_rng(seed)
    Y = np.where(rng.random(X.shape) < 0.1, 10 * rng.choice([-1.0, 1.0], X.shape), X)
    return rg.ccs_sample(Y, n_rows=X.shape[0], n_cols=X.shape[1], rate_rows=0.3, rate_cols=0.3, seed=seed)


def low_rank(shape, rank, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))


def error(result, X):
    return np.linalg.norm(result.cur.to_dense() - X) / np.linalg.norm(X)


def test_of_large_exact_data_a_piece_tells_the_rank(monkeypatch):
    X = low_rank((600, 550), 3)
    seen = []
    look = glimpse.fit_noise

    def watched(part, *rest, **named):
        seen.append(part.inside.n_obs)
        return look(part, *rest, **named)

    monkeypatch.setattr(glimpse, "fit_noise", watched)
    result = rg.rcurc(large(X))
    assert (result.converged, result.rank) == (True, 3)
    assert error(result, X) < 1e-9
    assert len(seen) == 1
    assert seen[0] < 1.4 * glimpse._QUICK


def test_a_component_that_the_piece_does_not_have_is_found(caplog):
    caplog.set_level("INFO", "rcurc_gpu")
    X = low_rank((600, 550), 3)
    rng = np.random.default_rng(1)
    taken = glimpse._piece(large(X).intersection.block, glimpse._QUICK)[1]  # the same places will be seen
    others = np.setdiff1d(np.arange(600), taken)[::2]
    X[others] += np.outer(rng.standard_normal(len(others)), rng.standard_normal(550))
    result = rg.rcurc(large(X))
    assert "rank 3, without noise, by a quick look at a piece" in caplog.messages
    assert (result.converged, result.rank) == (True, 4)
    assert error(result, X) < 1e-9


def test_noise_is_judged_by_all_there_is(caplog):
    caplog.set_level("INFO", "rcurc_gpu")
    X = low_rank((600, 550), 3)
    result = rg.rcurc(large(X + 0.05 * np.random.default_rng(2).standard_normal(X.shape)))
    assert (result.converged, result.rank) == (True, 3)
    assert error(result, X) < 2 * result.expected_error
    assert not any("quick look" in message for message in caplog.messages)
