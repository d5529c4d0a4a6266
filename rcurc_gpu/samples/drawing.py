"""Cross-concentrated sampling (Procedure 1 of the paper): choose I and J, then observe a share of the entries of R and C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends.arrays import Array, array_namespace, asarray_on, home_of, is_array, native, to_numpy
from ..backends.blocks import Block
from ..backends.random import DataStream, generator
from ..errors import check_count, check_number, check_shape, seed_to_int
from .building import check_finite, float_values
from .cross import CrossSamples
from .dense import known_matrix

_PIECE = 1 << 22  # positions drawn at a time: 32 MB, and few enough pieces for NumPy's overhead not to count


def ccs_sample(Y: Any, n_rows: int, n_cols: int, rate_rows: float, rate_cols: float, seed: Any = None) -> CrossSamples:
    """Draw cross-concentrated samples of a matrix.

    Parameters
    ----------
    Y : anything with ``shape`` and entries by index, (n1, n2)
        An array of any namespace, a `numpy.memmap`, an HDF5 or Zarr array, or an object with a method
        ``entries(i, j)``. NaN entries count as not observed.
    n_rows, n_cols : int
        |I| and |J|.
    rate_rows, rate_cols : float in (0, 1]
        p_R and p_C: every entry of a block is seen with this probability.
    seed : None, int or numpy.random.Generator

    Returns
    -------
    CrossSamples

    Examples
    --------
    >>> import numpy as np
    >>> import rcurc_gpu as rg
    >>> Y = np.outer(np.arange(1.0, 101.0), np.arange(1.0, 81.0))
    >>> samples = rg.ccs_sample(Y, 30, 20, rate_rows=0.5, rate_cols=0.5, seed=0)
    >>> samples.shape, len(samples.rows), len(samples.cols)
    ((100, 80), 30, 20)
    """
    Y = known_matrix(Y, "for stored ones")
    home, Y = home_of(Y), native(Y, "Y")
    n1, n2 = check_shape("Y.shape", Y.shape)
    n_rows, n_cols = check_count("n_rows", n_rows, 1, n1), check_count("n_cols", n_cols, 1, n2)
    rate_rows = check_number("rate_rows", rate_rows, 0, 1, open_low=True)
    rate_cols = check_number("rate_cols", rate_cols, 0, 1, open_low=True)
    rng = generator(seed_to_int(seed), DataStream.WHOLE)  # another order of the draws would change the samples of a seed
    rows = np.sort(rng.choice(n1, n_rows, replace=False))
    cols = np.sort(rng.choice(n2, n_cols, replace=False))
    read = _reader(Y)
    r_block = draw_block(n2, n_rows, rate_rows, rng, lambda unit, index: read(rows[index], unit))
    c_block = draw_block(n1, n_cols, rate_cols, rng, lambda unit, index: read(unit, cols[index]))
    return CrossSamples((n1, n2), rows, cols, r_block, c_block, home=home)


def draw_block(
    n_units: int, length: int, rate: float, rng: np.random.Generator, read: Callable[[np.ndarray, np.ndarray], Array]
) -> Block:
    """Observe each of n_units x length entries with probability `rate`; ``read(unit, index)`` gives the values.

    Memory is proportional to what is observed: gaps between observed positions are drawn, not a mask.
    """
    total = n_units * length
    per_unit = np.zeros(n_units, dtype=np.int64)
    index_parts: list[np.ndarray] = []
    value_parts: list[Array] = []
    at = -1
    while at < total:
        # a tenth and 16 more than are expected, so that a small block seldom needs a second piece
        gaps = rng.geometric(rate, size=max(min(_PIECE, int(1.1 * (total - at) * rate) + 16), 1))
        position = np.cumsum(np.minimum(gaps, total + 1, out=gaps), out=gaps)  # gaps beyond the end must not overflow
        position += at
        at = int(position[-1])
        unit, index = np.divmod(position[position < total], length)
        values = read(unit, index)
        xp = array_namespace(values)
        seen = ~xp.isnan(values)
        if not bool(xp.all(seen)):
            host_seen = to_numpy(seen)
            unit, index, values = unit[host_seen], index[host_seen], values[seen]
        if unit.size:
            low, high = unit[0], unit[-1] + 1
            per_unit[low:high] += np.bincount(unit - low, minlength=high - low)
        index_parts.append(index.astype(np.int32))
        value_parts.append(values)
    xp = array_namespace(value_parts[0])
    value = xp.concat(value_parts)
    value_parts.clear()
    indptr = np.concatenate([[0], np.cumsum(per_unit)])
    return Block(asarray_on(indptr, value), asarray_on(np.concatenate(index_parts), value), value, length)


def _reader(Y: Any) -> Callable[[np.ndarray, np.ndarray], Array]:
    """A function that gives the values of Y at positions (i, j), checked: floats, NaN where there is no observation."""
    fetch = _fetcher(Y)

    def read(i: np.ndarray, j: np.ndarray) -> Array:
        values = fetch(i, j)
        values = float_values("Y", values if is_array(values) else np.asarray(values))
        if tuple(values.shape) != i.shape:
            raise ValueError(
                f"Y must give one value for each position, got shape {tuple(values.shape)} for {len(i)} positions"
            )
        xp = array_namespace(values)
        if bool(xp.any(xp.isinf(values))):
            check_finite("Y", xp.where(xp.isnan(values), xp.zeros_like(values), values), lambda k: (int(i[k]), int(j[k])))
        return values

    return read


def _fetcher(Y: Any) -> Callable[[np.ndarray, np.ndarray], Any]:
    if hasattr(Y, "entries"):
        return lambda i, j: Y.entries(i, j)
    if is_array(Y) and not isinstance(Y, np.ndarray):
        xp, n2 = array_namespace(Y), Y.shape[1]
        flat = xp.reshape(Y, (-1,))
        return lambda i, j: xp.take(flat, asarray_on(i * n2 + j, Y), axis=0)
    if isinstance(Y, np.ndarray):
        return lambda i, j: np.asarray(Y[i, j])
    return lambda i, j: _read_by_row(Y, i, j)


def _read_by_row(Y: Any, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Entries of something that can be sliced row by row but not indexed by two vectors (HDF5, Zarr, lists of rows)."""
    out = np.empty(len(i), dtype=getattr(Y, "dtype", np.float64))
    order = np.argsort(i, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(i[order])) + 1):
        if group.size:
            out[group] = np.asarray(Y[int(i[group[0]])])[j[group]]
    return out
