"""Solves on a Dask cluster of processes give what one process gives."""

import asyncio
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from clusters import RANK, CallLog, assert_same, dense, functions_of, local_cluster, problem, wait_for, within
from distributed import Client, LocalCluster

import rcurc_gpu as rg
from rcurc_gpu import open_result
from rcurc_gpu.shards import ShardedSamples
from rcurc_gpu.solve import cluster, supply

SHARD_BYTES = 80_000  # a few for each side of the problems here


@pytest.fixture(scope="module")
def client():
    with local_cluster() as client:
        yield client


@pytest.fixture(autouse=True)
def no_hanging():
    with within(240):  # workers may have to compile kernels
        yield


@pytest.fixture(scope="module")
def plain():
    """Without noise, and its result in one process."""
    p = problem()
    return p, rg.rcurc(p.samples, RANK)


@pytest.fixture(scope="module")
def noisy():
    return problem(noise=0.02)


def cut(samples):
    found = ShardedSamples.of(samples, SHARD_BYTES)
    assert min(len(found.r_shards), len(found.c_shards)) > 2
    return found


# ---------------------------------------------------------------- the same result


@pytest.mark.parametrize("kind", ["samples", "in memory", "in a directory", "functions"])
def test_the_result_is_that_of_one_process(client, plain, monkeypatch, tmp_path, kind):
    p, expected = plain
    assert p.relative_error(expected.cur) < 1e-8
    monkeypatch.setattr(supply, "_LEAST_BYTES", SHARD_BYTES)
    make = {
        "samples": lambda: p.samples,
        "in memory": lambda: cut(p.samples),
        "in a directory": lambda: cut(p.samples).save(tmp_path / "shards"),
        "functions": lambda: functions_of(p.samples),
    }
    given = make[kind]()
    found = rg.rcurc(given, RANK, client=client)
    assert_same(found, expected)
    assert found.samples is given
    assert isinstance(found.cur.left, np.ndarray)


@pytest.mark.parametrize("sweeps", [0, None])
def test_sweeps_over_noisy_data_are_those_of_one_process(client, noisy, sweeps):
    options = {"sweeps": sweeps, "accuracy": 0.1}
    found = rg.rcurc(cut(noisy.samples), RANK, client=client, **options)
    assert_same(found, rg.rcurc(noisy.samples, RANK, **options))
    assert noisy.relative_error(found.cur) < 0.02


def test_the_rank_is_chosen(client, plain):
    p, _ = plain
    found = rg.rcurc(cut(p.samples), "auto", client=client)
    assert_same(found, rg.rcurc(p.samples, "auto"))
    assert found.rank == RANK


def test_icurc_works_on_clusters(client):
    p = rg.synthetic((900, 700), RANK, 0, n_rows=150, n_cols=160, rate=0.3, seed=2)
    found = rg.icurc(cut(p.samples), RANK, client=client)
    assert_same(found, rg.icurc(p.samples, RANK))
    assert p.relative_error(found.cur) < 1e-6


def test_single_precision_stays_single(client):
    p = problem(dtype=np.float32)
    found = rg.rcurc(cut(p.samples), RANK, client=client)
    expected = rg.rcurc(p.samples, RANK)
    assert (found.cur.left.dtype, found.cur.right.dtype) == (np.float32, np.float32)
    assert np.linalg.norm(dense(found) - dense(expected)) <= 1e-4 * np.linalg.norm(dense(expected))
    assert (found.converged, found.cause) == (expected.converged, expected.cause)


def test_tiny_units_do_not_matter(client, plain):
    p, one = plain
    s = p.samples
    R, C = s.R * 1e-200, s.C * 1e-200
    tiny = rg.CrossSamples.from_blocks(R, C, s.rows, s.cols)
    found = rg.rcurc(cut(tiny), RANK, client=client)
    assert_same(found, rg.rcurc(tiny, RANK))
    np.testing.assert_allclose(dense(found) * 1e200, dense(one), rtol=1e-6, atol=1e-6)


@pytest.fixture(scope="module")
def with_holes(plain):
    """Two columns and a row that were hardly observed."""
    s = plain[0].samples
    columns = np.setdiff1d(np.arange(s.shape[1]), s.cols)[[10, -3]]
    row = np.setdiff1d(np.arange(s.shape[0]), s.rows)[[50]]
    R, C = s.R.tolil(), s.C.tolil()
    R[3:, columns] = 0
    C[row, :] = 0
    R, C = (scipy.sparse.coo_array(x) for x in (R, C))
    return rg.CrossSamples.from_blocks(R, C, s.rows, s.cols), columns, row


