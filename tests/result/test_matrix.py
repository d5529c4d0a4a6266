"""The recovered matrix reads as the dense one would."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from rcurc_gpu import CURMatrix, LowRankMatrix, robust_pca
from rcurc_gpu.backends.blocks import blank_rows, join_units

N1, N2, RANK = 9, 7, 3
_rng = np.random.default_rng(0)
LEFT, RIGHT = _rng.standard_normal((N1, RANK)), _rng.standard_normal((N2, RANK))
DENSE = np.array([[sum(LEFT[i, k] * RIGHT[j, k] for k in range(RANK)) for j in range(N2)] for i in range(N1)])
ROWS, COLS = [4, 0, 7, 8], [6, 2, 3, 0, 1]


def cur_on(xp, dtype=None):
    return CURMatrix(xp.array(LEFT, dtype), xp.array(RIGHT, dtype), np.array(ROWS), np.array(COLS))


def close(found, expected, tolerance=1e-13):
    assert found.shape == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------- cur[i, j]


def indices(size):
    """What may stand for one axis: an int, a slice, an index vector, a boolean vector."""
    numbers = st.integers(-size, size - 1)
    ends = st.none() | st.integers(-size - 3, size + 3)
    steps = st.none() | st.integers(-4, 4).filter(lambda k: k != 0)
    vectors = st.lists(numbers, max_size=6)
    return st.one_of(
        numbers,
        numbers.map(np.int8),
        st.builds(slice, ends, ends, steps),
        vectors,
        st.builds(lambda v, dtype: np.array(v, dtype=dtype), vectors, st.sampled_from(["int8", "int32", "int64"])),
        st.lists(st.integers(0, size - 1), max_size=6).map(lambda v: np.array(v, dtype=np.uint8)),
        st.lists(st.booleans(), min_size=size, max_size=size),
    )


def chosen(size, key):
    """The numbers that `key` stands for: 0-d for an int, else a vector."""
    return np.arange(size)[np.array(key, dtype=None if key else int) if isinstance(key, list) else key]


@given(i=indices(N1), j=indices(N2))
def test_a_block_is_the_crossing_of_rows_and_columns(xp, i, j):
    rows, cols = chosen(N1, i), chosen(N2, j)
    expected = DENSE[np.ix_(np.atleast_1d(rows), np.atleast_1d(cols))].reshape(rows.shape + cols.shape)
    close(xp.numpy(cur_on(xp).block(i, j)), expected)


def as_numpy(key):
    """An index as NumPy wants it: an empty list is of floats there."""
    return np.array(key, dtype=None if key else int) if isinstance(key, list) else key


@given(i=indices(N1), j=indices(N2) | st.just(None))
@pytest.mark.filterwarnings("ignore:cur.i, j. with two index vectors:FutureWarning")
def test_indexing_is_that_of_numpy(xp, i, j):
    key, wanted = (i, as_numpy(i)) if j is None else ((i, j), (as_numpy(i), as_numpy(j)))
    try:
        expected = DENSE[wanted]
    except IndexError:  # vectors of different lengths
        with pytest.raises(IndexError, match="do not pair"):
            cur_on(xp)[key]
        return
    close(xp.numpy(cur_on(xp)[key]), expected)


@pytest.mark.parametrize(
    "key",
    [
        ...,
        (..., 2),
        (3, ...),
        (..., slice(1, 3)),
        np.ix_([0, 3], [1, 2, 5]),
        DENSE > 0.3,
        DENSE.max() == DENSE,
        ([[0, 1]], 0),
        ([[0], [4]], [[1, 2]]),
    ],
)
def test_indexing_in_other_ways_of_numpy(xp, key):
    close(xp.numpy(cur_on(xp)[key]), DENSE[key])


def test_two_index_vectors_are_pairs_and_a_warning_at_the_callers_line_says_so():
    cur = LowRankMatrix(LEFT, RIGHT)
    with pytest.warns(
        FutureWarning, match=r"gives the entries \(i\[k\], j\[k\]\), as in NumPy.*cur\.block\(i, j\)"
    ) as caught:
        found = cur[[0, 1], [0, 1]]
    assert caught[0].filename == __file__
    close(found, DENSE[[0, 1], [0, 1]])
    close(cur.block([0, 1], [0, 1]), DENSE[:2, :2])  # without a warning


def test_rows_one_after_the_other(xp):
    close(np.stack([xp.numpy(row) for row in cur_on(xp)]), DENSE)
    assert (len(cur_on(xp)), cur_on(xp).ndim, cur_on(xp).size) == (N1, 2, N1 * N2)


@given(i=st.lists(st.integers(-N1, N1 - 1), min_size=1, max_size=5))
def test_index_vectors_may_live_where_the_matrix_does(xp, i):
    close(xp.numpy(cur_on(xp)[xp.array(i), :]), DENSE[i])


def test_indices_of_a_small_type_do_not_overflow():
    tall = LowRankMatrix(np.arange(1000.0)[:, None], np.ones((2, 1)))
    np.testing.assert_array_equal(tall[np.array([1, -1], dtype=np.int8), 0], [1, 999])
    np.testing.assert_array_equal(tall[np.array([200], dtype=np.uint8), 0], [200])


@given(
    i=st.lists(st.integers(-N1, N1 - 1), min_size=1, max_size=5),
    j=st.lists(st.integers(-N2, N2 - 1), min_size=1, max_size=5),
)
def test_entries_are_pairs_and_broadcast(xp, i, j):
    cur = cur_on(xp)
    k = min(len(i), len(j))
    close(xp.numpy(cur.entries(i[:k], j[:k])), DENSE[i[:k], j[:k]])
    close(xp.numpy(cur.entries(np.array(i)[:, None], np.array(j)[None, :])), DENSE[np.ix_(i, j)])
    close(xp.numpy(cur.entries(i, j[0])), DENSE[i, j[0]])
    close(xp.numpy(cur.entries(i[0], j[0])), DENSE[i[0], j[0]])


@pytest.mark.parametrize(
    ("i", "j", "message"),
    [
        (N1, 0, r"index 9 is out of bounds for axis 0 with size 9"),
        (-N1 - 1, 0, r"index -10 is out of bounds for axis 0 with size 9"),
        (0, [0, N2], r"index 7 is out of bounds for axis 1 with size 7"),
        (0, [-N2 - 1, 0], r"index -8 is out of bounds for axis 1 with size 7"),
        ([True] * (N1 - 1), 0, r"a boolean index for axis 0 must have 9 entries, got shape \(8,\)"),
        (True, 0, r"an index must be an int, a slice or a vector, got True"),
        (1.0, 0, r"index must be integers, got dtype float64"),
        ([0.0, 1.0], 0, r"index must be integers, got dtype float64"),
        ("first", 0, r"index must be integers, got dtype <U5"),
        (None, 0, r"a matrix takes at most two indices, cur\[i, j\], got 2 or a new axis"),
        ([[0, 1]], slice(None), r"an index must be an int, a slice or a vector, got shape \(1, 2\)"),
    ],
)
def test_indices_out_of_range_or_of_the_wrong_type_are_errors(xp, i, j, message):
    with pytest.raises(IndexError, match=message):
        cur_on(xp)[i, j]


@pytest.mark.parametrize("key", [(1, 2, 3), (1, 2, ..., 3)])
def test_three_indices_are_an_error(key):
    with pytest.raises(IndexError, match=r"a matrix takes at most two indices, cur\[i, j\]"):
        LowRankMatrix(LEFT, RIGHT)[key]


def test_a_mask_of_another_shape_is_an_error():
    with pytest.raises(IndexError, match=r"a boolean index of two axes must have shape \(9, 7\), got \(7, 9\)"):
        LowRankMatrix(LEFT, RIGHT)[DENSE.T > 0]


def test_entries_out_of_range_are_errors():
    with pytest.raises(IndexError, match="i 9 is out of bounds for axis 0 with size 9"):
        LowRankMatrix(LEFT, RIGHT).entries([N1], [0])
    with pytest.raises(IndexError, match="j -8 is out of bounds for axis 1 with size 7"):
        LowRankMatrix(LEFT, RIGHT).entries([0], [-N2 - 1])


# ---------------------------------------------------------------- the matrix as a whole


def test_shape_rank_type_and_size(xp):
    cur = cur_on(xp, "float32")
    assert (cur.shape, cur.rank, cur.nbytes) == ((N1, N2), RANK, (N1 + N2) * RANK * 4)
    assert cur.dtype == xp.namespace.float32
    assert xp.numpy(cur[0, :]).dtype == np.float32
    assert repr(cur_on(xp)).startswith("CURMatrix(shape=(9, 7), rank=3, dtype=")


def test_products_with_vectors_and_matrices(xp):
    cur, rng = cur_on(xp), np.random.default_rng(1)
    x, X = rng.standard_normal(N2), rng.standard_normal((N2, 4))
    close(xp.numpy(cur @ xp.array(x)), DENSE @ x)
    close(xp.numpy(cur @ xp.array(X)), DENSE @ X)
    close(xp.numpy(cur.T @ xp.array(np.arange(N1))), DENSE.T @ np.arange(N1))  # integers
    close(xp.numpy(cur @ xp.array(np.arange(N2) > 2)), DENSE[:, 3:].sum(axis=1))  # truth values
    close(xp.numpy(cur @ x.tolist()), DENSE @ x)


@pytest.mark.parametrize("shape", [(N1,), (N2 + 1, 2), (1, N2), (N2, 1, 1), ()])
def test_products_that_do_not_fit_are_errors(shape):
    with pytest.raises(ValueError, match=r"cannot multiply a \(9, 7\) matrix with an array of shape"):
        LowRankMatrix(LEFT, RIGHT) @ np.ones(shape)


def test_the_transpose_is_the_transpose(xp):
    cur = cur_on(xp)
    close(xp.numpy(cur.T[:, :]), DENSE.T)
    assert isinstance(cur.T, CURMatrix)
    np.testing.assert_array_equal(cur.T.rows, COLS)
    np.testing.assert_array_equal(cur.T.cols, ROWS)
    assert cur.T.T.left is cur.left
    close(xp.numpy(LowRankMatrix(cur.left, cur.right).T.to_dense()), DENSE.T)


def test_to_dense(xp):
    close(xp.numpy(cur_on(xp).to_dense()), DENSE)


@pytest.mark.parametrize("rows_at_once", [1, 4, 100])
def test_to_dense_into_a_given_array_in_chunks_of_rows(xp, tmp_path, monkeypatch, rows_at_once):
    monkeypatch.setattr("rcurc_gpu.result.matrix.default_chunk_bytes", lambda x: rows_at_once * 8 * N2)
    out = np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="w+", shape=(N1, N2))
    assert cur_on(xp).to_dense(out=out) is out
    out.flush()
    close(np.fromfile(tmp_path / "X.bin").reshape(N1, N2), DENSE)
    here = xp.array(np.zeros((N1, N2)))
    close(xp.numpy(cur_on(xp).to_dense(out=here)), DENSE)


def test_to_dense_into_an_array_of_the_wrong_shape_is_an_error():
    with pytest.raises(ValueError, match=r"out must have shape \(9, 7\), got \(7, 9\)"):
        LowRankMatrix(LEFT, RIGHT).to_dense(out=np.empty((N2, N1)))


def test_as_a_linear_operator(xp):
    operator, rng = cur_on(xp).as_linear_operator(), np.random.default_rng(1)
    x, y, X = rng.standard_normal(N2), rng.standard_normal(N1), rng.standard_normal((N2, 2))
    assert operator.shape == (N1, N2)
    close(operator.matvec(x), DENSE @ x)
    close(operator.rmatvec(y), DENSE.T @ y)
    close(operator @ X, DENSE @ X)
    close(operator.T @ y, DENSE.T @ y)


# ---------------------------------------------------------------- as an array


def test_it_becomes_an_array():
    cur = LowRankMatrix(LEFT, RIGHT)
    close(np.asarray(cur), DENSE)
    assert np.asarray(cur, dtype=np.float32).dtype == np.float32
    close(np.abs(cur), np.abs(DENSE))
    close(abs(cur), np.abs(DENSE))
    assert np.isclose(np.linalg.norm(cur), np.linalg.norm(DENSE))
    with pytest.raises(ValueError, match="is always a copy"):
        np.asarray(cur, copy=False)


def test_an_array_on_another_device_is_not_copied_unasked(elsewhere):
    with pytest.raises(TypeError, match=r"does not copy it to the host; use cur\.to_dense\(\)"):
        np.asarray(cur_on(elsewhere))


X = _rng.standard_normal((N1, N2))
ARITHMETIC = [
    lambda x, m: x - m,
    lambda x, m: m - x,
    lambda x, m: x + m,
    lambda x, m: m + x,
    lambda x, m: x * m,
    lambda x, m: m / x,
    lambda x, m: x / m,
]


@pytest.mark.parametrize("operation", [ARITHMETIC[k] for k in (1, 3, 5)])  # array_api_strict lets no other object be right
def test_arithmetic_with_arrays_is_entry_by_entry(xp, operation):
    found = operation(xp.array(X), cur_on(xp))
    close(xp.numpy(found), operation(X, DENSE))


@pytest.mark.parametrize("operation", ARITHMETIC)
@pytest.mark.parametrize("make", ["array", "frame", "sparse", "row"])
def test_arithmetic_with_tables_of_many_kinds(operation, make):
    if make == "sparse" and operation not in ARITHMETIC[:4]:
        pytest.skip("products and quotients of sparse matrices are their own")
    made = {
        "array": lambda: X,
        "frame": lambda: pd.DataFrame(X),
        "sparse": lambda: scipy.sparse.csr_array(X),
        "row": lambda: X[0],
    }[make]()
    found = operation(made, LowRankMatrix(LEFT, RIGHT))
    assert isinstance(found, pd.DataFrame) == (make == "frame")
    close(np.asarray(found), operation(X[0] if make == "row" else X, DENSE))


@pytest.mark.parametrize(
    "scale", [lambda m: m * 2, lambda m: 2 * m, lambda m: np.float64(2) * m, lambda m: m / 0.5, lambda m: -m * -2]
)
def test_times_a_number_it_stays_a_matrix_of_factors(xp, scale):
    found = scale(cur_on(xp))
    assert isinstance(found, CURMatrix)
    np.testing.assert_array_equal(found.rows, ROWS)
    close(xp.numpy(found.to_dense()), 2 * DENSE)
    assert isinstance(2 * LowRankMatrix(LEFT, RIGHT), LowRankMatrix)


def test_standard_deviations_scale_with_the_matrix():
    rng = np.random.default_rng(0)
    noisy = rng.standard_normal((80, 2)) @ rng.standard_normal((2, 60)) + 0.1 * rng.standard_normal((80, 60))
    cur = robust_pca(noisy).cur
    (x, std), (scaled, scaled_std) = (m.entries([0, 5], [3, 4], return_std=True) for m in (cur, -2 * cur))
    close(scaled, -2 * x)
    close(scaled_std, 2 * std, tolerance=1e-6)
    assert (0 * cur).uncertainty is None


def test_sums_of_two_are_matrices_of_factors(xp):
    one, two = cur_on(xp), LowRankMatrix(xp.array(LEFT[:, ::-1]), xp.array(RIGHT))
    other = LEFT[:, ::-1] @ RIGHT.T
    assert isinstance(one - two, LowRankMatrix)
    close(xp.numpy((one - two).to_dense()), DENSE - other)
    close(xp.numpy((one + two).to_dense()), DENSE + other)
    close(xp.numpy(one * two), DENSE * other)
    with pytest.raises(ValueError, match=r"matrices of shapes \(9, 7\) and \(7, 9\) cannot be added"):
        one + one.T


@pytest.mark.parametrize(
    ("form", "what"),
    [
        (np.asarray, r"np\.asarray\(cur\)"),
        (lambda m: m[:], r"cur\[\.\.\.\]"),
        (lambda m: np.ones(1) - m, r"np\.asarray\(cur\)"),
        (lambda m: m - 1, r"cur - X"),
        (lambda m: 1 / m, r"X / cur"),
        (lambda m: m[:20_000], r"cur\[\.\.\.\]"),
        (np.max, r"np\.asarray\(cur\)"),
        (lambda m: 1.0 in m, "x in cur"),
        *((f, "going through all rows of cur") for f in (iter, reversed, list, sorted, max)),
    ],
)
def test_what_would_be_too_large_is_refused_and_the_alternative_named(form, what):
    large = LowRankMatrix(np.ones((1_000_000, 1)), np.ones((1_000_000, 1)))
    with pytest.raises(
        ValueError, match=what + r" would form .* x 1,000,000 numbers .* at most 1 GiB .* cur\.to_dense\(out=\.\.\.\)"
    ):
        form(large)
    assert large[7].shape == (1_000_000,)
    assert (2 * large)[5, 5] == 2
    assert (large - large)[3, 4] == 0


# ---------------------------------------------------------------- C U^+ R


def test_c_u_r_are_parts_of_the_matrix_and_give_it_back(xp):
    cur = cur_on(xp)
    C, U, R = (xp.numpy(x) for x in (cur.C, cur.U, cur.R))
    close(C, DENSE[:, COLS])
    close(U, DENSE[np.ix_(ROWS, COLS)])
    close(R, DENSE[ROWS])
    close(C @ np.linalg.pinv(U, rcond=1e-10) @ R, DENSE, tolerance=1e-11)


# ---------------------------------------------------------------- undetermined rows and columns


def test_undetermined_rows_and_columns_are_nan_and_the_rest_is_not(xp):
    left, right = blank_rows(xp.array(LEFT), np.array([2])), blank_rows(xp.array(RIGHT), np.array([5, 0]))
    expected = DENSE.copy()
    expected[2], expected[:, [5, 0]] = np.nan, np.nan
    close(xp.numpy(LowRankMatrix(left, right).to_dense()), expected)
    same = xp.array(LEFT)
    assert blank_rows(same, np.array([], dtype=int)) is same


def test_join_units_puts_the_core_where_it_belongs(xp):
    chosen, others = [5, 1, 2], [0, 3, 4, 6]
    values = np.arange(14.0).reshape(7, 2)
    joined = join_units(xp.array(values[chosen]), xp.array(values[others]), np.array(chosen), 7)
    np.testing.assert_array_equal(xp.numpy(joined), values)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_saved_is_loaded(xp, tmp_path, dtype):
    cur_on(xp, dtype).save(tmp_path / "X.npz")
    host = CURMatrix.load(tmp_path / "X.npz")
    there = CURMatrix.load(tmp_path / "X.npz", like=xp.array([0.0]))
    for loaded, left in ((host, host.left), (there, xp.numpy(there.left))):
        np.testing.assert_array_equal(left, LEFT.astype(dtype))
        assert left.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(loaded.rows, ROWS)
        np.testing.assert_array_equal(loaded.cols, COLS)
    np.testing.assert_array_equal(host.right, RIGHT.astype(dtype))


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "X.npz"
    CURMatrix(LEFT, RIGHT, ROWS, COLS).save(path)
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"X\.npz' is not a CURMatrix file, or is truncated"):
        CURMatrix.load(path)


def test_factors_that_do_not_fit_are_an_error():
    with pytest.raises(ValueError, match=r"same number of columns, got \(9, 3\) and \(7, 2\)"):
        LowRankMatrix(LEFT, RIGHT[:, :2])


def test_an_array_times_the_matrix():
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((7, 2)), rng.standard_normal((5, 2))
    cur = CURMatrix(left, right, np.arange(3), np.arange(2))
    x, Y = rng.standard_normal(7), rng.standard_normal((4, 7))
    np.testing.assert_allclose(x @ cur, x @ left @ right.T)
    np.testing.assert_allclose(Y @ cur, Y @ left @ right.T)


def test_powers_and_comparisons_are_those_of_the_entries():
    rng = np.random.default_rng(0)
    cur = LowRankMatrix(rng.standard_normal((5, 2)), rng.standard_normal((4, 2)))
    X = np.asarray(cur)
    np.testing.assert_array_equal(cur**2, X**2)
    for found, wanted in ((cur > 0, X > 0), (cur >= X, X >= X), (cur < 0.1, X < 0.1), (cur <= 0, X <= 0)):
        np.testing.assert_array_equal(found, wanted)


def test_what_is_too_large_says_its_size_in_full():
    big = LowRankMatrix(np.ones((10**6, 1)), np.ones((10**6, 1)))
    with pytest.raises(ValueError, match=r"cur \*\* X would form 1,000,000 x 1,000,000 numbers \(7,450\.6 GiB\)"):
        big**2


def test_a_small_matrix_is_gone_through_as_an_array_is():
    cur = LowRankMatrix(np.arange(1.0, 4.0)[:, None], np.arange(1.0, 3.0)[:, None])
    np.testing.assert_array_equal(list(cur), [[1, 2], [2, 4], [3, 6]])
    np.testing.assert_array_equal(list(reversed(cur)), [[3, 6], [2, 4], [1, 2]])
    assert 4.0 in cur
    assert 5.0 not in cur
