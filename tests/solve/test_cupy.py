"""What CuPy alone has, or must not have: sparse matrices, transfers, memory that runs out, the command line.

The solver itself is compared with NumPy in test_arrays.py, the parts in the tests with the fixture `xp`; with
RCURC_TEST_DEVICE all of them run on CuPy, on the emulator in tests/hostgpu or on a GPU.
"""

import gc
import json
import logging
import os
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse
from click.testing import CliRunner
from conftest import DEVICE, SKIP_CUPY

import rcurc_gpu as rg
from rcurc_gpu import cli
from rcurc_gpu.backends import kernels as choosing
from rcurc_gpu.backends.arrays import device_name, native, sparse_module
from rcurc_gpu.backends.devices import namespace_for_device
from rcurc_gpu.extend import extension
from rcurc_gpu.solve import rejected, work

if not DEVICE:
    pytest.skip(SKIP_CUPY, allow_module_level=True)

import cupy
import cupyx.scipy.sparse
from failing_memory import Failing

from rcurc_gpu.backends.cuda import pipeline, verdicts

RANK = 2
emulated = pytest.mark.skipif(DEVICE != "emulator", reason="only the emulator counts transfers")


@pytest.fixture(scope="module")
def problem():
    return rg.synthetic((110, 120), RANK, 0.1, 10, n_rows=50, n_cols=45, rate=0.6, seed=7)


@pytest.fixture(scope="module")
def samples(problem):
    return problem.samples.to_namespace(cupy)


@pytest.fixture(scope="module")
def result(samples):
    return rg.rcurc(samples, RANK)


@pytest.fixture(scope="module")
def host_result(problem):
    return rg.rcurc(problem.samples, RANK)


def is_cupy(*arrays):
    return all(type(x) is cupy.ndarray for x in arrays)


def assert_same_samples(found, expected):
    """Found on the device, expected on the host."""
    assert (found.shape, found.n_unused, found.device) == (expected.shape, expected.n_unused, "cuda:0")
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_array_equal(found.cols, expected.cols)
    for name in ("r_block", "c_block"):
        for part in ("indptr", "index", "value"):
            there, here = getattr(getattr(found, name), part), getattr(getattr(expected, name), part)
            assert is_cupy(there)
            assert there.dtype == here.dtype
            np.testing.assert_array_equal(there.get(), here)


# ---------------------------------------------------------------- ways in


@pytest.fixture(scope="module")
def dense(problem):
    """The observed entries of the whole matrix, NaN elsewhere."""
    Y = np.full(problem.shape, np.nan)
    s = problem.samples
    R, C = s.R.tocoo(), s.C.tocoo()
    Y[s.rows[R.row], R.col] = R.data
    Y[C.row, s.cols[C.col]] = C.data
    return Y


@pytest.mark.smoke
def test_from_dense_gives_what_numpy_gives(problem, dense):
    s, there = problem.samples, cupy.asarray(dense)
    expected = rg.CrossSamples.from_dense(dense, s.rows, s.cols)
    assert_same_samples(rg.CrossSamples.from_dense(there, s.rows, s.cols), expected)
    assert_same_samples(rg.CrossSamples.from_dense(there, cupy.asarray(s.rows), cupy.asarray(s.cols)), expected)
    np.testing.assert_array_equal(there.get(), dense)
    masks = ~np.isnan(dense[s.rows]), ~np.isnan(dense[:, s.cols])
    filled = cupy.nan_to_num(there)
    assert_same_samples(rg.CrossSamples.from_dense(filled, s.rows, s.cols, *map(cupy.asarray, masks)), expected)


@pytest.mark.smoke
def test_from_triplets_gives_what_numpy_gives(problem, dense):
    s = problem.samples
    i, j = np.nonzero(~np.isnan(dense))
    parts = i, j, dense[i, j]
    there = tuple(map(cupy.asarray, parts))
    for chosen in ((s.rows, s.cols), (None, None)):
        expected = rg.CrossSamples.from_triplets(*parts, dense.shape, *chosen)
        assert_same_samples(rg.CrossSamples.from_triplets(*there, dense.shape, *chosen), expected)
    for before, after in zip(parts, there, strict=True):
        np.testing.assert_array_equal(after.get(), before)