@pytest.mark.filterwarnings("ignore::rcurc_gpu.ConvergenceWarning")
@pytest.mark.parametrize(("undetermined", "gather"), [("nan", True), ("keep", True), ("nan", False)])
def test_what_cannot_be_determined_is_told(client, with_holes, undetermined, gather):
    samples, columns, row = with_holes
    found = rg.rcurc(cut(samples), RANK, client=client, undetermined=undetermined, gather=gather)
    assert_same(found, rg.rcurc(samples, RANK, undetermined=undetermined))
    assert not found.converged
    np.testing.assert_array_equal(found.columns.undetermined, columns)
    np.testing.assert_array_equal(found.rows.undetermined, row)
    assert found.columns.reasons() == {"fewer observations than rank + 2": 2}
    assert np.isnan(dense(found)[:, columns]).all() == (undetermined == "nan")


def test_an_unconfirmed_result_warns_the_caller(client, with_holes):
    with pytest.warns(rg.ConvergenceWarning, match="2 of 700 columns") as caught:
        rg.rcurc(cut(with_holes[0]), RANK, client=client)
    assert caught[0].filename == __file__


def test_workers_may_be_threads(plain):
    p, expected = plain
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as threads,
        Client(threads, set_as_default=False) as other,
    ):
        assert_same(rg.rcurc(cut(p.samples), RANK, client=other), expected)


def test_callback_and_progress_see_the_core(client, plain, capsys):
    p, _ = plain
    states = []
    found = rg.rcurc(cut(p.samples), RANK, client=client, callback=states.append, progress=True)
    assert_same(found, rg.rcurc(p.samples, RANK, callback=lambda state: None))
    assert len(states) == found.n_iter
    shown = capsys.readouterr().err
    assert re.search(r"columns and rows: 100%\|.*\| 1\.60k/1\.60k", shown)
    assert re.search(r"columns and rows, second: 100%", shown)


# ---------------------------------------------------------------- factors that stay on the workers


@pytest.fixture(scope="module")
def remote(client, plain):
    return rg.rcurc(cut(plain[0].samples), RANK, client=client, gather=False)


def test_factors_and_diagnostics_are_dask_arrays(remote, plain):
    expected = plain[1]
    for array in (remote.cur.left, remote.cur.right, remote.columns.spread, remote.rows.status):
        assert isinstance(array, da.Array)
        assert array.npartitions > 2
    assert_same(remote, expected)
    assert "rank=4" in repr(remote.cur)
    assert remote.cur.nbytes == expected.cur.nbytes
    np.testing.assert_array_equal(remote.columns.undetermined, expected.columns.undetermined)
    assert remote.rows.reasons() == {}


@pytest.mark.parametrize(
    "use",
    [
        lambda cur: cur[3, 5],
        lambda cur: cur[-1, :],
        lambda cur: cur[:, 699],
        lambda cur: cur[10:600:7, 100:],
        lambda cur: cur.block([5, 800, 5], np.arange(0, 700, 9)),
        lambda cur: cur[np.arange(900) % 2 == 0, :][:, :10],
        lambda cur: cur.entries([1, 899, 3], [0, 1, 699]),
        lambda cur: cur @ np.linspace(0, 1, 700),
        lambda cur: cur @ np.ones((700, 2)),
        lambda cur: cur @ ([1] * 700),
        lambda cur: np.linspace(0, 1, 900) @ cur,
        lambda cur: np.ones((2, 900)) @ cur,
        lambda cur: cur.T @ np.ones(900),
        lambda cur: cur.T[5, 3],
        lambda cur: cur.U,
        lambda cur: cur.C,
        lambda cur: cur.R,
        lambda cur: cur.to_dense(),
        lambda cur: cur.to_dense(out=np.empty((900, 700))),
        lambda cur: cur.singular_values(),
        lambda cur: cur.as_linear_operator() @ np.ones(700),
    ],
)
def test_they_do_what_other_factors_do(remote, plain, use):
    np.testing.assert_allclose(np.asarray(use(remote.cur)), use(plain[1].cur), rtol=1e-9, atol=1e-9)


def test_products_with_dask_arrays_stay_there(remote, plain):
    x = da.ones(700, chunks=100)
    product = remote.cur @ x
    assert isinstance(product, da.Array)
    np.testing.assert_allclose(product.compute(), plain[1].cur @ np.ones(700))


def test_they_are_saved(remote, plain, tmp_path):
    remote.cur.save(tmp_path / "x.npz")
    np.testing.assert_allclose(rg.CURMatrix.load(tmp_path / "x.npz").to_dense(), plain[1].cur.to_dense(), rtol=1e-9)


