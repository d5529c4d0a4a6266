"""The user's own names of rows and columns, kept beside what knows numbers only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from .. import files
from ..samples.cross import CrossSamples
from ..summary import Fields

LONGEST = 500  # characters; a longer label is the rest of a file after a quote that nobody closed


@dataclass(frozen=True, eq=False, repr=False)
class Labels(Fields):
    """Names of the rows and columns of a matrix; None where they have numbers only (from 0).

    Attributes
    ----------
    rows : str array (n1,) or None
    cols : str array (n2,) or None
    """

    rows: np.ndarray | None = None
    cols: np.ndarray | None = None

    @property
    def T(self) -> Labels:
        """The labels of the transposed matrix."""
        return Labels(self.cols, self.rows)

    def row_names(self, index: np.ndarray) -> np.ndarray:
        """The labels of some rows (k,); their numbers in writing where there are none."""
        return _names(self.rows, index)

    def col_names(self, index: np.ndarray) -> np.ndarray:
        """The labels of some columns (k,)."""
        return _names(self.cols, index)

    def find_rows(self, names: Sequence[str] | np.ndarray, n1: int) -> np.ndarray:
        """The numbers of the rows of an n1 x n2 matrix with these labels, int64 (k,); -1 where there is none."""
        return _find(self._row_of, names, n1)

    def find_cols(self, names: Sequence[str] | np.ndarray, n2: int) -> np.ndarray:
        """The numbers of the columns with these labels, int64 (k,); -1 where there is none."""
        return _find(self._col_of, names, n2)

    @cached_property
    def _row_of(self) -> dict[str, int] | None:
        return None if self.rows is None else {str(name): k for k, name in enumerate(self.rows)}

    @cached_property
    def _col_of(self) -> dict[str, int] | None:
        return None if self.cols is None else {str(name): k for k, name in enumerate(self.cols)}

    def arrays(self) -> dict[str, np.ndarray]:
        """What to write into a file."""
        both = {"row_labels": self.rows, "col_labels": self.cols}
        return {name: labels for name, labels in both.items() if labels is not None}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray], shape: tuple[int, int], where: str) -> Labels:
        """What `arrays` gave, checked; `where` names the file."""
        found = [arrays.get("row_labels"), arrays.get("col_labels")]
        for name, labels, n in zip(("row_labels", "col_labels"), found, shape, strict=True):
            if labels is not None and (labels.dtype.kind != "U" or labels.shape != (n,)):
                raise ValueError(
                    f"{where!r} is damaged: {name} must be {n} strings, got shape {labels.shape} of {labels.dtype}"
                )
        return cls(*found)


def _names(labels: np.ndarray | None, index: np.ndarray) -> np.ndarray:
    return np.asarray(index).astype(str) if labels is None else labels[index]


def _find(known: dict[str, int] | None, names: Sequence[str] | np.ndarray, size: int) -> np.ndarray:
    if known is not None:
        return np.fromiter((known.get(str(name), -1) for name in names), np.int64, len(names))
    # isascii: other scripts have digits too, but nobody writes indices with them
    numbers = (int(t) if t.isascii() and t.isdecimal() and len(t) < 19 else -1 for t in map(str, names))
    return np.fromiter((k if k < size else -1 for k in numbers), np.int64, len(names))


S = TypeVar("S", covariant=True)  # CrossSamples or ShardedSamples


@dataclass(frozen=True, eq=False, repr=False)
class Labelled(Fields, Generic[S]):
    """Observations, the user's names of their rows and columns, and where they came from.

    Attributes
    ----------
    samples : CrossSamples or ShardedSamples
    labels : Labels
    source : str
        What kind of file it was, in words.
    n_missing : int
        Lines of the file that named an entry but had no value.
    columns : tuple of str or None
        What the file calls row, column and value, if it does.
    """

    samples: S
    labels: Labels
    source: str = "observations"
    n_missing: int = 0
    columns: tuple[str, ...] | None = None


class LabelledSamples(Labelled[CrossSamples]):
    """Observations in memory, with labels."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one ``.npz`` file, which `CrossSamples.load` reads too."""
        files.write_npz(path, "CrossSamples", self.samples.file_arrays() | self.labels.arrays())


def wrong_with_label(text: str) -> str:
    """What is wrong with a label, in words; empty if nothing is."""
    name = text.strip()
    if not name:
        return "is empty"
    if name in ("nan", "NaN"):
        return f"is {name}, which stands for a missing value"
    if len(name) > LONGEST:
        return f"has {len(name):,} characters (at most {LONGEST}); is a quotation mark not closed?"
    if "\0" in name:
        return "contains a null character: this is not a text file"
    return ""
