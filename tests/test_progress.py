"""Progress bars, the log, and a word while kernels are compiled."""

import io
import logging
import os
import subprocess
import sys

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.progress import COMPILING, Progress, show_compiling

PROBLEM = rg.synthetic((200, 200), 2, 0.1, n_rows=80, n_cols=80, rate=0.6, seed=0)
Y = PROBLEM.W @ PROBLEM.V.T
Y[np.random.default_rng(0).random(Y.shape) < 0.1] += 10.0
SOLVERS = {
    "rcurc": (lambda **o: rg.rcurc(PROBLEM.samples, "auto", **o), "core, rank 2"),
    "paper": (lambda **o: rg.rcurc(PROBLEM.samples, 2, method="paper", **o), "Algorithm 1"),
    "icurc": (lambda **o: rg.icurc(rg.ccs_sample(PROBLEM.W @ PROBLEM.V.T, 80, 80, 0.6, 0.6, 0), 2, **o), "core, rank 2"),
    "robust_pca": (lambda **o: rg.robust_pca(Y, 2, **o), "core, rank 2"),
    "ircur": (lambda **o: rg.ircur(Y, 2, **o), "IRCUR, rank 2"),
}
ALL = pytest.mark.parametrize(("solve", "stage"), SOLVERS.values(), ids=SOLVERS)


@ALL
def test_bars_name_the_stage_and_show_error_and_outliers(solve, stage, capsys):
    solve(progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = [line for line in shown.err.replace("\r", "\n").splitlines() if line.startswith(stage)]
    assert any("e=" in line and "outliers=" in line for line in lines)


@ALL
def test_without_progress_nothing_is_written(solve, stage, capfd):
    solve()
    assert capfd.readouterr() == ("", "")


@ALL
def test_the_log_has_stages_ranks_and_the_result_and_iterations_for_debugging(solve, stage, caplog):
    with caplog.at_level(logging.DEBUG, logger="rcurc_gpu"):
        result = solve()
    told = {level: [r.message for r in caplog.records if r.levelno == level] for level in (logging.INFO, logging.DEBUG)}
    assert stage in told[logging.INFO]
    assert any(line.startswith("rank 2: settled after") for line in told[logging.INFO])
    assert told[logging.INFO][-1].startswith("rank 2, ")
    assert told[logging.INFO][-1].endswith(f"confirmed: {result.message}")
    assert any(line.startswith("iteration 5: e = ") for line in told[logging.DEBUG])
    assert not any(line.startswith("iteration 6:") for line in told[logging.DEBUG])  # not every one of them


def test_the_rank_that_is_chosen_is_in_the_log(caplog):
    with caplog.at_level(logging.INFO, logger="rcurc_gpu"):
        rg.rcurc(PROBLEM.samples, "auto")
    assert "rank 2, without noise, by a first look" in caplog.messages


def test_a_bar_says_that_kernels_are_being_compiled(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with Progress(True) as show:
        show_compiling(True)  # before the first stage
        show_compiling(False)
        show.stage("core, rank 5")
        show_compiling(True)
        show_compiling(False)
        show.advance(1)
    show_compiling(True)  # nobody is there
    shown = screen.getvalue().replace("\r", "\n").splitlines()
    assert any(line.startswith(COMPILING) for line in shown)
    assert any(line.startswith(f"core, rank 5: {COMPILING}") for line in shown)
    assert shown[-1].startswith("core, rank 5: 1it")


_COMPILE = """
import logging, sys
import numpy as np
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
from rcurc_gpu.progress import Progress
with Progress(True) as show:
    show.stage("first")
    for dtype in (np.float64, np.float32):
        from rcurc_gpu.backends.numba import calls as cpu
        from rcurc_gpu.backends.blocks import Block
        block = Block(np.array([0, 2]), np.array([0, 1], dtype=np.int32), np.ones(2, dtype=dtype), 2)
        cpu.held_out(block, np.arange(1), np.arange(2), 0, 0.5)
"""


def test_compiling_is_announced_once_before_it_begins_and_not_when_kernels_were_kept(tmp_path):

    def run():
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-c", _COMPILE], env=environment, capture_output=True, text=True, timeout=300, check=True
        )

    first, second = run(), run()
    assert first.stdout.splitlines() == ["first", "compiling kernels for the CPU, about ten seconds; kept for later"]
    assert f"first: {COMPILING}" in first.stderr
    assert second.stdout.splitlines() == ["first"]
    assert COMPILING not in second.stderr


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_bars_and_callbacks_do_not_change_the_result(noise, capsys):
    problem = rg.synthetic((300, 280), 3, 0.2, 10, noise, n_rows=110, n_cols=100, rate=0.4, seed=1)
    seen = []
    options = {}, {"progress": True}, {"callback": seen.append}
    results = [rg.rcurc(problem.samples, "auto", accuracy=0.1, **option) for option in options]
    for other in results[1:]:
        np.testing.assert_array_equal(other.cur.left, results[0].cur.left)
        assert other.n_iter == results[0].n_iter
    assert len(seen) >= results[0].n_iter
