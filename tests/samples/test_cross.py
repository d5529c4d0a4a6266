"""CrossSamples: every way in gives the same observations, and they are those of the dense matrix."""

import re

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rcurc_gpu import CrossSamples, ccs_sample
from rcurc_gpu.backends.arrays import device_name
from rcurc_gpu.samples import building as ingest

NAN = np.nan


# ---------------------------------------------------------------- helpers: the truth, by plain NumPy


@st.composite
def crosses(draw):
    """A matrix with NaN where nothing was observed, and I and J in any order, with observations in both blocks."""
    n1, n2 = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    rows = draw(st.permutations(range(n1)))[: draw(st.integers(1, n1))]
    cols = draw(st.permutations(range(n2)))[: draw(st.integers(1, n2))]
    values = draw(hnp.arrays(np.float64, (n1, n2), elements=st.integers(-9, 9)))
    seen = draw(hnp.arrays(bool, (n1, n2)))
    seen[rows[0], cols[0]] = True
    return np.where(seen, values, NAN), rows, cols


def unit_matrix(block):
    """A block as a matrix (units, length) with NaN where nothing was seen."""
    indptr, index, value = (np.asarray(x) for x in (block.indptr, block.index, block.value))
    assert np.all(np.diff(indptr) >= 0)
    out = np.full((len(indptr) - 1, block.length), NAN)
    for unit in range(len(out)):
        part = slice(indptr[unit], indptr[unit + 1])
        assert (np.diff(index[part]) > 0).all()
        out[unit, index[part]] = value[part]
    return out


def assert_observes(samples, R, C, rows, cols):
    """That `samples` see exactly R of Y[rows, :] and C of Y[:, cols], given with NaN where nothing is seen."""
    host = samples.to_namespace(np)
    assert samples.shape == (C.shape[0], R.shape[1])
    np.testing.assert_array_equal(samples.rows, rows)
    np.testing.assert_array_equal(samples.cols, cols)
    np.testing.assert_array_equal(unit_matrix(host.r_block).T, R)
    np.testing.assert_array_equal(unit_matrix(host.c_block), C)


def stored(dense):
    """A sparse matrix that stores the entries that are not NaN, also the 0s among them, in no order."""
    i, j = np.nonzero(~np.isnan(dense))
    order = np.random.default_rng(0).permutation(len(i))
    return scipy.sparse.coo_array((dense[i, j][order], (i[order], j[order])), shape=dense.shape)


def triplets(dense):
    coo = stored(dense)
    return coo.row, coo.col, coo.data


Y0 = np.array(
    [
        [NAN, 1.0, 0.0, NAN, 5.0],
        [2.0, NAN, 3.0, 4.0, NAN],
        [6.0, 7.0, NAN, NAN, 8.0],
        [NAN, 9.0, 10.0, 0.0, NAN],
    ]
)
ROWS0, COLS0 = [2, 0], [4, 1, 2]


# ---------------------------------------------------------------- all ways in agree


@given(cross=crosses())
def test_from_dense_sees_what_is_not_nan(xp, cross):
    Y, rows, cols = cross
    assert_observes(CrossSamples.from_dense(xp.array(Y), rows, cols), Y[rows], Y[:, cols], rows, cols)


@given(cross=crosses())
def test_from_triplets_sees_what_is_listed(xp, cross):
    Y, rows, cols = cross
    i, j, values = (xp.array(x) for x in triplets(Y))
    samples = CrossSamples.from_triplets(i, j, values, Y.shape, rows, cols)
    assert_observes(samples, Y[rows], Y[:, cols], rows, cols)
    outside = np.delete(np.delete(Y, rows, axis=0), cols, axis=1)
    assert samples.n_unused == np.count_nonzero(~np.isnan(outside))


@pytest.mark.parametrize("form", ["coo", "csr", "csc", "lil", "dok"])
def test_from_sparse_sees_every_stored_entry_also_a_stored_0(form):
    Y = stored(Y0).asformat("csr" if form in ("csr", "lil", "dok") else form)
    if form in ("lil", "dok"):  # which cannot store a 0: leave those out
        Y.eliminate_zeros()
        expected = np.where(Y0 == 0, NAN, Y0)
        Y = Y.asformat(form)
    else:
        expected = Y0
    assert_observes(CrossSamples.from_sparse(Y, ROWS0, COLS0), expected[ROWS0], expected[:, COLS0], ROWS0, COLS0)


