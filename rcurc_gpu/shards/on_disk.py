"""One shard in one file: the arrays of a `Block`, three or with `sigma` four, as ``.npy`` records, one after the other.

``numpy.load`` as often from the open file reads it. Nothing is compressed: noisy numbers hardly shrink, reading goes at
the speed of the disk, and what is looked at a second time is mapped, a few pages instead of the file.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from ..backends.blocks import Block
from ..files import UNREADABLE, open_file, write_whole

# 8-byte numbers first, so that all arrays are aligned in the file
_PARTS = (("indptr", np.int64), ("value", None), ("index", np.int32))
_SIGMA = ("sigma", None)  # a fourth part, if the noise of each observation is known


@dataclass(frozen=True)
class ShardFacts:
    """What the manifest says of a shard's file.

    Attributes
    ----------
    start, stop : int
        Its units.
    n_obs : int
    largest : float
        The largest size of an observation.
    crc32 : str
        Checksum of the arrays.
    sigma : bool
        Whether the file says of each observation how large its noise is.
    """

    start: int
    stop: int
    n_obs: int
    largest: float
    crc32: str
    sigma: bool = False


def write_shard(path: str | os.PathLike[str], start: int, block: Block) -> ShardFacts:
    """Write a block on the host whose first unit has the number `start`; the file appears whole or not at all."""
    arrays = _arrays_of(block)

    def write(file: BinaryIO) -> None:
        for array in arrays:
            npy.write_array(file, array, version=(1, 0), allow_pickle=False)

    write_whole(path, write)
    facts = start, start + block.n_units, block.n_obs, largest_of(block.value), checksum(arrays)
    return ShardFacts(*facts, block.sigma is not None)


def _arrays_of(block: Block) -> list[np.ndarray]:
    """What a file has of a block on the host, in this order."""
    names = [name for name, _ in (*_PARTS, _SIGMA) if getattr(block, name) is not None]
    return [np.ascontiguousarray(getattr(block, name)) for name in names]


def read_shard(path: str | os.PathLike[str], facts: ShardFacts, length: int, dtype: Any) -> Block:
    """Read all of it, and compare it with its checksum."""
    try:
        with open_file(path) as file:
            arrays = [np.fromfile(file, kind, count) for kind, count in _headers(file, path, facts, dtype, skip=False)]
    except OSError as error:
        raise _missing(path, error) from error
    indptr, value, index, *sigma = arrays
    if checksum(arrays) != facts.crc32:
        raise ValueError(f"the shard {os.fspath(path)!r} is damaged: its checksum is not the manifest's; write it again")
    block = _safe(path, Block(indptr, index, value, length, *sigma))
    _check_largest(path, facts, value)
    ascends = index[1:] > index[:-1]
    starts = indptr[1:-1]
    ascends[starts[(starts > 0) & (starts < len(index))] - 1] = True  # a new unit begins
    if not ascends.all():
        raise ValueError(f"the shard {os.fspath(path)!r} is damaged: an index is repeated, or out of order")
    _verified.add(_state(path, facts))
    return block


def _check_largest(path: Any, facts: ShardFacts, value: np.ndarray) -> None:
    if (found := largest_of(value)) != facts.largest:  # also where one is NaN
        raise ValueError(
            f"the shard {os.fspath(path)!r} is damaged: its largest value has the size {found:g}, the manifest says "
            f"{facts.largest:g}"
        )


def check_values(path: str | os.PathLike[str], facts: ShardFacts, dtype: Any) -> None:
    """Refuse a shard whose largest value is not what the manifest says, without the rest of it."""
    try:
        with open_file(path) as file:
            placed = [(file.tell(), found[1]) for found in _headers(file, path, facts, dtype, skip=True)]
    except OSError as error:
        raise _missing(path, error) from error
    at, count = placed[1]
    _check_largest(path, facts, np.memmap(path, dtype, "r", at, (count,)) if count else np.empty(0, dtype))


def largest_of(value: np.ndarray) -> float:
    """The largest size among values; 0 if there are none."""
    return max(float(value.max()), -float(value.min())) if len(value) else 0.0


def file_bytes(facts: ShardFacts, dtype: Any) -> int:
    """Bytes of the arrays of a shard, without their headers."""
    return sum(count * kind.itemsize for _, kind, count in _expected(facts, dtype))


def _expected(facts: ShardFacts, dtype: Any) -> Iterator[tuple[str, np.dtype[Any], int]]:
    """Name, dtype and length of each array of a shard."""
    for name, kind in (*_PARTS, _SIGMA) if facts.sigma else _PARTS:
        count = facts.stop - facts.start + 1 if name == "indptr" else facts.n_obs
        yield name, np.dtype(dtype if kind is None else kind), count


def _safe(path: Any, block: Block) -> Block:
    """The block, if compiled kernels, which trust indices, stay within bounds on it."""
    indptr, index = block.indptr, block.index
    ends = indptr[0] == 0 and indptr[-1] == len(index) and bool((indptr[1:] >= indptr[:-1]).all())
    if not ends or (len(index) and (int(index.min()) < 0 or int(index.max()) >= block.length)):
        raise ValueError(f"the shard {os.fspath(path)!r} is damaged: an index does not lie in 0..{block.length - 1}")
    if block.sigma is not None and not (np.isfinite(block.sigma) & (block.sigma > 0)).all():
        raise ValueError(f"the shard {os.fspath(path)!r} is damaged: a sigma is not positive and finite")
    return block


def _state(path: Any, facts: ShardFacts) -> tuple[Any, ...]:
    """What changes when a file does."""
    said = os.stat(path)
    return os.path.abspath(path), facts.crc32, said.st_mtime_ns, said.st_size, said.st_ino


_verified: set[tuple[Any, ...]] = set()  # files whose checksum this process has seen to be right


def read_units(path: str | os.PathLike[str], facts: ShardFacts, length: int, dtype: Any, units: np.ndarray) -> Block:
    """Read some units of a shard only; all of it if its checksum was not looked at yet in this process."""
    try:
        if _state(path, facts) not in _verified:
            return read_shard(path, facts, length, dtype).take_units(units)
        with open_file(path) as file:
            arrays = [
                np.memmap(path, kind, "r", file.tell(), (count,)) if count else np.empty(0, kind)
                for kind, count in _headers(file, path, facts, dtype, skip=True)
            ]
    except OSError as error:
        raise _missing(path, error) from error
    indptr, value, index, *sigma = arrays
    return _safe(path, Block(np.array(indptr), index, value, length, *sigma).take_units(units))


def checksum(arrays: list[np.ndarray]) -> str:
    """CRC-32 of the bytes of all of them."""
    total = 0
    for array in arrays:
        total = zlib.crc32(np.ascontiguousarray(array).data.cast("B") if array.size else b"", total)
    return f"{total:08x}"


def block_checksum(block: Block) -> str:
    """CRC-32 of the observations of a block on the host."""
    return checksum(_arrays_of(block))


def _headers(file: BinaryIO, path: Any, facts: ShardFacts, dtype: Any, skip: bool) -> Any:
    """Dtype and length of each array, with the file at its numbers; `skip` to go on behind them."""
    for name, expected, count in _expected(facts, dtype):
        try:
            npy.read_magic(file)
            shape, _, found = npy.read_array_header_1_0(file)
        except UNREADABLE as error:
            raise ValueError(f"the shard {os.fspath(path)!r} is damaged or truncated ({error})") from error
        size = os.fstat(file.fileno()).st_size - file.tell()
        if shape != (count,) or found != expected or size < count * expected.itemsize:
            raise ValueError(
                f"the shard {os.fspath(path)!r} is damaged or truncated: the manifest says {count:,} numbers {name} of "
                f"{expected}, the file has {shape} of {found} and {size:,} bytes left"
            )
        here = file.tell()
        yield expected, count
        if skip:
            file.seek(here + count * expected.itemsize)


def _missing(path: Any, error: OSError) -> OSError:
    """The system's error, with what the file is."""
    if error.errno is None or "shard" in str(error.strerror):
        return error
    return type(error)(error.errno, f"a shard cannot be read ({error.strerror})", os.fspath(path))
