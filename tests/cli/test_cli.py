"""The command line: what it prints, what it writes, how it ends."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner, Result

from rcurc_gpu import CURMatrix, __version__, cli, rcurc, synthetic
from rcurc_gpu.cli import demo_report

DEMO = import_module("rcurc_gpu.cli.demo")
SMALL = ("--size", "300", "--rank", "2", "--rate", "0.5")


@pytest.fixture
def demo(tmp_path):
    """Run ``rcurc-gpu demo`` with some options; it saves to ``tmp_path / "out"``."""

    def run(*options: str) -> Result:
        arguments = ["demo", "--device", "cpu", "--output", str(tmp_path / "out"), *options]
        return CliRunner().invoke(cli.main, arguments, prog_name="rcurc-gpu")

    return run


def report_of(result: Result) -> dict:
    return json.loads(result.stdout)


# ---------------------------------------------------------------- a good run


def test_demo_reports_in_words_and_saves(demo, tmp_path):
    result = demo(*SMALL)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    for part in (
        "300 x 300",
        "rank 2",
        "20 %",
        "cpu",
        "made in",
        "Solved:",
        "True error:",
        "confirmed",
        "recall",
        "precision",
    ):
        assert part in result.stdout
    assert str(tmp_path / "out" / "result.npz") in result.stdout
    assert str(tmp_path / "out" / "demo.png") in result.stdout
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
    problem = synthetic((300, 300), 2, rate=0.5, seed=0)
    assert problem.relative_error(CURMatrix.load(tmp_path / "out" / "result.npz")) < 1e-6


def test_progress_goes_to_standard_error(demo, monkeypatch):
    monkeypatch.setattr("rcurc_gpu.cli.options.CommandOptions.visible", True)  # as on a terminal
    result = demo(*SMALL)
    assert "core, rank 2" in result.stderr
    assert "it/s" not in result.stdout


def test_json_is_one_object_and_nothing_else(demo, tmp_path):
    result = demo(*SMALL, "--json")
    assert result.exit_code == 0
    assert result.stderr == ""
    report = report_of(result)
    assert report["converged"] is True
    assert report["true_error"] < 1e-6
    assert report["version"] == __version__
    assert report["problem"]["shape"] == [300, 300]
    assert report["problem"]["chosen_rows"] == report["problem"]["chosen_cols"] == 90
    assert report["seconds"]["generating"] > 0
    assert report["seconds"]["solving"] > 0
    assert report["files"] == {
        "result": str(tmp_path / "out" / "result.npz"),
        "plot": str(tmp_path / "out" / "demo.png"),
        "plot_skipped": None,
    }


def test_the_seed_fixes_everything_but_the_times(demo):
    reports = [report_of(demo(*SMALL, "--seed", "5", "--json")) for _ in range(2)]
    for report in reports:
        del report["seconds"]
    assert reports[0] == reports[1]
    assert (
        report_of(demo(*SMALL, "--seed", "6", "--json"))["problem"]["observations"] != reports[0]["problem"]["observations"]
    )


def test_every_option_reaches_the_problem(demo):
    wanted = {"alpha": 0.1, "c": 5.0, "noise": 0.001, "rate": 0.6, "seed": 3}
    options = [text for name, value in wanted.items() for text in (f"--{name}", str(value))]
    report = report_of(demo("--size", "200", "--rank", "3", "--rows", "0.4", "--cols", "0.5", "--json", *options))
    assert wanted.items() <= report["problem"].items()
    assert (report["problem"]["chosen_rows"], report["problem"]["chosen_cols"]) == (80, 100)
    assert report["rank_used"] == report["problem"]["rank"] == 3
    assert 1e-5 < report["true_error"] < 1e-2  # the noise is there, and is not all that is left


def test_method_paper(demo):
    report = report_of(demo(*SMALL, "--method", "paper", "--alpha", "0.1", "--json"))
    assert report["method"] == "paper"
    assert report["true_error_of_determined"] < 1e-4


# ---------------------------------------------------------------- outliers


def test_outliers_are_compared_position_by_position():
    """Against a count over the dense matrix: global positions, each observation once."""
    problem = synthetic((60, 80), 1, alpha=0.15, n_rows=25, n_cols=30, rate=0.6, seed=2)
    result = rcurc(problem.samples, 1)
    s = problem.samples
    seen, flagged = np.zeros((60, 80), bool), np.zeros((60, 80), bool)
    for mark, (R, C) in ((seen, (s.R, s.C)), (flagged, result.outliers())):
        r, c = R.tocoo(), C.tocoo()
        mark[s.rows[r.row], r.col] = True
        mark[c.row, s.cols[c.col]] = True
    truth = problem.is_outlier(*np.indices((60, 80))) & seen
    found = demo_report.compare_outliers(problem, result)
    assert seen.sum() == s.n_obs < s.r_block.n_obs + s.c_block.n_obs  # some are seen twice
    assert found["corrupted"] == truth.sum()
    assert found["flagged"] == flagged.sum()
    assert found["found"] == (truth & flagged).sum()
    assert found["recall"] == found["found"] / found["corrupted"]
    assert found["precision"] == found["found"] / found["flagged"]


def test_small_outliers_count_as_missed_and_are_named(demo):
    """Outliers lost in the noise lower the recall; the report says how many and why."""
    options = (*SMALL, "--noise", "0.01", "--c", "0.5")
    o = report_of(demo(*options, "--json"))["outliers"]
    assert o["recall"] < 0.97
    assert o["missed_below_threshold"] > 0
    assert o["corrupted"] - o["found"] == sum(o[f"missed_{why}"] for why in ("below_threshold", "undetermined", "other"))
    assert f"missed: {o['missed_below_threshold']:,} off by less than the threshold" in demo(*options).stdout


def test_no_outliers(demo):
    report = report_of(demo(*SMALL, "--alpha", "0", "--json"))
    assert report["outliers"]["corrupted"] == 0
    assert report["outliers"]["recall"] is None
    assert "none of the observations is corrupted" in demo(*SMALL, "--alpha", "0").stdout


def test_percent_is_100_only_for_all():
    assert demo_report.percent(999_999, 1_000_000) == "99.999 %"
    assert demo_report.percent(7, 7) == "100 %"


# ---------------------------------------------------------------- not confirmed


def test_not_confirmed_is_exit_1_with_the_reason(demo):
    result = demo(*SMALL, "--alpha", "0.7")
    assert result.exit_code == 1
    assert "NOT confirmed. No rank-2 matrix explains the held-out entries" in result.stdout
    assert result.stderr == ""  # the reason is no Python warning
    result = demo(*SMALL, "--alpha", "0.7", "--json")
    assert result.exit_code == 1
    report = report_of(result)
    assert report["converged"] is False
    assert report["message"].startswith("No rank-2 matrix")
    assert report["cause"]


def test_undetermined_rows_have_an_error_and_are_told_in_words(demo):
    few = ("--size", "300", "--rank", "2", "--rate", "0.06")
    report = report_of(demo(*few, "--json"))
    assert report["undetermined_rows"] > 0
    assert report["true_error"] > report["true_error_of_determined"] > 0
    text = demo(*few).stdout
    assert f"without the {report['undetermined_rows']} rows and {report['undetermined_cols']} columns that could not" in text
    assert "NaN" not in text


def test_nothing_determined(demo):
    result = demo("--size", "10", "--rank", "1", "--rate", "0.1")
    assert result.exit_code == 1
    assert "NOT confirmed" in result.stdout
    assert "oo few observations" in result.stdout


# ---------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (["--size", "0"], "--size"),
        (["--size", "many"], "--size"),
        (["--rank", "0"], "--rank"),
        (["--rank", "100"], "--rank"),  # more than the 90 chosen rows: the library's complaint
        (["--rank", "301"], "--rank"),
        (["--alpha", "1.5"], "--alpha"),
        (["--c", "-1"], "--c"),
        (["--c", "inf"], "--c"),
        (["--noise", "nan"], "--noise"),
        (["--rows", "0"], "--rows"),
        (["--rows", "nan"], "--rows"),
        (["--cols", "0"], "--cols"),
        (["--rate", "0"], "--rate"),
        (["--rate", "0.00001"], "--rate"),  # nothing is seen
        (["--seed", "-1"], "--seed"),
        (["--method", "slow"], "--method"),
        (["--device", "tpu"], "--device"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_arguments_exit_2_and_name_the_option(demo, tmp_path, options, option):
    result = demo("--size", "300", *options)
    assert result.exit_code == 2
    error = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(error) == 1
    assert option in error[0]
    assert not (tmp_path / "out" / "result.npz").exists()


def test_output_that_is_a_file(demo, tmp_path):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        result = demo(*SMALL, "--output", str(path))
        assert result.exit_code == 2
        assert "--output" in result.stderr
    assert (tmp_path / "file").read_text() == "mine"


def test_output_that_cannot_be_written(demo, monkeypatch):
    def full(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(CURMatrix, "save", full)
    result = demo(*SMALL)
    assert result.exit_code == 2
    assert "--output" in result.stderr
    assert "No space left on device" in result.stderr


def test_too_large_for_the_memory(demo, monkeypatch):
    def too_large(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(DEMO, "synthetic", too_large)
    result = demo(*SMALL)
    assert result.exit_code == 2
    assert "--size" in result.stderr


def test_errors_that_are_not_about_arguments_are_not_dressed_up(demo, monkeypatch):
    def fails(*args, **kwargs):
        raise np.linalg.LinAlgError("SVD did not converge")

    monkeypatch.setattr(DEMO, "rcurc", fails)
    assert isinstance(demo(*SMALL).exception, np.linalg.LinAlgError)


# ---------------------------------------------------------------- devices


def test_cuda_without_cupy_says_what_to_install(demo, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    result = demo(*SMALL, "--device", "cuda")
    assert result.exit_code == 2
    assert "Error: --device cuda was asked for, but CuPy is not installed" in result.stderr
    assert "cuda12x" in result.stderr


def test_auto_is_the_cpu_and_says_so(demo, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    result = demo(*SMALL, "--device", "auto")
    assert result.exit_code == 0
    assert "cpu (--device cuda takes a GPU)" in result.stdout


def test_another_namespace_is_copied_to_and_waited_for(demo, monkeypatch):
    """What happens with CuPy, played by NumPy under another name."""
    waited = []
    stream = SimpleNamespace(synchronize=lambda: waited.append(True))
    fake = SimpleNamespace(asarray=np.array, cuda=SimpleNamespace(get_current_stream=lambda: stream))
    monkeypatch.setattr(DEMO, "namespace_for_device", lambda device: (fake, "cuda"))
    monkeypatch.setattr(DEMO, "device_for_file", lambda device, n_obs: "cuda")
    report = report_of(demo(*SMALL, "--device", "auto", "--json"))
    assert waited == [True]
    assert report["seconds"]["copying"] > 0
    assert report["true_error"] < 1e-6


# ---------------------------------------------------------------- no matplotlib, Ctrl-C


def test_without_matplotlib_the_plot_is_skipped(demo, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = demo(*SMALL)
    assert result.exit_code == 0
    assert "skipped" in result.stdout
    assert "rcurc-gpu[plot]" in result.stdout
    assert (tmp_path / "out" / "result.npz").exists()
    assert not (tmp_path / "out" / "demo.png").exists()
    files = report_of(demo(*SMALL, "--json"))["files"]
    assert files["plot"] is None
    assert "rcurc-gpu[plot]" in files["plot_skipped"]


def stop(*args, **kwargs):
    raise KeyboardInterrupt


def test_ctrl_c_while_solving(demo, tmp_path, monkeypatch):
    monkeypatch.setattr(DEMO, "rcurc", stop)
    result = demo(*SMALL, "--json")
    assert result.exit_code == 130
    assert result.stdout == ""
    assert "Stopped. Nothing was saved." in result.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_ctrl_c_while_drawing_says_what_was_saved(demo, tmp_path, monkeypatch):
    monkeypatch.setattr(DEMO, "demo_figure", stop)
    result = demo(*SMALL)
    assert result.exit_code == 130
    assert f"Saved before that: {tmp_path / 'out' / 'result.npz'}" in result.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["result.npz"]


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
def test_a_real_ctrl_c(tmp_path):
    command = [sys.executable, "-m", "rcurc_gpu", "demo", "--size", "4000", "--output", str(tmp_path / "out")]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(cli.__file__).parents[2],
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "out").exists():  # made before the work begins
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Stopped. Nothing was saved." in err
    assert "Traceback" not in err


# ---------------------------------------------------------------- the group, and imports


def test_version_and_help():
    runner = CliRunner()
    assert runner.invoke(cli.main, ["--version"]).output == f"rcurc-gpu, version {__version__}\n"
    text = runner.invoke(cli.main, ["demo", "--help"]).output
    assert "\n    rcurc-gpu demo\n" in text  # an example on a line of its own
    for name in ("size", "rank", "alpha", "c", "noise", "rows", "cols", "rate", "seed", "method", "device", "output"):
        assert f"--{name} " in text
    assert "[default: 3000" in " ".join(text.split())


def run_python(*arguments: str) -> subprocess.CompletedProcess:
    root = Path(cli.__file__).parents[2]
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=root, timeout=120, check=False)


def test_python_dash_m():
    process = run_python("-m", "rcurc_gpu", "--version")
    assert process.returncode == 0
    assert __version__ in process.stdout


def test_importing_the_library_imports_nothing_optional():
    code = "import sys, rcurc_gpu; print([m for m in {} if m in sys.modules])"
    optional = ["matplotlib", "click", "tqdm", "cupy", "numba", "dask"]
    assert run_python("-c", code.format(optional)).stdout.strip() == "[]"


def test_importing_the_command_line_does_not_import_matplotlib():
    code = (
        "import sys; from rcurc_gpu.cli import main; [main.get_command(None, c) for c in main.list_commands(None)]; "
        "print([m for m in ('matplotlib', 'tqdm', 'cupy') if m in sys.modules])"
    )
    assert run_python("-c", code).stdout.strip() == "[]"