@pytest.mark.smoke
@pytest.mark.parametrize("form", ["coo", "csr", "csc"])
def test_from_sparse_and_from_blocks_take_cupyx_matrices(problem, dense, form):
    s = problem.samples
    i, j = np.nonzero(~np.isnan(dense))
    Y = scipy.sparse.coo_matrix((dense[i, j], (i, j)), shape=dense.shape).asformat(form)
    there = getattr(cupyx.scipy.sparse, f"{form}_matrix")(Y)
    expected = rg.CrossSamples.from_sparse(Y, s.rows, s.cols)
    assert_same_samples(rg.CrossSamples.from_sparse(there, s.rows, s.cols), expected)
    np.testing.assert_array_equal(there.data.get(), Y.data)
    R, C = (getattr(cupyx.scipy.sparse, f"{form}_matrix")(scipy.sparse.csr_matrix(x)) for x in (s.R, s.C))
    assert_same_samples(rg.CrossSamples.from_blocks(R, C, s.rows, s.cols), s)


@pytest.mark.smoke
def test_blocks_are_cupyx_matrices_with_the_observations(problem, samples):
    assert (samples.R.format, samples.C.format) == ("csc", "csr")
    for found, expected in ((samples.R, problem.samples.R), (samples.C, problem.samples.C)):
        assert cupyx.scipy.sparse.issparse(found)
        np.testing.assert_array_equal(found.toarray().get(), expected.toarray())
    assert sparse_module(samples.r_block.value) is cupyx.scipy.sparse


@pytest.mark.smoke
def test_samples_are_saved_described_and_come_back(problem, samples, tmp_path):
    samples.save(tmp_path / "s.npz")
    assert_same_samples(rg.CrossSamples.load(tmp_path / "s.npz").to_namespace(cupy), problem.samples)
    assert_same_samples(samples.to_namespace(np).to_namespace(cupy), problem.samples)
    assert "on cuda:0" in repr(samples)
    assert samples.describe(RANK) == problem.samples.describe(RANK).replace("cpu", "cuda:0")


class Shared:
    """An array of no library that shares the memory of one of CuPy: by DLPack, or by CUDA's interface."""

    def __init__(self, x, how):
        names = {"dlpack": ("__dlpack__", "__dlpack_device__"), "interface": ("__cuda_array_interface__",)}[how]
        self.shape, self.ndim, self.dtype = x.shape, x.ndim, x.dtype
        self.__class__ = type("Foreign", (), {name: getattr(x, name) for name in names} | {"x": x})


@pytest.mark.smoke
@pytest.mark.parametrize("how", ["dlpack", "interface"])
def test_arrays_of_other_libraries_are_looked_at_where_they_are(problem, dense, how):
    s, there = problem.samples, cupy.asarray(dense)
    view = native(Shared(there, how))
    assert is_cupy(view)
    assert view.data.ptr == there.data.ptr
    expected = rg.CrossSamples.from_dense(dense, s.rows, s.cols)
    assert_same_samples(rg.CrossSamples.from_dense(Shared(there, how), s.rows, s.cols), expected)


# ---------------------------------------------------------------- results


@pytest.mark.smoke
def test_the_observations_are_not_modified(problem, samples, result):
    assert result.converged
    assert_same_samples(samples, problem.samples)


def test_the_same_seed_gives_the_same_bits_in_whatever_order_threads_run(samples, result):
    if DEVICE == "emulator":
        import hostgpu

        hostgpu.set_seed(5)
    try:
        again = rg.rcurc(samples, RANK)
    finally:
        if DEVICE == "emulator":
            hostgpu.set_seed(0)
    np.testing.assert_array_equal(again.cur.left.get(), result.cur.left.get())
    np.testing.assert_array_equal(again.cur.right.get(), result.cur.right.get())