@given(cross=crosses())
def test_from_blocks_sees_what_each_block_stores(cross):
    Y, rows, cols = cross
    R, C = Y[rows], Y[:, cols]
    assert_observes(CrossSamples.from_blocks(stored(R), stored(C), rows, cols), R, C, rows, cols)


def test_sparse_matrices_of_the_old_kind_are_taken_too():
    Y = scipy.sparse.csr_matrix(stored(Y0))
    assert_observes(CrossSamples.from_sparse(Y, ROWS0, COLS0), Y0[ROWS0], Y0[:, COLS0], ROWS0, COLS0)


def test_lists_will_do():
    samples = CrossSamples.from_dense(Y0.tolist(), ROWS0, COLS0)
    assert_observes(samples, Y0[ROWS0], Y0[:, COLS0], ROWS0, COLS0)
    samples = CrossSamples.from_triplets([2, 0], [1, 1], [5, 6], (3, 2), [2], [1])
    assert_observes(samples, np.array([[NAN, 5]]), np.array([[6], [NAN], [5]]), [2], [1])


def test_lists_of_indices_go_where_the_values_are(xp):
    samples = CrossSamples.from_triplets([2, 0], [1, 1], xp.array([5.0, 6.0]), (3, 2), [2], [1])
    np.testing.assert_array_equal(xp.numpy(samples.c_block.value), [6.0, 5.0])


@given(cross=crosses(), data=st.data())
def test_masks_say_what_was_observed_whatever_stands_elsewhere(xp, cross, data):
    Y, rows, cols = cross
    seen_R = data.draw(hnp.arrays(bool, Y[rows].shape)) & ~np.isnan(Y[rows])
    seen_C = data.draw(hnp.arrays(bool, Y[:, cols].shape)) & ~np.isnan(Y[:, cols])
    seen_R[0, cols[0]] = seen_C[rows[0], 0] = True
    samples = CrossSamples.from_dense(xp.array(Y), rows, cols, xp.array(seen_R), xp.array(seen_C))
    assert_observes(samples, np.where(seen_R, Y[rows], NAN), np.where(seen_C, Y[:, cols], NAN), rows, cols)


def test_a_mask_for_one_block_leaves_the_other_to_nan(xp):
    seen_R = ~np.isnan(Y0[ROWS0]) & (Y0[ROWS0] > 5)
    samples = CrossSamples.from_dense(xp.array(Y0), ROWS0, COLS0, mask_rows=seen_R.tolist())
    assert_observes(samples, np.where(seen_R, Y0[ROWS0], NAN), Y0[:, COLS0], ROWS0, COLS0)


def test_sparse_views_are_the_blocks():
    samples = CrossSamples.from_dense(Y0, ROWS0, COLS0)
    np.testing.assert_array_equal(samples.R.toarray(), np.nan_to_num(Y0[ROWS0]))
    np.testing.assert_array_equal(samples.C.toarray(), np.nan_to_num(Y0[:, COLS0]))
    assert (samples.R.format, samples.C.format) == ("csc", "csr")
    assert samples.R.nnz == np.count_nonzero(~np.isnan(Y0[ROWS0]))  # the 0 is stored
    assert np.shares_memory(samples.R.data, samples.r_block.value)


def test_an_array_library_without_sparse_matrices_says_so(xp):
    samples = CrossSamples.from_dense(xp.array(Y0), ROWS0, COLS0)
    if "strict" not in xp.namespace.__name__:
        assert samples.R.shape == (len(ROWS0), Y0.shape[1])
    else:
        with pytest.raises(TypeError, match="array_api_strict has no sparse matrices; use the observations' indptr"):
            samples.R  # noqa: B018


# ---------------------------------------------------------------- types of numbers


