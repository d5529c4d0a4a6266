"""Ragged observations against dense matrices with a mask."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rcurc_gpu.backends.blocks import Block, others, pieces
from rcurc_gpu.backends.chunks import ChunkPlan, load_chunk

UNSEEN = np.nan


@st.composite
def dense_units(draw, max_units=8, max_length=6):
    """A matrix (units, length) with NaN where nothing was seen; some units, or all, may be empty. 0 is an observation."""
    shape = (draw(st.integers(1, max_units)), draw(st.integers(1, max_length)))
    values = draw(hnp.arrays(np.float64, shape, elements=st.integers(-5, 5)))
    seen = draw(hnp.arrays(bool, shape))
    seen[draw(hnp.arrays(bool, shape[0]))] = False
    return np.where(seen, values, UNSEEN)


def block_of(xp, dense, dtype="float64"):
    """The block of a dense matrix, entry by entry."""
    indptr, index, value = [0], [], []
    for unit in dense:
        for k, x in enumerate(unit):
            if not np.isnan(x):
                index.append(k)
                value.append(x)
        indptr.append(len(index))
    return Block(xp.array(indptr, "int64"), xp.array(index, "int32"), xp.array(value, dtype), dense.shape[1])


def dense_of(xp, block):
    """The matrix of a block, NaN where nothing was seen; every entry must stand in its place once and in order."""
    indptr, index, value = (xp.numpy(x) for x in (block.indptr, block.index, block.value))
    assert indptr[0] == 0
    assert indptr[-1] == len(index) == len(value)
    out = np.full((len(indptr) - 1, block.length), UNSEEN)
    for unit, (start, stop) in enumerate(pairwise(indptr)):
        assert (np.diff(index[start:stop]) > 0).all()
        out[unit, index[start:stop]] = value[start:stop]
    return out


# ---------------------------------------------------------------- Block


@given(dense=dense_units())
def test_a_block_counts_what_was_seen(xp, dense):
    block = block_of(xp, dense)
    seen = ~np.isnan(dense)
    assert (block.n_units, block.length, block.n_obs) == (*dense.shape, seen.sum())
    np.testing.assert_array_equal(block.counts, seen.sum(axis=1))
    np.testing.assert_array_equal(xp.numpy(block.unit_of_entry()), np.nonzero(seen)[0])


@pytest.mark.parametrize(("dtype", "bytes_each"), [("float32", 4), ("float64", 8)])
def test_nbytes_is_the_size_of_the_arrays(xp, dtype, bytes_each):
    block = block_of(xp, np.array([[1.0, UNSEEN], [2.0, 3.0], [UNSEEN, UNSEEN]]), dtype)
    assert block.nbytes == 3 * (4 + bytes_each) + 4 * 8


@given(dense=dense_units())
def test_transpose_exchanges_units_and_positions(xp, dense):
    flipped = block_of(xp, dense).transpose()
    np.testing.assert_array_equal(dense_of(xp, flipped), dense.T)
    assert (xp.numpy(flipped.indptr).dtype, xp.numpy(flipped.index).dtype) == (np.int64, np.int32)


@given(dense=dense_units(), data=st.data())
def test_take_units_takes_them_in_the_order_asked_for_and_as_often(xp, dense, data):
    units = np.asarray(data.draw(st.lists(st.integers(0, len(dense) - 1), max_size=10)), dtype=np.int64)
    np.testing.assert_array_equal(dense_of(xp, block_of(xp, dense).take_units(units)), dense[units])


def test_methods_keep_float32(xp):
    block = block_of(xp, np.array([[1.0, UNSEEN], [2.0, 3.0]]), "float32")
    for made in (block.transpose(), block.take_units(np.array([1]))):
        assert xp.numpy(made.value).dtype == np.float32
    assert xp.numpy(load_chunk(block, np.array([0, 1])).value).dtype == np.float32


# ---------------------------------------------------------------- ChunkPlan


@st.composite
def planned(draw):
    counts = np.asarray(draw(st.lists(st.integers(0, 50), min_size=1, max_size=40)))
    units = np.flatnonzero(draw(hnp.arrays(bool, len(counts))))
    bytes_per_entry, limit = draw(st.integers(1, 64)), draw(st.integers(1, 5000))
    return counts, units, bytes_per_entry, limit


@given(case=planned())
def test_a_plan_has_every_unit_once(case):
    counts, units, bytes_per_entry, limit = case
    chunks = list(ChunkPlan.of(counts, units, bytes_per_entry, limit))
    assert sorted(u for chunk in chunks for u in chunk) == list(units)
    assert all(len(chunk) > 0 for chunk in chunks)


@given(case=planned())
def test_a_chunk_stays_below_the_limit_unless_it_is_one_unit(case):
    counts, units, bytes_per_entry, limit = case
    plan = ChunkPlan.of(counts, units, bytes_per_entry, limit)
    for chunk in plan:
        padded = len(chunk) * max(counts[chunk].max(), 1) * bytes_per_entry
        assert padded <= limit or len(chunk) == 1


@given(case=planned())
def test_no_two_chunks_that_follow_each_other_would_fit_into_one(case):
    counts, units, bytes_per_entry, limit = case
    chunks = list(ChunkPlan.of(counts, units, bytes_per_entry, limit))
    for one, following in pairwise(chunks):
        first_of_next = np.append(one, following[0])
        assert len(first_of_next) * max(counts[first_of_next].max(), 1) * bytes_per_entry > limit


@given(case=planned())
def test_restore_brings_results_of_the_chunks_back_into_the_order_of_the_units(case):
    counts, units, bytes_per_entry, limit = case
    plan = ChunkPlan.of(counts, units, bytes_per_entry, limit)
    results = np.concatenate([10.0 * chunk for chunk in plan] or [[]])
    np.testing.assert_array_equal(results[plan.restore()], 10.0 * units)


def test_a_chunk_may_fill_the_limit():
    assert len(ChunkPlan.of(np.full(8, 5), np.arange(8), 8, 4 * 5 * 8)) == 2
    assert len(ChunkPlan.of(np.full(8, 5), np.arange(8), 8, 4 * 5 * 8 - 1)) == 3


def test_counts_that_differ_a_thousandfold_leave_little_padding():
    counts = np.asarray([1] * 1000 + [1000] * 10)
    plan = ChunkPlan.of(counts, np.arange(len(counts)), 8, 1 << 16)
    padded = sum(len(chunk) * counts[chunk].max() for chunk in plan)
    assert padded <= 1.2 * counts.sum()


# ---------------------------------------------------------------- load_chunk


@given(dense=dense_units(), data=st.data())
def test_a_chunk_holds_what_was_seen_of_its_units_and_padding(xp, dense, data):
    units = np.asarray(data.draw(st.lists(st.integers(0, len(dense) - 1), min_size=1, max_size=8)))
    chunk = load_chunk(block_of(xp, dense), units)
    found, index, value, seen = (xp.numpy(x) for x in (chunk.units, chunk.index, chunk.value, chunk.seen))
    np.testing.assert_array_equal(found, units)
    assert index.shape == value.shape == seen.shape == (len(units), max((~np.isnan(dense[units])).sum(axis=1).max(), 1))
    for k, unit in enumerate(units):
        place = np.flatnonzero(~np.isnan(dense[unit]))
        np.testing.assert_array_equal(index[k, seen[k]], place)
        np.testing.assert_array_equal(value[k, seen[k]], dense[unit, place])
    assert (value[~seen] == 0).all()
    assert ((index >= 0) & (index < dense.shape[1])).all()


def test_a_chunk_of_a_block_without_observations_is_all_padding(xp):
    chunk = load_chunk(block_of(xp, np.full((3, 4), UNSEEN)), np.array([2, 0]))
    assert not xp.numpy(chunk.seen).any()
    assert not xp.numpy(chunk.value).any()
    assert np.isin(xp.numpy(chunk.index), np.arange(4)).all()


def test_others_are_the_numbers_that_were_not_chosen_in_ascending_order():
    np.testing.assert_array_equal(others(np.array([4, 0, 2]), 6), [1, 3, 5])
    assert others(np.arange(3), 3).size == 0


@given(hnp.arrays(np.int64, st.integers(0, 20), elements=st.integers(0, 50)), st.integers(1, 60))
def test_pieces_cover_all_units_once_and_none_is_empty(counts, size):
    edges = pieces(counts, size)
    assert edges[0] == 0
    assert edges[-1] == len(counts)
    assert (np.diff(edges) > 0).all()
