"""Observations with noise of known size: what `sigma` gains, and that it is the same wherever the samples are."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from distributed import Client, LocalCluster

import rcurc_gpu as rg
from rcurc_gpu.io import Completion, load_result, save_result
from rcurc_gpu.shards import ShardedSamples

RANK, UNIT = 3, 17.0  # any unit will do


class Instruments(NamedTuple):
    """A matrix with offsets, seen by two instruments, and what each of its entries is."""

    X: np.ndarray
    Y: np.ndarray  # NaN where nothing was seen
    sigma: np.ndarray  # the true one
    outlier: np.ndarray
    again: np.ndarray  # seen once more, everywhere and without outliers

    @property
    def coarse(self):
        return self.sigma > 0.1

    def samples(self, sigma=True, step=1):
        rows, cols = (np.arange(0, n, step) for n in self.X.shape)
        return rg.CrossSamples.from_dense(self.Y, rows, cols, sigma=UNIT * self.sigma if sigma else None)

    def error(self, result):
        return np.linalg.norm(result.cur.to_dense() - self.X) / np.linalg.norm(self.X)


@cache
def instruments(share=0.5, seed=0, noise=(0.01, 0.3)):
    """Some `share` of the entries is seen by the coarse instrument, 5 % are outliers, half of them are seen."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((150, RANK)) @ rng.standard_normal((120, RANK)).T / np.sqrt(RANK)
    X += rng.standard_normal((150, 1)) + rng.standard_normal(120)
    sigma = np.where(rng.random(X.shape) < share, noise[1], noise[0])
    Y, again = (X + sigma * rng.standard_normal(X.shape) for _ in range(2))
    outlier = rng.random(X.shape) < 0.05
    Y[outlier] += rng.choice([-1, 1], outlier.sum()) * rng.uniform(3, 10, outlier.sum())
    Y[rng.random(X.shape) > 0.5] = np.nan
    return Instruments(X, Y, sigma, outlier, again)


@cache
def solved(share=0.5, seed=0, step=1):
    return rg.rcurc(instruments(share, seed).samples(step=step))


def oracle(data):
    """Error of weighted least squares that begin at the truth and are told the outliers, the rank and the noise."""
    X, r = data.X, RANK
    weight = np.where(np.isnan(data.Y) | data.outlier, 0.0, data.sigma**-2)
    Y = np.nan_to_num(data.Y)
    u, s, vt = np.linalg.svd(X - X.mean(1, keepdims=True) - X.mean(0) + X.mean(), full_matrices=False)
    rows, cols = np.c_[u[:, :r] * s[:r], X.mean(1) - X.mean()], np.c_[vt[:r].T, X.mean(0)]

    def fitted(at, y, w):
        x = np.c_[at[:, :r], np.ones(len(at))]
        normal = np.einsum("nk,un,nl->ukl", x, w, x) + np.eye(r + 1)
        return np.linalg.solve(normal, ((w * (y - at[:, r])) @ x)[:, :, None])[:, :, 0]

    for _ in range(60):
        rows = fitted(cols, Y, weight)
        cols = fitted(rows, Y.T, weight.T)
    found = rows[:, :r] @ cols[:, :r].T + rows[:, r:] + cols[:, r]
    return np.linalg.norm(found - X) / np.linalg.norm(X)


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9])
def test_with_sigma_the_error_is_near_that_of_an_oracle(share):
    """Of 10 % fine observations there are six in a row, for four unknowns: the coarse ones are needed, too."""
    data = instruments(share)
    with_sigma, without = data.error(solved(share)), data.error(rg.rcurc(data.samples(sigma=False)))
    assert with_sigma < 1.15 * oracle(data)
    assert with_sigma < (0.7 if share == 0.9 else 0.25) * without
    assert solved(share).converged
    assert solved(share).rank == RANK


def test_rows_and_columns_outside_of_the_cross_gain_too():
    data = instruments()
    assert data.error(solved(step=2)) < 0.2 * data.error(rg.rcurc(data.samples(sigma=False, step=2)))
    assert 0.67 < data.error(solved(step=2)) / solved(step=2).expected_error < 1.5


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_intervals_are_right_for_both_instruments(share):
    data, result = instruments(share), solved(share)
    i, j = np.indices(data.X.shape)
    lower, upper = result.interval(i, j, sigma=UNIT * data.sigma)
    inside = (lower <= data.again) & (data.again <= upper)
    for those in (data.coarse, ~data.coarse):
        assert 0.92 <= inside[those].mean() <= 0.98
    # the typical instrument is the fine one; a number stands for all
    for x, y in zip(result.interval(i, j), result.interval(i, j, sigma=UNIT * 0.01), strict=True):
        np.testing.assert_allclose(x, y)
    assert abs(result.noise / 0.01 - 1) < 0.1


