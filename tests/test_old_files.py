"""Files of version 0.1, of a problem of 40 x 36: what was done then loads, what was only begun is left alone."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.io import load_result
from rcurc_gpu.shards import ShardedSamples

OLD = Path(__file__).parent / "data" / "v0_1"


@pytest.fixture(scope="module")
def expected():
    with np.load(OLD / "expected.npz") as file:
        return dict(file)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("kind", ["file", "shards"])
def test_samples_load_and_give_the_same_result(expected, kind):
    samples = rg.CrossSamples.load(OLD / "samples.npz") if kind == "file" else ShardedSamples.open(OLD / "shards")
    result = rg.rcurc(samples, 2, kernels="xp")
    np.testing.assert_allclose(result.cur.to_dense(), expected["left"] @ expected["right"].T, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(result.rows.n_informative, expected["n"])


def test_results_load(expected):
    for cur in (
        rg.CURMatrix.load(OLD / "matrix.npz"),
        rg.CURMatrix.load(OLD / "result.npz"),
        load_result(OLD / "result.npz").cur,
    ):
        np.testing.assert_array_equal(cur.left, expected["left"])
        np.testing.assert_array_equal(cur.right, expected["right"])
    found = load_result(OLD / "result.npz")
    assert found.converged
    assert np.isnan(found.prediction_error)  # version 0.1 had no noise model
    assert not found.has_noise_model
    assert len(found.strengths) == found.rank
    assert found.cur.uncertainty is None
    assert found.rank == 2
    prediction = found.predict(["r3"], [found.labels.cols[4]])
    assert prediction.lower[0] <= expected["left"][3] @ expected["right"][4] <= prediction.upper[0]
    assert found.labels.rows[3] == "r3"
    np.testing.assert_array_equal(found.rows.status, expected["status"])
    np.testing.assert_array_equal(found.rows.n_informative, expected["n"])


def test_a_finished_output_opens(expected):
    cur = rg.open_result(OLD / "output", verify=True)
    np.testing.assert_allclose(cur.to_dense(), expected["left"] @ expected["right"].T, rtol=1e-10, atol=1e-10)


def test_a_checkpoint_that_was_begun_is_refused_in_a_line_and_kept(tmp_path):
    path = tmp_path / "begun"
    shutil.copy(OLD / "begun.checkpoint", path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"^checkpoint '.*' is of another solve: it differs in .*version; .*$") as raised:
        rg.rcurc(rg.CrossSamples.load(OLD / "samples.npz"), 2, kernels="xp", checkpoint=path, callback=print)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["begun", "output"])
def test_an_output_of_then_is_refused_in_a_line_and_kept(tmp_path, name):
    folder = tmp_path / name
    shutil.copytree(OLD / name, folder)
    before = contents(folder)
    with pytest.raises(ValueError, match=r"^output '.*' is of another solve: it differs in .*version; .*$"):
        rg.rcurc(ShardedSamples.open(OLD / "shards"), 2, kernels="xp", output=folder)
    assert contents(folder) == before
