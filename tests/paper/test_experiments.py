"""The experiments: what they measure is right, and an interrupted one goes on as if nothing had happened."""

import json
from dataclasses import replace

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.paper import convergence, patterns, phase, records

SMALL = convergence.ConvergenceSettings(size=240, runs=2, ranks=(2, 3), factors=(10.0,), share=0.4, rate=0.5, seed=3)
GRID = phase.PhaseSettings(size=160, rank=2, share=0.4, observations=(4, 50), alphas=(0.1, 0.7), trials=2, seed=1)


@pytest.fixture(scope="module")
def measured():
    return convergence.compute(SMALL)


@pytest.fixture(scope="module")
def grid():
    return phase.compute(GRID)


def without_times(record):
    """A copy in which nothing depends on the clock."""
    record = json.loads(json.dumps(record))
    for run in record["runs"]:
        del run["seconds"], run["fast"]["seconds"]
    return record


# ---------------------------------------------------------------- figure 1


@pytest.fixture(scope="module")
def four():
    return patterns.compute(patterns.PatternSettings(size=60, seed=2))


def test_patterns_have_the_same_number_of_different_observations(four):
    assert len(four["runs"]) == 4
    assert {run["observations"] for run in four["runs"]} == {len(set(run["seen"])) for run in four["runs"]}
    assert len({run["observations"] for run in four["runs"]}) == 1
    assert all(min(run["seen"]) >= 0 and max(run["seen"]) < 3600 for run in four["runs"])


def test_patterns_lie_in_their_crosses_which_shrink_from_all_to_cur(four):
    sizes = []
    for run in four["runs"]:
        cross = np.zeros((60, 60), bool)
        cross[run["rows"], :] = cross[:, run["cols"]] = True
        assert cross.ravel()[run["seen"]].all()
        assert cross.sum() == run["cross"]
        sizes.append(run["cross"])
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 60**2
    assert sizes[-1] == four["runs"][-1]["observations"]  # CUR sampling sees all of its cross


def test_patterns_fill_their_crosses_evenly():
    """Procedure 1 sees an entry of the intersection by either block; elsewhere rows and columns get the same share."""
    run = patterns.compute(patterns.PatternSettings(size=400, seed=0))["runs"][1]
    i, j = np.divmod(np.asarray(run["seen"]), 400)
    in_rows, in_cols = np.isin(i, run["rows"]), np.isin(j, run["cols"])
    m = len(run["rows"])
    both, rows, cols = (
        np.sum(in_rows & in_cols) / m**2,
        *(np.sum(a & ~b) / (m * (400 - m)) for a, b in ((in_rows, in_cols), (in_cols, in_rows))),
    )
    assert rows == pytest.approx(cols, rel=0.1)
    assert both == pytest.approx(1 - (1 - rows) * (1 - cols), rel=0.1)


def test_the_seed_fixes_the_patterns(four):
    assert patterns.compute(patterns.PatternSettings(size=60, seed=2)) == four
    assert patterns.compute(patterns.PatternSettings(size=60, seed=3))["runs"] != four["runs"]


# ---------------------------------------------------------------- figure 2


def test_true_errors_are_those_of_solves_cut_short(measured):
    """Against the dense difference, by solves that end after k iterations."""
    run = measured["runs"][1]
    problem = rg.synthetic((240, 240), run["rank"], 0.2, run["c"], 0.0, 96, 96, 0.5, run["seed"])
    X = problem.W @ problem.V.T
    for k in (1, 5, 12, len(run["e"])):
        with pytest.warns(rg.ConvergenceWarning):
            cut = rg.rcurc(problem.samples, run["rank"], method="paper", max_iter=k, tol=0, undetermined="keep")
        assert run["true_error"][k - 1] == pytest.approx(
            np.linalg.norm(cut.cur.to_dense() - X) / np.linalg.norm(X), rel=1e-5
        )
        assert run["e"][k - 1] == pytest.approx(cut.history[-1].error, rel=1e-5)
    fast = rg.rcurc(problem.samples, run["rank"])
    assert run["fast"]["true_error"] == pytest.approx(problem.relative_error(fast.cur), rel=1e-3)


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-9])
def test_truth_agrees_with_the_relative_error_of_the_problem(scale):
    problem = rg.synthetic((70, 90), 3, seed=0)
    rng = np.random.default_rng(1)
    left, right = (x + scale * rng.standard_normal(x.shape) for x in (problem.W, problem.V))
    matrix = rg.CURMatrix(left, right, problem.samples.rows, problem.samples.cols)
    assert convergence.Truth(problem).error(matrix) == pytest.approx(problem.relative_error(matrix), rel=1e-5)


