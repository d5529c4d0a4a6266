"""What a solve asks of the device, counted by the emulator: launches, copies, waits and calls of libraries.

The problem is the paper's (20 % outliers of ten times the size of an entry, 25 % seen), smaller.
"""

import pickle
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICE

import rcurc_gpu as rg

if DEVICE != "emulator":
    pytest.skip("only the emulator counts: RCURC_TEST_DEVICE=emulator", allow_module_level=True)

import cupy
import hostgpu

sys.path.append(str(Path(__file__).parents[2]))  # where bench is, if pytest was started elsewhere

from bench.device_requests import Requests
from rcurc_gpu.backends import kernels as choosing
from rcurc_gpu.backends.cuda import loop

RANK = 5
WORK = ("launches", "graph_launches", "d2h_copies", "h2d_copies", "event_records", "synchronizations")


def requests(stats):
    """Everything that the host asks for, but for queries."""
    return sum(stats[name] for name in WORK) + sum(stats["library_calls"].values())


@pytest.fixture(scope="module")
def problem():
    return rg.synthetic((500, 500), RANK, 0.2, 10, n_rows=150, n_cols=150, rate=0.25, seed=3)


def solved(problem, monkeypatch, **options):
    """A solve; its counts; and iteration, requests and calls of libraries at the start of each group."""
    samples = problem.samples.to_namespace(cupy)
    groups, advance = [], loop.CudaLoop.advance

    def counted(self, *arguments):
        stats = hostgpu.stats()
        groups.append((self.k, requests(stats), dict(stats["library_calls"])))
        return advance(self, *arguments)

    hostgpu.reset_stats()
    monkeypatch.setattr(loop.CudaLoop, "advance", counted)
    result = rg.rcurc(samples, RANK, **options)
    monkeypatch.undo()
    return result, hostgpu.stats(), groups


def solver_calls(calls):
    return sum(number for name, number in calls.items() if name.startswith("cusolver"))


@pytest.mark.smoke
def test_groups_of_five_iterations_are_one_graph_each(problem, monkeypatch):
    result, stats, groups = solved(problem, monkeypatch)
    assert (result.kernels, result.converged) == ("cuda", True)
    assert problem.relative_error(result.cur) < 1e-6
    assert [k for k, *_ in groups] == list(range(0, len(result.history), 5))
    # From the start of a group to that of the next, but for the first: a launch, a wait, and none of a library.
    assert len(groups) >= 5
    for (_, before, former), (_, after, later) in pairwise(groups[1:]):
        assert after - before <= 3
        assert former == later
    assert solver_calls(groups[-1][2]) == solver_calls(groups[0][2]) == 0
    assert solver_calls(stats["library_calls"]) <= 3
    assert stats["graph_kernels_by_name"]["small_svd"] == 5 * (len(groups) - 1)


def test_what_is_asked_for_beside_the_core_and_what_comes_to_the_host(problem):
    """`bench.device_requests` lists them by lines of Python."""
    samples, requests = problem.samples.to_namespace(cupy), Requests()
    hostgpu.reset_stats()
    hostgpu.set_listener(requests)
    try:
        result = rg.rcurc(samples, RANK)
    finally:
        hostgpu.set_listener(None)
    assert result.converged
    assert requests.of("ties")[0] <= 40  # the check whether rows and columns are tied together
    assert requests.of("rest")[0] <= 60
    stats = hostgpu.stats()
    # 64 KB, and the rows of the factors that are compared with what was rejected
    assert stats["d2h_bytes"] < (64 << 10) + result.cur.left.nbytes + result.cur.right.nbytes
    assert solver_calls(stats["library_calls"]) <= 3


def test_rows_in_doubt_get_the_same_fits_in_one_launch_and_one_by_one(problem, monkeypatch):
    together = solved(problem, monkeypatch)
    kernels = choosing.choose("auto", cupy.empty(0))
    monkeypatch.setattr(choosing, "_cuda", lambda *_: replace(kernels, together=0))
    one_by_one = solved(problem, monkeypatch)
    ours, theirs = (stats["launches_by_kernel"]["regress"] for _, stats, _ in (together, one_by_one))
    assert ours < theirs
    for name in ("left", "right"):
        np.testing.assert_array_equal(*(getattr(result.cur, name).get() for result, *_ in (together, one_by_one)))
    for side in ("rows", "columns"):
        a, b = (getattr(result, side) for result, *_ in (together, one_by_one))
        np.testing.assert_array_equal(a.status, b.status)
        np.testing.assert_array_equal(a.n_inliers, b.n_inliers)


def test_what_is_known_of_rows_and_columns_comes_when_it_is_looked_at(problem):
    result = rg.rcurc(problem.samples.to_namespace(cupy), RANK)
    hostgpu.reset_stats()
    assert result.rows.undetermined.size == 0
    assert 0 < hostgpu.stats()["d2h_bytes"] <= 64 * 500  # eight numbers of each row, and nothing of the columns
    on_host = rg.rcurc(problem.samples, RANK)
    for ours, theirs in ((result.rows, on_host.rows), (result.columns, on_host.columns)):
        for name in ("status", "n_obs", "n_inliers", "n_informative"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
            assert getattr(ours, name).dtype == getattr(theirs, name).dtype
        copied = pickle.loads(pickle.dumps(ours))
        np.testing.assert_array_equal(copied.status, theirs.status)
    assert result.message.partition(";")[0] == on_host.message.partition(";")[0]


def test_cusolver_can_be_asked_for_and_agrees(problem, monkeypatch):
    ours, _, _ = solved(problem, monkeypatch)
    theirs, stats, groups = solved(problem, monkeypatch, svd="cusolver")
    assert not groups  # no loop of kernels
    assert stats["library_calls"]["cusolver.gesvdj"] >= len(theirs.history)
    assert stats["library_calls"]["cusolver.dgeqrf"] >= 2 * len(theirs.history)
    assert [state.outlier_share for state in ours.history] == [state.outlier_share for state in theirs.history]
    dense = [result.cur[:, :] for result in (ours, theirs)]
    size = float(cupy.abs(dense[1]).max())
    assert float(cupy.abs(dense[0] - dense[1]).max()) <= 1e-12 * size


def test_a_callback_sees_every_iteration_and_changes_nothing(problem, monkeypatch):
    seen = []
    alone, _, _ = solved(problem, monkeypatch)
    watched, _, _ = solved(problem, monkeypatch, callback=lambda state: seen.append(state.iteration))
    assert seen == list(range(1, len(watched.history) + 1))
    np.testing.assert_array_equal(alone.cur.left.get(), watched.cur.left.get())
