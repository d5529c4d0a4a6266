"""What the tests of Dask share: clusters, shards made by functions, what is the same result, and an end to what hangs."""

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context

import rcurc_gpu as rg
from rcurc_gpu.shards import ShardedSamples

RANK = 4


def problem(noise=0.0, seed=1, **more):
    return rg.synthetic((900, 700), RANK, 0.2, 10, noise, n_rows=150, n_cols=160, rate=0.3, seed=seed, **more)


@contextmanager
def local_cluster(n_workers=2, method="forkserver", **options):
    """A client of worker processes on this machine, by default copies of one that has imported what they need."""
    options = {"threads_per_worker": 1, "dashboard_address": ":0"} | options
    with dask.config.set({"distributed.worker.multiprocessing-method": method}):
        if method == "forkserver":
            get_mp_context().set_forkserver_preload(["distributed", "rcurc_gpu.solve.cluster"])
        with LocalCluster(n_workers=n_workers, **options) as cluster, Client(cluster) as client:
            yield client


@contextmanager
def within(seconds):
    """Fail if the block takes longer; whatever the main thread waits for is interrupted."""

    def give_up(*_):
        pytest.fail(f"this should have ended long before {seconds} seconds")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def wait_for(condition, seconds=60):
    """Return when `condition()` is true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def functions_of(samples, before=None, at_once=(150, 200)):
    """Samples as shards that functions make, which call ``before(side, start)`` first."""
    R, C = samples.R, samples.C  # columns, and rows

    def make_r(start, stop):
        if before is not None:
            before("r", start)
        return R[:, start:stop]

    def make_c(start, stop):
        if before is not None:
            before("c", start)
        return C[start:stop]

    return ShardedSamples.from_functions(
        make_r,
        make_c,
        samples.shape,
        samples.rows,
        samples.cols,
        columns_at_once=at_once[0],
        rows_at_once=at_once[1],
        dtype=samples.dtype,
    )


class CallLog:
    """Calls of the functions above, by any process: a directory with a file for each."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir()

    def note(self, side, start):
        name = f"{side} {start} {os.getpid()} {time.monotonic_ns()}"
        (self.folder / name).touch()

    def calls(self):
        """(side, start, pid) in the order of time."""
        found = sorted((path.name.split() for path in self.folder.iterdir()), key=lambda words: int(words[3]))
        return [(side, int(start), int(pid)) for side, start, pid, _ in found]


def dense(result):
    return np.asarray(result.cur.to_dense())


def assert_same(found, expected, tolerance=1e-10):
    """The same matrix, diagnostics and message."""
    X, Y = dense(found), dense(expected)
    np.testing.assert_array_equal(np.isnan(X), np.isnan(Y))
    largest = np.nanmax(np.abs(Y))  # squares of it may vanish
    X, Y = np.nan_to_num(X / largest), np.nan_to_num(Y / largest)
    assert np.linalg.norm(X - Y) <= tolerance * np.linalg.norm(Y)
    assert (found.message, found.converged, found.cause) == (expected.message, expected.converged, expected.cause)
    assert (found.n_iter, found.rank, found.kernels) == (expected.n_iter, expected.rank, expected.kernels)
    numbers = [(r.noise, r.threshold, r.expected_error) for r in (found, expected)]
    np.testing.assert_allclose(*numbers, rtol=max(1e3 * tolerance, 1e-8))
    for name in ("columns", "rows"):
        here, there = getattr(found, name), getattr(expected, name)
        for counts in ("status", "n_obs", "n_inliers", "n_informative"):
            one, other = np.asarray(getattr(here, counts)), np.asarray(getattr(there, counts))
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        for sizes in ("spread", "standard_error"):
            one, other = np.asarray(getattr(here, sizes)), np.asarray(getattr(there, sizes))
            # without noise they are rounding
            np.testing.assert_allclose(one / largest, other / largest, rtol=1e-6, atol=1e2 * tolerance)
