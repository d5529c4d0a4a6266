"""What is known of the units of a side, on the device: only sums, and units that are looked at again, come to the host."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array
from ..plain.verdicts import BINS, DOUBTFUL, FAILED, FORMER, UNKNOWN, Limits
from .launch import dense, kernel, launch, pointer

_THREADS, _PICKERS = 128, 1024  # of a block, as in verdicts.cu
_MOST_BLOCKS = 256  # of a sum over everything; fixed, so that its order does not depend on the device


class Known(IntEnum):
    """Columns of the table; the kernels have the same order."""

    STATUS = 0
    N_OBS = 1
    N_INLIERS = 2
    SPREAD = 3
    STANDARD_ERROR = 4
    N_INFORMATIVE = 5
    N_HELD = 6
    N_CONSENSUS = 7


def _launch(name: str, blocks: int, arguments: tuple[Any, ...], dtype: str = "float64") -> None:
    launch(kernel("verdicts.cu", name, dtype), blocks, _THREADS, arguments)


def _launch_one(name: str, arguments: tuple[Any, ...], dtype: str = "float64") -> None:
    """A kernel of one block, which makes lists in their order."""
    launch(kernel("verdicts.cu", name, dtype), 1, _PICKERS, arguments)


def _blocks(n: int) -> int:
    return min(max(-(-n // _THREADS), 1), _MOST_BLOCKS)


class Picked(NamedTuple):
    """Units that are looked at again, and others that are marked on the device.

    Attributes
    ----------
    places : int64 array (k,)
        Numbers of the units, among those that are not of the core.
    rows : float64 array (k, 8)
        What is known of them, with the status that a unit has by itself.
    n_obs : int64 array (k,)
        Their observations, held-out ones included.
    coefficients : float array (k, r)
        These four are on the host.
    lone : int64 array
        Numbers of the others, on the device.
    """

    places: np.ndarray
    rows: np.ndarray
    n_obs: np.ndarray
    coefficients: np.ndarray
    lone: Array


class UnitTable:
    """A table (n_units, 8) of what is known of each unit of a side; see `Known`.

    Parameters
    ----------
    like : array
        On the device.
    n_units : int
    inside : int64 array (k,)
        Units of the core, on the host.
    core : float64 array (k, 6)
        What is known of these. Their status is kept as -1 less it, by which they are told from the others.

    Attributes
    ----------
    table : float64 array (n_units, 8)
        On the device, from `diagnose` on.
    units : int64 array
        Those that are not of the core, on the device.
    judged : (int, int, int) or None
        What `judge` gave, once it was called.
    outliers : float64 array (n_units,)
        Of each unit, on the device, from `crowded` on; none of those that are not determined.
    lost : int64 array
        Units that are not determined in the end, on the host; to be written.
    """

    def __init__(self, like: Array, n_units: int, inside: np.ndarray, core: np.ndarray) -> None:
        rows = np.concatenate([core, np.zeros((len(core), len(Known) - core.shape[1]))], axis=1)
        rows[:, Known.STATUS] = -1 - rows[:, Known.STATUS]
        outside = np.ones(n_units, dtype=bool)
        outside[inside] = False
        with like.device:
            self.units = cupy.asarray(np.flatnonzero(outside))
            self.table = cupy.empty((n_units, len(Known)))
            self._inside = cupy.asarray(inside, dtype=np.int64), cupy.asarray(rows)
            self._bits = cupy.empty(len(self.units), np.uint8)
            self._work = cupy.empty(10 * _MOST_BLOCKS), cupy.zeros(1, np.uint32)
        self.judged: tuple[int, int, int] | None = None
        self.lost = np.zeros(0, np.int64)
        self._n_with = np.zeros(FORMER, np.int64)

    def diagnose(self, fits: Array, rank: int, floor: float) -> np.ndarray:
        """Read the table of a pass over all units that are not of the core.

        Returns
        -------
        float64 array (2, 2)
            Of their shares of inliers, and of their spreads: the bin of the median, and the total. On the host.
        """
        n, dtype = len(self.units), fits.dtype
        with self.table.device:
            counts, out = cupy.zeros((2, BINS + 1), np.uint32), cupy.empty((2, 2))
            numbers = (np.float64(rank), np.float64(floor), np.int64(len(self._inside[0])))
            arguments = (
                np.int64(n),
                self.units,
                dense(fits),
                *numbers,
                *self._inside,
                counts,
                self.table,
                self._work[1],
                out,
            )
            _launch("diagnose", _blocks(n), arguments, dtype.name)
            return np.asarray(cupy.asnumpy(out))

    def judge(self, limits: Limits) -> tuple[int, int, int]:
        """Compare those units with each other; how many are doubtful, have too few inliers, and have no spread.

        That is done once: units get their status by it.
        """
        n = len(self.units)
        if self.judged is not None:
            return self.judged
        with self.table.device:
            at, sums = cupy.asarray(np.asarray(limits, dtype=np.float64)), cupy.empty(FORMER)
            _launch("judge", _blocks(n), (np.int64(n), self.units, at, self.table, self._bits, *self._work, sums))
            self._n_with = cupy.asnumpy(sums).astype(np.int64)
        doubtful, failed, unknown = (int(self._n_with[bit.bit_length() - 1]) for bit in (DOUBTFUL, FAILED, UNKNOWN))
        self.judged = (doubtful, failed, unknown)
        return self.judged

    def picked(self, bits: int, lone_bits: int, indptr: Array, a: Array | None = None) -> Picked:
        """Units that are not of the core, with some bits, after `judge`.

        Parameters
        ----------
        bits, lone_bits : int
            Units with one of `bits` are looked at again; those with one of `lone_bits` and none of `bits` are the others.
        indptr : int64 array (n_units + 1,)
            Where the observations of units begin, on the device or the host.
        a : float array (n, r), optional
            The coefficients of the units that are not of the core, if they are on the device.
        """
        n, width = len(self.units), len(Known) + 3
        rank, dtype = (0, np.dtype(np.float64)) if a is None else (a.shape[1], a.dtype)
        room = [min(n, int(sum(count for k, count in enumerate(self._n_with) if x >> k & 1))) for x in (bits, lone_bits)]
        if max(room) == 0:
            none = np.zeros(0, np.int64)
            return Picked(none, np.zeros((0, len(Known))), none, np.zeros((0, rank), dtype), self.units[:0])
        with self.table.device:
            rows, lone = cupy.empty((room[0], width + rank)), cupy.empty(room[1], np.int64)
            counts, asked = cupy.empty(2, np.int64), (np.int32(lone_bits), np.int32(bits))
            theirs = (dense(cupy.asarray(indptr), np.int64), pointer(None if a is None else dense(a)), np.int32(rank))
            given = (np.int64(n), self.units, self._bits, self.table, *theirs)
            _launch_one("pick_units", (*given, *asked, lone, rows, counts), dtype.name)
            n_lone, n_rows = cupy.asnumpy(counts).tolist()
            found = cupy.asnumpy(rows[:n_rows])
        bits_of, places, n_obs = found[:, len(Known) : width].T.astype(np.int64)
        found[:, Known.STATUS] = bits_of >> FORMER
        return Picked(places, found[:, : len(Known)], n_obs, found[:, width:].astype(dtype), lone[:n_lone])

    def mark(self, places: np.ndarray, status: int) -> None:
        """Give a status to some of the units that are not of the core; `places` are their numbers among these."""
        if len(places):
            with self.table.device:
                self.table[self.units[cupy.asarray(places)], Known.STATUS] = status

    def undetermined(self) -> np.ndarray:
        """Numbers of all units that are not determined, on the host."""
        n = len(self.table)
        with self.table.device:
            numbers, count = cupy.empty(n, np.int64), cupy.empty((), np.int64)
            _launch_one("undetermined", (np.int64(n), self.table, numbers, count))
            return np.asarray(cupy.asnumpy(numbers[: int(count)]))

    def summary(self, units: np.ndarray | None = None, rows: np.ndarray | None = None) -> np.ndarray:
        """Sums over the units that are not of the core (10,), on the host: see `summarise` in verdicts.cu.

        What is known of some `units` (k,), ascending, is exchanged for `rows` (k, 8) before; both are on the host.
        """
        n, k = len(self.table), 0 if units is None else len(units)
        with self.table.device:
            out = cupy.empty(10)
            new = (None, None) if k == 0 else (cupy.asarray(units, dtype=np.int64), cupy.asarray(rows, dtype=np.float64))
            _launch("summarise", _blocks(n), (np.int64(n), self.table, np.int64(k), *map(pointer, new), *self._work, out))
            return np.asarray(cupy.asnumpy(out))

    def scale(self, factor: float) -> None:
        """Multiply spreads and errors."""
        if factor != 1:
            self.table[:, Known.SPREAD : Known.STANDARD_ERROR + 1] *= factor

    def crowded(self, far_more: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Units with more than `far_more` times the share of outliers that all have, and more than two.

        Those that are not determined have neither observations nor outliers here.

        Returns
        -------
        units : int64 array (k,)
        counts : int64 array (k, 2)
            Their observations and outliers.
        totals : float64 array (2,)
            Those of all units. All of it is on the host.
        """
        n = len(self.table)
        with self.table.device:
            self.outliers, rows, out = cupy.empty(n), cupy.empty((n, 3)), cupy.empty(3)
            _launch_one("crowded", (np.int64(n), self.table, np.float64(far_more), self.outliers, rows, out))
            count, *totals = cupy.asnumpy(out).tolist()
            found = cupy.asnumpy(rows[: int(count)]).astype(np.int64)
        return found[:, 0], found[:, 1:], np.asarray(totals)

    def most_outliers(self, units: np.ndarray, most: int) -> np.ndarray:
        """Which of some units have the most outliers, on the host; after `crowded`."""
        with self.table.device:
            places = cupy.empty(min(most, len(units)), np.int64)
            chosen = cupy.asarray(units, dtype=np.int64)
            _launch_one("most_outliers", (np.int64(len(units)), chosen, self.outliers, np.int64(len(places)), places))
            return np.asarray(cupy.asnumpy(places))

    def known(self) -> np.ndarray:
        """What is known of all units, on the host."""
        with self.table.device:
            found = cupy.asnumpy(self.table)
        status = found[:, Known.STATUS]
        found[:, Known.STATUS] = np.where(status < 0, -1 - status, status)
        return np.asarray(found)
