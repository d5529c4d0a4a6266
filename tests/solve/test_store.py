"""A solve that is killed and called again: the same factors, nothing lost, no file spoilt."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu import files
from rcurc_gpu.errors import InUseError
from rcurc_gpu.solve import supply, work
from rcurc_gpu.solve.store import Checkpoint


@pytest.fixture
def small_parts(monkeypatch):
    """Parts so small that a little problem has several."""
    monkeypatch.setattr(supply, "_PART", 3000)


def problem(noise=0.0, seed=0):
    return rg.synthetic((600, 500), 3, 0.2, 10, noise, n_rows=150, n_cols=130, rate=0.3, seed=seed)


def same(one, other):
    for name in ("left", "right"):
        np.testing.assert_array_equal(getattr(one.cur, name), getattr(other.cur, name))
    assert one.message == other.message
    assert one.n_iter == other.n_iter


@pytest.mark.parametrize(
    ("noise", "options"),
    [(0.0, {"rank": "auto"}), (0.02, {"rank": 3}), (0.02, {"rank": 3, "kernels": "xp"})],
)
def test_every_state_of_the_file_leads_to_the_same_result(tmp_path, monkeypatch, small_parts, noise, options):
    """The file as it is after each write is what a process killed then leaves."""
    p = problem(noise)
    path = tmp_path / "solve.checkpoint"
    states = []
    write = files.write_npz

    def remember(*arguments):
        write(*arguments)
        states.append(path.read_bytes())

    monkeypatch.setattr(files, "write_npz", remember)
    monkeypatch.setattr(Checkpoint, "due", True)  # after every step, and every fifth iteration
    settings = options | {"accuracy": 0.1}
    undisturbed = rg.rcurc(p.samples, **settings, checkpoint=path)
    assert p.relative_error(undisturbed.cur) <= (1e-8 if noise == 0 else 0.05)
    found = list(states)
    assert len(found) > 15
    for k in np.linspace(0, len(found) - 1, 6).astype(int):
        path.write_bytes(found[k])
        same(rg.rcurc(p.samples, **settings, checkpoint=path), undisturbed)


def test_without_a_checkpoint_the_result_is_the_same(tmp_path, small_parts):
    p = problem(0.02)
    with_one = rg.rcurc(p.samples, 3, accuracy=0.1, checkpoint=tmp_path / "c")
    without = rg.rcurc(p.samples, 3, accuracy=0.1)
    np.testing.assert_allclose(with_one.cur.to_dense(), without.cur.to_dense(), rtol=1e-10, atol=1e-10)


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch, small_parts):
    p = problem()
    first = rg.rcurc(p.samples, 3, checkpoint=tmp_path / "c")
    again = []
    one_pass = work.run_pass
    monkeypatch.setattr(
        work, "run_pass", lambda task, units, *rest: again.append(len(units)) or one_pass(task, units, *rest)
    )
    monkeypatch.setattr("rcurc_gpu.core.iteration.iterate_core", None)
    same(rg.rcurc(p.samples, 3, checkpoint=tmp_path / "c"), first)
    assert max(again, default=0) < 30


def test_ctrl_c_keeps_what_was_done(tmp_path, small_parts):
    p = problem()
    path = tmp_path / "c"

    def stop(state):
        if state.iteration == 23:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rg.rcurc(p.samples, 3, checkpoint=path, checkpoint_every=0, callback=stop)
    seen = []
    resumed = rg.rcurc(p.samples, 3, checkpoint=path, callback=lambda state: seen.append(state.iteration))
    assert seen[0] == 21  # the last group of five that was whole
    undisturbed = rg.rcurc(p.samples, 3, callback=lambda state: None)
    same(resumed, undisturbed)
    assert [state.iteration for state in resumed.history] == list(range(1, resumed.n_iter + 1))
    assert np.all(np.diff([state.seconds for state in resumed.history]) >= 0)


@pytest.mark.parametrize("place", ["checkpoint", "output"])
@pytest.mark.parametrize("call", ["rcurc", "robust_pca"])
def test_any_seed_goes_on_with_the_one_that_was_taken(tmp_path, call, place):
    p = problem()
    solve = {"rcurc": rg.rcurc, "robust_pca": rg.robust_pca}[call]
    what = p.samples if call == "rcurc" else p.entries(*np.indices((600, 500)).reshape(2, -1)).reshape(600, 500)
    options = {"seed": None, place: tmp_path / "c", "checkpoint_every": 0}

    def stop(state):
        if state.iteration == 23:
            raise KeyboardInterrupt

    for _ in range(2):  # also in a place where nothing is yet
        with pytest.raises(KeyboardInterrupt):
            solve(what, 3, callback=stop, **options)
    seen = []
    solve(what, 3, callback=lambda state: seen.append(state.iteration), **options)
    assert seen[0] == 21


def test_killed_after_the_last_iteration_that_was_granted(tmp_path, monkeypatch):
    """Between the iteration and the outcome of the core nothing is kept that leaves nothing to do."""
    p = problem()
    path = tmp_path / "c"
    states = []
    write = files.write_npz
    monkeypatch.setattr(files, "write_npz", lambda *a: write(*a) or states.append(path.read_bytes()))
    monkeypatch.setattr(Checkpoint, "due", True)
    options = {"max_iter": 10, "gamma": 0.8, "undetermined": "keep", "checkpoint": path}
    with pytest.warns(rg.ConvergenceWarning):
        undisturbed = rg.rcurc(p.samples, 3, **options)
    for state in list(states):
        path.write_bytes(state)
        with pytest.warns(rg.ConvergenceWarning):
            same(rg.rcurc(p.samples, 3, **options), undisturbed)


SCRIPT = """
import os, random, signal, sys, time
import numpy as np
import rcurc_gpu as rg
from rcurc_gpu.solve import supply
supply._PART = 3000
p = rg.synthetic((900, 800), 4, 0.2, 10, 0.02, n_rows=200, n_cols=200, rate=0.3, seed=5)
path, out, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])

