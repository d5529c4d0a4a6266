"""Numbers for labels that come a piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from .labels import wrong_with_label

# Whole numbers in a range of this size (16 MB as int32) are looked up in a table however few they are. A larger range needs
# one label for every 16 numbers in it: else the table would take more memory than sorted labels.
_TABLE = 1 << 22
_DIGITS = 18  # longer whole numbers may not fit into int64; they keep the order in which they come


class Encoded(NamedTuple):
    """Labels of many observations, each label kept once.

    Attributes
    ----------
    codes : int array (n,)
        The place of each observation's label in `names`.
    names : list of str or str array (k,)
    """

    codes: np.ndarray
    names: Any


@dataclass(frozen=True, eq=False)
class LabelColumn:
    """The labels of some observations, each label kept once, in the order in which they come.

    Attributes
    ----------
    codes : int array (n,)
        The place of each observation's label among the k labels.
    whole : callable
        Gives the labels as int64 array (k,), or None if not all are whole numbers in their usual writing.
    text : callable
        Gives them as a list of str.
    """

    codes: np.ndarray
    whole: Callable[[], np.ndarray | None]
    text: Callable[[], list[str]]


Piece = tuple[np.ndarray, np.ndarray, np.ndarray]  # numbers of rows, of columns, values (NaN for none; `observed_dtype`)


class LabelNumbers:
    """Gives each label a number when it first comes; blanks around a label do not count.

    As long as all labels are whole numbers, which is usual for large tables and ten times as fast, they are not made text,
    which would take some 200 bytes for each.
    """

    def __init__(self) -> None:
        self._text: dict[str, int] = {}
        self._table: _IntegerTable | _SortedIntegers | None = _IntegerTable()

    def __len__(self) -> int:
        return len(self._text) if self._table is None else len(self._table.values)

    @property
    def text(self) -> dict[str, int]:
        """The number of each label as text; from now on all of them are."""
        if self._table is not None:
            self._text = {str(value): k for k, value in enumerate(self._table.values.tolist())}
            self._table = None
        return self._text

    def prepared(self, column: LabelColumn) -> np.ndarray | list[str] | None:
        """What `of` takes; None if one cannot be a label. Nothing gets a number yet."""
        if self._table is not None and (whole := column.whole()) is not None:
            if not self._table.covers(whole):
                self._table = _SortedIntegers(self._table.values)
            return whole
        known, names = self.text, column.text()
        return None if any(wrong_with_label(name) for name in names if name not in known) else names

    def of(self, labels: np.ndarray | list[str]) -> np.ndarray:
        """The numbers of labels, int32 (k,)."""
        if self._table is not None and isinstance(labels, np.ndarray):
            return self._table.of(labels)
        known = self.text
        numbers = list(map(known.get, labels))
        for k, number in enumerate(numbers):
            if number is None:
                numbers[k] = known.setdefault(labels[k].strip(), len(known))
        return np.asarray(numbers, np.int32)

    def label(self, number: int) -> str:
        """The label with a number."""
        return next(islice(self._text, number, None)) if self._table is None else str(self._table.values[number])

    def final(self) -> tuple[np.ndarray, np.ndarray]:
        """The number that each label has in the end (whole numbers ascend), int64 (k,), and the labels in that order."""
        if self._table is not None:
            values = self._table.values
            width = max(len(str(values.min())), len(str(values.max()))) if len(values) else 1
            labels, ascend = values.astype(f"U{width}"), width <= _DIGITS
        else:
            labels = np.asarray(list(self._text), dtype=str)
            ascend = all(t.removeprefix("-").isdecimal() and t.isascii() and len(t) <= _DIGITS for t in self._text)
            values = np.asarray(list(self._text), dtype=np.int64) if ascend else np.empty(0, np.int64)
        if not ascend:
            return np.arange(len(labels)), labels
        order = np.argsort(values, kind="stable")  # stable: "7" and "07" are two labels
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        return place, labels[order]


@dataclass(frozen=True, eq=False)
class TableNumbers:
    """The numbers of the rows and of the columns of a table."""

    rows: LabelNumbers = field(default_factory=LabelNumbers)
    cols: LabelNumbers = field(default_factory=LabelNumbers)

    def piece(self, row: LabelColumn, column: LabelColumn, values: np.ndarray) -> Piece | None:
        """Observations with numbers for labels; None, and no new number, if something cannot be a label."""
        rows, cols = self.rows.prepared(row), self.cols.prepared(column)
        if rows is None or cols is None:
            return None
        return self.rows.of(rows)[row.codes], self.cols.of(cols)[column.codes], values


class _IntegerTable:
    """Numbers of whole numbers that lie close to each other, looked up in a table."""

    def __init__(self) -> None:
        self.values = np.empty(0, np.int64)  # by their numbers
        self._low, self._numbers = 0, np.empty(0, np.int32)

    def covers(self, values: np.ndarray) -> bool:
        """Make the table cover these values, unless it would be too large for how many there are."""
        low, high = int(values.min()), int(values.max())
        size = len(self._numbers)
        if size:
            low, high = min(low, self._low), max(high, self._low + size - 1)
        if high - low + 1 == size:
            return True
        size = high - low + 1
        if size > max(_TABLE, 16 * (len(self.values) + len(values))):
            return False
        size = min(2 * size, max(_TABLE, size))  # with room, so that it does not grow each time
        numbers = np.full(size, -1, np.int32)
        numbers[self.values - low] = np.arange(len(self.values), dtype=np.int32)
        self._low, self._numbers = low, numbers
        return True

    def of(self, values: np.ndarray) -> np.ndarray:
        """The numbers of distinct values, int32 (k,); new ones get the next in the order in which they stand."""
        numbers = self._numbers[values - self._low]
        new = numbers < 0
        if new.any():
            fresh = values[new]
            numbers[new] = np.arange(len(self.values), len(self.values) + len(fresh))
            self._numbers[fresh - self._low] = numbers[new]
            self.values = np.concatenate([self.values, fresh])
        return numbers


class _SortedIntegers:
    """Numbers of whole numbers far from each other, found by bisection: memory goes with how many there are."""

    def __init__(self, values: np.ndarray) -> None:
        self.values, self._numbers = values, np.argsort(values)
        self._known = values[self._numbers]

    def covers(self, values: np.ndarray) -> bool:
        """Any values."""
        return True

    def of(self, values: np.ndarray) -> np.ndarray:
        """The numbers of distinct values, int32 (k,); new ones get the next in the order in which they stand."""
        place = np.searchsorted(self._known, values)
        there = place < len(self._known)
        there[there] = self._known[place[there]] == values[there]
        numbers = np.empty(len(values), np.int32)
        numbers[there] = self._numbers[place[there]]
        numbers[~there] = np.arange(len(self.values), len(self.values) + np.count_nonzero(~there))
        new = np.flatnonzero(~there)[np.argsort(values[~there])]
        self._known = np.insert(self._known, place[new], values[new])
        self._numbers = np.insert(self._numbers, place[new], numbers[new])
        self.values = np.concatenate([self.values, values[~there]])
        return numbers