@pytest.mark.parametrize(
    "use",
    [
        lambda result: result.outliers(),
        lambda result: result.outliers_of(np.zeros((900, 700))),
        lambda result: result.transform_columns(np.zeros((150, 2))),
        lambda result: result.transform_rows(np.zeros((2, 160))),
    ],
)
def test_what_needs_them_here_says_so(remote, use):
    with pytest.raises(TypeError, match=re.escape("solve with gather=True or output=...")):
        use(remote)


def test_a_wrong_product_and_a_wrong_index_are_errors(remote):
    with pytest.raises(ValueError, match=r"cannot multiply a \(900, 700\) matrix"):
        remote.cur @ np.ones(699)
    with pytest.raises(IndexError, match="index 900 is out of bounds"):
        remote.cur[900, 0]


def test_nothing_is_left_on_the_workers(client, plain):
    before = tasks_of(client)
    rg.rcurc(cut(plain[0].samples), RANK, client=client)
    result = rg.rcurc(cut(plain[0].samples), RANK, client=client, gather=False)
    del result
    wait_for(lambda: tasks_of(client) == before)


def tasks_of(client):
    """All that the scheduler knows of."""
    return client.run_on_scheduler(lambda dask_scheduler: {str(key) for key in dask_scheduler.tasks})


# ---------------------------------------------------------------- factors in files


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_output_is_a_directory_with_the_factors(client, tmp_path, noise):
    p = problem(noise)
    options = {"accuracy": 0.1, "output": tmp_path / "result"}
    found = rg.rcurc(cut(p.samples), RANK, client=client, **options)
    expected = rg.rcurc(p.samples, RANK, accuracy=0.1)
    assert_same(found, expected)
    assert isinstance(found.cur.left, np.memmap)
    opened = open_result(tmp_path / "result")
    np.testing.assert_array_equal(opened.to_dense(), dense(found))
    np.testing.assert_array_equal(opened.rows, p.samples.rows)
    assert list((tmp_path / "result/parts").iterdir()) == []
    # once more, with everything there; and by one process alone
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert_same(rg.rcurc(cut(p.samples), RANK, client=client, **options), expected)
    assert_same(rg.rcurc(cut(p.samples), RANK, **options), expected)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_output_of_samples_in_memory_does_not_hang_on_the_size_of_the_cluster(client, plain, monkeypatch, tmp_path):
    p, expected = plain
    monkeypatch.setattr(supply, "_LEAST_BYTES", 20_000)
    rg.rcurc(p.samples, RANK, client=client, output=tmp_path / "result")
    monkeypatch.setattr(type(client), "nthreads", lambda self: {"a": 7, "b": 12})
    assert_same(rg.rcurc(p.samples, RANK, client=client, output=tmp_path / "result"), expected)


def test_a_relative_directory_is_found_by_workers_elsewhere(client, plain, monkeypatch, tmp_path):
    p, expected = plain
    cut(p.samples).save(tmp_path / "shards")
    monkeypatch.chdir(tmp_path)  # the workers are where they were
    assert client.submit(os.getcwd).result() != str(tmp_path)
    assert_same(rg.rcurc(ShardedSamples.open("shards"), RANK, client=client, output="result"), expected)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"client": "tcp://127.0.0.1:1"}, TypeError, "client must be a dask.distributed.Client that waits.*, got str"),
        ({"client": 7, "gather": False}, TypeError, "client must be a dask.distributed.Client that waits.*, got int"),
        ({"gather": False}, ValueError, "gather is for a solve with a client"),
        ({"gather": False, "output": "x"}, ValueError, "gather is for a solve with a client and without output"),
    ],
)
def test_arguments_are_checked(plain, options, error, message):
    with pytest.raises(error, match=message):
        rg.rcurc(plain[0].samples, RANK, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"checkpoint": "x"}, "checkpoint is for samples in memory; .* output keeps what was done"),
        ({"method": "paper"}, "samples in shards are for method='fast', got method='paper'"),
        ({"gather": False, "output": "x"}, "gather is for a solve with a client and without output"),
        ({"device": "gpu"}, "device must be 'auto', 'cpu', 'cuda' or 'cuda:1' .*, got 'gpu'"),
        ({"rank": 151}, "rank must be at most"),
    ],
)
def test_arguments_beside_a_client_are_checked(client, plain, options, message):
    with pytest.raises(ValueError, match=message):
        rg.rcurc(**({"samples": plain[0].samples, "rank": RANK, "client": client} | options))
    assert not os.path.exists("x")


