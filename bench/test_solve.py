"""Timings under pytest-benchmark, each group one problem and each name what solves it.

    pytest bench/                                          # two to three minutes
    pytest bench/ --full --benchmark-json=saved.json       # up to d = 3000
    python -m bench.report saved.json --output report      # tables and a plot of what was saved

The baseline, ``authors``, is dense blocks and a full SVD in every iteration, until it has found the matrix too.
"""

from dataclasses import replace
from functools import cache, partial

import pytest

import rcurc_gpu as rg
from bench.backends import BASELINE, backends
from rcurc_gpu.backends.kernels import XP, RunContext
from rcurc_gpu.backends.plain.grid import make_grid
from rcurc_gpu.core.iteration import CoreOptions, solve_core
from rcurc_gpu.core.problem import Steps, prepare
from rcurc_gpu.solve.supply import in_memory

QUICK = ((600, 5), (850, 5), (1200, 5), (1200, 20))
FULL = ((1000, 5), (1700, 5), (3000, 5), (3000, 20))
ROUNDS = 5


def pytest_generate_tests(metafunc):
    if "problem" in metafunc.fixturenames:
        sizes = FULL if metafunc.config.getoption("full") else QUICK
        metafunc.parametrize("problem", sizes, ids=lambda p: f"d={p[0]} r={p[1]}", indirect=True, scope="module")


@cache
def made(size, rank):
    return rg.synthetic((size, size), rank, 0.2, 10, rate=0.3, seed=0)


@pytest.fixture(scope="module")
def problem(request):
    size, rank = request.param
    return made(size, rank), rank


@pytest.mark.parametrize("backend", backends(), ids=lambda b: b.name)
def test_solve(benchmark, problem, backend):
    problem, rank = problem
    samples, size = problem.samples, problem.shape[0]
    benchmark.group, benchmark.name = f"solve d={size} r={rank}", backend.name
    first = backend.first_call_seconds()
    solved = benchmark.pedantic(
        backend.solve,
        setup=lambda: ((backend.place(samples), rank), {}),
        # the slow one needs fewer, and compiles nothing
        rounds=2 if backend.name == BASELINE else ROUNDS,
        warmup_rounds=0 if backend.name == BASELINE else 1,
    )
    error = problem.relative_error(solved.matrix)
    benchmark.extra_info.update(
        task="solve",
        backend=backend.name,
        size=size,
        rank=rank,
        n_obs=samples.n_obs,
        iterations=solved.n_iter,
        error=error,
        first_call_seconds=first,
    )
    assert error <= backend.accuracy


@pytest.mark.parametrize("layout", ["dense", "padded"])
@pytest.mark.parametrize("rate", [0.05, 0.25])
def test_layouts_of_the_core(benchmark, layout, rate):
    """Ten iterations of the core in its two layouts: too few for an error to speak of."""
    size, rank = 2000, 2
    problem = rg.synthetic((size, size), rank, 0.2, 10, rate=rate, seed=0)
    kernels = replace(XP, make_grid=partial(make_grid, layout=layout))
    like = problem.samples.r_block.value[:0]
    run = RunContext(like, kernels, holdout=0.03)
    data, steps = prepare(in_memory(problem.samples, like).view, Steps(), run)
    options = CoreOptions(5 * problem.mean_abs, 0.8, steps.rows, steps.cols, 0.0, 10)
    benchmark.group, benchmark.name = f"core d={size} r={rank} rate={rate}", layout
    benchmark.pedantic(solve_core, args=(data, rank, options, run), rounds=ROUNDS, warmup_rounds=1)
    benchmark.extra_info.update(
        task="core", backend=layout, size=size, rank=rank, n_obs=problem.samples.n_obs, iterations=options.max_iter
    )
