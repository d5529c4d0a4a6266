"""Numbers for labels that come a piece at a time."""

import tracemalloc

import numpy as np
import pytest

from rcurc_gpu.io.numbering import LabelColumn, LabelNumbers


def column(labels: np.ndarray) -> LabelColumn:
    """Whole-number labels, each once, as a reader gives them; making text of them is an error here."""
    return LabelColumn(np.arange(len(labels)), lambda: labels, lambda: pytest.fail("labels were made text"))


def numbered(numbers: LabelNumbers, labels: np.ndarray) -> np.ndarray:
    prepared = numbers.prepared(column(labels))
    assert prepared is not None
    return numbers.of(prepared)


def test_whole_numbers_far_from_each_other_take_little_memory():
    rng = np.random.default_rng(0)
    labels = np.unique(rng.integers(0, 1 << 60, 100_000))
    rng.shuffle(labels)
    pieces = np.array_split(labels, 7)
    tracemalloc.start()
    numbers = LabelNumbers()
    found = [numbered(numbers, piece) for piece in pieces]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # 200 bytes each would be 20 MB, at the end alone
    np.testing.assert_array_equal(np.concatenate(found), np.arange(len(labels)))  # in the order in which they come
    again = rng.permutation(len(labels))[:1000]
    np.testing.assert_array_equal(numbered(numbers, labels[again]), again)
    assert numbers.label(5) == str(labels[5])
    place, names = numbers.final()
    np.testing.assert_array_equal(place, np.arange(len(labels)))  # with 19 digits they may not fit: they are not sorted
    np.testing.assert_array_equal(names, labels.astype(str))


def test_labels_that_lie_close_keep_their_numbers_when_others_come_from_far():
    numbers = LabelNumbers()
    np.testing.assert_array_equal(numbered(numbers, np.asarray([7, 3, 5])), [0, 1, 2])
    np.testing.assert_array_equal(numbered(numbers, np.asarray([1 << 60, 3, -(1 << 60), 7, 4])), [3, 1, 4, 0, 5])
    np.testing.assert_array_equal(numbered(numbers, np.asarray([4, 1 << 60, 6])), [5, 3, 6])
    assert numbers.text == {str(x): k for k, x in enumerate((7, 3, 5, 1 << 60, -(1 << 60), 4, 6))}
