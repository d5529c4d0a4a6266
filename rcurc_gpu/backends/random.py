"""Where all random numbers come from: the register of streams, and numbers that belong to a position of the matrix.

Every place that draws has a stream of its own in one of the three registers below, so that no two places see the same
numbers of one seed. A number made from (seed, i, j) alone is the same in both blocks, in every chunk and on every device,
and needs no memory: the held-out entries and the synthetic outliers are drawn this way. Only the doctor's checks draw
otherwise, from fixed seeds, and `paper.records.run_seed` makes the seeds of an experiment's runs.
"""

from __future__ import annotations

import math
from enum import IntEnum, unique
from typing import Any

import numpy as np

from .arrays import Array, array_namespace, device_of

MIX_1, MIX_2, _WEYL = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15  # the constants of splitmix64
_MASK = (1 << 64) - 1


@unique
class Stream(IntEnum):
    """Generators that a solve draws from, and those of functions that hand their seed on to a solve."""

    START = 0  # operators.random_start: where a subspace iteration begins (core, IRCUR, verdict); the seed's own numbers
    SAMPLE = 1  # core.problem: the entries from which medians are taken
    PILOT = 2  # core.paper: the units that run along with the core, to see when e_k is small enough
    HEAD_START = 3  # core.head_start: the part of the intersection, and its sample
    ROBUST_PCA = 4  # api.robust_pca: rows and columns of a matrix that is known everywhere
    IRCUR = 5  # solve.ircur: rows and columns, drawn anew in each iteration
    RIVALS = 6  # core.recheck: some rows and columns in which rivals are counted
    ESTIMATOR = 7  # models.estimator: rows and columns of the core; was 6, the numbers of RIVALS in the same solve
    RATINGS = 8  # models.ratings: which ratings are held out; was the numbers of START in the same solve
    VIDEO_CROSS = 9  # video.sample, video.find, paper.table1: frames and pixels of the cross, and what is seen; was START
    NOISE_START = 11  # noise.start: random signs, and where Lanczos begins
    NOISE_SAMPLE = 12  # noise.sweeps: entries by which sweeps are judged
    NOISE_PART = 13  # solve: which columns and rows the noise model is fitted to
    TIES = 14  # judge.ties: where Lanczos begins; judge.groups: coefficients at random
    REJECTED = 16  # solve.rejected: which columns and rows are looked at; with a 1 more, judge.structure: random signs;
    # with a 2 or 3, result.transform: which new columns and which of their entries are looked at


@unique
class DataStream(IntEnum):
    """Generators that make data from a seed that is not handed on to a solve.

    Their numbers are those of the first streams of a solve. They stay: the data of a seed is the same in all versions.
    """

    WHOLE = 0  # all of a synthetic problem, of synthetic ratings, of a sampling pattern, or of a cross that is drawn
    STREET = 1  # video.scene: the background
    MOVERS = 2  # video.scene: who walks and drives when
    CAMERA = 3  # video.scene: noise, with the number of the frame


@unique
class PositionStream(IntEnum):
    """Streams of `uniform_at` and `normal_at`."""

    IS_OUTLIER = 1  # testing.synthetic: which entries are outliers
    OUTLIER = 2  # testing.synthetic: how large they are
    NOISE = 3  # testing.synthetic: normal numbers, which take two streams
    NOISE_ANGLE = 4  # the second one
    HOLDOUT = 11  # which entries are held out of the fit
    PART = 21  # the part of a unit's entries that a restart begins with: PART + k for the k-th, N_PARTS at the most
    SUBSET = 28  # subsets of as many entries of a unit as it has unknowns
    MODE = 29  # noise.modes: the same with noise


N_PARTS = 7  # PART + k has to stay below the next stream


def generator(seed: int, stream: Stream | DataStream, *more: int) -> np.random.Generator:
    """The generator of a stream; stream 0 is ``default_rng(seed)``, since NumPy's seeds do not see zeros at the end."""
    return np.random.default_rng((seed, int(stream), *more))


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
    """Standard normal numbers, one for each position (Box-Muller); takes `stream` and `stream` + 1."""
    xp = array_namespace(i, j)
    radius = xp.sqrt(-2.0 * xp.log1p(-uniform_at(i, j, seed, stream)))
    return radius * xp.cos(2.0 * math.pi * uniform_at(i, j, seed, stream + 1))