@pytest.mark.smoke
def test_outliers_are_cupyx_matrices(result, host_result):
    for found, expected in zip(result.outliers(), host_result.outliers(), strict=True):
        assert cupyx.scipy.sparse.issparse(found)
        assert (found.format, found.shape, found.nnz) == (expected.format, expected.shape, expected.nnz)
        np.testing.assert_allclose(found.toarray().get(), expected.toarray(), atol=1e-7)


@pytest.mark.smoke
def test_diagnostics_are_on_the_host_and_equal(result, host_result):
    for found, expected in ((result.rows, host_result.rows), (result.columns, host_result.columns)):
        for name in ("status", "n_obs", "n_inliers"):
            assert type(getattr(found, name)) is np.ndarray
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert result.device == "cuda:0"
    np.testing.assert_allclose([h.threshold for h in result.history], [h.threshold for h in host_result.history], rtol=1e-9)


@pytest.mark.smoke
def test_new_columns_and_rows_are_completed(problem, result, host_result):
    rng, s = np.random.default_rng(0), problem.samples
    columns = (problem.W @ rng.standard_normal((RANK, 4)))[s.rows]
    rows = (rng.standard_normal((5, RANK)) @ problem.V.T)[:, s.cols]
    for Y, name in ((columns, "transform_columns"), (rows, "transform_rows")):
        Y[rng.random(Y.shape) > 0.6] = np.nan
        Y[:2, :2] = 50.0
        there = cupy.asarray(Y)
        found, expected = getattr(result, name)(there), getattr(host_result, name)(Y)
        assert is_cupy(found.matrix.left, found.matrix.right)
        np.testing.assert_allclose(found.matrix.to_dense().get(), expected.matrix.to_dense(), atol=1e-7)
        np.testing.assert_array_equal(found.diagnostics.status, expected.diagnostics.status)
        np.testing.assert_array_equal(there.get(), Y)
        i, j = np.nonzero(~np.isnan(Y))
        sparse = cupyx.scipy.sparse.coo_matrix(scipy.sparse.coo_matrix((Y[i, j], (i, j)), shape=Y.shape))
        np.testing.assert_array_equal(getattr(result, name)(sparse).matrix.to_dense().get(), found.matrix.to_dense().get())


@pytest.mark.smoke
def test_the_matrix_is_read_there_and_written_to_the_host_on_request(problem, result, tmp_path):
    cur, X = result.cur, problem.W @ problem.V.T
    assert is_cupy(cur[3, 4], cur[3, :], cur[:, [4, 5]], cur.C, cur.U, cur.R)
    np.testing.assert_allclose(cur[cupy.asarray([3, 1]), 2:9].get(), X[[3, 1], 2:9], atol=1e-7)
    np.testing.assert_allclose(cur.entries(cupy.asarray([3, 1]), [4, 5]).get(), X[[3, 1], [4, 5]], atol=1e-7)
    np.testing.assert_allclose((cur @ cupy.ones((120, 2))).get(), X @ np.ones((120, 2)), atol=1e-6)
    np.testing.assert_allclose((cupy.ones(110) @ cur).get(), np.ones(110) @ X, atol=1e-6)
    out = np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="w+", shape=cur.shape)
    assert cur.to_dense(out=out) is out
    np.testing.assert_array_equal(out, cur.to_dense().get())
    np.testing.assert_allclose(cur.as_linear_operator() @ np.ones(120), X.sum(axis=1), atol=1e-6)
    assert problem.relative_error(cur) <= 1e-8


def test_the_matrix_is_saved_and_loaded(result, tmp_path):
    result.cur.save(tmp_path / "X.npz")
    for like, kind in ((None, np.ndarray), (cupy.zeros(1), cupy.ndarray)):
        loaded = rg.CURMatrix.load(tmp_path / "X.npz", like=like)
        assert type(loaded.left) is type(loaded.right) is kind
        np.testing.assert_array_equal(cupy.asnumpy(loaded.left), result.cur.left.get())


# ---------------------------------------------------------------- NumPy and CuPy do not mix


