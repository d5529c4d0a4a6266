"""Timings under pytest-benchmark: ``pytest bench/``. Each group is one comparison; generation is not timed."""

import time
from dataclasses import replace
from functools import partial

import pytest

import rcurc_gpu as rg
from bench import authors_style
from bench.speed import fresh
from rcurc_gpu.core import CoreOptions, solve_core
from rcurc_gpu.core_data import prepare
from rcurc_gpu.fused import XP
from rcurc_gpu.grid import make_grid


@pytest.fixture(scope="module", params=[(600, 5), (1200, 5), (1200, 20)], ids=lambda p: f"d={p[0]}-r={p[1]}")
def problem(request):
    size, rank = request.param
    return rg.synthetic((size, size), rank, 0.2, 10, rate=0.3, seed=0), rank, f"solve d={size} r={rank}"


def run(benchmark, group, work):
    benchmark.group = group
    return benchmark.pedantic(work, rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("kernels", ["auto", "xp"])
@pytest.mark.parametrize("method", ["fast", "paper"])
def test_rcurc(benchmark, problem, method, kernels):
    problem, rank, group = problem
    result = run(benchmark, group, lambda: rg.rcurc(fresh(problem.samples), rank, method=method, kernels=kernels))
    assert problem.relative_error(result.cur) <= 1e-4


def test_dense_blocks_and_full_svd(benchmark, problem):
    """As many iterations as our core takes."""
    problem, rank, group = problem
    iterations = rg.rcurc(problem.samples, rank).n_iter
    run(benchmark, group, lambda: authors_style.solve(problem.samples, rank, iterations))


@pytest.mark.parametrize("layout", ["dense", "padded"])
@pytest.mark.parametrize("rate", [0.05, 0.25])
def test_layouts_of_the_core(benchmark, layout, rate):
    """Ten iterations of the core in its two layouts."""
    problem = rg.synthetic((2000, 2000), 2, 0.2, 10, rate=rate, seed=0)
    kernels = replace(XP, make_grid=partial(make_grid, layout=layout))
    data, *steps = prepare(problem.samples, None, None, 0.03, 0, None, kernels, problem.samples.r_block.value)
    options = CoreOptions(5 * problem.mean_abs, 0.8, *steps, 0.0, 10)
    run(benchmark, f"core rate={rate}", lambda: solve_core(data, 2, options, 0, time.perf_counter))
