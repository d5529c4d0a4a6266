"""Workers and schedulers that die, slow workers, shards that kill: a solve ends with the right result or an error."""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import dask
import numpy as np
import pytest
from clusters import RANK, CallLog, assert_same, functions_of, local_cluster, problem, wait_for, within
from distributed import Client, get_worker
from distributed.client import FutureCancelledError

import rcurc_gpu as rg
from rcurc_gpu import open_result, progress
from rcurc_gpu.shards import ShardedSamples
from rcurc_gpu.solve import cluster, supply
from rcurc_gpu.solve.store import PartFolder

SHARD_BYTES = 60_000


@pytest.fixture(scope="module")
def whole_client():
    # a LocalCluster gives workers up that are killed a second time 15 seconds after the first
    settings = {"distributed.scheduler.allowed-failures": 1, "distributed.deploy.lost-worker-timeout": "1h"}
    settings["distributed.comm.timeouts.connect"] = "10s"  # with one that is dying
    with dask.config.set(settings), local_cluster(n_workers=3) as client:
        yield client


@pytest.fixture
def client(whole_client):
    """With all its workers."""
    whole_client.wait_for_workers(3, timeout=60)
    return whole_client


@pytest.fixture(autouse=True)
def no_hanging():
    with within(240):  # workers may have to compile kernels
        yield


@pytest.fixture(scope="module")
def plain():
    """Without noise, and its result in one process."""
    p = problem()
    return p, solve(p.samples)


@pytest.fixture(scope="module")
def noisy():
    p = problem(noise=0.02)
    return p, solve(p.samples, accuracy=0.1)


def solve(samples, **options):
    """With plain code, for new workers would have to load compiled kernels."""
    return rg.rcurc(samples, RANK, kernels="xp", **options)


def cut(samples):
    return ShardedSamples.of(samples, SHARD_BYTES)


def pids(client):
    return client.run(os.getpid, on_error="ignore")


def kill(client, address, pid):
    """Kill a worker and wait until the scheduler knows; its nanny starts another one."""
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: address not in client.nthreads())


def kill_the_one_with_most(client):
    """Kill the worker that has most of the data."""
    held = {address: len(keys) for address, keys in client.has_what().items()}
    address = max(held, key=held.get)
    kill(client, address, pids(client)[address])


@pytest.fixture
def kill_during(monkeypatch):
    """Have something done when a share of a stage of the solve is done."""

    def at(stage, share, act):
        now = {"stage": "", "total": 0, "done": 0, "acted": 0}

        def begin(self, name, total=None):
            now.update(stage=name, total=total, done=0)

        def advance(self, count):
            now["done"] += count
            if now["stage"] == stage and not now["acted"] and now["done"] >= share * now["total"]:
                now["acted"] = 1
                act()

        monkeypatch.setattr(progress.Progress, "stage", begin)
        monkeypatch.setattr(progress.Progress, "advance", advance)
        return now

    return at


# ---------------------------------------------------------------- a worker dies


@pytest.mark.parametrize(
    ("kind", "stage", "share"),
    [
        ("samples", "columns and rows", 0.2),
        ("samples", "columns and rows, second", 1.0),
        ("in a directory", "columns and rows", 1.0),
        ("in a directory", "columns and rows, second", 0.2),
    ],
)
def test_a_solve_survives_the_death_of_a_worker(
    client, plain, kill_during, monkeypatch, caplog, tmp_path, kind, stage, share
):
    p, expected = plain
    monkeypatch.setattr(supply, "_LEAST_BYTES", SHARD_BYTES)
    samples = p.samples if kind == "samples" else cut(p.samples).save(tmp_path / "shards")
    state = kill_during(stage, share, lambda: kill_the_one_with_most(client))
    with caplog.at_level(logging.WARNING, "rcurc_gpu"):
        assert_same(solve(samples, client=client), expected)
    assert state["acted"]
    told = [record.message for record in caplog.records if record.name == "rcurc_gpu"]
    # what was sent from here is lost with the worker, and sent again; what is in files Dask does again unasked
    assert any("was lost with a worker and is worked on again" in text for text in told) == (kind == "samples")