def test_the_unit_of_sigma_does_not_matter():
    data = instruments()
    rows, cols = (np.arange(n) for n in data.X.shape)
    for unit in (1e-150, 1e-3, 1e150):
        other = rg.rcurc(rg.CrossSamples.from_dense(data.Y, rows, cols, sigma=unit * data.sigma))
        np.testing.assert_allclose(other.cur.to_dense(), solved().cur.to_dense(), rtol=1e-6, atol=1e-8)


def test_the_same_sigma_everywhere_changes_nothing():
    data = instruments(0.0)
    same, without = (rg.robust_pca(data.Y, sigma=sigma) for sigma in (np.full(120, 5.0), None))
    np.testing.assert_allclose(same.cur.to_dense(), without.cur.to_dense(), rtol=1e-9, atol=1e-9)
    assert same.prediction_error == pytest.approx(without.prediction_error)
    np.testing.assert_array_equal(same.outlier_table()["row"], without.outlier_table()["row"])


def test_a_few_sigmas_that_are_nonsense_do_little_harm():
    data = instruments()
    sigma = data.sigma.copy()
    at = np.random.default_rng(1).choice(sigma.size, 30, replace=False)
    sigma.flat[at] *= np.repeat([1e-9, 1e-4, 1e9], 10)
    assert data.error(rg.robust_pca(data.Y, sigma=sigma)) < 1.3 * data.error(solved())


def test_outliers_are_judged_by_their_own_noise():
    """Four fifths by the fine instrument: without sigma, most of what the coarse one sees would be listed."""
    data = instruments(0.2)
    seen = ~np.isnan(data.Y)
    for options in ({}, {"intervals": False}):
        result = rg.robust_pca(data.Y, sigma=UNIT * data.sigma, **options)
        table, found = result.outlier_table(), np.zeros(data.X.shape, dtype=bool)
        found[table["row"], table["column"]] = True
        assert data.outlier[found].mean() > 0.98
        assert found[data.outlier & seen].mean() > 0.98
    result = rg.robust_pca(data.Y, sigma=UNIT * data.sigma)
    whole = result.outliers_of(data.Y, sigma=UNIT * data.sigma).toarray() != 0
    np.testing.assert_array_equal(
        np.argwhere(whole), sorted(zip(*(result.outlier_table()[x] for x in ("row", "column")), strict=True))
    )


def test_new_columns_have_a_sigma_too():
    """Without, all of it would count as seen by the typical instrument, here the coarse one."""
    data = instruments(0.8)
    old, new = data.Y[:, :90], data.Y[:, 90:]
    sigma = UNIT * data.sigma
    result = rg.robust_pca(old, sigma=sigma[:, :90])
    truth, size = data.X[:, 90:], np.linalg.norm(data.X[:, 90:])
    errors = [
        np.linalg.norm(result.transform_columns(new, **options).matrix.to_dense() - truth) / size
        for options in ({"sigma": sigma[:, 90:]}, {})
    ]
    assert errors[0] < 0.02
    assert errors[0] < 0.5 * errors[1]


# ---------------------------------------------------------------- the same everywhere


def test_plain_code_finds_the_same():
    plain = rg.rcurc(instruments().samples(step=2), kernels="xp")
    np.testing.assert_allclose(plain.cur.to_dense(), solved(step=2).cur.to_dense(), rtol=1e-7, atol=1e-8)


def test_other_arrays_find_the_same(elsewhere):
    xp, place = elsewhere
    samples = instruments().samples(step=2).to_namespace(xp, place)
    there = rg.rcurc(samples, kernels="xp")
    found = rg.backends.arrays.to_numpy(there.cur.to_dense())
    np.testing.assert_allclose(found, solved(step=2).cur.to_dense(), rtol=1e-6, atol=1e-7)


def test_shards_in_memory_and_on_disk_find_the_same(tmp_path):
    sharded = ShardedSamples.of(instruments().samples(step=2), 20_000)
    assert len(sharded.r_shards) > 2
    on_disk = sharded.save(tmp_path / "shards")
    assert on_disk.has_sigma
    for samples, options in ((sharded, {}), (on_disk, {}), (on_disk, {"output": tmp_path / "out"})):
        result = rg.rcurc(samples, **options)
        np.testing.assert_allclose(result.cur.to_dense(), solved(step=2).cur.to_dense(), rtol=1e-9, atol=1e-10)
        assert len(result.outlier_table()) == len(solved(step=2).outlier_table())
        assert result.prediction_error == pytest.approx(solved(step=2).prediction_error)


