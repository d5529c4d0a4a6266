"""`plan_samples`: what it plans is enough, and not absurdly much."""

import warnings

import numpy as np
import pytest

import rcurc_gpu as rg

# size, rank, outliers
GRID = [
    *[(300, rank, alpha) for rank in (1, 2, 5, 10) for alpha in (0.0, 0.1, 0.2, 0.3)],
    *[(1000, rank, alpha) for rank, alpha in ((1, 0.2), (2, 0.4), (5, 0.3), (10, 0.1), (20, 0.2))],
    (3000, 5, 0.2),
]


def problem_of(plan, seed, share=1.0, c=10.0, noise=0.0):
    """A problem with known truth, and its samples as planned, or a share of these rows and columns."""
    chosen = (max(round(k * share), plan.rank) for k in (plan.n_rows, plan.n_cols))
    rates = (plan.rate_rows, plan.rate_cols)
    return rg.synthetic(plan.shape, plan.rank, plan.outliers, c, noise, *chosen, rates, seed)


def recovers(problem):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rg.ConvergenceWarning)
        return problem.relative_error(rg.rcurc(problem.samples, len(problem.W[0])).cur) <= 1e-3


@pytest.mark.parametrize(("n", "rank", "alpha"), GRID)
def test_what_is_planned_is_enough(n, rank, alpha):
    assert recovers(problem_of(rg.plan_samples(n, n, rank, alpha), seed=7))


@pytest.mark.parametrize("rate", [0.1, 0.25, 1.0])
@pytest.mark.parametrize(("c", "shape"), [(1.0, (600, 600)), (100.0, (2000, 300))])
def test_it_is_enough_for_other_rates_outliers_and_shapes(rate, c, shape):
    assert recovers(problem_of(rg.plan_samples(*shape, 3, 0.2, rate=rate), seed=1, c=c))


def test_a_quarter_of_it_is_mostly_not_enough():
    cases = [(300, rank, alpha, seed) for rank in (1, 2, 5) for alpha in (0.0, 0.2) for seed in (0, 1)]
    solved = [recovers(problem_of(rg.plan_samples(n, n, r, a), seed, share=0.25)) for n, r, a, seed in cases]
    assert sum(solved) <= len(cases) // 4


def test_noise_asks_for_as_many_observations_as_the_accuracy_needs():
    noise, accuracy = 0.05, 0.015
    plan = rg.plan_samples(1000, 1000, 3, 0.1, noise, accuracy)
    assert plan.n_observations > 1.5 * rg.plan_samples(1000, 1000, 3, 0.1).n_observations
    assert plan.expected_error <= accuracy
    # the problem's noise is in units of mean|X|, which is sqrt(mean X^2) times something near 0.75 at rank 3
    problem = problem_of(plan, seed=0, noise=noise)
    rms = np.sqrt(np.mean((problem.W @ problem.V.T) ** 2))
    problem = problem_of(plan, seed=0, noise=noise * rms / problem.mean_abs)
    result = rg.rcurc(problem.samples, 3, accuracy=accuracy)
    assert result.converged
    found = problem.relative_error(result.cur)
    assert 0.5 * plan.expected_error <= found <= 1.5 * plan.expected_error
    assert found <= accuracy


def test_more_rank_outliers_and_noise_ask_for_more():
    def count(rank=5, outliers=0.1, noise=0.0, n=5000):
        return rg.plan_samples(n, n, rank, outliers, noise).n_observations

    assert count() < count(rank=6) < count(rank=12)
    assert count(outliers=0) < count() < count(outliers=0.3)
    assert count() < count(noise=0.1)
    assert count(n=100_000) / count() < 25  # nearly linear in n


def test_the_plan_draws_its_samples_and_says_what_they_are():
    plan = rg.plan_samples(400, 300, 2, 0.1)
    Y = np.random.default_rng(0).standard_normal((400, 300))
    samples = plan.draw(Y, seed=1)
    assert (len(samples.rows), len(samples.cols)) == (plan.n_rows, plan.n_cols)
    assert abs(samples.n_obs / plan.n_observations - 1) < 0.05
    assert plan.share == plan.n_observations / (400 * 300)
    for part in ("400 x 300", "rank 2", "10% outliers", f"{plan.n_rows:,} rows", f"{plan.n_observations:,} observations"):
        assert part in plan.describe()
    with pytest.raises(ValueError, match=r"Y must have the shape of the plan, \(400, 300\), got \(300, 400\)"):
        plan.draw(Y.T)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outliers": 0.5}, r"outliers must be in \[0, 0.5\), got 0.5"),
        ({"outliers": -0.1}, "outliers must be in"),
        ({"rank": 101}, "rank must be at least 1 and at most 100, got 101"),
        ({"n1": 0}, "n1 must be at least 1, got 0"),
        ({"rate": 0}, r"rate must be in \(0, 1\], got 0"),
        ({"accuracy": 0}, "accuracy must be in"),
        (
            {"rank": 50, "outliers": 0.3},
            "a 100 x 100 matrix is too small for rank 50 with 30% outliers: a column needs about",
        ),
        ({"noise": 1.0, "accuracy": 1e-3}, "too small for rank 2 with 1 noise and accuracy 0.001"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        rg.plan_samples(**({"n1": 100, "n2": 100, "rank": 2} | arguments))