@pytest.mark.parametrize(
    ("kind", "share"), [("in memory", 0.3), ("in memory", 1.0), ("in a directory", 0.3), ("in a directory", 1.0)]
)
def test_a_solve_with_noise_survives_it(client, noisy, kill_during, tmp_path, kind, share):
    """While all columns and rows are estimated, and at the end, before what it gave is added up."""
    p, expected = noisy
    samples = cut(p.samples) if kind == "in memory" else cut(p.samples).save(tmp_path / "shards")
    state = kill_during("columns and rows", share, lambda: kill_the_one_with_most(client))
    assert_same(solve(samples, client=client, accuracy=0.1), expected)
    assert state["acted"]


@pytest.mark.parametrize(("kind", "where"), [("in memory", "workers"), ("functions", "workers"), ("in memory", "files")])
def test_factors_on_workers_and_in_files_survive_it(client, plain, kill_during, tmp_path, kind, where):
    p, expected = plain
    samples = cut(p.samples) if kind == "in memory" else functions_of(p.samples)
    options = {"gather": False} if where == "workers" else {"output": tmp_path / "result"}
    state = kill_during("columns and rows, second", 0.5, lambda: kill_the_one_with_most(client))
    found = solve(samples, client=client, **options)
    assert state["acted"]
    assert_same(found, expected)
    if where == "files":
        np.testing.assert_array_equal(open_result(tmp_path / "result").left, found.cur.left)


def test_factors_that_are_lost_after_the_solve_are_made_again(client, plain):
    """As far as workers can make them."""
    p, expected = plain
    found = solve(functions_of(p.samples), client=client, gather=False)
    kill_the_one_with_most(client)
    assert_same(found, expected)


def test_factors_that_cannot_be_made_again_are_an_error(client, plain):
    p, _ = plain
    found = solve(cut(p.samples), client=client, gather=False)
    kill_the_one_with_most(client)
    with pytest.raises(FutureCancelledError, match="cancelled for reason"):
        found.cur.to_dense().compute()


def sleepy(side, start):
    time.sleep(0.05)


def test_ten_deaths_at_any_moment(client, plain, tmp_path):
    """Ten solves, in each of which a worker is killed; one call waits for it, so that no solve ends before."""
    p, expected = plain
    rng = np.random.default_rng(3)
    log = CallLog(tmp_path / "undisturbed")
    assert_same(solve(functions_of(p.samples, log.note), client=client), expected)
    n_calls = len(log.calls())
    for k, share in enumerate((np.arange(10) + rng.uniform(0, 1, 10)) / 10):
        client.wait_for_workers(3, timeout=60)
        victim = int(rng.choice(list(pids(client).values())))
        moment = Moment(tmp_path / str(k), after=int(share * n_calls))
        thread = threading.Thread(target=moment.use, args=(lambda pid=victim: os.kill(pid, signal.SIGKILL),))
        thread.start()
        assert_same(solve(functions_of(p.samples, moment), client=client), expected)
        thread.join()
        assert victim not in pids(client).values()


class Moment:
    """The call of a function after a number of others, which waits until something was done."""

    def __init__(self, folder, after):
        self.log, self.after, self.past = CallLog(folder), after, folder.with_suffix(".past")

    def __call__(self, side, start):
        time.sleep(0.02)
        self.log.note(side, start)
        if self.come():
            wait_for(self.past.exists)

    def come(self):
        return len(self.log.calls()) > self.after

    def use(self, act):
        wait_for(self.come)
        act()
        self.past.touch()