def solve(where):
    slow = lambda state: time.sleep(0.002)
    return rg.rcurc(p.samples, 4, accuracy=0.1, checkpoint=where, checkpoint_every=0, callback=slow)

def child(where, to):
    pid = os.fork()
    if pid == 0:
        result = solve(where)
        np.savez(to, left=result.cur.left, right=result.cur.right)
        os._exit(0)
    return pid

os.waitpid(child(out + ".first", out + "-first.npz"), 0)  # compiles, if nothing is kept
begun = time.perf_counter()
os.waitpid(child(out + ".undisturbed", out + "-undisturbed.npz"), 0)
took = time.perf_counter() - begun
rng = random.Random(seed)
killed = finished = sizes = 0
while killed < 20:
    pid = child(path, out + "-killed.npz")
    time.sleep(rng.uniform(0.0, 0.5 * took))
    os.kill(pid, signal.SIGKILL)
    if os.waitpid(pid, 0)[1] == signal.SIGKILL:
        killed += 1
    else:
        finished += 1
        os.remove(path)  # from the beginning, to be killed again
os.waitpid(child(path, out + "-killed.npz"), 0)
print(killed, finished)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, to be quick")
def test_killed_twenty_times_at_random_moments(tmp_path):
    """SIGKILL, in processes that start from one that has everything imported."""
    root = Path(rg.__file__).parents[1]
    arguments = [str(tmp_path / "c"), str(tmp_path / "out"), "1"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], cwd=root, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "20"
    killed, undisturbed = (np.load(tmp_path / f"out-{name}.npz") for name in ("killed", "undisturbed"))
    for name in ("left", "right"):
        np.testing.assert_array_equal(killed[name], undisturbed[name])


