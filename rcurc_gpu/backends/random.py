"""Random numbers that belong to a position (i, j) of the matrix.

A number made from (seed, i, j) alone is the same in both blocks, in every chunk and on every device, and needs no
memory. The held-out entries and the synthetic outliers are drawn this way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import ArgumentError, ArgumentTypeError
from .arrays import Array, array_namespace, device_of

MIX_1, MIX_2, _WEYL = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _mix_int(z: int) -> int:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014) on a Python int."""
    z = (z + _WEYL) & _MASK
    z = ((z ^ (z >> 30)) * MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * MIX_2) & _MASK
    return z ^ (z >> 31)


def stream_key(seed: int, stream: int) -> int:
    """What the positions are mixed with, 64 bits."""
    return _mix_int(_mix_int(seed) ^ stream)


def uniform_at(i: Array, j: Array, seed: int, stream: int = 0) -> Array:
    """Uniform numbers on [0, 1), one for each position.

    Parameters
    ----------
    i, j : integer arrays that broadcast against each other
        Positions, below 2**32.
    seed, stream : int
        Different streams of one seed are independent.

    Returns
    -------
    float64 array of the broadcast shape
    """
    xp = array_namespace(i, j)

    def word(value: int) -> Any:
        return xp.asarray(np.uint64(value), dtype=xp.uint64, device=device_of(i))

    z = xp.astype(i, xp.uint64) * word(1 << 32) + xp.astype(j, xp.uint64)
    z = z ^ word(stream_key(seed, stream))
    z = (z ^ (z >> word(30))) * word(MIX_1)
    z = (z ^ (z >> word(27))) * word(MIX_2)
    z = z ^ (z >> word(31))
    # One round leaves neighbours of a small key correlated in the low bits; the second does not.
    z = (z ^ (z >> word(30))) * word(MIX_1)
    z = z ^ (z >> word(31))
    return xp.astype(z >> word(11), xp.float64) * 2.0**-53


def normal_at(i: Array, j: Array, seed: int, stream: int = 0) -> Array:
    """Standard normal numbers, one for each position (Box-Muller); uses `stream` and `stream` + 1."""
    xp = array_namespace(i, j)
    radius = xp.sqrt(-2.0 * xp.log1p(-uniform_at(i, j, seed, stream)))
    return radius * xp.cos(2.0 * math.pi * uniform_at(i, j, seed, stream + 1))


def seed_to_int(seed: Any) -> int:
    """One 63-bit integer from ``None``, an int or a ``numpy.random.Generator`` (which advances)."""
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(1 << 63))
    if seed is None:
        return int(np.random.default_rng().integers(1 << 63))
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        if seed < 0:
            raise ArgumentError("seed", f"must not be negative, got {seed}")
        return int(seed)
    raise ArgumentTypeError("seed", f"must be None, an int or a numpy.random.Generator, got {type(seed).__name__}")