def test_mixing_numpy_and_cupy_is_an_error_that_names_the_argument(dense, problem, result, host_result):
    s, there = problem.samples, cupy.asarray(dense)
    mask = ~np.isnan(dense[s.rows])
    expected = r"must be an array of the same library and device as {} \(cupy on cuda:0\), got numpy on cpu"
    with pytest.raises(TypeError, match="mask_rows " + expected.format("Y")):
        rg.CrossSamples.from_dense(there, s.rows, s.cols, mask_rows=mask)
    with pytest.raises(TypeError, match="i " + expected.format("values")):
        rg.CrossSamples.from_triplets(np.array([0]), np.array([0]), cupy.ones(1), (2, 2), [0], [0])
    with pytest.raises(TypeError, match="Y_new " + expected.format("the recovered matrix")):
        result.transform_columns(dense[s.rows, :2])
    with pytest.raises(TypeError, match="multiply with " + expected.format("the matrix")):
        result.cur @ np.ones(120)
    with pytest.raises(TypeError, match=r"\(numpy on cpu\), got cupy on cuda:0"):
        host_result.cur @ cupy.ones(120)
    with pytest.raises(TypeError, match=r"\(numpy on cpu\), got cupy on cuda:0"):
        host_result.transform_rows(cupy.ones((1, 45)))


CLEAR = "must be an array of the same library and device as"


def test_blocks_of_two_libraries_are_an_error_that_names_the_argument(problem, samples):
    with pytest.raises(TypeError, match=CLEAR):
        rg.CrossSamples.from_blocks(samples.R, problem.samples.C, samples.rows, samples.cols)


def test_new_columns_in_a_scipy_matrix_are_refused_by_a_result_on_the_device(result):
    with pytest.raises(TypeError, match=CLEAR):
        result.transform_columns(scipy.sparse.csr_matrix(np.ones((50, 2))))


def test_new_columns_in_a_cupyx_matrix_are_refused_by_a_result_on_the_host(host_result):
    with pytest.raises(TypeError, match=CLEAR):
        host_result.transform_columns(cupyx.scipy.sparse.csr_matrix(cupy.ones((50, 2))))


def test_to_dense_of_a_matrix_on_the_host_into_cupy_is_refused(host_result):
    with pytest.raises(TypeError, match=CLEAR):
        host_result.cur.to_dense(out=cupy.empty(host_result.cur.shape))


# ---------------------------------------------------------------- AMD's GPUs


def test_rocm_gets_plain_code_and_a_line_in_the_log(monkeypatch, caplog, problem, samples):
    monkeypatch.setattr(cupy.cuda.runtime, "is_hip", True)
    choosing._cuda.cache_clear()
    try:
        with caplog.at_level(logging.INFO, "rcurc_gpu"):
            chosen = [choosing.choose("auto", samples.r_block.value) for _ in range(2)]
        assert [found.name for found in chosen] == ["xp", "xp"]
        assert caplog.text.count("there are no kernels for AMD's GPUs (ROCm)") == 1
        with pytest.raises(RuntimeError, match="none for AMD's GPUs"):
            choosing.choose("fused", samples.r_block.value)
    finally:
        choosing._cuda.cache_clear()


# ---------------------------------------------------------------- memory


@pytest.fixture
def memory_limit():
    """Limits the device memory to some bytes above what is in use; without limit again after the test.

    The test gets a memory pool of its own. In the one that earlier tests used, arrays that are still alive keep whole
    blocks, and what is free inside of those would be given out without asking the device.
    """
    usual = cupy.get_default_memory_pool()
    pool = cupy.cuda.MemoryPool()
    cupy.cuda.set_allocator(pool.malloc)

    def limit(extra):
        gc.collect()  # CuPy does so before it gives up, and what earlier tests left would make room
        usual.free_all_blocks()
        pool.free_all_blocks()
        if DEVICE == "emulator":
            import hostgpu

            hostgpu.set_memory_limit(hostgpu.stats()["live_bytes"] + extra)
        else:
            pool.set_limit(size=max(pool.used_bytes() + extra, 1))  # 0 would be no limit

    yield limit
    if DEVICE == "emulator":
        import hostgpu

        hostgpu.set_memory_limit(8 << 30)
    cupy.cuda.set_allocator(usual.malloc)