def test_e_k_falls_on_a_line_and_the_truth_with_it(measured):
    summary = convergence.summarize(measured)
    assert summary["linear"] is True
    for curve in summary["curves"]:
        assert curve["e"]["slope"] < -0.05
        assert curve["e"]["r_squared"] > 0.98
        assert curve["true_error"]["last"] < 1e-4
        assert curve["fast"]["true_error"] < 1e-8
        assert curve["confirmed"] == curve["fast"]["confirmed"] == 2


def test_time_goes_on(measured):
    for run in measured["runs"]:
        assert len(run["seconds"]) == len(run["e"]) == len(run["true_error"])
        assert all(np.diff(run["seconds"]) > 0)


def test_curves_are_geometric_means_over_iterations_that_all_runs_have():
    def run(number, e):
        fast = {"seconds": 1.0, "true_error": 1e-10, "converged": True}
        return {
            "run": number,
            "rank": 5,
            "c": 10.0,
            "e": e,
            "true_error": e,
            "seconds": [number + 1.0] * len(e),
            "converged": True,
            "fast": fast,
        }

    record = records.new_record("fig2", convergence.ConvergenceSettings(runs=2))
    record["runs"] = [run(0, [1e-1, 1e-2, 1e-3, 1e-4]), run(1, [1e-3, 1e-4, 1e-5])]
    (curve,) = convergence.summarize(record)["curves"]
    np.testing.assert_allclose(curve["series"]["e"]["mean"], [1e-2, 1e-3, 1e-4])
    np.testing.assert_allclose(curve["series"]["e"]["low"], [10**-2.5, 10**-3.5, 10**-4.5])
    assert curve["series"]["seconds"] == [1.5, 1.5, 1.5]
    assert curve["e"]["slope"] == pytest.approx(-1)
    assert curve["e"]["r_squared"] == pytest.approx(1)


def test_a_curve_that_is_not_a_line_is_not_called_one():
    slope, r_squared = convergence.line(np.asarray([0.0, -5.0, -5.0, -5.0, -5.0, -5.0]))
    assert slope < 0
    assert r_squared < convergence.LINEAR
    k, y = np.arange(9), np.random.default_rng(0).standard_normal(9)
    assert convergence.line(y)[1] == pytest.approx(np.corrcoef(k, y)[0, 1] ** 2)  # another way to R^2
    assert np.isnan(convergence.line(np.asarray([1.0, np.nan, 2.0, 3.0]))).all()


def test_problems_that_both_panels_show_are_solved_once():
    tasks = convergence.tasks(replace(SMALL, runs=1, ranks=(5, 10), factors=(1, 10)))
    assert [(task["rank"], task["c"]) for task in tasks] == [(5, 10.0), (10, 10.0), (5, 1.0)]


# ---------------------------------------------------------------- phase transition


def test_easy_problems_are_recovered_and_impossible_ones_are_not(grid):
    summary = phase.summarize(grid)
    for method in phase.METHODS:
        (few, enough), (few_bad, many_bad) = summary[method]["success"]  # rows are shares of outliers
        assert enough == 1
        assert few == few_bad == many_bad == 0
        assert summary[method]["confirmed"][0][1] == 1
        assert summary[method]["wrongly_confirmed_in_all"] == 0
        assert summary[method]["recovered_in_all"] == 2
    assert summary["problems"] == summary["of_problems"] == 8


def test_errors_of_the_grid_are_those_of_its_problems(grid):
    run = next(run for run in grid["runs"] if run["observations"] == 50 and run["alpha"] == 0.1)
    problem = rg.synthetic((160, 160), 2, 0.1, 10.0, 0.0, 64, 64, 50 / 64, run["seed"])
    assert problem.samples.r_block.counts.mean() == pytest.approx(50, rel=0.1)
    result = rg.rcurc(problem.samples, 2, method="paper")
    X = problem.W @ problem.V.T
    assert run["paper"]["error"] == pytest.approx(np.linalg.norm(result.cur.to_dense() - X) / np.linalg.norm(X), rel=1e-3)


