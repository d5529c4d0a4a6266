"""Samples that know the noise of each observation: it goes wherever its observation goes."""

import zipfile

import numpy as np
import pytest

from rcurc_gpu import CrossSamples
from rcurc_gpu.backends.arrays import to_numpy
from rcurc_gpu.backends.blocks import join_blocks

RNG = np.random.default_rng(0)
Y = np.where(RNG.random((9, 11)) < 0.7, RNG.standard_normal((9, 11)), np.nan)
SIGMA = 1 + np.abs(Y)  # follows from its value, so that it is seen wherever it goes
SIGMA[np.isnan(Y)] = -1.0  # nobody looks there
ROWS, COLS = np.asarray([1, 8, 3]), np.asarray([0, 4, 10, 7])


def samples(**options):
    return CrossSamples.from_dense(Y, ROWS, COLS, sigma=SIGMA, **options)


def assert_beside(*blocks):
    """Every sigma belongs to its value."""
    for block in blocks:
        assert block.n_obs
        np.testing.assert_allclose(to_numpy(block.sigma), 1 + np.abs(to_numpy(block.value)), rtol=1e-6)


def test_dense_matrices_and_triplets_give_the_same():
    i, j = np.nonzero(~np.isnan(Y))
    order = RNG.permutation(len(i))
    i, j = i[order], j[order]
    listed = CrossSamples.from_triplets(i, j, Y[i, j], Y.shape, ROWS, COLS, sigma=SIGMA[i, j])
    for a, b in ((samples().r_block, listed.r_block), (samples().c_block, listed.c_block)):
        np.testing.assert_array_equal(a.value, b.value)
        np.testing.assert_array_equal(a.sigma, b.sigma)
        assert_beside(a)
    assert samples().has_sigma
    assert not CrossSamples.from_dense(Y, ROWS, COLS).has_sigma


def test_sigma_goes_with_its_observation():
    s = samples()
    r, inside = s.r_block, s.intersection.block
    assert_beside(inside, s.T.r_block, r.transpose(), r.transpose().transpose(), r.copy(), r.to(r.value))
    assert_beside(r.take_units(np.asarray([7, 2, 2])), r.take_units(np.arange(3, 7)))
    assert_beside(join_blocks([r.take_units(np.arange(3)), r.take_units(np.arange(3, 11))]))
    np.testing.assert_array_equal(s.scaled(2.0).r_block.sigma, r.sigma)  # a unit of its own
    assert r.nbytes > CrossSamples.from_dense(Y, ROWS, COLS).r_block.nbytes
    with pytest.raises(ValueError, match="read-only"):
        s.r_block.sigma[0] = 1.0


def test_other_arrays(xp):
    xp, place = xp
    there = samples().to_namespace(xp, place)
    assert_beside(there.r_block, there.c_block, there.intersection.block, there.r_block.transpose())
    like = xp.asarray(np.nan_to_num(Y), device=place)
    made = CrossSamples.from_dense(like, ROWS, COLS, sigma=1 + xp.abs(like))
    assert_beside(made.r_block, made.c_block)


def test_a_number_for_each_row_or_column():
    by_column, by_row = np.arange(1.0, 12.0), np.arange(1.0, 10.0)
    for sigma, r, c in ((by_column, None, None), (by_row[:, None], None, None), (2, None, None)):
        made = CrossSamples.from_dense(Y, ROWS, COLS, sigma=sigma)
        whole = np.broadcast_to(sigma, Y.shape)
        r, c = made.r_block, made.c_block
        np.testing.assert_array_equal(r.sigma, whole[ROWS[r.index], r.unit_of_entry()])
        np.testing.assert_array_equal(c.sigma, whole[c.unit_of_entry(), COLS[c.index]])


def test_a_file_keeps_it(tmp_path):
    samples().save(tmp_path / "a.npz")
    again = CrossSamples.load(tmp_path / "a.npz")
    assert again.has_sigma
    assert_beside(again.r_block, again.c_block)
    CrossSamples.from_dense(Y, ROWS, COLS).save(tmp_path / "b.npz")  # as before
    with zipfile.ZipFile(tmp_path / "b.npz") as file:
        assert not [name for name in file.namelist() if "sigma" in name]
    assert not CrossSamples.load(tmp_path / "b.npz").has_sigma


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: a.update(r_sigma=a["r_sigma"][1:]), "r_sigma does not fit r_value"),
        (lambda a: a.update(c_sigma=-a["c_sigma"]), "c_sigma is not positive and finite"),
        (lambda a: a.update(c_sigma=a["c_sigma"] * np.nan), "c_sigma is not positive and finite"),
        (lambda a: a.pop("c_sigma"), "c_sigma does not fit c_value"),
    ],
)
def test_damaged_files_are_refused(change, words, tmp_path):
    samples().save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as file:
        arrays = dict(file)
    change(arrays)
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=words):
        CrossSamples.load(tmp_path / "a.npz")


# ---------------------------------------------------------------- entries that were observed more than once

ROW, COLUMN = np.asarray([0, 1, 0, 0, 1, 2]), np.asarray([1, 1, 1, 1, 1, 0])
VALUES, NOISE = np.asarray([1.0, 5.0, 4.0, 1.0, 5.0, 7.0]), np.asarray([1.0, 2.0, 2.0, 1.0, 2.0, 3.0])


def repeated(values=VALUES, sigma=NOISE, **options):
    return CrossSamples.from_triplets(ROW, COLUMN, values, (3, 2), [0, 1, 2], [0, 1], sigma=sigma, **options)


def test_the_mean_is_weighted_and_less_noisy():
    block = repeated(duplicates="mean").r_block
    weight = np.asarray([1.0, 0.25, 1.0])
    mean = np.sum(weight * [1.0, 4.0, 1.0]) / weight.sum()
    np.testing.assert_allclose(block.value, [7.0, mean, 5.0])
    np.testing.assert_allclose(block.sigma, [3.0, weight.sum() ** -0.5, 2 / np.sqrt(2)])


def test_repeats_must_agree():
    same = np.asarray([1.0, 5.0, 1.0, 1.0, 5.0, 7.0])
    with pytest.raises(ValueError, match=r"entry \(0, 1\) was observed with different values, 1 and 4"):
        repeated()
    with pytest.raises(ValueError, match=r"sigma must be the same wherever an entry stands, got 1 and 2 for .* \(0, 1\)"):
        repeated(same)
    block = repeated(same, same).r_block
    np.testing.assert_array_equal(block.sigma, [7.0, 1.0, 5.0])


def test_there_is_no_median_with_sigma():
    with pytest.raises(ValueError, match="duplicates must be 'error' or 'mean' where sigma is given, got 'median'"):
        repeated(duplicates="median")
    with pytest.raises(ValueError, match="duplicates must be one of"):
        repeated(duplicates="sum")