@pytest.mark.parametrize("extra", [0, 20_000, 60_000])
def test_memory_that_runs_out_is_an_error_and_nothing_is_lost(problem, samples, result, memory_limit, extra):
    fresh = problem.samples.to_namespace(cupy)
    memory_limit(extra)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        rg.rcurc(fresh, RANK)
    memory_limit(1 << 30)
    assert_same_samples(fresh, problem.samples)
    if extra:
        np.testing.assert_array_equal(rg.rcurc(fresh, RANK).cur.left.get(), result.cur.left.get())


@emulated
def test_observations_on_the_host_are_solved_there_if_the_device_is_too_small(problem, host_result, memory_limit, caplog):
    memory_limit(10_000)
    result = rg.rcurc(problem.samples, RANK, device="cuda")
    assert result.device == "cpu"
    np.testing.assert_array_equal(result.cur.left, host_result.cur.left)
    assert "device cuda has not enough memory" in caplog.text


@emulated
def test_an_allocation_that_fails_once_does_no_harm(problem, host_result):
    """Wherever it is in the solve; tests/backends/test_cuda_streaming.py lets each one fail on the way of a chunk."""
    with Failing(0) as counting:
        rg.rcurc(problem.samples, RANK, device="cuda")
    # the first solve of a process makes a few arrays that later ones find
    for n in np.linspace(1, counting.calls - 5, 5).astype(int).tolist():
        with Failing(n) as failing:
            result = rg.rcurc(problem.samples, RANK, device="cuda")
        assert failing.calls >= n
        assert result.converged
        np.testing.assert_allclose(result.cur.to_dense(), host_result.cur.to_dense(), atol=1e-8)


@emulated
def test_streams_and_pinned_memory_live_as_long_as_the_solve(problem, monkeypatch):
    made = []

    class Counted(pipeline.Pipeline):
        def __init__(self):
            super().__init__()
            made.append(self)

    streams, real = [], cupy.cuda.Stream
    monkeypatch.setattr(cupy.cuda, "Stream", lambda **how: streams.append(1) or real(**how))
    monkeypatch.setattr(pipeline, "Pipeline", Counted)
    assert rg.rcurc(problem.samples, RANK, device="cuda", chunk_bytes=5_000).converged
    assert len(made) == 1
    assert 0 < len(streams) <= 3


# ---------------------------------------------------------------- transfers


class Counting:
    """Counts what the emulator sees while a function of the solver runs."""

    def __init__(self, monkeypatch, module, name):
        import hostgpu

        self.calls = []
        function = getattr(module, name)

        def counted(*args, **kwargs):
            before = hostgpu.stats()
            result = function(*args, **kwargs)
            after = hostgpu.stats()
            kernels = {k: n - before["launches_by_kernel"].get(k, 0) for k, n in after["launches_by_kernel"].items()}
            names = ("launches", "d2h_bytes", "d2h_copies", "synchronizations")
            self.calls.append(({k: after[k] - before[k] for k in names}, kernels, result))
            return result

        monkeypatch.setattr(module, name, counted)


@emulated
@pytest.mark.parametrize("where", ["device", "host"])
def test_an_extension_is_one_launch_for_each_chunk(monkeypatch, where):
    problem = rg.synthetic((130, 900), RANK, 0.1, 10, n_rows=60, n_cols=60, rate=0.6, seed=7)
    samples = problem.samples.to_namespace(cupy) if where == "device" else problem.samples
    first, later = Counting(monkeypatch, work, "fits_of"), Counting(monkeypatch, extension, "run_pass")

    def size(found):
        return len(found[0]) if isinstance(found, tuple) else len(found.diagnostics.status)

    device = "auto" if where == "device" else "cuda"
    assert rg.rcurc(samples, RANK, device=device, chunk_bytes=40_000).device == "cuda:0"
    columns = next(kernels for _, kernels, found in first.calls if size(found) == 840)
    assert columns["regress"] == 840 * 60 * 0.6 * 12 // 40_000 == 9
    first.calls.clear()
    later.calls.clear()
    assert rg.rcurc(samples, RANK, device=device).converged
    # over all columns, all rows, and again over the few that are in doubt
    for _, kernels, found in first.calls + later.calls:
        assert kernels["regress"] == (1 if size(found) else 0)


