"""``rank="auto"``."""

import warnings

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.judge.causes import Evidence
from rcurc_gpu.judge.rank import choose_rank


@pytest.mark.parametrize("rank", [1, 2, 3, 6, 11])
def test_the_true_rank_is_found(rank):
    problem = rg.synthetic((900, 900), rank, 0.2, 10, rate=0.3, seed=rank)
    result = rg.rcurc(problem.samples, "auto")
    assert result.rank == rank
    assert problem.relative_error(result.cur) <= 1e-6
    assert result.converged


def test_a_rank_of_twenty_is_found():
    problem = rg.synthetic((1500, 1500), 20, 0.1, 10, seed=2)
    result = rg.rcurc(problem.samples, "auto")
    assert result.rank == 20
    assert problem.relative_error(result.cur) <= 1e-6


@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_noise_does_not_add_to_the_rank(noise):
    problem = rg.synthetic((900, 900), 4, 0.2, 10, noise=noise, rate=0.3, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        assert rg.rcurc(problem.samples, "auto").rank == 4


def fake(true_rank, floor):
    """A core whose held-out error falls linearly up to the true rank and which confirms no more than that."""
    tried = []

    def evaluate(rank):
        tried.append(rank)
        error = floor + (1 - floor) * max(true_rank - rank, 0) / true_rank
        return Evidence(error, 0.8, 0.8, min(rank, true_rank), 0.0, 1.0, 1000)

    return evaluate, tried


@pytest.mark.parametrize("floor", [1e-12, 0.05])
@pytest.mark.parametrize("true_rank", [1, 2, 3, 5, 8, 13, 30, 64])
def test_the_search_finds_the_edge_and_solves_no_rank_twice(true_rank, floor):
    evaluate, tried = fake(true_rank, floor)
    curve = choose_rank(evaluate, 64)
    assert curve.chosen == true_rank
    assert len(tried) == len(set(tried)) <= 16
    assert curve.ranks == sorted(tried)


def test_without_any_structure_the_search_ends():
    curve = choose_rank(lambda rank: Evidence(1.0 + rank / 100, 0.9, 0.9, 0, 0.0, 1.0, 1000), 40)
    assert curve.chosen == 1
    assert max(curve.ranks) <= 40


def test_the_elbow_is_chosen_when_more_components_bring_next_to_nothing():
    curve = choose_rank(lambda rank: Evidence(0.1 + 0.5**rank, 0.9, 0.9, rank, 0.0, 1.0, 1000), 32)
    errors = np.asarray(curve.errors)
    assert errors[curve.ranks.index(curve.chosen)] <= errors.min() / 0.9
    assert 5 <= curve.chosen <= 8
