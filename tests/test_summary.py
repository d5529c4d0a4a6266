"""Public objects say what they are, in a few lines of text and in HTML, with the verdict first."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import rcurc_gpu as rg
from rcurc_gpu import io
from rcurc_gpu.io import Completion
from rcurc_gpu.summary import Summary


@pytest.fixture(scope="module")
def problem():
    return rg.synthetic((120, 100), rank=2, n_rows=50, n_cols=45, rate=0.6, alpha=0.1, c=5.0, noise=0.0, seed=0)


@pytest.fixture(scope="module")
def result(problem):
    return rg.rcurc(problem.samples)


@pytest.fixture(scope="module")
def ratings():
    made = rg.synthetic_ratings((60, 50), 700, seed=0)
    return made, rg.complete_ratings(made.i, made.j, made.values, made.shape, scale=(1, 5))


def objects(problem, result, ratings):
    Y = np.asarray(result.cur)
    separation = rg.video.Separation(
        background=None,
        figures={"source": "street.mp4", "frames": 9, "height": 4, "width": 5, "rank": 1, "noise": 1.0}
        | {"message": "Confirmed <nearly>.", "cause": "", "confirmed": True},
        files=(),
    )
    scene, subtractor = rg.video.surveillance_scene(shape=(24, 32), frames=3), rg.video.BackgroundSubtractor()
    for frame in scene:
        subtractor.apply(frame)
    labels = io.Labels(np.asarray([f"site {k}" for k in range(120)]))
    completion = Completion.of(result)
    return {
        "CrossSamples": (problem.samples, None),
        "ShardedSamples": (rg.ShardedSamples.of(problem.samples), None),
        "SyntheticProblem": (problem, None),
        "SyntheticRatings": (ratings[0], None),
        "SamplePlan": (rg.plan_samples(1000, 800, 3), None),
        "Result": (result, True),
        "Completion": (completion, True),
        "Verdict": (result.verdict, True),
        "Labels": (labels, None),
        "LabelledSamples": (io.LabelledSamples(problem.samples, labels), None),
        "Outliers": (completion.outliers, None),
        "Observations": (completion.some_observed, None),
        "Predictions": (completion.predict([0, 1], [2, 3]), None),
        "CompletedTable": (rg.complete(pd.DataFrame(Y)), True),
        "Transformed": (result.transform_rows(Y[:3], cols=np.arange(100)), True),
        "Ratings": (ratings[1], ratings[1].converged and ratings[1].helps),
        "UnitDiagnostics": (result.columns, None),
        "Separation": (separation, True),
        "SurveillanceScene": (scene, None),
        "BackgroundSubtractor": (subtractor, None),
        "Background": (rg.video.Background(result.cur, (10, 12), 0.5, "a rule"), None),
    }


def test_every_public_object_has_a_short_summary_with_its_verdict(problem, result, ratings):
    for name, (thing, good) in objects(problem, result, ratings).items():
        text, page = repr(thing), thing._repr_html_()
        first, *rest = text.splitlines()
        assert first == {None: name, True: f"{name}: confirmed", False: f"{name}: NOT confirmed"}[good]
        assert 1 <= len(rest) <= 14, text
        assert max(map(len, rest)) <= 125, text
        assert page.startswith(f"<div><b>{name}</b>")
        assert "<table><tr>" in page
        assert page.count("<div>") == page.count("</div>")


def test_what_is_wrong_is_said_first(result):
    bad = dataclasses.replace(result, converged=False, message="Too few <observations>.")
    assert repr(bad).startswith("Result: NOT confirmed\n  Too few <observations>.\n")
    assert "NOT confirmed</b><div>Too few &lt;observations&gt;.</div>" in bad._repr_html_()


def test_the_matrix_says_what_it_is_in_a_notebook(result):
    assert "<b>CURMatrix</b>" in result.cur._repr_html_()
    assert "120 x 100, factors of 2 columns" in result.cur._repr_html_()


def test_nothing_to_say_is_a_name():
    assert Summary().text("Thing") == "Thing"


def test_diagnostics_become_a_frame(result):
    frame = result.rows.to_frame()
    assert list(frame.columns) == ["status", "n_obs", "n_inliers", "spread", "standard_error", "n_informative"]
    assert (frame["status"] == "determined").all()
    np.testing.assert_array_equal(frame["n_obs"], result.rows.n_obs)
    names = [f"site {k}" for k in range(100)]
    assert list(result.columns.to_frame(names).index) == names
    with pytest.raises(ValueError, match="labels must be 100 labels, one for each line, got 2"):
        result.columns.to_frame(["a", "b"])


def test_dir_shows_public_names_and_nothing_else():
    shown = set(dir(rg))
    assert {"complete", "rcurc", "plot", "video", "RobustCURCompletion"} <= shown
    assert not {name for name in shown if name.startswith("_")} - {"__version__"}
    assert not shown & {"api", "errors", "options", "backends", "TYPE_CHECKING", "later", "serve_old_names", "solve"}
    for name in shown:
        assert getattr(rg, name) is not None


def test_modules_load_when_they_are_touched():
    import subprocess
    import sys

    names = "rg.plot.__name__, rg.video.__name__, rg.paper.table1.__name__"
    code = f"import sys, rcurc_gpu as rg; print('rcurc_gpu.plot' in sys.modules, {names})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False rcurc_gpu.plot rcurc_gpu.video rcurc_gpu.paper.table1\n"