@pytest.mark.parametrize(
    ("given_type", "kept_type"),
    [
        ("float64", "float64"),
        ("float32", "float32"),
        ("float16", "float32"),
        ("longdouble", "float64"),
        (">f8", "float64"),
        ("uint8", "float64"),
        ("int64", "float64"),
        ("bool", "float64"),
    ],
)
def test_floats_keep_their_type_and_integers_become_float64(given_type, kept_type):
    Y = np.array([[0, 1, 1], [1, 1, 0]]).astype(given_type)
    i, j = np.divmod(np.arange(6), 3)
    for_scipy = Y.astype(kept_type) if given_type in ("float16", ">f8") else Y  # which scipy.sparse does not know
    R, C = scipy.sparse.coo_array(for_scipy[[1]]), scipy.sparse.coo_array(for_scipy[:, [2, 0]])
    for samples in (
        CrossSamples.from_dense(Y, [1], [2, 0]),
        CrossSamples.from_triplets(i, j, Y.reshape(-1), (2, 3), [1], [2, 0]),
        CrossSamples.from_blocks(R, C, [1], [2, 0]),
        ccs_sample(Y, 1, 2, 1.0, 1.0, seed=0),
    ):
        assert samples.dtype == samples.r_block.value.dtype == samples.c_block.value.dtype == np.dtype(kept_type)
        assert samples.dtype.isnative
    samples = CrossSamples.from_dense(Y, [1], [2, 0])
    np.testing.assert_array_equal(samples.R.toarray(), [[1, 1, 0]])
    np.testing.assert_array_equal(samples.C.toarray(), [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("dtype", "values"),
    [("uint8", [250, 255, 3, 200]), ("int64", [2**52, -(2**52), 2**62, -(2**62)]), ("uint64", [2**63, 1, 2, 2**60])],
)
def test_large_integers_do_not_overflow(dtype, values):
    Y = np.array(values, dtype=dtype).reshape(2, 2)
    expected = np.array([[float(v) for v in values[:2]], [float(v) for v in values[2:]]])
    assert_observes(CrossSamples.from_dense(Y, [0, 1], [1, 0]), expected, expected[:, [1, 0]], [0, 1], [1, 0])
    i, j = np.divmod(np.arange(4), 2)
    mean = CrossSamples.from_triplets(
        [*i, 0], [*j, 0], np.append(Y.reshape(-1), Y[0, 0] - np.asarray(2, dtype)), (2, 2), [0], [0], duplicates="mean"
    )
    assert mean.R.toarray()[0, 0] == (float(values[0]) + float(values[0] - 2)) / 2


def test_float32_on_any_device(xp):
    samples = CrossSamples.from_dense(xp.array(Y0, "float32"), ROWS0, COLS0)
    assert xp.numpy(samples.intersection.block.value).dtype == np.float32


# ---------------------------------------------------------------- large matrices are read in pieces


@given(cross=crosses(), piece=st.integers(8, 200))
def test_the_size_of_the_pieces_does_not_matter(xp, cross, piece):
    Y, rows, cols = cross
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "READ_BYTES", piece)
        assert_observes(CrossSamples.from_dense(xp.array(Y), rows, cols), Y[rows], Y[:, cols], rows, cols)


def test_a_memmap_is_read_piece_by_piece(tmp_path, monkeypatch):
    Y = np.random.default_rng(0).standard_normal((50, 60))
    Y[::3, ::4] = NAN
    file = np.memmap(tmp_path / "Y.bin", dtype=np.float64, mode="w+", shape=Y.shape)
    file[:] = Y
    file.flush()
    rows, cols = [40, 3, 17], [5, 59, 0, 8]
    readonly = np.memmap(tmp_path / "Y.bin", dtype=np.float64, mode="r", shape=Y.shape)
    monkeypatch.setattr(ingest, "READ_BYTES", 500)
    samples = CrossSamples.from_dense(readonly, rows, cols)
    assert_observes(samples, Y[rows], Y[:, cols], rows, cols)
    assert type(samples.r_block.value) is np.ndarray
    mask_rows = np.random.default_rng(1).random((3, 60)) < 0.5
    masked = CrossSamples.from_dense(np.nan_to_num(readonly), rows, cols, mask_rows=mask_rows)
    assert_observes(masked, np.where(mask_rows, np.nan_to_num(Y[rows]), NAN), np.nan_to_num(Y[:, cols]), rows, cols)