def test_a_confirmed_result_that_is_wrong_is_counted(grid):
    lie = json.loads(json.dumps(grid))
    lie["runs"][0]["fast"] |= {"error": 0.5, "converged": True}
    lie["runs"][1]["paper"] |= {"error": None, "converged": True}  # null is NaN
    summary = phase.summarize(lie)
    assert summary["fast"]["wrongly_confirmed_in_all"] == 1
    assert summary["paper"]["wrongly_confirmed_in_all"] == 1
    assert summary["fast"]["wrongly_confirmed"] == [[1, 0], [0, 0]]


def test_the_grid_fits_the_matrix():
    assert phase.observations_for(400) == phase.PhaseSettings.observations
    assert max(phase.observations_for(20)) <= 6
    with pytest.raises(ValueError, match="observations must be at least 1 and at most 64, got 65"):
        phase.compute(replace(GRID, observations=(65,)))


# ---------------------------------------------------------------- records


def test_an_interrupted_experiment_goes_on_as_if_nothing_had_happened(measured, tmp_path):
    path = tmp_path / "fig2.json"

    def save(record):
        records.write_record(path, record)
        if len(record["runs"]) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convergence.compute(SMALL, save=save)
    half = records.read_record(path)
    assert len(half["runs"]) == 3 < len(measured["runs"])
    assert without_times(convergence.compute(SMALL, half)) == without_times(measured)


def test_what_was_done_before_an_error_is_saved():
    saved = []
    record = records.new_record("fig2", SMALL)

    def measure(task):
        if task["k"] == 2:
            raise ArithmeticError
        return {"square": task["k"] ** 2}

    with pytest.raises(ArithmeticError):
        records.fill(record, [{"k": k} for k in range(4)], measure, lambda r: saved.append(len(r["runs"])))
    assert saved[-1] == 2
    assert record["runs"] == [{"k": 0, "square": 0}, {"k": 1, "square": 1}]


def test_a_complete_record_is_not_measured_again(grid):
    def refuse(task):
        raise AssertionError(task)

    assert records.fill(grid, phase.tasks(GRID), refuse) is grid


def test_a_record_whose_runs_are_others_is_refused(grid):
    damaged = {**grid, "runs": grid["runs"][1:]}
    with pytest.raises(ValueError, match="damaged"):
        phase.compute(GRID, damaged)


def test_a_record_comes_back_from_json_as_it_was(grid, tmp_path):
    records.write_record(tmp_path / "phase.json", grid)
    assert records.read_record(tmp_path / "phase.json") == grid
    assert records.differences(grid, records.new_record("phase", GRID)) == []
    other = records.new_record("phase", replace(GRID, trials=5))
    assert records.differences(grid, other) == ["trials 2, not 5"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"runs": []}'])
def test_a_file_that_is_no_record_is_named(tmp_path, content):
    path = tmp_path / "fig2.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"fig2\.json' is not a record"):
        records.read_record(path)


def test_numbers_are_rounded_and_nan_is_null():
    assert records.rounded({"a": [1 / 3, float("nan")], "b": np.bool_(True), "c": 7}) == {
        "a": [0.3333333, None],
        "b": True,
        "c": 7,
    }


# ---------------------------------------------------------------- pictures


def test_a_saved_record_can_be_drawn_again(four, measured, grid):
    """With labels on every outer axis, and all panels."""
    for module, record, panels in ((patterns, four, 4), (convergence, measured, 4), (phase, grid, 4)):
        figure = module.draw(json.loads(json.dumps(record)))
        axes = [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]
        assert len(axes) == panels
        figure.canvas.draw()


def test_the_picture_of_convergence_has_log_axes_and_a_curve_for_each_problem(measured):
    axes = convergence.draw(measured).axes
    assert all(ax.get_yscale() == "log" for ax in axes)
    assert [text.get_text().split()[2] for text in axes[0].get_legend().get_texts()] == ["2", "3"]
    assert "(s)" in axes[2].get_xlabel()


def test_the_picture_of_the_grid_marks_wrong_confirmations(grid):
    lie = json.loads(json.dumps(grid))
    lie["runs"][0]["fast"] |= {"error": 0.5, "converged": True}
    for record, marks in ((grid, 0), (lie, 1)):
        lines = [line for ax in phase.draw(record).axes for line in ax.lines]
        assert len(lines) == marks