@pytest.mark.parametrize("change", ["rank", "seed", "gamma", "samples", "kernels"])
def test_the_file_of_another_solve_is_refused_and_kept(tmp_path, change):
    p = problem()
    path = tmp_path / "c"
    rg.rcurc(p.samples, 3, checkpoint=path)
    before = path.read_bytes()
    other = {"rank": {"rank": 2}, "seed": {"seed": 1}, "gamma": {"gamma": 0.9}, "kernels": {"kernels": "xp"}}.get(change, {})
    samples = problem(seed=1).samples if change == "samples" else p.samples
    with pytest.raises(ValueError, match=rf"is of another solve: it differs in .*{change}.*; choose another path"):
        rg.rcurc(samples, **({"rank": 3} | other), checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", ["truncated", "foreign", "other kind", "empty"])
def test_a_damaged_file_is_refused_and_kept(tmp_path, kind):
    p = problem()
    path = tmp_path / "c"
    rg.rcurc(p.samples, 3, checkpoint=path)
    whole = path.read_bytes()
    p.samples.save(tmp_path / "samples.npz")
    contents = {
        "truncated": whole[: len(whole) // 2],
        "foreign": b"my diary",
        "other kind": (tmp_path / "samples.npz").read_bytes(),
        "empty": b"",
    }
    path.write_bytes(contents[kind])
    with pytest.raises(ValueError, match="is not a checkpoint file"):
        rg.rcurc(p.samples, 3, checkpoint=path)
    assert path.read_bytes() == contents[kind]


def test_other_bad_arguments(tmp_path):
    p = problem()
    with pytest.raises(FileNotFoundError, match="checkpoint must lie in a directory that exists"):
        rg.rcurc(p.samples, 3, checkpoint=tmp_path / "nowhere" / "c")
    with pytest.raises(ValueError, match="checkpoint is for method='fast'"):
        rg.rcurc(p.samples, 3, method="paper", checkpoint=tmp_path / "c")
    with pytest.raises(ValueError, match="checkpoint_every must be in"):
        rg.rcurc(p.samples, 3, checkpoint=tmp_path / "c", checkpoint_every=-1)
    with pytest.raises(IsADirectoryError):
        rg.rcurc(p.samples, 3, checkpoint=tmp_path)


def test_it_works_elsewhere(elsewhere, tmp_path, small_parts):
    p = rg.synthetic((120, 100), 2, 0.1, 10, n_rows=60, n_cols=60, rate=0.7, seed=0)
    cupy = "cupy" in elsewhere.namespace.__name__
    samples = p.samples.to_namespace(elsewhere.namespace, **({} if cupy else {"device": elsewhere.device}))
    results = [rg.rcurc(samples, 2, checkpoint=tmp_path / "c", checkpoint_every=0) for _ in range(2)]
    one, other = (elsewhere.numpy(result.cur.left) for result in results)
    np.testing.assert_array_equal(one, other)


def test_resumed_in_the_last_pass_all_is_where_the_samples_are(elsewhere, tmp_path, small_parts, monkeypatch):
    p = rg.synthetic((400, 380), 2, 0.1, 10, n_rows=60, n_cols=60, rate=0.7, seed=0)
    cupy = "cupy" in elsewhere.namespace.__name__
    samples = p.samples.to_namespace(elsewhere.namespace, **({} if cupy else {"device": elsewhere.device}))
    keep, kept = Checkpoint.keep, []

    def stop(self, step, shard, *rest):
        kept.append((step, shard.side))
        if kept[-1] == ("second", "c"):
            raise KeyboardInterrupt
        return keep(self, step, shard, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "keep", stop)
        with pytest.raises(KeyboardInterrupt):
            rg.rcurc(samples, 2, checkpoint=tmp_path / "c")
    assert ("second", "r") in kept
    resumed = rg.rcurc(samples, 2, checkpoint=tmp_path / "c")
    for factor in (resumed.cur.left, resumed.cur.right):
        elsewhere.numpy(factor)  # which looks where it is
    assert p.relative_error(resumed.cur) < 1e-8


def test_an_output_that_cannot_be_read_is_not_locked_for_ever(tmp_path, monkeypatch):
    samples = problem().samples

    def refuse(*_):
        raise PermissionError(13, "no")

    with monkeypatch.context() as patch:
        patch.setattr("rcurc_gpu.solve.output.Checkpoint", refuse)
        with pytest.raises(PermissionError):
            rg.rcurc(samples, 3, output=tmp_path / "out")
    assert rg.rcurc(samples, 3, output=tmp_path / "out").converged


# ---------------------------------------------------------------- one run at a time


def test_a_second_run_on_a_checkpoint_is_told_and_the_first_is_not_disturbed(tmp_path):
    samples, path, told = problem().samples, tmp_path / "c.npz", []

    def second(_):
        if not told:
            with pytest.raises(InUseError, match=r"c.npz' is used by another solve; wait for its end") as error:
                rg.rcurc(samples, 3, checkpoint=path)
            told.append(error.value)

    assert rg.rcurc(samples, 3, checkpoint=path, callback=second).converged
    assert told
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]  # the lock is gone
    (tmp_path / "c.npz.lock").write_text("")  # of a run that was killed
    path.unlink()
    assert rg.rcurc(samples, 3, checkpoint=path).converged


def test_a_refused_checkpoint_is_not_locked_for_ever(tmp_path):
    (tmp_path / "c.npz").write_bytes(b"mine")
    for _ in range(2):
        with pytest.raises(ValueError, match="is not a checkpoint file"):
            rg.rcurc(problem().samples, 3, checkpoint=tmp_path / "c.npz")
    assert [p.name for p in tmp_path.iterdir()] == ["c.npz"]


@pytest.mark.parametrize("answer", [True, np.True_, np.array(True)])
def test_a_callback_ends_the_solve(answer):
    seen = []
    with pytest.warns(rg.ConvergenceWarning):
        rg.rcurc(problem().samples, 3, callback=lambda state: seen.append(state) or answer)
    assert len(seen) == 1


@pytest.mark.parametrize("answer", [None, 1, "True", False, np.False_, np.array(False), np.array(1), np.array([True])])
def test_a_callback_that_returns_anything_else_does_not_end_the_solve(answer):
    seen = []
    assert rg.rcurc(problem().samples, 3, callback=lambda state: seen.append(state) or answer).converged
    assert len(seen) > 1
