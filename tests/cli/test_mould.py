"""The commands are of one mould: an option of a name means the same everywhere, and reports fit the terminal."""

import os
import shutil
import subprocess
import sys

import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from rcurc_gpu.cli import main
from rcurc_gpu.cli.options import wrapped


def commands():
    """All commands by name, with those of groups."""
    context = click.Context(main)
    found = {}
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        inner = {f"{name} {k}": command.get_command(context, k) for k in getattr(command, "commands", {})}
        found |= inner or {name: command}
    return found


def options(name):
    """The option of a name of each command that has it."""
    found = {c: next((p for p in command.params if name in p.opts), None) for c, command in commands().items()}
    return {c: p for c, p in found.items() if p is not None}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("--rows", {"share", "share or count"}),
        ("--cols", {"share", "share or count"}),
        ("--rate", {"share"}),
        ("--memory", {"size"}),
        ("--device", {"device"}),
        ("--seed", {"integer range"}),
        ("--quiet", {"boolean"}),
        ("--json", {"boolean"}),
    ],
)
def test_an_option_of_a_name_takes_the_same_in_all_commands(name, kinds):
    found = options(name)
    assert len(found) >= 2
    assert {p.type.name for p in found.values()} <= kinds
    if kinds == {"boolean"}:
        assert len({p.help for p in found.values()}) == 1


def test_output_has_a_short_form_everywhere():
    found = options("--output")
    assert len(found) >= 8
    assert all("-o" in p.opts for p in found.values())


@pytest.mark.parametrize("name", ["--quiet", "--json"])
def test_every_command_can_be_quiet_and_speak_json(name):
    missing = set(commands()) - set(options(name))
    assert missing <= {"paper all"} if name == "--json" else not missing


@pytest.mark.parametrize("width", [60, 80, 120])
def test_help_is_as_wide_as_the_terminal(width):
    for name, command in commands().items():
        said = click.Context(command, info_name=name, terminal_width=width).get_help()
        before, _, after = said.partition("Options:")
        # examples are copied as they are, and a list of choices is one word
        prose = [line for line in before.split("\n") if not line.startswith("    ")] + after.split("\n")
        assert [line for line in prose if len(line) > width and "|" not in line] == [], name


def test_shares_may_be_percentages_and_sizes_have_units():
    assert CliRunner().invoke(main, ["demo", "--rows", "30 percent"]).exit_code == 2
    done = CliRunner().invoke(main, ["video", "none.mp4", "--memory", "2"])
    assert "must be 64MB or more, got 2 bytes" in done.stderr
    done = CliRunner().invoke(main, ["bench", "--memory", "much"])
    assert "'much' is not a size such as 64MB or 2GB" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe", "none.csv"],
        ["complete", "none.parquet", "-o", "x.npz"],
        ["complete", "none.npy", "-o", "x.npz"],
        ["ratings", "none.csv"],
        ["plot", "none.npz", "-o", "x.png"],
        ["sample", "none.npy", "-o", "x.npz"],
        ["shard", "none.csv", "-o", "shards"],
        ["video", "none.mp4"],
        ["describe", "none.xyz"],
    ],
)
def test_a_missing_file_is_no_such_file(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert f"no such file: '{arguments[1]}'" in done.stderr


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    """A wide table with labels, some entries missing and some wrong, and its truth."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((70, 2)) @ rng.standard_normal((2, 50))
    Y = np.where(rng.random(X.shape) < 0.05, 40.0, X)
    Y[rng.random(X.shape) < 0.2] = np.nan
    path = tmp_path_factory.mktemp("levels") / "levels.csv"
    frame = pd.DataFrame(Y, index=[f"site {k}" for k in range(70)], columns=[f"day {k}" for k in range(50)])
    frame.rename_axis("site").to_csv(path)
    return path, pd.DataFrame(X, index=frame.index, columns=frame.columns), frame


def test_a_wide_table_is_completed_with_its_labels(levels, tmp_path):
    path, truth, frame = levels
    wanted = tmp_path / "wanted.csv"
    wanted.write_text("site,column\nsite 3,day 7\nsite 69,day 0\n")
    given = ["complete", path, "-o", tmp_path / "r.npz", "--predict", wanted, "--outliers", tmp_path / "wrong.csv"]
    done = CliRunner().invoke(main, list(map(str, given)))
    assert done.exit_code == 0, done.output
    assert "a matrix in text with labels of rows ('site') and columns" in done.stdout
    found = pd.read_csv(tmp_path / "r-predictions.csv")
    assert list(found.columns) == ["site", "column", "value", "expected_error", "lower", "upper"]
    np.testing.assert_allclose(found["value"], [truth.loc["site 3", "day 7"], truth.loc["site 69", "day 0"]], atol=1e-6)
    wrong = pd.read_csv(tmp_path / "wrong.csv")
    assert list(wrong.columns) == ["site", "column", "observed", "recovered", "score"]
    assert len(wrong) == (frame == 40).to_numpy().sum()
    # replaced by the next run, without --force, though its columns are called as the user's
    assert CliRunner().invoke(main, list(map(str, given))).exit_code == 0


@pytest.mark.parametrize("command", [["describe"], ["complete", "-o", "r.npz"]])
def test_quiet_prints_nothing(command, levels, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, [*command, str(levels[0]), "--quiet"])
    assert (done.exit_code, done.output) == (0, "")


def test_reports_have_no_jargon(levels):
    text = CliRunner().invoke(main, ["describe", str(levels[0])]).stdout
    for word in ("Omega", " R ", " C ", "rows I", "columns J", "intersection", "cross of"):
        assert word not in text


def test_long_lines_are_wrapped_at_the_width_of_a_terminal(monkeypatch):
    text = "Verdict:    " + "confirmed " * 30 + "\n            indented " + "word " * 40 + "\n| a table " + "| cell " * 40
    assert wrapped(text) == text  # nobody sees it
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    lines = wrapped(text).split("\n")
    assert all(len(line) <= 60 for line in lines if not line.startswith("|"))
    assert lines[1].startswith(" " * 12 + "confirmed")
    assert lines[-1].count("| cell") == 40
    assert " ".join(wrapped(text).split()) == " ".join(text.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell):
    if shell == "bash" and shutil.which("bash") is None:  # click asks it for its version
        pytest.skip("there is no bash")
    code = "import sys; sys.argv[0] = 'rcurc-gpu'; from rcurc_gpu.cli import run; run()"
    asked = os.environ | {"_RCURC_GPU_COMPLETE": f"{shell}_source"}
    done = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=False)
    assert "rcurc-gpu" in done.stdout
    place = "comp" if shell == "fish" else "1"
    asked = os.environ | {"_RCURC_GPU_COMPLETE": f"{shell}_complete", "COMP_WORDS": "rcurc-gpu comp", "COMP_CWORD": place}
    done = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=False)
    assert "complete" in done.stdout
