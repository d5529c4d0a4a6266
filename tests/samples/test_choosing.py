import numpy as np
import pytest
from helpers import heavy_tailed

import rcurc_gpu as rg
from rcurc_gpu.samples.choosing import choose_cross


def counts_in(i, j, rows, cols, shape):
    """Observations of each row and column inside the intersection (for rows I and columns J) or the cross (others)."""
    in_rows, in_cols = np.isin(i, rows), np.isin(j, cols)
    return np.bincount(i[in_cols], minlength=shape[0]), np.bincount(j[in_rows], minlength=shape[1]), in_rows | in_cols


@pytest.mark.parametrize(
    ("n", "shape", "decay"), [(100_000, (943, 1682), 0.8), (300_000, (3000, 3000), 1.0), (60_000, (300, 2000), 0.6)]
)
def test_the_cross_of_heavy_tailed_counts_uses_most_of_them_and_has_a_dense_intersection(n, shape, decay):
    i, j = heavy_tailed(n, shape, decay)
    rows, cols = choose_cross(i, j, shape)
    per_row, per_col, used = counts_in(i, j, rows, cols, shape)
    assert used.mean() >= 0.95
    assert min(per_row[rows].min(), per_col[cols].min()) >= 20  # enough for rank 2
    # What has five observations at all keeps five in the cross, all but a few.
    for kept, total in ((per_row, np.bincount(i, minlength=shape[0])), (per_col, np.bincount(j, minlength=shape[1]))):
        assert (kept[total >= 5] >= 5).mean() > 0.97


def test_evenly_spread_observations_are_nearly_all_used():
    i, j = np.nonzero(np.random.default_rng(0).random((400, 500)) < 0.2)
    rows, cols = choose_cross(i, j, (400, 500))
    assert counts_in(i, j, rows, cols, (400, 500))[2].mean() >= 0.95


def test_few_observations_give_an_intersection_that_is_enough_for_rank_1_before_they_are_all_used():
    i, j = heavy_tailed(50_000, (5000, 5000), 1.0)
    rows, cols = choose_cross(i, j, (5000, 5000))
    per_row, per_col, used = counts_in(i, j, rows, cols, (5000, 5000))
    assert min(per_row[rows].min(), per_col[cols].min()) >= 10
    assert 0.8 < used.mean() < 0.95  # more would not be enough for rank 1


def test_where_no_intersection_is_enough_the_densest_is_taken():
    i, j = np.append(np.repeat(np.arange(4), 4), [7, 8, 9]), np.append(np.tile(np.arange(4), 4), [5, 6, 7])
    rows, cols = choose_cross(i, j, (10, 10))
    assert (rows.tolist(), cols.tolist()) == ([0, 1, 2, 3], [0, 1, 2, 3])


def test_the_order_of_the_observations_does_not_matter():
    i, j = heavy_tailed(30_000, (400, 500), 0.8)
    order = np.random.default_rng(1).permutation(len(i))
    for first, second in zip(choose_cross(i, j, (400, 500)), choose_cross(i[order], j[order], (400, 500)), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("stray", [0.0, 0.002, 0.02])
def test_a_clear_cross_is_found_among_stray_observations(stray):
    rng = np.random.default_rng(2)
    drawn = rg.synthetic((600, 800), 2, n_rows=60, n_cols=90, rate=0.3, seed=0).samples
    seen = rng.random((600, 800)) < stray
    seen[drawn.rows] |= rng.random((60, 800)) < 0.3
    seen[:, drawn.cols] |= rng.random((600, 90)) < 0.3
    rows, cols = choose_cross(*np.nonzero(seen), (600, 800))
    np.testing.assert_array_equal(rows, drawn.rows)
    np.testing.assert_array_equal(cols, drawn.cols)


def test_a_low_rank_matrix_is_recovered_from_heavy_tailed_observations():
    shape = (500, 600)
    i, j = heavy_tailed(80_000, shape, 0.6)
    rng = np.random.default_rng(3)
    W, V = rng.standard_normal((500, 2)), rng.standard_normal((600, 2))
    y = np.einsum("kr,kr->k", W[i], V[j])
    y[rng.random(len(y)) < 0.1] = 30.0
    result = rg.rcurc(rg.CrossSamples.from_triplets(i, j, y, shape), rank=2)
    X = W @ V.T
    assert np.linalg.norm(result.cur.to_dense() - X) < 1e-6 * np.linalg.norm(X)


def test_one_full_row_and_column_are_no_cross():
    seen = np.random.default_rng(0).random((300, 300)) < 0.2
    seen[17, :] = seen[:, 40] = True
    rows, cols = choose_cross(*np.nonzero(seen), (300, 300))
    assert min(len(rows), len(cols)) > 100
