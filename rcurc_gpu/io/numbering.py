"""Numbers for labels that come a piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from .labels import encode, wrong_with_label

Named = tuple[np.ndarray, list[str]]  # for each observation the place of its label, and the labels
_LARGE, _SMALL = 10**18, -(10**17)  # whole numbers between them are sorted as numbers, by the rule of `encode`
_TABLE = 1 << 22  # whole numbers in a range of this size are looked up in a table, however few they are


@dataclass(frozen=True, eq=False)
class LabelColumn:
    """The labels of some observations.

    Attributes
    ----------
    whole : int64 array (n,) or None
        The labels, if all are whole numbers in their usual writing.
    name : callable
        Gives them as text.
    """

    whole: np.ndarray | None
    name: Callable[[], Named]


class Numbers:
    """Gives each label a number when it first comes; blanks around a label do not count.

    As long as all labels are whole numbers, which is usual for large tables and ten times as fast, they are not made text.
    """

    def __init__(self) -> None:
        self._text: dict[str, int] = {}
        self._whole: _WholeNumbers | None = _WholeNumbers()

    def __len__(self) -> int:
        return len(self._text) if self._whole is None else len(self._whole)

    @property
    def text(self) -> dict[str, int]:
        """The number of each label as text; from now on all of them are."""
        if self._whole is not None:
            self._text = {str(value): k for k, value in enumerate(self._whole.values.tolist())}
            self._whole = None
        return self._text

    def prepared(self, column: LabelColumn) -> np.ndarray | Named | None:
        """What `of` takes; None if one cannot be a label. Nothing gets a number yet."""
        if self._whole is not None and column.whole is not None:
            return column.whole
        codes, names = column.name()
        known = self.text
        return None if any(wrong_with_label(name) for name in names if name not in known) else (codes, names)

    def of(self, labels: np.ndarray | Named) -> np.ndarray:
        """The number of each observation's label, int64 (n,)."""
        if self._whole is not None and isinstance(labels, np.ndarray):
            return self._whole.of(labels)
        codes, names = labels
        known = self.text
        numbers = (known[name] if name in known else known.setdefault(name.strip(), len(known)) for name in names)
        return np.fromiter(numbers, np.int64, len(names))[codes]

    def label(self, number: int) -> str:
        """The label with a number."""
        return next(islice(self._text, number, None)) if self._whole is None else str(self._whole.values[number])

    def final(self) -> tuple[np.ndarray, np.ndarray]:
        """The number that each label has in the end (whole numbers ascend), int64 (k,), and the labels in that order."""
        if self._whole is not None and len(self._whole):
            values = self._whole.values
            low, high = int(values.min()), int(values.max())
            if low > _SMALL and high < _LARGE:
                order = np.argsort(values)
                place = np.empty(len(values), np.int64)
                place[order] = np.arange(len(values))
                return place, values[order].astype(f"U{max(len(str(low)), len(str(high)))}")
        encoded = encode(np.arange(len(self)), list(self.text))
        return encoded.codes, encoded.names


class _WholeNumbers:
    """Numbers of whole numbers: in a table if they are dense, sorted if not, so that memory goes with how many there are."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._count = 0
        self._low, self._table = 0, np.empty(0, np.int32)
        self._sorted: tuple[np.ndarray, np.ndarray] | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> np.ndarray:
        """All of them, by their numbers."""
        self._parts = [np.concatenate(self._parts)] if self._parts else [np.empty(0, np.int64)]
        return self._parts[0]

    def of(self, values: np.ndarray) -> np.ndarray:
        """The number of each, int64 (n,); new ones get the next in the order in which they stand."""
        if not len(values):
            return np.empty(0, np.int64)
        if self._sorted is None and self._covered(int(values.min()), int(values.max()), len(values)):
            numbers = self._table[values - self._low]
            new = np.flatnonzero(numbers < 0)
            if len(new):
                fresh = self._next(values[new])
                self._table[fresh - self._low] = np.arange(self._count - len(fresh), self._count)
                numbers[new] = self._table[values[new] - self._low]
            return numbers.astype(np.int64)
        return self._of_sorted(values)

    def _next(self, new: np.ndarray) -> np.ndarray:
        """Remember new values, each once in the order in which they first stand."""
        unique, first = np.unique(new, return_index=True)
        fresh = unique[np.argsort(first)]
        self._parts.append(fresh)
        self._count += len(fresh)
        return fresh

    def _covered(self, low: int, high: int, n: int) -> bool:
        """Make the table cover a range, if that is not too much for how many there are; else sort from now on."""
        if len(self._table):
            low, high = min(low, self._low), max(high, self._low + len(self._table) - 1)
        size = high - low + 1
        if size == len(self._table):
            return True
        if size > max(_TABLE, 16 * (self._count + n)):
            values = self.values
            order = np.argsort(values)
            self._sorted, self._table = (values[order], order), np.empty(0, np.int32)
            return False
        size = min(2 * size, max(_TABLE, size))  # with room, so that it does not grow each time
        table = np.full(size, -1, np.int32)
        if len(self._table):
            table[self._low - low : self._low - low + len(self._table)] = self._table
        self._low, self._table = low, table
        return True

    def _of_sorted(self, values: np.ndarray) -> np.ndarray:
        assert self._sorted is not None
        known, numbers = self._sorted
        unique, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        place = np.searchsorted(known, unique)
        there = np.zeros(len(unique), dtype=bool) if not len(known) else known[np.minimum(place, len(known) - 1)] == unique
        found = np.empty(len(unique), np.int64)
        found[there] = numbers[place[there]]
        if not there.all():
            new = unique[~there]
            order = np.argsort(first[~there])
            found_new = np.empty(len(new), np.int64)
            found_new[order] = self._count + np.arange(len(new))
            found[~there] = found_new
            self._parts.append(new[order])
            self._count += len(new)
            self._sorted = np.insert(known, place[~there], new), np.insert(numbers, place[~there], found_new)
        return found[inverse]