@emulated
def test_observations_stay_on_the_device():
    """What comes back is some bytes for each row and column; the observations do not."""
    import hostgpu

    for scale in (1, 4):
        problem = rg.synthetic((900, 1000), RANK, 0.1, 10, n_rows=60 * scale, n_cols=60, rate=0.6, seed=7)
        samples = problem.samples.to_namespace(cupy)
        hostgpu.reset_stats()
        result = rg.rcurc(samples, RANK)
        counts = hostgpu.stats()
        assert result.converged
        # 100 kB: some 2,000 observations of each block, whatever their number, in which the rejected are looked at
        assert counts["d2h_bytes"] <= 40 * RANK * sum(samples.shape) + 20_000 + 100_000


# ---------------------------------------------------------------- observations that stay on the host


@pytest.mark.smoke
@pytest.mark.parametrize("chunk_bytes", [None, 20_000])
@pytest.mark.parametrize("method", ["fast", "paper"])
def test_observations_on_the_host_stream_through_the_device(problem, host_result, method, chunk_bytes):
    result = rg.rcurc(problem.samples, RANK, device="cuda", method=method, chunk_bytes=chunk_bytes)
    assert result.device == "cuda:0"
    assert result.samples is problem.samples
    assert type(result.cur.left) is np.ndarray
    assert result.converged
    expected = host_result if method == "fast" else rg.rcurc(problem.samples, RANK, method=method)
    np.testing.assert_allclose(result.cur.to_dense(), expected.cur.to_dense(), atol=1e-8)
    np.testing.assert_array_equal(result.columns.n_inliers, expected.columns.n_inliers)


@emulated
def test_of_streamed_columns_their_coefficients_come_back_and_little_else():
    """What is known of them stays on the device: a table of eight numbers, until it is looked at."""
    import hostgpu

    came = []
    for n in (900, 2700):
        problem = rg.synthetic((130, n), RANK, 0.1, 10, n_rows=60, n_cols=60, rate=0.6, seed=7)
        hostgpu.reset_stats()
        result = rg.rcurc(problem.samples, RANK, device="cuda", chunk_bytes=40_000)
        came.append(hostgpu.stats()["d2h_bytes"])
        assert result.converged
        hostgpu.reset_stats()
        assert len(result.columns.status) == n
        assert hostgpu.stats()["d2h_bytes"] == 8 * 8 * n
    # the coefficients; a number and a flag of columns where a component may rest on one observation; and doubtful ones
    assert came[1] - came[0] < (8 * RANK + 8 + 1) * 1800 + 8_000


