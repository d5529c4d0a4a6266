"""What is known of the units of a side, on the device: only sums, and units that are looked at again, come to the host."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import cupy  # type: ignore[import-not-found]
import numpy as np

from ..arrays import Array
from ..plain.verdicts import BINS, FORMER, Limits
from .launch import dense, kernel, launch, pointer

_THREADS = 128  # of a block, as in verdicts.cu
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


def _blocks(n: int) -> int:
    return min(max(-(-n // _THREADS), 1), _MOST_BLOCKS)


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
        On the device.
    judged : (int, int, int) or None
        What `judge` gave, once it was called.
    lost : int64 array
        Units that are not determined in the end, on the host; to be written.
    """

    def __init__(self, like: Array, n_units: int, inside: np.ndarray, core: np.ndarray) -> None:
        rows = np.concatenate([core, np.zeros((len(core), len(Known) - core.shape[1]))], axis=1)
        rows[:, Known.STATUS] = -1 - rows[:, Known.STATUS]
        outside = np.ones(n_units, dtype=bool)
        outside[inside] = False
        with like.device:
            self._units = cupy.asarray(np.flatnonzero(outside))
            self.table = cupy.empty((n_units, len(Known)))
            self._bits = cupy.empty(len(self._units), np.uint8)
            self._work = cupy.empty(10 * _MOST_BLOCKS), cupy.zeros(1, np.uint32)
            self.put(inside, rows)
        self.judged: tuple[int, int, int] | None = None
        self.lost = np.zeros(0, np.int64)

    def put(self, units: np.ndarray, rows: np.ndarray) -> None:
        """Overwrite what is known of some units, from the host."""
        if len(units):
            with self.table.device:
                self.table[cupy.asarray(units)] = cupy.asarray(rows)

    def diagnose(self, fits: Array, rank: int, floor: float) -> np.ndarray:
        """Read the table of a pass over all units that are not of the core.

        Returns
        -------
        float64 array (2, 2)
            Of their shares of inliers, and of their spreads: the bin of the median, and the total. On the host.
        """
        n, dtype = len(self._units), fits.dtype
        with self.table.device:
            counts = cupy.zeros((2, BINS + 1), np.uint32)
            numbers = (np.float64(rank), np.float64(floor))
            if n:
                arguments = (np.int64(n), self._units, dense(fits), *numbers, counts, self.table)
                _launch("diagnose", _blocks(n), arguments, dtype.name)
            out = cupy.empty((2, 2))
            _launch("medians", 1, (counts, out))
            return np.asarray(cupy.asnumpy(out))

    def judge(self, limits: Limits) -> tuple[int, int, int]:
        """Compare those units with each other; how many are doubtful, have too few inliers, and have no spread.

        That is done once: units get their status by it.
        """
        n = len(self._units)
        if self.judged is not None:
            return self.judged
        with self.table.device:
            at, sums = cupy.asarray(np.asarray(limits, dtype=np.float64)), cupy.empty(3)
            _launch("judge", _blocks(n), (np.int64(n), self._units, at, self.table, self._bits, *self._work, sums))
            doubtful, failed, unknown = map(int, cupy.asnumpy(sums))
        self.judged = (doubtful, failed, unknown)
        return self.judged

    def picked(self, wanted: int, unwanted: int = 0) -> Array:
        """Numbers of units with one of the `wanted` bits and none of the others, among those that are not of the core.

        They are on the device.
        """
        with self.table.device:
            return self._pick(len(self._units), self._bits, wanted, unwanted)

    def mark(self, places: Array, marked: Array, status: int) -> None:
        """Give determined units with such numbers, where `marked` (bool), another status."""
        with self.table.device:
            self.table[self._units[places], Known.STATUS] = marked * float(status)

    def units_at(self, places: Array) -> Array:
        """Units with such numbers."""
        return self._units[places]

    def chosen(self, wanted: int) -> tuple[np.ndarray, np.ndarray]:
        """Units with one of the `wanted` bits: numbers among those that are not of the core, and what is known (k, 8).

        Both are on the host, with the status that a unit has by itself.
        """
        with self.table.device:
            places = self.picked(wanted)
            if len(places) == 0:
                return cupy.asnumpy(places), np.zeros((0, len(Known)))
            rows = cupy.empty((len(places), len(Known) + 2))  # with bits and numbers: one copy
            arguments = (np.int64(len(places)), places, self._units, self.table, self._bits, rows)
            _launch("gather_units", _blocks(len(places)), arguments)
            found = cupy.asnumpy(rows)
        found[:, Known.STATUS] = found[:, -2].astype(np.int64) >> FORMER
        return found[:, -1].astype(np.int64), found[:, : len(Known)]

    def undetermined(self) -> np.ndarray:
        """Numbers of all units that are not determined, on the host."""
        with self.table.device:
            return np.asarray(cupy.asnumpy(self._pick(len(self.table), None)))

    def _pick(
        self,
        n: int,
        bits: Array | None,
        wanted: int = 0,
        unwanted: int = 0,
        far_more: float = 0.0,
        out: tuple[Array, Array] | None = None,
    ) -> Array:
        numbers, count = cupy.empty(n, np.int64), cupy.empty((), np.int64)
        asked = (pointer(bits), np.int32(wanted), np.int32(unwanted), self.table, np.float64(far_more))
        found = (numbers, count, *map(pointer, out or (None, None)))
        _launch("pick_units", 1, (np.int64(n), *asked, *found))
        return numbers[: int(count)]

    def summary(self) -> np.ndarray:
        """Sums over the units that are not of the core (10,), on the host: see `summarise` in verdicts.cu."""
        n = len(self.table)
        with self.table.device:
            out = cupy.empty(10)
            _launch("summarise", _blocks(n), (np.int64(n), self.table, *self._work, out))
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
            self._outliers, totals = cupy.empty(n), cupy.empty(2)
            units = self._pick(n, None, far_more=far_more, out=(self._outliers, totals))
            known = self.known(units)
            found = known[:, Known.N_OBS], known[:, Known.N_OBS] - known[:, Known.N_INLIERS]
            return cupy.asnumpy(units), np.stack(found, axis=1).astype(np.int64), cupy.asnumpy(totals)

    def most_outliers(self, units: np.ndarray, most: int) -> np.ndarray:
        """Which of some units have the most outliers, on the host; after `crowded`."""
        with self.table.device:
            order = cupy.argsort(self._outliers[cupy.asarray(units)])
            return np.asarray(cupy.asnumpy(order[len(units) - most :]))

    def known(self, units: np.ndarray | Array | None = None) -> np.ndarray:
        """What is known of some units, by default all, on the host."""
        with self.table.device:
            found = cupy.asnumpy(self.table if units is None else self.table[cupy.asarray(units)])
        status = found[:, Known.STATUS]
        found[:, Known.STATUS] = np.where(status < 0, -1 - status, status)
        return np.asarray(found)