def test_many_deaths_in_one_solve(client, plain, tmp_path):
    """Every third call kills its worker, four times."""
    p, expected = plain
    log, deaths = CallLog(tmp_path / "calls"), CallLog(tmp_path / "deaths")

    def before(side, start):
        log.note(side, start)
        if len(deaths.calls()) < min(len(log.calls()) // 3, 4):
            deaths.note(side, start)
            os.kill(os.getpid(), signal.SIGKILL)

    assert_same(solve(functions_of(p.samples, before), client=client), expected)
    assert len(deaths.calls()) >= 4


# ---------------------------------------------------------------- a shard that kills


def test_a_shard_that_kills_its_worker_is_named(client, plain, tmp_path):
    log = CallLog(tmp_path / "calls")

    def before(side, start):
        if (side, start) == ("r", 300):
            if log.calls():  # after the survey
                os._exit(7)
            log.note(side, start)

    samples = functions_of(plain[0].samples, before, at_once=(100, 300))
    with pytest.raises(RuntimeError, match=r"shard 3 of the columns \(columns 300 to 399\) could not be worked on"):
        solve(samples, client=client)


def test_observations_that_kill_are_named(client, plain):
    """Of this process, so each time they are sent again."""
    s = cut(plain[0].samples)
    fatal = s.c_shards[2]
    object.__setattr__(fatal, "source", Fatal(fatal.source.block))
    with pytest.raises(RuntimeError, match=r"shard 2 of the rows \(rows .*\) could not be worked on: \d workers died"):
        solve(s, client=client)


class Fatal(cluster.InMemory):
    """Observations with which a worker runs out of memory."""

    def load(self):
        try:
            get_worker()
        except ValueError:  # here
            return self.block
        os._exit(7)


# ---------------------------------------------------------------- nobody left


def test_without_workers_a_solve_ends(plain, monkeypatch, kill_during):
    monkeypatch.setattr(cluster, "_NO_WORKER", 0.5)
    monkeypatch.setattr(cluster, "_LOOK", 0.1)
    with local_cluster(n_workers=1) as client:
        kill_during("columns and rows", 0.2, lambda: client.cluster.scale(0))
        text = "all workers of client are gone, and none came back in 0.5 seconds; with output=.*, the same call goes on"
        with pytest.raises(RuntimeError, match=text):
            solve(functions_of(plain[0].samples, sleepy), client=client)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def answers(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class OtherCluster:
    """A scheduler and workers in processes of their own, as on other machines."""

    def __init__(self, n_workers):
        port = free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        scheduler = ["dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--dashboard-address", ":0"]
        worker = ["dask_worker", self.address, "--no-nanny", "--nthreads", "1", "--no-dashboard"]
        self.scheduler = self._started(scheduler)
        wait_for(lambda: answers(port))
        self.workers = [self._started(worker) for _ in range(n_workers)]

    def _started(self, command):
        nothing = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([sys.executable, "-m", f"distributed.cli.{command[0]}", *command[1:]], **nothing)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


def test_a_solve_goes_on_with_another_scheduler(client, plain, kill_during, tmp_path):
    p, expected = plain
    cut(p.samples).save(tmp_path / "shards")
    samples = ShardedSamples.open(tmp_path / "shards")
    arguments = {"output": tmp_path / "result"}
    with (
        OtherCluster(2) as other,
        dask.config.set({"distributed.comm.timeouts.connect": "5s"}),
        Client(other.address) as short,
    ):
        kill_during("columns and rows, second", 0.3, other.scheduler.kill)
        text = (
            r"the connection to the Dask scheduler was lost .*; with output=\.\.\., the same call with a new client goes on"
        )
        with pytest.raises(ConnectionError, match=text):
            solve(samples, client=short, **arguments)
    with pytest.raises(ValueError, match=r"the solve was interrupted; the same call continues it"):
        open_result(tmp_path / "result")
    parts = {path: path.stat().st_mtime_ns for path in (tmp_path / "result/parts").iterdir() if path.suffix == ".npz"}
    n_shards = len(samples.r_shards) + len(samples.c_shards)
    assert sum("first" in path.name for path in parts) == n_shards
    assert any("second" in path.name for path in parts)
    after = {}
    forget = PartFolder.forget

    def look(store):
        after.update((path, path.stat().st_mtime_ns) for path in parts)
        forget(store)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartFolder, "forget", look)
        assert_same(solve(samples, client=client, **arguments), expected)
    assert after == parts


# ---------------------------------------------------------------- slow, or interrupted


def test_a_slow_worker_does_not_get_a_third_of_the_work(client, plain, tmp_path):
    """While one of three workers is at its first shard, the others do nearly all the rest: it waits for that."""
    p, expected = plain
    log = CallLog(tmp_path / "calls")
    slow = min(pids(client).values())
    n_shards, nearly_all = 40, 34

    def before(side, start):
        log.note(side, start)
        if os.getpid() == slow:
            step = (len(log.calls()) - 1) // n_shards  # the survey, then the first look
            if step < 2:
                wait_for(lambda: len(log.calls()) >= step * n_shards + nearly_all)

    samples = functions_of(p.samples, before, at_once=(35, 45))
    assert_same(solve(samples, client=client), expected)
    calls = log.calls()
    assert len(calls) >= 2 * n_shards
    assert any(pid == slow for _, _, pid in calls)


def test_an_interrupted_solve_leaves_nothing_behind(client, plain, tmp_path):
    """Calls after the first four wait until the solve was interrupted; then those that were begun come to an end."""
    p, expected = plain
    log, past = CallLog(tmp_path / "calls"), tmp_path / "past"

    def before(side, start):
        log.note(side, start)
        if len(log.calls()) > 4:
            wait_for(past.exists)

    def interrupt():
        wait_for(lambda: len(log.calls()) > 4)
        os.kill(os.getpid(), signal.SIGINT)  # wakes a thread that waits for a lock, which `_thread.interrupt_main` does not

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        solve(functions_of(p.samples, before, at_once=(20, 20)), client=client)
    thread.join()
    wait_for(lambda: sum(map(len, client.processing().values())) <= 3)  # the rest is cancelled
    past.touch()
    wait_for(lambda: not any(client.processing().values()))

    def is_over():
        done = len(log.calls())
        time.sleep(0.5)
        return len(log.calls()) == done

    wait_for(is_over)  # what was cancelled may still be in the hands of a worker
    assert len(log.calls()) <= 4 + 3 * 2  # of 80
    assert_same(solve(functions_of(p.samples), client=client), expected)


# ---------------------------------------------------------------- one directory, and others who write to it


def test_one_solve_at_a_time_uses_an_output(client, plain, tmp_path):
    p, _ = plain
    errors = []

    def look(state):
        if not errors:
            for other in (None, client):
                with pytest.raises(RuntimeError, match="is used by another solve; wait for its end, or choose another") as e:
                    solve(cut(p.samples), client=other, output=tmp_path / "result", callback=look)
                errors.append(e)

    found = solve(cut(p.samples), client=client, output=tmp_path / "result", callback=look)
    assert len(errors) == 2
    assert_same(found, solve(p.samples, callback=lambda state: None))


def of_another_core(path):
    """A part that looks like one of this solve, but belongs to another core."""
    with np.load(path) as file:
        arrays = dict(file)
    arrays["stamp"] = np.asarray(f"00000000{str(arrays['stamp'])[8:]}")
    np.savez(path, **{name: 2 * x if "coefficients" in name else x for name, x in arrays.items()})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (of_another_core, RuntimeError, "was replaced by another solve: one alone may use output at a time"),
        (lambda path: path.unlink(), FileNotFoundError, "a part is gone that was there: all workers must see output"),
        (lambda path: path.write_bytes(path.read_bytes()[:-2000]), ValueError, "cannot be read"),
        (lambda path: path.write_bytes(b""), ValueError, "cannot be read"),
    ],
    ids=["of another core", "deleted", "damaged", "empty"],
)
def test_parts_of_two_solves_do_not_meet(client, plain, kill_during, tmp_path, change, error, message):
    """What changes while the solve goes on is an error; what it finds when it begins is made again."""
    p, expected = plain
    path = tmp_path / "result/parts/r-000000-first.npz"
    state = kill_during("columns and rows", 1.0, lambda: change(path))
    with pytest.raises(error, match=message) as caught:
        solve(cut(p.samples), client=client, output=tmp_path / "result")
    assert state["acted"]
    assert "r-000000-first.npz" in str(caught.value)
    path.with_name("r-000001-second.npzk3x.part").touch()  # of a worker that died while it wrote
    assert_same(solve(cut(p.samples), client=client, output=tmp_path / "result"), expected)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("kind", ["in memory", "functions"])
def test_other_observations_are_another_solve(client, plain, tmp_path, kind):
    """Although the intersection, the number of observations and the largest of them are the same."""
    p, expected = plain
    s = p.samples
    R = s.R.copy()
    outside = np.setdiff1d(np.arange(s.shape[1]), s.cols)[5]
    R.data[R.indptr[outside]] *= 0.5
    changed = rg.CrossSamples.from_blocks(R, s.C, s.rows, s.cols)
    make = cut if kind == "in memory" else functions_of
    assert_same(solve(make(s), client=client, output=tmp_path / "result"), expected)
    with pytest.raises(ValueError, match="is of another solve: it differs in samples"):
        solve(make(changed), client=client, output=tmp_path / "result")
    assert_same(solve(make(s), client=client, output=tmp_path / "result"), expected)