@pytest.mark.smoke
@pytest.mark.filterwarnings("ignore::rcurc_gpu.ConvergenceWarning")
@pytest.mark.parametrize("room", [True, False])
def test_what_is_known_of_streamed_columns_and_rows_is_what_the_host_knows(room, monkeypatch):
    """Some of them are not determined, some rest on one observation; with and without room for a table."""
    if not room:
        monkeypatch.setattr(verdicts.UnitTable, "__init__", Mock(side_effect=MemoryError))
    problem = rg.synthetic((200, 700), RANK, 0.2, 10, n_rows=40, n_cols=40, rate=(0.25, 0.6), seed=7)
    there, here = (
        rg.rcurc(problem.samples, RANK, device=device, undetermined="nan", chunk_bytes=9_000) for device in ("cuda", "cpu")
    )
    assert there.device == "cuda:0"
    assert 0 < here.columns.n_undetermined < 100
    for ours, theirs in ((there.rows, here.rows), (there.columns, here.columns)):
        for name in ("status", "n_obs", "n_inliers", "n_informative"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    np.testing.assert_allclose(there.cur.to_dense(), here.cur.to_dense(), atol=1e-8)
    assert there.message == here.message


@pytest.mark.smoke
def test_with_noise_they_stream_again_for_the_sweep():
    noisy = rg.synthetic((110, 120), RANK, 0.1, 10, 0.05, n_rows=50, n_cols=45, rate=0.6, seed=7)
    there, here = (rg.rcurc(noisy.samples, RANK, device=device, accuracy=0.1) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(there.cur.to_dense(), here.cur.to_dense(), atol=1e-8)


@pytest.mark.smoke
def test_observations_on_the_device_may_be_solved_on_the_host(samples, host_result):
    result = rg.rcurc(samples, RANK, device="cpu")
    assert result.device == "cpu"
    assert is_cupy(result.cur.left, result.cur.right)
    np.testing.assert_array_equal(result.cur.left.get(), host_result.cur.left)


@emulated
def test_reading_some_entries_transfers_only_those(result):
    import hostgpu

    index = [1, 2, 3]
    hostgpu.reset_stats()
    block = result.cur.block(index, index)
    assert hostgpu.stats()["d2h_bytes"] == 0
    block.get()
    assert hostgpu.stats()["d2h_bytes"] == 9 * 8


# ---------------------------------------------------------------- devices and the command line


def test_cupy_serves_the_device_cuda():
    for wanted in ("cuda", "auto"):
        assert namespace_for_device(wanted) == (cupy, "cuda")
    assert device_name(cupy.zeros(1)) == "cuda:0"


@pytest.mark.parametrize("method", ["fast", "paper"])
def test_the_demo_runs_on_the_device(tmp_path, method):
    size = ("--size", "120", "--rank", "2", "--rate", "0.6", "--rows", "0.5", "--cols", "0.5")
    arguments = ["demo", *size, "--device", "cuda", "--method", method, "--json", "--output", str(tmp_path)]
    done = CliRunner().invoke(cli.main, arguments, prog_name="rcurc-gpu")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["device"] == "cuda:0"
    assert report["true_error"] < 1e-5
    assert report["outliers"]["precision"] > 0.99
    assert type(rg.CURMatrix.load(tmp_path / "result.npz").left) is np.ndarray
    assert (tmp_path / "demo.png").stat().st_size > 0


def run_without_device(code):
    """In a process where CuPy finds no device."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


def test_cupy_without_a_device_is_named():
    code = "from rcurc_gpu.backends.devices import namespace_for_device as f; print(f('auto')[1]); f('cuda')"
    said = run_without_device(code)
    assert said.startswith("cpu\n")
    assert "DeviceError: device='cuda' was asked for, but CuPy finds no CUDA device; install" in said


def test_no_cupy_is_named():
    block = "import sys; sys.modules['cupy'] = None; "
    code = block + "from rcurc_gpu.backends.devices import namespace_for_device as f; print(f('auto')[1]); f('cuda')"
    said = run_without_device(code)
    assert said.startswith("cpu\n")
    assert "DeviceError: device='cuda' was asked for, but CuPy is not installed; install" in said


@pytest.mark.parametrize("seed", [0, 1])
def test_outliers_that_were_copied_are_no_structure_on_a_device_either(seed, monkeypatch):
    """There copies are known by what is left of them, whose last digits are rounding."""
    monkeypatch.setattr(rejected, "_FROM_DEVICE", 100_000)  # all entries, so that both look at the same ones
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, RANK)) @ rng.standard_normal((RANK, 160))
    Y = X + 5 * rng.choice([-1, 1], X.shape) * (rng.random(X.shape) < 0.1)
    Y = np.repeat(np.where(rng.random(X.shape) < 0.6, Y, np.nan), 4, axis=0)
    rows, cols = (np.sort(rng.permutation(n)[: n // 2]) for n in Y.shape)
    samples = rg.CrossSamples.from_dense(Y, rows, cols)
    found, expected = (rg.rcurc(x, RANK).structure for x in (samples.to_namespace(cupy), samples))
    for part in ("core", "columns", "rows"):
        assert getattr(found, part) == pytest.approx(getattr(expected, part), abs=0.1)
    assert not found.components
