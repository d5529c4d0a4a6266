"""Equal fields of a text get one number, without a Python string for each field."""

from __future__ import annotations

import numpy as np

_WORD = 8  # bytes that are compared at a time
_MASKS = np.array([(1 << (8 * k)) - 1 for k in range(_WORD + 1)], "<u8")  # the first k bytes of a word
_LONGEST = 1 << 10  # bytes of a field: each eight bytes more are a round over all fields that are so long
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: its products are evenly spread
_ROUNDS = 40  # of looking up; two or three do, unless somebody chose labels to collide


class Fields:
    """Some fields of a text.

    Parameters
    ----------
    text : bytes
    starts, stops : int64 arrays (n,)
        Where each field begins and ends.
    """

    def __init__(self, text: bytes, starts: np.ndarray, stops: np.ndarray) -> None:
        self._text, self._starts, self._lengths = text, starts, stops - starts
        padded = np.frombuffer(text + bytes(_WORD), np.uint8)
        self._words: np.ndarray = np.ndarray(len(text) + 1, "<u8", padded, strides=(1,))  # one begins at each byte

    def __len__(self) -> int:
        return len(self._starts)

    def numbered(self) -> tuple[np.ndarray, list[bytes]] | None:
        """The number of each field (n,), and the different fields by their numbers, in the order in which they come.

        A table of hashes in which the first field of each place stands for the others: those that are equal to it get its
        number, the others go on to a table with other places. None if that comes to no end, or fields are very long.
        """
        n = len(self)
        if n and self._lengths.max() > _LONGEST:
            return None
        bits = max(n.bit_length(), 10)
        table, like = np.empty(1 << bits, np.int32), np.arange(n, dtype=np.int32)
        left, hashes = like, self._hashes()
        for _ in range(_ROUNDS):
            hashes *= _ODD
            place = hashes >> np.uint64(64 - bits)
            table[place[::-1]] = left[::-1]  # the last one that is written stays: the first of the fields
            first = table[place]
            same = self._equal(left, first)
            like[left[same]] = first[same]
            left, hashes = left[~same], hashes[~same]
            if not len(left):
                break
            hashes ^= hashes >> np.uint64(32)
        else:
            return None
        new = like == np.arange(n)
        numbers = np.cumsum(new, dtype=np.int32) - np.int32(1)
        return numbers[like], self._bytes(np.flatnonzero(new))

    def _bytes(self, some: np.ndarray) -> list[bytes]:
        starts = self._starts[some]
        return [self._text[a:b] for a, b in zip(starts.tolist(), (starts + self._lengths[some]).tolist(), strict=True)]

    def _word(self, k: int, some: np.ndarray) -> np.ndarray:
        """Word number k of some fields that have one; bytes behind the end of a field are 0."""
        rest = np.minimum(self._lengths[some] - _WORD * k, _WORD)
        return self._words[self._starts[some] + _WORD * k] & _MASKS[rest]

    def _hashes(self) -> np.ndarray:
        hashes = self._lengths.astype(np.uint64)
        for k in range(self._n_words(self._lengths)):
            some = np.flatnonzero(self._lengths > _WORD * k)
            mixed = (hashes[some] ^ self._word(k, some)) * _ODD
            hashes[some] = mixed ^ (mixed >> np.uint64(32))
        return hashes

    def _equal(self, some: np.ndarray, others: np.ndarray) -> np.ndarray:
        same = self._lengths[some] == self._lengths[others]
        for k in range(self._n_words(self._lengths[some])):
            here = np.flatnonzero(same & (self._lengths[some] > _WORD * k))
            same[here] = self._word(k, some[here]) == self._word(k, others[here])
        return same

    @staticmethod
    def _n_words(lengths: np.ndarray) -> int:
        return -(-int(lengths.max(initial=0)) // _WORD)