@pytest.mark.parametrize("place", [(3, 0), (3, 55), (41, 9)])
def test_an_error_says_where_in_the_matrix_whichever_piece_it_is_in(xp, monkeypatch, place):
    Y = np.ones((50, 60))
    Y[place] = np.inf
    monkeypatch.setattr(ingest, "READ_BYTES", 500)
    with pytest.raises(ValueError, match=re.escape(f"got inf at {place};")):
        CrossSamples.from_dense(xp.array(Y), [40, 3], [5, 9])


# ---------------------------------------------------------------- the cross, when it is not given


def listed(samples, Y):
    """The places that were sampled, each once, shuffled, with their values."""
    R, C = samples.R.tocoo(), samples.C.tocoo()
    places = np.unique(
        np.column_stack([np.append(samples.rows[R.row], C.row), np.append(R.col, samples.cols[C.col])]), axis=0
    )
    i, j = np.random.default_rng(1).permutation(places).T
    return i, j, Y[i, j]


@pytest.mark.parametrize(
    ("n_rows", "n_cols", "rates"),
    [(20, 30, (0.3, 0.3)), (60, 10, (0.2, 0.8)), (5, 80, (0.9, 0.2)), (40, 40, (1.0, 1.0))],
)
def test_rows_and_columns_that_are_not_given_are_those_that_were_sampled(n_rows, n_cols, rates):
    Y = np.random.default_rng(0).standard_normal((200, 250))
    drawn = ccs_sample(Y, n_rows, n_cols, *rates, seed=3)
    found = CrossSamples.from_triplets(*listed(drawn, Y), Y.shape)
    np.testing.assert_array_equal(found.rows, drawn.rows)
    np.testing.assert_array_equal(found.cols, drawn.cols)
    assert found.n_unused == 0
    assert found.n_obs == drawn.n_obs


@pytest.mark.parametrize("sizes", [((100, 90), (200, 190)), ((30, 40), (270, 240)), ((20, 200), (280, 80))])
def test_rows_of_one_group_and_columns_of_another_that_never_met_are_no_cross(sizes):
    rng = np.random.default_rng(0)
    rows, cols = (np.repeat([0, 1], [group[k] for group in sizes]) for k in (0, 1))
    seen = (rng.random((len(rows), len(cols))) < 0.4) & (rows[:, None] == cols)
    i, j = np.nonzero(seen)
    samples = CrossSamples.from_triplets(i, j, np.ones(len(i)), seen.shape)
    assert seen[np.ix_(samples.rows, samples.cols)].mean() > 0.15


def test_observations_outside_the_cross_are_counted_and_left_out():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((200, 250))
    drawn = ccs_sample(Y, 20, 30, 0.3, 0.3, seed=3)
    i, j, values = listed(drawn, Y)
    other_rows, other_cols = np.setdiff1d(np.arange(200), drawn.rows), np.setdiff1d(np.arange(250), drawn.cols)
    extra = rng.choice(len(other_rows) * len(other_cols), 100, replace=False)
    extra_i, extra_j = other_rows[extra // len(other_cols)], other_cols[extra % len(other_cols)]
    i, j, values = np.append(i, extra_i), np.append(j, extra_j), np.append(values, Y[extra_i, extra_j])
    for given_rows, given_cols in ((None, None), (drawn.rows, None), (None, drawn.cols)):
        found = CrossSamples.from_triplets(i, j, values, Y.shape, given_rows, given_cols)
        np.testing.assert_array_equal(found.rows, drawn.rows)
        np.testing.assert_array_equal(found.cols, drawn.cols)
        assert found.n_unused == 100
        assert found.n_obs == drawn.n_obs
    assert "unused: 100 observations lie outside the chosen rows and columns" in found.describe()


def test_a_row_that_was_seen_on_the_chosen_columns_alone_is_not_chosen():
    seen = np.zeros((600, 100), bool)
    for row in range(10, 600):  # J: every row has four entries there
        seen[row, 60 + (4 * row + np.arange(4)) % 40] = True
    seen[:9, :40] = True  # I: nine rows with many entries outside of J,
    seen[9, 40:52] = True  # and one with twelve
    seen[30, 60:90] = True  # thirty entries, but inside of J
    i, j = np.nonzero(seen)
    samples = CrossSamples.from_triplets(i, j, np.ones(len(i)), seen.shape)
    np.testing.assert_array_equal(samples.rows, np.arange(10))
    np.testing.assert_array_equal(samples.cols, np.arange(60, 100))
    assert samples.n_unused == 0


@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (1, 1)])
def test_a_matrix_of_one_row_or_column_has_a_cross(shape):
    i, j = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    samples = CrossSamples.from_triplets(i, j, 1.0 + i + j, shape)
    assert (len(samples.rows), len(samples.cols), samples.n_obs) == (*shape, shape[0] * shape[1])