def test_an_asynchronous_client_is_refused(client, plain):
    async def solve():
        async with Client(client.scheduler.address, asynchronous=True) as other:
            rg.rcurc(plain[0].samples, RANK, client=other)

    with pytest.raises(TypeError, match="got an asynchronous one"):
        asyncio.run(solve())


def test_a_closed_client_is_refused(client, plain):
    with Client(client.scheduler.address, set_as_default=False) as other:
        pass
    with pytest.raises(ValueError, match="client must be connected to a scheduler, got one that is closed"):
        rg.rcurc(plain[0].samples, RANK, client=other)


def test_a_cluster_without_workers_is_told(plain, monkeypatch):
    monkeypatch.setattr(cluster, "_FIRST_WORKER", 0.3)
    with (
        local_cluster(n_workers=0) as empty,
        pytest.raises(RuntimeError, match=r"client has no workers, and none came in 0\.3 seconds"),
    ):
        rg.rcurc(plain[0].samples, RANK, client=empty)


def fails(side, start):
    """For `functions_of`."""
    if (side, start) == ("c", 400):
        raise ZeroDivisionError("what a user's function does")


@pytest.mark.parametrize("here", [True, False])
def test_a_function_that_fails_is_named(client, plain, here):
    samples = functions_of(plain[0].samples, fails)
    text = "shard 2 of the rows (rows 400 to 599) could not be made: ZeroDivisionError: what a user's function does"
    with pytest.raises(RuntimeError, match=re.escape(text)):
        rg.rcurc(samples, RANK, client=None if here else client)


def test_a_function_that_gives_something_else_is_named(client, plain):
    s = plain[0].samples
    one_too_few = ShardedSamples.from_functions(
        lambda start, stop: s.R[:, start : stop - 1],
        lambda start, stop: s.C[start:stop],
        s.shape,
        s.rows,
        s.cols,
        columns_at_once=100,
        rows_at_once=100,
    )
    with pytest.raises(RuntimeError, match=r"shard \d of the columns .* could not be made: .* 100 columns, got 99"):
        rg.rcurc(one_too_few, RANK, client=client)


def damage(path, how):
    data = bytearray(path.read_bytes())
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        data[-100] ^= 4
        path.write_bytes(data)
    else:
        path.unlink()


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("truncated", ValueError, "is damaged or truncated"),
        ("flipped", ValueError, "is damaged: its checksum is not the manifest's"),
        ("deleted", FileNotFoundError, "a shard cannot be read"),
    ],
)
def test_a_damaged_shard_is_named(client, plain, tmp_path, how, error, message):
    samples = cut(plain[0].samples).save(tmp_path / "shards")
    damage(tmp_path / "shards/c-000001.shard", how)
    with pytest.raises(error, match=message) as caught:
        rg.rcurc(samples, RANK, client=client)
    assert "c-000001.shard" in str(caught.value)


def test_an_error_does_not_wait_for_the_others(client, plain, tmp_path):
    """What is under way ends, the rest is not begun."""
    calls = CallLog(tmp_path / "calls")

    def before(side, start):
        if len(calls.calls()) > 2:
            raise ZeroDivisionError
        calls.note(side, start)
        time.sleep(0.3)

    with pytest.raises(RuntimeError, match="could not be made: ZeroDivisionError"):
        rg.rcurc(functions_of(plain[0].samples, before, at_once=(50, 50)), RANK, client=client)
    wait_for(lambda: not any(client.processing().values()))
    assert len(calls.calls()) < 6  # of 32


def test_two_clients_of_one_scheduler_do_not_meet(client, plain):
    """Keys of tasks are of one solve, whoever counts; and a client need not be the default one of its process."""
    p, expected = plain
    code = (
        "import numpy, sys; sys.path[:0] = sys.argv[2:]\n"
        "from distributed import Client\n"
        "from clusters import RANK, functions_of, problem\n"
        "import rcurc_gpu as rg\n"
        "p = problem(seed=9)\n"
        "with Client(sys.argv[1], set_as_default=False) as client:\n"
        "    found = rg.rcurc(functions_of(p.samples), RANK, client=client)\n"
        "    assert p.relative_error(found.cur) < 1e-8, p.relative_error(found.cur)\n"
        "print('right')\n"
    )
    mine = rg.rcurc(functions_of(p.samples), RANK, client=client, gather=False)
    here = Path(__file__).parents[1]
    command = [sys.executable, "-c", code, client.scheduler.address, str(here), str(here.parent)]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=200).stdout == "right\n"
    assert_same(mine, expected)
