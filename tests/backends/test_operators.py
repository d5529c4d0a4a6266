"""Hard threshold, union sum and truncated SVD against plain NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rcurc_gpu import hard_threshold, truncated_svd, union_sum

numbers = st.floats(-100, 100, allow_subnormal=False)
matrices = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=numbers)
steps = st.floats(0.1, 10)


def same_shape(*kinds):
    """Several matrices of one shape, each of numbers or of truth values."""
    shapes = hnp.array_shapes(min_dims=2, max_dims=2, max_side=5)
    elements = {float: numbers, bool: st.booleans()}
    return shapes.flatmap(lambda shape: st.tuples(*(hnp.arrays(kind, shape, elements=elements[kind]) for kind in kinds)))


# ---------------------------------------------------------------- hard threshold


@given(M=matrices, zeta=st.floats(0, 120))
def test_what_is_below_the_threshold_becomes_0_and_the_rest_stays(xp, M, zeta):
    found = xp.numpy(hard_threshold(xp.array(M), zeta))
    expected = M.copy()
    for place in np.ndindex(M.shape):
        if -zeta < M[place] < zeta:
            expected[place] = 0.0
    np.testing.assert_array_equal(found, expected)


def test_an_entry_as_large_as_the_threshold_stays(xp):
    M = xp.array([[2.0, -2.0, 1.999, -1.999]])
    np.testing.assert_array_equal(xp.numpy(hard_threshold(M, 2.0)), [[2.0, -2.0, 0.0, 0.0]])


@given(M=matrices, zeta=st.floats(0, 120))
def test_a_second_threshold_changes_nothing(xp, M, zeta):
    once = hard_threshold(xp.array(M), zeta)
    np.testing.assert_array_equal(xp.numpy(hard_threshold(once, zeta)), xp.numpy(once))


@given(M=matrices, data=st.data())
def test_each_row_may_have_a_threshold_of_its_own(xp, M, data):
    zeta = data.draw(hnp.arrays(np.float64, (M.shape[0], 1), elements=st.floats(0, 120)))
    found = xp.numpy(hard_threshold(xp.array(M), xp.array(zeta)))
    for k in range(M.shape[0]):
        np.testing.assert_array_equal(found[k], [0.0 if abs(x) < zeta[k, 0] else x for x in M[k]])


def test_the_threshold_keeps_float32(xp):
    assert xp.numpy(hard_threshold(xp.array([[1.0, 3.0]], "float32"), 2.0)).dtype == np.float32


# ---------------------------------------------------------------- union sum


def expected_union_sum(R, C, seen_R, seen_C, eta_R, eta_C, X):
    """The paper's formula, entry by entry."""
    out = np.empty_like(R)
    for k in np.ndindex(R.shape):
        if seen_R[k] and seen_C[k]:
            out[k] = eta_R * eta_C / (eta_R + eta_C) * (R[k] / eta_R + C[k] / eta_C)
        elif seen_R[k]:
            out[k] = R[k]
        elif seen_C[k]:
            out[k] = C[k]
        else:
            out[k] = 0.0 if X is None else X[k]
    return out


@pytest.mark.parametrize("keep", [True, False], ids=["with X", "as printed"])
@given(parts=same_shape(float, float, float, bool, bool), eta_R=steps, eta_C=steps)
def test_union_sum_is_the_formula_of_the_paper_in_all_four_cases(xp, keep, parts, eta_R, eta_C):
    R, C, X, seen_R, seen_C = parts
    X = X if keep else None
    found = union_sum(*map(xp.array, (R, C, seen_R, seen_C)), eta_R, eta_C, None if X is None else xp.array(X))
    expected = expected_union_sum(R, C, seen_R, seen_C, eta_R, eta_C, X)
    np.testing.assert_allclose(xp.numpy(found), expected, rtol=1e-12, atol=1e-12)


@given(parts=same_shape(float, float, float, bool, bool), eta_R=steps, eta_C=steps)
def test_union_sum_does_not_care_which_block_is_called_R(xp, parts, eta_R, eta_C):
    R, C, X, seen_R, seen_C = map(xp.array, parts)
    one, other = union_sum(R, C, seen_R, seen_C, eta_R, eta_C, X), union_sum(C, R, seen_C, seen_R, eta_C, eta_R, X)
    np.testing.assert_allclose(xp.numpy(one), xp.numpy(other), rtol=1e-13, atol=1e-13)