def test_without_concentration_the_cross_is_everything():
    i, j = np.divmod(np.arange(12), 4)
    samples = CrossSamples.from_triplets(i, j, np.arange(12.0), (3, 4))
    assert (list(samples.rows), list(samples.cols), samples.n_unused) == ([0, 1, 2], [0, 1, 2, 3], 0)


# ---------------------------------------------------------------- repeated observations

REPEATED = [1.0, 2.0, 6.0, 4.0]  # four values for one place
BY_WORD = {"mean": 3.25, "median": 3.0}


def test_repeated_observations_that_agree_count_once(xp):
    i, j = [1, 0, 1, 1], [1, 1, 1, 0]
    samples = CrossSamples.from_triplets(i, j, xp.array([3.0, 5.0, 3.0, 7.0]), (2, 2), [1], [1])
    assert_observes(samples, np.array([[7.0, 3.0]]), np.array([[5.0], [3.0]]), [1], [1])


@pytest.mark.parametrize("word", ["mean", "median"])
def test_repeated_observations_that_differ_are_combined_as_asked(xp, word):
    i, j = [1, 0, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1]
    values = xp.array([REPEATED[0], 5.0, REPEATED[1], 7.0, *REPEATED[2:]])
    samples = CrossSamples.from_triplets(i, j, values, (2, 2), [1], [1], duplicates=word)
    expected = BY_WORD[word]
    assert_observes(samples, np.array([[7.0, expected]]), np.array([[5.0], [expected]]), [1], [1])


