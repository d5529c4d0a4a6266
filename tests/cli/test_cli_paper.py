"""``rcurc-gpu paper``: what it prints, what it writes, how it ends."""

import json
import sys
from importlib import import_module

import click
import pytest
from click.testing import CliRunner, Result

from rcurc_gpu import cli
from rcurc_gpu.paper import convergence, phase

PAPER = import_module("rcurc_gpu.cli.paper")
FIG2 = ("fig2", "--size", "300", "--runs", "1", "--ranks", "2", "--c", "10", "--device", "cpu")


@pytest.fixture
def paper(tmp_path):
    """Run ``rcurc-gpu paper`` with some arguments; it saves to ``tmp_path / "out"``."""

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli.main, ["paper", *arguments, "--output", str(tmp_path / "out")], prog_name="rcurc-gpu")

    return run


@pytest.fixture
def small_phase(monkeypatch):
    """A grid of two by two for ``phase``."""
    monkeypatch.setattr(phase, "observations_for", lambda size: (3, 20))
    monkeypatch.setattr(phase, "FULL", {"alphas": (0.0, 0.7), "size": 100, "trials": 1})
    return ("phase", "--full", "--rank", "1", "--device", "cpu")


def pictures_and_record(directory, name):
    assert (directory / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (directory / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert sorted(path.name for path in directory.iterdir()) == [f"{name}.json", f"{name}.pdf", f"{name}.png"]
    return json.loads((directory / f"{name}.json").read_text())


# ---------------------------------------------------------------- good runs


def test_fig1_writes_its_files_and_says_so(paper, tmp_path):
    result = paper("fig1", "--size", "50")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    assert "CUR sampling" in result.stdout
    record = pictures_and_record(tmp_path / "out", "fig1")
    assert len(record["runs"]) == len(record["summary"]["panels"]) == 4
    for kind in ("json", "png", "pdf"):
        assert str(tmp_path / "out" / f"fig1.{kind}") in result.stdout


def test_fig2_reports_slopes_and_a_second_call_only_draws(paper, tmp_path, monkeypatch):
    result = paper(*FIG2)
    assert result.exit_code == 0, result.output
    assert "Linear convergence of e_k" in result.stdout
    assert "for every curve" in result.stdout
    record = pictures_and_record(tmp_path / "out", "fig2")
    assert [(run["rank"], run["c"]) for run in record["runs"]] == [(2, 10.0), (5, 10.0)]
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    monkeypatch.setattr(convergence, "_measure", None)  # would fail if it were called
    again = paper(*FIG2)
    assert again.exit_code == 0, again.output
    assert "complete, only drawn again" in again.stdout
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before

    report = json.loads(paper(*FIG2, "--json").stdout)
    assert report["summary"]["linear"] is True
    assert all(curve["e"]["slope"] < 0 for curve in report["summary"]["curves"])
    assert not any("series" in curve for curve in report["summary"]["curves"])  # these are in the file


def test_phase_counts_and_its_json_is_one_object(paper, tmp_path, small_phase):
    result = paper(*small_phase, "--json")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    report = json.loads(result.stdout)
    assert report["experiment"] == "phase"
    assert report["summary"]["problems"] == 4
    assert report["summary"]["fast"]["success"] == [[0, 1], [0, 0]]
    assert report["summary"]["fast"]["wrongly_confirmed_in_all"] == 0
    assert report["files"]["png"] == str(tmp_path / "out" / "phase.png")
    pictures_and_record(tmp_path / "out", "phase")


def test_progress_goes_to_standard_error(paper, small_phase, monkeypatch):
    monkeypatch.setattr("rcurc_gpu.cli.options.CommandOptions.visible", True)  # as on a terminal
    result = paper(*small_phase)
    assert "phase: 100%" in result.stderr
    assert "100%" not in result.stdout


# ---------------------------------------------------------------- what they find decides the exit status


def test_a_curve_that_is_not_linear_is_exit_1(paper, monkeypatch):
    def stuck(settings, task):
        e = [1.0] + 30 * [1e-3]
        end = {"iterations": 9, "seconds": 1.0, "true_error": 1e-10, "converged": True}
        names = {"seed": 0, "kernels": "xp", "device": "cpu", "converged": False, "fast": end}
        return {"e": e, "true_error": e, "seconds": list(range(1, 32)), **names}

    monkeypatch.setattr(convergence, "_measure", stuck)
    result = paper(*FIG2)
    assert result.exit_code == 1
    assert "NOT for every curve" in result.stdout


def test_a_wrong_confirmation_is_exit_1(paper, small_phase, monkeypatch):
    def lie(settings, task):
        return {"seed": 0, **{method: {"error": 0.5, "converged": True, "cause": ""} for method in phase.METHODS}}

    monkeypatch.setattr(phase, "_measure", lie)
    result = paper(*small_phase)
    assert result.exit_code == 1
    assert "wrongly 4" in result.stdout


# ---------------------------------------------------------------- interrupted, taken up, replaced


def test_ctrl_c_keeps_what_is_done_and_the_next_call_goes_on(paper, tmp_path, small_phase, monkeypatch):
    measure, done = phase._measure, []

    def interrupted(settings, task):
        done.append(task)
        if len(done) == 3:
            raise KeyboardInterrupt
        return measure(settings, task)

    monkeypatch.setattr(phase, "_measure", interrupted)
    result = paper(*small_phase)
    assert result.exit_code == 130
    assert "It has 2 of 4 problems; the same command resumes from there" in result.stderr
    result = paper(*small_phase)
    assert result.exit_code == 0, result.output
    assert "2 of 4 problems are there already" in result.stdout
    assert len(done) == 5  # the third one twice
    resumed = pictures_and_record(tmp_path / "out", "phase")
    assert paper(*small_phase, "--force").exit_code == 0
    assert pictures_and_record(tmp_path / "out", "phase") == resumed


def test_ctrl_c_before_anything_is_there(paper, small_phase, monkeypatch):
    def interrupted(settings, task):
        raise KeyboardInterrupt

    monkeypatch.setattr(phase, "_measure", interrupted)
    result = paper(*small_phase)
    assert result.exit_code == 130
    assert "Nothing was saved" in result.stderr


def test_a_file_of_other_settings_is_not_replaced_unless_asked(paper, tmp_path):
    assert paper("fig1", "--size", "50").exit_code == 0
    before = (tmp_path / "out" / "fig1.json").read_bytes()
    result = paper("fig1", "--size", "40")
    assert result.exit_code == 2
    assert "other settings (size 50, not 40)" in result.stderr
    assert "--force" in result.stderr
    assert (tmp_path / "out" / "fig1.json").read_bytes() == before
    assert paper("fig1", "--size", "40", "--force").exit_code == 0


def test_a_file_that_is_no_record_is_not_replaced_unless_asked(paper, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "fig1.json").write_text("mine")
    result = paper("fig1")
    assert result.exit_code == 2
    assert "is not a record" in result.stderr
    assert (tmp_path / "out" / "fig1.json").read_text() == "mine"


def test_without_matplotlib_the_numbers_are_kept(paper, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = paper("fig1", "--size", "50")
    assert result.exit_code == 0, result.output
    assert "pip install 'rcurc-gpu[plot]'" in result.stdout
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["fig1.json"]


# ---------------------------------------------------------------- bad options


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["fig1", "--size", "3"], "--size"),
        (["fig2", "--runs", "0"], "--runs"),
        (["fig2", "--ranks", "5,x"], "--ranks"),
        (["fig2", "--ranks", "5,5"], "--ranks"),
        (["fig2", "--ranks", ""], "--ranks"),
        (["fig2", "--c", "-1"], "--c"),
        (["fig2", "--c", "nan"], "--c"),
        (["fig2", "--size", "8", "--ranks", "9"], "--ranks"),
        (["fig2", "--device", "tpu"], "--device"),
        (["phase", "--success", "0"], "--success"),
        (["phase", "--trials", "0"], "--trials"),
        (["phase", "--rank", "500"], "--rank"),
        (["fig2", "--seed", "-1"], "--seed"),
    ],
)
def test_bad_options_are_one_line_that_names_them(paper, arguments, option):
    result = paper(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert option in error


def test_an_output_that_is_a_file(tmp_path):
    (tmp_path / "out").write_text("")
    result = CliRunner().invoke(cli.main, ["paper", "fig1", "--output", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "--output" in result.stderr


# ---------------------------------------------------------------- all


@pytest.fixture
def group(monkeypatch):
    """The group with two commands in the place of its own; what they were called with."""
    calls = []

    @click.command()
    @click.option("--output")
    @click.option("--seed", type=int)
    @click.option("--full", is_flag=True)
    def first(**values):
        calls.append(("first", values))
        raise SystemExit(1)

    @click.command()
    @click.option("--output")
    @click.argument("video", required=False)
    def second(**values):
        calls.append(("second", values))
        if values["video"] is None and "missing" in str(values["output"]):
            raise click.UsageError("no video")

    monkeypatch.setattr(PAPER.paper, "commands", {"first": first, "all": PAPER.everything, "second": second})
    return calls


def test_all_runs_every_command_with_the_options_it_knows(paper, group, tmp_path):
    result = paper("all", "--full", "--seed", "7")
    out = str(tmp_path / "out")
    assert group == [("first", {"output": out, "seed": 7, "full": True}), ("second", {"output": out, "video": None})]
    assert result.exit_code == 1  # the worst of theirs
    assert "--- rcurc-gpu paper first" in result.stdout


def test_all_goes_on_after_a_command_that_cannot_run(group):
    result = CliRunner().invoke(cli.main, ["paper", "all", "--output", "missing"])
    assert [name for name, _ in group] == ["first", "second"]
    assert result.exit_code == 2
    assert "no video" in result.stderr


def test_all_ends_with_ctrl_c(group, monkeypatch):
    @click.command()
    def stopped():
        raise SystemExit(130)

    monkeypatch.setitem(PAPER.paper.commands, "first", stopped)
    assert CliRunner().invoke(cli.main, ["paper", "all"]).exit_code == 130
    assert group == []


def test_every_command_has_help_with_an_example():
    for name in PAPER.paper.commands:
        result = CliRunner().invoke(cli.main, ["paper", name, "--help"])
        assert result.exit_code == 0
        assert f"rcurc-gpu paper {name}" in result.stdout
