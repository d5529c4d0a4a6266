"""Timings under pytest-benchmark, each group one problem and each name what solves it.

    pytest bench/                                          # half a minute
    pytest bench/ --full --benchmark-json=saved.json       # up to d = 10,000 and 1e8 observations
    python -m bench.report saved.json --output report      # tables and a plot of what was saved

The problems are those of ``rcurc-gpu bench`` (`rcurc_gpu.benchmark.make_cases`), with --full one of rank 20, too. The
baseline, ``authors``, is dense blocks and a full SVD in every iteration, until it has found the matrix too, or 400 times:
its error is in the report. It and plain NumPy do not take the larger problems.
"""

from dataclasses import replace
from functools import partial

import pytest

import rcurc_gpu as rg
from bench.backends import BASELINE, backends
from rcurc_gpu.backends.kernels import XP, RunContext
from rcurc_gpu.backends.plain.grid import make_grid
from rcurc_gpu.benchmark import make_cases, square
from rcurc_gpu.core.iteration import CoreOptions, solve_core
from rcurc_gpu.core.problem import Steps, prepare
from rcurc_gpu.solve.supply import in_memory

ROUNDS = 5


def cases(full):
    found = [*make_cases(quick=not full), *([square(3000, rank=20)] if full else [])]
    return sorted(found, key=lambda case: (case.size, case.chosen, case.rank))


def pytest_generate_tests(metafunc):
    if "case" in metafunc.fixturenames:
        full = metafunc.config.getoption("full")
        pairs = [(case, backend) for case in cases(full) for backend in backends(full) if backend.takes(case)]
        ids = [f"{case.name}, rank {case.rank}: {backend.name}" for case, backend in pairs]
        metafunc.parametrize(("case", "backend"), pairs, ids=ids)


@pytest.fixture
def problem(case):
    yield case.problem
    case.__dict__.pop("problem")  # the larger ones take a gigabyte


def test_solve(benchmark, case, problem, backend):
    samples, size, rank = problem.samples, case.size, case.rank
    benchmark.group, benchmark.name = f"solve {case.name}, rank {rank}", backend.name
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
        task="solve" if case.name.startswith("d =") else "solve many observations",
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