@given(
    data=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(-8, 8)), min_size=1, max_size=30),
    word=st.sampled_from(["mean", "median"]),
)
def test_combining_is_numpys_mean_and_median(data, word):
    i, j, values = (np.asarray(x) for x in zip(*data, strict=True))
    expected = np.full((3, 3), NAN)
    for place in set(zip(i, j, strict=True)):
        expected[place] = getattr(np, word)(values[(i == place[0]) & (j == place[1])])
    samples = CrossSamples.from_triplets(i, j, values, (3, 3), [2, 0, 1], [1, 2, 0], duplicates=word)
    found = unit_matrix(samples.c_block)
    np.testing.assert_allclose(found, expected[:, [1, 2, 0]], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("word", ["mean", "median"])
def test_what_the_two_blocks_see_differently_is_combined_in_both(word):
    R = scipy.sparse.coo_array(([1.0, 2.0, 8.0], ([0, 0, 0], [1, 1, 0])), shape=(1, 2))  # (1, 1) twice, (1, 0)
    C = scipy.sparse.coo_array(([6.0, 4.0, 9.0], ([1, 1, 0], [0, 0, 0])), shape=(2, 1))  # (1, 1) twice, (0, 1)
    samples = CrossSamples.from_blocks(R, C, [1], [1], duplicates=word)
    expected = BY_WORD[word]
    assert_observes(samples, np.array([[8.0, expected]]), np.array([[9.0], [expected]]), [1], [1])
    np.testing.assert_array_equal(samples.intersection.block.value, [expected])
    with pytest.raises(ValueError, match=r"entry \(1, 1\) was observed with different values, 1 and 2"):
        CrossSamples.from_blocks(R, C, [1], [1])


# ---------------------------------------------------------------- the intersection


@given(cross=crosses(), data=st.data())
def test_the_intersection_has_each_entry_once_and_knows_who_sees_it(xp, cross, data):
    Y, rows, cols = cross
    seen_R = data.draw(hnp.arrays(bool, Y[rows].shape)) & ~np.isnan(Y[rows])
    seen_C = data.draw(hnp.arrays(bool, Y[:, cols].shape)) & ~np.isnan(Y[:, cols])
    seen_R[0, cols[0]] = seen_C[rows[0], 0] = True
    samples = CrossSamples.from_dense(xp.array(Y), rows, cols, xp.array(seen_R), xp.array(seen_C))
    code = 1 * seen_R[:, cols] + 2 * seen_C[rows]
    inter = samples.intersection
    host = samples.to_namespace(np).intersection
    np.testing.assert_array_equal(unit_matrix(host.block), np.where(code > 0, Y[np.ix_(rows, cols)], NAN))
    np.testing.assert_array_equal(xp.numpy(inter.seen_by), code[code > 0])
    assert samples.n_obs == seen_R.sum() + seen_C.sum() - np.count_nonzero(code == 3)


def test_blocks_that_do_not_meet_have_an_empty_intersection(xp):
    Y = Y0.copy()
    Y[np.ix_(ROWS0, COLS0)] = NAN
    inter = CrossSamples.from_dense(xp.array(np.where(np.isnan(Y), Y, 1)), [2, 0], [4, 1, 2], None, None).intersection
    assert inter.block.n_obs == 0
    np.testing.assert_array_equal(inter.block.counts, [0, 0])
    assert xp.numpy(inter.seen_by).shape == (0,)


def test_rates_are_shares_of_the_blocks():
    samples = CrossSamples.from_dense(Y0, ROWS0, COLS0)
    assert samples.rate_rows == 6 / 10
    assert samples.rate_cols == 8 / 12
    assert samples.nbytes == 14 * 12 + 8 * (6 + 5)


# ---------------------------------------------------------------- describe


def test_describe_counts_right():
    lines = CrossSamples.from_dense(Y0, ROWS0, COLS0).describe().split("\n")
    assert lines == [
        "9 observations of a 4 x 5 matrix (45.000% of its entries), float64 on cpu",
        "rows: 2 chosen, 60.00% of their entries observed; 0 (least) to 1 (median) observations per column",
        "columns: 3 chosen, 66.67% of their entries observed; 1 (least) to 2 (median) observations per row",
        "where they cross: 2 x 3, 83.33% observed; 2 (least) to 2 (median) observations per row, "
        "1 (least) to 2 (median) observations per column",
        "warning: 1 columns have no observation (the first is column 3) and cannot be determined",
    ]


def test_describe_warns_where_the_rank_is_too_large():
    text = CrossSamples.from_dense(Y0, ROWS0, COLS0).describe(rank=3)
    assert "warning: 5 columns have fewer than rank + 2 = 5 observations (the first is column 0)" in text
    assert "warning: 4 rows have fewer than rank + 2 = 5 observations (the first is row 0)" in text
    assert "warning: rank 3 is larger than the intersection allows (2)" in text
    assert "a row of the intersection has 2 observations (median); recovery at rank 3 needs about 18" in text
    assert "a column of the intersection has 2 observations (median); recovery at rank 3 needs about 18" in text


def test_describe_has_no_warning_where_there_is_enough(xp):
    Y = np.random.default_rng(0).standard_normal((40, 50))
    samples = CrossSamples.from_dense(xp.array(Y), range(20), range(20))
    assert "warning" not in samples.describe()
    assert "warning" not in samples.describe(rank=3)
    assert "warning" in samples.describe(rank=4)


def test_describe_counts_what_either_block_sees_of_a_chosen_row_or_column():
    Y = np.random.default_rng(0).standard_normal((40, 50))
    seen_R, seen_C = np.ones((20, 50), bool), np.ones((40, 20), bool)
    seen_R[:, 7] = False  # column 7 of J and row 3 of I are seen by the other block alone
    seen_C[3, :] = False
    assert "warning" not in CrossSamples.from_dense(Y, range(20), range(20), seen_R, seen_C).describe(rank=2)
    seen_R[:, 30] = False
    text = CrossSamples.from_dense(Y, range(20), range(20), seen_R, seen_C).describe()
    assert re.findall("warning: .*", text) == [
        "warning: 1 columns have no observation (the first is column 30) and cannot be determined"
    ]


def test_repr_says_what_it_is():
    assert repr(CrossSamples.from_dense(Y0, ROWS0, COLS0)).splitlines() == [
        "CrossSamples",
        "  matrix   4 x 5",
        "  rows     2 chosen, 0.6 of their entries observed",
        "  columns  3 chosen, 0.667 of their entries observed",
        "  values   float64 on cpu",
    ]


# ---------------------------------------------------------------- nothing is shared with the user, nothing changes


def all_arrays(samples):
    yield from (samples.rows, samples.cols)
    inter = samples.intersection
    for block in (samples.r_block, samples.c_block, inter.block):
        yield from (block.indptr, block.index, block.value)
    yield inter.seen_by


class Matrix:
    """Gives away views of its own array as entries."""

    def __init__(self, Y):
        self.shape, self.given = Y.shape, Y.reshape(-1).copy()

    def entries(self, i, j):
        return self.given[: len(i)]


def way_in(name):
    """A constructor, arguments that it might be tempted to keep, and the arrays in them."""
    Y = np.arange(12.0).reshape(3, 4)
    rows, cols = np.arange(3), np.arange(4)
    i, j = np.divmod(np.arange(12), 4)
    values = Y.reshape(-1).copy()
    mask = np.ones((3, 4), bool)
    R, C = scipy.sparse.csc_array(Y + 1), scipy.sparse.csr_array(Y + 1)
    coo = scipy.sparse.coo_array((values, (i.astype(np.int32), j.astype(np.int32))), shape=(3, 4))
    source = Matrix(Y)
    match name:
        case "from_dense":
            return CrossSamples.from_dense, (Y, rows, cols), [Y, rows, cols]
        case "from_dense with masks":
            return CrossSamples.from_dense, (Y, rows, cols, mask, mask), [Y, rows, cols, mask]
        case "from_triplets":
            return CrossSamples.from_triplets, (i, j, values, (3, 4), rows, cols), [i, j, values, rows, cols]
        case "from_triplets without a cross":
            return CrossSamples.from_triplets, (i, j, values, (3, 4)), [i, j, values]
        case "from_sparse":
            return CrossSamples.from_sparse, (coo, rows, cols), [coo.data, coo.row, coo.col, rows, cols]
        case "from_blocks":
            parts = [R.data, R.indices, R.indptr, C.data, C.indices, C.indptr]
            return CrossSamples.from_blocks, (R, C, rows, cols), [*parts, rows, cols]
        case "ccs_sample":
            return ccs_sample, (Y, 3, 4, 1.0, 1.0, 0), [Y]
        case "ccs_sample of entries":
            return ccs_sample, (source, 3, 4, 1.0, 1.0, 0), [source.given]


@pytest.mark.parametrize(
    "name",
    [
        "from_dense",
        "from_dense with masks",
        "from_triplets",
        "from_triplets without a cross",
        "from_sparse",
        "from_blocks",
        "ccs_sample",
        "ccs_sample of entries",
    ],
)
def test_the_users_arrays_stay_the_users(name):
    make, arguments, own = way_in(name)
    before = [x.copy() for x in own]
    samples = make(*arguments)
    kept = [x.copy() for x in all_arrays(samples)]
    for x, old in zip(own, before, strict=True):
        np.testing.assert_array_equal(x, old)  # not modified
        assert x.flags.writeable  # not frozen
        x[...] = 1  # and whatever the user does next ...
    for x, old in zip(all_arrays(samples), kept, strict=True):
        np.testing.assert_array_equal(x, old)  # ... does not reach the samples


def test_samples_cannot_be_changed():
    samples = CrossSamples.from_dense(Y0, ROWS0, COLS0)
    for x in all_arrays(samples):
        assert not x.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        samples.R.data[0] = 1.0
    with pytest.raises(AttributeError):
        samples.shape = (1, 1)


def test_on_another_library_the_users_array_is_not_shared_either(xp):
    Y = xp.array(np.arange(12.0).reshape(3, 4))
    samples = CrossSamples.from_dense(Y, [0, 1, 2], [0, 1])
    Y[0, 0] = 99.0
    assert xp.numpy(samples.r_block.value).max() == 11.0
    assert xp.numpy(samples.c_block.value).max() == 9.0


# ---------------------------------------------------------------- elsewhere


@given(cross=crosses())
def test_the_transpose_samples_the_transposed_matrix(xp, cross):
    Y, rows, cols = cross
    samples = CrossSamples.from_dense(xp.array(Y), rows, cols)
    assert_observes(samples.T, Y.T[cols], Y.T[:, rows], cols, rows)
    assert samples.T.T.r_block is samples.r_block


@given(cross=crosses())
def test_there_and_back_again(xp, cross):
    Y, rows, cols = cross
    samples = CrossSamples.from_dense(Y, rows, cols)
    there = samples.to_namespace(xp.namespace, xp.device)
    assert xp.numpy(there.r_block.value).dtype == np.float64
    assert there.device == device_name(xp.array(0.0))
    assert_observes(there.to_namespace(np), Y[rows], Y[:, cols], rows, cols)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_saved_is_loaded(xp, tmp_path, dtype):
    i, j, values = triplets(Y0)
    samples = CrossSamples.from_triplets(i, j, values.astype(dtype), Y0.shape, ROWS0, [1])
    path = tmp_path / "samples.npz"
    samples.to_namespace(xp.namespace, xp.device).save(path)
    loaded = CrossSamples.load(path)
    assert_observes(loaded, Y0[ROWS0], Y0[:, [1]], ROWS0, [1])
    assert loaded.n_unused == samples.n_unused > 0
    assert loaded.dtype == np.dtype(dtype)
    assert not loaded.r_block.value.flags.writeable
    assert list(tmp_path.iterdir()) == [path]  # nothing is left behind


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "samples.npz"
    samples = CrossSamples.from_dense(Y0, ROWS0, COLS0)
    samples.save(path)
    old = path.read_bytes()

    def broken(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", broken)
    with pytest.raises(OSError, match="disk full"):
        samples.T.save(path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_cut_short_anywhere_is_refused(tmp_path):
    path = tmp_path / "samples.npz"
    CrossSamples.from_dense(Y0, ROWS0, COLS0).save(path)
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is not a CrossSamples file, or is truncated"):
            CrossSamples.load(path)


def test_a_damaged_file_is_refused_or_read_rightly(tmp_path):
    path = tmp_path / "samples.npz"
    samples = CrossSamples.from_dense(Y0, ROWS0, COLS0)
    samples.save(path)
    whole = path.read_bytes()
    refused = 0
    for k in range(0, len(whole), 11):
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 0xFF]) + whole[k + 1 :])
        try:
            loaded = CrossSamples.load(path)
        except ValueError:
            refused += 1
        else:
            assert_observes(loaded, Y0[ROWS0], Y0[:, COLS0], ROWS0, COLS0)
    assert refused > 100


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "foreign.npz", a=np.arange(3))
    np.save(tmp_path / "array.npy", Y0)
    (tmp_path / "text.npz").write_text("nothing of the kind")
    with pytest.raises(ValueError, match=r"foreign.npz' is not a CrossSamples file .* it has no header of rcurc-gpu"):
        CrossSamples.load(tmp_path / "foreign.npz")
    with pytest.raises(ValueError, match=r"array.npy' is not a CrossSamples file"):
        CrossSamples.load(tmp_path / "array.npy")
    with pytest.raises(ValueError, match=r"text.npz' is not a CrossSamples file"):
        CrossSamples.load(tmp_path / "text.npz")
    with pytest.raises(FileNotFoundError, match=r"missing\.npz"):
        CrossSamples.load(tmp_path / "missing.npz")


@pytest.mark.parametrize("part", ["shape", "rows", "n_unused", "r_indptr", "r_index", "r_value", "c_index", "c_value"])
def test_a_file_that_lacks_a_part_names_it(tmp_path, part):
    path = tmp_path / "samples.npz"
    CrossSamples.from_dense(Y0, ROWS0, COLS0).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    del arrays[part]
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=f"lacks {part}: the CrossSamples file is damaged"):
        CrossSamples.load(path)
