"""The core one component after the other: singular values of very different size, with outliers."""

import numpy as np
import pytest

import rcurc_gpu as rg
from rcurc_gpu.video import sample_video, surveillance_scene


def uneven(rank, condition, alpha, seed, size=500):
    """A matrix whose singular values fall geometrically, and samples of it with outliers of ten times a typical entry."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for _ in range(2))
    X = (U * np.geomspace(1, 1 / condition, rank) * size) @ V.T
    a = 10 * np.abs(X).mean()
    Y = X + np.where(rng.random(X.shape) < alpha, rng.uniform(-a, a, X.shape), 0)
    return X, rg.ccs_sample(Y, 200, 200, 0.5, 0.5, seed=seed)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("alpha", [0.1, 0.3])
@pytest.mark.parametrize("condition", [10, 100, 1000])
@pytest.mark.parametrize("rank", [3, 8])
def test_small_singular_values_are_found_among_outliers(rank, condition, alpha, seed):
    X, samples = uneven(rank, condition, alpha, seed)
    result = rg.rcurc(samples, rank)
    assert result.converged
    assert np.linalg.norm(result.cur.to_dense() - X) <= 1e-7 * np.linalg.norm(X)
    assert [state.iteration for state in result.history] == list(range(1, result.n_iter + 1))


@pytest.mark.parametrize("rank", [3, 6])
def test_the_rank_is_found(rank):
    X, samples = uneven(rank, 30, 0.2, 2)
    result = rg.rcurc(samples, "auto")
    assert result.rank == rank
    assert np.linalg.norm(result.cur.to_dense() - X) <= 1e-7 * np.linalg.norm(X)


def test_too_large_a_rank_is_lowered():
    X, samples = uneven(3, 30, 0.2, 3)
    result = rg.rcurc(samples, 5)
    assert result.rank == 3
    assert result.message.startswith("Rank 5 was asked for")
    assert np.linalg.norm(result.cur.to_dense() - X) <= 1e-7 * np.linalg.norm(X)


def test_a_faint_change_of_light_is_found_behind_people():
    """The second component has a sixtieth of the first, and the outliers move together."""
    scene = surveillance_scene((96, 120), 400, seed=0)
    X = scene.background_matrix.to_dense()
    result = rg.rcurc(sample_video(scene, 0.4, 0.4, 0.3, seed=0), "auto", resolution=1.0, outliers="structured")
    assert result.rank == 2
    assert result.converged
    assert 10 * np.log10(255**2 / np.mean((result.cur.to_dense() - X) ** 2)) > 50


def test_they_can_be_interrupted_and_taken_up_again(tmp_path):
    _, samples = uneven(4, 50, 0.2, 4)
    count = []

    def stop(state):
        count.append(state)
        if len(count) == int(0.9 * total):
            raise KeyboardInterrupt

    seen = []
    undisturbed = rg.rcurc(samples, 4, callback=seen.append)
    total = len(seen)
    with pytest.raises(KeyboardInterrupt):
        rg.rcurc(samples, 4, callback=stop, checkpoint=tmp_path / "c")
    resumed = rg.rcurc(samples, 4, callback=lambda state: None, checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(resumed.cur.left, undisturbed.cur.left)