def test_a_longer_step_has_the_smaller_weight(xp):
    seen = xp.array([[True]])
    found = union_sum(xp.array([[1.0]]), xp.array([[5.0]]), seen, seen, 3.0, 1.0)
    assert xp.numpy(found)[0, 0] == 4.0  # (1/3 * 1 + 1 * 5) / (1/3 + 1)


# ---------------------------------------------------------------- truncated SVD


def matrix_with_singular_values(shape, s, seed):
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((n, len(s)))).Q for n in shape)
    return (left * s) @ right.T


@given(
    m=st.integers(4, 30),
    n=st.integers(4, 30),
    rank=st.integers(1, 4),
    ratio=st.floats(0.01, 0.5),
    seed=st.integers(0, 2**32 - 1),
)
def test_truncated_svd_agrees_with_the_full_one_where_there_is_a_gap(xp, m, n, rank, ratio, seed):
    leading = np.linspace(2.0, 1.0, rank)
    M = matrix_with_singular_values((m, n), np.append(leading, ratio * np.ones(min(m, n) - rank)), seed)
    W, s, V = (xp.numpy(x) for x in truncated_svd(xp.array(M), rank))
    u, expected_s, vt = np.linalg.svd(M)
    assert W.shape == (m, rank)
    assert V.shape == (n, rank)
    np.testing.assert_allclose(s, expected_s[:rank], atol=1e-9)
    np.testing.assert_allclose(W.T @ W, np.eye(rank), atol=1e-12)
    np.testing.assert_allclose(V.T @ V, np.eye(rank), atol=1e-12)
    np.testing.assert_allclose((W * s) @ V.T, (u[:, :rank] * expected_s[:rank]) @ vt[:rank], atol=1e-8)


def test_truncated_svd_of_the_full_rank_gives_the_matrix_back(xp):
    M = np.random.default_rng(0).standard_normal((5, 7))
    W, s, V = (xp.numpy(x) for x in truncated_svd(xp.array(M), 5))
    np.testing.assert_allclose((W * s) @ V.T, M, atol=1e-12)


def test_truncated_svd_keeps_float32(xp):
    M = matrix_with_singular_values((20, 15), [3.0, 2.0], 1).astype(np.float32)
    parts = [xp.numpy(x) for x in truncated_svd(xp.array(M), 2, tol=1e-5)]
    assert all(x.dtype == np.float32 for x in parts)
    W, s, V = parts
    np.testing.assert_allclose((W * s) @ V.T, M, atol=1e-5)


def test_a_start_near_the_solution_saves_all_but_two_steps(xp):
    M = matrix_with_singular_values((40, 30), [3.0, 2.0, 1.0] + [0.9] * 20, 2)
    vt = np.linalg.svd(M)[2]
    W, s, V = (xp.numpy(x) for x in truncated_svd(xp.array(M), 3, start=xp.array(vt[:3].T), steps=2))
    u, expected_s, vt = np.linalg.svd(M)
    np.testing.assert_allclose((W * s) @ V.T, (u[:, :3] * expected_s[:3]) @ vt[:3], atol=1e-10)


@pytest.mark.parametrize("rank", [0, -1, 5])
def test_a_rank_that_the_matrix_does_not_have_is_an_error(xp, rank):
    with pytest.raises(ValueError, match=rf"rank must be at least 1 and at most 4, got {rank}"):
        truncated_svd(xp.array(np.eye(4, 6)), rank)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"tol": -1.0}, r"tol must be in \[0, inf\), got -1.0"),
        ({"start": np.ones((4, 2))}, r"start must be a matrix with 6 rows and at least 2 columns, got shape \(4, 2\)"),
        ({"start": np.ones((6, 1))}, r"start must be a matrix with 6 rows and at least 2 columns, got shape \(6, 1\)"),
    ],
)
def test_other_arguments_that_cannot_be_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        truncated_svd(np.eye(4, 6), 2, **options)
