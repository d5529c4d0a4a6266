"""The comparisons in bench/ that others read: the report of saved timings, and the run against other packages."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

sys.path.append(str(Path(__file__).parents[1]))  # where bench is, if pytest was started elsewhere

from bench import report
from bench.backends import BASELINE
from bench.peers.methods import METHODS, Method
from bench.peers.partial_svd import Shrinkage
from bench.peers.problems import Problem, matrices
from bench.peers.run import Entry, compare
from bench.peers.tables import table


def saved(path, seconds):
    """A file as pytest-benchmark writes it, from {(backend, size): median seconds}."""
    benchmarks = [
        {
            "group": f"solve d={size} r=5",
            "name": backend,
            "stats": {"median": median},
            "extra_info": {"task": "solve", "backend": backend, "size": size, "rank": 5, "error": 2e-9},
        }
        for (backend, size), median in seconds.items()
    ]
    other = {"group": None, "name": "test_of_someone_else", "stats": {"median": 1.0}, "extra_info": {}}
    path.write_text(json.dumps({"benchmarks": [*benchmarks, other]}))
    return path


def run_report(*arguments):
    return CliRunner().invoke(report.main, [str(a) for a in arguments])


def test_the_report_has_ratios_to_the_baseline_and_the_slope_of_every_backend(tmp_path):
    quick = {("numba", 100): 0.5, ("numba", 1000): 5.0, ("numba", 10000): 50.0}
    slow = {(BASELINE, 100): 2.0, (BASELINE, 1000): 200.0}
    path = saved(tmp_path / "saved.json", quick | slow)
    outcome = run_report(path, "--output", tmp_path / "made")
    assert outcome.exit_code == 0, outcome.output
    text = (tmp_path / "made" / "report.md").read_text()
    assert f"| problem | numba | {BASELINE} |" in text
    assert "| solve d=100 r=5 | 0.5 (4 x) | 2 |" in text
    assert "| solve d=1000 r=5 | 5 (40 x) | 200 |" in text
    assert "| solve d=10000 r=5 | 50 | - |" in text
    assert "| solve d=100 r=5 | 2.0e-09 | 2.0e-09 |" in text
    assert "rank 5, numba: seconds grow as size^1.00" in outcome.output
    assert f"rank 5, {BASELINE}: seconds grow as size^2.00" in outcome.output
    assert (tmp_path / "made" / "report.png").read_bytes().startswith(b"\x89PNG")


def test_the_plot_of_a_report_has_a_line_for_every_backend_with_its_slope(tmp_path):
    timings = report.read(saved(tmp_path / "saved.json", {("a", 10): 1.0, ("a", 20): 8.0, ("b", 10): 3.0, ("b", 20): 6.0}))
    (ax,) = report.draw(timings).axes
    drawn = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in ax.lines}
    assert drawn == {"a: slope 3.00": ([10, 20], [1.0, 8.0]), "b: slope 1.00": ([10, 20], [3.0, 6.0])}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("seconds: 3", "was not written by pytest --benchmark-json"),
        ("[]", "was not written by pytest --benchmark-json"),
        ('{"benchmarks": []}', "has no timing with a backend"),
    ],
)
def test_the_report_says_in_a_line_what_is_wrong_with_a_file(tmp_path, content, message):
    path = tmp_path / "saved.json"
    path.write_text(content)
    outcome = run_report(path)
    assert outcome.exit_code == 1
    assert message in outcome.output


@pytest.mark.parametrize("kind", ["full", "cross"])
def test_peers_are_scored_against_the_truth_and_an_absent_one_is_a_line(kind):
    """With a truth that is a tenth larger than the one in the data, an exact method has the error 0.1 / 1.1."""
    problem = next(p for p in matrices(500) if p.kind == kind)
    methods = [m for m in METHODS if m.name == ("robust_pca" if kind == "full" else "rcurc")]
    absent = Method("nobody", "no-such-package-anywhere", (kind,), lambda problem: pytest.fail("was run"))
    said = []
    (entry,) = compare(replace(problem, truth=1.1 * problem.truth), [absent, *methods], limit=100, tell=said.append)
    assert entry.note == ""
    assert entry.error == pytest.approx(0.1 / 1.1, rel=1e-6)
    assert entry.method == methods[0].name
    assert entry.seconds > 0
    assert "nobody: left out, no-such-package-anywhere is not installed" in said


def test_a_run_that_takes_too_long_is_stopped_and_said_to_be():
    problem, _ = matrices(60)
    ours = next(m for m in METHODS if m.name == "ircur")
    (entry,) = compare(problem, [ours], limit=1e-3, repeats=2)
    assert entry.note == "stopped after 0.001 s of CPU"
    assert (entry.seconds, entry.error, entry.runs) == (None, None, 0)


def test_a_problem_survives_the_way_to_another_process(tmp_path):
    for problem in matrices(30):
        problem.save(tmp_path / problem.kind)
        back = Problem.load(tmp_path / problem.kind)
        assert (back.kind, back.rank, back.title) == (problem.kind, problem.rank, problem.title)
        for name in ("Y", "truth", "mask", "rows", "cols"):
            there, here = getattr(back, name), getattr(problem, name)
            assert (there is None) == (here is None)
            assert here is None or (there == here).all()


def test_partial_svds_give_what_full_ones_give(monkeypatch):
    """Also when the rank rises, and of 0."""
    rng = np.random.default_rng(0)
    shrink, full = Shrinkage(), np.linalg.svd
    calls = []
    monkeypatch.setattr(np.linalg, "svd", lambda *args, **more: calls.append(1) or full(*args, **more))
    for rank, threshold in ((0, 1.0), (3, 0.5), (3, 0.1), (9, 0.5), (150, 0.5), (5, 0.5)):
        X = rng.standard_normal((300, rank)) @ rng.standard_normal((rank, 280)) + 1e-3 * rng.standard_normal((300, 280))
        X = X if rank else 0 * X
        U, s, Vt = full(X, full_matrices=False)
        np.testing.assert_allclose(shrink(X, threshold), (U * np.maximum(s - threshold, 0)) @ Vt, atol=1e-9)
    assert len(calls) == 3  # the first, that of 150, and the one after it


def test_the_table_of_peers_compares_with_the_first_and_shows_what_was_stopped():
    first = Entry("a problem", "ours", "1.0", seconds=0.5, cpu=0.4, memory=3e6, error=1e-9, runs=3)
    slower = Entry("a problem", "theirs", "2.0", seconds=4.0, cpu=4.0, memory=3e8, error=0.25, runs=1)
    stopped = Entry("a problem", "slowest", "3.0", note="stopped after 9 s")
    lines = table([first, slower, stopped]).splitlines()
    assert lines[0] == "### a problem"
    assert lines[4:] == [
        "| ours | 1.0 | 0.5 | 1 | 0.4 | 1 | 1.0e-09 | 3 | 3 |",
        "| theirs | 2.0 | 4 | 8 | 4 | 10 | 2.5e-01 | 300 | 1 |",
        "| slowest | 3.0 | stopped after 9 s | - | - | - | - | - | 0 |",
    ]