def test_a_cluster_finds_the_same():
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as threads,
        Client(threads) as client,
    ):
        result = rg.rcurc(ShardedSamples.of(instruments().samples(step=2), 20_000), client=client)
    np.testing.assert_allclose(result.cur.to_dense(), solved(step=2).cur.to_dense(), rtol=1e-9, atol=1e-10)


def test_a_checkpoint_of_other_sigmas_is_another_solve(tmp_path):
    data = instruments()
    path = tmp_path / "solve.npz"
    rg.rcurc(data.samples(step=2), checkpoint=path)
    again = rg.rcurc(data.samples(step=2), checkpoint=path)
    np.testing.assert_array_equal(again.cur.left, solved(step=2).cur.left)
    with pytest.raises(ValueError, match="checkpoint"):
        rg.rcurc(data.samples(sigma=False, step=2), checkpoint=path)


def test_a_result_in_a_file_knows_the_unit_of_sigma(tmp_path):
    result = solved()
    save_result(tmp_path / "a.npz", result)
    again = load_result(tmp_path / "a.npz")
    wanted = result.interval(3, np.arange(5), sigma=2.0)
    for there in (again, Completion.of(result)):
        np.testing.assert_allclose(there.interval(3, np.arange(5), sigma=2.0), wanted)
    result.cur.save(tmp_path / "b.npz")
    assert rg.CURMatrix.load(tmp_path / "b.npz").uncertainty.sigma == UNIT * 0.01


# ---------------------------------------------------------------- where it has no meaning


def test_exact_data_do_not_hear_of_it():
    problem = rg.synthetic((80, 90), 3, alpha=0.1, n_rows=40, n_cols=40, rate=0.6, seed=0)
    s, rng = problem.samples, np.random.default_rng(0)
    R, C = s.R.tocoo(), s.C.tocoo()
    sigma = rng.choice([1.0, 30.0], s.shape)
    i, j = np.concatenate([s.rows[R.row], C.row]), np.concatenate([R.col, s.cols[C.col]])
    told = rg.CrossSamples.from_triplets(i, j, np.concatenate([R.data, C.data]), s.shape, s.rows, s.cols, sigma=sigma[i, j])
    result, plain = rg.rcurc(told), rg.rcurc(s)
    assert not result.has_noise_model
    assert result.converged
    np.testing.assert_allclose(result.cur.to_dense(), plain.cur.to_dense(), rtol=1e-9, atol=1e-12)
    assert len(result.outlier_table()) == len(plain.outlier_table())
    np.testing.assert_array_equal(result.interval(0, 0, sigma=1.0), result.interval(0, 0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "paper", "rank": 3}, "method must be 'fast' for samples with sigma, got 'paper'"),
        ({"sweeps": 0}, "sweeps must be None, or at least 1, for samples with sigma, got 0"),
        ({"resolution": 0.5}, "resolution must be 0 for samples with sigma, got 0.5"),
    ],
)
def test_what_turns_the_noise_model_off_is_refused(options: dict[str, Any], words):
    with pytest.raises(ValueError, match=words):
        rg.rcurc(instruments().samples(step=2), **options)


def test_a_sigma_of_a_new_observation_needs_one_of_the_samples():
    data = instruments()
    without = rg.rcurc(data.samples(sigma=False, step=2))
    for call in (
        lambda: without.interval(0, 0, sigma=1.0),
        lambda: without.outliers_of(data.Y, sigma=data.sigma),
        lambda: without.transform_columns(data.Y[::2, :3], sigma=data.sigma[::2, :3]),
    ):
        with pytest.raises(ValueError, match="sigma is for results of samples with sigma"):
            call()
    with pytest.raises(ValueError, match="sigma is for new=True"):
        solved().interval(0, 0, new=False, sigma=1.0)
    with pytest.raises(ValueError, match="sigma must be positive and finite, got 0"):
        solved().interval(0, [0, 1], sigma=[1.0, 0.0])
    with pytest.raises(TypeError, match="sigma must be a positive number"):
        solved().interval(0, 0, sigma="fine")
    with pytest.raises(
        ValueError, match=r"sigma must be a number or broadcast to the shape of the entries, \(2,\), got \(3,\)"
    ):
        solved().interval(0, [0, 1], sigma=[1.0, 1.0, 1.0])
